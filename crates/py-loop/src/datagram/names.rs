//! The addresses that an endpoint has seen lately: as the kernel writes them, and as objects.
//!
//! Making the object of an address takes longer than the rest of a receive, and most endpoints hear from a few senders
//! again and again, and answer them. Senders are found by the kernel's bytes. Where a datagram goes is found by the
//! object itself, which never changes: that of the last sender, or of the last receiver, which the program has made and
//! which may be spelled otherwise.

use pyo3_ffi as ffi;
use ropewalk_os::net::datagrams::Name;

use ropewalk_capi::object::Object;

const PLACES: usize = 64;

struct Entry {
    name: Name,
    address: Object,
}

/// See the module.
#[derive(Default)]
pub(super) struct Names {
    entries: Vec<Option<Box<Entry>>>,
    /// The place of the last entry that was found or made.
    last: usize,
    receiver: Option<Box<Entry>>,
}

/// FNV-1a over the bytes of a name.
fn place(name: &Name) -> usize {
    let hash = name.bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    (hash ^ (hash >> 32)) as usize % PLACES
}

impl Names {
    /// The object of a name.
    pub(super) fn object(&mut self, name: &Name) -> Option<Object> {
        let at = place(name);
        let entry = self.entries.get(at)?.as_ref()?;
        if entry.name.bytes() != name.bytes() {
            return None;
        }
        self.last = at;
        Some(entry.address.clone())
    }

    /// The name of the last sender's or the last receiver's object.
    pub(super) fn name(&self, address: *mut ffi::PyObject) -> Option<Name> {
        let sender = self.entries.get(self.last).and_then(Option::as_ref);
        let entry = [sender, self.receiver.as_ref()]
            .into_iter()
            .flatten()
            .find(|entry| entry.address.as_ptr() == address)?;
        Some(entry.name)
    }

    /// Keeps a receiver; returns the one before, to be dropped.
    pub(super) fn keep_receiver(&mut self, name: Name, address: Object) -> impl Sized + use<> {
        self.receiver.replace(Box::new(Entry { name, address }))
    }

    /// Keeps a sender; returns the entry that had its place, to be dropped.
    pub(super) fn keep(&mut self, name: Name, address: Object) -> impl Sized + use<> {
        if self.entries.is_empty() {
            self.entries.resize_with(PLACES, || None);
        }
        self.last = place(&name);
        self.entries[self.last].replace(Box::new(Entry { name, address }))
    }
}
