//! An engine whose worker writes anything anywhere it can.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_pool::fuzzing;

fuzz_target!(|program: &[u8]| fuzzing::lane(program));
