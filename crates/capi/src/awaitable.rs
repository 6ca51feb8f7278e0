//! Our awaitables: each is its own iterator, takes its steps in `am_send`, and has a coroutine's methods.
//!
//! A crate implements [`Steps`]: each step has a result, or a future to wait for. The rest is here once: it drives
//! the future's iterator, refuses a second await, and ends a wait by `throw` and `close`. A step with a result takes no
//! turn of the loop, and no `StopIteration` where the caller knows `am_send`.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_int, c_void};
#[cfg(Py_3_14)]
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use pyo3_ffi as ffi;

use crate::entry::entry;
use crate::errors::fail;
use crate::heap::{self, Field};
use crate::object::{Kept, Object, Raised, text};

/// The slot number of `am_send`, which pyo3's headers lack.
pub(crate) const AM_SEND: c_int = 81;

/// What comes next.
#[derive(Debug)]
pub enum Step {
    /// The result.
    Done(Object),
    /// The loop is to turn once.
    Turn,
    /// This future is to be waited for.
    Wait(Object),
}

/// What an awaitable does. `object` is the awaitable itself.
///
/// # Safety
///
/// [`visit`](Self::visit) shows every reference that it holds.
pub unsafe trait Steps: Sized + 'static {
    /// What is raised when it is awaited once more.
    const REUSED: &'static CStr;

    /// What comes next, now that nothing is waited for.
    ///
    /// # Errors
    ///
    /// An exception is set, which ends the awaitable.
    fn step(&self, object: *mut ffi::PyObject) -> Result<Step, Raised>;

    /// The future that was waited for has this result: that of the awaitable, or nothing if it is to go on.
    fn woken(&self, object: *mut ffi::PyObject, value: Object) -> Option<Object>;

    /// The future is not waited for any more, by an exception, or because the awaitable is given up. An exception that
    /// is set is kept meanwhile.
    fn leave(&self, object: *mut ffi::PyObject);

    /// It has come to its end, and is to keep nothing alive.
    fn end(&self, _object: *mut ffi::PyObject) {}

    /// The qualified name of the coroutine function that it stands for, as `StreamReader.read`: it is shown under this
    /// name, and Python warns if nobody awaits it. Without a name it is an object like others.
    fn name(&self) -> Option<&'static CStr> {
        None
    }

    /// Shows its references to the collector.
    ///
    /// # Safety
    ///
    /// Called from `tp_traverse` with what that was given.
    unsafe fn visit(&self, visit: ffi::visitproc, arg: *mut c_void) -> c_int;

    /// Drops them, to break a cycle.
    fn clear(&self);
}

/// What an object of such a type holds.
#[repr(C)]
struct Awaitable<S> {
    /// The iterator of the future that is waited for.
    inner: Field,
    ended: Cell<bool>,
    /// Its first step was taken.
    begun: Cell<bool>,
    #[cfg(Py_3_14)]
    unused: [MaybeUninit<u8>; FRAME_STATE - size_of::<Field>() - 2],
    /// See [`NO_FRAME`].
    #[cfg(Py_3_14)]
    frame_state: i8,
    steps: S,
}

/// Where a coroutine has the state of its frame, in bytes after the object's head.
#[cfg(Py_3_14)]
const FRAME_STATE: usize = 51;
/// The state of a coroutine whose frame is gone. `python -m asyncio ps` reads the memory of another process, and takes
/// whatever a task runs for a coroutine. It reads no frame of one in this state.
#[cfg(Py_3_14)]
const NO_FRAME: i8 = 4;
#[cfg(Py_3_14)]
const _: () = assert!(std::mem::offset_of!(Awaitable<()>, frame_state) == FRAME_STATE);

/// How a step went.
enum Sent {
    Yield(Object),
    Return(Object),
}

/// Sends a value into an iterator.
fn send_into(inner: &Object, value: *mut ffi::PyObject) -> Result<Sent, Raised> {
    let mut result = null_mut();
    // SAFETY: two live objects; the result is a new reference unless it failed.
    unsafe {
        match ffi::PyIter_Send(inner.as_ptr(), value, &raw mut result) {
            ffi::PySendResult::PYGEN_NEXT => Object::own(result).map(Sent::Yield),
            ffi::PySendResult::PYGEN_RETURN => Object::own(result).map(Sent::Return),
            ffi::PySendResult::PYGEN_ERROR => Err(Raised),
        }
    }
}

impl<S: Steps> Awaitable<S> {
    #[inline]
    fn advance(&self, object: *mut ffi::PyObject, sent: *mut ffi::PyObject) -> Result<Sent, Raised> {
        if self.ended.get() {
            return Err(fail(S::REUSED));
        }
        self.begun.set(true);
        let result = self.go_on(object, sent);
        match result {
            Ok(Sent::Yield(_)) => {}
            Ok(Sent::Return(_)) => self.end(object),
            Err(Raised) => self.fall(object),
        }
        result
    }

