//! Records of tasks and histograms, as Python's side takes them.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};
use pyo3::{ffi, intern};
use ropewalk_pool::{Ended, Histogram, Histograms};

/// A task that has ended, in the order of the parameters of `TaskRecord._of`: the times are in nanoseconds, those of
/// the run from the submission on.
pub(super) type Fields =
    (u64, (i32, u64), u32, Option<String>, (u64, Option<u64>, u64), (u64, Option<u64>), (u64, u64), Reason);
pub(super) type Reason = (&'static str, Option<String>, Option<(String, u32)>);

pub(super) fn fields(ended: &Ended) -> Fields {
    let record = &ended.record;
    let text = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
    (
        ended.id,
        (record.pid, record.worker),
        ended.attempt,
        text(&ended.function),
        (record.queued_at, record.begun_ns, record.total_ns),
        (record.busy_ns, record.cpu_ns),
        (record.sent, record.received),
        (
            ended.outcome,
            text(&ended.cause),
            ended.session.as_ref().map(|(name, generation)| (name.to_string(), *generation)),
        ),
    )
}

/// `(count, sum, least, most, [(above, upto, count)])` in nanoseconds; the least and the most of none are 0.
type Times = (u64, u128, u64, u64, Vec<(u64, u64, u64)>);

fn times(histogram: &Histogram) -> Times {
    let (least, most) = histogram.extremes().unwrap_or_default();
    let buckets = histogram.buckets().map(|bucket| (bucket.above, bucket.upto, bucket.count));
    (histogram.count(), histogram.sum(), least, most, buckets.collect())
}

pub(super) fn all_times(histograms: &Histograms) -> [(&'static str, Times); 3] {
    [
        ("queueing_times", times(&histograms.queueing)),
        ("run_times", times(&histograms.running)),
        ("total_times", times(&histograms.total)),
    ]
}

/// The name of the function that a thread called last: most threads call one function many times.
#[derive(Default)]
pub(super) struct LastName(Option<Known>);

struct Known {
    /// These objects, and no equal ones: to compare them would take longer.
    name: Py<PyAny>,
    module: Option<Py<PyAny>>,
    partial: bool,
    text: Arc<str>,
}

impl LastName {
    /// The name of a callable, as `pool.wire._functions.name_of` makes it. Only the attributes of functions, methods
    /// and classes are read, for those of other objects may be code of the program's: such an object has its class's
    /// name.
    #[inline]
    pub(super) fn of(&mut self, callable: &Bound<'_, PyAny>) -> Option<Arc<str>> {
        match &self.0 {
            Some(known) if known.is_of(callable) => Some(Arc::clone(&known.text)),
            _ => self.read(callable),
        }
    }

    fn read(&mut self, callable: &Bound<'_, PyAny>) -> Option<Arc<str>> {
        let py = callable.py();
        let inner = if is_partial(callable) { callable.getattr(intern!(py, "func")).ok() } else { None };
        if inner.as_ref().is_some_and(|inner| is_method(inner) && is_ours(inner, &OF_SESSIONS)) {
            // A task of a session: the function is what the method is to call.
            return self.read(&callable.getattr(intern!(py, "args")).ok()?.get_item(0).ok()?);
        }
        let (callable, partial) = inner.as_ref().map_or((callable, false), |inner| (inner, true));
        let class = callable.get_type();
        let is_named = has_name(callable) || is_ours(class.as_any(), &RENAMED);
        let named = if is_named { callable } else { class.as_any() };
        let name = named.getattr(intern!(py, "__qualname__")).ok()?;
        let module = named.getattr(intern!(py, "__module__")).ok();
        if let Some(known) = &self.0
            && known.name.is(&name)
            && known.partial == partial
            && known.module.as_ref().map(Py::as_ptr) == module.as_ref().map(Bound::as_ptr)
        {
            return Some(Arc::clone(&known.text));
        }
        let text = text(&name, module.as_ref(), partial)?;
        let (name, module) = (name.unbind(), module.map(Bound::unbind));
        self.0 = Some(Known { name, module, partial, text: Arc::clone(&text) });
        Some(text)
    }
}

impl Known {
    /// Whether a plain function has these objects, without a look by name; false for others.
    #[cfg(not(Py_GIL_DISABLED))]
    #[inline]
    fn is_of(&self, callable: &Bound<'_, PyAny>) -> bool {
        // SAFETY: the object is a function of exactly the type whose layout this is, and lives; its fields are compared
        // and nothing else, by a thread that has the interpreter, which alone may change them.
        unsafe {
            let object = callable.as_ptr();
            if ffi::Py_TYPE(object) != &raw mut ffi::PyFunction_Type {
                return false;
            }
            let function = &*object.cast::<ffi::PyFunctionObject>();
            let module = self.module.as_ref().map_or(std::ptr::null_mut(), Py::as_ptr);
            !self.partial && function.func_qualname == self.name.as_ptr() && function.func_module == module
        }
    }

    /// Whether a plain function has these objects: other threads may change them meanwhile.
    #[cfg(Py_GIL_DISABLED)]
    fn is_of(&self, _callable: &Bound<'_, PyAny>) -> bool {
        false
    }
}

fn text(name: &Bound<'_, PyAny>, module: Option<&Bound<'_, PyAny>>, partial: bool) -> Option<Arc<str>> {
    let name = name.cast::<PyString>().ok()?.to_string_lossy();
    let module =
        module.and_then(|module| module.cast::<PyString>().ok()).map(|module| module.to_string_lossy());
    let module = module.filter(|module| !matches!(&**module, "builtins" | "__main__"));
    let name = module.map_or(name.clone(), |module| format!("{module}.{name}").into());
    let name = if partial { format!("functools.partial({name}, ...)").into() } else { name };
    Some(name.chars().take(LONGEST_NAME).collect::<String>().into())
}

/// As in `pool.wire._functions`.
const LONGEST_NAME: usize = 200;

fn is_partial(callable: &Bound<'_, PyAny>) -> bool {
    static PARTIAL: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    is_a(&PARTIAL, "functools", "partial", callable)
}

fn is_method(callable: &Bound<'_, PyAny>) -> bool {
    static METHOD: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    is_a(&METHOD, "types", "MethodType", callable)
}

fn is_a(class: &PyOnceLock<Py<PyType>>, module: &str, name: &str, object: &Bound<'_, PyAny>) -> bool {
    class.import(object.py(), module, name).is_ok_and(|class| object.get_type().is(class))
}

/// The methods with which a thread runs a session's task, and their module.
const OF_SESSIONS: (&[&str], &str) =
    (&["LocalSession.run", "LocalSession.stream"], "ropewalk.pool.wire._sessions");
/// The class of our functions under other names.
const RENAMED: (&[&str], &str) = (&["Renamed"], "ropewalk.pool.wire._functions");

/// Whether a method or a class has one of these names in this module.
fn is_ours(named: &Bound<'_, PyAny>, (names, module): &(&[&str], &str)) -> bool {
    let py = named.py();
    let has = |attribute, texts: &[&str]| {
        let found: Option<Bound<'_, PyAny>> = named.getattr(attribute).ok();
        let text = found.as_ref().and_then(|found| found.cast::<PyString>().ok());
        text.and_then(|text| text.to_str().ok()).is_some_and(|text| texts.contains(&text))
    };
    has(intern!(py, "__qualname__"), names) && has(intern!(py, "__module__"), &[module])
}

fn has_name(callable: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a live object, whose type is looked at and nothing else.
    unsafe {
        let object = callable.as_ptr();
        ffi::PyFunction_Check(object) != 0
            || ffi::PyCFunction_Check(object) != 0
            || ffi::PyType_CheckExact(object) != 0
            || is_method(callable)
    }
}
