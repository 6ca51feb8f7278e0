//! Handlers and their marks.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The state that every handler has.
#[derive(Debug)]
pub(crate) struct Mark {
    /// False once the handler is unsubscribed. Relaxed: the thread that unsubscribes it sees its own write, and other
    /// threads may see it a little later.
    active: AtomicBool,
    /// Events that the filter rejected.
    filtered: AtomicU64,
}

impl Mark {
    pub(crate) fn new() -> Self {
        Self { active: AtomicBool::new(true), filtered: AtomicU64::new(0) }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    pub(crate) fn retire(&self) {
        self.active.store(false, Ordering::Relaxed);
    }

    pub(crate) fn filtered(&self) -> u64 {
        self.filtered.load(Ordering::Relaxed)
    }
}

/// A handler of one type of events.
pub(crate) trait Handle<E: ?Sized>: Send + Sync {
    fn call(&self, event: &E);

    fn mark(&self) -> &Mark;
}

/// A handler of any type of events, as the table of listeners has it.
pub(crate) struct AnyHandler {
    /// The type of its events.
    pub(crate) kind: TypeId,
    /// An `Arc<dyn Handle<E>>` of that type.
    handler: Box<dyn Any + Send + Sync>,
    retire: Box<dyn Fn() + Send + Sync>,
    filtered: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl AnyHandler {
    pub(crate) fn new<E: ?Sized + 'static>(handler: Arc<dyn Handle<E>>) -> Self {
        let (retired, asked) = (Arc::clone(&handler), Arc::clone(&handler));
        Self {
            kind: TypeId::of::<E>(),
            handler: Box::new(handler),
            retire: Box::new(move || retired.mark().retire()),
            filtered: Box::new(move || asked.mark().filtered()),
        }
    }

    /// The handler, if its events have this type.
    pub(crate) fn of<E: ?Sized + 'static>(&self) -> Option<&Arc<dyn Handle<E>>> {
        self.handler.downcast_ref()
    }

    /// Marks the handler as unsubscribed.
    pub(crate) fn retire(&self) {
        (self.retire)();
    }

    /// Events that the filter rejected.
    pub(crate) fn filtered(&self) -> u64 {
        (self.filtered)()
    }
}

impl fmt::Debug for AnyHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyHandler").finish_non_exhaustive()
    }
}

pub(crate) struct Plain<F> {
    pub(crate) mark: Mark,
    pub(crate) handler: F,
}

impl<E: ?Sized, F: Fn(&E) + Send + Sync> Handle<E> for Plain<F> {
    #[inline]
    fn call(&self, event: &E) {
        (self.handler)(event);
    }

    fn mark(&self) -> &Mark {
        &self.mark
    }
}

/// A handler with a filter. It is a type of its own, so that other handlers need not check for a filter.
pub(crate) struct Filtered<P, F> {
    pub(crate) mark: Mark,
    pub(crate) filter: P,
    pub(crate) handler: F,
}

impl<E: ?Sized, P: Fn(&E) -> bool + Send + Sync, F: Fn(&E) + Send + Sync> Handle<E> for Filtered<P, F> {
    fn call(&self, event: &E) {
        if (self.filter)(event) {
            (self.handler)(event);
        } else {
            self.mark.filtered.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn mark(&self) -> &Mark {
        &self.mark
    }
}
