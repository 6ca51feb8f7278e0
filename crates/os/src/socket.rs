//! Packets between processes, with descriptors in them.
//!
//! Source: unix(7), cmsg(3).

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::call::{check, retry};

/// The most descriptors that one packet can carry; the kernel's own limit is 253.
pub const MOST_FDS: usize = 220;
const CONTROL: usize = 1024;

#[repr(C, align(8))]
struct Control([u8; CONTROL]);

/// A connected pair of packet sockets, closed on exec.
///
/// # Errors
///
/// When the process is out of descriptors.
pub fn seqpacket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds: [RawFd; 2] = [-1; 2];
    // SAFETY: room for two descriptors; both are fresh and owned by no other code.
    unsafe {
        check(libc::socketpair(
            libc::AF_UNIX,
            libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC,
            0,
            fds.as_mut_ptr(),
        ))?;
        Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])))
    }
}

/// Sends one packet made of `parts`, with descriptors.
///
/// # Errors
///
/// `WouldBlock` if it may not block and would, `BrokenPipe` if the peer is gone, `InvalidInput` for too many
/// descriptors.
pub fn send(fd: BorrowedFd<'_>, parts: &[&[u8]], fds: &[BorrowedFd<'_>], blocking: bool) -> io::Result<()> {
    if fds.len() > MOST_FDS {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one packet"));
    }
    let mut vectors: Vec<libc::iovec> = parts
        .iter()
        .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() })
        .collect();
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let bytes = size_of::<RawFd>() * raw.len();
    let mut control = Control([0; CONTROL]);
    // SAFETY: the header points to live vectors and to a control buffer that is aligned and large enough for
    // MOST_FDS descriptors; CMSG_FIRSTHDR and CMSG_DATA stay inside it.
    let header = unsafe {
        let mut header: libc::msghdr = zeroed();
        header.msg_iov = vectors.as_mut_ptr();
        header.msg_iovlen = vectors.len() as _;
        if !raw.is_empty() {
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(bytes as u32) as _;
            let message = libc::CMSG_FIRSTHDR(&raw const header);
            (*message).cmsg_level = libc::SOL_SOCKET;
            (*message).cmsg_type = libc::SCM_RIGHTS;
            (*message).cmsg_len = libc::CMSG_LEN(bytes as u32) as _;
            std::ptr::copy_nonoverlapping(raw.as_ptr().cast::<u8>(), libc::CMSG_DATA(message), bytes);
        }
        header
    };
    let flags = libc::MSG_NOSIGNAL | if blocking { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: as above; the header lives until the call returns.
    retry(|| unsafe { check(libc::sendmsg(fd.as_raw_fd(), &raw const header, flags) as libc::c_int) })
        .map(drop)
}

/// A packet that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its length; 0 at the end of the connection.
    pub bytes: usize,
    /// The packet carried descriptors that this process could not take, because it is at its limit of descriptors.
    pub cut_off: bool,
}

/// Receives one packet: its bytes into `buffer`, its descriptors, closed on exec, onto `fds`. 0 is the end.
///
/// # Errors
///
/// `WouldBlock` if it may not block and there is nothing; `InvalidData` for a packet that is longer than the buffer;
/// the rest of the packet is lost. A stream keeps what does not fit.
pub fn recv(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    blocking: bool,
) -> io::Result<usize> {
    recv_packet(fd, buffer, fds, blocking).map(|received| received.bytes)
}

/// As [`recv`]; also reports whether the kernel had to leave descriptors out.
///
/// # Errors
///
/// As [`recv`].
pub fn recv_packet(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    blocking: bool,
) -> io::Result<Received> {
    let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = Control([0; CONTROL]);
    // SAFETY: the header points to a live vector and a live control buffer.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL as _;
    let flags = libc::MSG_CMSG_CLOEXEC | if blocking { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: as above.
    let got =
        retry(|| unsafe { check(libc::recvmsg(fd.as_raw_fd(), &raw mut header, flags) as libc::c_int) })?;
    // The kernel cuts a packet to the buffer and sets a flag. Its descriptors are taken all the same, so that they can
    // be closed.
    let too_long = header.msg_flags & libc::MSG_TRUNC != 0;
    // SAFETY: the kernel has filled the control buffer; the macros walk it within msg_controllen, and every descriptor
    // in it is fresh and owned by no other code.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(&raw const header);
        while !message.is_null() {
            if (*message).cmsg_level == libc::SOL_SOCKET && (*message).cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(message);
                let bytes = (*message).cmsg_len as usize - (data as usize - message as usize);
                for at in 0..bytes / size_of::<RawFd>() {
                    let raw = std::ptr::read_unaligned(data.cast::<RawFd>().add(at));
                    fds.push(OwnedFd::from_raw_fd(raw));
                }
            }
            message = libc::CMSG_NXTHDR(&raw const header, message);
        }
    }
    if too_long {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a packet is longer than any that is expected",
        ));
    }
    // The buffer has room for as many as one packet can carry, so the cause is the process's limit of descriptors.
    let cut_off = header.msg_flags & libc::MSG_CTRUNC != 0;
    Ok(Received { bytes: usize::try_from(got).unwrap_or(0), cut_off })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::eventfd::EventFd;

    #[test]
    fn bytes_and_descriptors_arrive() {
        let (a, b) = seqpacket_pair().expect("a pair");
        let event = EventFd::new().expect("an eventfd");
        send(a.as_fd(), &[b"he", b"llo"], &[event.as_fd(), event.as_fd()], false).expect("sent");
        let mut buffer = [0; 64];
        let mut fds = Vec::new();
        assert_eq!(recv(b.as_fd(), &mut buffer, &mut fds, false).expect("received"), 5);
        assert_eq!((&buffer[..5], fds.len()), (&b"hello"[..], 2));
        EventFd::from_owned(fds.remove(0)).signal();
        assert_eq!(event.drain(), 1);
        let nothing = recv(b.as_fd(), &mut buffer, &mut fds, false).expect_err("nothing more");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        drop(a);
        assert_eq!(recv(b.as_fd(), &mut buffer, &mut fds, false).expect("the end"), 0);
    }

    #[test]
    fn a_packet_that_is_longer_than_the_buffer_is_an_error() {
        let (a, b) = seqpacket_pair().expect("a pair");
        let event = EventFd::new().expect("an eventfd");
        let (mut buffer, mut fds) = ([0; 4], Vec::new());
        for (long, packet) in [(false, &b"four"[..]), (true, b"fours"), (true, &[0; 5000]), (false, b"abc")] {
            send(a.as_fd(), &[packet], &[event.as_fd()], false).expect("sent");
            let got = recv(b.as_fd(), &mut buffer, &mut fds, false);
            match got {
                Ok(got) => assert_eq!((got, long), (packet.len(), false)),
                Err(error) => assert_eq!((error.kind(), long), (io::ErrorKind::InvalidData, true)),
            }
            assert_eq!(fds.drain(..).count(), 1, "its descriptors are the receiver's to close");
        }
        let nothing = recv(b.as_fd(), &mut buffer, &mut fds, false).expect_err("nothing more");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }
}
