//! asyncio's streams: the steps that run for each message. A transport feeds a `StreamReader`, and `read` and
//! `readexactly` return an awaitable.
//!
//! The reader keeps its state in asyncio's attributes, so that asyncio's other methods of it work unchanged; only these
//! steps run without Python frames.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;

use pyo3_ffi as ffi;

use super::loop_module::LoopModule;
use ropewalk_capi::awaitable::{self, Step, Steps};
use ropewalk_capi::entry;
use ropewalk_capi::errors::fail;
use ropewalk_capi::heap::Field;
use ropewalk_capi::object::{Object, Raised};

fn get(object: &Object, name: *mut ffi::PyObject) -> Result<Object, Raised> {
    // SAFETY: live objects.
    unsafe { Object::own(ffi::PyObject_GetAttr(object.as_ptr(), name)) }
}

fn set(object: &Object, name: *mut ffi::PyObject, value: *mut ffi::PyObject) -> Result<(), Raised> {
    // SAFETY: live objects.
    if unsafe { ffi::PyObject_SetAttr(object.as_ptr(), name, value) } == 0 { Ok(()) } else { Err(Raised) }
}

fn is_true(object: &Object) -> Result<bool, Raised> {
    // SAFETY: a live object.
    let truth = unsafe { ffi::PyObject_IsTrue(object.as_ptr()) };
    if truth < 0 { Err(Raised) } else { Ok(truth != 0) }
}

fn call(object: &Object, name: *mut ffi::PyObject) -> Result<Object, Raised> {
    // SAFETY: live objects.
    unsafe { Object::own(ffi::PyObject_CallMethodNoArgs(object.as_ptr(), name)) }
}

fn call_with(object: &Object, name: *mut ffi::PyObject, value: &Object) -> Result<Object, Raised> {
    let arguments = [object.as_ptr(), value.as_ptr()];
    // SAFETY: live objects.
    unsafe { Object::own(ffi::PyObject_VectorcallMethod(name, arguments.as_ptr(), 2, null_mut())) }
}

/// The reader's buffer, which is a `bytearray`.
fn buffer(state: &LoopModule, reader: &Object) -> Result<Object, Raised> {
    let buffer = get(reader, state.names.buffer)?;
    // SAFETY: a live object.
    if unsafe { ffi::PyByteArray_Check(buffer.as_ptr()) } == 0 {
        return Err(fail(c"the buffer of a StreamReader is not a bytearray"));
    }
    Ok(buffer)
}

fn length(buffer: &Object) -> usize {
    // SAFETY: a live bytearray.
    usize::try_from(unsafe { ffi::PyByteArray_Size(buffer.as_ptr()) }).unwrap_or(0)
}

/// Gives received bytes to the reader of an `asyncio.StreamReaderProtocol`, as its `data_received` does; nothing if the
/// reader is of another class, whose method must be called.
pub(super) fn feed(state: &LoopModule, protocol: &Object, bytes: &[u8]) -> Result<Option<()>, Raised> {
    let names = &state.names;
    let weak = get(protocol, names.stream_reader)?;
    if weak.is_none() {
        return Ok(Some(()));
    }
    #[allow(deprecated, reason = "what replaces it is not there before 3.13")]
    // SAFETY: the attribute holds a weak reference, which the C API checks; its object gets a reference of ours.
    let reader = unsafe { Object::share(ffi::PyWeakref_GetObject(weak.as_ptr()))? };
    if reader.is_none() {
        return Ok(Some(()));
    }
    // SAFETY: a live object.
    if unsafe { ffi::Py_TYPE(reader.as_ptr()) }.cast() != state.fast_reader {
        return Ok(None);
    }
    let buffer = buffer(state, &reader)?;
    let before = length(&buffer);
    // SAFETY: a live bytearray that is made as large as is written.
    unsafe {
        let size = ffi::Py_ssize_t::try_from(before + bytes.len()).unwrap_or(ffi::Py_ssize_t::MAX);
        if ffi::PyByteArray_Resize(buffer.as_ptr(), size) != 0 {
            return Err(Raised);
        }
        let end = ffi::PyByteArray_AsString(buffer.as_ptr()).cast::<u8>().add(before);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), end, bytes.len());
    }
    let waiter = get(&reader, names.waiter)?;
    if !waiter.is_none() {
        set(&reader, names.waiter, Object::none().as_ptr())?;
        if !is_true(&call(&waiter, names.cancelled)?)? {
            call_with(&waiter, names.set_result, &Object::none())?;
        }
    }
    let limit = get(&reader, names.limit)?;
    // SAFETY: a live object.
    let limit = unsafe { ffi::PyLong_AsSsize_t(limit.as_ptr()) };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX / 4);
    if before + bytes.len() > 2 * limit && !is_true(&get(&reader, names.paused)?)? {
        let transport = get(&reader, names.transport)?;
        if !transport.is_none() {
            call(&transport, names.pause_reading)?;
            // SAFETY: `True` is immortal.
            set(&reader, names.paused, unsafe { ffi::Py_True() })?;
        }
    }
    Ok(Some(()))
}

