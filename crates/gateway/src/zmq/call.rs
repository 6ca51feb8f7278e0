//! A call of a client, from its message to its answer.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures::StreamExt as _;
use http::HeaderMap;
use ropewalk_messaging::Frame;
use serde_json::Value;

use super::Zmq;
use super::clients::{Identity, Outgoing, permits};
use super::envelope::{self, Writing};
use crate::arrays::Given;
use crate::call::Request;
use crate::clients::{Shown, Stranger};
use crate::deadline::Deadline;
use crate::failed::{Code, Failed};
use crate::rpc;
use crate::telemetry::{PARENT, Protocol, STATE};

/// The key of the metadata that has a client's token.
const AUTHORIZATION: &str = "authorization";

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
pub(super) struct Sender {
    pub(super) zmq: Arc<Zmq>,
    pub(super) identity: Identity,
    pub(super) is_enclosed: bool,
}

impl Sender {
    fn message(&self, id: &Bytes, kind: &str, body: Bytes) -> Outgoing {
        let mut parts = vec![Frame::copy_of(&self.identity)];
        if self.is_enclosed {
            parts.push(Frame::copy_of(b""));
        }
        parts.extend([Frame::copy_of(id), Frame::copy_of(kind.as_bytes()), Frame::from_owner(body)]);
        Outgoing { parts, bytes: 0, _room: None }
    }

    /// Leaves a message for the client, and wakes the thread that sends it.
    fn say(&self, message: Outgoing) {
        let refused = self.zmq.clients.lock().say(&self.identity, message, Instant::now());
        drop(refused);
        self.zmq.wake.signal();
    }

    /// The same with the last message of a call, which has reserved so many bytes. The call is over: as soon as the
    /// client has the message, it may give the id to another.
    fn say_last(&self, id: &Bytes, kind: &str, body: Bytes, bytes: usize) {
        let message = Outgoing { bytes, ..self.message(id, kind, body) };
        let mut clients = self.zmq.clients.lock();
        let gone = clients.ended(&self.identity, id);
        let refused = clients.say(&self.identity, message, Instant::now());
        drop(clients);
        drop((gone, refused));
        self.zmq.wake.signal();
    }

    /// Leaves an error for the client, whose text may be long: it can have the client's own words.
    pub(super) fn refuse(&self, id: &Bytes, failed: &Failed) {
        let (body, bytes) = self.failure(failed);
        self.say(Outgoing { bytes, ..self.message(id, "error", body) });
    }

    /// An error, and the bytes that it has reserved.
    fn failure(&self, failed: &Failed) -> (Bytes, usize) {
        let body = envelope::failure(failed);
        match self.reserve(&body) {
            Ok(bytes) => (body, bytes),
            // This one is short, and only so many messages wait.
            Err(full) => (envelope::failure(&full), 0),
        }
    }

    fn reserve(&self, body: &Bytes) -> Result<usize, Failed> {
        self.zmq.clients.lock().reserve(&self.identity, body.len())?;
        Ok(body.len())
    }
}

/// A call of a client. Dropped before its end, it was cancelled.
pub(super) struct Call {
    pub(super) peer: Sender,
    pub(super) id: Bytes,
    pub(super) writing: Writing,
    /// Whether its last message has been said: the id may be another call's now.
    pub(super) is_over: bool,
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let gone = self.peer.zmq.clients.lock().ended(&self.peer.identity, &self.id);
        drop(gone);
        self.peer.zmq.wake.signal();
    }
}

impl Call {
    pub(super) async fn run(mut self, said: rpc::Said, deadline: Option<Instant>) {
        let (kind, body, bytes) = match self.called(said, deadline).await {
            Ok(Some((answer, bytes))) => ("result", answer, bytes),
            Ok(None) => ("end", Bytes::new(), 0),
            Err(failed) => {
                let (body, bytes) = self.peer.failure(&failed);
                ("error", body, bytes)
            }
        };
        self.is_over = true;
        self.peer.say_last(&self.id, kind, body, bytes);
    }

    /// The result, and the bytes that it has reserved; `None` behind the items of a stream.
    async fn called(
        &self,
        mut said: rpc::Said,
        deadline: Option<Instant>,
    ) -> Result<Option<(Bytes, usize)>, Failed> {
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
            deadline: deadline.map(Deadline::from),
            reports: None,
            watched: watched.clone(),
        };
        if !streams {
            let answer = shared.runner.call(request).await;
            let answer = answer.and_then(|answer| envelope::answer(answer, self.writing));
            let answer = answer.and_then(|answer| Ok((answer.clone(), self.peer.reserve(&answer)?)));
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
        let left = || Failed::new(Code::Cancelled, "the client has left");
        let room = self.peer.zmq.clients.lock().room(&self.peer.identity);
        let permit = room.ok_or_else(left)?.acquire_many_owned(permits(body.len())).await;
        let room = Some(permit.map_err(|_| left())?);
        self.peer.say(Outgoing { _room: room, ..self.peer.message(&self.id, "item", body) });
        Ok(())
    }
}
