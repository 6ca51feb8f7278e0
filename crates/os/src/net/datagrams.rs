//! Datagrams, as many as there are with one system call, without waiting.
//!
//! Source: recvmmsg(2), sendmmsg(2), sendto(2).

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::address::{Address, Raw, Room};
use crate::call::{check, retry};

/// The most datagrams that one call sends.
pub const MOST_SENT: usize = 32;
/// The most datagrams that one call receives, and the memory for them, of which the kernel touches what it fills.
const MOST: usize = 32;
const MEMORY: usize = 2 << 20;

/// An address as the kernel reads and writes it.
#[derive(Clone, Copy)]
pub struct Name {
    storage: libc::sockaddr_storage,
    length: libc::socklen_t,
}

impl Name {
    /// The name of an address.
    ///
    /// # Errors
    ///
    /// If a name within this host is empty or too long.
    pub fn of(address: &Address) -> io::Result<Self> {
        Raw::try_from(address).map(|raw| Self { storage: raw.storage(), length: raw.length() })
    }

    /// The address; `None` if the kernel gave none.
    ///
    /// # Errors
    ///
    /// `EAFNOSUPPORT` if it is of another family than those of [`Address`].
    pub fn address(&self) -> io::Result<Option<Address>> {
        Room::with(self.storage, self.length).read()
    }

    /// The bytes that the kernel reads.
    pub fn bytes(&self) -> &[u8] {
        let length = (self.length as usize).min(size_of::<libc::sockaddr_storage>());
        // SAFETY: the beginning of the storage, all of which was written.
        unsafe { std::slice::from_raw_parts((&raw const self.storage).cast(), length) }
    }
}

/// Memory to receive into, for one socket at a time.
pub struct Receiver {
    memory: Vec<u8>,
    names: [libc::sockaddr_storage; MOST],
    pieces: [libc::iovec; MOST],
    headers: [libc::mmsghdr; MOST],
    /// The longest datagram of the last call.
    longest: usize,
}

// SAFETY: its pointers lead into itself and into its own memory.
unsafe impl Send for Receiver {}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver").field("longest", &self.longest).finish_non_exhaustive()
    }
}

impl Receiver {
    /// In a box, because its parts point at each other.
    pub fn new() -> Box<Self> {
        // SAFETY: zeros are addresses of no family, empty pieces and empty headers.
        let (names, pieces, headers) = unsafe { (zeroed(), zeroed(), zeroed()) };
        Box::new(Self { memory: Vec::with_capacity(MEMORY), names, pieces, headers, longest: 0 })
    }

    /// Receives datagrams of at most `longest` bytes, which is at most 2 MiB; the rest of a longer one is lost. Returns
    /// how many there are, and whether there may be more.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none; what the kernel reports of datagrams that were sent.
    pub fn receive(&mut self, fd: BorrowedFd<'_>, longest: usize) -> io::Result<(usize, bool)> {
        let longest = longest.clamp(1, MEMORY);
        let most = (MEMORY / longest).min(MOST);
        if longest != self.longest {
            self.longest = longest;
            for at in 0..most {
                // SAFETY: `most` times `longest` bytes are within the capacity.
                self.pieces[at].iov_base = unsafe { self.memory.as_mut_ptr().add(at * longest) }.cast();
                self.pieces[at].iov_len = longest;
            }
        }
        for at in 0..most {
            let header = &mut self.headers[at].msg_hdr;
            header.msg_name = (&raw mut self.names[at]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_iov = &raw mut self.pieces[at];
            header.msg_iovlen = 1;
        }
        let headers = self.headers.as_mut_ptr();
        let got = retry(|| {
            // SAFETY: `most` headers, whose names and pieces are live memory of this batch.
            check(unsafe {
                libc::recvmmsg(
                    fd.as_raw_fd(),
                    headers,
                    most as libc::c_uint,
                    libc::MSG_DONTWAIT as _,
                    std::ptr::null_mut(),
                )
            })
        })?;
        let got = usize::try_from(got).unwrap_or(0);
        Ok((got, got == most))
    }

    /// One of the datagrams that the last call has received, and its sender.
    pub fn datagram(&self, at: usize) -> (&[u8], Name) {
        let (header, piece) = (&self.headers[at], &self.pieces[at]);
        let length = (header.msg_len as usize).min(piece.iov_len);
        // SAFETY: the kernel has written so many bytes there.
        let bytes = unsafe { std::slice::from_raw_parts(piece.iov_base.cast(), length) };
        (bytes, Name { storage: self.names[at], length: header.msg_hdr.msg_namelen })
    }
}

/// Sends a datagram, to the socket's peer if there is no name.
///
/// # Errors
///
/// `WouldBlock` if there is no room; what the kernel says of the datagram, of the name, or of earlier datagrams.
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8], to: Option<&Name>) -> io::Result<()> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let (name, length) =
        to.map_or((std::ptr::null(), 0), |name| ((&raw const name.storage).cast(), name.length));
    retry(|| {
        // SAFETY: live bytes and a live address or none, with their lengths.
        let sent =
            unsafe { libc::sendto(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags, name, length) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    })
}

