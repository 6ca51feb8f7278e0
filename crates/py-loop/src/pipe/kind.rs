//! The types of pipes' transports, and the methods of their own.

use std::ffi::c_void;
use std::ptr::null_mut;

use pyo3_ffi as ffi;

use super::super::core::none;
use super::super::descriptors::Waiter;
use super::super::loop_module::LoopModule;
use super::super::outgoing::{Data, Outgoing};
use super::super::transport::kind::{self, common_methods, reading_methods, writing_methods};
use super::super::transport::{Behaviour, Transport, content};
use super::read::ReadPipe;
use super::write::{WritePipe, bit};
use ropewalk_capi::entry;
use ropewalk_capi::guarded::Guarded;
use ropewalk_capi::heap::{self, Field, method};
use ropewalk_capi::object::{Object, Raised};

#[entry]
unsafe extern "C" fn new_read(
    kind: *mut ffi::PyTypeObject,
    _: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let content = ReadPipe { base: Transport::new::<ReadPipe>(Waiter::Stream), received: Field::empty() };
    // SAFETY: our type or a subtype.
    unsafe { kind::allocate(kind, content) }
}

#[entry]
unsafe extern "C" fn new_write(
    kind: *mut ffi::PyTypeObject,
    _: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let content = WritePipe {
        base: Transport::new::<WritePipe>(Waiter::Sink),
        outgoing: Guarded::new(Outgoing::default()),
    };
    // SAFETY: our type or a subtype.
    unsafe { kind::allocate(kind, content) }
}

/// `_read_rest()`: passes on what has been written so far.
#[entry]
unsafe extern "C" fn read_rest(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    let this = unsafe { content::<ReadPipe>(object) };
    if this.check_thread().and_then(|()| this.read_rest(object)).is_ok() { none() } else { null_mut() }
}

#[entry]
unsafe extern "C" fn write(object: *mut ffi::PyObject, data: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a live transport and argument.
    let this = unsafe { content::<WritePipe>(object) };
    let written = Data::of(data).and_then(|data| {
        this.check_thread()?;
        this.write(object, data)
    });
    if written.is_ok() { none() } else { null_mut() }
}

#[entry]
unsafe extern "C" fn write_eof(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    let this = unsafe { content::<WritePipe>(object) };
    if this.check_thread().and_then(|()| this.close(object)).is_ok() { none() } else { null_mut() }
}

/// `_start_writing()`: watches for the end of the reader.
#[entry]
unsafe extern "C" fn start_writing(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    unsafe {
        let this = content::<WritePipe>(object);
        this.set(bit::HAS_READER);
        let started =
            this.watch(object).and_then(|()| if this.is_ready() { this.enqueue(object) } else { Ok(()) });
        if started.is_ok() { none() } else { null_mut() }
    }
}

/// Makes the types.
pub(crate) fn add(module: &Object, state: &mut LoopModule) -> Result<(), Raised> {
    let mut methods = vec![method(
        c"_read_rest",
        read_rest,
        ffi::METH_NOARGS,
        c"_read_rest(): passes on what has been written so far.",
    )];
    methods.extend(common_methods());
    methods.extend(reading_methods());
    let made = heap::Type {
        name: c"ropewalk._loop.ReadPipe",
        doc: c"The transport that reads from a pipe, as far as it is called for each message.",
        flags: ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_BASETYPE,
        methods,
        getters: Vec::new(),
        slots: &[(ffi::Py_tp_new, new_read as *mut c_void)],
    };
    state.read_pipe_type = kind::make::<ReadPipe>(module, c"ReadTransport", made)?.into_ptr();
    let mut methods = vec![
        method(
            c"write",
            write,
            ffi::METH_O,
            c"write($self, data, /)\n--\n\nWrites bytes, or what is like them.",
        ),
        method(
            c"write_eof",
            write_eof,
            ffi::METH_NOARGS,
            c"write_eof($self, /)\n--\n\nCloses the pipe after what was written.",
        ),
        method(c"_start_writing", start_writing, ffi::METH_NOARGS, c"_start_writing(): watches the reader."),
    ];
    methods.extend(common_methods());
    methods.extend(writing_methods());
    let made = heap::Type {
        name: c"ropewalk._loop.WritePipe",
        doc: c"The transport that writes to a pipe, as far as it is called for each message.",
        flags: ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_BASETYPE,
        methods,
        getters: Vec::new(),
        slots: &[(ffi::Py_tp_new, new_write as *mut c_void)],
    };
    state.write_pipe_type = kind::make::<WritePipe>(module, c"_FlowControlMixin", made)?.into_ptr();
    Ok(())
}
