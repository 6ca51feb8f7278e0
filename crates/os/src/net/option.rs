//! The options of a socket, and what it reports about its peer.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use crate::call::check;

/// The options of TCP sockets; `None` keeps the system's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpOptions {
    /// An IPv6 socket speaks IPv4 too.
    pub dual_stack: bool,
    /// Whether probes are sent.
    pub keepalive: Option<bool>,
    /// How many probes go unanswered.
    pub keepalive_probes: Option<u32>,
    /// Seconds of silence before the first probe.
    pub keepalive_idle: Option<u32>,
    /// Seconds between probes.
    pub keepalive_interval: Option<u32>,
    /// The kernel's buffer for sending, in bytes.
    pub send_buffer: Option<u32>,
    /// The kernel's buffer for receiving, in bytes.
    pub receive_buffer: Option<u32>,
    /// The type of service, or the traffic class.
    pub tos: Option<u32>,
    /// The priority of packets.
    pub priority: Option<u32>,
    /// How long sent data may stay unacknowledged.
    pub user_timeout: Option<Duration>,
    /// The interface to bind to; empty for none.
    pub device: Vec<u8>,
}

impl TcpOptions {
    /// Sets the options that must precede `bind` and `connect`.
    pub(super) fn prepare(&self, fd: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
        if ipv6 {
            set(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, libc::c_int::from(!self.dual_stack))?;
        }
        if let Some(tos) = self.tos {
            set_tos(fd, tos)?;
        }
        if let Some(priority) = self.priority {
            set_priority(fd, priority)?;
        }
        if !self.device.is_empty() {
            bind_to_device(fd, &self.device)?;
        }
        set_buffers(fd, self.send_buffer, self.receive_buffer)
    }

    /// Sets the options of a connection; a socket that connected has them already, an accepted one needs them.
    ///
    /// The connection sends small packets at once. Options that it inherits from its listener are not set again, except
    /// the type of service and the priority, which the kernel may take from the first packet instead.
    ///
    /// # Errors
    ///
    /// The kernel's error if it refuses an option.
    pub fn tune(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        set_nodelay(fd, true)?;
        set_keepalive(
            fd,
            self.keepalive,
            self.keepalive_probes,
            self.keepalive_idle,
            self.keepalive_interval,
        )?;
        if let Some(time) = self.user_timeout {
            set_user_timeout(fd, time)?;
        }
        if let Some(tos) = self.tos {
            set_tos(fd, tos)?;
        }
        if let Some(priority) = self.priority {
            set_priority(fd, priority)?;
        }
        Ok(())
    }
}

/// The process at the other end of a connection within this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The process that connected, or listened.
    pub process: i32,
    /// Its user.
    pub user: u32,
    /// Its group.
    pub group: u32,
}

fn set_bytes(fd: BorrowedFd<'_>, level: i32, option: i32, value: &[u8]) -> io::Result<()> {
    // SAFETY: live bytes with their length; the kernel checks the numbers.
    check(unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, option, value.as_ptr().cast(), value.len() as libc::socklen_t)
    })
    .map(drop)
}

fn set(fd: BorrowedFd<'_>, level: i32, option: i32, value: libc::c_int) -> io::Result<()> {
    set_bytes(fd, level, option, &value.to_ne_bytes())
}

/// A number as the kernel takes it; larger ones become its largest.
fn number(value: u32) -> libc::c_int {
    libc::c_int::try_from(value).unwrap_or(libc::c_int::MAX)
}

pub(super) fn set_reuse_address(fd: BorrowedFd<'_>) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)
}

/// Whether small packets are sent at once.
///
/// # Errors
///
/// If the socket is not TCP.
pub fn set_nodelay(fd: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    set(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, libc::c_int::from(on))
}

/// Whether a silent peer is probed, how many probes it may miss, after how many seconds, and at which
/// intervals.
///
/// The last three are set only if probes are on.
///
/// # Errors
///
/// If the kernel refuses a number: 0, or one that is too large.
pub fn set_keepalive(
    fd: BorrowedFd<'_>,
    on: Option<bool>,
    probes: Option<u32>,
    idle: Option<u32>,
    interval: Option<u32>,
) -> io::Result<()> {
    let Some(on) = on else { return Ok(()) };
    set(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, libc::c_int::from(on))?;
    if !on {
        return Ok(());
    }
    let details = [(libc::TCP_KEEPCNT, probes), (libc::TCP_KEEPIDLE, idle), (libc::TCP_KEEPINTVL, interval)];
    for (option, value) in details {
        if let Some(value) = value {
            set(fd, libc::IPPROTO_TCP, option, number(value))?;
        }
    }
    Ok(())
}

