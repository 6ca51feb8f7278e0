//! `Switchboard` and `Port`: messages between the process that has a bus and its workers.

use std::collections::VecDeque;
use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pyo3_ffi as ffi;
use ropewalk_shm::channel::switchboard::{self, HubEvent, Received};
use ropewalk_shm::memory::Segment;

use ropewalk_capi::entry;
use ropewalk_capi::errors::{fail, raise};
use ropewalk_capi::heap;
use ropewalk_capi::object::{Object, Raised, detached};
use ropewalk_sync::Mutex;

/// The hub, and whether `stop` was called: then no thread waits for room any more.
struct Hub {
    board: switchboard::Switchboard,
    stopping: AtomicBool,
}

/// A port until it is left. Whoever uses it meanwhile has a reference; dropping the last one notifies the hub.
struct Port {
    port: Mutex<Option<Arc<switchboard::Port>>>,
    stopping: AtomicBool,
}

impl Port {
    /// The port, unless it was left. Nothing else happens under the lock.
    fn get(&self) -> Option<Arc<switchboard::Port>> {
        self.port.lock().clone()
    }
}

fn finish(result: Result<Object, Raised>) -> *mut ffi::PyObject {
    result.map_or(ptr::null_mut(), Object::into_ptr)
}

/// None, or the exception.
fn done(result: ropewalk_base::Result<()>) -> *mut ffi::PyObject {
    finish(result.map(|()| Object::none()).map_err(|error| raise(&error)))
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

/// Makes a segment, and the hub over it.
pub(super) fn make_hub(
    kind: *mut ffi::PyTypeObject,
    slots: usize,
    ring: usize,
) -> Result<(Arc<Segment>, Object), Raised> {
    let made = detached(|| switchboard::Switchboard::make(slots, ring));
    let (segment, board) = made.map_err(|error| raise(&error))?;
    // SAFETY: the type of hubs.
    let hub = unsafe { heap::make(kind, Hub { board, stopping: AtomicBool::new(false) })? };
    Ok((segment, hub))
}

/// Takes a port of the switchboard in a buffer's segment, and waits at most this many seconds for one.
pub(super) fn make_port(
    kind: *mut ffi::PyTypeObject,
    segment: Arc<Segment>,
    patience: f64,
) -> Result<Object, Raised> {
    let port = detached(|| switchboard::Port::take(segment, seconds(patience)));
    let port = port.map_err(|error| raise(&error))?;
    let port = Mutex::new(Some(Arc::new(port)));
    // SAFETY: the type of ports.
    unsafe { heap::make(kind, Port { port, stopping: AtomicBool::new(false) }) }
}

/// `hear(timeout)`: returns the hub's events, as pairs of a port and a process id that joined, a message's bytes, or
/// `None` for a port whose memory is corrupt.
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
        hub.board.receive(&mut heard)?;
        if heard.is_empty() && timeout > 0.0 {
            hub.board.wait(seconds(timeout))?;
            hub.board.receive(&mut heard)?;
        }
        Ok(heard)
    });
    let list = heard.map_err(|error| raise(&error)).and_then(|heard| {
        // SAFETY: a fresh list, and pairs whose parts are of the sizes that the formats say.
        unsafe {
            let list = Object::own(ffi::PyList_New(0))?;
            for heard in heard {
                let pair = match heard {
                    HubEvent::Joined { port, pid } => ffi::Py_BuildValue(c"(nI)".as_ptr(), port, pid),
                    HubEvent::Corrupt { port } => ffi::Py_BuildValue(c"(nO)".as_ptr(), port, ffi::Py_None()),
                    HubEvent::Message { port, message } => {
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

/// Parses the number of a port, and a message.
unsafe fn addressed(arguments: *mut ffi::PyObject, format: &CStr) -> Result<(usize, Object), Raised> {
    let mut port: ffi::Py_ssize_t = 0;
    let mut message: *mut ffi::PyObject = ptr::null_mut();
    // SAFETY: the caller's tuple, and places of the format's types.
    unsafe {
        if ffi::PyArg_ParseTuple(arguments, format.as_ptr(), &raw mut port, &raw mut message) == 0 {
            return Err(Raised);
        }
        Ok((usize::try_from(port).unwrap_or(usize::MAX), Object::share(message)?))
    }
}

/// `send(port, message)`: waits for room; false if the port's process is gone.
#[entry]
unsafe extern "C" fn hub_send(
    object: *mut ffi::PyObject,
    arguments: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a hub, and a tuple of arguments.
    let (hub, given) = unsafe { (heap::content::<Hub>(object), addressed(arguments, c"nS:send")) };
    finish(given.and_then(|(port, message)| {
        let bytes = bytes(&message)?;
        let sent = detached(|| hub.board.send(port, bytes, || !hub.stopping.load(Ordering::Relaxed)));
        truth(sent.map_err(|error| raise(&error))?)
    }))
}

/// `offer(port, message)`: whether there was room for it.
#[entry]
unsafe extern "C" fn hub_offer(
    object: *mut ffi::PyObject,
    arguments: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a hub, and a tuple of arguments.
    let (hub, given) = unsafe { (heap::content::<Hub>(object), addressed(arguments, c"nS:offer")) };
    finish(given.and_then(|(port, message)| {
        let bytes = bytes(&message)?;
        let sent = detached(|| hub.board.offer(port, bytes));
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
    done(told)
}

/// `gone()`: returns the ports whose processes have ended or left, and from which everything was received.
#[entry]
unsafe extern "C" fn gone(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a hub.
    let hub = unsafe { heap::content::<Hub>(object) };
    let gone = detached(|| hub.board.gone());
    finish(gone.map_err(|error| raise(&error)).and_then(|gone| {
        // SAFETY: a fresh list, and numbers.
        unsafe {
            let list = Object::own(ffi::PyList_New(0))?;
            for port in gone {
                let port = Object::own(ffi::PyLong_FromSize_t(port))?;
                if ffi::PyList_Append(list.as_ptr(), port.as_ptr()) != 0 {
                    return Err(Raised);
                }
            }
            Ok(list)
        }
    }))
}

/// `pause(port, paused)`
#[entry]
unsafe extern "C" fn pause(object: *mut ffi::PyObject, arguments: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let (mut port, mut paused): (ffi::Py_ssize_t, c_int) = (0, 0);
    // SAFETY: a hub, and places of the format's types.
    let hub = unsafe {
        if ffi::PyArg_ParseTuple(arguments, c"np:pause".as_ptr(), &raw mut port, &raw mut paused) == 0 {
            return ptr::null_mut();
        }
        heap::content::<Hub>(object)
    };
    hub.board.pause(usize::try_from(port).unwrap_or(usize::MAX), paused != 0);
    done(hub.board.wake())
}

/// `is_held(others)`: returns whether anything but the hub and `others` more holds the memory.
#[entry]
unsafe extern "C" fn is_held(object: *mut ffi::PyObject, others: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a hub, and a live argument.
    let (hub, others) = unsafe { (heap::content::<Hub>(object), ffi::PyLong_AsSize_t(others)) };
    // SAFETY: the thread is attached.
    if !unsafe { ffi::PyErr_Occurred() }.is_null() {
        return ptr::null_mut();
    }
    finish(truth(hub.board.is_held(others)))
}

/// `close()`: the ports receive what there is, and end.
#[entry]
unsafe extern "C" fn close_hub(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a hub.
    let hub = unsafe { heap::content::<Hub>(object) };
    let closed = detached(|| hub.board.close());
    done(closed)
}

/// `wake()`: makes `hear` return.
#[entry]
unsafe extern "C" fn wake_hub(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a hub.
    let hub = unsafe { heap::content::<Hub>(object) };
    done(hub.board.wake())
}

/// `clear(port)`: frees the port of a process that is gone.
#[entry]
unsafe extern "C" fn clear_port(object: *mut ffi::PyObject, port: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a hub, and a live argument.
    let (hub, port) = unsafe { (heap::content::<Hub>(object), ffi::PyLong_AsSize_t(port)) };
    // SAFETY: the thread is attached.
    if !unsafe { ffi::PyErr_Occurred() }.is_null() {
        return ptr::null_mut();
    }
    let cleared = detached(|| hub.board.clear(port));
    done(cleared)
}

#[entry]
unsafe extern "C" fn stop_hub(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a hub.
    let hub = unsafe { heap::content::<Hub>(object) };
    hub.stopping.store(true, Ordering::Relaxed);
    done(hub.board.wake())
}

/// `send(message)`: waits for room; false if `stop` was called meanwhile, or the hub has closed.
#[entry]
unsafe extern "C" fn port_send(
    object: *mut ffi::PyObject,
    message: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a port, and a live argument.
    let (port, message) = unsafe { (heap::content::<Port>(object), Object::share(message)) };
    finish(message.and_then(|message| {
        let bytes = bytes(&message)?;
        let sent = detached(|| {
            let Some(end) = port.get() else { return Ok(false) };
            end.send(bytes, || !port.stopping.load(Ordering::Relaxed))
        });
        truth(sent.map_err(|error| raise(&error))?)
    }))
}

/// `offer(message)`: whether there was room for it.
#[entry]
unsafe extern "C" fn port_offer(
    object: *mut ffi::PyObject,
    message: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a port, and a live argument.
    let (port, message) = unsafe { (heap::content::<Port>(object), Object::share(message)) };
    finish(message.and_then(|message| {
        let bytes = bytes(&message)?;
        let sent = detached(|| port.get().map_or(Ok(false), |end| end.offer(bytes)));
        truth(sent.map_err(|error| raise(&error))?)
    }))
}

/// `receive(timeout)`: bytes; `None` if none came in time; no bytes at all if none will come any more.
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
    let received = detached(|| match port.get() {
        Some(end) if !port.stopping.load(Ordering::Relaxed) => end.receive(seconds(timeout)),
        _ => Ok(Received::Ended),
    });
    finish(match received {
        Ok(Received::Message(message)) => Object::bytes(&message),
        Ok(Received::Nothing) => Ok(Object::none()),
        Ok(Received::Ended) => Object::bytes(&[]),
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
    let waited =
        detached(|| port.get().map_or(Ok(false), |end| end.wait_acknowledged(number, seconds(timeout))));
    finish(waited.map_err(|error| raise(&error)).and_then(truth))
}

/// `wake()`: the thread that receives looks around.
#[entry]
unsafe extern "C" fn wake_port(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a port.
    if let Some(end) = unsafe { heap::content::<Port>(object) }.get() {
        end.wake();
    }
    Object::none().into_ptr()
}

/// `leave()`: gives the port back, once the threads that use it have seen that they are to stop.
#[entry]
unsafe extern "C" fn leave(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a port.
    let port = unsafe { heap::content::<Port>(object) };
    port.stopping.store(true, Ordering::Relaxed);
    detached(|| {
        let end = port.port.lock().take();
        if let Some(end) = end {
            end.wake();
        }
    });
    Object::none().into_ptr()
}

#[entry]
unsafe extern "C" fn traverse(object: *mut ffi::PyObject, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: an object of a heap type, which refers to nothing else.
    unsafe { heap::visit_type(object, visit, arg) }
}

/// Makes the types of hubs and ports.
pub(super) fn make_types(module: &Object) -> Result<(Object, Object), Raised> {
    let flags = ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION;
    let hub = heap::make_type::<Hub>(
        module,
        heap::Type {
            name: c"ropewalk._worker.Switchboard",
            doc: c"The hub of messages between this process and those that have its segment.",
            flags,
            methods: vec![
                heap::method(c"hear", hear, ffi::METH_O, c"hear(timeout) -> [(port, pid | bytes | None)]"),
                heap::method(
                    c"offer",
                    hub_offer,
                    ffi::METH_VARARGS,
                    c"offer(port, message) -> whether it went",
                ),
                heap::method(c"send", hub_send, ffi::METH_VARARGS, c"send(port, message) -> whether it went"),
                heap::method(c"acknowledge", acknowledge, ffi::METH_VARARGS, c"acknowledge(port, number)"),
                heap::method(c"pause", pause, ffi::METH_VARARGS, c"pause(port, paused)"),
                heap::method(c"gone", gone, ffi::METH_NOARGS, c"gone() -> ports to be cleared"),
                heap::method(c"clear", clear_port, ffi::METH_O, c"clear(port): its process is gone"),
                heap::method(c"is_held", is_held, ffi::METH_O, c"is_held(others) -> whether more hold it"),
                heap::method(c"wake", wake_hub, ffi::METH_NOARGS, c"`hear` returns"),
                heap::method(c"close", close_hub, ffi::METH_NOARGS, c"nothing more is sent"),
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
            name: c"ropewalk._worker.Port",
            doc: c"A process's end of another's switchboard.",
            flags,
            methods: vec![
                heap::method(c"offer", port_offer, ffi::METH_O, c"offer(message) -> whether it went"),
                heap::method(c"send", port_send, ffi::METH_O, c"send(message) -> whether it went"),
                heap::method(
                    c"receive",
                    port_receive,
                    ffi::METH_O,
                    c"receive(timeout) -> bytes, none of them at the end, or None",
                ),
                heap::method(
                    c"wait_acknowledged",
                    wait_acknowledged,
                    ffi::METH_VARARGS,
                    c"wait_acknowledged(number, timeout) -> whether it was",
                ),
                heap::method(c"wake", wake_port, ffi::METH_NOARGS, c"`receive` returns"),
                heap::method(c"leave", leave, ffi::METH_NOARGS, c"gives the port back"),
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
