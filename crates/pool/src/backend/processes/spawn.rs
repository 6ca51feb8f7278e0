//! What worker processes are made of.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ropewalk_shm::memory::{Block, Segment};
use ropewalk_sync::Mutex;

use crate::zygote::ZygoteCommand;

/// How worker processes are made.
#[derive(Clone, Debug)]
pub struct Spawn {
    /// The zygote to fork from; pools with an equal command share one.
    pub zygote: ZygoteCommand,
    /// What each worker reads first: opaque to this crate.
    pub spec: Arc<[u8]>,
    /// Segments that the spec refers to: each worker gets their descriptors first.
    pub segments: Vec<Arc<Segment>>,
    /// Blocks of this process's own in them, kept for as long as the pool.
    pub blocks: Vec<Arc<Block>>,
    /// Descriptors that each worker gets a copy of: opaque to this crate.
    pub handed: Arc<Handed>,
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
