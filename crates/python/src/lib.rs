//! The shared object of the package: the init functions of its extension modules, and nothing else.
//!
//! The modules are one object because all of them see the same Rust statics. `_core`, `_gateway`, `_journal` and `_zmq`
//! are
//! written with pyo3 and serve the main interpreter only; `_worker`, `_bus`, `_results`, `_loop` and `_state`
//! stand on the plain C API, and every interpreter may load them.

use pyo3::prelude::*;
use pyo3_ffi as ffi;
use ropewalk_capi::entry;

/// The parent's half of a pool.
#[pymodule(gil_used = false)]
fn _core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    ropewalk_py_pool::parent::fill(m)
}

/// A server of tools.
#[pymodule(gil_used = false)]
fn _gateway(m: &Bound<'_, PyModule>) -> PyResult<()> {
    ropewalk_py_gateway::fill(m)
}

/// The journal.
#[pymodule(gil_used = false)]
fn _journal(m: &Bound<'_, PyModule>) -> PyResult<()> {
    ropewalk_py_journal::fill(m)
}

/// Messaging.
#[pymodule(gil_used = false)]
fn _zmq(m: &Bound<'_, PyModule>) -> PyResult<()> {
    ropewalk_py_zmq::fill(m)
}

macro_rules! init {
    ($name:ident, $module:path) => {
        /// Called by the import system.
        #[unsafe(no_mangle)]
        #[entry]
        pub extern "C" fn $name() -> *mut ffi::PyObject {
            $module()
        }
    };
}

init!(PyInit__worker, ropewalk_py_pool::worker::init);
init!(PyInit__bus, ropewalk_py_bus::init);
init!(PyInit__results, ropewalk_py_results::init);
init!(PyInit__loop, ropewalk_py_loop::init);
init!(PyInit__state, ropewalk_py_state::init);