    /// Goes on until there is something to give.
    #[inline]
    fn go_on(&self, object: *mut ffi::PyObject, mut sent: *mut ffi::PyObject) -> Result<Sent, Raised> {
        loop {
            let inner = match self.inner.share() {
                Some(inner) => inner,
                None => match self.steps.step(object)? {
                    Step::Done(value) => return Ok(Sent::Return(value)),
                    Step::Turn => return Ok(Sent::Yield(Object::none())),
                    Step::Wait(future) => {
                        // SAFETY: a live object.
                        let inner = unsafe { Object::own(ffi::PyObject_GetIter(future.as_ptr())) };
                        let inner = inner.inspect_err(|_| self.leave(object))?;
                        self.inner.set(inner.clone());
                        // SAFETY: None is always there.
                        sent = unsafe { ffi::Py_None() };
                        inner
                    }
                },
            };
            match send_into(&inner, sent) {
                Ok(Sent::Yield(value)) => return Ok(Sent::Yield(value)),
                Ok(Sent::Return(value)) => {
                    drop(self.inner.take());
                    if let Some(value) = self.steps.woken(object, value) {
                        return Ok(Sent::Return(value));
                    }
                }
                Err(Raised) => {
                    self.stop(object);
                    return Err(Raised);
                }
            }
        }
    }

    /// Stops waiting, if it waits.
    fn stop(&self, object: *mut ffi::PyObject) {
        if let Some(inner) = self.inner.take() {
            self.leave(object);
            drop(inner);
        }
    }

    fn leave(&self, object: *mut ffi::PyObject) {
        let raised = Kept::take();
        self.steps.leave(object);
        raised.put_back();
    }

    /// The name under which to warn that nobody has awaited it, if that is so.
    #[inline]
    fn forgotten(&self) -> Option<&'static CStr> {
        if self.begun.get() || self.ended.get() { None } else { self.steps.name() }
    }

    fn end(&self, object: *mut ffi::PyObject) {
        self.ended.set(true);
        self.steps.end(object);
    }

    /// Ends it while an exception passes.
    #[cold]
    fn fall(&self, object: *mut ffi::PyObject) {
        let raised = Kept::take();
        self.end(object);
        raised.put_back();
    }
}

/// What an awaitable does.
///
/// # Safety
///
/// `object` is of a type that [`make_type`] made for an `S`, and lives while the reference does.
#[inline]
#[must_use]
pub unsafe fn steps<'a, S: Steps>(object: *mut ffi::PyObject) -> &'a S {
    // SAFETY: the caller's.
    &unsafe { heap::content::<Awaitable<S>>(object) }.steps
}

/// Makes an awaitable.
///
/// # Errors
///
/// An exception is set.
///
/// # Safety
///
/// `kind` is a type that [`make_type`] made for an `S`.
pub unsafe fn make<S: Steps>(kind: *mut ffi::PyTypeObject, steps: S) -> Result<Object, Raised> {
    // SAFETY: the caller's.
    unsafe {
        heap::make(
            kind,
            Awaitable {
                inner: Field::empty(),
                ended: Cell::new(false),
                begun: Cell::new(false),
                #[cfg(Py_3_14)]
                unused: [MaybeUninit::uninit(); FRAME_STATE - size_of::<Field>() - 2],
                #[cfg(Py_3_14)]
                frame_state: NO_FRAME,
                steps,
            },
        )
    }
}

/// Ends an awaitable that waits for nothing: it cannot be awaited any more.
///
/// # Safety
///
/// As [`steps`].
pub unsafe fn end<S: Steps>(object: *mut ffi::PyObject) {
    // SAFETY: the caller's.
    unsafe { heap::content::<Awaitable<S>>(object) }.end(object);
}

/// Lets an awaitable that has ended be awaited again.
///
/// # Safety
///
/// As [`steps`]; nobody else refers to it.
#[inline]
pub unsafe fn renew<S: Steps>(object: *mut ffi::PyObject) {
    // SAFETY: the caller's.
    let this = unsafe { heap::content::<Awaitable<S>>(object) };
    this.ended.set(false);
    this.begun.set(false);
}

