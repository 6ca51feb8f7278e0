//! `sock_sendfile` and `sendfile`: the kernel sends a file until the socket takes no more.
//!
//! The interpreter is released meanwhile, because a file that is not in the page cache is read from its disk. If the
//! kernel cannot send the file, asyncio's method reads and writes it. Other code may close the file while an operation
//! waits, so each attempt asks the file for its number.

use std::cell::Cell;
use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use pyo3_ffi as ffi;
use ropewalk_os::file;

use super::super::core::LoopCore;
use super::super::number;
use super::super::outgoing::Share;
use super::super::stream::{Stream, stream};
use super::Operation;
use super::attempt::{Attempt, count};
use ropewalk_capi::awaitable::Step;
use ropewalk_capi::errors::{os_error, raise_os};
use ropewalk_capi::object::{Object, Raised, detached};

/// What is to be sent of a file, and how far that is.
#[derive(Debug)]
pub(super) struct Sending {
    /// The method that asyncio would show.
    pub(super) name: &'static CStr,
    /// Where it begins in the file.
    pub(super) offset: u64,
    /// How many bytes; without a number all up to the file's end.
    pub(super) count: Option<u64>,
    /// Whether asyncio's method sends what the kernel cannot.
    pub(super) falls_back: bool,
    stage: Cell<Stage>,
    sent: Cell<u64>,
    /// The file's number when sending began.
    number: Cell<RawFd>,
    /// The number was asked for, and nothing has run since.
    fresh: Cell<bool>,
    /// How much was sent when the file's position was set.
    placed: Cell<u64>,
    /// A transport refuses writes for this operation, and whether it is to read again after that.
    holds: Cell<bool>,
    reads_again: Cell<bool>,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    New,
    /// Waits until the transport has sent what was written before.
    Emptying,
    Sending,
    /// The kernel cannot send this file to this socket, and the reason.
    Refused(&'static CStr),
    /// asyncio's method sends it.
    Elsewhere,
}

const NO_FILE: &CStr = c"not a regular file";
const FAILED: &CStr = c"os.sendfile call failed";

impl Sending {
    pub(super) fn new(name: &'static CStr, offset: u64, count: Option<u64>, falls_back: bool) -> Self {
        Self {
            name,
            offset,
            count,
            falls_back,
            stage: Cell::new(Stage::New),
            sent: Cell::new(0),
            number: Cell::new(-1),
            fresh: Cell::new(false),
            placed: Cell::new(0),
            holds: Cell::new(false),
            reads_again: Cell::new(false),
        }
    }

    /// Whether what ends the wait is the operation's result.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage.get(), Stage::Sending | Stage::Elsewhere)
    }

    fn refuse(&self, why: &'static CStr) -> Attempt {
        self.stage.set(Stage::Refused(why));
        Attempt::Refused
    }
}

/// Takes an exception that ends no program out of this thread: of this class, if one is given.
fn forgive(class: Option<*mut ffi::PyObject>) -> Result<(), Raised> {
    // SAFETY: an exception is set, and live classes.
    unsafe {
        if ffi::PyErr_ExceptionMatches(class.unwrap_or(ffi::PyExc_Exception)) == 0 {
            return Err(Raised);
        }
        ffi::PyErr_Clear();
    }
    Ok(())
}

fn import(module: &CStr, name: &CStr) -> Result<Object, Raised> {
    // SAFETY: a C string.
    unsafe { Object::own(ffi::PyImport_ImportModule(module.as_ptr())) }?.attribute(name)
}

impl Operation {
    /// The transport over which the file is sent.
    fn over(&self) -> Option<&Stream> {
        let transport = self.address.get();
        // SAFETY: a live transport, which the operation holds.
        (!transport.is_null()).then(|| unsafe { stream(transport) })
    }

    /// A step: as [`Operation::start`], for a file.
    pub(super) fn start_file(&self, object: *mut ffi::PyObject, sending: &Sending) -> Result<Step, Raised> {
        let stage = sending.stage.get();
        if let Stage::Refused(why) = stage {
            return self.send_elsewhere(sending, why);
        }
        // SAFETY: a live loop and socket.
        let core = unsafe { LoopCore::of(self.owner.get()) };
        if let Stage::New | Stage::Emptying = stage {
            match self.over() {
                Some(over) if matches!(stage, Stage::New) => {
                    if let Some(future) = over.begin_file(self.address.get())? {
                        sending.stage.set(Stage::Emptying);
                        self.hold(over, sending, &future);
                        return Ok(Step::Wait(future));
                    }
                }
                Some(over) => over.check_file()?,
                None => {}
            }
            sending.stage.set(Stage::Sending);
            // SAFETY: as above.
            self.fd.set(unsafe { number::of(self.state(), self.socket.get()) }.unwrap_or(-1));
            if self.over().is_none() {
                self.ensure_no_transport(core)?;
            }
            match self.open_file(sending)? {
                Some(Attempt::Refused) => return self.start_file(object, sending),
                Some(_) => return count(0).map(Step::Done),
                None => {}
            }
        }
        match self.attempt()? {
            Attempt::Done(result) | Attempt::Last(result) => Ok(Step::Done(result)),
            Attempt::Refused => self.start_file(object, sending),
            Attempt::WouldBlock => self.wait(core, object, false),
            Attempt::Later => self.wait(core, object, true),
        }
    }

