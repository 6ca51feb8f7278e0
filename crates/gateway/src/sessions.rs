//! Sessions of callers: the state that lives in one worker from one call to the next, and who may reach it.
//!
//! A session is open from the answer to its opening until its client ends it, its connection breaks, nothing has
//! called it for its idle timeout, its worker is gone, or the server leaves. One whose worker is gone stays known until
//! a caller has heard of it: it answers once that it is unavailable, and never begins anew by itself.

mod stream;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::join_all;
use http::{Extensions, HeaderMap};
use rmcp::transport::common::server_side_http::session_id;
use ropewalk_sync::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use self::stream::{InSession, OfStream};
use crate::call::{Answer, Beside, Form, Items, Request, Runner, Seat};
use crate::clients::{Caller, Share, Shares};
use crate::deadline::Deadline;
use crate::failed::{Code, Failed, Shed};
use crate::telemetry::{Ended, OfSessions, Protocol, Telemetry};
use crate::tool::{SessionTool, Tool};
use crate::turns::{Full, Turn, Turns};

/// Calls of one session that may wait for their turn.
const MOST_WAITING: usize = 64;
/// How long the end of a session's object may take; then it is ended with its worker.
const CLOSE_WITHIN: Duration = Duration::from_secs(10);
/// How often sessions are looked at whose time may be over, or whose worker may be gone.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long a client that finds no room is asked to stay away.
const FULL_FOR: Duration = Duration::from_secs(1);

/// Whose a session is: that of a client, and without clients of every caller that knows its name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owner {
    identity: Option<Arc<str>>,
    /// Of whose share of the sessions it is.
    party: Option<Arc<str>>,
}

impl Owner {
    /// The owner of what this request opens, and of what it may reach.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        let caller = Caller::of(extensions);
        Self { identity: caller.identity(), party: caller.party() }
    }

    /// The owner of this name, which has a share of its own.
    #[cfg(test)]
    pub(crate) fn named(name: &str) -> Self {
        Self { identity: Some(name.into()), party: Some(name.into()) }
    }

    /// Of whose share it is, as `Caller::party` names it.
    pub(crate) fn party(&self) -> Option<Arc<str>> {
        self.party.clone()
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        // A caller without an identity may come from another address.
        self.identity == other.identity
    }
}

/// The sessions of a server.
pub(crate) struct Sessions {
    most: usize,
    runner: Arc<dyn Runner>,
    telemetry: Arc<Telemetry>,
    table: Mutex<Table>,
    /// Sessions that are open, or that are being opened. It orders nothing: relaxed.
    places: Arc<AtomicUsize>,
    /// Those of each client, of which none may take all places.
    shares: Arc<Shares>,
    /// Notified when a session has opened.
    opened: Notify,
}

#[derive(Default)]
struct Table {
    known: HashMap<Arc<str>, Arc<Session>>,
    leaving: bool,
}

impl Table {
    /// Forgets the sessions that are lost, if there are as many of them as may be open: nobody has asked for them.
    fn make_room(&mut self, most: usize) -> Vec<Arc<Session>> {
        if self.known.len() < most.saturating_mul(2) {
            return Vec::new();
        }
        let lost: Vec<Arc<Session>> = self.known.values().filter(|one| one.is_lost()).cloned().collect();
        for one in &lost {
            self.known.remove(&one.id);
        }
        lost
    }
}

/// One of so many places for sessions.
#[derive(Debug)]
struct Place {
    places: Arc<AtomicUsize>,
    _share: Share,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A session that has opened.
pub(crate) struct Session {
    id: Arc<str>,
    of: Arc<SessionTool>,
    owner: Owner,
    protocol: Protocol,
    seat: Arc<dyn Seat>,
    turns: Arc<Turns>,
    /// Cancelled when it ends: its calls are given up.
    over: CancellationToken,
    /// The stream whose turn it is, while nothing polls it: the end of the session drops it, whoever reads it.
    stream: Mutex<Option<OfStream>>,
    fate: Mutex<Fate>,
    counts: Option<Arc<OfSessions>>,
}

/// What has become of a session.
#[derive(Debug)]
enum Fate {
    Open {
        _place: Place,
    },
    /// It has ended; after the loss of its worker a caller may have to hear of that yet.
    Ended(Ended),
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its name opens it, so it is not shown.
        f.debug_struct("Session").field("of", self.of.name()).finish_non_exhaustive()
    }
}

/// Where a call of a session is.
#[derive(Debug)]
pub(crate) struct Entered {
    session: Arc<Session>,
    turn: Turn,
}

