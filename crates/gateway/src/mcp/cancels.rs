//! Calls that their client may cancel by a message of its own, over HTTP before revision 2026-07-28.
//!
//! A session is a name that the server gives and forgets: the client shows it again, and cannot guess another's. All
//! that is kept are calls that run.

use std::collections::HashMap;
use std::sync::Arc;

use ropewalk_sync::Mutex;
use tokio_util::sync::CancellationToken;

/// A session's name, and the JSON of a request's id in it.
type Key = (Box<str>, Box<str>);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Cancels(Mutex<Running>);

#[derive(Debug, Default)]
struct Running {
    calls: HashMap<Key, (u64, CancellationToken)>,
    /// The number of the next call: a client may use an id twice.
    next: u64,
}

impl Cancels {
    /// Makes a call known until what this returns is dropped.
    pub(super) fn enter(self: &Arc<Self>, session: &str, id: &str) -> Entered {
        let key: Key = (session.into(), id.into());
        let token = CancellationToken::new();
        let mut running = self.0.lock();
        let number = running.next;
        running.next += 1;
        let replaced = running.calls.insert(key.clone(), (number, token.clone()));
        drop(running);
        drop(replaced);
        Entered { cancels: Arc::clone(self), key, number, token }
    }

    /// Cancels a call, if it runs.
    pub(super) fn cancel(&self, session: &str, id: &str) {
        let found = self.0.lock().calls.remove(&(session.into(), id.into()));
        if let Some((_, token)) = found {
            token.cancel();
        }
    }
}

/// A call that is known.
#[derive(Debug)]
pub(super) struct Entered {
    cancels: Arc<Cancels>,
    key: Key,
    number: u64,
    token: CancellationToken,
}

impl Entered {
    /// Returns when the call is cancelled.
    pub(super) async fn cancelled(&self) {
        self.token.cancelled().await;
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut running = self.cancels.0.lock();
        let is_own = running.calls.get(&self.key).is_some_and(|(number, _)| *number == self.number);
        let removed = if is_own { running.calls.remove(&self.key) } else { None };
        drop(running);
        drop(removed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_cancels_calls_of_its_own_session() {
        let cancels = Arc::new(Cancels::default());
        let call = cancels.enter("one", "1");
        cancels.cancel("other", "1");
        cancels.cancel("one", "\"1\"");
        assert!(!call.token.is_cancelled());
        cancels.cancel("one", "1");
        call.cancelled().await;
    }

    #[test]
    fn what_has_ended_is_forgotten() {
        let cancels = Arc::new(Cancels::default());
        let first = cancels.enter("one", "1");
        let second = cancels.enter("one", "1");
        drop(first);
        cancels.cancel("one", "1");
        assert!(second.token.is_cancelled());
        drop(second);
        drop(cancels.enter("one", "2"));
        assert!(cancels.0.lock().calls.is_empty());
    }
}
