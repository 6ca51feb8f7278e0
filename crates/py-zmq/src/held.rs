//! The core's socket as a Python object holds it: until the object is closed, and no call of it goes on.
//!
//! A closed socket's descriptors go with the last reference to the core's socket. An object may live long after its
//! close, in a traceback or a cycle, and must not keep them; but a call of another thread may be under way when the
//! object is closed, and needs the socket to its end. So calls are counted.

use std::cell::UnsafeCell;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ropewalk_messaging::Socket;

/// See the module.
pub(crate) struct Held {
    /// Emptied once, by the thread that sets `is_released`.
    socket: UnsafeCell<Option<Socket>>,
    /// Its number in the process.
    pub(crate) id: u64,
    /// The calls that go on. Changed by attached threads only, and read by the one that leaves.
    users: AtomicUsize,
    /// No call may begin. Stored before `users` is read, as `users` is raised before this is read: so of a call and
    /// the end, one sees the other.
    is_closed: AtomicBool,
    is_released: AtomicBool,
}

// SAFETY: `socket` is read by threads that are counted in `users` and came before `is_closed`, and emptied when there
// are none of these any more and there will be none.
unsafe impl Sync for Held {}

/// A call's use of the socket.
pub(crate) struct InUse<'a>(&'a Held);

impl Held {
    pub(crate) fn new(socket: Socket) -> Self {
        Self {
            id: socket.id(),
            socket: UnsafeCell::new(Some(socket)),
            users: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            is_released: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// The socket for a call, unless it is closed.
    #[inline]
    pub(crate) fn enter(&self) -> Option<InUse<'_>> {
        self.count(1);
        let used = InUse(self);
        (!self.is_closed.load(Ordering::SeqCst)).then_some(used)
    }

    /// Closes it for calls; `None` if it is closed. The socket stays for the caller.
    pub(crate) fn close(&self) -> Option<InUse<'_>> {
        self.count(1);
        let used = InUse(self);
        (!self.is_closed.swap(true, Ordering::SeqCst)).then_some(used)
    }

    /// The socket, for the end of the object.
    pub(crate) fn into_inner(self) -> Option<Socket> {
        self.socket.into_inner()
    }

    /// Adds to the number of users, and returns the sum. With the interpreter's lock no two threads do so at once.
    #[inline]
    fn count(&self, by: isize) -> usize {
        if cfg!(Py_GIL_DISABLED) {
            return self.users.fetch_add(by.cast_unsigned(), Ordering::SeqCst).wrapping_add_signed(by);
        }
        let users = self.users.load(Ordering::Relaxed).wrapping_add_signed(by);
        self.users.store(users, Ordering::Relaxed);
        users
    }
}

impl Deref for InUse<'_> {
    type Target = Socket;

    #[inline]
    fn deref(&self) -> &Socket {
        // SAFETY: this use is counted and came before `is_closed` (or set it), so the socket is not emptied.
        match unsafe { &*self.0.socket.get() } {
            Some(socket) => socket,
            None => unreachable!("a socket is kept while it is in use"),
        }
    }
}

impl Drop for InUse<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.count(-1) == 0 && self.0.is_closed.load(Ordering::SeqCst) {
            release(self.0);
        }
    }
}

#[cold]
fn release(held: &Held) {
    if !held.is_released.swap(true, Ordering::SeqCst) {
        // SAFETY: there is no user, none can come, and only one thread gets here.
        drop(unsafe { (*held.socket.get()).take() });
    }
}
