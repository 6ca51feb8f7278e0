//! Files of NumPy's, and what is written and read again.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ropewalk_gateway::fuzzing::npy(input));
