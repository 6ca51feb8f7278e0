//! A peer's bytes in any pieces: no message is seen before it is whole, and no more comes out than went in.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| ropewalk_messaging::fuzzing::incoming(input));
