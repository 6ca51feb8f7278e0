//! The type of transports: their memory, and the table of their methods.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use pyo3_ffi as ffi;

use super::super::loop_module::LoopModule;
use super::super::outgoing::Outgoing;
use super::methods::{
    abort, attach, buffer_size, close, detach, force_close, get_emptied, get_fd, get_loop, get_paused,
    get_protocol, get_protocol_field, get_server, get_socket, is_closing, is_reading, limits, pause_reading,
    resume_reading, set_emptied, set_limits, set_protocol, start_reading, write, write_eof, writelines,
};
use super::{HIGH, Layout, Stream, stream};
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
    // SAFETY: our type or a subtype; memory of at least its size, zeroed, and written before other code sees it.
    unsafe {
        let Some(alloc) = (*kind).tp_alloc else { return null_mut() };
        let object = alloc(kind, 0);
        if object.is_null() {
            return null_mut();
        }
        let content = Stream {
            owner: Field::empty(),
            socket: Field::empty(),
            fd: Cell::new(-1),
            protocol: Field::empty(),
            received: Field::empty(),
            get_buffer: Field::empty(),
            context: Field::empty(),
            server: Field::empty(),
            emptied: Field::empty(),
            bits: Cell::new(0),
            ignored: Cell::new(0),
            outgoing: Guarded::new(Outgoing::default()),
            high: Cell::new(HIGH),
            low: Cell::new(HIGH / 4),
        };
        std::ptr::write(&raw mut (*object.cast::<Layout>()).content, content);
        object
    }
}

impl Stream {
    fn fields(&self) -> [&Field; 8] {
        [
            &self.owner,
            &self.socket,
            &self.protocol,
            &self.received,
            &self.get_buffer,
            &self.context,
            &self.server,
            &self.emptied,
        ]
    }
}

#[entry]
unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: as of `heap::dealloc`; `_extra` is asyncio's slot, which no other code drops.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        ffi::PyObject_GC_UnTrack(object.cast());
        let layout = object.cast::<Layout>();
        drop(std::ptr::read(&raw const (*layout).content));
        ffi::Py_XDECREF(std::mem::replace(&mut (*layout).extra, null_mut()));
        if let Some(free) = (*kind).tp_free {
            free(object.cast());
        }
        ffi::Py_DECREF(kind.cast());
    }
}

#[entry]
unsafe extern "C" fn traverse(object: *mut ffi::PyObject, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a live transport, and what the collector gave.
    unsafe {
        let extra = (*object.cast::<Layout>()).extra;
        if !extra.is_null() {
            let answer = visit(extra, arg);
            if answer != 0 {
                return answer;
            }
        }
        for field in stream(object).fields() {
            let answer = field.visit(visit, arg);
            if answer != 0 {
                return answer;
            }
        }
        heap::visit_type(object, visit, arg)
    }
}

#[entry]
unsafe extern "C" fn clear(object: *mut ffi::PyObject) -> c_int {
    // SAFETY: a live transport that is garbage.
    unsafe {
        for field in stream(object).fields() {
            drop(field.take());
        }
        ffi::Py_XDECREF(std::mem::replace(&mut (*object.cast::<Layout>()).extra, null_mut()));
    }
    0
}

