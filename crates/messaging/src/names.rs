//! The names under which the sockets of a context find each other inside the process. A name may be connected to before
//! it is bound.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::lane::Arrival;
use crate::notifier::Notifier;

/// The names of a context.
#[derive(Default)]
pub(crate) struct Names {
    bound: HashMap<String, Weak<Notifier>>,
    /// The sockets that have connected to a name that is not bound yet.
    early: HashMap<String, Vec<Arrival>>,
}

impl Names {
    /// Binds a name; returns the sockets that have connected to it already. `None` if it is taken.
    pub(crate) fn bind(&mut self, name: &str, socket: &Arc<Notifier>) -> Option<Vec<Arrival>> {
        if self.bound.get(name).is_some_and(|other| other.strong_count() > 0) {
            return None;
        }
        self.bound.insert(name.to_owned(), Arc::downgrade(socket));
        Some(self.early.remove(name).unwrap_or_default())
    }

    /// Releases a name, if this socket has it.
    pub(crate) fn unbind(&mut self, name: &str, socket: &Arc<Notifier>) -> bool {
        let is_its = self.bound.get(name).is_some_and(|other| other.as_ptr() == Arc::as_ptr(socket));
        if is_its {
            self.bound.remove(name);
        }
        is_its
    }

    /// The socket that has bound a name.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<Notifier>> {
        self.bound.get(name)?.upgrade()
    }

    /// Keeps an arrival until the name is bound, while its socket lives.
    pub(crate) fn wait(&mut self, name: &str, arrival: Arrival) {
        let waiting = self.early.entry(name.to_owned()).or_default();
        waiting.retain(|other| other.from.strong_count() > 0);
        waiting.push(arrival);
    }
}
