//! The same large buffer, given to several tasks at once, is put once.
//!
//! A put of the same bytes from the same address returns the lease of the earlier put, for as long as that lives. The
//! caller may have written to its memory meanwhile, so the bytes are compared, first a few of them and then all: that
//! takes a fraction of the time of a copy into fresh memory, and no memory. No code here writes to a lease's memory
//! after it was filled.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use ropewalk_base::Result;
use ropewalk_sync::Mutex;

use super::arena::{Arena, Lease};
use super::wide;

/// Buffers that are remembered.
const MOST: usize = 16;
/// Bytes that are compared in each of `PROBES` places before all are compared.
const PROBE: usize = 64;
const PROBES: usize = 64;

#[derive(Debug)]
struct Put {
    address: usize,
    length: usize,
    lease: Weak<Lease>,
}

/// The latest large puts of an arena.
#[derive(Debug, Default)]
pub(crate) struct Latest(Mutex<VecDeque<Put>>);

impl Latest {
    fn find(&self, bytes: &[u8]) -> Option<Arc<Lease>> {
        let puts = self.0.lock();
        let same = |put: &&Put| put.address == bytes.as_ptr() as usize && put.length == bytes.len();
        puts.iter().rev().find(same)?.lease.upgrade()
    }

    fn remember(&self, bytes: &[u8], lease: &Arc<Lease>) {
        let mut puts = self.0.lock();
        let (address, length) = (bytes.as_ptr() as usize, bytes.len());
        puts.retain(|put| put.lease.strong_count() > 0 && (put.address, put.length) != (address, length));
        while puts.len() >= MOST {
            puts.pop_front();
        }
        puts.push_back(Put { address, length, lease: Arc::downgrade(lease) });
    }
}

/// Whether a lease has these bytes.
fn has(lease: &Lease, bytes: &[u8]) -> Result<bool> {
    let Some(&(offset, length)) = lease.ranges().first() else { return Ok(false) };
    if length != bytes.len() as u64 {
        return Ok(false);
    }
    lease.segment().warm_up_to_read(bytes.len())?;
    lease.segment().check_range(offset, length)?;
    let data = lease.segment().data()?;
    // SAFETY: the range was checked and lies in the mapping, which lives as long as the lease. No thread writes to it:
    // it was filled before the lease was made, and workers see it read-only or through private copies.
    let put = unsafe { std::slice::from_raw_parts(data.add(offset as usize), bytes.len()) };
    let step = (bytes.len() / PROBES).max(1);
    let probes = (0..bytes.len()).step_by(step).all(|at| {
        let end = (at + PROBE).min(bytes.len());
        put.get(at..end) == bytes.get(at..end)
    });
    Ok(probes && wide::all(bytes.len(), |part| put[part.clone()] == bytes[part]))
}

impl Arena {
    /// As [`put_parts`](Self::put_parts) of one part, or the lease of an earlier call that still lives and has the same
    /// bytes from the same place.
    ///
    /// # Errors
    ///
    /// `Code::OutOfMemory` when there is no room.
    pub fn put_once(&self, bytes: &[u8]) -> Result<Arc<Lease>> {
        if !self.is_ours() {
            return self.put_parts(&[bytes]).map(Arc::new);
        }
        // A failed comparison is no error: the bytes are put anew.
        if let Some(lease) = self.latest().find(bytes)
            && has(&lease, bytes).unwrap_or(false)
        {
            return Ok(lease);
        }
        let lease = Arc::new(self.put_parts(&[bytes])?);
        self.latest().remember(bytes, &lease);
        Ok(lease)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::ArenaConfig;

    #[test]
    fn the_same_bytes_are_put_once_while_a_lease_of_them_lives() {
        let arena = Arena::new(ArenaConfig { keep: 0 });
        let mut bytes = vec![3; 3 << 20];
        let first = arena.put_once(&bytes).expect("room");
        let again = arena.put_once(&bytes).expect("room");
        assert!(Arc::ptr_eq(&first, &again));
        // One byte that no probe compares.
        bytes[(3 << 20) - 7000] = 4;
        let other = arena.put_once(&bytes).expect("room");
        assert!(!Arc::ptr_eq(&first, &other));
        let at = other.ranges()[0].0 + (3 << 20) - 7000;
        assert_eq!(other.segment().copy_out(at, 1).expect("inside"), [4]);
        assert_eq!(first.segment().copy_out(at, 1).expect("inside"), [3]);
        let id = other.segment().id();
        drop((first, again, other));
        assert_ne!(arena.put_once(&bytes).expect("room").segment().id(), id);
    }

    #[test]
    fn few_are_remembered() {
        let arena = Arena::new(ArenaConfig { keep: 0 });
        let many: Vec<Vec<u8>> = (0..2 * MOST).map(|_| vec![1; 2 << 20]).collect();
        let leases: Vec<_> = many.iter().map(|bytes| arena.put_once(bytes).expect("room")).collect();
        assert_eq!(arena.latest().0.lock().len(), MOST);
        drop(leases);
    }
}