/// Makes the type of awaitables of an `S`, with these methods beside a coroutine's.
///
/// # Errors
///
/// An exception is set.
pub fn make_type<S: Steps>(
    module: &Object,
    name: &'static CStr,
    doc: &'static CStr,
    more: Vec<ffi::PyMethodDef>,
) -> Result<Object, Raised> {
    let mut methods = vec![
        heap::method(c"send", send, ffi::METH_O, c"send(value): goes on."),
        heap::fast_method(c"throw", throw::<S>, c"throw(exception): ends it by an exception."),
        heap::method(c"close", close::<S>, ffi::METH_NOARGS, c"close(): gives it up."),
        heap::method(c"__await__", await_method, ffi::METH_NOARGS, c"Itself."),
    ];
    methods.extend(more);
    heap::make_type::<Awaitable<S>>(
        module,
        heap::Type {
            name,
            doc,
            flags: ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION,
            methods,
            getters: vec![
                heap::getter(c"__name__", get_name::<S>, c"The name of the coroutine function."),
                heap::getter(c"__qualname__", get_qualified_name::<S>, c"Its name, with that of its class."),
            ],
            slots: &[
                (ffi::Py_tp_dealloc, dealloc::<S> as *mut c_void),
                (ffi::Py_tp_finalize, finalize::<S> as *mut c_void),
                (ffi::Py_tp_repr, repr::<S> as *mut c_void),
                (ffi::Py_tp_traverse, traverse::<S> as *mut c_void),
                (ffi::Py_tp_clear, clear::<S> as *mut c_void),
                (ffi::Py_tp_iter, itself as *mut c_void),
                (ffi::Py_tp_iternext, next as *mut c_void),
                (ffi::Py_am_await, itself as *mut c_void),
                (AM_SEND, am_send::<S> as *mut c_void),
            ],
        },
    )
}

/// `__iter__` and `am_await`.
#[entry]
unsafe extern "C" fn itself(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a live object.
    unsafe { ffi::Py_INCREF(object) };
    object
}

/// `__await__`.
#[entry]
unsafe extern "C" fn await_method(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a live object.
    unsafe { itself(object) }
}

/// `__next__`.
#[entry]
unsafe extern "C" fn next(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a live object of a type with an `am_send`.
    unsafe { send(object, ffi::Py_None()) }
}

/// `send(value)`: a step for callers that only know iterators: the end is a `StopIteration` with the value.
#[entry]
unsafe extern "C" fn send(object: *mut ffi::PyObject, sent: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let mut result = null_mut();
    // SAFETY: a live object of a type with an `am_send`; the reference to a value that is returned is given back.
    unsafe {
        match ffi::PyIter_Send(object, sent, &raw mut result) {
            ffi::PySendResult::PYGEN_NEXT => result,
            ffi::PySendResult::PYGEN_RETURN => {
                // An instance, because the interpreter would take a tuple for the exception's arguments.
                if let Ok(stop) =
                    Object::share(ffi::PyExc_StopIteration).and_then(|class| class.call(&[result]))
                {
                    ffi::PyErr_SetObject(ffi::PyExc_StopIteration, stop.as_ptr());
                }
                ffi::Py_DECREF(result);
                null_mut()
            }
            ffi::PySendResult::PYGEN_ERROR => null_mut(),
        }
    }
}

#[entry]
unsafe extern "C" fn am_send<S: Steps>(
    object: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    result: *mut *mut ffi::PyObject,
) -> ffi::PySendResult {
    // SAFETY: an object of the type that this is a slot of.
    let this = unsafe { heap::content::<Awaitable<S>>(object) };
    let (answer, value) = match this.advance(object, value) {
        Ok(Sent::Yield(value)) => (ffi::PySendResult::PYGEN_NEXT, value.into_ptr()),
        Ok(Sent::Return(value)) => (ffi::PySendResult::PYGEN_RETURN, value.into_ptr()),
        Err(Raised) => (ffi::PySendResult::PYGEN_ERROR, null_mut()),
    };
    // SAFETY: the interpreter's place for the result.
    unsafe { *result = value };
    answer
}

/// `throw(type_or_exception[, value[, traceback]])`: delivers a cancellation.
#[entry]
unsafe extern "C" fn throw<S: Steps>(
    object: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: an object of the type that this is a method of, and as many arguments as said.
    let (this, arguments) = unsafe {
        let count = usize::try_from(count).unwrap_or(0);
        (heap::content::<Awaitable<S>>(object), std::slice::from_raw_parts(arguments, count))
    };
    match throw_into(this.inner.share().as_ref(), arguments) {
        Ok(value) => value.into_ptr(),
        Err(Raised) => {
            this.stop(object);
            this.fall(object);
            null_mut()
        }
    }
}

