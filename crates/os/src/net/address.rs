//! Addresses, as the kernel writes them and as Rust does.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::mem::{offset_of, size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::call::check;

/// A name within this host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UnixName {
    /// A file.
    Path(PathBuf),
    /// A name that is no file, and that disappears with its last socket.
    Abstract(Vec<u8>),
}

impl UnixName {
    /// The longest path or abstract name, in bytes.
    pub const MOST: usize = size_of::<libc::sockaddr_un>() - offset_of!(libc::sockaddr_un, sun_path) - 1;
}

/// The address of one end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// On a network.
    Inet(SocketAddr),
    /// Within this host.
    Unix(UnixName),
    /// Within this host and without a name, as most connecting sockets are.
    Unnamed,
}

/// The families of addresses that [`Address`] knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    Inet4,
    /// IPv6.
    Inet6,
    /// Within this host.
    Unix,
}

impl Family {
    /// The family with this number of the system's.
    pub fn of(number: i32) -> Option<Self> {
        match number {
            libc::AF_INET => Some(Self::Inet4),
            libc::AF_INET6 => Some(Self::Inet6),
            libc::AF_UNIX => Some(Self::Unix),
            _ => None,
        }
    }
}

pub(super) fn family(address: SocketAddr) -> libc::c_int {
    if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }
}

/// An address as the kernel takes it.
pub(super) struct Raw {
    storage: libc::sockaddr_storage,
    length: usize,
}

impl Raw {
    pub(super) fn pointer(&self) -> *const libc::sockaddr {
        (&raw const self.storage).cast()
    }

    pub(super) fn storage(&self) -> libc::sockaddr_storage {
        self.storage
    }

    pub(super) fn length(&self) -> libc::socklen_t {
        self.length as libc::socklen_t
    }

    fn of<T>(value: T) -> Self {
        const { assert!(size_of::<T>() <= size_of::<libc::sockaddr_storage>()) };
        // SAFETY: zeros are an address of no family; the storage has room and alignment for any address.
        unsafe {
            let mut storage: libc::sockaddr_storage = zeroed();
            (&raw mut storage).cast::<T>().write(value);
            Self { storage, length: size_of::<T>() }
        }
    }

    pub(super) fn unix(name: &UnixName) -> io::Result<Self> {
        let (bytes, skip) = match name {
            UnixName::Path(path) => (path.as_os_str().as_bytes(), 0),
            UnixName::Abstract(name) => (name.as_slice(), 1),
        };
        let invalid = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if bytes.is_empty() || (skip == 0 && bytes.contains(&0)) {
            return invalid("a socket's name cannot be empty, nor a path have a zero in it");
        }
        if bytes.len() > UnixName::MOST {
            return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        }
        // SAFETY: zeros are an address of no family.
        let mut raw: libc::sockaddr_un = unsafe { zeroed() };
        raw.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, &from) in raw.sun_path[skip..].iter_mut().zip(bytes) {
            *to = from as libc::c_char;
        }
        let mut made = Self::of(raw);
        // An abstract name has the given length; a path also ends with a zero byte.
        made.length = offset_of!(libc::sockaddr_un, sun_path) + bytes.len() + 1;
        Ok(made)
    }
}

impl From<SocketAddr> for Raw {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => {
                // SAFETY: zeros are an address of no family.
                let mut raw: libc::sockaddr_in = unsafe { zeroed() };
                raw.sin_family = libc::AF_INET as libc::sa_family_t;
                raw.sin_port = address.port().to_be();
                raw.sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
                Self::of(raw)
            }
            SocketAddr::V6(address) => {
                // SAFETY: zeros are an address of no family.
                let mut raw: libc::sockaddr_in6 = unsafe { zeroed() };
                raw.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                raw.sin6_port = address.port().to_be();
                raw.sin6_flowinfo = address.flowinfo();
                raw.sin6_addr.s6_addr = address.ip().octets();
                raw.sin6_scope_id = address.scope_id();
                Self::of(raw)
            }
        }
    }
}

impl TryFrom<&Address> for Raw {
    type Error = io::Error;

    /// Fails for a name that is empty or too long.
    fn try_from(address: &Address) -> io::Result<Self> {
        match address {
            Address::Inet(address) => Ok(Self::from(*address)),
            Address::Unix(name) => Self::unix(name),
            Address::Unnamed => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no way to a socket without a name"))
            }
        }
    }
}

