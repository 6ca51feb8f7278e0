//! Messages of gRPC that ask for a call.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ropewalk_gateway::fuzzing::execute(input));
