//! Calls by ZeroMQ: a ROUTER for the DEALERs of clients.
//!
//! A thread has the socket, because only one may call it. It reads messages, which become calls on the server's
//! runtime, and sends what these leave in `State`, which wakes it.

mod envelope;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt as _;
use http::HeaderMap;
use ropewalk_messaging::endpoint::Endpoint;
use ropewalk_messaging::{Context, Events, Frame, PollItem, Socket, SocketType, Target, errno, option, poll};
use ropewalk_os::eventfd::EventFd;
use ropewalk_sync::Mutex;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

use self::envelope::{Message, Writing};
use crate::arrays::Given;
use crate::call::Request;
use crate::clients::{Peer, Shown, Stranger};
use crate::failed::{Code, Failed};
use crate::http::Shared;
use crate::rpc;
use crate::telemetry::{PARENT, Protocol, STATE};

/// Items of one client that wait to be sent, before its streams stand still.
const AHEAD: usize = 64;
/// Calls of one client that run at a time.
const MOST_CALLS: usize = 1024;
/// How long a client that takes nothing is left alone before it is tried again.
const FULL: Duration = Duration::from_millis(5);
/// How often the thread looks whether the server leaves.
const LOOK: Duration = Duration::from_millis(50);
/// The key of the metadata that has a client's token.
const AUTHORIZATION: &str = "authorization";

/// See the module.
pub(crate) struct Zmq {
    shared: Arc<Shared>,
    /// Where all callers are that show nothing else: this machine, or no address.
    peer: Peer,
    handle: Handle,
    wake: EventFd,
    state: Mutex<State>,
    /// Set when no more calls are taken. Orders nothing: relaxed.
    leaving: AtomicBool,
}

type Identity = Bytes;

#[derive(Default)]
struct State {
    clients: HashMap<Identity, Client>,
}

struct Client {
    /// Its calls that run, by their ids.
    /// `None` for one that is about to run.
    running: HashMap<Bytes, Option<AbortHandle>>,
    /// Messages for it.
    waiting: VecDeque<Outgoing>,
    /// One permit for each item that it may still be sent.
    room: Arc<Semaphore>,
    /// When it is tried again, if it has taken nothing.
    again: Option<Instant>,
}

impl Client {
    /// It has left, or the server does.
    fn give_up(&self) {
        self.room.close();
        self.running.values().flatten().for_each(AbortHandle::abort);
    }
}

/// A message for a client.
struct Outgoing {
    parts: Vec<Frame>,
    /// What an item of a stream has taken of the client's room.
    _room: Option<OwnedSemaphorePermit>,
}

impl Default for Client {
    fn default() -> Self {
        let room = Arc::new(Semaphore::new(AHEAD));
        Self { running: HashMap::new(), waiting: VecDeque::new(), room, again: None }
    }
}

fn failed(error: ropewalk_messaging::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error.to_string())
}