impl Session {
    /// The name by which its owner reaches it; it cannot be guessed.
    pub(crate) fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// What it is of.
    pub(crate) fn of(&self) -> &Arc<SessionTool> {
        &self.of
    }

    /// Lets a caller call it, who may do that still.
    pub(crate) fn admit(&self, caller: &Caller) -> Result<(), Failed> {
        let name = self.of.name();
        if caller.may_call(name) { Ok(()) } else { Err(Caller::denied(name)) }
    }

    /// Whether it lives as long as a connection, whatever its idle timeout.
    fn is_bound(&self) -> bool {
        matches!(self.protocol, Protocol::Grpc | Protocol::GrpcWeb | Protocol::Connect)
    }

    /// Returns when it has ended; why, as a caller reads it.
    pub(crate) async fn over(&self) -> Failed {
        self.over.cancelled().await;
        self.gone()
    }

    /// Why it serves no calls any more.
    fn gone(&self) -> Failed {
        // A pool that has ended says why: the server leaves, or newer workers replaced it.
        let at_end = self.seat.lost().filter(|failed| failed.at_end);
        match &*self.fate.lock() {
            Fate::Ended(Ended::Lost) => at_end
                .unwrap_or_else(|| Failed::new(Code::Unavailable, "the session is lost with its worker")),
            Fate::Ended(Ended::Leaving) => leaving(),
            Fate::Ended(Ended::Closed | Ended::Left | Ended::Idle) | Fate::Open { .. } => {
                Failed::new(Code::Cancelled, "the session has ended")
            }
        }
    }

    /// It ends, if it has not ended; true if this call has ended it.
    fn end(&self, why: Ended) -> bool {
        let mut fate = self.fate.lock();
        if let Fate::Ended(_) = &*fate {
            return false;
        }
        let before = std::mem::replace(&mut *fate, Fate::Ended(why));
        drop(fate);
        // Its place is free from now on.
        drop(before);
        if let Some(counts) = &self.counts {
            counts.ended(why);
        }
        true
    }

    /// Its worker is gone. What waits for it fails.
    fn lose(&self) {
        if self.seat.lost().is_some() && self.end(Ended::Lost) {
            self.give_up();
        }
    }

    /// Gives its calls up: those that are awaited find out, and a stream that its client does not read ends here.
    fn give_up(&self) {
        self.over.cancel();
        let stream = self.stream.lock().take();
        drop(stream);
    }

    fn is_lost(&self) -> bool {
        matches!(&*self.fate.lock(), Fate::Ended(Ended::Lost))
    }

    /// Calls what ends the object, when the calls that were given up are gone.
    async fn finish(&self, telemetry: &Arc<Telemetry>) -> Result<(), Failed> {
        let Some(close) = &self.of.close else { return Ok(()) };
        if let Some(lost) = self.seat.lost() {
            return Err(unended(&lost));
        }
        let deadline = Deadline::first(None, Some(CLOSE_WITHIN), Instant::now());
        // As many calls may wait as may: each of them leaves now.
        let turn = timeout(CLOSE_WITHIN, async {
            loop {
                if let Ok(mut turn) = self.turns.enter() {
                    turn.comes().await;
                    return turn;
                }
                tokio::task::yield_now().await;
            }
        });
        let Ok(turn) = turn.await else {
            return Err(Failed::new(Code::DeadlineExceeded, "the calls of the session do not end"));
        };
        let watched = telemetry.begin(self.protocol, Some(close), &HeaderMap::new());
        let request = Request {
            tool: Arc::clone(close),
            form: Form::Json,
            arguments: Bytes::from_static(b"{}"),
            beside: Beside::default(),
            metadata: Bytes::new(),
            deadline,
            reports: None,
            watched: watched.clone(),
        };
        let done = self.seat.call(request).await;
        drop(turn);
        match done {
            Ok(_) => {
                watched.ended();
                Ok(())
            }
            Err(failed) => {
                watched.failed(&failed);
                let is_gone = failed.code == Code::Unavailable && self.seat.lost().is_some();
                Err(if is_gone { unended(&failed) } else { failed })
            }
        }
    }
}

impl Sessions {
    /// Sessions of tools that run there, at most so many at a time.
    pub(crate) fn new(most: usize, runner: Arc<dyn Runner>, telemetry: Arc<Telemetry>) -> Arc<Self> {
        let (table, places, shares) = (Mutex::default(), Arc::default(), Shares::new(most.div_ceil(2)));
        Arc::new(Self { most, runner, telemetry, table, places, shares, opened: Notify::new() })
    }

