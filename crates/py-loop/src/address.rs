//! Addresses of sockets: the kernel's, and the objects by which Python's `socket` module describes them.

use std::ffi::{CString, c_int, c_long};
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use pyo3_ffi as ffi;
use ropewalk_os::net::{Address, Family, UnixName};

use ropewalk_capi::object::{Object, Raised, text};

/// The greatest flow label of IPv6.
const FLOW: u32 = 0xf_ffff;

/// An address as `socket.recvfrom` and `socket.accept` return it: a tuple of a host and a port; a name; `None` if the
/// kernel gave none.
pub(super) fn to_object(address: Option<&Address>) -> Result<Object, Raised> {
    match address {
        None => Ok(Object::none()),
        Some(Address::Inet(SocketAddr::V4(address))) => four(address),
        Some(Address::Inet(SocketAddr::V6(address))) => six(address),
        Some(Address::Unnamed) => text(""),
        Some(Address::Unix(UnixName::Path(path))) => {
            let path = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
            // SAFETY: a C string.
            unsafe { Object::own(ffi::PyUnicode_DecodeFSDefault(path.as_ptr())) }
        }
        Some(Address::Unix(UnixName::Abstract(name))) => Object::bytes(&[&[0], name.as_slice()].concat()),
    }
}

fn four(address: &SocketAddrV4) -> Result<Object, Raised> {
    let mut host = Host::new();
    let _ = write!(host, "{}", address.ip());
    // SAFETY: fresh objects, which the tuple gets.
    unsafe {
        let host = host.object()?;
        let port = Object::own(ffi::PyLong_FromLong(address.port().into()))?;
        Object::own(ffi::PyTuple_Pack(2, host.as_ptr(), port.as_ptr()))
    }
}

fn six(address: &SocketAddrV6) -> Result<Object, Raised> {
    let mut host = Host::new();
    let parts = address.ip().segments();
    // inet_ntop(3) writes an address whose first six parts alone are zero as one of IPv4.
    let _ = if parts[..6] == [0; 6] && parts[6] != 0 {
        let [.., a, b, c, d] = address.ip().octets();
        write!(host, "::{}", Ipv4Addr::new(a, b, c, d))
    } else {
        write!(host, "{}", address.ip())
    };
    // SAFETY: fresh objects, which the tuple gets.
    unsafe {
        let host = host.object()?;
        let port = Object::own(ffi::PyLong_FromLong(address.port().into()))?;
        let flow = Object::own(ffi::PyLong_FromLong(c_long::from(u32::from_be(address.flowinfo()))))?;
        let scope = Object::own(ffi::PyLong_FromLong(c_long::from(address.scope_id())))?;
        Object::own(ffi::PyTuple_Pack(4, host.as_ptr(), port.as_ptr(), flow.as_ptr(), scope.as_ptr()))
    }
}

/// The text of a host, on the stack.
struct Host {
    text: [u8; 46],
    length: usize,
}

impl Write for Host {
    fn write_str(&mut self, part: &str) -> std::fmt::Result {
        let room = self.text.get_mut(self.length..self.length + part.len()).ok_or(std::fmt::Error)?;
        room.copy_from_slice(part.as_bytes());
        self.length += part.len();
        Ok(())
    }
}

impl Host {
    fn new() -> Self {
        Self { text: [0; 46], length: 0 }
    }

    unsafe fn object(&self) -> Result<Object, Raised> {
        // SAFETY: so many bytes of ASCII.
        unsafe {
            Object::own(ffi::PyUnicode_FromStringAndSize(
                self.text.as_ptr().cast(),
                self.length as ffi::Py_ssize_t,
            ))
        }
    }
}

/// The address that an object describes, for a socket of this family; none where the `socket` module has to say what
/// it means: a name to be resolved, an object of another type, or an error. No exception is set.
///
/// # Safety
///
/// A live object.
pub(super) unsafe fn from_object(family: Family, object: *mut ffi::PyObject) -> Option<Address> {
    // SAFETY: the caller's; the items of a tuple are live.
    unsafe {
        match family {
            Family::Unix => name(object),
            Family::Inet4 => {
                let [host, port] = items::<2>(object)?;
                let host: Ipv4Addr = as_str(host)?.parse().ok()?;
                Some(Address::Inet(SocketAddrV4::new(host, number(port, u16::MAX.into())? as u16).into()))
            }
            Family::Inet6 => {
                let (host, port, flow, scope) = if let Some([host, port]) = items::<2>(object) {
                    (host, port, 0, 0)
                } else if let Some([host, port, flow]) = items::<3>(object) {
                    (host, port, number(flow, FLOW)?, 0)
                } else {
                    let [host, port, flow, scope] = items::<4>(object)?;
                    (host, port, number(flow, FLOW)?, number(scope, u32::MAX)?)
                };
                let host: Ipv6Addr = as_str(host)?.parse().ok()?;
                let port = number(port, u16::MAX.into())? as u16;
                Some(Address::Inet(SocketAddrV6::new(host, port, flow.to_be(), scope).into()))
            }
        }
    }
}

unsafe fn items<const N: usize>(object: *mut ffi::PyObject) -> Option<[*mut ffi::PyObject; N]> {
    // SAFETY: a live object; as many items as asked for.
    unsafe {
        if ffi::PyTuple_CheckExact(object) == 0 || ffi::PyTuple_GET_SIZE(object) != N as ffi::Py_ssize_t {
            return None;
        }
        Some(std::array::from_fn(|at| ffi::PyTuple_GET_ITEM(object, at as ffi::Py_ssize_t)))
    }
}

unsafe fn as_str<'a>(object: *mut ffi::PyObject) -> Option<&'a str> {
    // SAFETY: a live object; the string keeps its encoded form.
    unsafe {
        if ffi::PyUnicode_CheckExact(object) == 0 {
            return None;
        }
        let mut size = 0;
        let start = ffi::PyUnicode_AsUTF8AndSize(object, &raw mut size);
        if start.is_null() {
            ffi::PyErr_Clear();
            return None;
        }
        std::str::from_utf8(std::slice::from_raw_parts(start.cast(), usize::try_from(size).ok()?)).ok()
    }
}

unsafe fn number(object: *mut ffi::PyObject, most: u32) -> Option<u32> {
    // SAFETY: a live object.
    unsafe {
        if ffi::PyLong_CheckExact(object) == 0 {
            return None;
        }
        let mut overflow: c_int = 0;
        let value = ffi::PyLong_AsLongLongAndOverflow(object, &raw mut overflow);
        u32::try_from(value).ok().filter(|&value| overflow == 0 && value <= most)
    }
}

unsafe fn name(object: *mut ffi::PyObject) -> Option<Address> {
    // SAFETY: a live object; the encoded bytes live until they are copied.
    let name = unsafe {
        let encoded = if ffi::PyUnicode_CheckExact(object) != 0 {
            Object::own(ffi::PyUnicode_EncodeFSDefault(object)).ok()
        } else if ffi::PyBytes_CheckExact(object) != 0 {
            Object::share(object).ok()
        } else {
            return None;
        };
        let Some(encoded) = encoded else {
            ffi::PyErr_Clear();
            return None;
        };
        encoded.as_bytes().unwrap_or_default().to_vec()
    };
    match name.as_slice() {
        [] => None,
        name if name.len() > UnixName::MOST => None,
        [0] => None,
        [0, rest @ ..] => Some(Address::Unix(UnixName::Abstract(rest.to_vec()))),
        path if path.contains(&0) => None,
        path => Some(Address::Unix(UnixName::Path(PathBuf::from(std::ffi::OsStr::from_bytes(path))))),
    }
}
