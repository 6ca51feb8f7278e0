//! The zygote's own loop: takes requests, forks, reports births and deaths.
//!
//! The process has one thread; `SIGCHLD` is blocked and read from a descriptor.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use ropewalk_os::{epoll, limits, pidfd, process, signalfd, socket};

use super::{HEAD, LARGEST, REQUEST, SPAWN, head, op, read_head};

const SIGCHLD: i32 = 17;
const EMFILE: i32 = 24;
const SOCKET: u64 = 0;
const CHILDREN: u64 = 1;
/// How long a zygote whose socket was closed looks whether its parent is gone.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// The descriptors and settings of a freshly forked worker.
#[derive(Debug)]
pub struct Spawned {
    /// What the parent calls it.
    pub worker: u64,
    /// Its socket to the parent.
    pub socket: OwnedFd,
    /// The pool's control page.
    pub control: OwnedFd,
    /// The event descriptor of the parent's supervisor.
    pub event: OwnedFd,
    /// A memfd with what the worker is to set up.
    pub spec: OwnedFd,
    /// The pool's notes, where a worker leaves word of how it died.
    pub notes: OwnedFd,
    /// Its part of the notes.
    pub slot: u32,
    /// Its number in the pool.
    pub number: u64,
    /// The descriptors of the layer above.
    pub handed: Vec<OwnedFd>,
    /// One lane for each thread.
    pub lanes: Vec<OwnedFd>,
}

/// Says that everything is imported, and which preloads failed.
///
/// # Errors
///
/// When the parent is gone.
pub fn hello(fd: &OwnedFd, failed: &[String]) -> io::Result<()> {
    for text in failed {
        socket::send(fd.as_fd(), &[&head(op::PRELOAD_FAILED, 0, 0), clipped(text).as_bytes()], &[], true)?;
    }
    let pid = i64::from(process::current_pid());
    socket::send(fd.as_fd(), &[&head(op::HELLO, 0, pid)], &[], true)
}

/// Says that a worker could not be made.
fn refuse(fd: &OwnedFd, worker: u64, why: &str) -> io::Result<()> {
    socket::send(fd.as_fd(), &[&head(op::FAILED, worker, 0), clipped(why).as_bytes()], &[], true)
}

/// As much of a text as the parent has room for in one message.
fn clipped(text: &str) -> &str {
    let most = text.len().min(LARGEST - HEAD);
    (0..=most).rev().find_map(|end| text.get(..end)).unwrap_or_default()
}

/// A message from the parent's socket.
pub(crate) enum Request {
    /// To fork a worker, with this.
    Spawn(u64, Spawned),
    /// A worker that cannot be forked, and why.
    Refused(u64, String),
    /// Something that this zygote does not know.
    Unknown,
    /// Nothing at the moment.
    Nothing,
    /// The parent is gone.
    End,
}

/// Reads one request, without blocking.
pub(crate) fn read_request(fd: &OwnedFd) -> io::Result<Request> {
    let mut buffer = [0; REQUEST];
    let mut fds = Vec::new();
    match socket::recv(fd.as_fd(), &mut buffer, &mut fds, false) {
        Ok(0) => return Ok(Request::End),
        Ok(REQUEST) => {}
        Ok(_) => return Ok(Request::Unknown),
        Err(e) if e.kind() == io::ErrorKind::InvalidData => return Ok(Request::Unknown),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Request::Nothing),
        Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(Request::End),
        Err(e) => return Err(e),
    }
    let Some((SPAWN, worker, lanes)) = read_head(&buffer) else { return Ok(Request::Unknown) };
    let word =
        |at: usize| buffer.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
    let (slot, handed) = (word(HEAD), word(HEAD + 4) as usize);
    let number = u64::from(word(HEAD + 8)) | u64::from(word(HEAD + 12)) << 32;
    if fds.len() != 5 + handed + usize::try_from(lanes).unwrap_or(0) {
        let why = limits::explain_fork(&io::Error::from_raw_os_error(EMFILE));
        let why = format!("the process that forks workers was sent too many descriptors: {why}");
        return Ok(Request::Refused(worker, why));
    }
    let mut rest = fds.into_iter();
    let mut next = || rest.next().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData));
    let (socket, control, event, spec, notes) = (next()?, next()?, next()?, next()?, next()?);
    let handed = rest.by_ref().take(handed).collect();
    let lanes = rest.collect();
    Ok(Request::Spawn(
        worker,
        Spawned { worker, socket, control, event, spec, notes, slot, number, handed, lanes },
    ))
}

