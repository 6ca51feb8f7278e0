//! A socket, as programs call it.

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ropewalk_sync::MutexGuard;
use ropewalk_zmtp::SocketType;

use crate::background::{Notice, Served};
use crate::error::{Error, Result};
use crate::events::{Events, Woken};
use crate::frame::{Frame, Out};
use crate::monitor::{Monitor, MonitorSocket};
use crate::options::{Value, option};
use crate::registry::Registry;
use crate::shared_socket::SharedSocket;
use crate::slices::Slices;
use crate::state::SocketState;

/// A part that was not sent, and why.
#[derive(Debug)]
pub struct Unsent {
    /// Why.
    pub error: Error,
    /// The part.
    pub frame: Frame,
}

/// The socket's lock, in a call.
pub(crate) struct Locked<'a>(MutexGuard<'a, SocketState>);

impl Deref for Locked<'_> {
    type Target = SocketState;

    #[inline]
    fn deref(&self) -> &SocketState {
        &self.0
    }
}

impl DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut SocketState {
        &mut self.0
    }
}

impl Drop for Locked<'_> {
    /// A call reads all available bytes and takes what it needs; another thread may sleep for the rest, and is woken.
    #[inline]
    fn drop(&mut self) {
        self.0.rouse();
    }
}

/// A socket. Clones are the same one. It is closed by [`close`](Self::close), not by being dropped.
///
/// Types that ZeroMQ calls thread-safe (CLIENT, SERVER, RADIO, DISH, SCATTER, GATHER, PEER, CHANNEL) may be called by
/// many threads. The others are called by one at a time: a call while another one waits gives EBUSY.
#[derive(Clone)]
pub struct Socket(pub(crate) Arc<SharedSocket>);

impl Socket {
    /// A new one.
    pub(crate) fn open(registry: &Arc<Registry>, kind: SocketType) -> Result<Self> {
        if kind == SocketType::Dgram {
            return Err(Error::invalid("DGRAM sockets are not supported: they need udp"));
        }
        let shared = registry.admit(kind, |id, options| {
            let shared = Arc::new(SharedSocket::create(id, kind, registry, options)?);
            let notifier = Arc::downgrade(&shared.notifier);
            Ok((shared, notifier))
        })?;
        Ok(Self(shared))
    }