    /// The transport waits with this operation.
    fn hold(&self, over: &Stream, sending: &Sending, future: &Object) {
        let reads = over.wait_with_file(future);
        if !sending.holds.replace(true) {
            sending.reads_again.set(reads);
        }
    }

    /// This future is about to be waited for, while the file is being sent.
    pub(super) fn hold_transport(&self, sending: &Sending, future: &Object) {
        if let Some(over) = self.over() {
            self.hold(over, sending, future);
        }
    }

    /// Looks at the file for the first time; a result means that there is nothing to send, or that the kernel cannot.
    fn open_file(&self, sending: &Sending) -> Result<Option<Attempt>, Raised> {
        self.check_mode()?;
        let Some(number) = self.source()? else { return Ok(Some(sending.refuse(NO_FILE))) };
        sending.number.set(number);
        sending.fresh.set(true);
        if number < 0 {
            return Ok(Some(sending.refuse(NO_FILE)));
        }
        if sending.count.is_none() {
            // SAFETY: a number that the kernel checks.
            match file::size(unsafe { BorrowedFd::borrow_raw(number) }) {
                Ok(0) => return count(0).map(|zero| Some(Attempt::Done(zero))),
                Ok(_) => {}
                Err(_) => return Ok(Some(sending.refuse(NO_FILE))),
            }
        }
        Ok(None)
    }

    /// Refuses a file of text.
    fn check_mode(&self) -> Result<(), Raised> {
        let names = &self.state().names;
        // SAFETY: live objects.
        unsafe {
            let mode = match Object::own(ffi::PyObject_GetAttr(self.data.get(), names.mode)) {
                Ok(mode) => mode,
                Err(Raised) => return forgive(Some(ffi::PyExc_AttributeError)),
            };
            match ffi::PySequence_Contains(mode.as_ptr(), names.binary) {
                1 => Ok(()),
                0 => {
                    let words = c"file should be opened in binary mode";
                    ffi::PyErr_SetString(ffi::PyExc_ValueError, words.as_ptr());
                    Err(Raised)
                }
                _ => Err(Raised),
            }
        }
    }

    /// The number of the file; none of an object that has none.
    fn source(&self) -> Result<Option<RawFd>, Raised> {
        // SAFETY: live objects.
        unsafe {
            let fileno = self.state().names.fileno;
            let number = match Object::own(ffi::PyObject_CallMethodNoArgs(self.data.get(), fileno)) {
                Ok(number) => number,
                Err(Raised) => {
                    if ffi::PyErr_ExceptionMatches(ffi::PyExc_AttributeError) != 0 {
                        ffi::PyErr_Clear();
                        return Ok(None);
                    }
                    let raised = ropewalk_capi::object::Kept::take();
                    let unsupported = import(c"io", c"UnsupportedOperation")?;
                    raised.put_back();
                    return forgive(Some(unsupported.as_ptr())).map(|()| None);
                }
            };
            let number = ffi::PyLong_AsLong(number.as_ptr());
            if number == -1 && !ffi::PyErr_Occurred().is_null() {
                return Err(Raised);
            }
            Ok(Some(RawFd::try_from(number).unwrap_or(-1)))
        }
    }

