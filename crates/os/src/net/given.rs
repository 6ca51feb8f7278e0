//! Sockets that the program has made itself, of any type: one system call each, with addresses, without waiting.
//!
//! Source: accept4(2), connect(2), recvfrom(2), sendto(2).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::address::{Address, Family, Raw, Room};
use crate::call::{check, retry};

fn count(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Whether sockets that are made with these numbers speak TCP.
pub fn is_tcp(family: i32, kind: i32, protocol: i32) -> bool {
    matches!(Family::of(family), Some(Family::Inet4 | Family::Inet6))
        && kind == libc::SOCK_STREAM
        && matches!(protocol, 0 | libc::IPPROTO_TCP)
}

/// Whether sockets of this kind are connections of bytes, without messages.
pub fn is_stream(kind: i32) -> bool {
    kind == libc::SOCK_STREAM
}

/// A connection, and the address of its other end.
#[derive(Debug)]
pub struct Accepted {
    /// It does not block, and is closed on exec.
    pub connection: OwnedFd,
    /// `None` if the kernel gave none.
    pub peer: Option<Address>,
}

/// The next connection of a listener.
///
/// # Errors
///
/// `WouldBlock` if there is none; the kernel's error if the socket does not listen, or if the process or the system is
/// out of descriptors or memory; `EAFNOSUPPORT`, with the connection closed, for an address of another family than
/// those of [`Address`].
pub fn accept_from(listener: BorrowedFd<'_>) -> io::Result<Accepted> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    loop {
        let mut room = Room::new();
        let (address, length) = room.pointers();
        // SAFETY: room for an address, whose length says how much; the kernel checks the number.
        match check(unsafe { libc::accept4(listener.as_raw_fd(), address, length, flags) }) {
            Ok(raw) => {
                // SAFETY: the descriptor is fresh and owned by no other code.
                let connection = unsafe { OwnedFd::from_raw_fd(raw) };
                return Ok(Accepted { connection, peer: room.read()? });
            }
            Err(error) => match error.raw_os_error() {
                // The first connection of the queue ended before it was accepted; there may be others behind it.
                Some(libc::EINTR | libc::ECONNABORTED | libc::EPROTO) => {}
                _ => return Err(error),
            },
        }
    }
}

/// Connects a socket that does not block, or asks how far that has come; returns whether it is connected. If it is not,
/// the socket becomes writable once connecting has succeeded or failed, and the next call reports which.
///
/// # Errors
///
/// The kernel's error if connecting failed. `EAGAIN` of a Unix socket is final: the queue of its listener is full.
pub fn connect_to(fd: BorrowedFd<'_>, address: &Address) -> io::Result<bool> {
    super::connect(fd, &Raw::try_from(address)?)
}

/// Receives one message of at most `length` bytes, and the address of its sender, if the kernel gives one.
///
/// # Errors
///
/// `WouldBlock` if there is none; `EAFNOSUPPORT`, with the message lost, for a sender of another family than those of
/// [`Address`].
///
/// # Safety
///
/// `length` bytes at `buffer` may be written.
pub unsafe fn recv_from(
    fd: BorrowedFd<'_>,
    buffer: *mut u8,
    length: usize,
) -> io::Result<(usize, Option<Address>)> {
    let mut room = Room::new();
    let got = retry(|| {
        let (address, known) = room.pointers();
        // SAFETY: the caller keeps this function's contract; room for an address, whose length says how much.
        count(unsafe {
            libc::recvfrom(fd.as_raw_fd(), buffer.cast(), length, libc::MSG_DONTWAIT, address, known)
        })
    })?;
    Ok((got, room.read()?))
}

/// Sends one message to an address.
///
/// # Errors
///
/// `WouldBlock` if there is no room; what the kernel says of the message or the address.
pub fn send_to(fd: BorrowedFd<'_>, bytes: &[u8], address: &Address) -> io::Result<usize> {
    let raw = Raw::try_from(address)?;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    retry(|| {
        // SAFETY: live bytes and a live address, with their lengths.
        count(unsafe {
            libc::sendto(
                fd.as_raw_fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                flags,
                raw.pointer(),
                raw.length(),
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsFd;
    use std::os::unix::net::{UnixDatagram, UnixListener};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::net::UnixName;

    #[test]
    fn a_connection_comes_with_the_address_of_its_other_end() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        listener.set_nonblocking(true).expect("set");
        assert_eq!(accept_from(listener.as_fd()).expect_err("none yet").kind(), io::ErrorKind::WouldBlock);
        let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let accepted = accept_from(listener.as_fd()).expect("accepted");
        assert_eq!(accepted.peer, Some(Address::Inet(client.local_addr().expect("an address"))));
        let stranger = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        assert!(accept_from(stranger.as_fd()).is_err(), "a socket that cannot listen has no connections");
    }

    #[test]
    fn connecting_is_asked_for_until_it_has_succeeded_or_failed() {
        // An address of its own, so that no other test gets the port when nobody listens any more.
        let listener = TcpListener::bind("127.0.0.6:0").expect("a listener");
        let address = Address::Inet(listener.local_addr().expect("an address"));
        let socket = || crate::net::make(libc::AF_INET).expect("a socket");
        let until_known = |fd: BorrowedFd<'_>| {
            loop {
                match connect_to(fd, &address) {
                    Ok(false) => std::thread::yield_now(),
                    known => return known,
                }
            }
        };
        assert!(until_known(socket().as_fd()).expect("connected"));
        drop(listener);
        // A child that another test has just forked may still hold the listener.
        let deadline = Instant::now() + Duration::from_secs(10);
        let refused = loop {
            match until_known(socket().as_fd()) {
                Ok(_) => assert!(Instant::now() < deadline, "somebody still listens"),
                Err(refused) => break refused,
            }
        };
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_listener_with_a_full_queue_is_an_error_that_is_final() {
        let folder = std::env::temp_dir().join(format!("ropewalk-given-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("socket");
        let listener = UnixListener::bind(&path).expect("a listener");
        let address = Address::Unix(UnixName::Path(path));
        let mut clients = Vec::new();
        let full = loop {
            let client = crate::net::make(libc::AF_UNIX).expect("a socket");
            match connect_to(client.as_fd(), &address) {
                Ok(connected) => assert!(connected),
                Err(error) => break error,
            }
            clients.push(client);
        };
        assert_eq!(full.raw_os_error(), Some(libc::EAGAIN));
        drop(listener);
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn a_message_comes_with_the_address_of_its_sender() {
        let (a, b) =
            (UdpSocket::bind("127.0.0.1:0").expect("one"), UdpSocket::bind("127.0.0.1:0").expect("two"));
        let address = |socket: &UdpSocket| Address::Inet(socket.local_addr().expect("an address"));
        let mut buffer = [0; 16];
        let mut take = |fd: BorrowedFd<'_>| {
            // SAFETY: as much as the buffer has.
            unsafe { recv_from(fd, buffer.as_mut_ptr(), buffer.len()) }
        };
        assert_eq!(take(b.as_fd()).expect_err("nothing yet").kind(), io::ErrorKind::WouldBlock);
        assert_eq!(send_to(a.as_fd(), b"hello", &address(&b)).expect("sent"), 5);
        assert_eq!(take(b.as_fd()).expect("received"), (5, Some(address(&a))));
        let (c, d) = UnixDatagram::pair().expect("a pair");
        c.send(b"nobody").expect("sent");
        assert_eq!(take(d.as_fd()).expect("received"), (6, None), "a sender without a name");
    }
}
