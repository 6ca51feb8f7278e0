//! Encoded bytes, with the memory that they refer to.

use std::sync::Arc;

use ropewalk_shm::memory::{Block, Lease, Segment};

use crate::locked::Opaque;
use crate::wire::flags;

/// Bytes of a pickle that is short enough to be kept for an error's text.
pub(crate) const SHORT: usize = 4 * 1024;

/// Encoded bytes, with what they refer to.
#[derive(Debug, Default)]
pub struct Payload {
    /// `EMPTY`, `DESCRIBED`, `LEASED` as in `wire::flags`.
    pub flags: u16,
    /// The record's payload.
    pub bytes: Vec<u8>,
    /// What the bytes refer to. Apart, because most refer to nothing, and each task has a payload.
    pub beside: Option<Box<Beside>>,
}

/// What encoded bytes refer to.
#[derive(Debug, Default)]
pub struct Beside {
    /// Where large parts lie. The payload keeps it until the task has ended, so that every attempt finds its own
    /// arguments; each worker whose views use it keeps it too, until the views are gone.
    pub lease: Option<Arc<Lease>>,
    /// Segments whose descriptors the worker must have before it reads the record.
    pub segments: Vec<Arc<Segment>>,
    /// Blocks of this process's own that the handles in it name: they keep their memory until the task has ended.
    pub blocks: Vec<Arc<Block>>,
    /// Objects that must live until the task has ended, because the bytes refer to them.
    pub kept: Option<Opaque>,
}

/// A payload without bytes of its own.
impl From<Beside> for Payload {
    fn from(beside: Beside) -> Self {
        let Beside { lease, segments, blocks, kept } = &beside;
        let is_empty = lease.is_none() && segments.is_empty() && blocks.is_empty() && kept.is_none();
        Self { beside: (!is_empty).then(|| Box::new(beside)), ..Self::default() }
    }
}

impl Payload {
    /// An answer without content: to a call that could not be served.
    pub fn refusal() -> Self {
        Self { flags: flags::EMPTY | flags::ERROR, ..Self::default() }
    }

    /// See [`Beside::lease`].
    #[inline]
    pub fn lease(&self) -> Option<&Arc<Lease>> {
        self.beside.as_ref()?.lease.as_ref()
    }

    /// See [`Beside::segments`].
    #[inline]
    pub fn segments(&self) -> &[Arc<Segment>] {
        self.beside.as_ref().map_or(&[], |beside| &beside.segments)
    }

    /// A worker keeps the shared arrays that the payload names, or has given them to others, for as long as they like.
    pub(crate) fn lend_for_good(&self) {
        let Some(Beside { lease, segments, blocks, .. }) = self.beside.as_deref() else { return };
        let leased = |id| lease.as_ref().is_some_and(|lease| lease.lies_in(id));
        for segment in segments.iter().filter(|segment| !leased(segment.id())) {
            segment.lend_for_good();
        }
        for block in blocks {
            block.lend_for_good();
        }
    }

    /// The stream alone, if it is short: an error's description of it then takes little memory.
    pub(crate) fn described(&self) -> Option<&[u8]> {
        let plain = self.flags & flags::DESCRIBED == 0 && self.bytes.len() <= SHORT;
        plain.then_some(self.bytes.as_slice())
    }

    /// A copy of what [`for_description`](Self::for_description) keeps.
    pub(crate) fn description(&self) -> Self {
        let bytes = self.described().map(<[u8]>::to_vec).unwrap_or_default();
        Self { flags: self.flags, bytes, ..Self::default() }
    }

    /// The part of the arguments that is kept for a task whose worker died: nothing that holds memory or descriptors.
    pub(crate) fn for_description(self) -> Self {
        let bytes = if self.described().is_some() { self.bytes } else { Vec::new() };
        Self { flags: self.flags, bytes, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_a_worker_keeps_is_not_used_again() {
        use ropewalk_shm::memory::{Arena, ArenaConfig};
        let arena = Arena::new(ArenaConfig { keep: 64 << 20 });
        let segment = arena.whole(&[1; 2 << 20]).expect("room");
        let id = segment.id();
        Payload::from(Beside { segments: vec![segment], ..Beside::default() }).lend_for_good();
        assert_ne!(arena.whole(&[1; 2 << 20]).expect("room").id(), id);
    }
}
