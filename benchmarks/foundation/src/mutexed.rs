//! The event bus that most programs write for themselves: a map of handlers behind a lock.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Topics by name; Ropewalk's bus hashes names by the same.
type Topics<T> = HashMap<String, T, foldhash::fast::RandomState>;

type Handler<E> = Box<dyn Fn(&E) + Send + Sync>;

/// Handlers by topic, all behind one lock, which is held while they run.
pub struct Bus<E> {
    topics: Mutex<Topics<Vec<Handler<E>>>>,
}

impl<E> Bus<E> {
    /// A bus without handlers.
    pub fn new() -> Self {
        Self { topics: Mutex::new(Topics::default()) }
    }

    /// Adds a handler to a topic.
    pub fn subscribe(&self, topic: &str, handler: impl Fn(&E) + Send + Sync + 'static) {
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        topics.entry(topic.to_owned()).or_default().push(Box::new(handler));
    }

    /// Calls every handler of the topic.
    #[inline]
    pub fn publish(&self, topic: &str, event: &E) {
        let topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handlers) = topics.get(topic) {
            for handler in handlers {
                handler(event);
            }
        }
    }
}

impl<E> Default for Bus<E> {
    fn default() -> Self {
        Self::new()
    }
}
