//! A flag in memory that the kernel raises when a descriptor becomes readable, so that looking costs no system call.
//!
//! The kernel completes one poll in a small io_uring. The completion comes as work of the thread that armed the flag,
//! and the kernel does that work when the thread next returns to user mode, from a system call or from an interrupt. So
//! a thread that made the descriptor readable by a system call of its own sees the flag raised when the call returns.
//!
//! Source: io_uring_setup(2), io_uring_enter(2).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::call::{check, retry};
use crate::mmap::Mapping;

/// See the module. It belongs to the thread that arms it: other threads may drop it, and do nothing else with it.
#[derive(Debug)]
pub struct ReadyFlag {
    /// The descriptor of the ring.
    ring: OwnedFd,
    /// Both queues, with their heads and tails.
    queues: Mapping,
    /// The one entry of the submission queue.
    entry: Mapping,
    places: Places,
    /// The number of completions that were seen.
    seen: u32,
}

/// Where the parts of the queues stand, in bytes from their start. The kernel writes both of `completion_tail` and
/// `submission_head`, this process the others.
#[derive(Clone, Copy, Debug)]
struct Places {
    submission_tail: usize,
    submission_slots: usize,
    completion_head: usize,
    completion_tail: usize,
}

/// `struct io_uring_params`.
#[repr(C)]
#[derive(Default)]
struct Parameters {
    submissions: u32,
    completions: u32,
    flags: u32,
    thread_cpu: u32,
    thread_idle: u32,
    features: u32,
    workers: u32,
    reserved: [u32; 3],
    submission: Offsets,
    completion: Offsets,
}

/// `struct io_sqring_offsets`, and `struct io_cqring_offsets`, which differ after the first four.
#[repr(C)]
#[derive(Default)]
struct Offsets {
    head: u32,
    tail: u32,
    mask: u32,
    entries: u32,
    flags_or_overflow: u32,
    dropped_or_entries: u32,
    slots_or_flags: u32,
    reserved: u32,
    address: u64,
}

/// `struct io_uring_sqe`, as far as a poll uses it.
#[repr(C)]
struct Submission {
    operation: u8,
    flags: u8,
    priority: u16,
    fd: i32,
    offset: u64,
    address: u64,
    length: u32,
    events: u32,
    user_data: u64,
    rest: [u64; 3],
}

const _: () = assert!(size_of::<Parameters>() == 120 && size_of::<Submission>() == 64);

/// `IORING_OP_POLL_ADD`.
const POLL: u8 = 6;
/// `IORING_FEAT_SINGLE_MMAP`, and `IORING_FEAT_FAST_POLL`: from Linux 5.7 on, polls complete in the thread that made
/// them.
const NEEDED: u32 = 1 | 1 << 5;
/// `IORING_OFF_SQES`.
const ENTRIES_AT: usize = 0x1000_0000;
/// `struct io_uring_cqe`.
const COMPLETION: usize = 16;

impl ReadyFlag {
    /// A flag that is not armed.
    ///
    /// # Errors
    ///
    /// `Unsupported` on a kernel before 5.7, `PermissionDenied` and others where a sandbox or the administrator forbids
    /// io_uring; when the process is out of descriptors.
    pub fn new() -> io::Result<Self> {
        let mut parameters = Parameters::default();
        // SAFETY: zeroed parameters, which the kernel fills; the result is a fresh descriptor that no other code owns,
        // closed on exec.
        let ring = unsafe {
            let made = libc::syscall(libc::SYS_io_uring_setup, 1, &raw mut parameters);
            OwnedFd::from_raw_fd(check(made as libc::c_int)?)
        };
        if parameters.features & NEEDED != NEEDED {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let (submission, completion) = (&parameters.submission, &parameters.completion);
        let slots_end =
            submission.slots_or_flags as usize + parameters.submissions as usize * size_of::<u32>();
        // Of completions the fifth and the sixth offset are the overflow counter and the entries.
        let entries_end =
            completion.dropped_or_entries as usize + parameters.completions as usize * COMPLETION;
        let queues = Mapping::map_at(ring.as_fd(), 0, slots_end.max(entries_end))?;
        let entry = Mapping::map_at(ring.as_fd(), ENTRIES_AT, size_of::<Submission>())?;
        let places = Places {
            submission_tail: submission.tail as usize,
            submission_slots: submission.slots_or_flags as usize,
            completion_head: completion.head as usize,
            completion_tail: completion.tail as usize,
        };
        Ok(Self { ring, queues, entry, places, seen: 0 })
    }

    /// A word of the queues.
    fn word(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at + size_of::<u32>() <= self.queues.len());
        // SAFETY: the kernel gave the offset of an aligned word in the mapping, which lives as long as the flag. Both
        // sides access it atomically.
        unsafe { AtomicU32::from_ptr(self.queues.as_ptr().add(at).cast()) }
    }

