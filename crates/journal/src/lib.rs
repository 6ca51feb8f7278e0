//! An append-only journal on disk: checksummed records, group commit, recovery to the last whole record.
//!
//! One process has a journal open at a time, by `flock`; it loses it in the moment that it dies. A record is durable
//! when [`Journal::append`] returns, as [`Durability`] says. After a crash the journal has every record that was
//! durable, and perhaps some that were on their way: always the first of all that were appended, without a gap.
//! Committed records that are damaged are an error that names the offset, and not the end of the journal. The one
//! exception is the last batch after a crash, until the journal is opened again.
//!
//! `README.md` has the protocol, and what is not promised. `simulation` runs it on a disk that loses power, tears
//! and reorders writes, fills up, fails, and lies.
#![forbid(unsafe_code)]

mod compaction;
mod disk;
mod errors;
mod format;
#[cfg(all(any(test, fuzzing), not(loom)))]
#[doc(hidden)]
pub mod fuzzing;
mod journal;
mod lookup;
mod reader;
mod recovery;
#[cfg(all(any(test, fuzzing), not(loom)))]
#[cfg_attr(fuzzing, allow(dead_code, reason = "the targets need the disk alone"))]
mod simulation;
mod writer;

pub use disk::{Disk, File, LocalDisk, LocalFile};
pub use format::MOST_BYTES;
pub use journal::{Config, Durability, Journal, LONGEST_WAIT, Recovered, Ticket};
pub use lookup::Lookup;
pub use reader::Reader;
pub use recovery::{Dropped, Record};
