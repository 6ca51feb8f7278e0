//! Packets from a zygote, and from a worker's own socket.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_pool::fuzzing;

fuzz_target!(|input: &[u8]| match input.split_first() {
    Some((&first, rest)) if first.is_multiple_of(2) => fuzzing::zygote_message(rest),
    Some((_, rest)) => fuzzing::passed(rest),
    None => {}
});