    /// Has the kernel raise the flag once, when the descriptor is readable; at once if it is so already. The flag is
    /// not armed now.
    ///
    /// # Errors
    ///
    /// When the kernel is out of memory.
    pub fn arm(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let submission = Submission {
            operation: POLL,
            flags: 0,
            priority: 0,
            fd: fd.as_raw_fd(),
            offset: 0,
            address: 0,
            length: 0,
            events: libc::POLLIN as u32,
            user_data: 0,
            rest: [0; 3],
        };
        // SAFETY: the mapping is of one entry, which the kernel has taken over or never seen: it reads it in the call
        // below and not after.
        unsafe { self.entry.as_ptr().cast::<Submission>().write(submission) };
        self.word(self.places.submission_slots).store(0, Ordering::Relaxed);
        let tail = self.word(self.places.submission_tail);
        let before = tail.load(Ordering::Relaxed);
        tail.store(before.wrapping_add(1), Ordering::Release);
        let submitted = retry(|| {
            let nothing = std::ptr::null::<libc::c_void>();
            // SAFETY: the ring of this flag, one entry in its queue, and no signal mask.
            let submitted = unsafe {
                libc::syscall(libc::SYS_io_uring_enter, self.ring.as_raw_fd(), 1, 0, 0, nothing, 0)
            };
            check(submitted as libc::c_int)
        });
        match submitted {
            Ok(1) => Ok(()),
            other => {
                // The kernel has not taken it; the next call begins anew.
                self.word(self.places.submission_tail).store(before, Ordering::Release);
                Err(other.err().unwrap_or_else(|| io::ErrorKind::WouldBlock.into()))
            }
        }
    }

    /// Whether the kernel has raised the flag since it was armed. An armed flag that is raised is not armed any more.
    #[inline]
    pub fn is_raised(&mut self) -> bool {
        let tail = self.word(self.places.completion_tail).load(Ordering::Acquire);
        if tail == self.seen {
            return false;
        }
        self.seen = tail;
        // The completions themselves tell nothing more: an error ends the poll, too.
        self.word(self.places.completion_head).store(tail, Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::epoll::{Epoll, Interest};
    use crate::eventfd::EventFd;

    fn raised_in_time(flag: &mut ReadyFlag) -> bool {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(10) {
            if flag.is_raised() {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    #[test]
    fn it_is_raised_once_for_each_arming() {
        // A sandbox may forbid io_uring.
        let Ok(mut flag) = ReadyFlag::new() else { return };
        let (set, event) = (Epoll::new().expect("a set"), EventFd::new().expect("a descriptor"));
        set.add(event.as_fd(), 7, Interest::READ | Interest::EDGE).expect("added");
        let mut events = Vec::new();
        for _ in 0..10 {
            flag.arm(set.as_fd()).expect("armed");
            assert!(!flag.is_raised());
            event.signal();
            // The call was this thread's own, so its return has raised the flag.
            assert!(flag.is_raised());
            event.signal();
            assert!(!flag.is_raised());
            set.wait(&mut events, Some(Duration::ZERO)).expect("waited");
            assert_eq!(events.len(), 1);
        }
    }

    #[test]
    fn it_is_raised_for_what_is_ready_and_by_other_threads() {
        let Ok(mut flag) = ReadyFlag::new() else { return };
        let (set, event) = (Epoll::new().expect("a set"), EventFd::new().expect("a descriptor"));
        event.signal();
        set.add(event.as_fd(), 7, Interest::READ).expect("added");
        flag.arm(set.as_fd()).expect("armed");
        assert!(raised_in_time(&mut flag));
        event.drain();
        flag.arm(set.as_fd()).expect("armed");
        assert!(!flag.is_raised());
        std::thread::scope(|scope| {
            scope.spawn(|| event.signal());
            assert!(raised_in_time(&mut flag));
        });
        // A descriptor that is added while the flag is armed raises it, too.
        let other = EventFd::new().expect("a descriptor");
        other.signal();
        event.drain();
        flag.arm(set.as_fd()).expect("armed");
        set.add(other.as_fd(), 8, Interest::READ).expect("added");
        assert!(raised_in_time(&mut flag));
    }
}
