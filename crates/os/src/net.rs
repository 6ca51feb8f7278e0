//! Connections between hosts and between processes: listening, connecting, accepting, and what can be asked
//! of a socket.
//!
//! Everything made here is a stream, does not block and is closed on exec. [`stream`] sends and receives the bytes.
//!
//! Source: socket(7), ip(7), ipv6(7), tcp(7), unix(7), accept4(2), getifaddrs(3).
//!
//! [`stream`]: crate::stream

mod address;
pub mod datagrams;
mod given;
mod option;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

pub use address::{
    Address, Family, UnixName, interface_address, interface_index, local_address, peer_address,
};
pub use given::{Accepted, accept_from, connect_to, is_stream, is_tcp, recv_from, send_to};
pub use option::{
    Credentials, TcpOptions, bind_to_device, has_bytes, is_at_end, peer_credentials, set_buffers,
    set_keepalive, set_nodelay, set_priority, set_tos, set_user_timeout, take_error,
};

use crate::call::{check, retry};
use address::Raw;

/// The bit that says, in the type of a socket, that the socket does not block.
pub const NON_BLOCKING: i32 = libc::SOCK_NONBLOCK;

fn make(family: libc::c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: three numbers; the descriptor is fresh and owned by no other code.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::socket(family, kind, 0))?)) }
}

fn bind(fd: &OwnedFd, address: &Raw) -> io::Result<()> {
    // SAFETY: a live address with its length.
    check(unsafe { libc::bind(fd.as_raw_fd(), address.pointer(), address.length()) }).map(drop)
}

fn listen(fd: &OwnedFd, backlog: i32) -> io::Result<()> {
    // SAFETY: two numbers; the kernel checks them.
    check(unsafe { libc::listen(fd.as_raw_fd(), backlog) }).map(drop)
}

/// Connects, or asks how far that has come; returns whether the socket is connected already. A non-blocking connect is
/// never interrupted, so there is nothing to retry.
fn connect(fd: BorrowedFd<'_>, address: &Raw) -> io::Result<bool> {
    // SAFETY: a live address with its length.
    match check(unsafe { libc::connect(fd.as_raw_fd(), address.pointer(), address.length()) }) {
        Ok(_) => Ok(true),
        Err(error) => match error.raw_os_error() {
            Some(libc::EINPROGRESS | libc::EALREADY) => Ok(false),
            _ => Err(error),
        },
    }
}

/// Listens on an address, which may have been released a moment ago; port 0 means any free port.
///
/// `[::]` on a host without IPv6 is `0.0.0.0`.
///
/// # Errors
///
/// `AddrInUse`, `AddrNotAvailable`, `PermissionDenied`; the kernel's error if it refuses an option.
pub fn listen_tcp(address: SocketAddr, backlog: i32, options: &TcpOptions) -> io::Result<OwnedFd> {
    let (fd, address) = match make(address::family(address)) {
        Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) && address.ip().is_unspecified() => {
            let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), address.port());
            (make(libc::AF_INET)?, address)
        }
        other => (other?, address),
    };
    options.prepare(fd.as_fd(), address.is_ipv6())?;
    option::set_reuse_address(fd.as_fd())?;
    bind(&fd, &Raw::from(address))?;
    listen(&fd, backlog)?;
    Ok(fd)
}

/// Begins to connect, from `source` if there is one; also returns whether the connection is established already.
///
/// If it is not, the descriptor becomes writable once connecting has succeeded or failed, and [`take_error`] reports
/// which.
///
/// # Errors
///
/// The kernel's error if it refuses the connection, the source or an option at once.
pub fn connect_tcp(
    address: SocketAddr,
    source: Option<SocketAddr>,
    options: &TcpOptions,
) -> io::Result<(OwnedFd, bool)> {
    let fd = make(address::family(address))?;
    options.prepare(fd.as_fd(), address.is_ipv6())?;
    options.tune(fd.as_fd())?;
    if let Some(source) = source {
        option::set_reuse_address(fd.as_fd())?;
        bind(&fd, &Raw::from(source))?;
    }
    let connected = connect(fd.as_fd(), &Raw::from(address))?;
    Ok((fd, connected))
}

/// Listens on a name of this host. If the name is a path, this makes the file, which stays when the socket is closed.
///
/// # Errors
///
/// `AddrInUse` if the name is taken, `InvalidInput` if it is too long or empty; the kernel's error for the path.
pub fn listen_unix(name: &UnixName, backlog: i32) -> io::Result<OwnedFd> {
    let address = Raw::unix(name)?;
    let fd = make(libc::AF_UNIX)?;
    bind(&fd, &address)?;
    listen(&fd, backlog)?;
    Ok(fd)
}

/// Connects to a name of this host, which happens at once or not at all.
///
/// # Errors
///
/// `NotFound` or `ConnectionRefused` if no socket listens, `WouldBlock` if too many connections wait already: that is a
/// refusal, and no descriptor becomes ready when a retry would succeed.
pub fn connect_unix(name: &UnixName) -> io::Result<OwnedFd> {
    let address = Raw::unix(name)?;
    let fd = make(libc::AF_UNIX)?;
    connect(fd.as_fd(), &address)?;
    Ok(fd)
}

/// A duplicate of a descriptor that the program has made and that listens already; the original stays the program's.
///
/// # Errors
///
/// The system's error if the number is no open socket.
pub fn listener_of(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the kernel checks the number; the result is a fresh descriptor that no other code owns.
    let listener = unsafe { OwnedFd::from_raw_fd(check(libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3))?) };
    // SAFETY: a number; the kernel checks it.
    let flags = check(unsafe { libc::fcntl(listener.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: a number and flags; the kernel checks them.
    check(unsafe { libc::fcntl(listener.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) })?;
    local_address(listener.as_fd())?;
    Ok(listener)
}

/// The next connection; `None` if there is none, or if it ended before it was accepted.
///
/// # Errors
///
/// If the process or the system is out of descriptors or memory: the connection stays in the queue, and the listener
/// stays ready.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let got = retry(|| {
        // SAFETY: a null address asks for none; the kernel checks the number.
        check(unsafe {
            libc::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags)
        })
    });
    match got {
        // SAFETY: the descriptor is fresh and owned by no other code.
        Ok(raw) => Ok(Some(unsafe { OwnedFd::from_raw_fd(raw) })),
        Err(error) => match error.raw_os_error() {
            // accept(2): errors of the new connection are not errors of the listener.
            Some(
                libc::EAGAIN
                | libc::ECONNABORTED
                | libc::EPROTO
                | libc::ENETDOWN
                | libc::ENOPROTOOPT
                | libc::EHOSTDOWN
                | libc::ENONET
                | libc::EHOSTUNREACH
                | libc::EOPNOTSUPP
                | libc::ENETUNREACH,
            ) => Ok(None),
            _ => Err(error),
        },
    }
}
