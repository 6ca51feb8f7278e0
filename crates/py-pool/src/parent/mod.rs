//! `ropewalk._core`: pools and futures, as the parent sees them.

mod calls;
mod checks;
mod decode;
mod encode;
mod engine;
mod errors;
mod functions;
mod future;
mod handle;
mod interrupts;
mod lanes;
mod life;
mod local;
mod map;
mod placing;
mod pool;
mod pump;
mod records;
pub mod served;
mod session;
mod settings;
mod slot;
mod snapshot;
mod stream;

use pyo3::prelude::*;
use ropewalk_base::Code;
use ropewalk_capi::mailbox::{self, Mailbox};
use ropewalk_capi::module::check_main_interpreter;
use ropewalk_capi::object::{Object, Raised};

/// Cores that this process may use, by affinity and control group.
#[pyfunction]
fn usable_cores() -> usize {
    ropewalk_os::cpu::usable_cores()
}

/// The private memory of a process in bytes; 0 if it is unknown.
#[pyfunction]
fn private_bytes(py: Python<'_>, pid: i32) -> u64 {
    py.detach(|| ropewalk_os::memory::private_bytes(pid))
}

/// The resident memory of a process in bytes, what it shares included; 0 if it is unknown.
#[pyfunction]
fn resident_bytes(py: Python<'_>, pid: i32) -> u64 {
    py.detach(|| ropewalk_os::memory::resident_bytes(pid))
}

/// The shared memory of this process in bytes.
#[pyfunction]
fn shared_bytes(py: Python<'_>) -> u64 {
    py.detach(|| ropewalk_shm::memory::Arena::global().shared_bytes())
}

/// The mailbox of an event loop, which takes what other threads have for it.
#[pyfunction]
#[pyo3(signature = (event_loop, /))]
fn mailbox_of<'py>(event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: a live object.
    let mailbox =
        unsafe { Object::share(event_loop.as_ptr()) }.and_then(|event_loop| Mailbox::of(&event_loop));
    errors::bound(event_loop.py(), mailbox.map(Mailbox::into_object))
}

/// Fills `ropewalk._core`; see `ropewalk/_core.pyi`.
///
/// # Errors
///
/// Outside of the main interpreter, whose types pyo3 would share with others.
pub fn fill(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let instead =
        c"ropewalk._core cannot be loaded in a subinterpreter: create pools in the main interpreter";
    check_main_interpreter(instead).map_err(|Raised| PyErr::fetch(m.py()))?;
    // The errors are loaded now: once descriptors run out, no module can be read any more.
    errors::class(m.py(), Code::RopewalkError)?;
    m.add("PoolBase", m.py().get_type::<pool::PoolBase>())?;
    m.add_class::<handle::PoolHandle>()?;
    m.add_class::<future::FutureBase>()?;
    m.add_class::<map::MapIterator>()?;
    m.add_class::<stream::StreamBase>()?;
    m.add_class::<session::SessionBase>()?;
    m.add_class::<calls::TaskCall>()?;
    m.add_class::<lanes::StreamFeed>()?;
    m.add_class::<checks::Checks>()?;
    m.add_class::<snapshot::Snapshot>()?;
    m.add_class::<encode::Lent>()?;
    m.add_function(wrap_pyfunction!(encode::lend_during, m)?)?;
    m.add_function(wrap_pyfunction!(encode::join_apart, m)?)?;
    m.add_class::<interrupts::Finalizer>()?;
    m.add_function(wrap_pyfunction!(interrupts::raise_later, m)?)?;
    m.add("Mailbox", errors::bound(m.py(), mailbox::kind())?)?;
    m.add_function(wrap_pyfunction!(mailbox_of, m)?)?;
    m.add_function(wrap_pyfunction!(usable_cores, m)?)?;
    m.add_function(wrap_pyfunction!(private_bytes, m)?)?;
    m.add_function(wrap_pyfunction!(resident_bytes, m)?)?;
    m.add_function(wrap_pyfunction!(shared_bytes, m)?)?;
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}
