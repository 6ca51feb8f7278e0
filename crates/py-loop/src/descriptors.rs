//! The table of the descriptors that a loop waits for: the waiters of each, and its registration with epoll.

use std::io;
use std::os::fd::RawFd;
use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_os::epoll::Interest;
use ropewalk_reactor::{Reactor, Token};

use super::handle::Handle;
use super::item::{Item, drop_item};

/// The state of one descriptor. All references are owned.
pub(super) struct Slot {
    /// Counts the files that had the number, so that events of an old one are recognized.
    pub(super) generation: u32,
    /// The registration with the kernel, if any.
    pub(super) asked: Option<Asked>,
    pub(super) reader: *mut Handle,
    pub(super) writer: *mut Handle,
    /// A transport, or null.
    pub(super) stream: *mut ffi::PyObject,
    /// The transport that writes to a pipe, or null. Another one may read from the same descriptor.
    pub(super) sink: *mut ffi::PyObject,
    /// Socket operations that wait, or null.
    pub(super) receiving: *mut ffi::PyObject,
    pub(super) sending: *mut ffi::PyObject,
    /// The addresses of the objects that reader and writer were added with. The objects may be closed or gone when they
    /// are removed, so the addresses are only compared.
    pub(super) files: [usize; 2],
    /// A weak reference to the socket object of the last operation that waited, or null. As long as that object has
    /// this number, its registration is valid.
    pub(super) socket: *mut ffi::PyObject,
    /// The socket speaks TCP, and nothing has arrived since it was read until it was empty.
    pub(super) drained: bool,
    pub(super) tcp: bool,
    /// The peer's end or urgent data were reported: from then on a short read does not mean that the socket is empty.
    pub(super) uncertain: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    read: bool,
    write: bool,
    pub(super) edge: bool,
}

impl Asked {
    fn interest(self) -> Interest {
        match (self.read, self.write, self.edge) {
            (_, _, true) => Interest::READ | Interest::URGENT | Interest::WRITE | Interest::EDGE,
            (true, true, false) => Interest::READ | Interest::WRITE,
            (true, false, false) => Interest::READ,
            (false, _, false) => Interest::WRITE,
        }
    }
}

impl Slot {
    const fn new() -> Self {
        Self {
            generation: 0,
            asked: None,
            reader: null_mut(),
            writer: null_mut(),
            stream: null_mut(),
            sink: null_mut(),
            receiving: null_mut(),
            sending: null_mut(),
            files: [0; 2],
            socket: null_mut(),
            drained: false,
            tcp: false,
            uncertain: false,
        }
    }

    /// Whether the kernel reports edges of the file of this socket object.
    pub(super) fn knows(&self, socket: *mut ffi::PyObject) -> bool {
        #[allow(
            deprecated,
            reason = "what replaces it is not there before 3.13, and the object is only compared"
        )]
        // SAFETY: a live weak reference.
        unsafe {
            self.asked.is_some_and(|asked| asked.edge)
                && !self.socket.is_null()
                && ffi::PyWeakref_GetObject(self.socket) == socket
        }
    }

    /// The registration that is needed; none if there are no waiters.
    fn wanted(&self) -> Option<Asked> {
        let (read, write) = (!self.reader.is_null(), !self.writer.is_null());
        let edge =
            [self.stream, self.sink, self.receiving, self.sending].iter().any(|waiting| !waiting.is_null());
        // A callback needs level-triggering, which reports every edge, too.
        if read || write {
            let read = read || !self.receiving.is_null();
            let write = write || !self.sending.is_null();
            Some(Asked { read, write, edge: false })
        } else if edge {
            Some(Asked { read: true, write: true, edge: true })
        } else {
            None
        }
    }

    /// Updates the registration with the kernel after a waiter has come (`newcomer`) or gone. For a newcomer the slot
    /// registers the file anew even if nothing has changed: it may be another file by now, and an edge that was
    /// reported before must be reported again.
    ///
    /// If the number belongs to another file by now, the waiters of the old one leave the slot, and are returned. On an
    /// error the newcomer is still in the slot, and is the only one.
    pub(super) fn update(
        &mut self,
        reactor: &Reactor,
        fd: RawFd,
        newcomer: Option<Side>,
    ) -> (io::Result<()>, Departed) {
        let mut departed = Departed::default();
        let wanted = self.wanted();
        if self.asked.is_some() {
            let Some(asked) = wanted else {
                self.asked = None;
                self.generation = self.generation.wrapping_add(1);
                // It may have been closed, which removes it.
                let _ = reactor.remove(fd);
                return (Ok(()), departed);
            };
            if wanted == self.asked && newcomer.is_none() {
                return (Ok(()), departed);
            }
            let token = Token { fd, generation: self.generation };
            if reactor.modify(token, asked.interest()).is_ok() {
                self.asked = Some(asked);
                return (Ok(()), departed);
            }
            // The file that was registered is not the one that has the number now, if any has.
            self.asked = None;
            self.generation = self.generation.wrapping_add(1);
            departed = self.depart(newcomer);
        }
        let Some(asked) = self.wanted() else { return (Ok(()), departed) };
        let token = Token { fd, generation: self.generation };
        let added = match reactor.add(token, asked.interest()) {
            // The program has duplicated the file of a slot that was given up.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                reactor.modify(token, asked.interest())
            }
            added => added,
        };
        if added.is_ok() {
            self.asked = Some(asked);
        }
        (added, departed)
    }

    /// Takes out everybody but the newcomer.
    fn depart(&mut self, newcomer: Option<Side>) -> Departed {
        let mut departed = Departed::default();
        let take = |place: &mut *mut Handle| std::mem::replace(place, null_mut());
        if newcomer != Some(Side::Reader) {
            departed.handles[0] = take(&mut self.reader);
        }
        if newcomer != Some(Side::Writer) {
            departed.handles[1] = take(&mut self.writer);
        }
        for (at, who) in
            [Waiter::Stream, Waiter::Sink, Waiter::Receiving, Waiter::Sending].into_iter().enumerate()
        {
            if newcomer != Some(Side::Waiter(who)) {
                departed.waiters[at] = std::mem::replace(self.place(who), null_mut());
            }
        }
        departed.socket = std::mem::replace(&mut self.socket, null_mut());
        (self.drained, self.uncertain) = (false, false);
        departed
    }
}