    /// Ends sessions that nothing has called for their idle timeout, and notices those that are lost; for as long as
    /// there are `sessions`.
    pub(crate) fn watch(sessions: &Arc<Self>, handle: &Handle) {
        let weak = Arc::downgrade(sessions);
        handle.spawn(async move {
            while let Some(sessions) = weak.upgrade() {
                if sessions.is_empty() {
                    sessions.opened.notified().await;
                }
                sessions.look(Instant::now());
                drop(sessions);
                sleep(LOOK_EVERY).await;
            }
        });
    }

    /// Opens a session: takes a place for it, and makes its object.
    pub(crate) async fn open(
        &self,
        of: &Arc<SessionTool>,
        owner: Owner,
        protocol: Protocol,
        request: Request,
    ) -> Result<Arc<Session>, Failed> {
        let place = self.place(&owner)?;
        let seat = self.runner.seat(of)?;
        seat.call(request).await?;
        let counts = self.telemetry.sessions(of.name());
        if let Some(counts) = &counts {
            counts.opened();
        }
        let session = Arc::new(Session {
            id: session_id(),
            of: Arc::clone(of),
            owner,
            protocol,
            seat,
            turns: Turns::new(MOST_WAITING),
            over: CancellationToken::new(),
            stream: Mutex::new(None),
            fate: Mutex::new(Fate::Open { _place: place }),
            counts,
        });
        let (is_late, unheard) = {
            let mut table = self.table.lock();
            let unheard = table.make_room(self.most);
            table.known.insert(Arc::clone(&session.id), Arc::clone(&session));
            (table.leaving, unheard)
        };
        drop(unheard);
        if is_late {
            drop(self.end(&session, Ended::Leaving));
            return Err(leaving());
        }
        self.opened.notify_one();
        Ok(session)
    }

    fn place(&self, owner: &Owner) -> Result<Place, Failed> {
        if self.table.lock().leaving {
            return Err(leaving());
        }
        let share = self.shares.take(owner.party.as_ref()).ok_or_else(|| {
            let most = self.shares.most;
            full(format!(
                "the client has {most} sessions open, half of max_sessions, and no client may have more"
            ))
        })?;
        let place = Place { places: Arc::clone(&self.places), _share: share };
        if self.places.fetch_add(1, Ordering::Relaxed) < self.most {
            return Ok(place);
        }
        Err(full(format!("{} sessions are open, which is as many as may (max_sessions)", self.most)))
    }

    /// The session of this name, if it is this owner's.
    pub(crate) fn find(&self, id: &str, owner: &Owner) -> Result<Arc<Session>, Failed> {
        let found = self.table.lock().known.get(id).cloned();
        // Another's session is no different from one that does not exist.
        found.filter(|session| session.owner == *owner).ok_or_else(no_session)
    }

    /// Takes a place in the line of a session's calls.
    pub(crate) fn enter(&self, session: &Arc<Session>) -> Result<Entered, Failed> {
        session.lose();
        if session.over.is_cancelled() {
            // Its caller hears of that now, and there is nothing left of it.
            self.forget(session);
            return Err(session.gone());
        }
        let turn = session.turns.enter().map_err(|Full(most)| {
            let text = format!("{most} calls of the session wait, which is as many as may. Try again later");
            let failed = Failed::new(Code::ResourceExhausted, text).shed(Shed::QueueFull);
            Failed { retry_after: Some(FULL_FOR), ..failed }
        })?;
        Ok(Entered { session: Arc::clone(session), turn })
    }

    /// Runs a call when its turn comes.
    pub(crate) async fn call(&self, entered: Entered, request: Request) -> Result<Answer, Failed> {
        let Entered { session, mut turn } = entered;
        let called = async {
            let request = in_time(&mut turn, request).await?;
            session.seat.call(request).await
        };
        let done = tokio::select! {
            done = called => done,
            gone = session.over() => Err(gone),
        };
        done.map_err(|failed| self.failed(&session, failed))
    }

    /// Begins a stream when its turn comes. The turn lasts until its end.
    pub(crate) async fn stream(
        self: &Arc<Self>,
        entered: Entered,
        request: Request,
    ) -> Result<Items, Failed> {
        let Entered { session, mut turn } = entered;
        let called = async {
            let request = in_time(&mut turn, request).await?;
            session.seat.stream(request).await
        };
        let done = tokio::select! {
            done = called => done,
            gone = session.over() => Err(gone),
        };
        let items = done.map_err(|failed| self.failed(&session, failed))?;
        Ok(Box::pin(InSession::new(items, turn, session, Arc::clone(self))))
    }

