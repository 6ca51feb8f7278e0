//! The stacks of workers, as the workers themselves write them: no debugger, no privileges, no thread that waits.
//!
//! Each worker is connected to a socket of the server's, and handles two signals:
//!
//! - On [`ASK`], Python code in the worker reads from the socket what is asked, and a thread that it starts answers
//!   with a line of JSON. It has the interpreter's lock while it looks, so what it says is exact.
//! - On [`DUMP`], a handler in C writes the stacks of all threads into the socket at once, as text. It needs no lock.
//!
//! A worker whose main thread sits in C runs no Python code on a signal. If none has begun after [`PATIENCE`], the
//! second way is taken, and the answer says so.
//!
//! What a worker writes is not trusted: it is bounded, and shown as text.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener as StdListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ropewalk_os::process::user;
use ropewalk_pool::{Engine, Signalled};
use ropewalk_sync::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use super::dumps::{self, Folded, Thread};
use crate::failed::{Code, Failed};

/// The signal on which a worker answers by Python code; see `ropewalk.serving._inspected`.
const ASK: i32 = 45;
/// The signal on which it writes its stacks without the interpreter's lock.
const DUMP: i32 = 46;
/// How long a worker may take to begin its answer.
const PATIENCE: Duration = Duration::from_millis(400);
/// How long it may take beyond the time for which it looks: code in C may have the lock.
const BEYOND: Duration = Duration::from_secs(3);
/// How long the first part of a dump may take.
const DUMP_PATIENCE: Duration = Duration::from_millis(250);
/// The silence that ends a dump.
const DUMP_SILENCE: Duration = Duration::from_millis(8);
/// Looks each second by Python code, and by the handler in C.
const RATE: u32 = 100;
const DUMP_RATE: u32 = 50;
/// Bytes of an answer.
const LARGEST: usize = 4 << 20;
/// Parts of an answer that may wait to be read.
const PARTS: usize = 256;
/// Workers that may be connected.
const MOST: usize = 4096;
const BY_SIGNAL: &str = "The main thread did not come back to Python code in time: it sits in a call of C, or \
                         such a call has the interpreter's lock. A signal handler has written the stacks, which \
                         end at the last Python call.";

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Inspector {
    connections: Mutex<HashMap<i32, Arc<Connection>>>,
    /// The number of the last look. A number alone: relaxed.
    looks: AtomicU64,
}

/// What a worker writes into.
#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    sink: Mutex<Sink>,
}

/// Where what a worker writes goes.
#[derive(Debug, Default)]
struct Sink {
    /// Nowhere while it was asked for nothing.
    to: Option<mpsc::Sender<Bytes>>,
    /// Whether the worker is gone, and writes nothing more.
    is_over: bool,
}

/// What is to be seen.
#[derive(Clone, Copy, Debug)]
pub(super) enum Look {
    /// Where each thread is.
    Stack,
    /// Where the threads are for so long.
    Flame(Duration),
}

/// What was seen.
#[derive(Debug, Serialize)]
pub(super) struct Seen {
    /// `python`, or `signal`.
    by: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    #[serde(flatten)]
    found: Found,
}

/// What a worker says.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Found {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    threads: Vec<Thread>,
    #[serde(default, skip_serializing_if = "Folded::is_empty")]
    folded: Folded,
    /// Looks.
    #[serde(default)]
    samples: u64,
    /// Looks that came late, because other code had the interpreter's lock.
    #[serde(default)]
    late: u64,
    /// Looks whose stack is left out, because there were too many.
    #[serde(default)]
    dropped: u64,
}

/// A line of a worker.
#[derive(Debug, Deserialize)]
struct Line {
    look: u64,
    #[serde(default)]
    begun: bool,
    #[serde(flatten)]
    found: Found,
}

impl Inspector {
    /// Takes the connections of workers until the runtime ends.
    pub(super) fn start(socket: Option<&OwnedFd>, runtime: &Handle) -> io::Result<Arc<Self>> {
        let inspector = Arc::new(Self::default());
        if let Some(socket) = socket {
            let listener = StdListener::from(socket.try_clone()?);
            listener.set_nonblocking(true)?;
            let _entered = runtime.enter();
            let listener = UnixListener::from_std(listener)?;
            runtime.spawn(Arc::clone(&inspector).listen(listener));
        }
        Ok(inspector)
    }

    async fn listen(self: Arc<Self>, listener: UnixListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => self.take(stream),
                // The process has no descriptor left: one must end first.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    fn take(self: &Arc<Self>, stream: UnixStream) {
        let Ok(peer) = stream.peer_cred() else { return };
        let Some(pid) = peer.pid().filter(|_| peer.uid() == user()) else { return };
        let connection = Arc::new(Connection { stream, sink: Mutex::default() });
        let mut connections = self.connections.lock();
        if connections.len() >= MOST && !connections.contains_key(&pid) {
            return;
        }
        let before = connections.insert(pid, Arc::clone(&connection));
        drop(connections);
        drop(before);
        let inspector = Arc::clone(self);
        tokio::spawn(async move {
            connection.read().await;
            let mut connections = inspector.connections.lock();
            let gone = match connections.get(&pid) {
                Some(known) if Arc::ptr_eq(known, &connection) => connections.remove(&pid),
                _ => None,
            };
            drop(connections);
            drop(gone);
        });
    }

