//! Tables of a payload, and what is written and read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_pool::frame::{self, Part, Table};

fuzz_target!(|input: &[u8]| {
    let Ok(table) = Table::parse(input) else { return };
    let entries: Vec<_> = table.entries().collect();
    assert_eq!(entries.len(), table.len());
    assert_eq!(table.buffers().count() + 1 + table.handles(), table.len());
    for entry in &entries {
        match table.inline(entry) {
            Some(bytes) => assert_eq!(bytes.len() as u64, entry.length),
            None => assert_ne!(entry.segment, 0),
        }
    }
    // What was read can be written, and reads the same.
    let (parts, handles) = entries.split_at(entries.len() - table.handles());
    let parts: Vec<Part<'_>> =
        parts.iter().map(|entry| table.inline(entry).map_or(Part::Placed(*entry), Part::Inline)).collect();
    let written = frame::encode(table.lease(), &parts, handles);
    let again = Table::parse(&written).expect("a table that encode wrote");
    assert_eq!((again.lease(), again.len(), again.handles()), (table.lease(), table.len(), table.handles()));
    for (old, new) in entries.iter().zip(again.entries()) {
        assert_eq!(table.inline(old), again.inline(&new));
    }
});