    /// A call has failed: perhaps because the session is lost. One that says so is the last of which the name is known.
    fn failed(&self, session: &Arc<Session>, failed: Failed) -> Failed {
        session.lose();
        if session.is_lost() && failed.code == Code::Unavailable {
            self.forget(session);
        }
        failed
    }

    fn forget(&self, session: &Session) {
        let gone = self.table.lock().known.remove(&session.id);
        drop(gone);
    }

    /// Ends a session: its calls are given up, and its object is ended. What this returns need not be awaited; it says
    /// whether the object's end has failed, or could not run, because the worker is gone.
    pub(crate) fn end(
        &self,
        session: &Arc<Session>,
        why: Ended,
    ) -> impl Future<Output = Result<(), Failed>> + Send + use<> {
        self.forget(session);
        let ending = session.end(why).then(|| {
            session.give_up();
            let (session, telemetry) = (Arc::clone(session), Arc::clone(&self.telemetry));
            // It goes on when the client that asked for it has left. Without a runtime the state goes with the seat.
            Handle::try_current()
                .ok()
                .map(|runtime| runtime.spawn(async move { session.finish(&telemetry).await }))
        });
        let is_unended = ending.is_none() && session.is_lost() && session.of.close.is_some();
        let lost = is_unended.then(|| unended(&session.gone()));
        async move {
            match ending.flatten() {
                Some(ending) => ending.await.unwrap_or(Ok(())),
                None => lost.map_or(Ok(()), Err),
            }
        }
    }

    /// Opens no more sessions.
    pub(crate) fn leave(&self) {
        self.table.lock().leaving = true;
    }

    /// Ends all; true if none of them had a call that was given up.
    pub(crate) async fn end_all(&self) -> bool {
        let all: Vec<Arc<Session>> = self.table.lock().known.values().cloned().collect();
        let at_rest = all.iter().all(|session| session.turns.idle_since().is_some() || session.is_lost());
        let ending: Vec<_> = all.iter().map(|session| self.end(session, Ended::Leaving)).collect();
        join_all(ending).await;
        at_rest
    }

    fn is_empty(&self) -> bool {
        self.table.lock().known.is_empty()
    }

    fn look(&self, now: Instant) {
        let all: Vec<Arc<Session>> = self.table.lock().known.values().cloned().collect();
        for session in all {
            session.lose();
            let is_over = session
                .turns
                .idle_since()
                .is_some_and(|since| now.saturating_duration_since(since) >= session.of.idle_timeout);
            if is_over && !session.is_bound() {
                // A session that is lost has been waiting for a caller to hear of it; none came.
                drop(self.end(&session, Ended::Idle));
            }
        }
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("most", &self.most).finish_non_exhaustive()
    }
}

/// No further session may be open.
fn full(why: String) -> Failed {
    let failed = Failed::new(Code::ResourceExhausted, why + ". Try again later").shed(Shed::QueueFull);
    failed.retry_after(FULL_FOR)
}

fn leaving() -> Failed {
    Failed::leaving().shed(Shed::Leaving)
}

/// The object of a session is gone without its end, and why.
fn unended(why: &Failed) -> Failed {
    let text = format!("the session is over, but the end of its object did not run: {}", why.message);
    Failed::new(Code::Unavailable, text)
}

/// There is no such session, or it is another caller's.
fn no_session() -> Failed {
    Failed::new(Code::NotFound, "there is no such session: it was never opened, or it has ended")
}

/// Waits for the turn of a call, for no longer than its caller does.
async fn in_time(turn: &mut Turn, mut request: Request) -> Result<Request, Failed> {
    request.deadline = Deadline::first(request.deadline, request.tool.deadline, Instant::now());
    match request.deadline {
        Some(deadline) => {
            let came = timeout_at(deadline.at.into(), turn.comes()).await;
            came.map_err(|_| deadline.passed().shed(Shed::Deadline))?;
        }
        None => turn.comes().await,
    }
    Ok(request)
}

/// The operation of a session that a caller names.
pub(crate) fn method<'a>(of: &'a SessionTool, name: &str) -> Result<&'a Arc<Tool>, Failed> {
    of.methods.get(name).ok_or_else(|| {
        let known: Vec<&str> = of.methods.keys().map(|name| &**name).collect();
        let text = format!("the session {:?} has no such method; it has {}", of.name(), known.join(", "));
        Failed::new(Code::NotFound, text)
    })
}

#[cfg(test)]
mod tests;
