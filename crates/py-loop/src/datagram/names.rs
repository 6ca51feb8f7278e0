//! The addresses that an endpoint has seen lately: as the kernel writes them, and as objects.
//!
//! Making the object of an address takes longer than the rest of a receive, and reading one longer than the rest of a
//! send. Most endpoints hear from some senders again and again, and answer them. Senders are found by the kernel's
//! bytes, in sets of a few places, of which a new sender takes that of the oldest. Where a datagram goes is found by
//! the object itself, which never changes: that of a sender, or of the last receiver, which the program has made and
//! which may be spelled otherwise.

use pyo3_ffi as ffi;
use ropewalk_os::net::datagrams::Name;

use ropewalk_capi::object::Object;

const SETS: usize = 64;
const PLACES: usize = 4;
/// How many objects can be found, if no two share a place of the index.
const OBJECTS: usize = 1024;

struct Entry {
    name: Name,
    address: Object,
}

/// See the module.
#[derive(Default)]
pub(super) struct Names {
    /// `SETS` times `PLACES`, the youngest of a set first; empty before the first sender.
    entries: Vec<Option<Box<Entry>>>,
    /// Of an object's address, the set in which it may be.
    sets: Vec<u8>,
    receiver: Option<Box<Entry>>,
}

fn set_of(name: &[u8]) -> usize {
    let hash = name.chunks(8).fold(0_u64, |hash, chunk| {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        (hash.rotate_left(5) ^ u64::from_ne_bytes(bytes)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    (hash >> 32) as usize % SETS
}

fn index_of(address: *mut ffi::PyObject) -> usize {
    ((address as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % OBJECTS
}

impl Names {
    /// The object of a name.
    pub(super) fn object(&mut self, name: &Name) -> Option<Object> {
        let set = set_of(name.bytes());
        let places = self.entries.get(set * PLACES..(set + 1) * PLACES)?;
        let entry = places.iter().flatten().find(|entry| entry.name.bytes() == name.bytes())?;
        // Another sender's object may have the same place in the index.
        self.sets[index_of(entry.address.as_ptr())] = set as u8;
        Some(entry.address.clone())
    }

    /// The name of a sender's object, or of the last receiver's.
    pub(super) fn name(&self, address: *mut ffi::PyObject) -> Option<&Name> {
        let set = self.sets.get(index_of(address)).map_or(0, |&set| usize::from(set));
        let places = self.entries.get(set * PLACES..(set + 1) * PLACES).unwrap_or_default();
        let known = places.iter().chain([&self.receiver]).flatten();
        known.into_iter().find(|entry| entry.address.as_ptr() == address).map(|entry| &entry.name)
    }

    /// Keeps a receiver; returns the one before, to be dropped.
    pub(super) fn keep_receiver(&mut self, name: Name, address: Object) -> impl Sized + use<> {
        self.receiver.replace(Box::new(Entry { name, address }))
    }

    /// Keeps a sender; returns the entry that had its place, to be dropped.
    pub(super) fn keep(&mut self, name: Name, address: Object) -> impl Sized + use<> {
        if self.entries.is_empty() {
            self.entries.resize_with(SETS * PLACES, || None);
            self.sets.resize(OBJECTS, 0);
        }
        let set = set_of(name.bytes());
        self.sets[index_of(address.as_ptr())] = set as u8;
        let places = &mut self.entries[set * PLACES..(set + 1) * PLACES];
        places.rotate_right(1);
        places[0].replace(Box::new(Entry { name, address }))
    }
}
