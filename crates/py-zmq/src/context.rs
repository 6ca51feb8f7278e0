//! `Context`: the state that sockets share, under pyzmq's names.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyTuple};
use ropewalk_capi::signals;
use ropewalk_messaging::Context;
use ropewalk_os::process::fork_generation;

use super::errors::{self, EFAULT, Truth};
use super::registry::CONTEXTS;
use super::release;

/// The option that says how many threads serve a context.
const IO_THREADS: i32 = 1;
/// How long `term` waits at once, in a thread that runs no signal handlers.
const SLICE: Duration = Duration::from_millis(500);

pub(crate) struct Inner {
    pub(crate) context: Context,
    /// The fork generation in which it was made.
    pub(crate) forks: u64,
    /// Whether this object made it, and no other.
    owned: bool,
}

/// See the module.
#[pyclass(frozen, subclass, weakref, name = "Context", module = "ropewalk._zmq")]
#[derive(Default)]
pub(crate) struct ContextBase {
    inner: OnceLock<Inner>,
    /// Whether `term` has succeeded.
    closed: AtomicBool,
    /// The value of Python's attribute; this module itself uses `Inner::owned`.
    shadow: AtomicBool,
}

impl ContextBase {
    fn is_closed(&self) -> bool {
        match self.inner.get() {
            Some(inner) => self.closed.load(Ordering::Relaxed) || inner.forks != fork_generation(),
            None => true,
        }
    }

    /// The context, for a new socket.
    pub(crate) fn open<'a>(slf: &'a Bound<'_, Self>) -> PyResult<&'a Context> {
        let Some(inner) = slf.get().inner.get() else {
            return Err(errors::new(slf, EFAULT, "the context was not made: its __init__ was not called"));
        };
        if inner.forks != fork_generation() {
            return Err(errors::forked(slf, "context"));
        }
        // Its owner may have terminated it under this other name.
        let is_gone = !inner.owned && CONTEXTS.find(inner.context.id(), inner.forks).is_none();
        if is_gone || slf.get().closed.load(Ordering::Relaxed) {
            return Err(errors::new(slf, EFAULT, "the context was terminated. Make a new one."));
        }
        Ok(&inner.context)
    }

    /// As `open`, for options: pyzmq raises a `RuntimeError` there.
    fn configurable(&self) -> PyResult<&Context> {
        match self.inner.get() {
            Some(inner) if !self.is_closed() => Ok(&inner.context),
            _ => Err(PyRuntimeError::new_err("the context was terminated, or never made. Make a new one.")),
        }
    }
}

#[pymethods]
impl ContextBase {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self::default()
    }

    #[pyo3(signature = (io_threads = 1, shadow = 0))]
    fn __init__(slf: &Bound<'_, Self>, io_threads: i32, shadow: u64) -> PyResult<()> {
        let forks = fork_generation();
        let context = if shadow == 0 {
            let context = Context::new();
            context.set(IO_THREADS, io_threads).map_err(|error| errors::of(slf, &error))?;
            CONTEXTS.add(context.id(), forks, &context);
            context
        } else {
            match CONTEXTS.find(shadow, forks) {
                Some(context) => context,
                None => return Err(errors::new(slf, EFAULT, "there is no context of that number")),
            }
        };
        let this = slf.get();
        this.shadow.store(shadow != 0, Ordering::Relaxed);
        let inner = Inner { context, forks, owned: shadow == 0 };
        this.inner.set(inner).map_err(|_| errors::made_already())
    }

    #[getter]
    fn closed(&self) -> bool {
        self.is_closed()
    }

    #[getter]
    fn _shadow(&self) -> bool {
        self.shadow.load(Ordering::Relaxed)
    }

    #[setter(_shadow)]
    fn set_shadow(&self, shadow: Truth) {
        self.shadow.store(shadow.0, Ordering::Relaxed);
    }

    #[getter]
    fn underlying(&self) -> u64 {
        if self.closed.load(Ordering::Relaxed) {
            return 0;
        }
        self.inner.get().map_or(0, |inner| inner.context.id())
    }

    /// Sets an option.
    fn set(slf: &Bound<'_, Self>, option: i32, optval: &Bound<'_, PyAny>) -> PyResult<()> {
        let context = slf.get().configurable()?;
        if !optval.is_instance_of::<PyInt>() {
            return Err(PyTypeError::new_err(format!("the option takes an int, not {}", optval.repr()?)));
        }
        context.set(option, optval.extract()?).map_err(|error| errors::of(slf, &error))
    }

    /// An option's value.
    fn get(slf: &Bound<'_, Self>, option: i32) -> PyResult<i32> {
        slf.get().configurable()?.get(option).map_err(|error| errors::of(slf, &error))
    }

    /// Waits in slices; signal handlers run in between.
    fn term(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        if let Some(inner) = this.inner.get()
            && !this.is_closed()
        {
            let context = &inner.context;
            let most = signals::slice().unwrap_or(SLICE);
            // Closed sockets may be nearly done, so the first wait is short.
            let mut slice = Duration::from_millis(1);
            while !py.detach(|| context.term(slice)) {
                release::collect(py);
                py.check_signals()?;
                slice = (slice * 4).min(most);
            }
            release::collect(py);
            CONTEXTS.remove(context.id());
        }
        this.closed.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for ContextBase {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        if inner.forks != fork_generation() {
            // It is the parent's: its destructor would wait for threads that do not exist here, or write to the
            // parent's peers.
            std::mem::forget(inner);
        } else if inner.owned {
            CONTEXTS.remove(inner.context.id());
        }
    }
}
