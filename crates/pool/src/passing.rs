//! The messages of a worker's own socket: segments' descriptors, and notices that one is needed no more.
//!
//! Both go by the same socket, so that they arrive in the order in which they were sent. By the rings they would not:
//! a worker has one for each lane, and one lane may read on while another waits.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ropewalk_base::{Code, Error, Result, ResultExt, error};
use ropewalk_os::socket;
use ropewalk_shm::memory::{Arena, Segment};

const MESSAGE: usize = 32;
/// The segment whose descriptor comes along, for as long as the sender keeps it.
const LENT: u32 = 1;
/// The same, and the receiver is its owner from now on.
const GIVEN: u32 = 2;
/// The receiver need not keep this segment any longer.
const FORGET: u32 = 3;

/// One message, read and checked.
#[derive(Debug)]
pub(crate) enum Passed {
    /// A segment, mapped.
    Segment(Arc<Segment>),
    /// The segment with this number came, and this process could not take it in.
    Lost(u64, Error),
    /// The segment with this number is needed no more.
    Forget(u64),
}

/// The result of sending a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Sent {
    Yes,
    /// The socket takes no more now, or its other end is gone.
    No,
}

fn message(op: u32, id: u64, generation: u64, size: u64) -> [u8; MESSAGE] {
    let mut out = [0; MESSAGE];
    out[..4].copy_from_slice(&op.to_le_bytes());
    for (at, field) in [(8, id), (16, generation), (24, size)] {
        out[at..at + 8].copy_from_slice(&field.to_le_bytes());
    }
    out
}

fn segment_message(segment: &Segment, given: bool) -> [u8; MESSAGE] {
    message(if given { GIVEN } else { LENT }, segment.id(), segment.generation(), segment.size())
}

/// Passes a segment, blocking while the socket is full. With `given` the receiver becomes its owner.
pub(crate) fn pass(socket: BorrowedFd<'_>, segment: &Segment, given: bool) -> Result<()> {
    let Some(fd) = segment.fd() else {
        return Err(error!(Code::OutOfDescriptors, "a segment has no descriptor that could be passed on"));
    };
    socket::send(socket, &[&segment_message(segment, given)], &[fd], true)
        .context("could not pass a segment's descriptor to another process")
}

/// Lends a segment, if the socket takes it now.
pub(crate) fn try_lend(socket: BorrowedFd<'_>, segment: &Segment) -> Sent {
    // Only segments with a descriptor are lent.
    let Some(fd) = segment.fd() else { return Sent::No };
    match socket::send(socket, &[&segment_message(segment, false)], &[fd], false) {
        Ok(()) => Sent::Yes,
        Err(_) => Sent::No,
    }
}

/// Says that a segment is needed no more, if the socket takes it now.
pub(crate) fn try_forget(socket: BorrowedFd<'_>, id: u64) -> Sent {
    match socket::send(socket, &[&message(FORGET, id, 0, 0)], &[], false) {
        Ok(()) => Sent::Yes,
        Err(_) => Sent::No,
    }
}

/// Reads one message; `Ok(None)` when there is none yet, or the peer is gone. A segment that is given away goes to
/// `arena` in the end, if there is one. Without an arena the generation is checked when a handle is used.
///
/// # Errors
///
/// `Code::SharedMemoryCorrupt` for a message that an honest peer does not send.
pub(crate) fn receive(socket: &OwnedFd, arena: Option<&Arc<Arena>>) -> Result<Option<Passed>> {
    let mut bytes = [0; MESSAGE];
    let mut fds = Vec::new();
    let malformed = || error!(Code::SharedMemoryCorrupt, "a segment's message is malformed");
    let got = match socket::recv_packet(socket.as_fd(), &mut bytes, &mut fds, false) {
        Ok(got) => got,
        Err(e) if e.kind() == std::io::ErrorKind::InvalidData => return Err(malformed()),
        Err(e)
            if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::ConnectionReset) =>
        {
            return Ok(None);
        }
        Err(e) => return Err(e).context("could not receive a segment"),
    };
    if got.bytes == 0 && fds.is_empty() && !got.cut_off {
        return Ok(None);
    }
    if got.bytes != MESSAGE {
        return Err(malformed());
    }
    let field =
        |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
    let (id, generation) = (field(8), field(16));
    let op = bytes.first_chunk().copied().map_or(0, u32::from_le_bytes);
    match op {
        FORGET if fds.is_empty() && !got.cut_off => Ok(Some(Passed::Forget(id))),
        LENT | GIVEN if got.cut_off => Ok(Some(Passed::Lost(id, no_descriptors()))),
        LENT | GIVEN => {
            let Some(fd) = fds.pop().filter(|_| fds.is_empty()) else { return Err(malformed()) };
            let taken = match arena {
                Some(arena) if op == GIVEN => Segment::adopt(fd, id, generation, arena),
                Some(_) => Segment::attach(fd, id, generation),
                None => Segment::attach_any(fd, id),
            };
            match taken {
                Ok(segment) => Ok(Some(Passed::Segment(segment))),
                // The address space, or the limit of mappings: the peer has done nothing wrong.
                Err(error) if !matches!(error.code(), Code::SharedMemoryCorrupt | Code::StaleHandle) => {
                    Ok(Some(Passed::Lost(id, error)))
                }
                Err(error) => Err(error),
            }
        }
        _ => Err(malformed()),
    }
}

