//! The pool's engine: lanes, dispatch, supervision and the protocol with workers, without a word of Python.
//!
//! Tasks are bytes (for worker processes) or opaque values (for threads of this process). The layer above encodes and
//! decodes. See `README.md` for the protocol and why nothing is lost.

#![forbid(unsafe_code)]

mod backend;
mod clock;
pub mod codec;
mod config;
pub mod control;
mod engine;
pub mod events;
mod function;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod lane;
mod locked;
mod notes;
mod outcome;
mod passing;
mod payload;
mod pool;
mod queue;
#[cfg(test)]
mod simulation;
mod statistics;
mod supervisor;
mod task;
pub mod wire;
pub mod worker;
pub mod zygote;

pub use backend::processes::spawn::{Handed, Spawn};
pub use config::{Config, OnCrash, Overflow};
pub use control::Control;
pub use engine::Engine;
pub use function::Function;
pub use lane::LaneLayout;
pub use locked::Opaque;
pub use outcome::{Failure, Limit, Outcome, Phase, Record, Reply};
pub use payload::Payload;
pub use pool::{Capabilities, Finished, Refused, Taken, WaitFor, Waited};
pub use statistics::{Counters, Statistics, WorkerState, WorkerStatistics};
pub use task::{Call, Called, Options, Stage, Task};
pub use zygote::ZygoteCommand;
