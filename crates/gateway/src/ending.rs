//! Calls that a server gives up which may wait no longer: each fails by itself, so that its client reads why.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use futures::{StreamExt as _, stream};
use ropewalk_pool::Engine;
use tokio_util::sync::CancellationToken;

use crate::call::{Answer, Items, Readiness, Request, Runner, Seat};
use crate::failed::Failed;
use crate::telemetry::Now;
use crate::tool::SessionTool;

/// A runner whose calls can be given up. Those of sessions end with their sessions.
pub(crate) struct Ending {
    runner: Arc<dyn Runner>,
    over: Arc<Over>,
}

#[derive(Default)]
struct Over {
    /// Wakes the calls that wait.
    token: CancellationToken,
    /// Whether calls are given up, for streams, which look at it before each item. It is set before the token is
    /// cancelled, and orders nothing else: relaxed.
    is_over: AtomicBool,
    /// Whether a call was given up. The drain reads it when all connections have ended, or their time is over: relaxed.
    gave_up: AtomicBool,
}

impl Over {
    fn failed(&self) -> Failed {
        self.gave_up.store(true, Ordering::Relaxed);
        Failed::leaving()
    }
}

impl Ending {
    pub(crate) fn new(runner: Arc<dyn Runner>) -> Arc<Self> {
        Arc::new(Self { runner, over: Arc::default() })
    }

    /// Gives up the calls that run, and those that come.
    pub(crate) fn give_up(&self) {
        self.over.is_over.store(true, Ordering::Relaxed);
        self.over.token.cancel();
    }

    /// Whether it has given up a call.
    pub(crate) fn gave_up(&self) -> bool {
        self.over.gave_up.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ending").field("gave_up", &self.gave_up()).finish_non_exhaustive()
    }
}

impl Runner for Ending {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Answer, Failed>> {
        Box::pin(async move {
            tokio::select! {
                biased;
                done = self.runner.call(request) => done,
                () = self.over.token.cancelled() => Err(self.over.failed()),
            }
        })
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<Items, Failed>> {
        Box::pin(async move {
            let begun = tokio::select! {
                biased;
                begun = self.runner.stream(request) => begun?,
                () = self.over.token.cancelled() => return Err(self.over.failed()),
            };
            let items = stream::unfold((Some(begun), Arc::clone(&self.over)), |(items, over)| async move {
                let mut items = items?;
                let item = if over.is_over.load(Ordering::Relaxed) {
                    None
                } else {
                    tokio::select! {
                        biased;
                        item = items.next() => Some(item?),
                        () = over.token.cancelled() => None,
                    }
                };
                Some(match item {
                    Some(item) => (item, (Some(items), over)),
                    None => (Err(over.failed()), (None, over)),
                })
            });
            Ok::<Items, Failed>(Box::pin(items))
        })
    }

    fn seat(&self, of: &SessionTool) -> Result<Arc<dyn Seat>, Failed> {
        self.runner.seat(of)
    }

    fn readiness(&self) -> Readiness {
        self.runner.readiness()
    }

    fn now(&self) -> Now {
        self.runner.now()
    }

    fn engines(&self) -> Vec<Engine> {
        self.runner.engines()
    }
}
