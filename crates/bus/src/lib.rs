//! Publish and subscribe: topics, patterns, who listens to what, and what waits for those who receive.
//!
//! Every bus stands on [`Table`] and [`Backlog`], whatever its messages are. [`Bus`] is the one whose handlers are
//! functions of Rust's; Python's is `crates/py-bus`. [`reports`] is how the rooms of this process publish to both.
//! `README.md` beside this crate has the protocol: who reads what, when a handler is freed, and what happens to those
//! who come and go during a delivery.

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
