//! Worker processes.

pub(crate) mod dispatch;
mod held;
mod neighbours;
pub(crate) mod notes;
pub(crate) mod workers;
