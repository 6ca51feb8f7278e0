//! MCP over standard input and output: a message is a line of JSON.
//!
//! rmcp has such a transport, which drops what is too long or no JSON without a word, and gives calls five seconds when
//! the input ends. Here the client reads what was wrong, and calls that have begun are answered before the end.
//!
//! Two threads move the bytes, because either end may be a pipe, a socket, a terminal or a file, and may block. They
//! wait for the descriptor and for `Ending`, so that they end when the session does.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, JsonRpcError, JsonRpcResponse, RequestId, ServerJsonRpcMessage,
};
use rmcp::service::serve_server_with_ct;
use rmcp::transport::Transport;
use ropewalk_os::eventfd::EventFd;
use ropewalk_os::poll::{ERROR, Polled, READ, WRITE, poll};
use ropewalk_sync::Mutex;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::Mcp;
use super::message::{Refusal, read};

/// Messages that may wait on the way in, and on the way out.
const WAITING: usize = 64;
/// Bytes of a read.
const READ_AT_ONCE: usize = 64 << 10;
/// Bytes of a write: a pipe that can be written takes this many (`PIPE_BUF`) without blocking.
const WRITE_AT_ONCE: usize = 4096;

/// A line that came.
enum Line {
    Whole(Vec<u8>),
    TooLarge,
}

/// Ends the threads of a session when it is dropped.
struct Ending(Arc<EventFd>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.signal();
    }
}

/// What a thread waits for.
enum Found {
    Ready,
    /// The client is gone: nothing reads what is written.
    Gone,
    /// The session has ended.
    End,
}

/// Waits until a descriptor is ready, if there is one to wait for, or the client is gone. One for which this waits for
/// longer than it may counts as gone.
fn wait(fd: Option<RawFd>, events: i16, output: RawFd, end: &EventFd, patience: Option<Duration>) -> Found {
    let end = end.as_fd().as_raw_fd();
    loop {
        // Descriptors below zero are passed over; that of the output is asked for its errors alone.
        let mut all = [Polled::new(fd.unwrap_or(-1), events), Polled::new(output, 0), Polled::new(end, READ)];
        let found = poll(&mut all, patience);
        let [own, output, end] = all.map(Polled::found);
        match found {
            Ok(0) => return Found::Gone,
            Ok(_) if end != 0 => return Found::End,
            Ok(_) if output & ERROR != 0 => return Found::Gone,
            Ok(_) if own != 0 => return Found::Ready,
            Err(error) if error.kind() != ErrorKind::Interrupted => return Found::End,
            _ => {}
        }
    }
}

/// Lines out of the pieces that are read.
struct Splitter {
    line: Vec<u8>,
    largest: usize,
    /// The rest of a line that is too large is still to come.
    skipping: bool,
}

impl Splitter {
    /// Takes a piece, and gives the lines that it completes.
    fn take(&mut self, piece: &[u8], give: &mut impl FnMut(Line)) {
        let mut parts = piece.split(|byte| *byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            if !self.skipping {
                self.line.extend_from_slice(part);
                if self.line.len() > self.largest {
                    self.line = Vec::new();
                    self.skipping = true;
                    give(Line::TooLarge);
                }
            }
            if parts.peek().is_some() {
                self.end(give);
            }
        }
    }

    /// Ends the line.
    fn end(&mut self, give: &mut impl FnMut(Line)) {
        let line = std::mem::take(&mut self.line);
        if !std::mem::take(&mut self.skipping) && !line.trim_ascii().is_empty() {
            give(Line::Whole(line));
        }
    }
}

/// Reads lines until the input ends; then it watches the client until the session ends, or the client is gone.
fn read_lines(
    mut input: File,
    output: &File,
    largest: usize,
    end: &EventFd,
    lines: mpsc::Sender<Line>,
) -> Found {
    let mut splitter = Splitter { line: Vec::new(), largest, skipping: false };
    let mut piece = vec![0; READ_AT_ONCE];
    // The reader of the lines leaves before this thread at the session's end alone.
    let mut give = |line| drop(lines.blocking_send(line));
    loop {
        match wait(Some(input.as_raw_fd()), READ, output.as_raw_fd(), end, None) {
            Found::Ready => {}
            found => return found,
        }
        match input.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => splitter.take(piece.get(..count).unwrap_or_default(), &mut give),
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(_) => break,
        }
    }
    splitter.end(&mut give);
    drop(lines);
    wait(None, 0, output.as_raw_fd(), end, None)
}

