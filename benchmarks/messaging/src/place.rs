//! Where threads run, and how many files they may open.

use std::mem::MaybeUninit;
use std::thread::{self, JoinHandle};

use crate::plan::Place;
use crate::{Outcome, Peer};

/// Which of the two ends.
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "they say it")]
pub enum Side {
    Client,
    Server,
}

/// The cores that this process may use.
fn cores() -> Outcome<Vec<usize>> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: the set is large enough for the size given, and all zeros is a set.
    let done = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr()) };
    if done != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: it was zeroed, and then filled.
    let set = unsafe { set.assume_init() };
    // SAFETY: the numbers are below the set's size.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect())
}

/// Pins this thread, and those that it starts, as the plan says.
///
/// # Errors
/// There is only one core, or the system refuses.
pub fn settle(place: Place, side: Side) -> Outcome<()> {
    let cores = cores()?;
    let core = match (place, side) {
        (Place::Free, _) => return Ok(()),
        (Place::One, _) | (Place::Two, Side::Client) => cores[0],
        (Place::Two, Side::Server) => *cores.get(1).ok_or("there is only one core")?,
    };
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: all zeros is a set, and the number is one of a core that the system named.
    unsafe { libc::CPU_SET(core, &mut *set.as_mut_ptr()) };
    // SAFETY: the set lives through the call and has the size given.
    let done = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set.as_ptr()) };
    if done != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(())
}

/// Starts the other end's thread, in its place.
pub(crate) fn beside<P: Peer, T: Send + 'static>(
    place: Place,
    work: impl AsyncFnOnce() -> Outcome<T> + Send + 'static,
) -> JoinHandle<Outcome<T>> {
    thread::spawn(move || {
        settle(place, Side::Server)?;
        P::drive(work())
    })
}

/// The value of a thread that [`beside`] started.
pub(crate) fn ended<T>(thread: JoinHandle<Outcome<T>>) -> Outcome<T> {
    thread.join().map_err(|_| "the other end panicked")?
}

/// Raises the limit of open files to what the process may have: a contest has up to some thousand
/// connections.
///
/// # Errors
/// The system refuses.
pub fn allow_many_files() -> Outcome<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a limit of this frame.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    limit.rlim_cur = limit.rlim_max.min(1 << 16);
    // SAFETY: as above, and it is only read.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(())
}
