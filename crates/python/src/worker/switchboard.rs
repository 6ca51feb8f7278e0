//! `Switchboard` and `Port`: messages between the process that has a bus and its workers.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pyo3_ffi as ffi;
use windlass_os::{pidfd, process};
use windlass_shm::segment::Segment;
use windlass_shm::switchboard::{self, Heard};

use crate::entry::entry;
use crate::heap;
use crate::object::{Object, Raised, detached, fail, raise};

/// The hub, and whether it was told to stop: then nobody waits for room any more.
struct Hub {
    board: switchboard::Switchboard,
    stopping: AtomicBool,
}

struct Port {
    port: switchboard::Port,
    stopping: AtomicBool,
}

fn finish(result: Result<Object, Raised>) -> *mut ffi::PyObject {
    result.map_or(ptr::null_mut(), Object::into_ptr)
}

fn truth(value: bool) -> Result<Object, Raised> {
    // SAFETY: the thread is attached.
    unsafe { Object::own(ffi::PyBool_FromLong(value.into())) }
}

/// The bytes of an argument, which live as long as it does.
fn bytes(object: &Object) -> Result<&[u8], Raised> {
    object.as_bytes().ok_or_else(|| fail(c"a message is a bytes object"))
}

/// Seconds, from a number that is not negative.
fn seconds(number: f64) -> Duration {
    Duration::try_from_secs_f64(number.max(0.0)).unwrap_or(Duration::MAX)
}

/// Asks whether a process is there, while somebody waits for it.
fn is_alive(pid: u32) -> impl FnMut() -> bool {
    let mut handle: Option<Option<OwnedFd>> = None;
    move || {
        let open = || i32::try_from(pid).ok().and_then(|pid| pidfd::open(pid).ok());
        let handle = handle.get_or_insert_with(open);
        // A pidfd is readable once its process has ended.
        handle.as_ref().is_some_and(|handle| !process::wait_readable(handle.as_fd(), Duration::ZERO))
    }
}

/// Makes the hub over a buffer's segment.
pub(super) fn make_hub(
    kind: *mut ffi::PyTypeObject,
    segment: Arc<Segment>,
    slots: usize,
    ring: usize,
) -> Result<Object, Raised> {
    let board = switchboard::Switchboard::create(segment, slots, ring).map_err(|error| raise(&error))?;
    // SAFETY: the type of hubs.
    unsafe { heap::make(kind, Hub { board, stopping: AtomicBool::new(false) }) }
}

/// Takes a port of the switchboard in a buffer's segment.
pub(super) fn make_port(kind: *mut ffi::PyTypeObject, segment: Arc<Segment>) -> Result<Object, Raised> {
    let port = switchboard::Port::take(segment).map_err(|error| raise(&error))?;
    // SAFETY: the type of ports.
    unsafe { heap::make(kind, Port { port, stopping: AtomicBool::new(false) }) }
}

/// `hear(timeout)`: what was said, as a list of pairs of a port and what: a process id that joined, bytes, or `None`
/// for a port whose memory makes no sense.
#[entry]
unsafe extern "C" fn hear(object: *mut ffi::PyObject, timeout: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a hub, and a live argument.
    let (hub, timeout) = unsafe { (heap::content::<Hub>(object), ffi::PyFloat_AsDouble(timeout)) };
    // SAFETY: the thread is attached.
    if !unsafe { ffi::PyErr_Occurred() }.is_null() {
        return ptr::null_mut();
    }
    let heard = detached(|| {
        let mut heard = VecDeque::new();
        hub.board.hear(&mut heard)?;
        if heard.is_empty() && timeout > 0.0 {
            hub.board.wait(seconds(timeout))?;
            hub.board.hear(&mut heard)?;
        }
        Ok(heard)
    });
    let list = heard.map_err(|error| raise(&error)).and_then(|heard| {
        // SAFETY: a fresh list, and pairs whose parts are of the sizes that the formats say.
        unsafe {
            let list = Object::own(ffi::PyList_New(0))?;
            for heard in heard {
                let pair = match heard {
                    Heard::Joined { port, pid } => ffi::Py_BuildValue(c"(nI)".as_ptr(), port, pid),
                    Heard::Corrupt { port } => ffi::Py_BuildValue(c"(nO)".as_ptr(), port, ffi::Py_None()),
                    Heard::Message { port, message } => {
                        let message = Object::bytes(&message)?;
                        ffi::Py_BuildValue(c"(nO)".as_ptr(), port, message.as_ptr())
                    }
                };
                let pair = Object::own(pair)?;
                if ffi::PyList_Append(list.as_ptr(), pair.as_ptr()) != 0 {
                    return Err(Raised);
                }
            }
            Ok(list)
        }
    });
    finish(list)
}

