//! The tools of a file as it was loaded first, and again: each generation has workers of its own.
//!
//! A call runs on the workers of its tool's generation. A new generation is added, and its workers become ready, before
//! any call finds its tools; the old one goes when no call is left that has found its.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt as _;
use futures::future::BoxFuture;
use ropewalk_pool::Engine;
use ropewalk_sync::Mutex;

use crate::call::{Answer, Items, Readiness, Request, Runner, Seat};
use crate::failed::{Failed, Shed};
use crate::telemetry::Now;
use crate::tool::SessionTool;

/// See the module.
pub struct Generations {
    runners: Mutex<BTreeMap<u64, Arc<dyn Runner>>>,
    current: Current,
}

/// The generation whose tools calls find. It is written before the workers of the one before end, and says no more than
/// why a call failed by then: relaxed.
#[derive(Clone, Default)]
struct Current(Arc<AtomicU64>);

impl Current {
    /// Says why a call of this generation failed, if newer workers are the reason and not the server's end.
    fn explain(&self, number: u64, of: Of, failed: Failed) -> Failed {
        if !failed.at_end || self.0.load(Ordering::Relaxed) == number {
            return failed;
        }
        let message = match of {
            Of::Session => "newer workers replaced the session's, and its state is gone: open another one",
            Of::Tool if failed.shed.is_some() => {
                "newer workers replaced the tool's before the call began: send it again"
            }
            Of::Tool => {
                "newer workers replaced the tool's before the call ended: send it again if it may run twice"
            }
        };
        Failed { message: message.into(), ..failed }
    }

    /// The same for the items of a stream.
    fn explained(&self, number: u64, of: Of, items: Items) -> Items {
        let current = self.clone();
        items.map(move |item| item.map_err(|failed| current.explain(number, of, failed))).boxed()
    }
}

/// What a call is one of.
#[derive(Clone, Copy)]
enum Of {
    Tool,
    Session,
}

impl Generations {
    /// The first generation, number 0.
    pub fn new(runner: Arc<dyn Runner>) -> Self {
        Self { runners: Mutex::new(BTreeMap::from([(0, runner)])), current: Current::default() }
    }

    /// Another one, of which calls find nothing yet.
    pub fn add(&self, number: u64, runner: Arc<dyn Runner>) {
        let gone = self.runners.lock().insert(number, runner);
        drop(gone);
    }

    /// From now on calls find the tools of this one; gives the one before.
    pub fn make_current(&self, number: u64) -> u64 {
        self.current.0.swap(number, Ordering::Relaxed)
    }

    /// Forgets one. What runs on its workers goes on.
    pub fn remove(&self, number: u64) {
        let gone = self.runners.lock().remove(&number);
        drop(gone);
    }

    fn of(&self, number: u64) -> Result<Arc<dyn Runner>, Failed> {
        let found = self.runners.lock().get(&number).cloned();
        found.ok_or_else(|| self.current.explain(number, Of::Tool, Failed::leaving().shed(Shed::Leaving)))
    }

    fn current(&self) -> Option<Arc<dyn Runner>> {
        let number = self.current.0.load(Ordering::Relaxed);
        self.runners.lock().get(&number).cloned()
    }
}

/// A seat of a generation, which says that newer workers are why its calls fail.
struct Moved {
    seat: Arc<dyn Seat>,
    current: Current,
    number: u64,
}

impl Seat for Moved {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Answer, Failed>> {
        Box::pin(async move {
            self.seat
                .call(request)
                .await
                .map_err(|failed| self.current.explain(self.number, Of::Session, failed))
        })
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<Items, Failed>> {
        Box::pin(async move {
            let begun = self.seat.stream(request).await;
            let begun = begun.map_err(|failed| self.current.explain(self.number, Of::Session, failed))?;
            Ok(self.current.explained(self.number, Of::Session, begun))
        })
    }

    fn lost(&self) -> Option<Failed> {
        Some(self.current.explain(self.number, Of::Session, self.seat.lost()?))
    }
}

impl Runner for Generations {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Answer, Failed>> {
        let number = request.tool.generation;
        Box::pin(async move {
            let answered = self.of(number)?.call(request).await;
            answered.map_err(|failed| self.current.explain(number, Of::Tool, failed))
        })
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<Items, Failed>> {
        let number = request.tool.generation;
        Box::pin(async move {
            let begun = self.of(number)?.stream(request).await;
            let begun = begun.map_err(|failed| self.current.explain(number, Of::Tool, failed))?;
            Ok(self.current.explained(number, Of::Tool, begun))
        })
    }

    fn seat(&self, of: &SessionTool) -> Result<Arc<dyn Seat>, Failed> {
        let number = of.open.generation;
        let seat = self.of(number)?.seat(of);
        let seat = seat.map_err(|failed| self.current.explain(number, Of::Session, failed))?;
        Ok(Arc::new(Moved { seat, current: self.current.clone(), number }))
    }

    fn readiness(&self) -> Readiness {
        let gone = || Readiness::NotReady(String::from("the server has no tools"));
        self.current().map_or_else(gone, |runner| runner.readiness())
    }

    fn now(&self) -> Now {
        self.current().map(|runner| runner.now()).unwrap_or_default()
    }

    fn engines(&self) -> Vec<Engine> {
        self.current().map(|runner| runner.engines()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failed::Code;

    #[test]
    fn newer_workers_are_why_calls_of_the_older_fail() {
        let current = Current::default();
        let refused = || Failed::leaving().shed(Shed::Leaving);
        let of = |number, of, failed| current.explain(number, of, failed).message;
        assert_eq!(of(0, Of::Tool, refused()), "the server is leaving");
        current.0.store(1, Ordering::Relaxed);
        assert_eq!(of(1, Of::Tool, refused()), "the server is leaving");
        assert!(of(0, Of::Tool, refused()).ends_with("before the call began: send it again"));
        assert!(of(0, Of::Tool, Failed::leaving()).ends_with("send it again if it may run twice"));
        assert!(of(0, Of::Session, Failed::leaving()).ends_with("open another one"));
        let other = Failed::new(Code::Unknown, "no");
        assert_eq!(of(0, Of::Tool, other), "no");
        let failed = current.explain(0, Of::Tool, refused());
        assert_eq!((failed.code, failed.shed), (Code::Unavailable, Some(Shed::Leaving)));
    }
}
