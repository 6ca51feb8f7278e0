//! Publish and subscribe: topics, patterns, the table of listeners, and the backlog of a receiver.
//!
//! Every bus stands on [`Table`] and [`Backlog`], whatever its messages are. [`Bus`] has Rust functions as handlers;
//! Python's bus is `crates/py-bus`. Through [`reports`] the crates of this process publish to both. This crate's
//! `README.md` has the protocol: which thread reads what, when a handler is freed, and how subscribing and
//! unsubscribing affect a delivery.

#![deny(unsafe_code)]

mod backlog;
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
#[cfg(not(loom))]
mod mailbox;
mod pattern;
#[cfg(not(loom))]
mod registry;
#[cfg(not(loom))]
pub mod reports;
mod snapshot;
#[cfg(not(loom))]
mod statistics;
mod table;

pub use backlog::{Backlog, Counters, Offered, Overflow, Taken};
#[cfg(not(loom))]
pub use bus::{Bus, Listen, Subscription, Topic};
#[cfg(not(loom))]
pub use config::{Config, PanicReport};
#[cfg(not(loom))]
pub use error::{PublishError, SubscribeError};
#[cfg(not(loom))]
pub use mailbox::{Mailbox, Watcher};
pub use pattern::{Pattern, PatternError, TopicError, check_topic};
#[cfg(not(loom))]
pub use statistics::{Statistics, TopicStatistics};
pub use table::{Listener, Table};