/// `send(port, message)`: false if the port's process is gone.
#[entry]
unsafe extern "C" fn hub_send(
    object: *mut ffi::PyObject,
    arguments: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let mut port: ffi::Py_ssize_t = 0;
    let mut message: *mut ffi::PyObject = ptr::null_mut();
    // SAFETY: a hub, and places of the format's types.
    let message = unsafe {
        if ffi::PyArg_ParseTuple(arguments, c"nS:send".as_ptr(), &raw mut port, &raw mut message) == 0 {
            return ptr::null_mut();
        }
        Object::share(message)
    };
    // SAFETY: a hub.
    let hub = unsafe { heap::content::<Hub>(object) };
    finish(message.and_then(|message| {
        let (port, bytes) = (usize::try_from(port).unwrap_or(usize::MAX), bytes(&message)?);
        let sent = detached(|| {
            let Some(pid) = hub.board.pid(port) else { return Ok(false) };
            let mut is_alive = is_alive(pid);
            hub.board.send(port, bytes, || !hub.stopping.load(Ordering::Relaxed) && is_alive())
        });
        truth(sent.map_err(|error| raise(&error))?)
    }))
}

/// `acknowledge(port, number)`
#[entry]
unsafe extern "C" fn acknowledge(
    object: *mut ffi::PyObject,
    arguments: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let (mut port, mut number): (ffi::Py_ssize_t, std::ffi::c_uint) = (0, 0);
    // SAFETY: a hub, and places of the format's types.
    let hub = unsafe {
        if ffi::PyArg_ParseTuple(arguments, c"nI:acknowledge".as_ptr(), &raw mut port, &raw mut number) == 0 {
            return ptr::null_mut();
        }
        heap::content::<Hub>(object)
    };
    let told = hub.board.acknowledge(usize::try_from(port).unwrap_or(usize::MAX), number);
    finish(told.map(|()| Object::none()).map_err(|error| raise(&error)))
}

/// `is_alive(port)`: whether the process of a port runs.
#[entry]
unsafe extern "C" fn port_alive(object: *mut ffi::PyObject, port: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a hub, and a live argument.
    let (hub, port) = unsafe { (heap::content::<Hub>(object), ffi::PyLong_AsSize_t(port)) };
    finish(truth(hub.board.pid(port).is_some_and(|pid| is_alive(pid)())))
}

/// `clear(port)`: frees the port of a process that is gone.
#[entry]
unsafe extern "C" fn clear_port(object: *mut ffi::PyObject, port: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a hub, and a live argument.
    let (hub, port) = unsafe { (heap::content::<Hub>(object), ffi::PyLong_AsSize_t(port)) };
    let cleared = detached(|| hub.board.clear(port));
    finish(cleared.map(|()| Object::none()).map_err(|error| raise(&error)))
}

#[entry]
unsafe extern "C" fn stop_hub(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a hub.
    let hub = unsafe { heap::content::<Hub>(object) };
    hub.stopping.store(true, Ordering::Relaxed);
    finish(hub.board.wake().map(|()| Object::none()).map_err(|error| raise(&error)))
}

/// `send(message)`: false if it was told to stop meanwhile.
#[entry]
unsafe extern "C" fn port_send(
    object: *mut ffi::PyObject,
    message: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a port, and a live argument.
    let (port, message) = unsafe { (heap::content::<Port>(object), Object::share(message)) };
    finish(message.and_then(|message| {
        let bytes = bytes(&message)?;
        let sent = detached(|| port.port.send(bytes, || !port.stopping.load(Ordering::Relaxed)));
        truth(sent.map_err(|error| raise(&error))?)
    }))
}