/// The type of service of IPv4's packets, and the traffic class of IPv6's.
///
/// # Errors
///
/// If the socket is neither.
pub fn set_tos(fd: BorrowedFd<'_>, tos: u32) -> io::Result<()> {
    set(fd, libc::IPPROTO_IP, libc::IP_TOS, number(tos))?;
    match set(fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, number(tos)) {
        // An IPv4 socket has no traffic class.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOPROTOOPT | libc::EINVAL)) => Ok(()),
        other => other,
    }
}

/// The priority of packets; above 6 it needs a privilege.
///
/// # Errors
///
/// `PermissionDenied`.
pub fn set_priority(fd: BorrowedFd<'_>, priority: u32) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_PRIORITY, number(priority))
}

/// The kernel's buffers, in bytes; the kernel doubles the number, and has a limit.
///
/// # Errors
///
/// If the descriptor is not a socket.
pub fn set_buffers(fd: BorrowedFd<'_>, send: Option<u32>, receive: Option<u32>) -> io::Result<()> {
    if let Some(bytes) = send {
        set(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, number(bytes))?;
    }
    if let Some(bytes) = receive {
        set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, number(bytes))?;
    }
    Ok(())
}

/// Binds to an interface.
///
/// # Errors
///
/// For an unknown interface; `PermissionDenied` where this needs a privilege.
pub fn bind_to_device(fd: BorrowedFd<'_>, device: &[u8]) -> io::Result<()> {
    set_bytes(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, device)
}

/// How long sent data may stay unacknowledged until the connection is given up; zero means the system's default.
///
/// # Errors
///
/// If the socket is not TCP.
pub fn set_user_timeout(fd: BorrowedFd<'_>, time: Duration) -> io::Result<()> {
    let millis = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    set(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, number(millis))
}

/// The connection's error since the last call: how a connect ended, for instance.
///
/// # Errors
///
/// The error that ended the connection.
pub fn take_error(fd: BorrowedFd<'_>) -> io::Result<()> {
    match get::<libc::c_int>(fd, libc::SOL_SOCKET, libc::SO_ERROR)? {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Whether the peer has ended its side and everything it sent was received. This takes no bytes.
///
/// A connection that an error ended is not at its end: a receive reports the error.
pub fn is_at_end(fd: BorrowedFd<'_>) -> bool {
    peek(fd) == 0
}

/// Whether there are bytes to receive; false at the end. This takes no bytes.
pub fn has_bytes(fd: BorrowedFd<'_>) -> bool {
    peek(fd) == 1
}

fn peek(fd: BorrowedFd<'_>) -> isize {
    let mut byte = 0_u8;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: room for one byte.
    unsafe { libc::recv(fd.as_raw_fd(), (&raw mut byte).cast(), 1, flags) }
}

/// The process at the other end of a connection within this host, as the kernel saw it when the connection was made.
///
/// # Errors
///
/// If the descriptor is no such connection.
pub fn peer_credentials(fd: BorrowedFd<'_>) -> io::Result<Credentials> {
    let peer = get::<libc::ucred>(fd, libc::SOL_SOCKET, libc::SO_PEERCRED)?;
    Ok(Credentials { process: peer.pid, user: peer.uid, group: peer.gid })
}

/// Plain numbers: any bytes are a valid value.
trait Plain: Copy {}
impl Plain for libc::c_int {}
impl Plain for libc::ucred {}

fn get<T: Plain>(fd: BorrowedFd<'_>, level: i32, option: i32) -> io::Result<T> {
    let mut size = size_of::<T>() as libc::socklen_t;
    // SAFETY: room for the value, and its size; zeros, and whatever the kernel writes, are a value of a Plain
    // type.
    unsafe {
        let mut value: T = std::mem::zeroed();
        check(libc::getsockopt(fd.as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut size))?;
        Ok(value)
    }
}
