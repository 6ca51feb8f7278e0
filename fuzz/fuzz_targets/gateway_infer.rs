//! Messages of KServe's protocol that ask for a call.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ropewalk_gateway::fuzzing::infer(input));
