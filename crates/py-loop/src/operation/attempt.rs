//! What operations do: the system call of each, which is tried until it does not block.

use std::ffi::CStr;
use std::io;
use std::os::fd::BorrowedFd;

use pyo3_ffi as ffi;
use ropewalk_os::net::{self, Address};
use ropewalk_os::{limits, stream as bytes};

use super::super::address;
use super::super::compat::PySys_Audit;
use super::super::core::LoopCore;
use super::super::descriptors::Waiter;
use super::super::loop_module::LoopModule;
use super::super::outgoing::Share;
use super::super::received::bytes_of;
use super::super::{number, sockets};
use super::Operation;
use super::files::Sending;
use ropewalk_capi::errors::raise_os;
use ropewalk_capi::object::{Object, Raised, text};

#[derive(Debug)]
pub(super) enum Goal {
    /// Receive at most this many bytes.
    Receive(usize),
    ReceiveInto,
    SendAll,
    /// Receive one message of at most this many bytes, and its sender's address.
    ReceiveFrom(usize),
    /// The same into a buffer; 0 is the size of the buffer.
    ReceiveFromInto(usize),
    SendTo(Address),
    Accept,
    Connect(Address),
    SendFile(Box<Sending>),
}

impl Goal {
    /// The method that asyncio would show.
    pub(super) fn name(&self) -> &'static CStr {
        match self {
            Self::Receive(_) => c"Loop.sock_recv",
            Self::ReceiveInto => c"Loop.sock_recv_into",
            Self::SendAll => c"Loop.sock_sendall",
            Self::ReceiveFrom(_) => c"Loop.sock_recvfrom",
            Self::ReceiveFromInto(_) => c"Loop.sock_recvfrom_into",
            Self::SendTo(_) => c"Loop.sock_sendto",
            Self::Accept => c"Loop.sock_accept",
            Self::Connect(_) => c"Loop.sock_connect",
            Self::SendFile(sending) => sending.name,
        }
    }

    /// The side on which the operation waits.
    pub(super) fn waiter(&self) -> Waiter {
        match self {
            Self::Receive(_)
            | Self::ReceiveInto
            | Self::ReceiveFrom(_)
            | Self::ReceiveFromInto(_)
            | Self::Accept => Waiter::Receiving,
            Self::SendAll | Self::SendTo(_) | Self::Connect(_) | Self::SendFile(_) => Waiter::Sending,
        }
    }
}

/// The result of an attempt.
pub(super) enum Attempt {
    Done(Object),
    /// Received, and the socket is empty.
    Last(Object),
    WouldBlock,
    /// The socket may take more, but the other callbacks of the loop come first.
    Later,
    /// The kernel cannot send this file to this socket, and has sent nothing of it.
    Refused,
}

/// The received bytes, of a number that was asked for.
fn received(data: Object, got: usize, asked: usize) -> Attempt {
    if got < asked && got > 0 { Attempt::Last(data) } else { Attempt::Done(data) }
}

/// What an attempt says of a system call that failed.
fn failed(error: &io::Error) -> Result<Attempt, Raised> {
    if error.kind() == io::ErrorKind::WouldBlock { Ok(Attempt::WouldBlock) } else { Err(raise_os(error)) }
}

/// Raises an `OSError` with this text.
fn raise_as(error: &io::Error, words: &Object) -> Raised {
    // SAFETY: a live class and fresh objects.
    unsafe {
        let made = Object::own(ffi::PyLong_FromLong(error.raw_os_error().unwrap_or(0).into()))
            .and_then(|number| Object::share(ffi::PyExc_OSError)?.call(&[number.as_ptr(), words.as_ptr()]));
        if let Ok(made) = made {
            ffi::PyErr_SetObject(ffi::Py_TYPE(made.as_ptr()).cast(), made.as_ptr());
        }
    }
    Raised
}

fn pair(first: &Object, second: &Object) -> Result<Object, Raised> {
    // SAFETY: live objects, as many as said.
    unsafe { Object::own(ffi::PyTuple_Pack(2, first.as_ptr(), second.as_ptr())) }
}

