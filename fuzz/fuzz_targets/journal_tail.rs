//! A journal's file that programs have written, and whose end is damaged. The input is a program.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|program: &[u8]| ropewalk_journal::fuzzing::tail(program));