/// A place in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Reader,
    Writer,
    Waiter(Waiter),
}

/// What has left a slot because its file has lost the number. References are owned, or null.
#[derive(Debug)]
pub(super) struct Departed {
    pub(super) handles: [*mut Handle; 2],
    pub(super) waiters: [*mut ffi::PyObject; 4],
    pub(super) socket: *mut ffi::PyObject,
}

impl Default for Departed {
    fn default() -> Self {
        Self { handles: [null_mut(); 2], waiters: [null_mut(); 4], socket: null_mut() }
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Descriptors(Vec<Slot>);

impl Descriptors {
    pub(super) fn slot(&mut self, fd: RawFd) -> Option<&mut Slot> {
        let at = usize::try_from(fd).ok()?;
        self.0.get_mut(at)
    }

    pub(super) fn make_slot(&mut self, fd: RawFd) -> &mut Slot {
        let at = usize::try_from(fd).unwrap_or(0);
        if self.0.len() <= at {
            self.0.resize_with((at + 1).next_power_of_two(), Slot::new);
        }
        &mut self.0[at]
    }

    pub(super) fn handles(&self) -> impl Iterator<Item = *mut Handle> + '_ {
        self.0.iter().flat_map(|slot| [slot.reader, slot.writer]).filter(|made| !made.is_null())
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = *mut ffi::PyObject> + '_ {
        self.0
            .iter()
            .flat_map(|slot| [slot.stream, slot.sink, slot.receiving, slot.sending, slot.socket])
            .filter(|object| !object.is_null())
    }

    /// The number under which a reader or writer was added with this object.
    pub(super) fn number_of(&self, write: bool, file: *mut ffi::PyObject) -> Option<RawFd> {
        let at = self.0.iter().position(|slot| {
            let waits = !if write { slot.writer } else { slot.reader }.is_null();
            waits && slot.files[usize::from(write)] == file as usize
        })?;
        RawFd::try_from(at).ok()
    }

    pub(super) fn is_in_use(&mut self, fd: RawFd) -> bool {
        self.slot(fd).is_some_and(|slot| {
            !(slot.stream.is_null() && slot.sink.is_null() && slot.reader.is_null() && slot.writer.is_null())
        })
    }

    /// Drops all references. No other code reaches the table any more.
    pub(super) fn drop_all(self) {
        let handles: Vec<_> = self.handles().collect();
        let objects: Vec<_> = self.objects().collect();
        drop(self);
        for made in handles {
            drop_item(Item::of_handle(made));
        }
        for object in objects {
            // SAFETY: the reference that the table held.
            unsafe { ffi::Py_DECREF(object) };
        }
    }
}

/// A waiter for a descriptor that has no callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiter {
    Stream,
    Sink,
    Receiving,
    Sending,
}

impl Slot {
    pub(super) fn place(&mut self, who: Waiter) -> &mut *mut ffi::PyObject {
        match who {
            Waiter::Stream => &mut self.stream,
            Waiter::Sink => &mut self.sink,
            Waiter::Receiving => &mut self.receiving,
            Waiter::Sending => &mut self.sending,
        }
    }
}
