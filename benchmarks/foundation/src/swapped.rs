//! An event bus over `arc-swap`: a reader loads a pointer, a writer replaces the whole list.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

/// Topics by name; Ropewalk's bus hashes names by the same.
type Topics<T> = HashMap<String, T, foldhash::fast::RandomState>;

type Handler<E> = Arc<dyn Fn(&E) + Send + Sync>;

/// The handlers of one topic.
pub struct Topic<E> {
    handlers: ArcSwap<Vec<Handler<E>>>,
}

impl<E> Topic<E> {
    /// Adds a handler.
    pub fn subscribe(&self, handler: impl Fn(&E) + Send + Sync + 'static) {
        let handler: Handler<E> = Arc::new(handler);
        self.handlers.rcu(|handlers| {
            let mut more = Vec::clone(handlers);
            more.push(Arc::clone(&handler));
            more
        });
    }

    /// Calls every handler.
    #[inline]
    pub fn publish(&self, event: &E) {
        for handler in self.handlers.load().iter() {
            handler(event);
        }
    }
}

/// Topics by name.
pub struct Bus<E> {
    topics: ArcSwap<Topics<Arc<Topic<E>>>>,
}

impl<E> Bus<E> {
    /// A bus without topics.
    pub fn new() -> Self {
        Self { topics: ArcSwap::from_pointee(Topics::default()) }
    }

    /// The topic of this name, made when first asked for.
    pub fn topic(&self, name: &str) -> Arc<Topic<E>> {
        let made = Arc::new(Topic { handlers: ArcSwap::from_pointee(Vec::new()) });
        self.topics.rcu(|topics| {
            let mut more = Topics::clone(topics);
            more.entry(name.to_owned()).or_insert_with(|| Arc::clone(&made));
            more
        });
        Arc::clone(&self.topics.load()[name])
    }

    /// Calls every handler of the topic.
    #[inline]
    pub fn publish(&self, topic: &str, event: &E) {
        if let Some(topic) = self.topics.load().get(topic) {
            topic.publish(event);
        }
    }
}

impl<E> Default for Bus<E> {
    fn default() -> Self {
        Self::new()
    }
}
