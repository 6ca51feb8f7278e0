//! What one client may hold of what all share: sessions, or places of watchers.

use std::collections::HashMap;
use std::sync::Arc;

use ropewalk_sync::Mutex;

/// How many each client holds, by what tells it from others. Clients that hold none have no entry.
#[derive(Debug)]
pub(crate) struct Shares {
    /// The most that one client may hold.
    pub(crate) most: usize,
    held: Mutex<HashMap<Arc<str>, usize>>,
}

/// One of what a client may hold, until this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Arc<Shares>,
    party: Option<Arc<str>>,
}

impl Shares {
    /// So many for each client.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, held: Mutex::default() })
    }

    /// Takes one for a client, as `Caller::party` names it; `None` if it holds as many as it may. What has no name is
    /// not bounded.
    pub(crate) fn take(self: &Arc<Self>, party: Option<&Arc<str>>) -> Option<Share> {
        if let Some(party) = party {
            let mut held = self.held.lock();
            let count = held.get(party).copied().unwrap_or_default();
            if count >= self.most {
                return None;
            }
            held.insert(Arc::clone(party), count + 1);
        }
        Some(Share { shares: Arc::clone(self), party: party.cloned() })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let Some(party) = &self.party else { return };
        let mut held = self.shares.held.lock();
        if let Some(count) = held.get_mut(party) {
            *count -= 1;
            if *count == 0 {
                held.remove(party);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_its_own_and_gives_it_back() {
        let shares = Shares::new(2);
        let take = |name: &str| shares.take(Some(&name.into()));
        let held = [take("ann"), take("ann"), take("bob")];
        assert!(held.iter().all(Option::is_some));
        assert!(take("ann").is_none());
        let without = [shares.take(None), shares.take(None), shares.take(None)];
        assert!(without.iter().all(Option::is_some));
        drop(held);
        assert!(take("ann").is_some());
        assert!(shares.held.lock().is_empty());
    }
}