/// Where a server listens for messages, and until when.
pub(crate) struct Listening {
    zmq: Arc<Zmq>,
    endpoint: String,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Listening {
    /// Where it listens: with the port that the system chose.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Takes no more calls.
    pub(crate) fn leave(&self) {
        self.zmq.leaving.store(true, Ordering::Relaxed);
        self.zmq.wake.signal();
    }

    /// Gives up what runs.
    pub(crate) fn stop(&self) {
        self.zmq.end();
        self.leave();
    }
}

impl Zmq {
    /// Listens, in a thread of its own that calls `ended` when it has left: what has begun is answered before.
    ///
    /// # Errors
    ///
    /// When the endpoint cannot be bound, or is open to other machines and callers need no token.
    pub(crate) fn start(
        shared: Arc<Shared>,
        handle: Handle,
        endpoint: &str,
        ended: impl FnOnce() + Send + 'static,
    ) -> io::Result<Listening> {
        let parsed = Endpoint::parse(endpoint).map_err(failed)?;
        let address = match &parsed {
            Endpoint::Ipc(_) => None,
            Endpoint::Tcp(tcp) => Some(tcp.bind_address(true).map_err(failed)?.ip()),
            Endpoint::Shm(_) | Endpoint::Inproc(_) => {
                let text = format!("{endpoint:?}: messages come by tcp:// or ipc://");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        };
        if shared.roster.is_open() && !address.is_none_or(|address| address.is_loopback()) {
            let text = format!(
                "{endpoint} is open to other machines, and every caller would be served: give callers tokens"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let context = Context::new();
        let socket = context.socket(SocketType::Router).map_err(failed)?;
        let largest = i64::try_from(shared.largest).unwrap_or(i64::MAX);
        socket.set(option::MAXMSGSIZE, &largest.to_ne_bytes()).map_err(failed)?;
        // A message for a client that has left is an error, by which its calls are cancelled.
        socket.set(option::ROUTER_MANDATORY, &1_i32.to_ne_bytes()).map_err(failed)?;
        socket.set(option::LINGER, &1000_i32.to_ne_bytes()).map_err(failed)?;
        socket.bind(endpoint).map_err(|error| io::Error::other(format!("{endpoint}: {error}")))?;
        let bound = match socket.get(option::LAST_ENDPOINT).map_err(failed)? {
            ropewalk_messaging::Value::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            _ => endpoint.to_owned(),
        };
        let wake = EventFd::new()?;
        let (state, leaving) = (Mutex::default(), AtomicBool::new(false));
        // Rates of addresses are for servers without clients, which only this machine reaches.
        let peer = Peer { address, ..Peer::default() };
        let zmq = Arc::new(Self { shared, peer, handle, wake, state, leaving });
        let serving = Arc::clone(&zmq);
        thread::Builder::new().name(String::from("ropewalk-zmq")).spawn(move || {
            // Errors of the socket end it, and with it the thread: it is closed by no other.
            let _ = serving.serve(&socket);
            serving.end();
            socket.close(None);
            let _ = context.term(Duration::from_secs(1));
            ended();
        })?;
        Ok(Listening { zmq, endpoint: bound })
    }

    fn serve(self: &Arc<Self>, socket: &Socket) -> ropewalk_messaging::Result<()> {
        loop {
            let leaving = self.leaving.load(Ordering::Relaxed);
            let again = self.flush(socket)?;
            if leaving && again.is_none() && self.is_idle() {
                return Ok(());
            }
            let wanted = if leaving { Events::NONE } else { Events::READ };
            let mut items = [
                PollItem { target: Target::Socket(socket), events: wanted, revents: Events::NONE },
                PollItem {
                    target: Target::Fd(self.wake.as_fd().as_raw_fd()),
                    events: Events::READ,
                    revents: Events::NONE,
                },
            ];
            let latest = Instant::now() + LOOK;
            poll(&mut items, Some(again.map_or(latest, |at| at.min(latest))))?;
            self.wake.drain();
            // So many that answers wait for no flood of requests.
            for _ in 0..if leaving { 0 } else { 256 } {
                match socket.try_recv_all(false) {
                    Ok(parts) => self.take(parts),
                    Err(error) if error.errno() == errno::EAGAIN => break,
                    Err(error) => return Err(error),
                }
            }
        }
    }

    fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.clients.values().all(|client| client.running.is_empty() && client.waiting.is_empty())
    }

    /// The thread leaves: what runs is given up.
    fn end(&self) {
        let clients = std::mem::take(&mut self.state.lock().clients);
        clients.values().for_each(Client::give_up);
    }

    /// Sends what waits, as far as clients take it; gives when those that take nothing are to be tried again.
    fn flush(&self, socket: &Socket) -> ropewalk_messaging::Result<Option<Instant>> {
        let now = Instant::now();
        let mut gone = Vec::new();
        let mut next: Option<Instant> = None;
        let mut state = self.state.lock();
        for (identity, client) in &mut state.clients {
            if client.again.is_some_and(|at| at > now) {
                next = next.into_iter().chain(client.again).min();
                continue;
            }
            client.again = None;
            while let Some(message) = client.waiting.front_mut() {
                match socket.try_send_all(&mut message.parts) {
                    Ok(()) => drop(client.waiting.pop_front()),
                    Err(error) if error.errno() == errno::EAGAIN => {
                        client.again = Some(now + FULL);
                        next = next.into_iter().chain(client.again).min();
                        break;
                    }
                    Err(error) if error.errno() == errno::EHOSTUNREACH => {
                        gone.push(identity.clone());
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        let left: Vec<Client> = gone.iter().filter_map(|one| state.clients.remove(one)).collect();
        state.clients.retain(|_, client| !(client.running.is_empty() && client.waiting.is_empty()));
        drop(state);
        left.iter().for_each(Client::give_up);
        Ok(next)
    }

    /// Takes a message of a client.
    fn take(self: &Arc<Self>, parts: Vec<Frame>) {
        let mut parts: VecDeque<Bytes> =
            parts.iter().map(|part| Bytes::copy_from_slice(part.bytes())).collect();
        let Some(identity) = parts.pop_front() else { return };
        // A REQ puts an empty part before its message, and wants it back; a DEALER may do the same.
        let is_enclosed = parts.front().is_some_and(Bytes::is_empty);
        if is_enclosed {
            parts.pop_front();
        }
        let peer = Sender { zmq: Arc::clone(self), identity, is_enclosed };
        match Message::of(parts.make_contiguous()) {
            Ok(Message::Cancel(id)) => {
                let running = {
                    let state = self.state.lock();
                    let client = state.clients.get(&peer.identity);
                    client.and_then(|client| client.running.get(&id).cloned().flatten())
                };
                if let Some(running) = running {
                    running.abort();
                }
            }
            Ok(Message::Call { id, writing, said, deadline }) => {
                if let Err(refused) = self.enter(&peer.identity, &id) {
                    peer.say(&id, "error", envelope::failure(&refused), None, false);
                    return;
                }
                let identity = peer.identity.clone();
                let call = Call { peer, id: id.clone(), writing, is_over: false };
                // Without the lock: a runtime that leaves drops the call at once.
                let task = self.handle.spawn(call.run(said, deadline));
                let mut state = self.state.lock();
                let client = state.clients.get_mut(&identity);
                if let Some(running) = client.and_then(|client| client.running.get_mut(&id)) {
                    *running = Some(task.abort_handle());
                }
            }
            Err((id, failed)) => peer.say(&id, "error", envelope::failure(&failed), None, false),
        }
    }

    /// A call is about to run.
    fn enter(&self, identity: &Identity, id: &Bytes) -> Result<(), Failed> {
        let mut state = self.state.lock();
        let client = state.clients.entry(identity.clone()).or_default();
        if client.running.len() >= MOST_CALLS {
            let text = format!("the client has {MOST_CALLS} calls that run, which is the limit");
            return Err(Failed::new(Code::ResourceExhausted, text));
        }
        if client.running.contains_key(id) {
            return Err(Failed::new(Code::InvalidArgument, "a call with this id runs"));
        }
        client.running.insert(id.clone(), None);
        Ok(())
    }
}

/// Why a caller is not served.
fn refused(why: Stranger) -> Failed {
    Failed::new(
        Code::Unauthenticated,
        match why {
            Stranger::Unproven => {
                "the metadata needs `authorization: Bearer TOKEN`, with a token that the server knows"
            }
            Stranger::Unknown => "the server does not know the token, or wants a certificate with it",
            Stranger::Expired => "the caller's token has expired here",
        },
    )
}

/// A client.
struct Sender {
    zmq: Arc<Zmq>,
    identity: Identity,
    is_enclosed: bool,
}

impl Sender {
    /// Leaves a message for the client, and wakes the thread that sends it. With `last` the call is over: as soon as
    /// the client has the message, it may give the id to another call.
    fn say(&self, id: &Bytes, kind: &str, body: Bytes, room: Option<OwnedSemaphorePermit>, last: bool) {
        let mut parts = vec![Frame::copy_of(&self.identity)];
        if self.is_enclosed {
            parts.push(Frame::copy_of(b""));
        }
        parts.extend([Frame::copy_of(id), Frame::copy_of(kind.as_bytes()), Frame::from_owner(body)]);
        let mut state = self.zmq.state.lock();
        let client = state.clients.entry(self.identity.clone()).or_default();
        client.waiting.push_back(Outgoing { parts, _room: room });
        let gone = last.then(|| client.running.remove(id));
        drop(state);
        drop(gone);
        self.zmq.wake.signal();
    }
}

/// A call of a client. Dropped before its end, it was cancelled.
struct Call {
    peer: Sender,
    id: Bytes,
    writing: Writing,
    /// Whether its last message has been said: the id may be another call's now.
    is_over: bool,
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let gone = {
            let mut state = self.peer.zmq.state.lock();
            state.clients.get_mut(&self.peer.identity).and_then(|client| client.running.remove(&self.id))
        };
        drop(gone);
        self.peer.zmq.wake.signal();
    }
}

impl Call {
    async fn run(mut self, said: rpc::Said, deadline: Option<Instant>) {
        let (kind, body) = match self.called(said, deadline).await {
            Ok(Some(answer)) => ("result", answer),
            Ok(None) => ("end", Bytes::new()),
            Err(failed) => ("error", envelope::failure(&failed)),
        };
        self.is_over = true;
        self.peer.say(&self.id, kind, body, None, true);
    }

    /// The result; `None` behind the items of a stream.
    async fn called(&self, mut said: rpc::Said, deadline: Option<Instant>) -> Result<Option<Bytes>, Failed> {
        let shared = &self.peer.zmq.shared;
        let mut headers = HeaderMap::new();
        for name in [PARENT, STATE] {
            if let Some(Value::String(text)) = said.metadata.remove(name.as_str())
                && let Ok(value) = text.parse()
            {
                headers.insert(name, value);
            }
        }
        let shown = said.metadata.remove(AUTHORIZATION);
        let shown = shown.as_ref().and_then(Value::as_str).map(str::as_bytes);
        let caller = shared.roster.admit(&Shown::new(shown, self.peer.zmq.peer.clone())).map_err(refused)?;
        let found = shared.catalog.get().tool_for(&caller, &said.tool).map(Arc::clone);
        let watched = shared.telemetry.begin(Protocol::Zmq, found.as_ref().ok(), &headers);
        watched.by(&caller);
        let given = found.and_then(|tool| {
            caller.take()?;
            Ok((tool, said.given?))
        });
        let (tool, given) = given.inspect_err(|failed| watched.failed(failed))?;
        watched.add_context(&mut said.metadata);
        let metadata = if said.metadata.is_empty() {
            Bytes::new()
        } else {
            Bytes::from(Value::Object(said.metadata).to_string())
        };
        let (Given { form, arguments, beside }, streams) = (given, tool.streams);
        let request = Request {
            tool,
            form,
            arguments,
            beside,
            metadata,
            deadline,
            reports: None,
            watched: watched.clone(),
        };
        if !streams {
            let answer = shared.runner.call(request).await;
            let answer = answer.and_then(|answer| envelope::answer(answer, self.writing));
            let answer = answer.inspect_err(|failed| watched.failed(failed))?;
            watched.ended();
            return Ok(Some(answer));
        }
        let items = shared.runner.stream(request).await.inspect_err(|failed| watched.failed(failed))?;
        let mut items = watched.over(items);
        while let Some(item) = items.next().await {
            self.item(envelope::answer(item?, self.writing)?).await?;
        }
        Ok(None)
    }

    /// Sends an item, when the client has room for it.
    async fn item(&self, body: Bytes) -> Result<(), Failed> {
        let room = {
            let mut state = self.peer.zmq.state.lock();
            Arc::clone(&state.clients.entry(self.peer.identity.clone()).or_default().room)
        };
        let left = || Failed::new(Code::Cancelled, "the client has left");
        let permit = room.acquire_owned().await.map_err(|_| left())?;
        self.peer.say(&self.id, "item", body, Some(permit), false);
        Ok(())
    }
}