pub(super) fn count(number: usize) -> Result<Object, Raised> {
    // SAFETY: the thread is attached.
    unsafe { Object::own(ffi::PyLong_FromSize_t(number)) }
}

impl Operation {
    pub(super) fn release_view(&self) {
        if let Some(mut view) = self.view.take() {
            // SAFETY: a view that was filled, released once.
            unsafe { ffi::PyBuffer_Release(&raw mut *view) };
        }
    }

    /// Memory to receive into, or to send.
    fn memory(&self) -> Result<(*mut u8, usize), Raised> {
        let view = match self.view.take() {
            Some(view) => view,
            None => {
                let mut view = Box::new(ffi::Py_buffer::new());
                let flags = match self.goal.waiter() {
                    Waiter::Receiving => ffi::PyBUF_WRITABLE,
                    _ => ffi::PyBUF_SIMPLE,
                };
                // SAFETY: a live object and room for a view.
                if unsafe { ffi::PyObject_GetBuffer(self.data.get(), &raw mut *view, flags) } != 0 {
                    return Err(Raised);
                }
                view
            }
        };
        let memory = (view.buf.cast::<u8>(), usize::try_from(view.len).unwrap_or(0));
        self.view.set(Some(view));
        Ok(memory)
    }

    pub(super) fn state(&self) -> &LoopModule {
        // SAFETY: a live loop, whose module lives as long.
        unsafe { &*LoopCore::of(self.owner.get()).module }
    }

