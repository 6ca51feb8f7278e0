//! The handlers of one topic and one type of events.

use std::any::{Any, TypeId};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use crate::config::{Config, PanicReport};
use crate::counter::Counter;
use crate::error::PublishError;
use crate::handler::{AnyHandler, Handle};
use crate::hazard::{Domain, Reader};
use crate::snapshot::Snapshot;
use crate::statistics::TopicStatistics;
use crate::table::Table;

/// Where all readers of all buses of this process are known.
static DOMAIN: LazyLock<Domain> = LazyLock::new(Domain::default);

thread_local! {
    static READER: Reader = DOMAIN.join();
}

/// Runs with what this thread has; where its thread-locals are gone, because it ends, with something made for once.
#[inline]
pub(crate) fn with_reader<T>(work: impl Fn(&Reader) -> T) -> T {
    READER.try_with(&work).unwrap_or_else(|_| work(&DOMAIN.join()))
}

pub(crate) fn domain() -> &'static Domain {
    &DOMAIN
}

/// The handlers in the order of service.
struct List<E: ?Sized> {
    handlers: Box<[Arc<dyn Handle<E>>]>,
    closed: bool,
}

/// See the module.
pub(crate) struct Channel<E: ?Sized> {
    name: Arc<str>,
    config: Arc<Config>,
    list: Snapshot<List<E>>,
    counter: Counter,
    panicked: AtomicU64,
}

impl<E: ?Sized + 'static> Channel<E> {
    pub(crate) fn new(name: Arc<str>, config: Arc<Config>, table: &Table<AnyHandler>) -> Self {
        let list = Snapshot::new(Self::select(&name, table));
        Self { name, config, list, counter: Counter::default(), panicked: AtomicU64::new(0) }
    }

    fn select(name: &str, table: &Table<AnyHandler>) -> List<E> {
        let handlers = table.matching(name).filter_map(|listener| listener.target.of::<E>().cloned());
        List { handlers: handlers.collect(), closed: table.is_closed() }
    }

    /// Whether anybody listens.
    pub(crate) fn is_heard(&self) -> bool {
        with_reader(|reader| {
            let Ok(reading) = self.list.read(reader) else { return false };
            let heard = !reading.value().handlers.is_empty();
            reading.finish(domain);
            heard
        })
    }

    /// Calls every handler.
    #[inline]
    pub(crate) fn publish(&self, reader: &Reader, event: &E) -> Result<(), PublishError> {
        let most = self.config.max_depth;
        // All that a thread reads while it publishes are the lists of those deliveries that it is in.
        if reader.depth() >= most {
            return Err(PublishError::TooDeep { most });
        }
        let Ok(reading) = self.list.read(reader) else { return Err(PublishError::TooDeep { most }) };
        let list = reading.value();
        if list.closed {
            reading.finish(domain);
            return Err(PublishError::Closed);
        }
        self.counter.count(reader.index(), list.handlers.len());
        // Where to go on after a handler that panicked. Written for each handler, but read for none: the walk would
        // wait for its own last store.
        let next = Cell::new(0);
        loop {
            let walk = AssertUnwindSafe(|| {
                for (at, handler) in list.handlers.iter().enumerate().skip(next.get()) {
                    next.set(at + 1);
                    // While nobody came or went, nobody has to be asked.
                    if reading.is_current() || handler.mark().is_active() {
                        handler.call(event);
                    }
                }
            });
            match catch_unwind(walk) {
                Ok(()) => break,
                Err(payload) => self.report(payload),
            }
        }
        reading.finish(domain);
        Ok(())
    }

    #[cold]
    fn report(&self, payload: Box<dyn Any + Send>) {
        self.panicked.fetch_add(1, Ordering::Relaxed);
        self.config.report(&PanicReport { topic: &self.name, payload: &*payload });
        // What was thrown may panic when it is dropped; it is not worth a process.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(again);
        }
    }
}

/// A channel of any type of events.
pub(crate) trait AnyChannel: Any + Send + Sync {
    /// Takes up a change of the table; what is left over is dropped by the caller, without a lock.
    fn refresh(&self, table: &Table<AnyHandler>) -> Box<dyn Any>;

    fn kind(&self) -> TypeId;

    fn name(&self) -> &Arc<str>;

    fn statistics(&self, table: &Table<AnyHandler>) -> TopicStatistics;
}

impl<E: ?Sized + 'static> AnyChannel for Channel<E> {
    fn refresh(&self, table: &Table<AnyHandler>) -> Box<dyn Any> {
        Box::new(self.list.replace(domain(), Self::select(&self.name, table)))
    }

    fn kind(&self) -> TypeId {
        TypeId::of::<E>()
    }

    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn statistics(&self, table: &Table<AnyHandler>) -> TopicStatistics {
        let (published, reached) = self.counter.sums();
        let subscribers = Self::select(&self.name, table).handlers.len();
        let panicked = self.panicked.load(Ordering::Relaxed);
        TopicStatistics { topic: self.name.to_string(), published, reached, panicked, subscribers }
    }
}
