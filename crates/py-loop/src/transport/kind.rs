//! The types of transports: their memory, and the tables of the methods that all have.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;

use pyo3_ffi as ffi;

use super::ending::{attach, begin, call_connection_lost, finalize, leave};
use super::methods::{
    abort, buffer_size, close, force_close, get_fd, get_loop, get_paused, get_protocol, get_protocol_field,
    get_socket, is_closing, is_reading, limits, pause_reading, resume_reading, set_limits, set_protocol,
    set_socket, start_reading,
};
use super::{Behaviour, Layout, Transport, behaviour, transport};
use ropewalk_capi::entry;
use ropewalk_capi::heap::{self, Field, getter, method};
use ropewalk_capi::object::{Object, Raised};

/// Memory for a transport, with this content.
///
/// # Safety
///
/// `kind` is a type made by [`make`] for this content, or a subtype of one.
pub(crate) unsafe fn allocate<T: Behaviour>(kind: *mut ffi::PyTypeObject, content: T) -> *mut ffi::PyObject {
    // SAFETY: memory of at least the type's size, zeroed, and written before other code sees it.
    unsafe {
        let Some(alloc) = (*kind).tp_alloc else { return null_mut() };
        let object = alloc(kind, 0);
        if !object.is_null() {
            std::ptr::write(&raw mut (*object.cast::<Layout<T>>()).content, content);
        }
        object
    }
}

#[entry]
unsafe extern "C" fn dealloc<T: Behaviour>(object: *mut ffi::PyObject) {
    // SAFETY: as of `heap::dealloc`; `_extra` is asyncio's slot, which no other code drops.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        ffi::PyObject_GC_UnTrack(object.cast());
        let layout = object.cast::<Layout<T>>();
        drop(std::ptr::read(&raw const (*layout).content));
        ffi::Py_XDECREF(std::mem::replace(&mut (*layout).extra, null_mut()));
        if let Some(free) = (*kind).tp_free {
            free(object.cast());
        }
        ffi::Py_DECREF(kind.cast());
    }
}

impl Transport {
    fn fields(&self) -> [&Field; 5] {
        [&self.owner, &self.socket, &self.protocol, &self.context, &self.write_context]
    }
}

#[entry]
unsafe extern "C" fn traverse(object: *mut ffi::PyObject, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a live transport, and what the collector gave.
    unsafe {
        let extra = (*object.cast::<Layout<Transport>>()).extra;
        if !extra.is_null() {
            let answer = visit(extra, arg);
            if answer != 0 {
                return answer;
            }
        }
        let answer = heap::visit_fields(&transport(object).fields(), visit, arg);
        if answer != 0 {
            return answer;
        }
        let answer = heap::visit_fields(&behaviour(object).own_fields(), visit, arg);
        if answer != 0 {
            return answer;
        }
        heap::visit_type(object, visit, arg)
    }
}

#[entry]
unsafe extern "C" fn clear(object: *mut ffi::PyObject) -> c_int {
    // SAFETY: a live transport that is garbage.
    unsafe {
        let own = behaviour(object).own_fields();
        for field in transport(object).fields().into_iter().chain(own) {
            drop(field.take());
        }
        let layout = object.cast::<Layout<Transport>>();
        ffi::Py_XDECREF(std::mem::replace(&mut (*layout).extra, null_mut()));
    }
    0
}

/// The methods of everything that ends and has a protocol.
pub(crate) fn common_methods() -> Vec<ffi::PyMethodDef> {
    let noargs = ffi::METH_NOARGS;
    vec![
        method(c"close", close, noargs, c"close($self, /)\n--\n\nEnds it after what was written."),
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
        method(c"_force_close", force_close, ffi::METH_O, c"_force_close(exception): ends it at once."),
        method(c"_start_reading", start_reading, noargs, c"_start_reading(): waits for its file."),
        method(c"_begin", begin, ffi::METH_O, c"_begin(waiter): calls `connection_made`, and reads then."),
        method(
            c"_call_connection_lost",
            call_connection_lost,
            ffi::METH_O,
            c"_call_connection_lost(error): its end.",
        ),
        method(c"_leave", leave, noargs, c"_leave(): drops every reference, and closes the file."),
        heap::fast_method(c"_attach", attach, c"_attach(loop, file, protocol)"),
    ]
}

/// The methods of what receives.
pub(crate) fn reading_methods() -> Vec<ffi::PyMethodDef> {
    let noargs = ffi::METH_NOARGS;
    vec![
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
    ]
}

/// The methods of what sends.
pub(crate) fn writing_methods() -> Vec<ffi::PyMethodDef> {
    let noargs = ffi::METH_NOARGS;
    vec![
        method(c"abort", abort, noargs, c"abort($self, /)\n--\n\nEnds it at once."),
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
        heap::fast_method(c"_set_limits", set_limits, c"_set_limits(high, low), in bytes"),
    ]
}

fn common_getters() -> Vec<ffi::PyGetSetDef> {
    vec![
        getter(c"_loop", get_loop, c"Its loop; None after its end."),
        getter(c"_protocol_paused", get_paused, c"Whether the protocol's `pause_writing` was called last."),
        ffi::PyGetSetDef {
            set: Some(set_socket),
            ..getter(c"_sock", get_socket, c"Its socket or pipe; None after its end.")
        },
        getter(c"_sock_fd", get_fd, c"The number of its descriptor."),
        getter(c"_protocol", get_protocol_field, c"Its protocol; None after its end."),
    ]
}

/// Makes the type of transports whose content is a `T`, on a class of `asyncio.transports`. `kind` has the slot
/// `tp_new`; the other slots and the properties that all transports have are added.
pub(crate) fn make<T: Behaviour>(
    module: &Object,
    base: &CStr,
    mut kind: heap::Type<'_>,
) -> Result<Object, Raised> {
    // SAFETY: a C string.
    let transports = unsafe { Object::own(ffi::PyImport_ImportModule(c"asyncio.transports".as_ptr()))? };
    let base = transports.attribute(base)?;
    let size = base.attribute(c"__basicsize__")?;
    // SAFETY: a live int.
    let size = usize::try_from(unsafe { ffi::PyLong_AsSsize_t(size.as_ptr()) }).unwrap_or(0);
    let known = std::mem::offset_of!(Layout<T>, unused);
    // Classes without flow control have no more than `_extra`.
    if size != known && size != known + 4 * size_of::<*mut c_void>() {
        // SAFETY: a live class and a C string.
        unsafe {
            ffi::PyErr_SetString(
                ffi::PyExc_ImportError,
                c"asyncio's transports have a layout that ropewalk does not know".as_ptr(),
            );
        }
        return Err(Raised);
    }
    kind.getters.extend(common_getters());
    let mut slots = vec![
        (ffi::Py_tp_dealloc, dealloc::<T> as *mut c_void),
        (ffi::Py_tp_traverse, traverse as *mut c_void),
        (ffi::Py_tp_clear, clear as *mut c_void),
        (ffi::Py_tp_finalize, finalize as *mut c_void),
    ];
    slots.extend(kind.slots);
    let size = c_int::try_from(size_of::<Layout<T>>()).unwrap_or(0);
    heap::make_sized_type(module, heap::Type { slots: &slots, ..kind }, size, Some(&base))
}
