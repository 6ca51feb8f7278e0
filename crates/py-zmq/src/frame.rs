//! `Frame`: one part of a message, shown to Python without a copy.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{
    PyBytes, PyDict, PyMemoryView, PyString, PyTuple, PyType, PyWeakrefMethods, PyWeakrefReference,
};
use pyo3::{PyTraverseError, PyVisit, intern};
use ropewalk_messaging::Frame;
use ropewalk_sync::{Mutex, MutexGuard};

use super::errors::{self, EINVAL, Truth};
use super::release::{self, Joint, Shared, View};

/// Below this many bytes a copy is cheaper than releasing a shared buffer; pyzmq uses the same number.
pub(crate) const COPY_THRESHOLD: usize = 65_536;

/// The threshold of a class of frames or sockets: what its package says now, because programs set pyzmq's global
/// `COPY_THRESHOLD`.
pub(crate) fn copy_threshold_of(user: &Bound<'_, PyType>) -> PyResult<usize> {
    match user.getattr_opt(intern!(user.py(), "_copy_threshold"))? {
        // None: whatever its size, nothing is copied.
        Some(read) => Ok(read.call0()?.extract::<Option<usize>>()?.unwrap_or(0)),
        None => Ok(COPY_THRESHOLD),
    }
}

/// Options of a message, by number.
const MORE: i32 = 1;
const SHARED: i32 = 3;

/// The mutable state of a frame.
#[derive(Default)]
struct State {
    more: bool,
    tracker: Option<Py<PyAny>>,
    /// The copy that `bytes` gave out first.
    bytes: Option<Py<PyBytes>>,
    /// The view that `buffer` gave out last, weakly.
    view: Option<Py<PyWeakrefReference>>,
    routing_id: Option<u32>,
    group: Option<String>,
    /// The buffer of another object that the bytes are in.
    lent: Option<Joint>,
    /// For a copy of such a frame: the frame itself, so that the collector knows the buffer's one holder.
    original: Option<Py<FrameBase>>,
    /// The number of views of the lent bytes, those of copies included; while there are any, the bytes stay.
    exports: usize,
}

/// See the module.
#[pyclass(frozen, subclass, weakref, name = "Frame", module = "ropewalk._zmq")]
#[derive(Default)]
pub(crate) struct FrameBase {
    /// Bytes of the core's own. Set once and never replaced: views point into it.
    frame: OnceLock<Frame>,
    /// The bytes of a small frame, once they were shown: views point into it, and may write.
    shown: OnceLock<Box<[AtomicU8]>>,
    /// Its bytes were sent, or another frame has them, too: from then on nobody can ask for a view that writes.
    is_given: AtomicBool,
    state: Mutex<State>,
}