/// Serves requests until the parent is gone (`Ok(None)`), or, in each forked child, until it is born.
///
/// `fork` makes the child for this request and returns 0 in it; what the two should have in common it prepares first,
/// and the interpreter's own duties around a fork are its business.
///
/// When the parent is gone, whatever ended it, the zygote kills its workers with what their tasks have started. A
/// parent-death signal that killed the zygote would leave no time for that, so from here on the signal is one that the
/// zygote reads. Its closed socket is not enough: a fork of the parent may hold the other end.
///
/// # Errors
///
/// When the zygote's own descriptors fail.
pub fn serve(fd: OwnedFd, fork: &mut dyn FnMut(&Spawned) -> io::Result<i32>) -> io::Result<Option<Spawned>> {
    let mut workers = HashMap::new();
    let parent = process::parent_pid();
    let served = serve_until_gone(&fd, parent, fork, &mut workers);
    if !matches!(served, Ok(Some(_))) {
        leave(parent, &mut workers);
    }
    served
}

/// The last that a zygote does. A parent that ends closes its sockets a moment before it is seen to be gone; one that
/// lives on may have closed this one while workers leave by themselves, and what their tasks have started may live on.
fn leave(parent: i32, workers: &mut HashMap<i32, u64>) {
    let patience = Instant::now() + LAST_LOOK;
    while process::parent_pid() == parent && !workers.is_empty() && Instant::now() < patience {
        let _ = collect_ended(workers, |_, _| Ok(()));
        std::thread::sleep(Duration::from_millis(2));
    }
    if process::parent_pid() != parent {
        // They are not collected any more, so their numbers are their own.
        for pid in workers.keys() {
            process::kill_group(*pid);
        }
    }
}

/// Collects the children that have ended, and reports each worker among them with its wait status.
fn collect_ended(
    workers: &mut HashMap<i32, u64>,
    mut tell: impl FnMut(u64, i32) -> io::Result<()>,
) -> io::Result<()> {
    while let Ok(Some((pid, by_signal))) = process::ended_child() {
        let worker = workers.remove(&pid);
        if by_signal && worker.is_some() {
            // What its tasks have started ends with a worker that was ended, and not with one that left.
            process::kill_group(pid);
        }
        let status = process::collect(pid)?;
        if let Some(worker) = worker {
            tell(worker, status)?;
        }
    }
    Ok(())
}

fn serve_until_gone(
    fd: &OwnedFd,
    parent: i32,
    fork: &mut dyn FnMut(&Spawned) -> io::Result<i32>,
    workers: &mut HashMap<i32, u64>,
) -> io::Result<Option<Spawned>> {
    let children = signalfd::block_and_open(SIGCHLD)?;
    process::set_parent_death_signal(SIGCHLD)?;
    let poll = epoll::Epoll::new()?;
    poll.add(fd.as_fd(), SOCKET, epoll::Interest::READ)?;
    poll.add(children.as_fd(), CHILDREN, epoll::Interest::READ)?;
    let mut events = Vec::new();
    while process::parent_pid() == parent {
        poll.wait(&mut events, None)?;
        // Deaths first: a request may ask for a replacement.
        signalfd::drain(children.as_fd());
        collect_ended(workers, |worker, status| {
            let message = head(op::EXITED, worker, i64::from(status));
            socket::send(fd.as_fd(), &[&message], &[], true)
        })?;
        loop {
            let (worker, given) = match read_request(fd)? {
                Request::Spawn(worker, given) => (worker, given),
                Request::Refused(worker, why) => {
                    refuse(fd, worker, &why)?;
                    continue;
                }
                Request::Unknown => continue,
                Request::Nothing => break,
                Request::End => return Ok(None),
            };
            match fork(&given) {
                Ok(0) => {
                    signalfd::unblock(SIGCHLD)?;
                    // It leads a group, by which its tasks' children are ended with it.
                    let _ = process::new_process_group();
                    return Ok(Some(given));
                }
                Ok(pid) => {
                    workers.insert(pid, worker);
                    // It is not reaped before the next round, so its number is its own.
                    let pidfd = pidfd::open(pid).ok();
                    let beside: Vec<_> = pidfd.iter().map(AsFd::as_fd).collect();
                    let message = head(op::SPAWNED, worker, i64::from(pid));
                    socket::send(fd.as_fd(), &[&message], &beside, true)?;
                }
                Err(error) => refuse(fd, worker, &limits::explain_fork(&error))?,
            }
        }
    }
    Ok(None)
}
