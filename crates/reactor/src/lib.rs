//! What an event loop stands on, without anything that is called back: readiness of descriptors, timers, calls from
//! other threads, and the pace at which a busy loop looks at them. How they fit together, and why no call is lost,
//! stands in the crate's `README.md`.

mod injector;
mod pace;
mod reactor;
mod timers;
mod wake;

pub use injector::{Chain, Injector, Link, Linked};
pub use pace::Pace;
pub use reactor::{Reactor, Token};
pub use timers::Timers;
pub use wake::Wake;
