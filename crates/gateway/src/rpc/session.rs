//! `Session`: a session over one call, which lives as long as the call does.

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use connectrpc::{ConnectError, InboundStream, RequestContext, ServiceStream};
use futures::{StreamExt as _, stream};
use tokio::sync::mpsc;
use tokio::task::{Id, JoinSet};
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::proto::session_request::Kind as Asked;
use super::proto::session_response::Kind as Said;
use super::{given, proto, protocol, request, value, violations};
use crate::call::Request;
use crate::clients::{Caller, Shown};
use crate::deadline::OF_CALLER;
use crate::failed::{Code, Failed};
use crate::http::Shared;
use crate::sessions::{Entered, Owner, Session, method};
use crate::telemetry::{Ended, Protocol};
use crate::tool::SessionTool;

/// Answers that may wait for the client. What streams stands still beyond that.
const UNREAD: usize = 16;

/// Calls of a session whose last answer the client may not have read. No further message is read beyond that: a client
/// that calls and does not read holds no more of the server's memory.
const UNANSWERED: usize = 128;

type Answers = mpsc::Sender<Result<proto::SessionResponse, ConnectError>>;

/// A session with its methods.
pub(super) fn described(of: &SessionTool) -> proto::SessionTool {
    let method =
        |(name, tool): (&Arc<str>, _)| proto::Tool { name: name.to_string(), ..super::described(tool) };
    proto::SessionTool {
        name: of.name().to_string(),
        description: of.open.description.clone(),
        input_schema: of.open.input_schema.clone(),
        methods: of.methods.iter().map(|(name, tool)| method((name, &**tool))).collect(),
        ..Default::default()
    }
}

/// Opens the session that the first message asks for. When what this gives is dropped, the session ends.
pub(super) async fn open(
    shared: Arc<Shared>,
    context: &RequestContext,
    mut requests: InboundStream<proto::SessionRequest>,
) -> Result<ServiceStream<proto::SessionResponse>, ConnectError> {
    let wanted = "the first message of a session must open it";
    let first = timeout(shared.patience, requests.next()).await;
    let first = first.map_err(|_| Failed::new(Code::Cancelled, "the first message did not come in time"))?;
    let first = first.ok_or_else(|| Failed::new(Code::InvalidArgument, wanted))??;
    let Some(Asked::Open(asked)) = first.to_owned_message().kind else {
        return Err(Failed::new(Code::InvalidArgument, wanted).into());
    };
    let proto::SessionOpen { tool: name, arguments, metadata, .. } = *asked;
    let (caller, catalog) = (Caller::of(context.extensions()), shared.catalog.get());
    let found = catalog.session_for(&caller, &name);
    let protocol = protocol(context);
    let tool = found.as_ref().ok().map(|of| &of.open);
    let watched = shared.telemetry.begin(protocol, tool, context.headers());
    watched.by(&caller);
    let opened = async {
        let of = found?;
        caller.take()?;
        let tool = Arc::clone(&of.open);
        let given = given(arguments.into_option())?;
        let asked = request(tool, given, metadata, context.deadline(), watched.clone());
        shared.sessions.open(of, Owner::of(context.extensions()), protocol, asked).await
    };
    let session = opened.await.inspect_err(|failed| watched.failed(failed))?;
    watched.ended();
    let (answers, mut came) = mpsc::channel(UNREAD);
    // There is room for it.
    let _ = answers.try_send(Ok(said(0, Said::Opened(Box::default()))));
    let left = CancellationToken::new();
    let conversation = Conversation {
        shared,
        session,
        protocol,
        headers: context.headers().clone(),
        shown: Shown::of(context.headers(), context.extensions()),
        answers,
        left: left.clone(),
        calls: JoinSet::new(),
        known: HashMap::new(),
        numbers: HashMap::new(),
    };
    tokio::spawn(conversation.hold(requests, context.deadline()));
    let guard = left.drop_guard();
    Ok(stream::poll_fn(move |task| {
        let _ = &guard;
        came.poll_recv(task)
    })
    .boxed())
}

fn said(id: u64, kind: Said) -> proto::SessionResponse {
    proto::SessionResponse { id, kind: Some(kind), ..Default::default() }
}

fn failure(failed: Failed) -> Said {
    Said::Failure(Box::new(proto::SessionFailure {
        code: ConnectError::from(failed.clone()).code.grpc_code() as i32,
        message: failed.message.into_owned(),
        violations: violations(failed.violations),
        retry_after: failed.retry_after.map_or(0.0, |time| time.as_secs_f64()),
        ..Default::default()
    }))
}

/// What goes on between a client and its session.
struct Conversation {
    shared: Arc<Shared>,
    session: Arc<Session>,
    protocol: Protocol,
    headers: http::HeaderMap,
    /// What the client has shown: it may cease to be one.
    shown: Shown,
    answers: Answers,
    /// Cancelled when no client reads the answers any more.
    left: CancellationToken,
    calls: JoinSet<()>,
    /// What cancels each call that is not answered yet, by the client's id.
    known: HashMap<u64, CancellationToken>,
    /// The client's id of each call, by that of its task.
    numbers: HashMap<Id, u64>,
}

impl Conversation {
    /// Holds it to its end, and ends the session.
    async fn hold(mut self, requests: InboundStream<proto::SessionRequest>, deadline: Option<Instant>) {
        let (why, last) = self.held(requests, deadline).await;
        // What is not answered is given up.
        self.calls.shutdown().await;
        let ending = self.shared.sessions.end(&self.session, why);
        if let Some(error) = last {
            self.say(Err(error)).await;
        }
        // The client sees the end when the session's object has ended.
        let failed = ending.await.err();
        if let Some(failed) = failed.filter(|_| why == Ended::Closed) {
            self.say(Err(failed.into())).await;
        }
    }

