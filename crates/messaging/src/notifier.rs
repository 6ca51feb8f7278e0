//! Access to a socket without its lock: its mailbox, the set of its descriptors, the wake-ups of threads that sleep on
//! it or watch it, and the settings that other sockets may read. The `README.md` has the protocol.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ropewalk_os::epoll::{Epoll, Interest};
use ropewalk_os::eventfd::EventFd;
use ropewalk_sync::Mutex;
use ropewalk_zmtp::SocketType;

use crate::conn_ref::ConnRef;
use crate::lane::{Change, Neighbour};
use crate::mail::Mail;
use crate::mailbox::{AfterSignal, BeforeCheck, Mailbox, ToWake};
use crate::options::Options;

/// The wake-up's token in a socket's set; no connection has it.
pub(crate) const WAKE_UP: u64 = u64::MAX;

/// Settings that other sockets of the context may read while they hold their own locks.
struct Published {
    sndhwm: usize,
    rcvhwm: usize,
    identity: Vec<u8>,
}

impl Published {
    fn of(options: &Options) -> Self {
        Self { sndhwm: options.sndhwm, rcvhwm: options.rcvhwm, identity: options.routing_id.clone() }
    }
}

/// See the module.
pub(crate) struct Notifier {
    pub(crate) id: u64,
    pub(crate) kind: SocketType,
    published: Mutex<Published>,
    pub(crate) mailbox: Mailbox<Mail>,
    pub(crate) set: Epoll,
    /// In the set: wakes threads that sleep there.
    wake_up: EventFd,
    /// How often the program has polled the set. The background leaves a socket alone while this number moves.
    pub(crate) looks: AtomicU64,
    /// For watchers: reports changes that are in no descriptor. Made when the first watcher comes.
    outer_wake_up: OnceLock<EventFd>,
    /// The set and the outer wake-up, in one descriptor.
    outer_set: OnceLock<Epoll>,
    /// The socket has had a connection inside the process.
    pub(crate) has_lanes: AtomicBool,
    /// The socket has had a connection through shared memory.
    pub(crate) has_shm: AtomicBool,
    /// The background knows the socket. Set under the socket's lock, before the notice.
    pub(crate) is_served: AtomicBool,
    /// The socket is closed to calls.
    pub(crate) is_closed: AtomicBool,
}

impl Notifier {
    pub(crate) fn new(id: u64, kind: SocketType, options: &Options) -> io::Result<Self> {
        let (set, wake_up) = (Epoll::new()?, EventFd::new()?);
        set.add(wake_up.as_fd(), WAKE_UP, Interest::READ)?;
        Ok(Self {
            id,
            kind,
            published: Mutex::new(Published::of(options)),
            mailbox: Mailbox::new(),
            set,
            wake_up,
            looks: AtomicU64::new(0),
            outer_wake_up: OnceLock::new(),
            outer_set: OnceLock::new(),
            has_lanes: AtomicBool::new(false),
            has_shm: AtomicBool::new(false),
            is_served: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Publishes changed options.
    pub(crate) fn publish(&self, options: &Options) {
        *self.published.lock() = Published::of(options);
    }

    /// The high-water marks, (send, receive).
    pub(crate) fn limits(&self) -> (usize, usize) {
        let published = self.published.lock();
        (published.sndhwm, published.rcvhwm)
    }

    /// The name by which peers know the socket.
    pub(crate) fn identity(&self) -> Vec<u8> {
        self.published.lock().identity.clone()
    }

    /// Puts mail in, and wakes threads that sleep or watch, or must act at once.
    pub(crate) fn post(&self, mail: Mail, is_urgent: bool) {
        let to_wake = self.mailbox.post(mail);
        if is_urgent || to_wake.sleepers {
            self.wake_up.signal();
        }
        self.wake_watchers(to_wake);
    }

    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        self.mailbox.has_mail()
    }

    /// Wakes all threads that sleep or watch, to check again.
    pub(crate) fn wake(&self) {
        let to_wake = self.mailbox.call();
        if to_wake.sleepers {
            self.wake_up.signal();
        }
        self.wake_watchers(to_wake);
    }

    /// Wakes one sleeping thread; that one wakes the next, if there may be something for it.
    pub(crate) fn wake_one(&self) {
        self.wake_up.signal();
    }

    /// Wakes the watchers.
    pub(crate) fn tell_watchers(&self) {
        let to_wake = self.mailbox.call();
        self.wake_watchers(to_wake);
    }

    fn wake_watchers(&self, to_wake: ToWake) {
        if to_wake.watchers
            && let Some(wake_up) = self.outer_wake_up.get()
        {
            wake_up.signal();
            while self.mailbox.was_signalled() == AfterSignal::Again {
                wake_up.signal();
            }
        }
    }

    /// A watcher is about to check. Changes from now on wake it again.
    #[inline]
    pub(crate) fn silence(&self) {
        if self.mailbox.before_check() == BeforeCheck::Drain
            && let Some(wake_up) = self.outer_wake_up.get()
        {
            wake_up.drain();
            self.mailbox.hush();
        }
    }

    /// Drains the wake-up of sleeping threads.
    pub(crate) fn drain(&self) {
        self.wake_up.drain();
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.mailbox.is_watched()
    }

    /// The outer wake-up, which is signalled at first.
    fn outer_wake_up(&self) -> io::Result<&EventFd> {
        if let Some(wake_up) = self.outer_wake_up.get() {
            return Ok(wake_up);
        }
        let wake_up = EventFd::new()?;
        wake_up.signal();
        let mut is_mine = false;
        let wake_up = self.outer_wake_up.get_or_init(|| {
            is_mine = true;
            wake_up
        });
        if is_mine {
            self.mailbox.watch();
        }
        Ok(wake_up)
    }

    /// A descriptor that can be read when something may have changed.
    pub(crate) fn watch_fd(&self) -> io::Result<RawFd> {
        if self.outer_set.get().is_none() {
            let outer = Epoll::new()?;
            for (token, fd) in self.watch_fds()?.into_iter().enumerate() {
                outer.add(fd, token as u64, Interest::READ)?;
            }
            // Another thread's descriptor is as good.
            let _ = self.outer_set.set(outer);
        }
        Ok(self.outer_set.get().map_or(-1, |outer| outer.as_fd().as_raw_fd()))
    }

    /// The two descriptors of which one can be read when something may have changed: the set, and the outer wake-up.
    pub(crate) fn watch_fds(&self) -> io::Result<[BorrowedFd<'_>; 2]> {
        Ok([self.set.as_fd(), self.outer_wake_up()?.as_fd()])
    }

    /// Records that the program has polled, at least what is in memory. Written under the socket's lock; the background
    /// only sees whether it moves.
    #[inline]
    pub(crate) fn count_look(&self) {
        self.looks.store(self.looks.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

impl Neighbour for Notifier {
    fn tell(&self, change: Change, conn: ConnRef, is_urgent: bool) {
        self.post(Mail::Lane(conn, change), is_urgent);
    }

    fn met(&self, conn: ConnRef, identity: Vec<u8>) {
        self.post(Mail::Met(conn, identity), false);
    }

    fn would_wake(&self) -> bool {
        self.mailbox.would_wake()
    }
}
