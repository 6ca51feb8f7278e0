//! This process, its children, and what a fork does to it.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::call::check;

static FORKS: AtomicU64 = AtomicU64::new(0);
static CHILDREN: AtomicU64 = AtomicU64::new(0);

extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn count_child() {
    CHILDREN.fetch_add(1, Ordering::Relaxed);
}

fn watch_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handlers are async-signal-safe: one atomic add.
        unsafe { libc::pthread_atfork(Some(count_child), Some(count_child), Some(count_fork)) };
    });
}

/// The user that this process acts as.
pub fn user() -> u32 {
    // SAFETY: the call cannot fail.
    unsafe { libc::geteuid() }
}

/// A random number.
pub fn random() -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: so many bytes may be written there. Fewer than 256 come at once.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got == bytes.len() as isize {
        return u64::from_ne_bytes(bytes);
    }
    // A sandbox without the call: what differs between processes and moments.
    crate::clock::monotonic_nanos() ^ u64::from(std::process::id()).rotate_left(40)
}

/// How many forks lie between the process that made the first call and this one: a child differs from its parent.
///
/// Cheaper than `getpid`, which is a system call.
pub fn fork_generation() -> u64 {
    watch_forks();
    FORKS.load(Ordering::Relaxed)
}

/// A number that differs before and after each fork of this process. Who compares it with an earlier one knows whether
/// a child may have a copy of what was there then; what comes between the two counts of a fork differs from both sides.
pub fn children() -> u64 {
    watch_forks();
    CHILDREN.load(Ordering::Relaxed)
}

/// Registers `before` to run in the thread that forks, and `after` to run in that thread after the fork, in the parent
/// and in the child. A registration is permanent; call this once for each pair.
pub fn at_fork(before: extern "C" fn(), after: extern "C" fn()) {
    // SAFETY: functions live for ever. The caller answers for what they do, as with pthread_atfork.
    unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
}

/// Makes a copy of this process: 0 in it, its id in the original.
///
/// # Safety
///
/// The copy has this thread only, so it must not need anything that another thread holds.
///
/// # Errors
///
/// When there is no room for another process.
pub unsafe fn fork() -> io::Result<i32> {
    // SAFETY: the caller keeps this function's contract.
    check(unsafe { libc::fork() })
}

/// The process's id.
pub fn current_pid() -> i32 {
    // SAFETY: a plain call that cannot fail.
    unsafe { libc::getpid() }
}

/// The id of this process's parent, or of the process that adopted it.
pub fn parent_pid() -> i32 {
    // SAFETY: a plain call that cannot fail.
    unsafe { libc::getppid() }
}

/// The name that the C library has for this thread; Python's `threading.get_ident` gives the same.
#[inline]
pub fn thread_ident() -> u64 {
    // SAFETY: a plain call that cannot fail.
    unsafe { libc::pthread_self() as u64 }
}

/// Whether this is the thread with which the process began.
#[inline]
pub fn is_first_thread() -> bool {
    thread_local! {
        /// The last answer, which takes two system calls, and the fork generation in which it is true: a forked child
        /// begins with the thread that forked.
        static KNOWN: Cell<Option<(u64, bool)>> = const { Cell::new(None) };
    }
    let forks = fork_generation();
    if let Some((generation, is_first)) = KNOWN.get()
        && generation == forks
    {
        return is_first;
    }
    // SAFETY: plain calls that cannot fail.
    let is_first = unsafe { libc::gettid() == libc::getpid() };
    KNOWN.set(Some((forks, is_first)));
    is_first
}

/// When a running process was started, in the kernel's ticks since boot; `None` for one that has ended, reaped or not.
/// The kernel reuses process ids, but no two processes share both id and start time.
///
/// # Errors
///
/// When the kernel does not say, for want of a descriptor for instance: then the process may run.
pub fn birth(pid: u32) -> io::Result<Option<u64>> {
    let stat = match std::fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        Err(error) => return Err(error),
    };
    // The name may hold anything, also parentheses and spaces: the fields begin after the last parenthesis.
    let fields = stat.rsplit(|byte| *byte == b')').next().and_then(|fields| str::from_utf8(fields).ok());
    let mut fields = fields.unwrap_or_default().split_ascii_whitespace();
    let state = fields.next().unwrap_or_default();
    if matches!(state, "Z" | "X" | "x") {
        return Ok(None);
    }
    // The state is field 3 of proc_pid_stat(5), the start time field 22.
    let birth = fields.nth(18).and_then(|ticks| ticks.parse().ok());
    birth.map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// How a process stands to signals, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// A signal or a debugger has stopped it.
    pub stopped: bool,
    /// The signals that it has handlers for: bit 0 is signal 1.
    pub caught: u64,
}