impl FrameBase {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The frame that has the lent buffer, if this is one or the copy of one.
    fn root<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        let state = slf.get().state();
        state.original.as_ref().map_or_else(|| slf.clone(), |original| original.bind(slf.py()).clone())
    }

    fn joint(slf: &Bound<'_, Self>) -> Option<Joint> {
        let root = Self::root(slf);
        root.get().state().lent.clone()
    }

    fn with_bytes<T>(slf: &Bound<'_, Self>, work: impl FnOnce(&[u8]) -> T) -> T {
        if let Some(shown) = slf.get().shown.get() {
            return work(&read(shown));
        }
        match slf.get().frame.get() {
            Some(frame) => work(frame.bytes()),
            None => work(Self::joint(slf).as_ref().map_or(&[], AsRef::as_ref)),
        }
    }

    fn is_made(&self, state: &State) -> bool {
        self.frame.get().is_some() || state.lent.is_some() || state.original.is_some()
    }

    /// The core frame to send: the same bytes, with the properties that were set on this object.
    pub(crate) fn share(slf: &Bound<'_, Self>) -> PyResult<Frame> {
        let this = slf.get();
        let mut frame = match (this.frame.get(), Self::joint(slf)) {
            (Some(frame), _) => this.give(frame),
            (None, Some(joint)) => Frame::from_owner(joint),
            (None, None) => Frame::copy_of(&[]),
        };
        let state = this.state();
        if let Some(routing_id) = state.routing_id {
            frame.set_routing_id(routing_id);
        }
        let set = state.group.as_deref().map_or(Ok(()), |group| frame.set_group(group));
        drop(state);
        set.map_err(|error| errors::of(slf, &error))?;
        Ok(frame)
    }

    /// The same bytes, for another owner.
    fn give(&self, frame: &Frame) -> Frame {
        if let Some(shown) = self.shown.get() {
            return frame.with(&read(shown));
        }
        self.is_given.store(true, Ordering::Release);
        frame.clone()
    }

    /// Where the bytes are, how many, and whether they are read-only. A small frame's bytes move to memory of their own
    /// when they are first shown, because the frame itself must not change.
    fn memory(slf: &Bound<'_, Self>) -> (*mut u8, usize, bool) {
        let this = slf.get();
        match this.frame.get() {
            Some(frame) if frame.is_inline() => {
                let made = || frame.bytes().iter().map(|byte| AtomicU8::new(*byte)).collect();
                let shown = this.shown.get_or_init(made);
                (shown.as_ptr().cast_mut().cast(), shown.len(), false)
            }
            Some(frame) => {
                let is_fixed = this.is_given.load(Ordering::Acquire) || !frame.is_only_one();
                (frame.bytes().as_ptr().cast_mut(), frame.bytes().len(), is_fixed)
            }
            None => Self::with_bytes(slf, |bytes| (bytes.as_ptr().cast_mut(), bytes.len(), true)),
        }
    }

    pub(crate) fn tracker_of(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.state().tracker.as_ref().map(|tracker| tracker.clone_ref(py))
    }

    /// Wraps a received frame in an object of `class`.
    pub(crate) fn wrap<'py>(
        class: &Bound<'py, PyType>,
        frame: Frame,
        track: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let object = class.call0()?;
        let base =
            object.cast::<Self>().map_err(|_| PyTypeError::new_err("_frame_class must derive from Frame"))?;
        let more = frame.more();
        let is_made = base.get().is_made(&base.get().state());
        if is_made || base.get().frame.set(frame).is_err() {
            return Err(errors::made_already());
        }
        let tracker = if track { Some(errors::tracker(class.py(), class, None)?.unbind()) } else { None };
        let mut state = base.get().state();
        state.more = more;
        let old = std::mem::replace(&mut state.tracker, tracker);
        drop(state);
        drop(old);
        Ok(object)
    }
}

/// The bytes of a small frame that was shown.
fn read(shown: &[AtomicU8]) -> Vec<u8> {
    shown.iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
}

/// A frame over an object's buffer, and the event that is set when the buffer is released, if one was requested.
pub(crate) fn lend<'py>(
    py: Python<'py>,
    view: View,
    track: bool,
) -> PyResult<(Frame, Option<Bound<'py, PyAny>>)> {
    Ok(match share_view(py, view, track)? {
        (Ok(shared), event) => (Frame::from_owner(shared), event),
        (Err(view), _) => (Frame::copy_of(view.bytes()), None),
    })
}

/// The shared buffer, or the view again if it cannot be shared; and the event.
type Sharing<'py> = (Result<Shared, View>, Option<Bound<'py, PyAny>>);

/// As `release::share`, with an event if one is requested.
fn share_view<'py>(py: Python<'py>, view: View, track: bool) -> PyResult<Sharing<'py>> {
    let event = if track {
        Some(py.import(intern!(py, "threading"))?.call_method0(intern!(py, "Event"))?)
    } else {
        None
    };
    Ok((release::share(view, event.as_ref())?, event))
}

