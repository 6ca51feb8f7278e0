//! asyncio's streams: the steps that run for each message. A transport feeds a `StreamReader`, and `read` and
//! `readexactly` return an awaitable.
//!
//! The reader keeps its state in asyncio's attributes, so that asyncio's other methods of it work unchanged; only these
//! steps run without Python frames. A read that waits gets its bytes straight from the transport: they are in the
//! reader's buffer neither before nor after.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;

use pyo3_ffi as ffi;

use super::loop_module::LoopModule;
use super::transport;
use ropewalk_capi::awaitable::{self, Step, Steps};
use ropewalk_capi::entry;
use ropewalk_capi::errors::fail;
use ropewalk_capi::heap::{self, Field, keyword_method};
use ropewalk_capi::object::{Kept, Object, Raised, take_exception};

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

/// Ends the wait of a reader's task, unless the task was cancelled meanwhile; returns whether it did.
fn wake(state: &LoopModule, future: &Object) -> Result<bool, Raised> {
    if call_with(future, state.names.set_result, &Object::none()).is_ok() {
        return Ok(true);
    }
    let error = take_exception();
    if is_true(&call(future, state.names.cancelled)?)? {
        return Ok(false);
    }
    // SAFETY: a live exception.
    unsafe { ffi::PyErr_SetObject(ffi::Py_TYPE(error.as_ptr()).cast(), error.as_ptr()) };
    Err(Raised)
}

/// Who got received bytes.
pub(super) enum Fed {
    /// The reader at this address.
    Reader(*mut ffi::PyObject),
    /// Nobody: there is no reader any more.
    Nobody,
    /// Nobody yet: the reader is of another class, whose method must be called.
    Other,
}

