//! The background: the one thread of a context, for sockets that the program does not call. It accepts, does
//! handshakes, sends heartbeats, reconnects, receives up to the high-water mark, and sends what the program left
//! unwritten. It leaves a socket that the program polls to the program, and checks it again a little later. The
//! `README.md` has the protocol.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ropewalk_os::clock;
use ropewalk_os::epoll::{Epoll, Interest};
use ropewalk_os::eventfd::EventFd;
use ropewalk_sync::Mutex;

use crate::notifier::Notifier;

/// A socket that the program polls is left alone for this long, and for twice as long each time that it still polls.
const REST: Duration = Duration::from_millis(5);
const LONGEST_REST: Duration = Duration::from_millis(40);

const WAKE: u64 = u64::MAX;

/// The background's record of the bytes that a socket leaves unwritten.
#[derive(Default)]
pub(crate) struct Unwritten {
    /// How often the socket had left bytes when that was seen last.
    pub(crate) leavings: u64,
    /// How often in a row there was nothing to write.
    pub(crate) calm: u32,
    /// Last time, the program was sending on, and wrote by itself.
    pub(crate) sent_on: bool,
}

/// A socket, as the background sees it. Each call takes the socket's lock.
pub(crate) trait Served: Send + Sync {
    /// Access to the socket without its lock.
    fn notifier(&self) -> &Notifier;
    /// Does everything that can be done without the program.
    fn attend(&self);
    /// Does what is due.
    fn meet_deadlines(&self, now: Instant);
    /// Writes the bytes that were left too long; returns when to come again.
    fn write_left(&self, seen: &mut Unwritten) -> Option<Instant>;
    /// Makes the peers wake the socket again if the program has not polled since `looks`; returns whether to come
    /// again.
    fn cool(&self, looks: &mut u64) -> bool;
}

/// A request to the background.
pub(crate) enum Notice {
    /// A new socket.
    Add(Arc<dyn Served>),
    /// A socket that has finished.
    Remove(u64),
    /// A socket wants to be called at this time.
    Deadline(u64, Instant),
    /// A socket leaves bytes to be sent by the background.
    Unsent(u64),
    /// A socket has peers that do not wake it while the program polls.
    Warm(u64),
    /// The context has ended.
    Stop,
}

struct Entry {
    socket: Arc<dyn Served>,
    /// [`Notifier::looks`] as it was seen last.
    looks: u64,
    /// The socket's deadline: the last of all times that it notified.
    due: Option<Instant>,
    /// How long the socket is left alone next.
    rest: Duration,
    /// The same two for the peers that do not wake it.
    warm_looks: u64,
    warm_rest: Duration,
    unwritten: Unwritten,
    /// When it is asked for them next.
    writes_at: Option<Instant>,
}

/// The interface of the background's thread.
pub(crate) struct Background {
    notices: Mutex<Vec<Notice>>,
    /// There are notices, and the thread was woken for them.
    is_woken: AtomicBool,
    wake: EventFd,
    set: Epoll,
    started: OnceLock<()>,
}

impl Background {
    pub(crate) fn new() -> io::Result<Self> {
        let (set, wake) = (Epoll::new()?, EventFd::new()?);
        set.add(wake.as_fd(), WAKE, Interest::READ)?;
        Ok(Self {
            notices: Mutex::default(),
            is_woken: AtomicBool::new(false),
            wake,
            set,
            started: OnceLock::new(),
        })
    }

    pub(crate) fn notify(&self, notice: Notice) {
        self.notices.lock().push(notice);
        if !self.is_woken.swap(true, Ordering::SeqCst) {
            self.wake.signal();
        }
    }

    /// Starts the thread, once.
    pub(crate) fn start(self: &Arc<Self>) -> io::Result<()> {
        if self.started.set(()).is_ok() {
            let this = Arc::clone(self);
            std::thread::Builder::new().name("ropewalk-zmq".to_owned()).spawn(move || this.run())?;
        }
        Ok(())
    }

    pub(crate) fn is_started(&self) -> bool {
        self.started.get().is_some()
    }