/// `receive(timeout)`: bytes, or `None` if none came in time.
#[entry]
unsafe extern "C" fn port_receive(
    object: *mut ffi::PyObject,
    timeout: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a port, and a live argument.
    let (port, timeout) = unsafe { (heap::content::<Port>(object), ffi::PyFloat_AsDouble(timeout)) };
    // SAFETY: the thread is attached.
    if !unsafe { ffi::PyErr_Occurred() }.is_null() {
        return ptr::null_mut();
    }
    finish(match detached(|| port.port.receive(seconds(timeout))) {
        Ok(Some(message)) => Object::bytes(&message),
        Ok(None) => Ok(Object::none()),
        Err(error) => Err(raise(&error)),
    })
}

/// `wait_acknowledged(number, timeout)`
#[entry]
unsafe extern "C" fn wait_acknowledged(
    object: *mut ffi::PyObject,
    arguments: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let (mut number, mut timeout): (std::ffi::c_uint, f64) = (0, 0.0);
    // SAFETY: a port, and places of the format's types.
    let port = unsafe {
        let format = c"Id:wait_acknowledged".as_ptr();
        if ffi::PyArg_ParseTuple(arguments, format, &raw mut number, &raw mut timeout) == 0 {
            return ptr::null_mut();
        }
        heap::content::<Port>(object)
    };
    let waited = detached(|| port.port.wait_acknowledged(number, seconds(timeout)));
    finish(waited.map_err(|error| raise(&error)).and_then(truth))
}

#[entry]
unsafe extern "C" fn stop_port(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a port.
    unsafe { heap::content::<Port>(object) }.stopping.store(true, Ordering::Relaxed);
    Object::none().into_ptr()
}

#[entry]
unsafe extern "C" fn traverse(object: *mut ffi::PyObject, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: an object of a heap type, which refers to nothing else.
    unsafe { heap::visit_type(object, visit, arg) }
}

/// Makes the types of hubs and ports.
pub(super) fn make_types(module: *mut ffi::PyObject) -> Result<(Object, Object), Raised> {
    let flags = ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION;
    let hub = heap::make_type::<Hub>(
        module,
        heap::Type {
            name: c"windlass._worker.Switchboard",
            doc: c"The hub of messages between this process and those that have its segment.",
            flags,
            methods: vec![
                heap::method(c"hear", hear, ffi::METH_O, c"hear(timeout) -> [(port, pid | bytes | None)]"),
                heap::method(c"send", hub_send, ffi::METH_VARARGS, c"send(port, message) -> whether it went"),
                heap::method(c"acknowledge", acknowledge, ffi::METH_VARARGS, c"acknowledge(port, number)"),
                heap::method(c"is_alive", port_alive, ffi::METH_O, c"is_alive(port)"),
                heap::method(c"clear", clear_port, ffi::METH_O, c"clear(port): its process is gone"),
                heap::method(c"stop", stop_hub, ffi::METH_NOARGS, c"nobody waits for room any more"),
            ],
            getters: Vec::new(),
            slots: &[
                (ffi::Py_tp_traverse, traverse as *mut _),
                (ffi::Py_tp_dealloc, heap::dealloc::<Hub> as *mut _),
            ],
        },
    )?;
    let port = heap::make_type::<Port>(
        module,
        heap::Type {
            name: c"windlass._worker.Port",
            doc: c"A process's end of another's switchboard.",
            flags,
            methods: vec![
                heap::method(c"send", port_send, ffi::METH_O, c"send(message) -> whether it went"),
                heap::method(c"receive", port_receive, ffi::METH_O, c"receive(timeout) -> bytes or None"),
                heap::method(
                    c"wait_acknowledged",
                    wait_acknowledged,
                    ffi::METH_VARARGS,
                    c"wait_acknowledged(number, timeout) -> whether it was",
                ),
                heap::method(c"stop", stop_port, ffi::METH_NOARGS, c"nobody waits for room any more"),
            ],
            getters: Vec::new(),
            slots: &[
                (ffi::Py_tp_traverse, traverse as *mut _),
                (ffi::Py_tp_dealloc, heap::dealloc::<Port> as *mut _),
            ],
        },
    )?;
    Ok((hub, port))
}
