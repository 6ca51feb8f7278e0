//! The tools of a file as it was loaded first, and again: each generation has workers of its own.
//!
//! A call runs on the workers of its tool's generation. A new generation is added, and its workers become ready, before
//! any call finds its tools; the old one goes when no call is left that has found its.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use ropewalk_pool::Engine;
use ropewalk_sync::Mutex;

use crate::call::{Answer, Items, Readiness, Request, Runner, Seat};
use crate::failed::{Code, Failed, Shed};
use crate::telemetry::Now;
use crate::tool::SessionTool;

/// See the module.
pub struct Generations(Mutex<State>);

struct State {
    runners: BTreeMap<u64, Arc<dyn Runner>>,
    /// The generation whose tools calls find.
    current: u64,
}

impl Generations {
    /// The first generation, number 0.
    pub fn new(runner: Arc<dyn Runner>) -> Self {
        Self(Mutex::new(State { runners: BTreeMap::from([(0, runner)]), current: 0 }))
    }

    /// Another one, of which calls find nothing yet.
    pub fn add(&self, number: u64, runner: Arc<dyn Runner>) {
        let gone = self.0.lock().runners.insert(number, runner);
        drop(gone);
    }

    /// From now on calls find the tools of this one; gives the one before.
    pub fn make_current(&self, number: u64) -> u64 {
        std::mem::replace(&mut self.0.lock().current, number)
    }

    /// Forgets one. What runs on its workers goes on.
    pub fn remove(&self, number: u64) {
        let gone = self.0.lock().runners.remove(&number);
        drop(gone);
    }

    fn of(&self, number: u64) -> Result<Arc<dyn Runner>, Failed> {
        let found = self.0.lock().runners.get(&number).cloned();
        found.ok_or_else(|| {
            Failed::new(Code::Unavailable, "the tool was replaced by a newer one before the call began")
                .shed(Shed::Leaving)
        })
    }

    fn current(&self) -> Option<Arc<dyn Runner>> {
        let state = self.0.lock();
        state.runners.get(&state.current).cloned()
    }
}

impl Runner for Generations {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Answer, Failed>> {
        Box::pin(async move { self.of(request.tool.generation)?.call(request).await })
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<Items, Failed>> {
        Box::pin(async move { self.of(request.tool.generation)?.stream(request).await })
    }

    fn seat(&self, of: &SessionTool) -> Result<Arc<dyn Seat>, Failed> {
        self.of(of.open.generation)?.seat(of)
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