impl Condition {
    /// Whether it has a handler for a signal.
    pub fn catches(self, signal: i32) -> bool {
        u32::try_from(signal - 1).is_ok_and(|bit| self.caught.checked_shr(bit).unwrap_or(0) & 1 != 0)
    }
}

/// How a process stands to signals; `None` if that cannot be learned.
pub fn condition(pid: i32) -> Option<Condition> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let stopped = field("State:")?.starts_with(['T', 't']);
    let caught = u64::from_str_radix(field("SigCgt:")?, 16).ok()?;
    Some(Condition { stopped, caught })
}

/// Asks for a signal at the death of the thread that made this process. Check [`parent_pid`] afterwards: the parent may
/// be dead already.
///
/// # Errors
///
/// For a number that is no signal.
pub fn set_parent_death_signal(signal: i32) -> io::Result<()> {
    let signal = libc::c_ulong::try_from(signal).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: a plain call.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) }).map(drop)
}

/// Puts this process into a group of its own, so that a terminal's Ctrl-C does not reach it.
///
/// # Errors
///
/// When it leads a session.
pub fn new_process_group() -> io::Result<()> {
    // SAFETY: a plain call.
    check(unsafe { libc::setpgid(0, 0) }).map(drop)
}

/// A child that has ended: its id, and whether a signal ended it. `Ok(None)` when none has. The child is not collected,
/// so its id is not reused.
///
/// # Errors
///
/// `ECHILD` when there are no children.
pub fn ended_child() -> io::Result<Option<(i32, bool)>> {
    // SAFETY: all zeros are a valid siginfo_t; the pointer is to a live one.
    let (ended, info) = unsafe {
        let mut info = std::mem::zeroed::<libc::siginfo_t>();
        let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        (libc::waitid(libc::P_ALL, 0, &raw mut info, how), info)
    };
    check(ended)?;
    // SAFETY: waitid has filled in what belongs to SIGCHLD, or left zeros.
    let pid = unsafe { info.si_pid() };
    Ok((pid > 0).then_some((pid, matches!(info.si_code, libc::CLD_KILLED | libc::CLD_DUMPED))))
}

/// Collects a child that has ended: its raw wait status.
///
/// # Errors
///
/// `ECHILD` when it is none of this process's children.
pub fn collect(pid: i32) -> io::Result<i32> {
    let mut status = 0;
    // SAFETY: the status is a live integer.
    check(unsafe { libc::waitpid(pid, &raw mut status, 0) })?;
    Ok(status)
}

/// Kills what is left of the process group that a child led. Call it before the child is collected: afterwards the
/// number may be another group's.
pub fn kill_group(leader: i32) {
    if leader > 1 {
        // SAFETY: a plain call; a group that is gone is an error of no interest.
        let _ = unsafe { libc::kill(-leader, libc::SIGKILL) };
    }
}

/// Blocks every signal in this thread, so that handlers run in others.
pub fn block_all_signals() {
    // SAFETY: the set is initialised by sigfillset before it is used; the old set is not asked for.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&raw mut set);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

/// Waits until a descriptor is readable or closed; false when the time is up or a signal came.
pub fn wait_readable(fd: BorrowedFd<'_>, timeout: Duration) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let limit = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one live pollfd.
    unsafe { libc::poll(&raw mut poll, 1, limit) > 0 }
}

/// Exits at once, without destructors or exit handlers.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: does not return.
    unsafe { libc::_exit(status) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_is_counted_in_the_child_only() {
        let (before, children_before) = (fork_generation(), children());
        // SAFETY: the child calls only what is async-signal-safe: an atomic load and _exit.
        let pid = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::_exit(i32::from(FORKS.load(Ordering::Relaxed) != before + 1));
            }
            pid
        };
        assert!(pid > 0);
        let mut status = -1;
        // SAFETY: the status is a live integer.
        let waited =
            crate::call::retry(|| check(unsafe { libc::waitpid(pid, &raw mut status, 0) })).expect("a child");
        assert_eq!((waited, status), (pid, 0));
        assert_eq!(fork_generation(), before);
        assert!(children() > children_before);
    }

    #[test]
    fn we_have_a_parent_and_may_outlive_it() {
        assert!(current_pid() > 0 && current_pid() != parent_pid());
        set_parent_death_signal(0).expect("0 means none");
        assert!(set_parent_death_signal(-1).is_err());
    }
}