    /// The file, which must still have its number, as [`Operation::file`].
    fn source_again(&self, sending: &Sending) -> Result<io::Result<BorrowedFd<'_>>, Raised> {
        let number = sending.number.get();
        if !sending.fresh.replace(false) {
            match self.source() {
                Ok(found) if found == Some(number) => {}
                Ok(_) => return Ok(Err(number::lost())),
                // It is closed.
                Err(Raised) => return forgive(None).map(|()| Err(number::lost())),
            }
        }
        // SAFETY: a number that the kernel checks.
        Ok(Ok(unsafe { BorrowedFd::borrow_raw(number) }))
    }

    /// Sends until all is sent, the socket takes no more, or the turn's share is used.
    pub(super) fn send_file(&self, sending: &Sending) -> Result<Attempt, Raised> {
        let mut share = Share::new();
        loop {
            let from = self.source_again(sending)?;
            // SAFETY: a live socket, whose number the kernel checks.
            let is_open = unsafe { number::of(self.state(), self.socket.get()) } == Some(self.fd.get());
            let sent = sending.sent.get();
            let left = sending.count.map(|count| count - sent);
            let result = match &from {
                Ok(from) if is_open => {
                    // SAFETY: as above.
                    let to = unsafe { BorrowedFd::borrow_raw(self.fd.get()) };
                    let most = share.at_most(left);
                    detached(|| file::send(to, *from, sending.offset + sent, most))
                }
                _ => Err(number::lost()),
            };
            match result {
                Ok(0) => return self.sent_file(sending),
                Ok(more) => {
                    let more = more as u64;
                    sending.sent.set(sent + more);
                    if left == Some(more) {
                        return self.sent_file(sending);
                    }
                    if !share.spend(usize::try_from(more).unwrap_or(usize::MAX)) {
                        return Ok(Attempt::Later);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Attempt::WouldBlock),
                Err(_) if sent == 0 => {
                    let is_no_file = from.is_ok_and(|from| file::size(from).is_err());
                    return Ok(sending.refuse(if is_no_file { NO_FILE } else { FAILED }));
                }
                Err(error) => {
                    self.place_file(sending)?;
                    return Err(raise_unsent(&error));
                }
            }
        }
    }

    /// Everything was sent: sets the file's position, and returns how much it was.
    fn sent_file(&self, sending: &Sending) -> Result<Attempt, Raised> {
        let sent = sending.sent.get();
        if sent > 0 {
            sending.placed.set(sent);
            // SAFETY: the number of the file of which the kernel has just sent.
            let file = unsafe { BorrowedFd::borrow_raw(sending.number.get()) };
            file::seek(file, sending.offset + sent).map_err(|error| raise_os(&error))?;
        }
        // SAFETY: the thread is attached.
        unsafe { Object::own(ffi::PyLong_FromUnsignedLongLong(sent)) }.map(Attempt::Done)
    }

    /// Sets the file's position behind what was sent, if the file is still open.
    fn place_file(&self, sending: &Sending) -> Result<(), Raised> {
        let sent = sending.sent.get();
        if sending.placed.replace(sent) != sent
            && let Ok(file) = self.source_again(sending)?
        {
            // What has ended the operation is the error to show.
            let _ = file::seek(file, sending.offset + sent);
        }
        Ok(())
    }

    /// It has ended, perhaps by an exception that is kept meanwhile.
    pub(super) fn end_file(&self, sending: &Sending) -> Result<(), Raised> {
        let placed = self.place_file(sending);
        let released = self.release_transport(sending);
        placed.and(released)
    }

    fn release_transport(&self, sending: &Sending) -> Result<(), Raised> {
        match self.over() {
            Some(over) if sending.holds.replace(false) => {
                over.end_file(self.address.get(), sending.reads_again.get())
            }
            _ => Ok(()),
        }
    }

    /// Lets asyncio's method send the file, or raises.
    fn send_elsewhere(&self, sending: &Sending, why: &'static CStr) -> Result<Step, Raised> {
        self.release_transport(sending)?;
        sending.stage.set(Stage::Elsewhere);
        // SAFETY: live objects throughout.
        unsafe {
            if !sending.falls_back {
                let class = import(c"asyncio.exceptions", c"SendfileNotAvailableError")?;
                ffi::PyErr_SetString(class.as_ptr(), why.as_ptr());
                return Err(Raised);
            }
            let (method, to) = match self.over() {
                Some(_) => (c"_sendfile_fallback", &self.address),
                None => (c"_sock_sendfile_fallback", &self.socket),
            };
            let offset = Object::own(ffi::PyLong_FromUnsignedLongLong(sending.offset))?;
            let count = match sending.count {
                Some(count) => Object::own(ffi::PyLong_FromUnsignedLongLong(count))?,
                None => Object::none(),
            };
            let made = Object::share(self.owner.get())?.attribute(method)?.call(&[
                to.get(),
                self.data.get(),
                offset.as_ptr(),
                count.as_ptr(),
            ])?;
            made.attribute(c"__await__")?.call(&[]).map(Step::Wait)
        }
    }
}

/// Raises the error that has ended the sending of a file of which a part was sent: asyncio's, whose class says that the
/// connection is gone.
fn raise_unsent(error: &io::Error) -> Raised {
    if error.kind() != io::ErrorKind::NotConnected {
        return raise_os(error);
    }
    // SAFETY: live classes and fresh objects; `SetCause` takes the reference over.
    unsafe {
        let made = os_error(error).and_then(|cause| {
            let number = Object::own(ffi::PyLong_FromLong(error.raw_os_error().unwrap_or(0).into()))?;
            let words = ropewalk_capi::object::text("socket is not connected")?;
            let made = Object::share(ffi::PyExc_ConnectionError)?.call(&[words.as_ptr(), number.as_ptr()])?;
            ffi::PyException_SetCause(made.as_ptr(), cause.into_ptr());
            Ok(made)
        });
        if let Ok(made) = made {
            ffi::PyErr_SetObject(ffi::PyExc_ConnectionError, made.as_ptr());
        }
    }
    Raised
}