    async fn held(
        &mut self,
        mut requests: InboundStream<proto::SessionRequest>,
        deadline: Option<Instant>,
    ) -> (Ended, Option<ConnectError>) {
        let (left, session) = (self.left.clone(), Arc::clone(&self.session));
        let mut is_open = true;
        while is_open || !self.calls.is_empty() {
            tokio::select! {
                biased;
                () = left.cancelled() => return (Ended::Left, None),
                Some(ended) = self.calls.join_next_with_id() => {
                    let task = ended.map_or_else(|error| error.id(), |(id, ())| id);
                    if let Some(id) = self.numbers.remove(&task) {
                        self.known.remove(&id);
                    }
                }
                gone = session.over(), if self.calls.is_empty() => return (Ended::Lost, Some(gone.into())),
                message = requests.next(), if is_open && self.calls.len() < UNANSWERED => match message {
                    None => is_open = false,
                    Some(Err(error)) => return (Ended::Left, Some(error)),
                    Some(Ok(message)) => {
                        if let Err(failed) = self.take(message.to_owned_message()).await {
                            return (Ended::Closed, Some(failed.into()));
                        }
                    }
                },
                () = passed(deadline) => {
                    let failed = Failed::new(Code::DeadlineExceeded, OF_CALLER);
                    return (Ended::Closed, Some(failed.into()));
                }
            }
        }
        (Ended::Closed, None)
    }

    /// Takes a message. One that is wrong ends the session.
    async fn take(&mut self, message: proto::SessionRequest) -> Result<(), Failed> {
        match message.kind {
            Some(Asked::Call(call)) if self.known.contains_key(&call.id) => {
                Err(Failed::new(Code::InvalidArgument, format!("another call has the id {}", call.id)))
            }
            Some(Asked::Call(call)) => {
                let id = call.id;
                if let Err(failed) = self.begin(*call) {
                    self.say(Ok(said(id, failure(failed)))).await;
                }
                Ok(())
            }
            Some(Asked::Cancel(cancel)) => {
                if let Some(token) = self.known.get(&cancel.id) {
                    token.cancel();
                }
                Ok(())
            }
            Some(Asked::Open(_)) => Err(Failed::new(Code::InvalidArgument, "the session is open already")),
            None => {
                Err(Failed::new(Code::InvalidArgument, "the message is neither a call nor a cancellation"))
            }
        }
    }

    /// Begins a call: its place in the line is taken now, so that calls run in the order of their messages.
    fn begin(&mut self, call: proto::SessionCall) -> Result<(), Failed> {
        let proto::SessionCall { id, method: name, arguments, metadata, timeout, .. } = call;
        let tool = method(self.session.of(), &name);
        let watched = self.shared.telemetry.begin(self.protocol, tool.as_ref().ok().copied(), &self.headers);
        let entered = tool.and_then(|tool| {
            let caller = self.shared.roster.admit(&self.shown).map_err(|_| {
                Failed::new(
                    Code::Unauthenticated,
                    "the caller has opened the session as a client that it is no more",
                )
            })?;
            watched.by(&caller);
            self.session.admit(&caller)?;
            caller.take()?;
            let deadline = until(timeout)?;
            let given = given(arguments.into_option())?;
            let request = request(Arc::clone(tool), given, metadata, deadline, watched.clone());
            Ok((self.shared.sessions.enter(&self.session)?, request))
        });
        let (entered, request) = entered.inspect_err(|failed| watched.failed(failed))?;
        let token = CancellationToken::new();
        let (shared, answers, cancelled) = (Arc::clone(&self.shared), self.answers.clone(), token.clone());
        let task = self.calls.spawn(async move {
            let run = run(&shared, id, entered, request, &answers);
            let done = tokio::select! {
                biased;
                () = cancelled.cancelled() => Err(Failed::new(Code::Cancelled, "the call was cancelled")),
                done = run => done,
            };
            let last = done.unwrap_or_else(|failed| {
                watched.failed(&failed);
                failure(failed)
            });
            // A client that has left reads no answers.
            let _ = answers.send(Ok(said(id, last))).await;
        });
        self.known.insert(id, token);
        self.numbers.insert(task.id(), id);
        Ok(())
    }

    /// Sends an answer, unless the client has left.
    async fn say(&self, answer: Result<proto::SessionResponse, ConnectError>) {
        tokio::select! {
            biased;
            () = self.left.cancelled() => {}
            _ = self.answers.send(answer) => {}
        }
    }
}

/// Runs a call; gives its last answer.
async fn run(
    shared: &Shared,
    id: u64,
    entered: Entered,
    request: Request,
    answers: &Answers,
) -> Result<Said, Failed> {
    let watched = request.watched.clone();
    if !request.tool.streams {
        let answer = value(shared.sessions.call(entered, request).await?)?;
        watched.ended();
        return Ok(Said::Result(Box::new(answer)));
    }
    let mut items = watched.over(shared.sessions.stream(entered, request).await?);
    while let Some(item) = items.next().await {
        let item = Said::Item(Box::new(value(item?)?));
        let left = |_| Failed::new(Code::Cancelled, "the caller has left");
        answers.send(Ok(said(id, item))).await.map_err(left)?;
    }
    Ok(Said::End(Box::default()))
}

/// When so many seconds are over; `None` for 0.
fn until(seconds: f64) -> Result<Option<Instant>, Failed> {
    if seconds == 0.0 {
        return Ok(None);
    }
    let time = Duration::try_from_secs_f64(seconds);
    let time = time.map_err(|_| Failed::new(Code::InvalidArgument, "timeout must be a number of seconds"))?;
    Ok(Instant::now().checked_add(time))
}

async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(at) => sleep_until(at.into()).await,
        None => pending().await,
    }
}
