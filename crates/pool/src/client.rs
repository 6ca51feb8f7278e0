//! Named clients of a pool: whose tasks they are, for the shares of its workers.

use std::sync::Arc;

/// A client: tasks with the same name are one client's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its name, unique in the pool.
    pub name: Arc<str>,
    /// How many of its tasks go in one round of the clients, at least 1. The share of the task that came last counts.
    pub share: u32,
}
