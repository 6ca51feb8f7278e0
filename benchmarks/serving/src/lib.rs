//! Load for servers of tools: what is sent, and what came of it.

mod plan;
mod sent;
mod tally;

pub use plan::Plan;
pub use sent::{Connection, Protocol, Sent};
pub use tally::{Outcome, Tally};
