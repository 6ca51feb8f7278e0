//! Calls by ZeroMQ: a ROUTER for the DEALERs of clients.
//!
//! A thread has the socket, because only one may call it. It reads messages, which become calls on the server's
//! runtime, and sends what these leave in the [`Table`], which wakes it.
//!
//! The file of an `ipc://` endpoint is opened as that of the server's unix socket is: for the user alone, and under a
//! lock. The ROUTER takes the descriptor, because ZeroMQ's own way takes the path from the socket that listens there,
//! and leaves the mode of the file to the umask.

mod call;
mod clients;
mod envelope;

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ropewalk_messaging::endpoint::{Endpoint, IpcEndpoint};
use ropewalk_messaging::{Context, Events, Frame, PollItem, Socket, SocketType, Target, errno, option, poll};
use ropewalk_os::eventfd::EventFd;
use ropewalk_sync::Mutex;
use tokio::runtime::Handle;

use self::call::{Call, Sender};
use self::clients::{Client, Table};
use self::envelope::Message;
use crate::clients::Peer;
use crate::failed::{Failed, Shed};
use crate::http::Shared;
use crate::listener::{SocketFile, open_socket};
use crate::telemetry::Protocol;

/// How often the thread looks whether the server leaves, and which clients take nothing.
const LOOK: Duration = Duration::from_millis(50);
/// Messages that the socket itself keeps for a client, and their bytes; what more there is waits in the [`Table`].
const SOCKET_KEEPS: i32 = 1000;
const SOCKET_KEEPS_BYTES: i64 = 8 << 20;
/// Bytes of a client that the socket reads before the thread takes them. One message may have more.
const SOCKET_READS_BYTES: i64 = 1 << 20;
/// Seconds of silence after which TCP asks whether a client is there, and between three such questions.
const SILENCE: i32 = 60;
const QUESTIONS: [i32; 2] = [20, 3];

/// What a server of messages bears.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connections that may be open.
    pub(crate) connections: usize,
    /// How long a client may take for its handshake.
    pub(crate) handshake: Duration,
    /// How long a client may take nothing of what waits for it.
    pub(crate) patience: Duration,
}