/// Gives received bytes to the reader of an `asyncio.StreamReaderProtocol`, as its `data_received` does.
pub(super) fn feed(state: &LoopModule, protocol: &Object, bytes: &[u8]) -> Result<Fed, Raised> {
    let names = &state.names;
    let weak = get(protocol, names.stream_reader)?;
    if weak.is_none() {
        return Ok(Fed::Nobody);
    }
    #[allow(deprecated, reason = "what replaces it is not there before 3.13")]
    // SAFETY: the attribute holds a weak reference, which the C API checks; its object gets a reference of ours.
    let reader = unsafe { Object::share(ffi::PyWeakref_GetObject(weak.as_ptr()))? };
    if reader.is_none() {
        return Ok(Fed::Nobody);
    }
    // SAFETY: a live object.
    if unsafe { ffi::Py_TYPE(reader.as_ptr()) }.cast() != state.fast_reader {
        return Ok(Fed::Other);
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
        wake(state, &waiter)?;
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
    Ok(Fed::Reader(reader.as_ptr()))
}

/// `read(n)` or `readexactly(n)`: an awaitable that can be awaited once.
///
/// While it waits, the transport knows it, if the bytes come from a transport of ours. Then it gets them past the
/// reader's buffer.
pub(super) struct Reading {
    reader: Field,
    most: usize,
    exactly: bool,
    /// Its own address, by which a transport knows it: the content is moved when the object ends.
    address: Cell<*mut ffi::PyObject>,
    /// The transport that knows it, the future for which the task waits, and the reader's buffer; empty otherwise.
    transport: Field,
    future: Field,
    buffer: Field,
    /// The result, which the task has not taken yet.
    received: Field,
}

/// What the reader's buffer has.
enum Look {
    Enough(Object),
    /// Too little; the buffer.
    More(Object),
}

impl Reading {
    /// The available bytes, if they are enough.
    fn look(&self, state: &LoopModule, reader: &Object) -> Result<Look, Raised> {
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
                return Ok(Look::More(buffer));
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
        Ok(Look::Enough(data))
    }

    /// Makes the future that this waits for.
    fn wait(
        &self,
        object: *mut ffi::PyObject,
        state: &LoopModule,
        reader: &Object,
        buffer: Object,
    ) -> Result<Object, Raised> {
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
        let transport = get(reader, names.transport)?;
        // SAFETY: live objects; `forget` is called when the wait ends, and when this is dropped.
        if unsafe {
            ffi::PyType_IsSubtype(ffi::Py_TYPE(transport.as_ptr()), state.stream_type.cast()) != 0
                && transport::transport(transport.as_ptr()).expected.enter(reader.as_ptr(), object)
        } {
            self.address.set(object);
            self.transport.set(transport);
            self.future.set(future.clone());
            self.buffer.set(buffer);
        }
        Ok(future)
    }

    fn forget(&self) {
        if let Some(transport) = self.transport.take() {
            // SAFETY: a live transport.
            unsafe { transport::transport(transport.as_ptr()) }.expected.withdraw(self.address.get());
        }
    }

    /// The task does not take the result: returns it to the beginning of the reader's buffer. Returns whether there
    /// was one.
    fn put_back(&self) -> bool {
        let Some(received) = self.received.take() else { return false };
        let Some(buffer) = self.buffer.share() else { return true };
        // SAFETY: live objects; a bytearray takes the bytes of a `bytes` object without running other code.
        if unsafe { ffi::PySequence_SetSlice(buffer.as_ptr(), 0, 0, received.as_ptr()) } != 0 {
            // SAFETY: an exception is set.
            unsafe { ffi::PyErr_WriteUnraisable(buffer.as_ptr()) };
        }
        true
    }

    fn stop_waiting(&self, state: &LoopModule) -> Result<(), Raised> {
        self.forget();
        let had = self.put_back();
        let Some(reader) = self.reader.share() else { return Ok(()) };
        let waiter = if had { get(&reader, state.names.waiter)? } else { Object::none() };
        set(&reader, state.names.waiter, Object::none().as_ptr())?;
        // Another task has begun to wait after this one got its bytes.
        if waiter.is_none() { Ok(()) } else { wake(state, &waiter).map(drop) }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.forget();
        if !self.received.get().is_null() {
            let raised = Kept::take();
            self.put_back();
            raised.put_back();
        }
    }
}

/// The content of a live read.
unsafe fn content<'a>(object: *mut ffi::PyObject) -> &'a Reading {
    // SAFETY: the caller's.
    unsafe { awaitable::steps(object) }
}

/// How many bytes a read takes of those that one receive gets, which are so many at most; 0 if they are too few for it.
///
/// # Safety
///
/// An object of the type.
pub(super) unsafe fn wish(reading: &Object, received: usize) -> usize {
    // SAFETY: the caller's.
    let this = unsafe { content(reading.as_ptr()) };
    if this.exactly && this.most > received { 0 } else { this.most.min(received) }
}

/// Ends the wait of a read with its part of so many received bytes, unless they are too few for it, earlier ones come
/// first, or its task was cancelled; returns whether it has taken the part.
///
/// # Safety
///
/// An object of the type, which its transport has forgotten.
pub(super) unsafe fn hand_over(
    state: &LoopModule,
    reading: &Object,
    got: usize,
    part: impl FnOnce() -> Result<Object, Raised>,
) -> Result<bool, Raised> {
    // SAFETY: the caller's.
    let this = unsafe { content(reading.as_ptr()) };
    drop(this.transport.take());
    let (Some(reader), Some(future), Some(buffer)) =
        (this.reader.share(), this.future.take(), this.buffer.share())
    else {
        return Ok(false);
    };
    if (this.exactly && got < this.most) || length(&buffer) > 0 {
        return Ok(false);
    }
    this.received.set(part()?);
    set(&reader, state.names.waiter, Object::none().as_ptr())?;
    let woken = wake(state, &future);
    if !matches!(woken, Ok(true)) {
        drop(this.received.take());
    }
    woken
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
            Look::Enough(data) => Ok(Step::Done(data)),
            Look::More(buffer) => self.wait(object, state, &reader, buffer).map(Step::Wait),
        }
    }

    fn woken(&self, object: *mut ffi::PyObject, _: Object) -> Option<Object> {
        let received = self.received.take();
        if received.is_none() {
            self.leave(object);
        }
        received
    }

    fn leave(&self, object: *mut ffi::PyObject) {
        // SAFETY: a live reading.
        if let Some(state) = unsafe { state_of(object) }
            && self.stop_waiting(state).is_err()
        {
            // SAFETY: an exception is set.
            unsafe { ffi::PyErr_WriteUnraisable(object) };
        }
    }

    unsafe fn visit(&self, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
        let fields = [&self.reader, &self.transport, &self.future, &self.buffer];
        // SAFETY: the caller's.
        unsafe { heap::visit_fields(&fields, visit, arg) }
    }

    fn clear(&self) {
        self.forget();
        self.put_back();
        drop((self.reader.take(), self.future.take(), self.buffer.take()));
    }
}

