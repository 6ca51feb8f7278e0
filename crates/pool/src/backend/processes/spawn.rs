//! What workers are made of.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ropewalk_shm::memory::{Block, Segment};
use ropewalk_sync::Mutex;

pub use super::seats::{Seat, Seats};
use crate::zygote::ZygoteCommand;

/// Where workers come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A zygote forks them; pools with an equal command share one.
    Zygote(ZygoteCommand),
    /// Threads of this process take these seats.
    Seats(Arc<Seats>),
}

/// How workers are made.
#[derive(Clone, Debug)]
pub struct Spawn {
    /// Where they come from.
    pub source: Source,
    /// What each worker reads first: opaque to this crate.
    pub spec: Arc<[u8]>,
    /// Segments that the spec refers to: each worker gets their descriptors first.
    pub segments: Vec<Arc<Segment>>,
    /// Blocks of this process's own in them, kept for as long as the pool.
    pub blocks: Vec<Arc<Block>>,
    /// Descriptors that each worker gets a copy of: opaque to this crate.
    pub handed: Arc<Handed>,
}

impl Spawn {
    /// Whether workers are threads of this process.
    pub(crate) fn is_here(&self) -> bool {
        matches!(self.source, Source::Seats(_))
    }
}

/// Descriptors that each worker gets a copy of. They are closed when the pool has ended: the reader of a pipe
/// then sees its end, even if the pool object still exists.
#[derive(Debug, Default)]
pub struct Handed(Mutex<Vec<Arc<OwnedFd>>>);

impl Handed {
    /// Takes them over.
    pub fn new(descriptors: Vec<OwnedFd>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(descriptors.into_iter().map(Arc::new).collect())))
    }

    /// Those that a worker gets.
    pub(crate) fn all(&self) -> Vec<Arc<OwnedFd>> {
        self.0.lock().clone()
    }

    /// Closes them, but for those of requests that are on their way.
    pub(crate) fn close(&self) {
        let closed = std::mem::take(&mut *self.0.lock());
        drop(closed);
    }
}
