//! `GET /v1/status/events`: the document once, and each second what has changed.
//!
//! One task makes the updates for all watchers. The first watcher starts it, and it ends when the last has left.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use ropewalk_sync::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, watch};
use tokio::time::{MissedTickBehavior, interval};

use super::document::{self, Since};
use super::{Status, refused};
use crate::clients::{Caller, Share, Shares, Shown};
use crate::failed::{Code, Failed};

/// Watchers that there may be.
const MOST: usize = 32;
/// Those of them that one client may have.
const MOST_OF_CLIENT: usize = 8;
/// Updates that a watcher may be behind; then it gets the whole.
const BEHIND: usize = 4;
const EVERY: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(super) struct Watchers {
    updates: broadcast::Sender<Arc<str>>,
    /// Whether the task runs.
    runs: Mutex<bool>,
    places: Arc<Semaphore>,
    shares: Arc<Shares>,
}

impl Default for Watchers {
    fn default() -> Self {
        let updates = broadcast::Sender::new(BEHIND);
        let (places, shares) = (Arc::new(Semaphore::new(MOST)), Shares::new(MOST_OF_CLIENT));
        Self { updates, runs: Mutex::new(false), places, shares }
    }
}

impl Watchers {
    /// Whether the task must go on; one that need not has ended.
    fn goes_on(&self) -> bool {
        let mut runs = self.runs.lock();
        *runs = self.updates.receiver_count() > 0;
        *runs
    }

    fn subscribe(status: &Arc<Status>) -> broadcast::Receiver<Arc<str>> {
        let mut runs = status.watchers.runs.lock();
        let updates = status.watchers.updates.subscribe();
        if !std::mem::replace(&mut *runs, true) {
            tokio::spawn(make(Arc::clone(status)));
        }
        updates
    }
}

/// Makes updates while there are watchers.
async fn make(status: Arc<Status>) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut since = Since::now(&status);
    loop {
        ticks.tick().await;
        if !status.watchers.goes_on() {
            return;
        }
        if let Ok((text, next)) = document::made(&status, since, true).await {
            since = next;
            let _ = status.watchers.updates.send(text.into());
        }
    }
}

/// One watcher.
struct Watcher {
    status: Arc<Status>,
    updates: broadcast::Receiver<Arc<str>>,
    leaving: watch::Receiver<bool>,
    /// What the watcher has shown: it may cease to be a client.
    shown: Shown,
    /// It gets the whole next.
    wants_whole: bool,
    _place: OwnedSemaphorePermit,
    _share: Share,
}

impl Watcher {
    /// The watcher as a caller, who may have ceased to be one.
    fn caller(&self) -> Option<Caller> {
        let caller = self.status.shared.roster.admit(&self.shown).ok()?;
        caller.may_read_status().then_some(caller)
    }

    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        while !self.wants_whole {
            let came = tokio::select! {
                came = self.updates.recv() => came,
                // A server that leaves waits for its answers to end.
                _ = self.leaving.wait_for(|leaving| *leaving) => return None,
            };
            match came {
                Ok(text) => return Some((Ok(self.event("update", &text)?), self)),
                Err(broadcast::error::RecvError::Lagged(_)) => self.wants_whole = true,
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
        self.wants_whole = false;
        let text = document::whole(&self.status).await.ok()?;
        Some((Ok(self.event("snapshot", &text)?), self))
    }

    /// An event; `None` if the watcher may not see it any more.
    fn event(&self, name: &str, text: &str) -> Option<Bytes> {
        // JSON has no line breaks of its own.
        let text = document::with_rights(text, self.status.may_administer(&self.caller()?));
        Some(Bytes::from(format!("event: {name}\ndata: {text}\n\n")))
    }
}

/// See the module.
pub(super) async fn events(State(status): State<Arc<Status>>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let caller = Caller::of(&parts.extensions);
    if let Err(failed) = Status::may_read(&caller) {
        return failed.into_response();
    }
    let Some(share) = status.watchers.shares.take(caller.party().as_ref()) else {
        let text =
            format!("the client watches the server {MOST_OF_CLIENT} times, and no client may more often");
        return Failed::new(Code::ResourceExhausted, text).into_response();
    };
    let Ok(place) = Arc::clone(&status.watchers.places).try_acquire_owned() else {
        let text = format!("{MOST} clients watch the server, and no more may");
        return refused(Failed::new(Code::ResourceExhausted, text), StatusCode::SERVICE_UNAVAILABLE);
    };
    let watcher = Watcher {
        updates: Watchers::subscribe(&status),
        leaving: status.leaving.clone(),
        shown: Shown::of(&parts.headers, &parts.extensions),
        wants_whole: true,
        _place: place,
        _share: share,
        status,
    };
    let events = stream::unfold(watcher, Watcher::next).boxed();
    let mut response = Body::from_stream(events).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies that gather what they pass on would show nothing for a while.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