/// Writes messages until the session ends, or the client is gone. A client is gone that takes nothing for so long: it
/// would keep the session, and calls whose answers have to wait.
fn write_messages(mut output: File, end: &EventFd, messages: &mut mpsc::Receiver<Bytes>, patience: Duration) {
    while let Some(message) = messages.blocking_recv() {
        let mut left = &message[..];
        while !left.is_empty() {
            let fd = output.as_raw_fd();
            if !matches!(wait(Some(fd), WRITE, fd, end, Some(patience)), Found::Ready) {
                return;
            }
            match output.write(left.get(..WRITE_AT_ONCE).unwrap_or(left)) {
                Ok(count) => left = left.get(count..).unwrap_or_default(),
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                Err(_) => return,
            }
        }
    }
}

/// Requests that have no response yet.
#[derive(Default)]
struct Unanswered {
    ids: Mutex<HashSet<RequestId>>,
    changed: Notify,
}

impl Unanswered {
    fn insert(&self, id: RequestId) {
        let _ = self.ids.lock().insert(id);
    }

    fn remove(&self, id: &RequestId) {
        let removed = self.ids.lock().take(id);
        drop(removed);
        self.changed.notify_waiters();
    }

    /// Returns when there are none.
    async fn none(&self) {
        loop {
            let changed = self.changed.notified();
            if self.ids.lock().is_empty() {
                return;
            }
            changed.await;
        }
    }
}

/// The session, as rmcp reads and writes it.
struct Lines {
    lines: mpsc::Receiver<Line>,
    out: mpsc::Sender<Bytes>,
    unanswered: Arc<Unanswered>,
    leaving: watch::Receiver<bool>,
    /// Cancels the calls that run.
    cancel: CancellationToken,
    largest: usize,
    /// What is to be sent before the next line is read.
    refusal: Option<Refusal>,
    /// Whether a request has come: messages before the first one mean nothing, and rmcp would leave at them.
    begun: bool,
    ended: bool,
}

fn line(mut json: Vec<u8>) -> Bytes {
    json.push(b'\n');
    Bytes::from(json)
}

impl Lines {
    /// The message of a line, if it has one for rmcp.
    fn taken(&mut self, line: &Line) -> Option<ClientJsonRpcMessage> {
        let message = match line {
            Line::TooLarge => Err(Refusal::too_large(self.largest)),
            Line::Whole(bytes) => read(bytes),
        };
        let message = match message {
            Ok(message) => message,
            Err(refusal) => {
                self.refusal = Some(refusal);
                return None;
            }
        };
        match &message {
            ClientJsonRpcMessage::Request(request) => {
                self.begun = true;
                self.unanswered.insert(request.id.clone());
            }
            ClientJsonRpcMessage::Notification(notification) => {
                // rmcp does not answer what is cancelled.
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.unanswered.remove(id);
                }
            }
            _ => {}
        }
        self.begun.then_some(message)
    }

    /// The next line; `None` when no more is to be read. It may be dropped at any time, and loses nothing.
    async fn next(&mut self) -> Option<Line> {
        if self.ended {
            return None;
        }
        tokio::select! {
            biased;
            _ = self.leaving.wait_for(|leaving| *leaving) => None,
            line = self.lines.recv() => line,
        }
    }
}

impl Transport<RoleServer> for Lines {
    type Error = io::Error;

