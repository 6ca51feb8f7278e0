//! The contenders that publish events.

use std::sync::Arc;

use ropewalk_bus::{Bus, Topic};

use crate::{mutexed, swapped};

/// What is published. The size of a small message; all contenders pass it by reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The number of the message.
    pub number: u64,
    /// What it says.
    pub value: u64,
}

/// The topic that everybody subscribes to.
pub const TOPIC: &str = "orders.new";

/// What every contender can do.
pub trait Publish: Sync {
    /// Adds a handler to [`TOPIC`] that stays for good.
    fn subscribe(&mut self, handler: impl Fn(&Event) + Send + Sync + 'static);

    /// Calls every handler.
    fn publish(&self, event: &Event);
}

type Handler = Box<dyn Fn(&Event) + Send + Sync>;

/// No bus: a list of handlers that nobody changes any more, and a loop. What no bus can go below, and how far two
/// threads of this machine can be apart.
#[derive(Default)]
pub struct Alone(Vec<Handler>);

impl Publish for Alone {
    fn subscribe(&mut self, handler: impl Fn(&Event) + Send + Sync + 'static) {
        self.0.push(Box::new(handler));
    }

    #[inline]
    fn publish(&self, event: &Event) {
        for handler in &self.0 {
            handler(event);
        }
    }
}

/// The bus behind a lock; it has no handle of a topic, so a topic's name is looked up each time.
#[derive(Default)]
pub struct Mutexed(mutexed::Bus<Event>);

impl Publish for Mutexed {
    fn subscribe(&mut self, handler: impl Fn(&Event) + Send + Sync + 'static) {
        self.0.subscribe(TOPIC, handler);
    }

    #[inline]
    fn publish(&self, event: &Event) {
        self.0.publish(TOPIC, event);
    }
}

/// The bus over arc-swap, through a topic's handle.
pub struct SwappedHandle(Arc<swapped::Topic<Event>>);

impl Default for SwappedHandle {
    fn default() -> Self {
        Self(swapped::Bus::new().topic(TOPIC))
    }
}

impl Publish for SwappedHandle {
    fn subscribe(&mut self, handler: impl Fn(&Event) + Send + Sync + 'static) {
        self.0.subscribe(handler);
    }

    #[inline]
    fn publish(&self, event: &Event) {
        self.0.publish(event);
    }
}

/// The bus over arc-swap, by the topic's name.
#[derive(Default)]
pub struct SwappedName(swapped::Bus<Event>);

impl Publish for SwappedName {
    fn subscribe(&mut self, handler: impl Fn(&Event) + Send + Sync + 'static) {
        self.0.topic(TOPIC).subscribe(handler);
    }

    #[inline]
    fn publish(&self, event: &Event) {
        self.0.publish(TOPIC, event);
    }
}

/// Ropewalk's bus, through a topic's handle.
pub struct RopewalkHandle {
    bus: Bus,
    topic: Topic<Event>,
}

impl Default for RopewalkHandle {
    fn default() -> Self {
        let bus = Bus::new();
        let topic = bus.topic(TOPIC).expect("the name is well-formed");
        Self { bus, topic }
    }
}

impl Publish for RopewalkHandle {
    fn subscribe(&mut self, handler: impl Fn(&Event) + Send + Sync + 'static) {
        self.bus.subscribe(TOPIC, handler).expect("the bus is open").detach();
    }

    #[inline]
    fn publish(&self, event: &Event) {
        self.topic.publish(event).expect("the bus is open");
    }
}

/// Ropewalk's bus, by the topic's name.
#[derive(Default)]
pub struct RopewalkName(Bus);

impl Publish for RopewalkName {
    fn subscribe(&mut self, handler: impl Fn(&Event) + Send + Sync + 'static) {
        self.0.subscribe(TOPIC, handler).expect("the bus is open").detach();
    }

    #[inline]
    fn publish(&self, event: &Event) {
        self.0.publish(TOPIC, event).expect("the bus is open");
    }
}
