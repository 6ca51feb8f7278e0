//! The base of an event loop, without callbacks: readiness of descriptors, timers, calls from other threads, and the
//! pace at which a busy loop checks them. The crate's `README.md` explains how they fit together, and why no call is
//! lost.

#![deny(unsafe_code)]

mod glance;
mod injector;
mod pace;
mod reactor;
mod timers;
mod wake;

pub use glance::Glance;
pub use injector::{Chain, Injector, Link, Linked};
pub use pace::Pace;
pub use reactor::{Reactor, Token};
pub use timers::Timers;
pub use wake::Wake;
