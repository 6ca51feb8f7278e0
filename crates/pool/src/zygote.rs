//! The zygote: a small process that has imported what workers need and forks them on request.
//!
//! This is the parent's end; [`server`] is the zygote's own. They communicate over one `SOCK_SEQPACKET` socket, the
//! zygote's descriptor 0. The parent's death is the end of that socket for the zygote, and the zygote's death is the
//! parent-death signal for its workers.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use ropewalk_base::{Code, Result, ResultExt, error};
use ropewalk_os::{pidfd, socket};
use ropewalk_sync::Mutex;

use crate::control::Control;
use crate::notes::Notes;

pub mod server;

/// How a zygote is started; pools with equal commands share one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ZygoteCommand {
    /// The interpreter.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Changes to the environment: `None` removes a variable.
    pub env: Vec<(OsString, Option<OsString>)>,
}

/// Operations from the parent.
const SPAWN: u32 = 1;
/// Bytes of a message's head: `{op: u32, extra: u32, worker: u64, number: i64}`.
const HEAD: usize = 24;
/// Bytes of a request: a head, then `{slot: u32, handed: u32, number: u64}`.
const REQUEST: usize = HEAD + 16;
const LARGEST: usize = 16 * 1024;

/// A message of the zygote.
#[derive(Debug)]
pub(crate) enum Message {
    /// It has imported everything.
    Hello,
    /// A preload failed: what and why. The zygote goes on without it.
    PreloadFailed(String),
    /// A worker has been forked: its pid and, unless this process is out of descriptors, its pidfd.
    Spawned { worker: u64, pid: i32, pidfd: Option<OwnedFd> },
    /// A worker has ended, with this wait status.
    Exited { worker: u64, status: i32 },
    /// A worker could not be forked.
    Failed { worker: u64, reason: String },
}

mod op {
    pub(super) const HELLO: u32 = 16;
    pub(super) const PRELOAD_FAILED: u32 = 17;
    pub(super) const SPAWNED: u32 = 18;
    pub(super) const EXITED: u32 = 19;
    pub(super) const FAILED: u32 = 20;
}

fn head(op: u32, worker: u64, number: i64) -> [u8; HEAD] {
    let mut out = [0; HEAD];
    out[..4].copy_from_slice(&op.to_le_bytes());
    out[8..16].copy_from_slice(&worker.to_le_bytes());
    out[16..].copy_from_slice(&number.to_le_bytes());
    out
}

fn read_head(bytes: &[u8]) -> Option<(u32, u64, i64)> {
    Some((
        u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?),
        u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?),
        i64::from_le_bytes(bytes.get(16..24)?.try_into().ok()?),
    ))
}

impl Message {
    pub(crate) fn parse(bytes: &[u8], fds: &mut Vec<OwnedFd>) -> Option<Self> {
        let (op, worker, number) = read_head(bytes)?;
        let text = || String::from_utf8_lossy(bytes.get(HEAD..).unwrap_or_default()).into_owned();
        Some(match op {
            op::HELLO => Self::Hello,
            op::PRELOAD_FAILED => Self::PreloadFailed(text()),
            op::SPAWNED => Self::Spawned { worker, pid: i32::try_from(number).ok()?, pidfd: fds.pop() },
            op::EXITED => Self::Exited { worker, status: i32::try_from(number).ok()? },
            op::FAILED => Self::Failed { worker, reason: text() },
            _ => return None,
        })
    }
}

/// A request for one worker, with everything that goes along; closed here once it is sent.
#[derive(Debug)]
pub(crate) struct SpawnRequest {
    pub(crate) worker: u64,
    pub(crate) socket: OwnedFd,
    /// Whose event descriptor the worker rings.
    pub(crate) control: Arc<Control>,
    pub(crate) page: Arc<OwnedFd>,
    pub(crate) spec: Arc<OwnedFd>,
    pub(crate) notes: Arc<Notes>,
    /// Its part of the notes.
    pub(crate) slot: u32,
    /// Its number in the pool.
    pub(crate) number: u64,
    /// Descriptors that the layer above hands down.
    pub(crate) handed: Vec<Arc<OwnedFd>>,
    pub(crate) lanes: Vec<OwnedFd>,
}

impl SpawnRequest {
    /// Sends it, if the socket takes it now.
    fn try_send(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let mut fds = vec![
            self.socket.as_fd(),
            self.page.as_fd(),
            self.control.event_fd(),
            self.spec.as_fd(),
            self.notes.fd(),
        ];
        fds.extend(self.handed.iter().map(|fd| fd.as_fd()));
        fds.extend(self.lanes.iter().map(AsFd::as_fd));
        let lanes = i64::try_from(self.lanes.len()).unwrap_or(0);
        let slot = self.slot.to_le_bytes();
        let handed = u32::try_from(self.handed.len()).unwrap_or(0).to_le_bytes();
        let number = self.number.to_le_bytes();
        socket::send(socket, &[&head(SPAWN, self.worker, lanes), &slot, &handed, &number], &fds, false)
    }
}

/// The parent's end of a zygote.
#[derive(Debug)]
pub struct Zygote {
    pub(crate) id: u64,
    pub(crate) socket: OwnedFd,
    child: Mutex<Option<Child>>,
    /// Requests that the socket has not taken yet, oldest first.
    waiting: Mutex<VecDeque<SpawnRequest>>,
    /// Preloads that failed, in the zygote's words.
    complaints: Mutex<Vec<String>>,
}