    fn run(&self) {
        // Bytes wait for it some tens of microseconds, which the system's usual slack would double.
        clock::wake_punctually();
        let mut events = Vec::new();
        let mut entries: HashMap<u64, Entry> = HashMap::new();
        // Sockets by their deadlines.
        let mut due: BTreeSet<(Instant, u64)> = BTreeSet::new();
        let mut rests: BTreeSet<(Instant, u64)> = BTreeSet::new();
        let mut warm: BTreeSet<(Instant, u64)> = BTreeSet::new();
        let mut gathering: BTreeSet<(Instant, u64)> = BTreeSet::new();
        let began = Instant::now();
        loop {
            let firsts = [&due, &rests, &warm, &gathering].map(BTreeSet::first);
            let next = firsts.into_iter().flatten().map(|(at, _)| *at).min();
            let timeout = next.map(|next| next.saturating_duration_since(Instant::now()));
            if self.set.wait(&mut events, timeout).is_err() {
                return;
            }
            for event in &events {
                if event.token == WAKE {
                    self.wake.drain();
                    self.is_woken.store(false, Ordering::SeqCst);
                    let notices = std::mem::take(&mut *self.notices.lock());
                    for notice in notices {
                        match notice {
                            Notice::Add(socket) => {
                                let entry = Entry::new(socket);
                                self.join(&entry);
                                entries.insert(entry.notifier().id, entry);
                            }
                            Notice::Remove(id) => {
                                if let Some(entry) = entries.remove(&id) {
                                    let _ = self.set.remove(entry.notifier().set.as_fd());
                                }
                                due.retain(|(_, other)| *other != id);
                                rests.retain(|(_, other)| *other != id);
                                warm.retain(|(_, other)| *other != id);
                                gathering.retain(|(_, other)| *other != id);
                            }
                            Notice::Deadline(id, at) => {
                                if let Some(entry) = entries.get_mut(&id) {
                                    if let Some(old) = entry.due.replace(at) {
                                        due.remove(&(old, id));
                                    }
                                    due.insert((at, id));
                                }
                            }
                            Notice::Unsent(id) => {
                                if let Some(entry) = entries.get_mut(&id) {
                                    let now = Instant::now();
                                    if let Some(old) = entry.writes_at.replace(now) {
                                        gathering.remove(&(old, id));
                                    }
                                    gathering.insert((now, id));
                                }
                            }
                            Notice::Warm(id) => {
                                if let Some(entry) = entries.get_mut(&id) {
                                    entry.warm_rest = REST;
                                    warm.insert((Instant::now() + REST, id));
                                }
                            }
                            Notice::Stop => return,
                        }
                    }
                } else if let Some(entry) = entries.get_mut(&event.token) {
                    let is_in_use = entry.was_looked_at() || entry.notifier().mailbox.has_sleepers();
                    if is_in_use && !entry.notifier().is_closed.load(Ordering::Relaxed) {
                        // Removed and not only disarmed: each of its events would still cost the kernel a walk to this
                        // set.
                        let _ = self.set.remove(entry.notifier().set.as_fd());
                        rests.insert((entry.rest(began), event.token));
                    } else {
                        entry.rest = REST;
                        entry.socket.attend();
                        self.arm(entry);
                    }
                }
            }
            let now = Instant::now();
            while let Some(&(at, id)) = rests.first()
                && at <= now
            {
                rests.pop_first();
                let Some(entry) = entries.get_mut(&id) else { continue };
                if entry.was_looked_at() && !entry.notifier().is_closed.load(Ordering::Relaxed) {
                    // Its next event would only repeat that.
                    rests.insert((entry.rest(began), id));
                } else {
                    self.join(entry);
                }
            }
            while let Some(&(at, id)) = warm.first()
                && at <= now
            {
                warm.pop_first();
                if let Some(entry) = entries.get_mut(&id)
                    && entry.socket.cool(&mut entry.warm_looks)
                {
                    warm.insert((now + entry.warm_rest, id));
                    entry.warm_rest = (entry.warm_rest * 2).min(LONGEST_REST);
                }
            }
            while let Some(&(at, id)) = due.first()
                && at <= now
            {
                due.pop_first();
                if let Some(entry) = entries.get_mut(&id) {
                    entry.due = None;
                    entry.socket.meet_deadlines(now);
                }
            }
            while let Some(&(at, id)) = gathering.first()
                && at <= now
            {
                gathering.pop_first();
                if let Some(entry) = entries.get_mut(&id) {
                    entry.writes_at = entry.socket.write_left(&mut entry.unwritten);
                    gathering.extend(entry.writes_at.map(|at| (at, id)));
                }
            }
        }
    }

    /// Asks for the socket's first event.
    fn join(&self, entry: &Entry) {
        let interest = Interest::READ | Interest::ONCE;
        let _ = self.set.add(entry.notifier().set.as_fd(), entry.notifier().id, interest);
    }

    /// Asks for the socket's next event.
    fn arm(&self, entry: &Entry) {
        let interest = Interest::READ | Interest::ONCE;
        let _ = self.set.modify(entry.notifier().set.as_fd(), entry.notifier().id, interest);
    }
}

impl Entry {
    fn new(socket: Arc<dyn Served>) -> Self {
        let looks = socket.notifier().looks.load(Ordering::Relaxed);
        Self {
            socket,
            looks,
            due: None,
            rest: REST,
            warm_looks: looks,
            warm_rest: REST,
            unwritten: Unwritten::default(),
            writes_at: None,
        }
    }

    fn notifier(&self) -> &Notifier {
        self.socket.notifier()
    }

    /// Whether the program has polled since the last call.
    fn was_looked_at(&mut self) -> bool {
        let looks = self.notifier().looks.load(Ordering::Relaxed);
        std::mem::replace(&mut self.looks, looks) != looks
    }

    /// When the socket is checked again. All such times lie on one grid, so that one wake-up serves many sockets.
    fn rest(&mut self, began: Instant) -> Instant {
        let at = Instant::now() + self.rest;
        self.rest = (self.rest * 2).min(LONGEST_REST);
        let over = at.duration_since(began).as_nanos() % REST.as_nanos();
        at - Duration::from_nanos(u64::try_from(over).unwrap_or(0))
    }
}
