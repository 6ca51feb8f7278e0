//! The loop's methods that make operations. asyncio's own serve debug mode, objects that are no plain sockets, and what
//! the `socket` module has to say of an argument.

use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_os::net::Address;

use super::super::core::LoopCore;
use super::super::loop_module::LoopModule;
use super::super::{address, sockets};
use super::attempt::Goal;
use super::make;
use ropewalk_capi::entry;
use ropewalk_capi::heap::keyword_method;
use ropewalk_capi::object::{Object, Raised};

/// What a method asks for.
struct Wish {
    goal: Goal,
    /// What is sent, or received into.
    data: Option<*mut ffi::PyObject>,
    /// The address as it was given.
    address: Option<*mut ffi::PyObject>,
}

impl Wish {
    fn of(goal: Goal) -> Self {
        Self { goal, data: None, address: None }
    }
}

/// A plain socket, and the other arguments of a method.
struct Call<'a> {
    state: &'a LoopModule,
    socket: *mut ffi::PyObject,
    rest: &'a [*mut ffi::PyObject],
}

impl Call<'_> {
    /// A size among the arguments.
    unsafe fn size(&self, at: usize) -> Option<usize> {
        // SAFETY: the caller's: live arguments.
        unsafe {
            let size = ffi::PyLong_AsSsize_t(*self.rest.get(at)?);
            if !ffi::PyErr_Occurred().is_null() {
                ffi::PyErr_Clear();
            }
            usize::try_from(size).ok()
        }
    }

    /// The address among the arguments, if it needs no name to be resolved.
    unsafe fn address(&self, at: usize) -> Result<Option<Address>, Raised> {
        // SAFETY: the caller's: live arguments.
        unsafe {
            let Some(&given) = self.rest.get(at) else { return Ok(None) };
            Ok(sockets::family(self.state, self.socket)?
                .and_then(|family| address::from_object(family, given)))
        }
    }

    unsafe fn has_known_family(&self) -> Result<bool, Raised> {
        // SAFETY: the caller's: a live socket.
        unsafe { sockets::family(self.state, self.socket) }.map(|family| family.is_some())
    }

    unsafe fn is_non_blocking(&self) -> Result<bool, Raised> {
        // SAFETY: the caller's: a live socket.
        unsafe { sockets::is_non_blocking(self.state, self.socket) }
    }
}

/// One of the loop's methods: `wish` says what is to be done, or that asyncio's method is to be called.
unsafe fn method_of_loop(
    owner: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
    fallback: impl FnOnce(&LoopModule) -> *mut ffi::PyObject,
    wish: impl FnOnce(&Call<'_>) -> Result<Option<Wish>, Raised>,
) -> *mut ffi::PyObject {
    // SAFETY: a loop, and what the interpreter passes.
    unsafe {
        let core = LoopCore::of(owner);
        let state = &*core.module;
        if count > 0
            && names.is_null()
            && ffi::Py_TYPE(*arguments).cast() == state.socket_class
            && !core.is_debug()
        {
            let rest = std::slice::from_raw_parts(arguments.add(1), count as usize - 1);
            match wish(&Call { state, socket: *arguments, rest }) {
                Ok(Some(Wish { goal, data, address })) => {
                    return make(owner, goal, *arguments, data, address).map_or(null_mut(), Object::into_ptr);
                }
                Ok(None) => {}
                Err(Raised) => return null_mut(),
            }
        }
        pass_on(fallback(state), owner, arguments, count, names)
    }
}

/// Calls asyncio's method with the arguments of ours.
///
/// # Safety
///
/// A live method and loop, and what the interpreter passes.
pub(super) unsafe fn pass_on(
    method: *mut ffi::PyObject,
    owner: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the caller's.
    unsafe {
        let mut all = vec![owner];
        let named = if names.is_null() { 0 } else { ffi::PyTuple_GET_SIZE(names) };
        all.extend((0..count + named).map(|at| *arguments.offset(at)));
        ffi::PyObject_Vectorcall(method, all.as_ptr(), count as usize + 1, names)
    }
}

macro_rules! operation {
    ($name:ident, $theirs:ident, $wish:expr) => {
        #[entry]
        unsafe extern "C" fn $name(
            owner: *mut ffi::PyObject,
            arguments: *const *mut ffi::PyObject,
            count: ffi::Py_ssize_t,
            names: *mut ffi::PyObject,
        ) -> *mut ffi::PyObject {
            let wish: unsafe fn(&Call<'_>) -> Result<Option<Wish>, Raised> = $wish;
            // SAFETY: what the interpreter passes, which is live.
            unsafe {
                method_of_loop(owner, arguments, count, names, |state| state.$theirs, |call| wish(call))
            }
        }
    };
}

operation!(sock_recv, sock_recv, recv);
operation!(sock_recv_into, sock_recv_into, recv_into);
operation!(sock_sendall, sock_sendall, sendall);
operation!(sock_recvfrom, sock_recvfrom, recvfrom);
operation!(sock_recvfrom_into, sock_recvfrom_into, recvfrom_into);
operation!(sock_sendto, sock_sendto, sendto);
operation!(sock_accept, sock_accept, accept);
operation!(sock_connect, sock_connect, connect);

unsafe fn recv(call: &Call<'_>) -> Result<Option<Wish>, Raised> {
    // SAFETY: the caller's.
    let size = if call.rest.len() == 1 { unsafe { call.size(0) } } else { None };
    Ok(size.map(|size| Wish::of(Goal::Receive(size))))
}

unsafe fn recv_into(call: &Call<'_>) -> Result<Option<Wish>, Raised> {
    let [buffer] = *call.rest else { return Ok(None) };
    Ok(Some(Wish { data: Some(buffer), ..Wish::of(Goal::ReceiveInto) }))
}

unsafe fn sendall(call: &Call<'_>) -> Result<Option<Wish>, Raised> {
    let [data] = *call.rest else { return Ok(None) };
    Ok(Some(Wish { data: Some(data), ..Wish::of(Goal::SendAll) }))
}

unsafe fn recvfrom(call: &Call<'_>) -> Result<Option<Wish>, Raised> {
    // SAFETY: the caller's.
    unsafe {
        if call.rest.len() != 1 || !call.has_known_family()? {
            return Ok(None);
        }
        Ok(call.size(0).map(|size| Wish::of(Goal::ReceiveFrom(size))))
    }
}

unsafe fn recvfrom_into(call: &Call<'_>) -> Result<Option<Wish>, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let size = match call.rest.len() {
            1 => Some(0),
            2 => call.size(1),
            _ => None,
        };
        let (Some(size), Some(&buffer), true) = (size, call.rest.first(), call.has_known_family()?) else {
            return Ok(None);
        };
        Ok(Some(Wish { data: Some(buffer), ..Wish::of(Goal::ReceiveFromInto(size)) }))
    }
}