/// `read(n)` or `readexactly(n)`: an awaitable that can be awaited once.
pub(super) struct Reading {
    reader: Field,
    most: usize,
    exactly: bool,
}

impl Reading {
    /// The available bytes, if they are enough.
    fn look(&self, state: &LoopModule, reader: &Object) -> Result<Option<Object>, Raised> {
        let names = &state.names;
        let error = get(reader, names.exception)?;
        if !error.is_none() {
            // SAFETY: a live exception.
            unsafe { ffi::PyErr_SetObject(ffi::Py_TYPE(error.as_ptr()).cast(), error.as_ptr()) };
            return Err(Raised);
        }
        let buffer = buffer(state, reader)?;
        let there = length(&buffer);
        let enough = if self.exactly { there >= self.most } else { there > 0 };
        if !enough {
            if !is_true(&get(reader, names.eof)?)? {
                return Ok(None);
            }
            if self.exactly {
                // SAFETY: live objects.
                unsafe {
                    let partial = Object::own(ffi::PyBytes_FromObject(buffer.as_ptr()))?;
                    call(&buffer, names.clear)?;
                    let expected = Object::own(ffi::PyLong_FromSize_t(self.most))?;
                    let class = Object::share(state.incomplete_read)?;
                    let error = class.call(&[partial.as_ptr(), expected.as_ptr()])?;
                    ffi::PyErr_SetObject(state.incomplete_read, error.as_ptr());
                }
                return Err(Raised);
            }
        }
        let taken = there.min(self.most);
        // SAFETY: a live bytearray with at least so many bytes; nothing runs before they are copied.
        let data = unsafe {
            let start = ffi::PyByteArray_AsString(buffer.as_ptr()).cast::<u8>();
            Object::bytes(std::slice::from_raw_parts(start, taken))?
        };
        // SAFETY: a live bytearray.
        let cut = unsafe { ffi::PySequence_DelSlice(buffer.as_ptr(), 0, taken as ffi::Py_ssize_t) };
        if cut != 0 {
            return Err(Raised);
        }
        if is_true(&get(reader, names.paused)?)? {
            call(reader, names.maybe_resume)?;
        }
        Ok(Some(data))
    }

    /// Makes the future that this waits for.
    fn wait(&self, state: &LoopModule, reader: &Object) -> Result<Object, Raised> {
        let names = &state.names;
        if !get(reader, names.waiter)?.is_none() {
            return Err(fail(if self.exactly {
                c"readexactly() called while another coroutine is already waiting for incoming data"
            } else {
                c"read() called while another coroutine is already waiting for incoming data"
            }));
        }
        if is_true(&get(reader, names.paused)?)? {
            // SAFETY: `False` is immortal.
            set(reader, names.paused, unsafe { ffi::Py_False() })?;
            call(&get(reader, names.transport)?, names.resume_reading)?;
        }
        let future = call(&get(reader, names.loop_field)?, names.create_future)?;
        set(reader, names.waiter, future.as_ptr())?;
        Ok(future)
    }

