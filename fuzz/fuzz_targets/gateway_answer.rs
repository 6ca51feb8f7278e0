//! What a worker answers.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ropewalk_gateway::fuzzing::answer(input));
