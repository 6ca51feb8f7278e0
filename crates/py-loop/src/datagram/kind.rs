//! The type of datagram endpoints, and the methods of their own.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_os::net::Family;

use super::super::core::{none, raise_type};
use super::super::descriptors::Waiter;
use super::super::loop_module::LoopModule;
use super::super::outgoing::Data;
use super::super::transport::Transport;
use super::super::transport::kind::{self, common_methods, reading_methods, writing_methods};
use super::names::Names;
use super::queue::{Incoming, Queue};
use super::{Datagram, bit, datagram};
use ropewalk_capi::entry;
use ropewalk_capi::guarded::Guarded;
use ropewalk_capi::heap::{self, Field, method};
use ropewalk_capi::object::{Object, Raised};

#[entry]
unsafe extern "C" fn new(
    kind: *mut ffi::PyTypeObject,
    _: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let content = Datagram {
        base: Transport::new::<Datagram>(Waiter::Stream),
        received: Field::empty(),
        failed: Field::empty(),
        remote: Field::empty(),
        family: Cell::new(None),
        incoming: Guarded::new(Incoming::default()),
        outgoing: Guarded::new(Queue::default()),
        names: Guarded::new(Names::default()),
    };
    // SAFETY: our type or a subtype.
    unsafe { kind::allocate(kind, content) }
}

/// `_set_peer(address, connected, family)`: what it is for. A family that is not known, or `None`, leaves the work to
/// the socket object.
#[entry]
unsafe extern "C" fn set_peer(
    object: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport, and what the interpreter passes.
    unsafe {
        if count != 3 {
            raise_type("_set_peer() takes an address, whether there is a peer, and a family");
            return null_mut();
        }
        let this = datagram(object);
        let (address, connected, family) = (*arguments, *arguments.add(1), *arguments.add(2));
        if address != ffi::Py_None()
            && let Ok(address) = Object::share(address)
        {
            this.remote.set(address);
        }
        if connected == ffi::Py_True() {
            this.set(bit::CONNECTED);
        }
        if family != ffi::Py_None() {
            let number = ffi::PyLong_AsLong(family);
            if !ffi::PyErr_Occurred().is_null() {
                return null_mut();
            }
            this.family.set(i32::try_from(number).ok().and_then(Family::of));
        }
        if this.family.get().is_none() {
            this.set(bit::BY_OBJECT);
        }
        none()
    }
}

/// `sendto(data, addr=None)`.
#[entry]
unsafe extern "C" fn sendto(
    object: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport, and what the interpreter passes.
    unsafe {
        let this = datagram(object);
        let Ok((data, to)) = parts(arguments, count, names) else { return null_mut() };
        let sent = Data::of(data).and_then(|data| {
            this.check_thread()?;
            this.send_to(object, data, to)
        });
        if sent.is_ok() { none() } else { null_mut() }
    }
}

/// The data and the address, or `None`, of a call.
unsafe fn parts(
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> Result<(*mut ffi::PyObject, *mut ffi::PyObject), Raised> {
    // SAFETY: what the interpreter passes: `count` arguments, then those of the names.
    unsafe {
        let mut found = [null_mut(); 2];
        if count > 2 {
            return Err(raise_type("sendto() takes data and an address"));
        }
        for at in 0..count {
            found[at.unsigned_abs()] = *arguments.offset(at);
        }
        let named = if names.is_null() { 0 } else { ffi::PyTuple_GET_SIZE(names) };
        for at in 0..named {
            let name = ffi::PyTuple_GET_ITEM(names, at);
            let is = |text: &std::ffi::CStr| ffi::PyUnicode_CompareWithASCIIString(name, text.as_ptr()) == 0;
            let place = match (is(c"data"), is(c"addr")) {
                (true, _) => 0,
                (_, true) => 1,
                _ => return Err(raise_type("sendto() got an unexpected keyword argument")),
            };
            if !found[place].is_null() {
                return Err(raise_type("sendto() got multiple values for an argument"));
            }
            found[place] = *arguments.offset(count + at);
        }
        if found[0].is_null() {
            return Err(raise_type("sendto() missing 1 required positional argument: 'data'"));
        }
        Ok((found[0], if found[1].is_null() { ffi::Py_None() } else { found[1] }))
    }
}

/// `_retry()`: tries again to send what waits.
#[entry]
unsafe extern "C" fn retry(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    if unsafe { datagram(object) }.retry(object).is_ok() { none() } else { null_mut() }
}

/// Makes the type.
pub(crate) fn add(module: &Object, state: &mut LoopModule) -> Result<(), Raised> {
    let mut methods = vec![
        heap::keyword_method(
            c"sendto",
            sendto,
            c"sendto($self, /, data, addr=None)\n--\n\nSends a datagram.",
        ),
        heap::fast_method(c"_set_peer", set_peer, c"_set_peer(address, connected, family)"),
        method(c"_retry", retry, ffi::METH_NOARGS, c"_retry(): tries again to send what waits."),
    ];
    methods.extend(common_methods());
    methods.extend(reading_methods());
    methods.extend(writing_methods());
    let made = heap::Type {
        name: c"ropewalk._loop.Datagram",
        doc: c"The transport of datagrams, as far as it is called for each message.",
        flags: ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_BASETYPE,
        methods,
        getters: Vec::new(),
        slots: &[(ffi::Py_tp_new, new as *mut c_void)],
    };
    state.datagram_type = kind::make::<Datagram>(module, c"_FlowControlMixin", made)?.into_ptr();
    Ok(())
}