/// # Safety
///
/// `pointer` is to an address of the family that its header names, with the length of that family.
unsafe fn inet(pointer: *const libc::sockaddr) -> Option<SocketAddr> {
    // SAFETY: the caller guarantees the family; each branch reads the fields of its own family.
    unsafe {
        match libc::c_int::from((*pointer).sa_family) {
            libc::AF_INET => {
                let raw = pointer.cast::<libc::sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(raw.sin_port)))
            }
            libc::AF_INET6 => {
                let raw = pointer.cast::<libc::sockaddr_in6>().read_unaligned();
                let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
                let port = u16::from_be(raw.sin6_port);
                Some(SocketAddrV6::new(ip, port, raw.sin6_flowinfo, raw.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

/// Room for an address that the kernel writes.
pub(super) struct Room {
    storage: libc::sockaddr_storage,
    length: libc::socklen_t,
}

impl Room {
    pub(super) fn new() -> Self {
        // SAFETY: zeros are an address of no family.
        let storage = unsafe { zeroed() };
        Self { storage, length: size_of::<libc::sockaddr_storage>() as libc::socklen_t }
    }

    /// An address that the kernel has written.
    pub(super) fn with(storage: libc::sockaddr_storage, length: libc::socklen_t) -> Self {
        Self { storage, length }
    }

    /// Where the kernel writes the address, and its length.
    pub(super) fn pointers(&mut self) -> (*mut libc::sockaddr, *mut libc::socklen_t) {
        ((&raw mut self.storage).cast(), &raw mut self.length)
    }

    /// What the kernel has written; `None` if it wrote nothing.
    ///
    /// # Errors
    ///
    /// `EAFNOSUPPORT` if the address is of another family.
    pub(super) fn read(&self) -> io::Result<Option<Address>> {
        if self.length == 0 {
            return Ok(None);
        }
        // SAFETY: the kernel has written an address and its family, or zeros are there, which are of no family.
        if let Some(address) = unsafe { inet((&raw const self.storage).cast()) } {
            return Ok(Some(Address::Inet(address)));
        }
        if libc::c_int::from(self.storage.ss_family) != libc::AF_UNIX {
            return Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT));
        }
        // SAFETY: the storage is larger than a sockaddr_un and aligned for it.
        let raw = unsafe { (&raw const self.storage).cast::<libc::sockaddr_un>().read() };
        let length = (self.length as usize).saturating_sub(offset_of!(libc::sockaddr_un, sun_path));
        let name: Vec<u8> = raw.sun_path.iter().take(length).map(|&byte| byte as u8).collect();
        Ok(Some(match name.as_slice() {
            [] => Address::Unnamed,
            [0, name @ ..] => Address::Unix(UnixName::Abstract(name.to_vec())),
            path => {
                let end = path.iter().position(|&byte| byte == 0).unwrap_or(path.len());
                Address::Unix(UnixName::Path(OsStr::from_bytes(&path[..end]).into()))
            }
        }))
    }
}

fn ask(
    fd: BorrowedFd<'_>,
    call: unsafe extern "C" fn(i32, *mut libc::sockaddr, *mut libc::socklen_t) -> i32,
) -> io::Result<Address> {
    let mut room = Room::new();
    let (address, length) = room.pointers();
    // SAFETY: the storage has room for any address, and the kernel says how much it wrote.
    check(unsafe { call(fd.as_raw_fd(), address, length) })?;
    room.read().map(|address| address.unwrap_or(Address::Unnamed))
}

/// The address of this end.
///
/// # Errors
///
/// If the descriptor is no socket, or a socket of another family.
pub fn local_address(fd: BorrowedFd<'_>) -> io::Result<Address> {
    ask(fd, libc::getsockname)
}

/// The address of the other end.
///
/// # Errors
///
/// `NotConnected`; as [`local_address`].
pub fn peer_address(fd: BorrowedFd<'_>) -> io::Result<Address> {
    ask(fd, libc::getpeername)
}

fn no_device() -> io::Error {
    io::Error::from_raw_os_error(libc::ENODEV)
}

/// The number of an interface, which is the scope of link-local addresses.
///
/// # Errors
///
/// `ENODEV` if there is no such interface.
pub fn interface_index(name: &str) -> io::Result<u32> {
    let name = CString::new(name).map_err(|_| no_device())?;
    // SAFETY: a C string that ends with a zero byte.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(no_device()),
        index => Ok(index),
    }
}

/// The first address of an interface, with port 0: an IPv6 address, if `ipv6` and it has one, else an IPv4
/// one.
///
/// # Errors
///
/// `ENODEV` if there is no such interface or it has no such address.
pub fn interface_address(name: &str, ipv6: bool) -> io::Result<SocketAddr> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: a live pointer for the list's head; the list is freed below.
    check(unsafe { libc::getifaddrs(&raw mut list) })?;
    let (mut four, mut six) = (None, None);
    let mut at = list;
    while !at.is_null() {
        // SAFETY: a node of the list, which lives until `freeifaddrs`; its name is a C string, its address null or as
        // long as its family requires.
        unsafe {
            let link = &*at;
            at = link.ifa_next;
            if link.ifa_addr.is_null() || CStr::from_ptr(link.ifa_name).to_bytes() != name.as_bytes() {
                continue;
            }
            match inet(link.ifa_addr) {
                Some(address @ SocketAddr::V4(_)) => four = four.or(Some(address)),
                Some(address @ SocketAddr::V6(_)) if ipv6 => six = six.or(Some(address)),
                _ => {}
            }
        }
    }
    // SAFETY: the list that getifaddrs made, freed once.
    unsafe { libc::freeifaddrs(list) };
    six.or(four).ok_or_else(no_device)
}
