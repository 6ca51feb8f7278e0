//! Tables of a payload, and what is written and read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_pool::codec::table::{self, Part, Table};

fuzz_target!(|input: &[u8]| {
    let Ok(found) = Table::parse(input) else { return };
    let entries: Vec<_> = found.entries().collect();
    assert_eq!(entries.len(), found.len());
    assert_eq!(found.buffers().count() + 1 + found.handles(), found.len());
    for entry in &entries {
        match found.inline(entry) {
            Some(bytes) => assert_eq!(bytes.len() as u64, entry.length),
            None => assert_ne!(entry.segment, 0),
        }
    }
    // What was read can be written, and reads the same.
    let (parts, handles) = entries.split_at(entries.len() - found.handles());
    let parts: Vec<Part<'_>> =
        parts.iter().map(|entry| found.inline(entry).map_or(Part::Placed(*entry), Part::Inline)).collect();
    let written = table::write(found.lease(), &parts, handles);
    let again = Table::parse(&written).expect("a table that was written");
    assert_eq!((again.lease(), again.len(), again.handles()), (found.lease(), found.len(), found.handles()));
    for (old, new) in entries.iter().zip(again.entries()) {
        assert_eq!(found.inline(old), again.inline(&new));
    }
});
