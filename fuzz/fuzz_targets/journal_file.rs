//! A journal's file that may hold anything.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| ropewalk_journal::fuzzing::file(input));