    fn stop_waiting(&self, state: &LoopModule) {
        if let Some(reader) = self.reader.share()
            && set(&reader, state.names.waiter, Object::none().as_ptr()).is_err()
        {
            // SAFETY: an exception is set.
            unsafe { ffi::PyErr_Clear() };
        }
    }
}

// SAFETY: it shows its one field.
unsafe impl Steps for Reading {
    const REUSED: &'static CStr = c"cannot reuse already awaited coroutine";

    fn name(&self) -> Option<&'static CStr> {
        Some(if self.exactly { c"StreamReader.readexactly" } else { c"StreamReader.read" })
    }

    fn step(&self, object: *mut ffi::PyObject) -> Result<Step, Raised> {
        // SAFETY: a live reading.
        let Some(state) = (unsafe { state_of(object) }) else {
            return Err(fail(c"the module of the loop is gone"));
        };
        let Some(reader) = self.reader.share() else { return Err(fail(c"the reader is gone")) };
        match self.look(state, &reader)? {
            Some(data) => Ok(Step::Done(data)),
            None => self.wait(state, &reader).map(Step::Wait),
        }
    }

    fn woken(&self, object: *mut ffi::PyObject, _: Object) -> Option<Object> {
        self.leave(object);
        None
    }

    fn leave(&self, object: *mut ffi::PyObject) {
        // SAFETY: a live reading.
        if let Some(state) = unsafe { state_of(object) } {
            self.stop_waiting(state);
        }
    }

    unsafe fn visit(&self, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
        // SAFETY: the caller's.
        unsafe { self.reader.visit(visit, arg) }
    }

    fn clear(&self) {
        drop(self.reader.take());
    }
}

unsafe fn state_of<'a>(object: *mut ffi::PyObject) -> Option<&'a LoopModule> {
    // SAFETY: a live object of the module's own type.
    unsafe { super::loop_module::MODULE.state_of_base(ffi::Py_TYPE(object)) }.map(|state| &*state)
}

/// `_read(reader, n, exactly)`: the awaitable; n is positive.
#[entry]
pub(super) unsafe extern "C" fn read(
    module: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: our module, and what the interpreter passes; the caller is ours.
    unsafe {
        let made = || {
            let Some(state) = super::loop_module::MODULE.state(module) else {
                return Err(fail(c"no module"));
            };
            if count != 3 {
                return Err(super::core::raise_type("_read() takes a reader, a size and whether exactly"));
            }
            let most = ffi::PyLong_AsSize_t(*arguments.add(1));
            if !ffi::PyErr_Occurred().is_null() {
                return Err(Raised);
            }
            let content = Reading {
                reader: Field::new(Object::share(*arguments)?),
                most,
                exactly: *arguments.add(2) == ffi::Py_True(),
            };
            awaitable::make(state.reading_type.cast(), content)
        };
        made().map_or(null_mut(), Object::into_ptr)
    }
}

/// `_set_reader_class(class)`: the class of readers that are fed without their methods.
#[entry]
pub(super) unsafe extern "C" fn set_reader_class(
    module: *mut ffi::PyObject,
    class: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: our module and a live class.
    unsafe {
        if let Some(state) = super::loop_module::MODULE.state(module) {
            ffi::Py_INCREF(class);
            ffi::Py_XDECREF(std::mem::replace(&mut state.fast_reader, class));
        }
    }
    super::core::none()
}

/// Makes the type.
pub(super) fn add(module: &Object, state: &mut LoopModule) -> Result<(), Raised> {
    let doc = c"A read of a stream: an awaitable that can be awaited once.";
    let made = awaitable::make_type::<Reading>(module, c"ropewalk._loop.Reading", doc, Vec::new())?;
    state.reading_type = made.into_ptr();
    Ok(())
}
