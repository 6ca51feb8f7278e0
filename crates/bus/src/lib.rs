//! Publish and subscribe: topics, patterns, and the bus.
//!
//! `README.md` beside this crate has the protocol: who reads what, when a handler is freed, and what happens to those
//! who come and go during a delivery.

#[cfg(not(loom))]
mod bus;
#[cfg(not(loom))]
mod channel;
#[cfg(not(loom))]
mod config;
#[cfg(not(loom))]
mod counter;
mod directory;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod handler;
mod hazard;
mod pattern;
#[cfg(not(loom))]
mod registry;
mod snapshot;
#[cfg(not(loom))]
mod statistics;

#[cfg(not(loom))]
pub use bus::{Bus, Listen, Subscription, Topic};
#[cfg(not(loom))]
pub use config::{Config, PanicReport};
#[cfg(not(loom))]
pub use error::{PublishError, SubscribeError};
pub use pattern::{Pattern, PatternError, TopicError, check_topic};
#[cfg(not(loom))]
pub use statistics::{Statistics, TopicStatistics};
