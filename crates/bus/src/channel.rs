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

/// The hazard pointers of all buses of this process.
static DOMAIN: LazyLock<Domain> = LazyLock::new(Domain::default);

thread_local! {
    static READER: Reader = DOMAIN.join();
}

/// Calls `work` with this thread's reader; in a thread that ends and has lost its thread-locals, with one made for this
/// call.
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

    /// Whether any handler listens.
    pub(crate) fn has_listeners(&self) -> bool {
        with_reader(|reader| {
            let Ok(reading) = self.list.read(reader) else { return false };
            let any = !reading.value().handlers.is_empty();
            reading.finish(domain);
            any
        })
    }

    /// Calls every handler.
    #[inline]
    pub(crate) fn publish(&self, reader: &Reader, event: &E) -> Result<(), PublishError> {
        let most = self.config.max_depth;
        // While a thread publishes, it reads only the lists of its own nested deliveries, so its depth is theirs.
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
        // Where to go on after a handler that panicked. It is written for each handler but not read in the walk, which
        // would wait for its own last store.
        let next = Cell::new(0);
        loop {
            let walk = AssertUnwindSafe(|| {
                for (at, handler) in list.handlers.iter().enumerate().skip(next.get()) {
                    next.set(at + 1);
                    // While the list is current, no handler has been removed, and the marks need no check.
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
        // The payload may panic when it is dropped, which must not end the process.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(again);
        }
    }
}

/// A channel of any type of events.
pub(crate) trait AnyChannel: Any + Send + Sync {
    /// Makes the list anew after a change of the table. The caller drops the result, without a lock.
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