    /// The socket, which must still have its number: the program may have closed it while the operation waited, and
    /// the number may be another connection's by now.
    fn file(&self) -> Result<BorrowedFd<'_>, Raised> {
        // SAFETY: a live socket, whose number the kernel checks.
        unsafe {
            if number::of(self.state(), self.socket.get()) != Some(self.fd.get()) {
                return Err(raise_os(&number::lost()));
            }
            Ok(BorrowedFd::borrow_raw(self.fd.get()))
        }
    }

    /// Tells the hooks of `sys.addaudithook` what the socket is about to do, as the `socket` module does.
    pub(super) fn audit(&self) -> Result<(), Raised> {
        let event = match self.goal {
            Goal::Connect(_) => c"socket.connect",
            Goal::SendTo(_) => c"socket.sendto",
            _ => return Ok(()),
        };
        // SAFETY: C strings, and as many live objects as the format says.
        let told =
            unsafe { PySys_Audit(event.as_ptr(), c"OO".as_ptr(), self.socket.get(), self.address.get()) };
        if told < 0 { Err(Raised) } else { Ok(()) }
    }

    pub(super) fn attempt(&self) -> Result<Attempt, Raised> {
        match &self.goal {
            // The kernel would still wait for data.
            Goal::Receive(0) => Object::bytes(&[]).map(Attempt::Done),
            Goal::Receive(most) => {
                let fd = self.file()?;
                // SAFETY: as much memory as is received at most.
                match bytes_of(*most, |start| unsafe { bytes::recv(fd, start, *most) }.map(|got| (got, ())))?
                {
                    Ok((data, got, ())) => Ok(received(data, got, *most)),
                    Err(error) => failed(&error),
                }
            }
            Goal::ReceiveInto => {
                let (start, length) = self.memory()?;
                let fd = self.file()?;
                // SAFETY: a writable view of that length. As above if it is empty.
                match if length == 0 { Ok(0) } else { unsafe { bytes::recv(fd, start, length) } } {
                    Ok(got) => {
                        self.release_view();
                        count(got).map(|number| received(number, got, length))
                    }
                    Err(error) => failed(&error),
                }
            }
            Goal::SendAll => self.send_all(),
            Goal::ReceiveFrom(most) => {
                let fd = self.file()?;
                // SAFETY: as much memory as is received at most.
                match bytes_of(*most, |start| unsafe { net::recv_from(fd, start, *most) })? {
                    Ok((data, _, sender)) => {
                        pair(&data, &address::to_object(sender.as_ref())?).map(Attempt::Done)
                    }
                    Err(error) => failed(&error),
                }
            }
            Goal::ReceiveFromInto(most) => {
                let (start, length) = self.memory()?;
                if *most > length {
                    let words = c"nbytes is greater than the length of the buffer";
                    // SAFETY: a live class and a C string, which is copied.
                    unsafe { ffi::PyErr_SetString(ffi::PyExc_ValueError, words.as_ptr()) };
                    return Err(Raised);
                }
                let fd = self.file()?;
                let most = if *most == 0 { length } else { *most };
                // SAFETY: a writable view of at least that length.
                match unsafe { net::recv_from(fd, start, most) } {
                    Ok((got, sender)) => {
                        self.release_view();
                        pair(&count(got)?, &address::to_object(sender.as_ref())?).map(Attempt::Done)
                    }
                    Err(error) => failed(&error),
                }
            }
            Goal::SendTo(to) => {
                let (start, length) = self.memory()?;
                let fd = self.file()?;
                let data: &[u8] = if length == 0 {
                    &[]
                } else {
                    // SAFETY: a view, whose exporter must not move its memory while it is held.
                    unsafe { std::slice::from_raw_parts(start, length) }
                };
                match net::send_to(fd, data, to) {
                    Ok(sent) => {
                        self.release_view();
                        count(sent).map(Attempt::Done)
                    }
                    Err(error) => failed(&error),
                }
            }
            Goal::Accept => self.accept(),
            Goal::Connect(to) => self.connect(to),
            Goal::SendFile(sending) => self.send_file(sending),
        }
    }

    fn send_all(&self) -> Result<Attempt, Raised> {
        let (start, length) = self.memory()?;
        let fd = self.file()?;
        let mut share = Share::new();
        loop {
            let sent = self.sent.get();
            let rest: &[u8] = if length == sent {
                &[]
            } else {
                // SAFETY: the rest of a view, whose exporter must not move it while it is held.
                unsafe { std::slice::from_raw_parts(start.add(sent), length - sent) }
            };
            match bytes::send(fd, share.of(rest)) {
                Ok(more) if sent + more < length => {
                    self.sent.set(sent + more);
                    if !share.spend(more) {
                        return Ok(Attempt::Later);
                    }
                }
                Ok(_) => {
                    self.release_view();
                    return Ok(Attempt::Done(Object::none()));
                }
                Err(error) => return failed(&error),
            }
        }
    }

    fn accept(&self) -> Result<Attempt, Raised> {
        match net::accept_from(self.file()?) {
            Ok(accepted) => {
                // SAFETY: a live socket of a known family.
                let connection = unsafe {
                    let kind = sockets::kind(self.state(), self.socket.get())?;
                    sockets::make(self.state(), accepted.connection, kind)?
                };
                pair(&connection, &address::to_object(accepted.peer.as_ref())?).map(Attempt::Done)
            }
            Err(error) => match limits::explain_open(&error) {
                Some(limit) => Err(raise_as(&error, &text(&limit)?)),
                None => failed(&error),
            },
        }
    }

    fn connect(&self, to: &Address) -> Result<Attempt, Raised> {
        let asked_before = self.began.replace(true);
        match net::connect_to(self.file()?, to) {
            Ok(true) => Ok(Attempt::Done(Object::none())),
            Ok(false) => Ok(Attempt::WouldBlock),
            // Nothing reports when there is room again.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // SAFETY: a C string, and a live object.
                let words = unsafe {
                    Object::own(ffi::PyUnicode_FromFormat(
                        c"Connect call failed %S: the listener's queue is full (its backlog, or net.core.somaxconn)"
                            .as_ptr(),
                        self.address.get(),
                    ))?
                };
                Err(raise_as(&error, &words))
            }
            Err(error) if asked_before => {
                // SAFETY: as above.
                let words = unsafe {
                    Object::own(ffi::PyUnicode_FromFormat(
                        c"Connect call failed %S".as_ptr(),
                        self.address.get(),
                    ))?
                };
                Err(raise_as(&error, &words))
            }
            Err(error) => Err(raise_os(&error)),
        }
    }
}