    /// Whether the stacks of this process can be asked for.
    pub(super) fn knows(&self, pid: i32) -> bool {
        self.connections.lock().contains_key(&pid)
    }

    /// Looks into a worker.
    ///
    /// # Errors
    ///
    /// When it is gone, cannot answer, or does not.
    pub(super) async fn look(&self, worker: Worker<'_>, look: Look) -> Result<Seen, Failed> {
        let connection = self.connections.lock().get(&worker.pid).cloned();
        let connection =
            connection.ok_or_else(|| unable("the worker has not connected to the server yet"))?;
        let mut answers = connection.ask()?;
        let number = self.looks.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(found) = answers.by_python(&worker, number, look).await? {
            return Ok(Seen { by: "python", note: None, found });
        }
        let found = answers.by_signal(&worker, look).await?;
        Ok(Seen { by: "signal", note: Some(BY_SIGNAL), found })
    }
}

/// A worker process.
#[derive(Debug)]
pub(super) struct Worker<'a> {
    pub(super) engine: &'a Engine,
    pub(super) number: u64,
    pub(super) pid: i32,
}

impl Worker<'_> {
    fn signal(&self, signal: i32) -> Result<(), Failed> {
        match self.engine.signal_worker(self.number, signal) {
            Signalled::Sent => Ok(()),
            Signalled::Gone => Err(gone()),
            Signalled::Deaf => Err(unable("the worker's program has taken the signal's handler away")),
            Signalled::Stopped => Err(unable("the worker is stopped, by a signal or a debugger")),
        }
    }
}

fn gone() -> Failed {
    Failed::new(Code::NotFound, "the worker is gone")
}

fn unable(why: &'static str) -> Failed {
    Failed::new(Code::FailedPrecondition, why)
}

impl Connection {
    /// Reads what the worker writes, until it is gone: then a look ends that waits for more.
    async fn read(&self) {
        self.pass_on().await;
        let mut sink = self.sink.lock();
        sink.is_over = true;
        let to = sink.to.take();
        drop(sink);
        drop(to);
    }