unsafe fn sendto(call: &Call<'_>) -> Result<Option<Wish>, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let &[data, given] = call.rest else { return Ok(None) };
        Ok(call.address(1)?.map(|address| Wish {
            data: Some(data),
            address: Some(given),
            ..Wish::of(Goal::SendTo(address))
        }))
    }
}

unsafe fn accept(call: &Call<'_>) -> Result<Option<Wish>, Raised> {
    // SAFETY: the caller's.
    let known = unsafe { call.rest.is_empty() && call.has_known_family()? && call.is_non_blocking()? };
    Ok(known.then(|| Wish::of(Goal::Accept)))
}

unsafe fn connect(call: &Call<'_>) -> Result<Option<Wish>, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let &[given] = call.rest else { return Ok(None) };
        if !call.is_non_blocking()? {
            return Ok(None);
        }
        Ok(call.address(0)?.map(|address| Wish { address: Some(given), ..Wish::of(Goal::Connect(address)) }))
    }
}

pub(super) fn methods() -> Vec<ffi::PyMethodDef> {
    vec![
        keyword_method(c"sock_recv", sock_recv, c"sock_recv($self, /, sock, n)\n--\n\n\
        Returns an awaitable of at most `n` bytes."),
        keyword_method(
            c"sock_recv_into",
            sock_recv_into,
            c"sock_recv_into($self, /, sock, buf)\n--\n\nReturns an awaitable of the number of bytes received.",
        ),
        keyword_method(c"sock_sendall", sock_sendall, c"sock_sendall($self, /, sock, data)\n--\n\n\
        Returns an awaitable that sends all of `data`."),
        keyword_method(c"sock_recvfrom", sock_recvfrom, c"sock_recvfrom($self, /, sock, bufsize)\n--\n\n\
        Returns an awaitable of one message of at most `bufsize` bytes, and the address of its sender."),
        keyword_method(
            c"sock_recvfrom_into",
            sock_recvfrom_into,
            c"sock_recvfrom_into($self, /, sock, buf, nbytes=0)\n--\n\n\
            Returns an awaitable of the size of one message, and the address of its sender.",
        ),
        keyword_method(c"sock_sendto", sock_sendto, c"sock_sendto($self, /, sock, data, address)\n--\n\n\
        Returns an awaitable that sends `data` as one message, of its size."),
        keyword_method(c"sock_accept", sock_accept, c"sock_accept($self, /, sock)\n--\n\n\
        Returns an awaitable of a connection of a listening socket, and the address of its other end."),
        keyword_method(c"sock_connect", sock_connect, c"sock_connect($self, /, sock, address)\n--\n\n\
        Returns an awaitable that connects a socket."),
    ]
}