impl Zygote {
    /// Starts a zygote. Call it from a thread that lives as long as the process: the zygote asks the kernel for a
    /// signal at the death of the thread that started it.
    pub(crate) fn launch(id: u64, command: &ZygoteCommand) -> Result<Self> {
        // Workers are watched and ended by pidfd alone. Here it is the system that lacks them; in the zygote it
        // would be a worker that is forked and then lost.
        let here = i32::try_from(std::process::id()).unwrap_or(0);
        pidfd::open(here).context("could not open a pidfd, by which process pools watch their workers")?;
        let (ours, theirs) = socket::seqpacket_pair().context("could not make a zygote's socket")?;
        let mut child = Command::new(&command.program);
        // From its first moment on, so that the terminal's Ctrl-C does not come there.
        child.process_group(0);
        child.args(&command.args).stdin(Stdio::from(theirs));
        for (name, value) in &command.env {
            match value {
                Some(value) => child.env(name, value),
                None => child.env_remove(name),
            };
        }
        let child = child.spawn().context("could not start the interpreter for a zygote")?;
        Ok(Self {
            id,
            socket: ours,
            child: Mutex::new(Some(child)),
            waiting: Mutex::default(),
            complaints: Mutex::default(),
        })
    }

    /// Asks for a worker, without blocking; the answer comes to the supervisor.
    pub(crate) fn spawn(&self, request: SpawnRequest) {
        self.waiting.lock().push_back(request);
        self.send_waiting();
    }

    /// Sends the requests that the socket takes. Called again with each answer: while the socket is full, or too many
    /// descriptors are under way, there are requests in it, and each of them is answered.
    pub(crate) fn send_waiting(&self) {
        let mut waiting = self.waiting.lock();
        while let Some(request) = waiting.front() {
            // A zygote that is gone is noticed by the supervisor, which then asks another one for its workers.
            if request.try_send(self.socket.as_fd()).is_err() {
                return;
            }
            waiting.pop_front();
        }
    }

    /// The next message; `Ok(None)` if there is none, an error when the zygote is gone.
    pub(crate) fn receive(&self) -> Result<Option<Message>> {
        let mut buffer = [0; LARGEST];
        let mut fds = Vec::new();
        let senseless = || error!(Code::ZygoteFailed, "the zygote sent a malformed message");
        match socket::recv(self.socket.as_fd(), &mut buffer, &mut fds, false) {
            Ok(0) => Err(error!(Code::ZygoteFailed, "the zygote has ended")),
            Ok(got) => Message::parse(buffer.get(..got).unwrap_or_default(), &mut fds)
                .map(Some)
                .ok_or_else(senseless),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(e) if e.kind() == std::io::ErrorKind::InvalidData => Err(senseless()),
            Err(e) => Err(e).context("the zygote has ended"),
        }
    }

    pub(crate) fn complain(&self, text: String) {
        self.complaints.lock().push(text);
    }

    /// Preloads that failed, in the zygote's words.
    pub fn complaints(&self) -> Vec<String> {
        self.complaints.lock().clone()
    }

    /// Ends the process and collects it; gives what it left with, in words.
    pub(crate) fn reap(&self) -> String {
        let child = self.child.lock().take();
        let Some(mut child) = child else { return String::from("the zygote has ended") };
        let _ = child.kill();
        match child.wait() {
            Ok(status) => format!("the zygote, the process that forks workers, ended ({status})"),
            Err(error) => format!("the zygote has ended ({error})"),
        }
    }
}

/// For a simulation: a zygote whose process is played by the holder of the other end of its socket.
#[cfg(any(test, fuzzing))]
#[cfg_attr(mutants, mutants::skip)]
impl Zygote {
    pub(crate) fn simulated() -> Result<(std::sync::Arc<Self>, OwnedFd)> {
        let (ours, theirs) = socket::seqpacket_pair().context("could not make a zygote's socket")?;
        let zygote = Self {
            id: 0,
            socket: ours,
            child: Mutex::new(None),
            waiting: Mutex::default(),
            complaints: Mutex::default(),
        };
        Ok((std::sync::Arc::new(zygote), theirs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_too_long_is_no_message() {
        let (near, far) = Zygote::simulated().expect("a socket");
        let say = |length: usize| {
            let (head, text) = (head(op::FAILED, 7, 0), vec![b'x'; length - HEAD]);
            socket::send(far.as_fd(), &[&head, &text], &[], true).expect("sent");
            near.receive()
        };
        assert!(
            matches!(say(LARGEST), Ok(Some(Message::Failed { worker: 7, reason })) if reason.len() == LARGEST - HEAD)
        );
        assert_eq!(say(LARGEST + 1).expect_err("cut").code(), Code::ZygoteFailed);
    }

    #[test]
    fn a_long_complaint_is_clipped_to_one_message() {
        let (near, far) = Zygote::simulated().expect("a socket");
        server::hello(&far, &["é".repeat(LARGEST)]).expect("said");
        let Ok(Some(Message::PreloadFailed(text))) = near.receive() else { panic!("no complaint") };
        assert_eq!(text, "é".repeat((LARGEST - HEAD) / 2));
        assert!(matches!(near.receive(), Ok(Some(Message::Hello))));
    }

    #[test]
    fn a_request_has_its_length() {
        let (near, far) = Zygote::simulated().expect("a socket");
        let request = [&head(SPAWN, 3, 0)[..], &[0; 16], b"more"].concat();
        for length in [1, HEAD, REQUEST - 1, REQUEST, REQUEST + 1, request.len()] {
            socket::send(near.socket.as_fd(), &[&request[..length]], &[], true).expect("sent");
            let read = server::read_request(&far).expect("read");
            // A whole one of these is refused by name: it brings no descriptors.
            assert_eq!(matches!(read, server::Request::Refused(3, _)), length == REQUEST, "{length}");
            assert_eq!(matches!(read, server::Request::Unknown), length != REQUEST, "{length}");
        }
    }
}