unsafe fn state_of<'a>(object: *mut ffi::PyObject) -> Option<&'a LoopModule> {
    // SAFETY: a live object of the module's own type.
    unsafe { super::loop_module::MODULE.state_of_base(ffi::Py_TYPE(object)) }.map(|state| &*state)
}

/// `read(n=-1)` and `readexactly(n)`: the awaitable. What asks for no bytes, or for all until the end, and whatever is
/// wrong, is left to asyncio's method.
unsafe fn begin(
    reader: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
    exactly: bool,
) -> Result<*mut ffi::PyObject, Raised> {
    // SAFETY: a reader of our class or a class derived from it, and what the interpreter passes.
    unsafe {
        let Some(state) = super::loop_module::MODULE.state_of_base(ffi::Py_TYPE(reader)) else {
            return Err(fail(c"the module of the loop is gone"));
        };
        if count == 1 && names.is_null() && ffi::PyLong_CheckExact(*arguments) != 0 {
            let most = ffi::PyLong_AsSsize_t(*arguments);
            if most > 0 {
                let content = Reading {
                    reader: Field::new(Object::share(reader)?),
                    most: most.unsigned_abs(),
                    exactly,
                    address: Cell::new(null_mut()),
                    transport: Field::empty(),
                    future: Field::empty(),
                    buffer: Field::empty(),
                    received: Field::empty(),
                };
                return awaitable::make(state.reading_type.cast(), content).map(Object::into_ptr);
            }
            if most == -1 {
                ffi::PyErr_Clear();
            }
        }
        let method = if exactly { state.read_exactly } else { state.read };
        let given = if names.is_null() { 0 } else { ffi::PyTuple_GET_SIZE(names) };
        let mut all = vec![reader];
        all.extend((0..count + given).map(|at| *arguments.offset(at)));
        Ok(ffi::PyObject_Vectorcall(method, all.as_ptr(), count.unsigned_abs() + 1, names))
    }
}

#[entry]
unsafe extern "C" fn read(
    reader: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: what the interpreter passes.
    unsafe { begin(reader, arguments, count, names, false) }.unwrap_or(null_mut())
}

#[entry]
unsafe extern "C" fn readexactly(
    reader: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: what the interpreter passes.
    unsafe { begin(reader, arguments, count, names, true) }.unwrap_or(null_mut())
}

/// Makes the types of reads, and of readers: asyncio's class and state, with two methods replaced. An existing reader
/// can change its class to it.
pub(super) fn add(module: &Object, state: &mut LoopModule) -> Result<(), Raised> {
    let doc = c"A read of a stream: an awaitable that can be awaited once.";
    let made = awaitable::make_type::<Reading>(module, c"ropewalk._loop.Reading", doc, Vec::new())?;
    state.reading_type = made.into_ptr();
    // SAFETY: a live class.
    let base = unsafe { Object::share(state.reader_class)? };
    let made = heap::Type {
        name: c"ropewalk._loop.StreamReader",
        doc: c"The reader of a connection: asyncio's class and state, with compiled methods.",
        flags: ffi::Py_TPFLAGS_BASETYPE,
        methods: vec![
            keyword_method(c"read", read, c"read($self, /, n=-1)\n--\n\nAs `asyncio.StreamReader.read`."),
            keyword_method(
                c"readexactly",
                readexactly,
                c"readexactly($self, /, n)\n--\n\nAs `asyncio.StreamReader.readexactly`.",
            ),
        ],
        getters: Vec::new(),
        slots: &[],
    };
    state.fast_reader = heap::make_sized_type(module, made, 0, Some(&base))?.into_ptr();
    Ok(())
}
