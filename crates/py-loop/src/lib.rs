//! `ropewalk._loop`: the event loop's own part, in the plain C API.
//!
//! `ropewalk.Loop` is asyncio's loop class with `LoopCore` before it. The code that runs for each callback, timer, read
//! or write is here, and what a server does for each connection; the code that runs once for each server or process is
//! asyncio's, or in `ropewalk.loop`.

mod accepting;
mod address;
mod calling;
mod clock;
mod compat;
mod context;
mod core;
mod datagram;
mod descriptors;
mod expected;
mod handed;
mod handle;
mod handle_type;
mod item;
mod loop_module;
mod loop_type;
mod number;
mod operation;
mod outgoing;
mod pipe;
mod reading;
mod received;
mod reports;
mod run;
mod schedule;
mod sockets;
mod spare;
mod status;
mod stream;
mod tasks;
mod transport;
mod watch;
#[cfg(not(Py_GIL_DISABLED))]
mod yielding;

use loop_module::{LoopModule, MODULE};
use pyo3_ffi as ffi;
use ropewalk_capi::heap::{fast_method, method};
use ropewalk_capi::module;
use ropewalk_capi::object::{Object, Raised};

/// Makes the module: the return value of its `PyInit_` function.
pub fn init() -> *mut ffi::PyObject {
    MODULE.init()
}

// SAFETY: pointers, for which zeros are null, and a truth value.
unsafe impl module::State for LoopModule {
    fn references(&mut self) -> impl Iterator<Item = &mut *mut ffi::PyObject> {
        self.all_references()
    }

    fn fill(&mut self, module: &Object) -> Result<(), Raised> {
        fill(module, self)
    }

    fn free(&mut self) {
        self.free_spare();
    }

    fn functions() -> Vec<ffi::PyMethodDef> {
        vec![
            fast_method(
                c"_report_slow",
                reports::report_slow,
                c"_report_slow(callback, thread, microseconds): to the listeners of events",
            ),
            method(
                c"_set_transport_class",
                stream::opening::set_transport_class,
                ffi::METH_O,
                c"_set_transport_class(class): of connected sockets",
            ),
        ]
    }
}

fn fill(module: &Object, state: &mut LoopModule) -> Result<(), Raised> {
    state.prepare()?;
    state.places_known = context::are_places_known()?;
    state.socket_place_known = number::is_place_known(state.raw_socket)?;
    // SAFETY: a live class.
    let class = unsafe { Object::share(state.socket_class)? };
    state.socket_attributes_known = sockets::are_attributes_known(&class)?;
    handle_type::add(module, state)?;
    operation::add(module, state)?;
    reading::add(module, state)?;
    stream::kind::add(module, state)?;
    pipe::kind::add(module, state)?;
    datagram::kind::add(module, state)?;
    loop_type::add(module, state)?;
    for (name, object) in [
        (c"Handle", state.handle_type),
        (c"TimerHandle", state.timer_type),
        (c"ThreadSafeHandle", state.thread_safe_type),
        (c"LoopCore", state.core_type),
        (c"Stream", state.stream_type),
        (c"ReadPipe", state.read_pipe_type),
        (c"WritePipe", state.write_pipe_type),
        (c"Datagram", state.datagram_type),
        (c"Operation", state.operation_type),
        (c"Reading", state.reading_type),
        (c"StreamReader", state.fast_reader),
    ] {
        // SAFETY: our fresh module and a live object.
        unsafe { module::add(module, name, object)? };
    }
    Ok(())
}