/// The kernel leaves out descriptors for which the receiver has no number left, and says no more than that.
fn no_descriptors() -> Error {
    let limit =
        ropewalk_os::limits::open_files().map_or_else(String::new, |limit| format!(", which is {limit}"));
    error!(
        Code::OutOfDescriptors,
        "a descriptor of shared memory did not fit into process {}: the limit of open files (RLIMIT_NOFILE{limit}) \
         is reached",
        ropewalk_os::process::current_pid(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment() -> Arc<Segment> {
        Segment::create(64, true).expect("a segment").publish(None)
    }

    fn pair() -> (OwnedFd, OwnedFd) {
        socket::seqpacket_pair().expect("a pair")
    }

    #[test]
    fn messages_arrive_in_the_order_in_which_they_were_sent() {
        let (ours, theirs) = pair();
        assert!(matches!(receive(&theirs, None), Ok(None)));
        let (one, other) = (segment(), segment());
        assert_eq!(try_lend(ours.as_fd(), &one), Sent::Yes);
        assert_eq!(try_forget(ours.as_fd(), one.id()), Sent::Yes);
        pass(ours.as_fd(), &other, false).expect("passed");
        let next = || receive(&theirs, None).expect("sound").expect("a message");
        assert!(matches!(next(), Passed::Segment(found) if found.id() == one.id()));
        assert!(matches!(next(), Passed::Forget(id) if id == one.id()));
        assert!(matches!(next(), Passed::Segment(found) if found.id() == other.id()));
        assert!(matches!(receive(&theirs, None), Ok(None)));
        drop(ours);
        assert!(matches!(receive(&theirs, None), Ok(None)), "whoever is gone says nothing");
        assert_eq!(try_forget(theirs.as_fd(), 1), Sent::No);
        assert_eq!(try_lend(theirs.as_fd(), &one), Sent::No);
        assert!(pass(theirs.as_fd(), &one, false).is_err());
    }

    #[test]
    fn a_socket_that_takes_no_more_says_so() {
        let (ours, _theirs) = pair();
        let sent = (0..100_000).take_while(|id| try_forget(ours.as_fd(), *id) == Sent::Yes).count();
        assert!((1..100_000).contains(&sent), "{sent}");
    }

    #[test]
    fn a_message_that_nobody_honest_sends_is_refused() {
        let one = segment();
        let fd = one.fd().expect("open");
        let good = segment_message(&one, false);
        let long: Vec<u8> = good.iter().copied().chain([0; 1000]).collect();
        let none: [BorrowedFd<'_>; 0] = [];
        for (what, bytes, fds) in [
            ("too short", &good[..MESSAGE - 1], &[fd][..]),
            ("too long by one", &long[..=MESSAGE], &[fd][..]),
            ("much too long", &long[..], &[fd][..]),
            ("without a descriptor", &good[..], &none[..]),
            ("with two", &good[..], &[fd, fd][..]),
            ("a descriptor to forget", &message(FORGET, 1, 0, 0)[..], &[fd][..]),
            ("of no kind", &message(0, 1, 0, 0)[..], &none[..]),
            ("of an unknown kind", &message(9, 1, 0, 0)[..], &[fd][..]),
        ] {
            let (ours, theirs) = pair();
            socket::send(ours.as_fd(), &[bytes], fds, true).expect("sent");
            let error = receive(&theirs, None).expect_err(what);
            assert_eq!(error.code(), Code::SharedMemoryCorrupt, "{what}");
        }
        // The descriptor is that of another segment than was said.
        let (ours, theirs) = pair();
        socket::send(ours.as_fd(), &[&message(LENT, one.id() ^ 2, 1, 64)], &[fd], true).expect("sent");
        assert_eq!(receive(&theirs, None).expect_err("another").code(), Code::SharedMemoryCorrupt);
    }

    #[test]
    fn who_gets_a_segment_with_an_arena_looks_at_its_generation() {
        let arena = Arena::new(ropewalk_shm::memory::ArenaConfig { keep: 0 });
        let one = segment();
        for op in [LENT, GIVEN] {
            for (generation, good) in [(one.generation(), true), (one.generation() + 1, false)] {
                let (ours, theirs) = pair();
                let bytes = message(op, one.id(), generation, one.size());
                socket::send(ours.as_fd(), &[&bytes], &[one.fd().expect("open")], true).expect("sent");
                let got = receive(&theirs, Some(&arena));
                assert_eq!(matches!(got, Ok(Some(Passed::Segment(_)))), good, "{op} {generation}");
            }
        }
    }
}
