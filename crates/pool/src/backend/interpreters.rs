//! Workers that are threads of this process with an interpreter each.
//!
//! They stand behind lanes as [processes](super::processes) do, and everything that is about lanes is shared with
//! those: what an interpreter gets and answers are bytes. What differs is how a worker begins and ends, which is in
//! [`seats`](super::processes::seats): the layer above makes the threads. Such a worker ends a task that runs by an
//! exception, between two steps of the task's code; a call that sits in C runs on until it returns. See
//! [`Leave`](crate::Leave).

use super::processes::Processes;
use crate::pool::Capabilities;

/// The capabilities of the kind.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    kind: "interpreter",
    encodes: true,
    shares_memory: true,
    starts_workers: true,
    ends_running: true,
    isolates: false,
    keeps_states: true,
};

/// Workers that are interpreters of this process.
pub(crate) type Interpreters = Processes;
