//! The pool's engine: lanes, dispatch, supervision and the protocol with workers, without a word of Python.
//!
//! Tasks are bytes (for worker processes) or opaque values (for threads of this process). The layer above encodes and
//! decodes. See `README.md` for the protocol and why nothing is lost.

#![forbid(unsafe_code)]

mod backend;
mod backoff;
mod calls;
mod cause;
mod client;
mod clock;
pub mod codec;
mod config;
pub mod control;
mod engine;
pub mod events;
mod function;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod histogram;
mod lane;
mod leave;
mod lifespan;
mod locked;
mod notes;
mod outcome;
mod pace;
mod passing;
mod payload;
mod pool;
mod pulse;
mod quarantine;
mod queue;
mod records;
mod running;
mod session;
mod signals;
#[cfg(test)]
mod simulation;
mod statistics;
mod stream;
mod supervisor;
mod task;
mod times;
pub mod wire;
pub mod worker;
pub mod zygote;

pub use backend::processes::spawn::{Handed, Seat, Seats, Source, Spawn};
pub use backoff::{Backoff, Jitter};
pub use calls::{Answered, Calling};
pub use cause::Cause;
pub use client::Client;
pub use config::{Config, Health, Life, OnCrash, Overflow, Scale};
pub use control::Control;
pub use engine::Engine;
pub use function::Function;
pub use histogram::{Bucket, Histogram};
pub use lane::LaneLayout;
pub use leave::{Leave, Nudge};
pub use locked::Opaque;
pub use outcome::{Death, Failure, Limit, Outcome, Phase, Record, Reply};
pub use pace::Credit;
pub use payload::{Beside, Payload};
pub use pool::{
    Answer, Attempt, Attended, Capabilities, Errand, Finished, Hung, News, Order, Refused, Taken, WaitFor,
    Waited, Which,
};
pub use pulse::{Beat, MOST_NOTE, Progress};
pub use quarantine::Quarantined;
pub use records::{Ended, Histograms};
pub use running::{Running, Terms};
pub use session::{Mode, Session, SessionSettings};
pub use signals::Signals;
pub use statistics::{Counters, Doing, Signalled, Statistics, WorkerState, WorkerStatistics};
pub use stream::{Item, Items, MOST_UNREAD_BYTES, Stream, cost};
pub use task::{Call, Called, Options, Rare, Remote, Stage, Task};
pub use times::{Begin, Meter, Tail, Times};
pub use zygote::ZygoteCommand;

/// Ends the zygotes of pools that are gone, for a program that makes pools of other code again and again: each has
/// loaded what its pools asked for, and is kept for the next pool that asks for the same.
pub fn end_idle_zygotes() {
    supervisor::Supervisor::end_idle_zygotes();
}
