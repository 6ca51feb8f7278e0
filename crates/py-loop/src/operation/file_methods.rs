//! `sock_sendfile` and `sendfile`. asyncio's own serve debug mode, other transports than ours, and what its checks have
//! to say of an argument.

use std::ptr::null_mut;

use pyo3_ffi as ffi;

use super::super::core::{LoopCore, has_our_method};
use super::super::loop_module::LoopModule;
use super::super::sockets;
use super::super::stream::stream;
use super::attempt::Goal;
use super::files::Sending;
use super::make;
use super::methods::pass_on;
use ropewalk_capi::entry;
use ropewalk_capi::heap::keyword_method;
use ropewalk_capi::object::{Object, Raised};

/// The arguments of both methods.
struct Asked {
    /// The socket or the transport.
    to: *mut ffi::PyObject,
    file: *mut ffi::PyObject,
    offset: u64,
    count: Option<u64>,
    falls_back: bool,
}

/// A whole number that is not negative. A subclass of `int` is none.
unsafe fn number(object: *mut ffi::PyObject) -> Option<u64> {
    // SAFETY: the caller's: a live object.
    unsafe {
        if ffi::PyLong_CheckExact(object) == 0 {
            return None;
        }
        let number = ffi::PyLong_AsLongLong(object);
        if number == -1 && !ffi::PyErr_Occurred().is_null() {
            ffi::PyErr_Clear();
        }
        u64::try_from(number).ok()
    }
}

impl Asked {
    /// Reads the arguments; nothing if asyncio's method is to look at them.
    unsafe fn read(
        arguments: *const *mut ffi::PyObject,
        count: ffi::Py_ssize_t,
        names: *mut ffi::PyObject,
    ) -> Result<Option<Self>, Raised> {
        // SAFETY: what the interpreter passes: `count` arguments, then those of the names.
        unsafe {
            if !(2..=4).contains(&count) {
                return Ok(None);
            }
            let given = |at: ffi::Py_ssize_t| if at < count { *arguments.offset(at) } else { null_mut() };
            let [mut offset, mut most, mut fallback] = [given(2), given(3), null_mut()];
            let named = if names.is_null() { 0 } else { ffi::PyTuple_GET_SIZE(names) };
            for at in 0..named {
                let name = ffi::PyTuple_GET_ITEM(names, at);
                let is =
                    |known: &std::ffi::CStr| ffi::PyUnicode_CompareWithASCIIString(name, known.as_ptr()) == 0;
                let place = match () {
                    () if is(c"fallback") => &mut fallback,
                    () if is(c"count") => &mut most,
                    () if is(c"offset") => &mut offset,
                    () => return Ok(None),
                };
                if !place.is_null() {
                    return Ok(None);
                }
                *place = *arguments.offset(count + at);
            }
            let offset = if offset.is_null() { Some(0) } else { number(offset) };
            let most = match most {
                most if most.is_null() || most == ffi::Py_None() => Some(None),
                most => number(most).filter(|most| *most > 0).map(Some),
            };
            let (Some(offset), Some(count)) = (offset, most) else { return Ok(None) };
            let falls_back = if fallback.is_null() { 1 } else { ffi::PyObject_IsTrue(fallback) };
            if falls_back < 0 {
                return Err(Raised);
            }
            let (to, file) = (*arguments, *arguments.add(1));
            Ok(Some(Self { to, file, offset, count, falls_back: falls_back != 0 }))
        }
    }
}

/// Whether the loop's method of this name is asyncio's. A program may have put one of its own there.
unsafe fn is_theirs(
    state: &LoopModule,
    owner: *mut ffi::PyObject,
    name: *mut ffi::PyObject,
    theirs: *mut ffi::PyObject,
) -> Result<bool, Raised> {
    // SAFETY: the caller's: a live loop and live objects.
    unsafe {
        let method = Object::own(ffi::PyObject_GetAttr(owner, name))?;
        match Object::own(ffi::PyObject_GetAttr(method.as_ptr(), state.names.function)) {
            Ok(function) => Ok(function.as_ptr() == theirs),
            Err(Raised) => {
                ffi::PyErr_Clear();
                Ok(false)
            }
        }
    }
}

unsafe fn by_socket(
    state: &LoopModule,
    owner: *mut ffi::PyObject,
    asked: &Asked,
) -> Result<Option<Object>, Raised> {
    // SAFETY: the caller's.
    unsafe {
        if ffi::Py_TYPE(asked.to).cast() != state.socket_class
            || !sockets::kind(state, asked.to)?.is_stream()
            || !sockets::is_non_blocking(state, asked.to)?
            || !is_theirs(state, owner, state.names.sock_sendfile_native, state.sock_sendfile_native)?
        {
            return Ok(None);
        }
        let sending = Sending::new(c"Loop.sock_sendfile", asked.offset, asked.count, asked.falls_back);
        make(owner, Goal::SendFile(Box::new(sending)), asked.to, Some(asked.file), None).map(Some)
    }
}

unsafe fn by_transport(
    state: &LoopModule,
    owner: *mut ffi::PyObject,
    asked: &Asked,
) -> Result<Option<Object>, Raised> {
    // SAFETY: the caller's.
    unsafe {
        if ffi::Py_TYPE(asked.to).cast() != state.transport_class
            || !is_theirs(state, owner, state.names.sendfile_native, state.sendfile_native)?
            // asyncio's `sendfile` calls it.
            || !has_our_method(owner, state.names.sock_sendfile)?
        {
            return Ok(None);
        }
        let Some(socket) = stream(asked.to).socket_for_file(asked.to, state, owner)? else { return Ok(None) };
        let sending = Sending::new(c"Loop.sendfile", asked.offset, asked.count, asked.falls_back);
        let goal = Goal::SendFile(Box::new(sending));
        make(owner, goal, socket.as_ptr(), Some(asked.file), Some(asked.to)).map(Some)
    }
}

macro_rules! sends_file {
    ($name:ident, $native:ident) => {
        #[entry]
        unsafe extern "C" fn $name(
            owner: *mut ffi::PyObject,
            arguments: *const *mut ffi::PyObject,
            count: ffi::Py_ssize_t,
            names: *mut ffi::PyObject,
        ) -> *mut ffi::PyObject {
            // SAFETY: a loop, and what the interpreter passes, which is live.
            unsafe {
                let core = LoopCore::of(owner);
                let state = &*core.module;
                let made = match Asked::read(arguments, count, names) {
                    Ok(Some(asked)) if !core.is_debug() => $native(state, owner, &asked),
                    read => read.map(|_| None),
                };
                match made {
                    Ok(Some(made)) => made.into_ptr(),
                    Ok(None) => pass_on(state.$name, owner, arguments, count, names),
                    Err(Raised) => null_mut(),
                }
            }
        }
    };
}

sends_file!(sock_sendfile, by_socket);
sends_file!(sendfile, by_transport);

pub(super) fn methods() -> Vec<ffi::PyMethodDef> {
    vec![
        keyword_method(
            c"sock_sendfile",
            sock_sendfile,
            c"sock_sendfile($self, /, sock, file, offset=0, count=None, *, fallback=True)\n--\n\n\
            Returns an awaitable that sends a file, or `count` bytes of it, and returns how many it has sent.",
        ),
        keyword_method(
            c"sendfile",
            sendfile,
            c"sendfile($self, /, transport, file, offset=0, count=None, *, fallback=True)\n--\n\n\
            Returns an awaitable that sends a file over a transport, after what was written before.",
        ),
    ]
}
