//! The Rust bus.

#![expect(unsafe_code, reason = "argued in README.md")]

use std::any::{Any, TypeId};
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};

use ropewalk_sync::Mutex;

use crate::channel::{AnyChannel, Channel, with_reader};
use crate::config::Config;
use crate::directory::Directory;
use crate::error::{PublishError, SubscribeError};
use crate::handler::{AnyHandler, Filtered, Handle, Mark, Plain};
use crate::pattern::{Pattern, check_topic};
use crate::registry::{Leftovers, Registry};
use crate::statistics::Statistics;

struct Shared {
    registry: Mutex<Registry>,
    /// The channels that publishing by name finds without the lock.
    directory: Directory<Arc<dyn AnyChannel>>,
    config: Arc<Config>,
}

/// Publish and subscribe inside a process: events of any type, by topic.
///
/// Handlers run in the thread that publishes, those of a greater priority first, equal ones in their order of arrival.
/// Publishing takes no lock and allocates nothing (by name: to the first topics of a bus, see [`Config::most_listed`]);
/// subscribing and unsubscribing make no publisher wait. A handler may subscribe, unsubscribe any handler (itself too)
/// and publish; see [`Subscription`] for the effect on a delivery that is under way. A clone is another handle of the
/// same bus, which closes with its last handle: a [`Topic`] does not keep it open.
///
/// # Examples
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use ropewalk_bus::Bus;
///
/// struct Order { id: u64 }
///
/// let bus = Bus::new();
/// let seen = Arc::new(Mutex::new(Vec::new()));
/// let subscription = bus.subscribe("orders.*", {
///     let seen = Arc::clone(&seen);
///     move |order: &Order| seen.lock().unwrap().push(order.id)
/// })?;
/// let new_orders = bus.topic::<Order>("orders.new")?;
/// new_orders.publish(&Order { id: 1 })?;
/// bus.publish("orders.paid", &Order { id: 2 })?;
/// drop(subscription);
/// new_orders.publish(&Order { id: 3 })?;
/// assert_eq!(*seen.lock().unwrap(), [1, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Bus(Arc<Shared>);

impl Drop for Shared {
    /// Topics outlive the bus. If they were not closed, they would go on calling handlers that can no longer be
    /// unsubscribed, and handlers that own topics would keep each other alive.
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    /// The channel of a topic, if the directory has it.
    #[inline]
    fn listed<E: ?Sized + 'static>(&self, topic: &str) -> Option<&Channel<E>> {
        let channel = Arc::as_ptr(self.directory.get(TypeId::of::<E>(), topic)?);
        // SAFETY: only `Bus::channel` adds to the directory, and it adds a channel of `E` under the type `E`; the
        // directory keeps it for as long as it lives. A checked downcast would cost a virtual call.
        Some(unsafe { &*channel.cast::<Channel<E>>() })
    }

    fn close(&self) {
        let mut leftovers = Leftovers::new();
        let gone = self.registry.lock().close(&mut leftovers);
        drop((gone, leftovers));
    }
}

impl Default for Bus {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bus").field("config", &self.0.config).finish_non_exhaustive()
    }
}

/// A subscription in the making: see [`Bus::listen`].
#[must_use]
pub struct Listen<'a, E: ?Sized, P = fn(&E) -> bool> {
    bus: &'a Bus,
    pattern: &'a str,
    priority: i32,
    filter: Option<P>,
    event: PhantomData<fn(&E)>,
}

impl Bus {
    /// A bus with the usual configuration.
    pub fn new() -> Self {
        Self::with(Config::default())
    }

    /// A bus.
    pub fn with(mut config: Config) -> Self {
        config.max_depth = config.max_depth.clamp(1, 64);
        Self(Arc::new(Shared {
            registry: Mutex::new(Registry::default()),
            directory: Directory::default(),
            config: Arc::new(config),
        }))
    }