/// See the module.
pub(crate) struct Zmq {
    shared: Arc<Shared>,
    /// Where all callers are that show nothing else: this machine, or no address.
    peer: Peer,
    handle: Handle,
    wake: EventFd,
    clients: Mutex<Table>,
    /// The file of the endpoint, until the server has left.
    file: Mutex<Option<SocketFile>>,
    /// Set when no more calls are taken. Orders nothing: relaxed.
    leaving: AtomicBool,
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
    /// When the endpoint cannot be bound, or is open to other machines or users and callers need no token.
    pub(crate) fn start(
        shared: Arc<Shared>,
        handle: Handle,
        endpoint: &str,
        limits: Limits,
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
        if shared.roster.is_open()
            && let Some(others) = open_to(&parsed, address)
        {
            let text = format!(
                "{endpoint} is open to {others}, and every caller would be served: give callers tokens"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let named = |error: io::Error| io::Error::new(error.kind(), format!("zmq: {error}"));
        let (listener, file) = match &parsed {
            Endpoint::Ipc(IpcEndpoint::Path(path)) => {
                let _within = handle.enter();
                let (listener, file) = open_socket(path).map_err(named)?.into_parts().map_err(named)?;
                (Some(listener), Some(file))
            }
            _ => (None, None),
        };
        let context = Context::new();
        let socket = context.socket(SocketType::Router).map_err(failed)?;
        set_options(&socket, shared.largest, limits).map_err(failed)?;
        if let Some(listener) = &listener {
            socket.set(option::USE_FD, &listener.as_raw_fd().to_ne_bytes()).map_err(failed)?;
        }
        socket.bind(endpoint).map_err(|error| io::Error::other(format!("{endpoint}: {error}")))?;
        let bound = match socket.get(option::LAST_ENDPOINT).map_err(failed)? {
            ropewalk_messaging::Value::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            _ => endpoint.to_owned(),
        };
        let wake = EventFd::new()?;
        let (clients, file) = (Mutex::new(Table::new(limits.patience)), Mutex::new(file));
        let leaving = AtomicBool::new(false);
        // Rates of addresses are for servers without clients, which only this machine reaches.
        let peer = Peer { address, ..Peer::default() };
        let zmq = Arc::new(Self { shared, peer, handle, wake, clients, file, leaving });
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
            let mut items = [
                PollItem { target: Target::Socket(socket), events: Events::READ, revents: Events::NONE },
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
            for _ in 0..256 {
                match socket.try_recv_all(false) {
                    Ok(parts) => self.take(parts, leaving),
                    Err(error) if error.errno() == errno::EAGAIN => break,
                    Err(error) => return Err(error),
                }
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.clients.lock().is_idle()
    }

    /// The thread leaves: what runs is given up, and the endpoint's file goes.
    fn end(&self) {
        let file = self.file.lock().take();
        drop(file);
        let clients = self.clients.lock().clear();
        clients.iter().for_each(Client::give_up);
    }

    /// Sends what waits, as far as clients take it, and ends the connections of those that take nothing; gives when
    /// others are to be tried again.
    fn flush(&self, socket: &Socket) -> ropewalk_messaging::Result<Option<Instant>> {
        let flushed =
            self.clients.lock().flush(Instant::now(), |parts: &mut Vec<Frame>| socket.try_send_all(parts))?;
        flushed.gone.iter().for_each(Client::give_up);
        for (identity, client) in flushed.idle {
            client.give_up();
            self.shared.telemetry.dropped(Protocol::Zmq);
            // It may have ended by itself meanwhile.
            let _ = socket.hang_up(&identity);
        }
        Ok(flushed.again)
    }

    /// Takes a message of a client, or the socket's that one has left.
    fn take(self: &Arc<Self>, parts: Vec<Frame>, leaving: bool) {
        let is_end = is_end(&parts);
        let mut parts: VecDeque<Bytes> =
            parts.iter().map(|part| Bytes::copy_from_slice(part.bytes())).collect();
        let Some(identity) = parts.pop_front() else { return };
        if is_end {
            let left = self.clients.lock().forget(&identity);
            left.iter().for_each(Client::give_up);
            return;
        }
        self.clients.lock().meet(&identity);
        // A REQ puts an empty part before its message, and wants it back; a DEALER may do the same.
        let is_enclosed = parts.front().is_some_and(Bytes::is_empty);
        if is_enclosed {
            parts.pop_front();
        }
        let peer = Sender { zmq: Arc::clone(self), identity, is_enclosed };
        match Message::of(parts.make_contiguous()) {
            Ok(Message::Cancel(id)) => {
                let running = self.clients.lock().running(&peer.identity, &id);
                if let Some(running) = running {
                    running.abort();
                }
            }
            Ok(Message::Call { id, writing, said, deadline }) => {
                let entered = if leaving {
                    Err(self::leaving())
                } else {
                    self.clients.lock().enter(&peer.identity, &id)
                };
                if let Err(refused) = entered {
                    peer.refuse(&id, &refused);
                    return;
                }
                let identity = peer.identity.clone();
                let call = Call { peer, id: id.clone(), writing, is_over: false };
                // Without the lock: a runtime that leaves drops the call at once.
                let task = self.handle.spawn(call.run(said, deadline));
                self.clients.lock().begun(&identity, &id, task.abort_handle());
            }
            Err((id, failed)) => peer.refuse(&id, &failed),
        }
    }
}

/// Who else than programs of the same user could connect, if callers need no token to be served there.
fn open_to(endpoint: &Endpoint, address: Option<IpAddr>) -> Option<&'static str> {
    match (endpoint, address) {
        // An abstract name has no owner and no mode.
        (Endpoint::Ipc(IpcEndpoint::Abstract(_)), _) => Some("other users of this machine"),
        (_, Some(address)) if !address.is_loopback() => Some("other machines"),
        _ => None,
    }
}

fn set_options(socket: &Socket, largest: usize, limits: Limits) -> ropewalk_messaging::Result<()> {
    let largest = i64::try_from(largest).unwrap_or(i64::MAX);
    let connections = i32::try_from(limits.connections).unwrap_or(i32::MAX);
    // For libzmq 0 is for ever.
    let handshake = i32::try_from(limits.handshake.as_millis()).unwrap_or(i32::MAX).max(1);
    for (option, value) in [
        (option::MAXMSGSIZE, largest),
        (option::SNDHWM_BYTES, SOCKET_KEEPS_BYTES),
        (option::RCVHWM_BYTES, SOCKET_READS_BYTES),
    ] {
        socket.set(option, &value.to_ne_bytes())?;
    }
    for (option, value) in [
        // The name that a client gives itself may be another's: answers go to the connection that has asked.
        (option::ROUTER_OWN_IDS, 1),
        (option::ROUTER_NOTIFY, option::NOTIFY_DISCONNECT),
        // A message for a client that has left, or takes no more, is an error.
        (option::ROUTER_MANDATORY, 1),
        (option::SNDHWM, SOCKET_KEEPS),
        (option::MAX_CONNECTIONS, connections),
        (option::HANDSHAKE_IVL, handshake),
        (option::TCP_KEEPALIVE, 1),
        (option::TCP_KEEPALIVE_IDLE, SILENCE),
        (option::TCP_KEEPALIVE_INTVL, QUESTIONS[0]),
        (option::TCP_KEEPALIVE_CNT, QUESTIONS[1]),
        (option::LINGER, 1000),
    ] {
        socket.set(option, &value.to_ne_bytes())?;
    }
    Ok(())
}

/// Whether the socket says that a connection has ended. A client may send the same parts, but those have properties.
fn is_end(parts: &[Frame]) -> bool {
    matches!(parts, [name, end] if end.bytes().is_empty() && name.property("Socket-Type").is_none())
}

fn leaving() -> Failed {
    Failed::leaving().shed(Shed::Leaving)
}
