//! A file that `sendfile` sends over a transport, past what the program writes: after all that was written before, and
//! nothing is written meanwhile.

use pyo3_ffi as ffi;

use super::super::loop_module::LoopModule;
use super::super::transport::{Behaviour, refuse};
use super::{Stream, bit};
use ropewalk_capi::errors::fail;
use ropewalk_capi::object::{Object, Raised, text};

/// Raises what a send over a connection that has ended meanwhile raises in asyncio.
fn raise_closed() -> Raised {
    // SAFETY: a live class and a C string, which is copied.
    unsafe { ffi::PyErr_SetString(ffi::PyExc_ConnectionError, CLOSED.as_ptr()) };
    Raised
}

const CLOSED: &std::ffi::CStr = c"Connection is closed by peer";

impl Stream {
    /// Whether a file can be sent over this transport in compiled code: it belongs to this loop, and its socket is a
    /// plain one, which is returned.
    pub(in super::super) fn socket_for_file(
        &self,
        object: *mut ffi::PyObject,
        state: &LoopModule,
        owner: *mut ffi::PyObject,
    ) -> Result<Option<Object>, Raised> {
        if self.owner.get() != owner {
            return Ok(None);
        }
        self.make_socket(object)?;
        Ok(self.socket.share().filter(|socket| {
            // SAFETY: a live object.
            unsafe { ffi::Py_TYPE(socket.as_ptr()) }.cast() == state.socket_class
        }))
    }

    /// A file is to be sent. Returns a future to wait for if data that were written before have not left.
    pub(in super::super) fn begin_file(&self, object: *mut ffi::PyObject) -> Result<Option<Object>, Raised> {
        self.check_thread()?;
        if self.has(bit::CLOSING) {
            return Err(fail(c"Transport is closing"));
        }
        if !self.emptied.get().is_null() {
            return refuse("unable to send a file; sendfile is in progress".to_owned());
        }
        self.send_gathered(object)?;
        self.check_file()?;
        if self.is_empty() {
            return Ok(None);
        }
        let name = self.state()?.names.create_future;
        // SAFETY: a live loop.
        unsafe { Object::own(ffi::PyObject_CallMethodNoArgs(self.owner.get(), name)) }.map(Some)
    }

    /// Raises if the connection has ended.
    pub(in super::super) fn check_file(&self) -> Result<(), Raised> {
        if self.has(bit::LOST) || self.is_detached() { Err(raise_closed()) } else { Ok(()) }
    }

    /// The sender of a file waits for this future, to which the end of the transport sets an error. Until
    /// [`end_file`](Self::end_file) nothing is read, as on asyncio, and writes raise. Returns whether it was reading.
    pub(in super::super) fn wait_with_file(&self, future: &Object) -> bool {
        self.emptied.set(future.clone());
        let reads = !self.has(bit::CLOSING | bit::PAUSED);
        if reads {
            self.set(bit::PAUSED);
        }
        reads
    }

    /// No file is being sent any more.
    pub(in super::super) fn end_file(&self, object: *mut ffi::PyObject, read: bool) -> Result<(), Raised> {
        drop(self.emptied.take());
        if read { self.resume_reading(object) } else { Ok(()) }
    }

    /// The transport has ended: so does the wait of `sendfile`.
    pub(super) fn abandon_file(&self) -> Result<(), Raised> {
        let Some(waiter) = self.emptied.share() else { return Ok(()) };
        let words = text(CLOSED.to_str().unwrap_or_default())?;
        // SAFETY: a live class.
        let error = unsafe { Object::share(ffi::PyExc_ConnectionError)? }.call(&[words.as_ptr()])?;
        self.set_future(&waiter, Some(&error))
    }
}