    /// Calls a handler for each event of type `E` that is published to a topic which matches the pattern, until the
    /// subscription is dropped.
    ///
    /// # Errors
    ///
    /// When the pattern is malformed or the bus closed.
    pub fn subscribe<E: ?Sized + 'static>(
        &self,
        pattern: &str,
        handler: impl Fn(&E) + Send + Sync + 'static,
    ) -> Result<Subscription, SubscribeError> {
        self.listen(pattern).call(handler)
    }

    /// As [`subscribe`](Self::subscribe), with a priority and a filter:
    ///
    /// ```
    /// # let bus = ropewalk_bus::Bus::new();
    /// let subscription = bus
    ///     .listen::<u64>("numbers.**")
    ///     .priority(10)
    ///     .filter(|number| number % 2 == 0)
    ///     .call(|number| println!("{number} is even"))?;
    /// # Ok::<(), ropewalk_bus::SubscribeError>(())
    /// ```
    pub fn listen<'a, E: ?Sized + 'static>(&'a self, pattern: &'a str) -> Listen<'a, E> {
        Listen { bus: self, pattern, priority: 0, filter: None, event: PhantomData }
    }

    fn add<E: ?Sized + 'static>(
        &self,
        pattern: &str,
        priority: i32,
        handler: Arc<dyn Handle<E>>,
    ) -> Result<Subscription, SubscribeError> {
        let pattern = Pattern::parse(pattern).map_err(SubscribeError::Pattern)?;
        let handler = AnyHandler::new(handler);
        let mut leftovers = Leftovers::new();
        let added = self.0.registry.lock().add(pattern, priority, handler, &mut leftovers);
        drop(leftovers);
        // A refused handler is dropped here, without the lock.
        let id = added.map_err(|_| SubscribeError::Closed)?;
        Ok(Subscription { bus: Arc::downgrade(&self.0), id })
    }

    /// A topic to publish events of type `E` to: the fastest way to publish more than once.
    ///
    /// # Errors
    ///
    /// When the name is malformed.
    pub fn topic<E: ?Sized + 'static>(&self, name: &str) -> Result<Topic<E>, PublishError> {
        check_topic(name).map_err(PublishError::Topic)?;
        Ok(Topic { channel: self.channel(name) })
    }

    fn channel<E: ?Sized + 'static>(&self, name: &str) -> Arc<Channel<E>> {
        let mut registry = self.0.registry.lock();
        let key = (TypeId::of::<E>(), Arc::from(name));
        let known = registry.channels.get(&key).cloned();
        if let Some(channel) = known.and_then(|known| (known as Arc<dyn Any + Send + Sync>).downcast().ok()) {
            return channel;
        }
        let config = Arc::clone(&self.0.config);
        let most_listed = config.most_listed;
        let made = Arc::new(Channel::<E>::new(Arc::clone(&key.1), config, &registry.table));
        let channel: Arc<dyn AnyChannel> = Arc::clone(&made) as _;
        if registry.channels.len() < most_listed {
            self.0.directory.add(key.0, Arc::clone(&key.1), Arc::clone(&channel));
        }
        registry.channels.insert(key, channel);
        made
    }

    /// Publishes an event to a topic by its name.
    ///
    /// # Errors
    ///
    /// When the bus is closed, the name malformed, or handlers publish to handlers too deep.
    pub fn publish<E: ?Sized + 'static>(&self, topic: &str, event: &E) -> Result<(), PublishError> {
        match self.0.listed::<E>(topic) {
            Some(channel) => with_reader(|reader| channel.publish(reader, event)),
            None => self.topic::<E>(topic)?.publish(event),
        }
    }

    /// Ends the bus: every subscription ends, and publishing gives an error.
    pub fn close(&self) {
        self.0.close();
    }

    /// The current counters. Those of different topics may be read at slightly different moments.
    pub fn statistics(&self) -> Statistics {
        let registry = self.0.registry.lock();
        let mut topics: Vec<_> =
            registry.channels.values().map(|channel| channel.statistics(&registry.table)).collect();
        topics.sort_by(|one, other| one.topic.cmp(&other.topic));
        Statistics {
            published: topics.iter().map(|topic| topic.published).sum(),
            reached: topics.iter().map(|topic| topic.reached).sum(),
            panicked: topics.iter().map(|topic| topic.panicked).sum(),
            filtered: registry.table.listeners().iter().map(|listener| listener.target.filtered()).sum(),
            subscribers: registry.table.listeners().len(),
            topics,
        }
    }
}

impl<'a, E: ?Sized + 'static, P> Listen<'a, E, P> {
    /// Handlers of a greater priority are called first; the default is 0.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Only events for which the filter is true reach the handler.
    pub fn filter<Q: Fn(&E) -> bool + Send + Sync + 'static>(self, filter: Q) -> Listen<'a, E, Q> {
        let Self { bus, pattern, priority, .. } = self;
        Listen { bus, pattern, priority, filter: Some(filter), event: PhantomData }
    }
}

impl<E: ?Sized + 'static, P: Fn(&E) -> bool + Send + Sync + 'static> Listen<'_, E, P> {
    /// Adds the handler.
    ///
    /// # Errors
    ///
    /// When the pattern is malformed or the bus closed.
    pub fn call(self, handler: impl Fn(&E) + Send + Sync + 'static) -> Result<Subscription, SubscribeError> {
        let mark = Mark::new();
        let handler: Arc<dyn Handle<E>> = match self.filter {
            Some(filter) => Arc::new(Filtered { mark, filter, handler }),
            None => Arc::new(Plain { mark, handler }),
        };
        self.bus.add(self.pattern, self.priority, handler)
    }
}

/// One topic of a bus, for events of type `E`. It does not keep the bus open.
pub struct Topic<E: ?Sized> {
    channel: Arc<Channel<E>>,
}

impl<E: ?Sized> Clone for Topic<E> {
    fn clone(&self) -> Self {
        Self { channel: Arc::clone(&self.channel) }
    }
}

impl<E: ?Sized> fmt::Debug for Topic<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topic").finish_non_exhaustive()
    }
}

impl<E: ?Sized + 'static> Topic<E> {
    /// Publishes an event: every handler has been called when it returns.
    ///
    /// # Errors
    ///
    /// When the bus is closed or gone, or handlers publish to handlers too deep.
    #[inline]
    pub fn publish(&self, event: &E) -> Result<(), PublishError> {
        with_reader(|reader| self.channel.publish(reader, event))
    }

    /// Whether any handler listens now: for publishers to which making the event is expensive.
    pub fn has_listeners(&self) -> bool {
        self.channel.has_listeners()
    }
}

/// A handler's subscription; it ends when this is dropped.
///
/// After the drop this thread does not call the handler any more, not even in a delivery that is under way. A delivery
/// under way in another thread may still call it once. A handler that subscribes during a delivery first gets the next
/// event.
#[must_use = "it listens until it is dropped; `detach` has it listen for as long as the bus lives"]
#[derive(Debug)]
pub struct Subscription {
    bus: Weak<Shared>,
    id: u64,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Subscription {
    /// Keeps the subscription for as long as the bus lives.
    pub fn detach(mut self) {
        self.bus = Weak::new();
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(bus) = self.bus.upgrade() {
            let mut leftovers = Leftovers::new();
            let gone = bus.registry.lock().remove(self.id, &mut leftovers);
            // Without the lock: destructors of what a handler owns may use the bus.
            drop((gone, leftovers));
        }
    }
}