/// Makes the type.
pub(crate) fn add(module: &Object, state: &mut LoopModule) -> Result<(), Raised> {
    // SAFETY: a C string.
    let transports = unsafe { Object::own(ffi::PyImport_ImportModule(c"asyncio.transports".as_ptr()))? };
    let base = transports.attribute(c"_FlowControlMixin")?;
    let size = base.attribute(c"__basicsize__")?;
    // SAFETY: a live int.
    let size = usize::try_from(unsafe { ffi::PyLong_AsSsize_t(size.as_ptr()) }).unwrap_or(0);
    if size != std::mem::offset_of!(Layout, unused) + 4 * size_of::<*mut c_void>() {
        // SAFETY: a live class and a C string.
        unsafe {
            ffi::PyErr_SetString(
                ffi::PyExc_ImportError,
                c"asyncio.Transport has a layout that ropewalk does not know".as_ptr(),
            );
        }
        return Err(Raised);
    }
    let noargs = ffi::METH_NOARGS;
    let kind = heap::Type {
        name: c"ropewalk._loop.Stream",
        doc: c"The transport of a connected socket, as far as it is called for each message.",
        flags: ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_BASETYPE,
        methods: vec![
            method(
                c"write",
                write,
                ffi::METH_O,
                c"write($self, data, /)\n--\n\nSends bytes, or what is like them, at the end of the turn.",
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
                noargs,
                c"write_eof($self, /)\n--\n\nEnds this side after what was written.",
            ),
            method(c"close", close, noargs, c"close($self, /)\n--\n\nEnds it after what was written."),
            method(c"abort", abort, noargs, c"abort($self, /)\n--\n\nEnds it at once."),
            method(
                c"pause_reading",
                pause_reading,
                noargs,
                c"pause_reading($self, /)\n--\n\nGives its protocol no data from here on.",
            ),
            method(
                c"resume_reading",
                resume_reading,
                noargs,
                c"resume_reading($self, /)\n--\n\nGives its protocol data again.",
            ),
            method(c"is_reading", is_reading, noargs, c"is_reading($self, /)\n--\n\nWhether it receives."),
            method(
                c"is_closing",
                is_closing,
                noargs,
                c"is_closing($self, /)\n--\n\nWhether it ends, or has ended.",
            ),
            method(c"get_protocol", get_protocol, noargs, c"get_protocol($self, /)\n--\n\nIts protocol."),
            method(
                c"set_protocol",
                set_protocol,
                ffi::METH_O,
                c"set_protocol($self, protocol, /)\n--\n\nGives it another protocol.",
            ),
            method(
                c"get_write_buffer_size",
                buffer_size,
                noargs,
                c"get_write_buffer_size($self, /)\n--\n\nBytes that have not left.",
            ),
            method(
                c"get_write_buffer_limits",
                limits,
                noargs,
                c"get_write_buffer_limits($self, /)\n--\n\nThe low mark and the high one, in bytes.",
            ),
            method(c"_force_close", force_close, ffi::METH_O, c"_force_close(exception): ends it at once."),
            method(c"_start_reading", start_reading, noargs, c"_start_reading(): waits for the socket."),
            method(
                c"_detach",
                detach,
                noargs,
                c"_detach() -> its server; drops every reference of a closed transport.",
            ),
            heap::fast_method(c"_attach", attach, c"_attach(loop, socket, protocol, server)"),
            heap::fast_method(c"_set_limits", set_limits, c"_set_limits(high, low), in bytes"),
        ],
        getters: vec![
            getter(c"_loop", get_loop, c"Its loop; None after its end."),
            getter(
                c"_protocol_paused",
                get_paused,
                c"Whether the protocol's `pause_writing` was called last.",
            ),
            getter(c"_sock", get_socket, c"Its socket; None after its end."),
            getter(c"_sock_fd", get_fd, c"The number of its socket."),
            getter(c"_protocol", get_protocol_field, c"Its protocol; None after its end."),
            getter(c"_server", get_server, c"The server that accepted it, or None."),
            ffi::PyGetSetDef {
                set: Some(set_emptied),
                ..getter(c"_empty_waiter", get_emptied, c"What waits until all is sent, or None.")
            },
        ],
        slots: &[
            (ffi::Py_tp_new, new as *mut c_void),
            (ffi::Py_tp_dealloc, dealloc as *mut c_void),
            (ffi::Py_tp_traverse, traverse as *mut c_void),
            (ffi::Py_tp_clear, clear as *mut c_void),
        ],
    };
    let size = c_int::try_from(size_of::<Layout>()).unwrap_or(0);
    state.stream_type = heap::make_sized_type(module, kind, size, Some(&base))?.into_ptr();
    Ok(())
}