    async fn pass_on(&self) {
        let mut buffer = vec![0; 16 << 10];
        while self.stream.readable().await.is_ok() {
            match self.stream.try_read(&mut buffer) {
                Ok(0) => return,
                Ok(length) => {
                    let sink = self.sink.lock().to.clone();
                    // What no look reads in time is lost to it.
                    if let (Some(sink), Some(part)) = (sink, buffer.get(..length)) {
                        let _ = sink.try_send(Bytes::copy_from_slice(part));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }

    /// From now on its words go to the caller. It fails if they go to another, or the worker is gone.
    fn ask(self: &Arc<Self>) -> Result<Answers, Failed> {
        let (sender, parts) = mpsc::channel(PARTS);
        let mut sink = self.sink.lock();
        if sink.is_over {
            return Err(gone());
        }
        if sink.to.is_some() {
            return Err(unable("another look into this worker goes on"));
        }
        sink.to = Some(sender);
        drop(sink);
        Ok(Answers { connection: Arc::clone(self), parts, text: Vec::new() })
    }
}

/// What a worker writes while it is asked.
#[derive(Debug)]
struct Answers {
    connection: Arc<Connection>,
    parts: mpsc::Receiver<Bytes>,
    /// Not yet read.
    text: Vec<u8>,
}

impl Drop for Answers {
    fn drop(&mut self) {
        let to = self.connection.sink.lock().to.take();
        drop(to);
    }
}

impl Answers {
    /// Waits for more; false when the time is up, the worker is gone, or has written too much.
    async fn more(&mut self, until: Instant) -> bool {
        match timeout_at(until, self.parts.recv()).await {
            Ok(Some(part)) if self.text.len() + part.len() <= LARGEST => {
                self.text.extend_from_slice(&part);
                true
            }
            _ => false,
        }
    }

    /// The next line that answers this look.
    async fn line(&mut self, look: u64, until: Instant) -> Option<Line> {
        let mut read = 0;
        loop {
            while let Some(length) = self.text.iter().skip(read).position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=read + length).collect();
                read = 0;
                if let Ok(line) = serde_json::from_slice::<Line>(&line)
                    && line.look == look
                {
                    return Some(line);
                }
            }
            read = self.text.len();
            if !self.more(until).await {
                return None;
            }
        }
    }

    /// Asks the worker's Python code; `None` if that does not begin.
    async fn by_python(
        &mut self,
        worker: &Worker<'_>,
        number: u64,
        look: Look,
    ) -> Result<Option<Found>, Failed> {
        let seconds = match look {
            Look::Stack => 0.0,
            Look::Flame(time) => time.as_secs_f64(),
        };
        let asked = format!("{}\n", json!({"look": number, "seconds": seconds, "rate": RATE}));
        let written = self.connection.stream.try_write(asked.as_bytes());
        worker.signal(ASK)?;
        if !written.is_ok_and(|length| length == asked.len()) {
            return Ok(None);
        }
        let begun = self.line(number, Instant::now() + PATIENCE).await;
        let Some(Line { begun: true, .. }) = begun else { return Ok(None) };
        let until = Instant::now() + Duration::from_secs_f64(seconds) + BEYOND;
        Ok(self.line(number, until).await.map(|line| line.found))
    }

    /// The text of a dump; empty if the worker writes none.
    async fn dump(&mut self, worker: &Worker<'_>) -> Result<String, Failed> {
        self.text.clear();
        // A process that has ended is there, and can be signalled, until the pool has noticed.
        if self.parts.is_closed() {
            return Err(gone());
        }
        worker.signal(DUMP)?;
        if self.more(Instant::now() + DUMP_PATIENCE).await {
            while self.more(Instant::now() + DUMP_SILENCE).await {}
        }
        Ok(String::from_utf8_lossy(&std::mem::take(&mut self.text)).into_owned())
    }

    /// Asks the worker's handler in C.
    async fn by_signal(&mut self, worker: &Worker<'_>, look: Look) -> Result<Found, Failed> {
        let mut found = Found::default();
        let Look::Flame(time) = look else {
            found.threads = dumps::threads(&self.dump(worker).await?);
            if found.threads.is_empty() {
                return Err(unable(
                    "the worker did not write its stacks: it may sit in a call of the kernel",
                ));
            }
            return Ok(found);
        };
        let until = Instant::now() + time;
        let mut ticks = interval(Duration::from_secs(1) / DUMP_RATE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while Instant::now() < until {
            ticks.tick().await;
            let threads = dumps::threads(&self.dump(worker).await?);
            found.samples += u64::from(!threads.is_empty());
            dumps::fold(&threads, &mut found.folded);
        }
        if found.samples == 0 {
            return Err(unable("the worker did not write its stacks: it may sit in a call of the kernel"));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream as StdStream;

    use super::*;

    fn connected() -> (Arc<Connection>, StdStream) {
        let (ours, theirs) = StdStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("it does not block");
        let stream = UnixStream::from_std(ours).expect("a stream");
        let connection = Arc::new(Connection { stream, sink: Mutex::default() });
        let reading = Arc::clone(&connection);
        tokio::spawn(async move { reading.read().await });
        (connection, theirs)
    }

    #[tokio::test]
    async fn only_the_line_that_answers_a_look_is_taken() {
        let (connection, mut worker) = connected();
        let mut answers = connection.ask().expect("it is free");
        let refused = connection.ask().expect_err("one look at a time");
        assert_eq!(refused.code, Code::FailedPrecondition);
        worker
            .write_all(b"Thread 0x1\n{\"look\": 1, \"begun\": true}\n{\"look\": 2, \"sam")
            .expect("written");
        worker.write_all(b"ples\": 3}\n").expect("written");
        let line = answers.line(2, Instant::now() + Duration::from_secs(20)).await.expect("a line");
        assert_eq!((line.begun, line.found.samples), (false, 3));
        drop(answers);
        assert!(connection.ask().is_ok());
    }

    #[tokio::test]
    async fn a_look_into_a_worker_that_ends_is_over_with_it() {
        let (connection, mut worker) = connected();
        let mut answers = connection.ask().expect("it is free");
        worker.write_all(b"{\"look\": 1, \"begun\": true}\n").expect("written");
        let end = Instant::now() + Duration::from_secs(600);
        assert!(answers.line(1, end).await.is_some_and(|line| line.begun));
        drop(worker);
        let answered = tokio::time::timeout(Duration::from_secs(60), answers.line(1, end)).await;
        assert!(answered.expect("it waits for a worker that is gone").is_none());
        assert!(answers.parts.is_closed());
        drop(answers);
        assert_eq!(connection.ask().expect_err("the worker is gone").code, Code::NotFound);
    }

    #[tokio::test]
    async fn an_endless_answer_is_given_up() {
        let (connection, mut worker) = connected();
        let mut answers = connection.ask().expect("it is free");
        let writer = std::thread::spawn(move || while worker.write_all(&[b'x'; 65536]).is_ok() {});
        assert!(answers.line(1, Instant::now() + Duration::from_secs(20)).await.is_none());
        assert!(answers.text.len() <= LARGEST);
        drop(answers);
        drop(connection);
        drop(writer);
    }

    #[test]
    fn a_descriptor_that_is_no_socket_is_refused() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let file: OwnedFd = std::fs::File::open("/dev/null").expect("a file").into();
        // It cannot be accepted from; nothing connects, and nothing breaks.
        let made = Inspector::start(Some(&file), runtime.handle());
        assert!(made.is_err() || !made.expect("one").knows(1));
    }
}