    /// The background looks after the socket from now on. One without endpoints has nothing that it could do.
    fn be_served(&self) {
        if !self.0.notifier.is_served.swap(true, Ordering::SeqCst) {
            self.0.registry.background.notify(Notice::Add(Arc::clone(&self.0) as Arc<dyn Served>));
        }
    }

    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.0.registry
    }

    /// Its type.
    pub fn kind(&self) -> SocketType {
        self.0.notifier.kind
    }

    /// Its number in the process.
    pub fn id(&self) -> u64 {
        self.0.notifier.id
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.0.notifier.is_closed.load(Ordering::Acquire)
    }

    /// Whether many threads may call it at once.
    #[inline]
    pub fn is_thread_safe(&self) -> bool {
        use SocketType::{Channel, Client, Dish, Gather, Peer, Radio, Scatter, Server};
        matches!(self.0.notifier.kind, Client | Server | Radio | Dish | Scatter | Gather | Peer | Channel)
    }

    #[inline]
    pub(crate) fn enter(&self) -> Result<Locked<'_>> {
        let mut state = self.0.lock();
        state.check_call()?;
        if self.0.notifier.has_mail() {
            state.take_mail();
        }
        Ok(Locked(state))
    }

    /// As [`enter`](Self::enter), for a receive. It counts as a poll even if the kernel is not asked: otherwise the
    /// background would read the messages of a socket whose owner is about to receive them.
    #[inline]
    fn enter_to_receive(&self) -> Result<Locked<'_>> {
        let entered = self.enter()?;
        self.0.notifier.count_look();
        Ok(entered)
    }

    /// A caller whose hot attempt failed may go to sleep. So unwritten bytes are written; and if there are watchers,
    /// peers that do not wake this end are armed, which a check does.
    #[inline]
    fn must_look(&self, state: &mut SocketState) -> bool {
        state.settle();
        self.0.notifier.is_watched() && !state.hot().is_empty()
    }

    // --- options -------------------------------------------------------------------------------------------

    /// Sets an option from the bytes of a C value.
    ///
    /// # Errors
    ///
    /// EINVAL for an option that this type of socket lacks, that is not supported, or a value out of range; ETERM,
    /// ENOTSOCK.
    pub fn set(&self, number: i32, value: &[u8]) -> Result<()> {
        let mut state = self.enter()?;
        match number {
            option::SUBSCRIBE | option::UNSUBSCRIBE => {
                let is_wanted = number == option::SUBSCRIBE;
                match state.kind {
                    SocketType::Sub => {
                        state.want(value, is_wanted);
                        Ok(())
                    }
                    SocketType::XPub if state.options.xpub_manual => state.subscribe_last(value, is_wanted),
                    kind => Err(Error::invalid(format!(
                        "a {} socket does not subscribe by an option",
                        kind.name()
                    ))),
                }
            }
            _ => {
                let kind = state.kind;
                state.options.set(kind, number, value)?;
                self.0.notifier.publish(&state.options);
                Ok(())
            }
        }
    }

    /// The value of an option.
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set).
    pub fn get(&self, number: i32) -> Result<Value> {
        let mut state = self.enter()?;
        Ok(match number {
            option::TYPE => Value::Int(state.kind as i32),
            option::RCVMORE => Value::Int(i32::from(state.more())),
            option::THREAD_SAFE => Value::Int(i32::from(self.is_thread_safe())),
            option::LAST_ENDPOINT => Value::Bytes(state.last_endpoint.clone().into_bytes()),
            option::TOPICS_COUNT => Value::Int(state.topics()),
            option::FD => {
                drop(state);
                Value::Int(self.0.notifier.watch_fd()?)
            }
            option::EVENTS => {
                state.look(Events::READ | Events::WRITE)?;
                Value::Int(i32::from(state.ready_events().bits()))
            }
            _ => {
                let kind = state.kind;
                state.options.get(kind, number)?
            }
        })
    }

    /// SNDTIMEO.
    pub fn send_timeout(&self) -> Option<Duration> {
        self.0.lock().options.sndtimeo
    }

    /// RCVTIMEO.
    pub fn recv_timeout(&self) -> Option<Duration> {
        self.0.lock().options.rcvtimeo
    }

    // --- endpoints -----------------------------------------------------------------------------------------

    /// Listens at an endpoint.
    ///
    /// # Errors
    ///
    /// EINVAL, EPROTONOSUPPORT, EADDRINUSE, EADDRNOTAVAIL, ENODEV; ETERM, ENOTSOCK.
    pub fn bind(&self, endpoint: &str) -> Result<()> {
        let mut state = self.enter()?;
        // Under the lock, so that its notice is the first of the socket's.
        self.be_served();
        state.bind(endpoint)
    }

    /// Connects to an endpoint, now or as soon as it is there.
    ///
    /// # Errors
    ///
    /// EINVAL, EPROTONOSUPPORT; ETERM, ENOTSOCK.
    pub fn connect(&self, endpoint: &str) -> Result<()> {
        let mut state = self.enter()?;
        self.be_served();
        state.connect(endpoint).map(drop)
    }

    /// PEER: connects, and gives the number of the peer there.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect), and ENOTSUP for other types.
    pub fn connect_peer(&self, endpoint: &str) -> Result<u32> {
        if self.0.notifier.kind != SocketType::Peer {
            return Err(Error::not_supported("only a PEER socket connects to a numbered peer"));
        }
        let mut state = self.enter()?;
        self.be_served();
        let index = state.connect(endpoint)?;
        Ok(state.number_of(index))
    }

    /// Listens no more. Connections that came by it end.
    ///
    /// # Errors
    ///
    /// ENOENT if it was not bound; ETERM, ENOTSOCK.
    pub fn unbind(&self, endpoint: &str) -> Result<()> {
        self.enter()?.unbind(endpoint)
    }

    /// Ends a connection that was made by [`connect`](Self::connect).
    ///
    /// # Errors
    ///
    /// ENOENT if there is none; ETERM, ENOTSOCK.
    pub fn disconnect(&self, endpoint: &str) -> Result<()> {
        self.enter()?.disconnect(endpoint)
    }

    /// DISH: joins a group.
    ///
    /// # Errors
    ///
    /// EINVAL if it has joined it, or for a long name; ENOTSUP for other types.
    pub fn join(&self, group: &str) -> Result<()> {
        self.enter()?.join(group, true)
    }

    /// DISH: leaves a group.
    ///
    /// # Errors
    ///
    /// EINVAL if it has not joined it; ENOTSUP for other types.
    pub fn leave(&self, group: &str) -> Result<()> {
        self.enter()?.join(group, false)
    }

    // --- messages ------------------------------------------------------------------------------------------

    /// Sends one part, if that is possible without waiting; the last one sends the message.
    ///
    /// # Errors
    ///
    /// EAGAIN when there is no room, EFSM, ENOTSUP, EHOSTUNREACH, EINVAL; ETERM, ENOTSOCK.
    #[expect(clippy::result_large_err, reason = "the part is given back as it came, without an allocation")]
    pub fn try_send(&self, frame: Frame, more: bool) -> std::result::Result<(), Unsent> {
        self.send_out(&frame.out(), more).map_err(|error| Unsent { error, frame })
    }

    /// As [`try_send`](Self::try_send), for bytes, which are copied directly into the outgoing buffer.
    ///
    /// # Errors
    ///
    /// As [`try_send`](Self::try_send).
    #[inline]
    pub fn try_send_bytes(&self, bytes: &[u8], more: bool) -> Result<()> {
        self.send_out(&Out::copied(bytes), more)
    }

    /// The part is lent and a result that is good is not passed on: a copy reads in one piece what was just written in
    /// several, for which the processor waits until all of them are in its cache.
    #[inline]
    fn send_out(&self, part: &Out<'_>, more: bool) -> Result<()> {
        self.0.registry.check_size(part.bytes.len())?;
        let mut state = self.enter()?;
        let Err(error) = state.send_part(part, more) else { return Ok(()) };
        if error != Error::again() {
            return Err(error);
        }
        state.look(Events::WRITE)?;
        state.send_part(part, more)
    }

    /// Whether a message that is sent now would wake a thread of this process. That takes some microseconds, in which a
    /// caller with an interpreter should let the woken thread have it.
    #[inline]
    pub fn would_wake(&self) -> bool {
        self.0.notifier.has_lanes.load(Ordering::Relaxed) && self.0.lock().would_wake()
    }

    /// Sends a whole message, if that is possible without waiting. `parts` is empty then, and otherwise unchanged.
    ///
    /// # Errors
    ///
    /// As [`try_send`](Self::try_send).
    pub fn try_send_all(&self, parts: &mut Vec<Frame>) -> Result<()> {
        for part in parts.iter() {
            self.0.registry.check_size(part.bytes().len())?;
        }
        let mut state = self.enter()?;
        state.check_whole()?;
        let outs: Vec<Out<'_>> = parts.iter().map(Frame::out).collect();
        let sent = match state.send(&outs) {
            Err(error) if error == Error::again() => {
                state.look(Events::WRITE)?;
                state.send(&outs)
            }
            other => other,
        };
        drop(state);
        if sent.is_ok() {
            parts.clear();
        }
        sent
    }

    /// Receives one part, if a whole message is here.
    ///
    /// # Errors
    ///
    /// EAGAIN when there is none, EFSM, ENOTSUP; ETERM, ENOTSOCK.
    pub fn try_recv(&self) -> Result<Frame> {
        let mut state = self.enter_to_receive()?;
        match state.take_part() {
            Err(error) if error == Error::again() => {
                state.look(Events::READ)?;
                state.take_part()
            }
            other => other,
        }
    }

    /// As [`try_recv`](Self::try_recv), but does not ask the kernel: for callers that [`wait`](Self::wait) when there
    /// is nothing.
    ///
    /// # Errors
    ///
    /// As [`try_recv`](Self::try_recv).
    pub fn try_recv_hot(&self) -> Result<Frame> {
        self.enter_to_receive()?.take_part()
    }

    /// Receives the parts of one whole message, in one go: no other thread gets one of them. `is_hot` as in
    /// [`try_recv_hot`](Self::try_recv_hot).
    ///
    /// # Errors
    ///
    /// As [`try_recv`](Self::try_recv).
    pub fn try_recv_all(&self, is_hot: bool) -> Result<Vec<Frame>> {
        let mut state = self.enter_to_receive()?;
        let first = match state.take_part() {
            Err(error) if !is_hot && error == Error::again() => {
                state.look(Events::READ)?;
                state.take_part()
            }
            other => other,
        }?;
        let mut more = first.more();
        let mut parts = vec![first];
        while more {
            let part = state.take_part()?;
            more = part.more();
            parts.push(part);
        }
        Ok(parts)
    }

    /// Receives up to this many whole messages, whose parts are lent one after the other; returns their number. The
    /// second argument of `sink` says whether another part of the same message follows. It runs under the socket's
    /// lock: it must only copy.
    ///
    /// # Errors
    ///
    /// As [`try_recv`](Self::try_recv), if there is not one message.
    pub fn try_recv_with(&self, messages: usize, sink: &mut dyn FnMut(&[u8], bool)) -> Result<usize> {
        let mut state = self.enter_to_receive()?;
        match take_many(&mut state, messages, sink) {
            Err(error) if error == Error::again() => {
                state.look(Events::READ)?;
                take_many(&mut state, messages, sink)
            }
            other => other,
        }
    }

    /// As [`try_recv_with`](Self::try_recv_with), but does not ask the kernel. Unwritten bytes are written if there is
    /// no message.
    ///
    /// # Errors
    ///
    /// As [`try_recv`](Self::try_recv).
    pub fn try_recv_with_hot(&self, messages: usize, sink: &mut dyn FnMut(&[u8], bool)) -> Result<usize> {
        let mut state = self.enter_to_receive()?;
        match take_many(&mut state, messages, sink) {
            Err(error) if error == Error::again() && self.must_look(&mut state) => {
                state.look_near()?;
                take_many(&mut state, messages, sink)
            }
            other => other,
        }
    }

    /// Receives one part, borrowed, if a whole message is here; says whether another follows. `is_hot` as in
    /// [`try_recv_hot`](Self::try_recv_hot); what was left unwritten is written then if there is nothing.
    ///
    /// # Errors
    ///
    /// As [`try_recv`](Self::try_recv).
    #[inline]
    pub fn try_recv_part(&self, is_hot: bool, sink: &mut dyn FnMut(&[u8], bool)) -> Result<bool> {
        let mut state = self.enter_to_receive()?;
        match state.take_part_with(sink) {
            Err(error) if error == Error::again() => {
                match is_hot {
                    true if !self.must_look(&mut state) => return Err(error),
                    true => state.look_near()?,
                    false => state.look(Events::READ)?,
                }
                state.take_part_with(sink)
            }
            other => other,
        }
    }

    /// Waits until `what` is possible: it spins for a while, in the first slice and if another core may be about to
    /// send, and then sleeps.
    ///
    /// # Errors
    ///
    /// ETERM, ENOTSOCK: also when that happens meanwhile.
    pub fn wait(&self, what: Events, deadline: Option<Instant>, slices: &mut Slices) -> Result<Woken> {
        self.0.wait(what, deadline, slices, self.is_thread_safe())
    }

    /// Receives one part, and waits for it no longer than until the deadline.
    ///
    /// # Errors
    ///
    /// EAGAIN when the time is up, EINTR when a signal came; else as [`try_recv`](Self::try_recv).
    pub fn recv(&self, deadline: Option<Instant>) -> Result<Frame> {
        loop {
            match self.try_recv_hot() {
                Err(error) if error == Error::again() => self.block(Events::READ, deadline)?,
                other => return other,
            }
        }
    }

    /// Sends one part, and waits for room no longer than until the deadline.
    ///
    /// # Errors
    ///
    /// EAGAIN when the time is up, EINTR when a signal came; else as [`try_send`](Self::try_send).
    pub fn send(&self, frame: &Frame, more: bool, deadline: Option<Instant>) -> Result<()> {
        loop {
            match self.send_out(&frame.out(), more) {
                Err(error) if error == Error::again() => self.block(Events::WRITE, deadline)?,
                other => return other,
            }
        }
    }

    fn block(&self, what: Events, deadline: Option<Instant>) -> Result<()> {
        match self.wait(what, deadline, &mut Slices::of(None))? {
            Woken::Ready => Ok(()),
            Woken::TimedOut => Err(Error::again()),
            Woken::Interrupted => Err(Error::interrupted()),
        }
    }

    /// The events that are possible now.
    ///
    /// # Errors
    ///
    /// ETERM, ENOTSOCK.
    pub fn events(&self) -> Result<Events> {
        self.look(Events::READ | Events::WRITE)
    }

    /// As [`events`](Self::events), for a caller that is interested in these. If it wants to receive, arrived bytes
    /// stay where they are; otherwise they are read ahead.
    ///
    /// # Errors
    ///
    /// As [`events`](Self::events).
    pub fn look(&self, what: Events) -> Result<Events> {
        let mut state = self.enter()?;
        state.look(what)?;
        Ok(state.ready_events())
    }

    /// As [`events`](Self::events), when only some of them matter.
    pub(crate) fn events_of(&self, what: Events) -> Result<Events> {
        let mut state = self.enter()?;
        if state.may(what) {
            return Ok(state.ready_events());
        }
        state.look(what)?;
        Ok(state.ready_events())
    }

    /// A descriptor that can be read when [`events`](Self::events) may have changed; calling that, or receiving until
    /// there is no more, makes it unreadable.
    ///
    /// # Errors
    ///
    /// ETERM, ENOTSOCK, EMFILE.
    pub fn fd(&self) -> Result<RawFd> {
        drop(self.enter()?);
        Ok(self.0.notifier.watch_fd()?)
    }

    /// As [`fd`](Self::fd), but two descriptors, of which one becomes readable: for callers with an epoll set of their
    /// own. They are level-triggered: a caller whose attempt failed, even a hot one, need not [`look`](Self::look)
    /// before it waits for them.
    ///
    /// # Errors
    ///
    /// As [`fd`](Self::fd).
    pub fn descriptors(&self) -> Result<[RawFd; 2]> {
        drop(self.enter()?);
        Ok(self.0.notifier.watch_fds()?.map(|fd| fd.as_raw_fd()))
    }

    /// Reports that one of the [`descriptors`](Self::descriptors) can be read. If there is only one connection, it most
    /// likely can be read: the next receive reads it without asking the kernel.
    pub fn presume_readable(&self) {
        if let Ok(mut state) = self.enter() {
            state.presume();
        }
    }

    // --- monitor and end -----------------------------------------------------------------------------------

    /// Reports the events of its connections on a new socket, bound at `endpoint`; `None` ends that.
    ///
    /// # Errors
    ///
    /// EINVAL for another transport than inproc, or another type than PAIR, PUB and PUSH; EADDRINUSE.
    pub fn monitor(&self, endpoint: Option<&str>, events: u64, version: i32, kind: SocketType) -> Result<()> {
        drop(self.enter()?);
        let old = self.0.lock().monitor.take();
        drop(old);
        let Some(endpoint) = endpoint else { return Ok(()) };
        if !endpoint.starts_with("inproc://") {
            return Err(Error::new(
                crate::error::errno::EPROTONOSUPPORT,
                "a monitor tells at an inproc:// endpoint only",
            ));
        }
        if !matches!(kind, SocketType::Pair | SocketType::Pub | SocketType::Push) || !matches!(version, 1 | 2)
        {
            return Err(Error::invalid("a monitor is a PAIR, PUB or PUSH socket, and its version is 1 or 2"));
        }
        let socket = Self::open(&self.0.registry, kind)?;
        socket.0.lock().options.linger = Some(Duration::ZERO);
        if let Err(error) = socket.bind(endpoint) {
            socket.close(None);
            return Err(error);
        }
        self.0.lock().monitor = Some(Monitor::new(Box::new(socket), events, version));
        Ok(())
    }

    /// Closes it, without waiting: queued messages are sent for as long as `linger` allows, in milliseconds, -1 for
    /// ever; the default is LINGER. Any thread may call this, also while another one waits in a call, which then ends.
    pub fn close(&self, linger: Option<i32>) {
        if self.0.notifier.is_closed.swap(true, Ordering::SeqCst) {
            return;
        }
        let mut state = self.0.lock();
        let linger = match linger {
            Some(millis) => u64::try_from(millis).ok().map(Duration::from_millis),
            None => state.options.linger,
        };
        if self.0.notifier.has_mail() {
            state.take_mail();
        }
        state.close(linger);
        drop(state);
        self.0.notifier.wake();
    }
}

impl MonitorSocket for Socket {
    fn send(&self, parts: &mut Vec<Frame>) {
        let _ = self.try_send_all(parts);
    }

    fn end(&self) {
        self.close(None);
    }
}

#[inline]
fn take_many(state: &mut SocketState, messages: usize, sink: &mut dyn FnMut(&[u8], bool)) -> Result<usize> {
    let mut taken = 0;
    while taken < messages {
        match state.take_part_with(sink) {
            Ok(true) => {}
            Ok(false) => taken += 1 + state.take_run(messages - taken - 1, sink),
            Err(_) if taken > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(taken)
}