#[pymethods]
impl FrameBase {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self::default()
    }

    #[pyo3(signature = (data = None, track = Truth(false), copy = None, copy_threshold = None, **_others))]
    fn __init__(
        slf: &Bound<'_, Self>,
        data: Option<&Bound<'_, PyAny>>,
        track: Truth,
        copy: Option<Truth>,
        copy_threshold: Option<usize>,
        _others: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let py = slf.py();
        let mut event = None;
        if let Some(data) = data {
            if data.is_instance_of::<PyString>() {
                return Err(PyTypeError::new_err("a frame holds bytes, not str: encode it first"));
            }
            let view = View::of(data, false)?;
            let copy = match (copy, copy_threshold) {
                (Some(copy), _) => copy.0,
                (None, Some(bytes)) => view.bytes().len() < bytes,
                (None, None) => view.bytes().len() < copy_threshold_of(&slf.get_type())?,
            };
            let made = if copy {
                Err(view)
            } else {
                let (shared, told) = share_view(py, view, track.0)?;
                event = told.filter(|_| shared.is_ok());
                shared
            };
            let made = made.map(Joint::new).map_err(|view| Frame::copy_of(view.bytes()));
            let mut state = slf.get().state();
            if slf.get().is_made(&state) {
                drop(state);
                return Err(errors::made_already());
            }
            match made {
                Ok(joint) => state.lent = Some(joint),
                Err(frame) => drop(slf.get().frame.set(frame)),
            }
        }
        if track.0 {
            let tracker = errors::tracker(py, &slf.get_type(), event.as_ref())?;
            let old = slf.get().state().tracker.replace(tracker.unbind());
            drop(old);
        }
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Never waits: the collector may have stopped the thread that holds the lock.
        let Some(state) = self.state.try_lock() else { return Ok(()) };
        visit.call(&state.tracker)?;
        visit.call(&state.view)?;
        visit.call(&state.original)?;
        state.lent.as_ref().map_or(Ok(()), |lent| lent.visit(&visit))
    }

    fn __clear__(&self) {
        let mut state = self.state();
        let old = (state.tracker.take(), state.view.take());
        // Where a view is part of the same garbage, it is cleared too, and its reference to this frame ends with that.
        let lent = if state.exports == 0 { state.lent.take() } else { None };
        drop(state);
        drop((old, lent));
    }

    #[getter]
    fn more(&self) -> bool {
        self.state().more
    }

    #[setter]
    fn set_more(&self, more: Truth) {
        self.state().more = more.0;
    }

    #[getter]
    fn tracker(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.tracker_of(py)
    }

    #[setter]
    fn set_tracker(&self, tracker: Option<Py<PyAny>>) {
        let old = std::mem::replace(&mut self.state().tracker, tracker);
        drop(old);
    }

    #[getter]
    fn buffer<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let known = slf.get().state().view.as_ref().map(|view| view.clone_ref(py));
        if let Some(view) = known.and_then(|view| view.bind(py).upgrade()) {
            return Ok(view);
        }
        let view = PyMemoryView::from(slf)?.into_any();
        let weak = PyWeakrefReference::new(&view)?.unbind();
        let old = slf.get().state().view.replace(weak);
        drop(old);
        Ok(view)
    }

    #[getter]
    fn bytes<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyBytes> {
        let py = slf.py();
        if let Some(bytes) = &slf.get().state().bytes {
            return bytes.bind(py).clone();
        }
        let made = Self::with_bytes(slf, |bytes| PyBytes::new(py, bytes));
        let mut state = slf.get().state();
        // Another thread may have been faster: both get the same object.
        state.bytes.get_or_insert_with(|| made.unbind()).bind(py).clone()
    }

    fn __bytes__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyBytes> {
        Self::bytes(slf)
    }

    fn __len__(slf: &Bound<'_, Self>) -> usize {
        Self::with_bytes(slf, <[u8]>::len)
    }

    fn __copy__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::fast_copy(slf)
    }

    /// Another frame of the same bytes.
    fn fast_copy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let object = slf.get_type().call0()?;
        let (this, copy) = (slf.get(), object.cast::<Self>()?.get());
        // A subclass's `__init__` may have set the frame, or shown its bytes already.
        let state = copy.state();
        let is_used = copy.is_made(&state) || state.exports > 0;
        drop(state);
        if is_used {
            return Err(errors::made_already());
        }
        if let Some(frame) = this.frame.get()
            && copy.frame.set(this.give(frame)).is_err()
        {
            return Err(errors::made_already());
        }
        let root = Self::root(slf);
        let is_lent = root.get().state().lent.is_some();
        let state = this.state();
        let new = State {
            more: state.more,
            tracker: state.tracker.as_ref().map(|tracker| tracker.clone_ref(py)),
            bytes: state.bytes.as_ref().map(|bytes| bytes.clone_ref(py)),
            view: None,
            routing_id: state.routing_id,
            group: state.group.clone(),
            lent: None,
            original: is_lent.then(|| root.unbind()),
            exports: 0,
        };
        drop(state);
        let old = std::mem::replace(&mut *copy.state(), new);
        drop(old);
        Ok(object)
    }

    /// A property of the message.
    fn get<'py>(slf: &Bound<'py, Self>, option: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let this = slf.get();
        if let Ok(option) = option.extract::<i32>() {
            return match option {
                MORE => Ok(i32::from(this.more()).into_pyobject(py)?.into_any()),
                SHARED => Ok(i32::from(this.is_made(&this.state())).into_pyobject(py)?.into_any()),
                _ => Err(errors::new(slf, EINVAL, "a message has no such option, or it was not received")),
            };
        }
        let name = errors::text(option, "a property's name")?;
        match name.as_str() {
            "routing_id" => {
                let set = this.state().routing_id;
                let id = set.or_else(|| this.frame.get().map(Frame::routing_id)).unwrap_or(0);
                Ok(id.into_pyobject(py)?.into_any())
            }
            "group" => {
                let state = this.state();
                let own = || this.frame.get().map_or("", Frame::group);
                Ok(PyString::new(py, state.group.as_deref().unwrap_or_else(own)).into_any())
            }
            name => match this.frame.get().and_then(|frame| frame.property(name)) {
                Some(value) => Ok(PyString::new(py, value).into_any()),
                None => {
                    let message = format!("the message has no property {name:?}, or it was not received");
                    Err(errors::new(slf, EINVAL, &message))
                }
            },
        }
    }

    /// Sets a property of the message.
    fn set(slf: &Bound<'_, Self>, option: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let this = slf.get();
        match option.extract::<&str>().unwrap_or_default() {
            "routing_id" => {
                let id = value.extract::<u32>()?;
                if id == 0 {
                    return Err(errors::new(slf, EINVAL, "a routing id is not 0"));
                }
                this.state().routing_id = Some(id);
                Ok(())
            }
            "group" => {
                let group = errors::text(value, "a group")?;
                // The core knows which names are too long.
                let mut probe = Frame::copy_of(&[]);
                probe.set_group(&group).map_err(|error| errors::of(slf, &error))?;
                this.state().group = Some(group);
                Ok(())
            }
            _ => Err(errors::new(slf, EINVAL, "a message has no such option that can be set")),
        }
    }

    /// Shows the bytes; they can be written if they are this frame's alone.
    ///
    /// # Safety
    ///
    /// The interpreter's: `view` is room for one view.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view was given"));
        }
        let root = Self::root(&slf);
        let (start, length, is_fixed) = Self::memory(&slf);
        let length = ffi::Py_ssize_t::try_from(length)?;
        root.get().state().exports += 1;
        // SAFETY: the bytes live as long as the object, which the view holds: its own frame is never replaced, and a
        // lent buffer is not released while it is exported. What can be written is memory that was received into, and
        // that no other frame and no program has; it is read as a lent buffer is, whose owner may write meanwhile.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start.cast(), length, c_int::from(is_fixed), flags)
        };
        if filled == 0 {
            return Ok(());
        }
        root.get().state().exports -= 1;
        Err(PyErr::fetch(slf.py()))
    }

    /// A view is released.
    ///
    /// # Safety
    ///
    /// The interpreter's: `view` was filled by this object.
    unsafe fn __releasebuffer__(slf: &Bound<'_, Self>, _view: *mut ffi::Py_buffer) {
        Self::root(slf).get().state().exports -= 1;
    }
}
