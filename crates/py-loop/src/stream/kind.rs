//! The type of streams' transports.

use std::cell::Cell;
use std::ffi::c_void;

use pyo3_ffi as ffi;

use super::super::descriptors::Waiter;
use super::super::loop_module::LoopModule;
use super::super::outgoing::Outgoing;
use super::super::transport::Transport;
use super::super::transport::kind;
use super::Stream;
use super::bare::{get_extra, info, set_extra};
use super::gather::Gather;
use super::methods::{
    get_emptied, get_server, set_emptied, set_server, show_descriptor, write, write_eof, writelines,
};
use ropewalk_capi::entry;
use ropewalk_capi::guarded::Guarded;
use ropewalk_capi::heap::{self, Field, getter, method};
use ropewalk_capi::object::{Object, Raised};

#[entry]
unsafe extern "C" fn new(
    kind: *mut ffi::PyTypeObject,
    _: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let content = Stream {
        base: Transport::new::<Stream>(Waiter::Stream),
        received: Field::empty(),
        get_buffer: Field::empty(),
        server: Field::empty(),
        bare: Cell::new(None),
        emptied: Field::empty(),
        outgoing: Guarded::new(Outgoing::default()),
        gather: Gather::new(),
        much: Cell::new(false),
    };
    // SAFETY: our type or a subtype.
    unsafe { kind::allocate(kind, content) }
}

/// Makes the type.
pub(crate) fn add(module: &Object, state: &mut LoopModule) -> Result<(), Raised> {
    let mut methods = vec![
        method(
            c"write",
            write,
            ffi::METH_O,
            c"write($self, data, /)\n--\n\nSends bytes, or what is like them; what the kernel does not take waits.",
        ),
        method(
            c"writelines",
            writelines,
            ffi::METH_O,
            c"writelines($self, list_of_data, /)\n--\n\nSends them together.",
        ),
        method(
            c"write_eof",
            write_eof,
            ffi::METH_NOARGS,
            c"write_eof($self, /)\n--\n\nEnds this side after what was written.",
        ),
        method(
            c"_show_descriptor",
            show_descriptor,
            ffi::METH_NOARGS,
            c"_show_descriptor(): the program uses the socket itself from here on.",
        ),
    ];
    methods.push(heap::fast_method(c"_info", info, c"_info(name, default): what `get_extra_info` looks up."));
    methods.extend(kind::common_methods());
    methods.extend(kind::reading_methods());
    methods.extend(kind::writing_methods());
    let made = heap::Type {
        name: c"ropewalk._loop.Stream",
        doc: c"The transport of a connected socket, as far as it is called for each message.",
        flags: ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_BASETYPE,
        methods,
        getters: vec![
            ffi::PyGetSetDef {
                set: Some(set_extra),
                ..getter(c"_extra", get_extra, c"The connection's socket and addresses, by their names.")
            },
            ffi::PyGetSetDef {
                set: Some(set_server),
                ..getter(c"_server", get_server, c"The server that accepted it, or None.")
            },
            ffi::PyGetSetDef {
                set: Some(set_emptied),
                ..getter(c"_empty_waiter", get_emptied, c"What waits until all is sent, or None.")
            },
        ],
        slots: &[(ffi::Py_tp_new, new as *mut c_void)],
    };
    state.stream_type = kind::make::<Stream>(module, c"_FlowControlMixin", made)?.into_ptr();
    Ok(())
}
