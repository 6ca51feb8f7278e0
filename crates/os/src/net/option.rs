//! What a socket is told, and what it tells of its peer.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use crate::check;

/// How TCP sockets are made; `None` leaves the system's.
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
    /// What must be set before an address is bound or connected.
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

    /// What a connection is set to; a connected socket has it already, an accepted one needs it.
    ///
    /// It sends small packets at once. Of the rest, what a connection inherits from its listener is not
    /// repeated, except the type of service and the priority, which it may take from its first packet
    /// instead.
    ///
    /// # Errors
    ///
    /// What an option was refused with.
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

/// Who is at the other end of a connection within this host.
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
    // SAFETY: live bytes, as many as said; the kernel checks the numbers.
    check(unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, option, value.as_ptr().cast(), value.len() as libc::socklen_t)
    })
    .map(drop)
}

fn set(fd: BorrowedFd<'_>, level: i32, option: i32, value: libc::c_int) -> io::Result<()> {
    set_bytes(fd, level, option, &value.to_ne_bytes())
}

/// A number for the kernel, which knows no larger ones.
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
/// For what is not TCP.
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
/// For a number that the kernel refuses: 0, or too large.
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
/// For what is neither.
pub fn set_tos(fd: BorrowedFd<'_>, tos: u32) -> io::Result<()> {
    set(fd, libc::IPPROTO_IP, libc::IP_TOS, number(tos))?;
    match set(fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, number(tos)) {
        // An IPv4 socket has no traffic class.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOPROTOOPT | libc::EINVAL)) => Ok(()),
        other => other,
    }
}

/// The priority of packets; above 6 it is a privilege.
///
/// # Errors
///
/// `PermissionDenied`.
pub fn set_priority(fd: BorrowedFd<'_>, priority: u32) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_PRIORITY, number(priority))
}

/// The kernel's buffers, in bytes; it doubles what it is told, and has a limit.
///
/// # Errors
///
/// For what is not a socket.
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
/// For an unknown one; `PermissionDenied` where it is a privilege.
pub fn bind_to_device(fd: BorrowedFd<'_>, device: &[u8]) -> io::Result<()> {
    set_bytes(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, device)
}

/// How long sent data may stay unacknowledged until the connection is given up; zero is the system's choice.
///
/// # Errors
///
/// For what is not TCP.
pub fn set_user_timeout(fd: BorrowedFd<'_>, time: Duration) -> io::Result<()> {
    let millis = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    set(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, number(millis))
}

/// What happened to a connection since this was asked last: how a connect ended, for one.
///
/// # Errors
///
/// What it died of.
pub fn take_error(fd: BorrowedFd<'_>) -> io::Result<()> {
    match get::<libc::c_int>(fd, libc::SOL_SOCKET, libc::SO_ERROR)? {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Whether the peer has ended its side and everything it sent was received. Nothing is taken.
///
/// A connection that died of something is not at its end: a receive says what it was.
pub fn is_at_end(fd: BorrowedFd<'_>) -> bool {
    peek(fd) == 0
}

/// Whether there is something to be received, and not the end. Nothing is taken.
pub fn has_bytes(fd: BorrowedFd<'_>) -> bool {
    peek(fd) == 1
}

fn peek(fd: BorrowedFd<'_>) -> isize {
    let mut byte = 0_u8;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: room for one byte.
    unsafe { libc::recv(fd.as_raw_fd(), (&raw mut byte).cast(), 1, flags) }
}

/// Who is at the other end of a connection within this host, as the kernel saw them when it was made.
///
/// # Errors
///
/// For what is no such connection.
pub fn peer_credentials(fd: BorrowedFd<'_>) -> io::Result<Credentials> {
    let peer = get::<libc::ucred>(fd, libc::SOL_SOCKET, libc::SO_PEERCRED)?;
    Ok(Credentials { process: peer.pid, user: peer.uid, group: peer.gid })
}

/// Plain numbers that any bytes are a value of.
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