/// Throws into the awaited iterator, or raises if there is none.
fn throw_into(inner: Option<&Object>, arguments: &[*mut ffi::PyObject]) -> Result<Object, Raised> {
    let Some(&first) = arguments.first() else { return Err(fail(c"throw() takes an exception")) };
    if let Some(inner) = inner {
        return inner.attribute(c"throw").and_then(|throw| throw.call(arguments));
    }
    // SAFETY: live objects; SetObject takes its own references, and makes an instance of a class.
    unsafe {
        if ffi::PyExceptionInstance_Check(first) != 0 {
            ffi::PyErr_SetObject(ffi::Py_TYPE(first).cast(), first);
        } else {
            ffi::PyErr_SetObject(first, arguments.get(1).copied().unwrap_or(null_mut()));
        }
    }
    Err(Raised)
}

#[entry]
unsafe extern "C" fn close<S: Steps>(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: an object of the type that this is a method of.
    let this = unsafe { heap::content::<Awaitable<S>>(object) };
    this.stop(object);
    this.end(object);
    Object::none().into_ptr()
}

/// Warns as Python does of a coroutine that was never awaited.
#[entry]
unsafe extern "C" fn finalize<S: Steps>(object: *mut ffi::PyObject) {
    // SAFETY: an object of the type that this is a slot of.
    let Some(name) = (unsafe { heap::content::<Awaitable<S>>(object) }).forgotten() else { return };
    let raised = Kept::take();
    let words = CString::new(format!("coroutine '{}' was never awaited", name.to_string_lossy()));
    // SAFETY: a live object and class, and a C string, which is copied. The exception is that of a filter that makes
    // warnings errors.
    unsafe {
        if ffi::PyErr_WarnEx(ffi::PyExc_RuntimeWarning, words.unwrap_or_default().as_ptr(), 1) != 0 {
            ffi::PyErr_WriteUnraisable(object);
        }
    }
    raised.put_back();
}

#[entry]
unsafe extern "C" fn dealloc<S: Steps>(object: *mut ffi::PyObject) {
    // SAFETY: an object of the type that this is a slot of, whose last reference is gone. A warning may be shown by
    // code that keeps the object: then it lives on.
    unsafe {
        let forgotten = heap::content::<Awaitable<S>>(object).forgotten().is_some();
        if forgotten && ffi::PyObject_CallFinalizerFromDealloc(object) != 0 {
            return;
        }
        heap::dealloc::<Awaitable<S>>(object);
    }
}

#[entry]
unsafe extern "C" fn repr<S: Steps>(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: an object of the type that this is a slot of.
    let name = unsafe { heap::content::<Awaitable<S>>(object) }.steps.name();
    let Some(name) = name.and_then(|name| name.to_str().ok()) else {
        // SAFETY: `object` is the base of every type, and has a repr.
        return match unsafe { ffi::PyBaseObject_Type.tp_repr } {
            // SAFETY: a live object.
            Some(repr) => unsafe { repr(object) },
            None => null_mut(),
        };
    };
    text(&format!("<coroutine object {name} at {object:p}>")).map_or(null_mut(), Object::into_ptr)
}

/// The name, or its part after the last dot. An object without one has no such attribute.
fn name_of<S: Steps>(object: *mut ffi::PyObject, qualified: bool) -> *mut ffi::PyObject {
    // SAFETY: an object of the type whose attribute this is.
    let name = unsafe { heap::content::<Awaitable<S>>(object) }.steps.name();
    let Some(name) = name.and_then(|name| name.to_str().ok()) else {
        // SAFETY: a live class and a C string.
        unsafe { ffi::PyErr_SetString(ffi::PyExc_AttributeError, c"this awaitable has no name".as_ptr()) };
        return null_mut();
    };
    let shown = if qualified { name } else { name.rsplit('.').next().unwrap_or(name) };
    text(shown).map_or(null_mut(), Object::into_ptr)
}

#[entry]
unsafe extern "C" fn get_name<S: Steps>(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    name_of::<S>(object, false)
}

#[entry]
unsafe extern "C" fn get_qualified_name<S: Steps>(
    object: *mut ffi::PyObject,
    _: *mut c_void,
) -> *mut ffi::PyObject {
    name_of::<S>(object, true)
}

#[entry]
unsafe extern "C" fn traverse<S: Steps>(
    object: *mut ffi::PyObject,
    visit: ffi::visitproc,
    arg: *mut c_void,
) -> c_int {
    // SAFETY: an object of the type that this is a slot of, and the collector's own function.
    unsafe {
        let this = heap::content::<Awaitable<S>>(object);
        let mut answer = this.inner.visit(visit, arg);
        if answer == 0 {
            answer = this.steps.visit(visit, arg);
        }
        if answer != 0 { answer } else { heap::visit_type(object, visit, arg) }
    }
}

#[entry]
unsafe extern "C" fn clear<S: Steps>(object: *mut ffi::PyObject) -> c_int {
    // SAFETY: an object of the type that this is a slot of.
    let this = unsafe { heap::content::<Awaitable<S>>(object) };
    drop(this.inner.take());
    this.steps.clear();
    0
}
