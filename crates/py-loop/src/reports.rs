//! What loops report: see `ropewalk_bus::reports`.

use std::sync::Arc;

use pyo3_ffi as ffi;
use ropewalk_bus::reports::{Field, Report, Reporter};

use super::core::{none, raise_type};
use ropewalk_capi::entry;
use ropewalk_capi::object::Raised;

/// A callback that took long, in debug mode.
const SLOW: &str = "loop.callback.slow";

static REPORTER: Reporter<1> = Reporter::new([SLOW]);

/// A callback that took long.
#[derive(Debug)]
struct Slow {
    /// What it was, as the log says it.
    callback: String,
    /// The name of the thread that ran it.
    thread: String,
    microseconds: i64,
}

impl Report for Slow {
    fn topic(&self) -> &'static str {
        SLOW
    }

    /// The callback, the thread, and the time in microseconds.
    fn fields(&self) -> Vec<Field<'_>> {
        vec![Field::Text(&self.callback), Field::Text(&self.thread), Field::Number(self.microseconds)]
    }
}

/// `_report_slow(callback, thread, microseconds)`: publishes a report if somebody listens.
#[entry]
pub(super) unsafe extern "C" fn report_slow(
    _: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: what the interpreter passes; the texts are copied. A listener's mailbox takes a report as it is, and runs
    // nothing.
    unsafe {
        if count != 3 {
            raise_type("_report_slow() takes two texts and a number");
            return std::ptr::null_mut();
        }
        let text = |at: usize| -> Result<String, Raised> {
            let mut size = 0;
            let start = ffi::PyUnicode_AsUTF8AndSize(*arguments.add(at), &raw mut size);
            if start.is_null() {
                return Err(Raised);
            }
            let bytes = std::slice::from_raw_parts(start.cast::<u8>(), usize::try_from(size).unwrap_or(0));
            Ok(String::from_utf8_lossy(bytes).into_owned())
        };
        let (Ok(callback), Ok(thread)) = (text(0), text(1)) else { return std::ptr::null_mut() };
        let microseconds = ffi::PyLong_AsLongLong(*arguments.add(2));
        if !ffi::PyErr_Occurred().is_null() {
            return std::ptr::null_mut();
        }
        REPORTER.report(0, || Arc::new(Slow { callback, thread, microseconds }));
        none()
    }
}