/// Sends datagrams, of which it takes at most [`MOST_SENT`]. Returns how many it has sent; none if there are none.
///
/// # Errors
///
/// As [`send`], of the first datagram.
pub fn send_many<'a>(
    fd: BorrowedFd<'_>,
    datagrams: impl Iterator<Item = (&'a [u8], Option<&'a Name>)>,
) -> io::Result<usize> {
    // SAFETY: zeros are empty pieces and empty headers.
    let (mut pieces, mut headers): ([libc::iovec; MOST_SENT], [libc::mmsghdr; MOST_SENT]) =
        unsafe { (zeroed(), zeroed()) };
    let mut count = 0;
    for (at, (bytes, to)) in datagrams.take(MOST_SENT).enumerate() {
        count = at + 1;
        pieces[at] = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let header = &mut headers[at].msg_hdr;
        header.msg_iov = &raw mut pieces[at];
        header.msg_iovlen = 1;
        if let Some(name) = to {
            header.msg_name = (&raw const name.storage).cast_mut().cast();
            header.msg_namelen = name.length;
        }
    }
    if count == 0 {
        return Ok(0);
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    retry(|| {
        // SAFETY: `count` headers, whose names and pieces are live; the call writes none but the headers.
        let sent = check(unsafe {
            libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count as libc::c_uint, flags as _)
        })?;
        Ok(usize::try_from(sent).unwrap_or(0))
    })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    fn socket() -> (UdpSocket, Address) {
        let made = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let address = Address::Inet(made.local_addr().expect("an address"));
        (made, address)
    }

    #[test]
    fn datagrams_keep_their_borders_and_their_senders() {
        let ((a, from), (b, to)) = (socket(), socket());
        let mut batch = Receiver::new();
        let empty = batch.receive(b.as_fd(), 100).expect_err("nothing yet");
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
        let name = Name::of(&to).expect("a name");
        assert_eq!(name.address().expect("known"), Some(to));
        let sent: Vec<Vec<u8>> = (0..40).map(|number| vec![number; usize::from(number)]).collect();
        let all = sent.iter().map(|bytes| (bytes.as_slice(), Some(&name)));
        assert_eq!(send_many(a.as_fd(), all.clone()).expect("sent"), MOST_SENT);
        assert_eq!(send_many(a.as_fd(), all.skip(MOST_SENT)).expect("sent"), 8);
        assert_eq!(send_many(a.as_fd(), std::iter::empty()).expect("none"), 0);
        send(a.as_fd(), b"one more", Some(&name)).expect("sent");
        let mut received = Vec::new();
        loop {
            let (got, more) = batch.receive(b.as_fd(), 100).expect("received");
            for at in 0..got {
                let (bytes, name) = batch.datagram(at);
                assert_eq!(name.address().expect("known").as_ref(), Some(&from));
                received.push(bytes.to_vec());
            }
            assert_eq!(more, got == MOST);
            if !more {
                break;
            }
        }
        assert_eq!(received[..40], sent);
        assert_eq!(received[40], b"one more");
    }

    #[test]
    fn what_is_too_long_is_cut_and_a_peer_needs_no_name() {
        let (a, b) = UnixDatagram::pair().expect("a pair");
        let mut batch = Receiver::new();
        send(a.as_fd(), &[7; 100], None).expect("sent");
        let two: [(&[u8], _); 2] = [(b"x", None), (b"", None)];
        assert_eq!(send_many(a.as_fd(), two.into_iter()).expect("sent"), 2);
        assert_eq!(batch.receive(b.as_fd(), 10).expect("received"), (3, false));
        assert_eq!(batch.datagram(0).0, [7; 10]);
        assert_eq!(batch.datagram(1).0, b"x");
        let (bytes, name) = batch.datagram(2);
        assert!(bytes.is_empty() && name.bytes().is_empty());
        assert_eq!(name.address().expect("none"), None);
        drop(b);
        assert!(send(a.as_fd(), b"x", None).is_err());
    }
}