    fn name() -> Cow<'static, str> {
        Cow::Borrowed("standard input and output")
    }

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let out = self.out.clone();
        let unanswered = Arc::clone(&self.unanswered);
        async move {
            let json = serde_json::to_vec(&message)?;
            let sent = out.send(line(json)).await;
            match &message {
                ServerJsonRpcMessage::Response(JsonRpcResponse { id, .. })
                | ServerJsonRpcMessage::Error(JsonRpcError { id: Some(id), .. }) => unanswered.remove(id),
                _ => {}
            }
            sent.map_err(|_| io::Error::from(ErrorKind::BrokenPipe))
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            if self.refusal.is_some() {
                let Ok(place) = self.out.reserve().await else { break };
                if let Some(refusal) = self.refusal.take() {
                    place.send(line(refusal.json().into_bytes()));
                }
            }
            let out = self.out.clone();
            let next = tokio::select! {
                biased;
                () = out.closed() => break,
                next = self.next() => next,
            };
            let Some(next) = next else {
                self.ended = true;
                // What has begun is answered, as long as somewhere its answer is read.
                tokio::select! {
                    () = self.unanswered.none() => return None,
                    () = out.closed() => break,
                }
            };
            if let Some(message) = self.taken(&next) {
                return Some(message);
            }
        }
        // Nothing reads what is written.
        self.cancel.cancel();
        None
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.ended = true;
        Ok(())
    }
}

/// Serves a client until it leaves or the server does. A client has left that takes nothing of what is to be written
/// for so long.
///
/// # Errors
///
/// When the machine is out of threads or descriptors.
pub(crate) async fn attend(
    mcp: Mcp,
    input: OwnedFd,
    output: OwnedFd,
    leaving: watch::Receiver<bool>,
    patience: Duration,
) -> io::Result<()> {
    let largest = mcp.0.shared.largest;
    let end = Arc::new(EventFd::new()?);
    let ending = Ending(Arc::clone(&end));
    let (to_lines, lines) = mpsc::channel(WAITING);
    let (out, mut messages) = mpsc::channel(WAITING);
    let (written, all_written) = oneshot::channel();
    let reader = thread::Builder::new().name(String::from("ropewalk-stdin"));
    let cancel = CancellationToken::new();
    reader.spawn({
        let (end, cancel, output) = (Arc::clone(&end), cancel.clone(), File::from(output.try_clone()?));
        move || {
            if matches!(read_lines(File::from(input), &output, largest, &end, to_lines), Found::Gone) {
                cancel.cancel();
            }
        }
    })?;
    let writer = thread::Builder::new().name(String::from("ropewalk-stdout"));
    writer.spawn(move || {
        write_messages(File::from(output), &end, &mut messages, patience);
        // Before this thread says that it has ended: senders find out.
        drop(messages);
        let _ = written.send(());
    })?;
    let transport = Lines {
        lines,
        out,
        unanswered: Arc::default(),
        leaving,
        cancel: cancel.clone(),
        largest,
        refusal: None,
        begun: false,
        ended: false,
    };
    // A client that leaves before its first request has had what it wanted.
    if let Ok(session) = serve_server_with_ct(mcp.0, transport, cancel).await {
        let _ = session.waiting().await;
    }
    let _ = all_written.await;
    drop(ending);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_whatever_the_pieces() {
        let mut splitter = Splitter { line: Vec::new(), largest: 5, skipping: false };
        let mut found = Vec::new();
        let mut give = |line| {
            found.push(match line {
                Line::Whole(line) => String::from_utf8(line).expect("a text"),
                Line::TooLarge => String::from("too large"),
            });
        };
        for piece in ["a", "b\nc\n\n", "12345\n123", "456", "789\nd", "e"] {
            splitter.take(piece.as_bytes(), &mut give);
        }
        splitter.end(&mut give);
        assert_eq!(found, ["ab", "c", "12345", "too large", "de"]);
    }

    #[tokio::test]
    async fn all_are_answered_when_the_last_one_is() {
        let unanswered = Unanswered::default();
        unanswered.insert(RequestId::Number(1));
        let mut none = std::pin::pin!(unanswered.none());
        assert!(futures::poll!(none.as_mut()).is_pending());
        unanswered.remove(&RequestId::Number(1));
        none.await;
    }
}
