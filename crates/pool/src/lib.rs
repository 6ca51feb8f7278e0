//! The pool's engine: lanes, dispatch, supervision and the protocol with workers, without a word of Python.
//!
//! Tasks are bytes (for worker processes) or opaque values (for threads of this process). The layer above encodes and
//! decodes. See `README.md` for the protocol and why nothing is lost.

mod clock;
mod config;
pub mod control;
mod dispatch;
mod engine;
pub mod events;
pub mod frame;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod held;
mod lane;
mod locked;
mod neighbours;
mod notes;
mod passing;
mod queue;
#[cfg(test)]
mod simulation;
mod statistics;
mod supervisor;
mod task;
pub mod wire;
pub mod worker;
mod workers;
pub mod zygote;

pub use config::{Config, Handed, OnCrash, OnFull, Spawn};
pub use control::Control;
pub use engine::{Engine, Finished, Refused, Sleeper, Taken, Waited};
pub use lane::LaneLayout;
pub use locked::Opaque;
pub use statistics::{Counters, Statistics, WorkerState, WorkerStatistics};
pub use task::{
    Call, Called, Failure, Function, Limit, Options, Outcome, Payload, Phase, Record, Reply, Stage, Task,
};
pub use zygote::ZygoteCommand;
