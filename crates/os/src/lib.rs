//! Every raw system call that Ropewalk makes, one mechanism a file.
//!
//! Linux only, on x86-64 and aarch64. Interrupted calls are retried here unless the name says otherwise.

pub mod clock;
pub mod cpu;
pub mod epoll;
pub mod eventfd;
pub mod futex;
pub mod limits;
pub mod membarrier;
pub mod memfd;
pub mod memory;
pub mod mmap;
pub mod net;
pub mod pidfd;
pub mod poll;
pub mod process;
pub mod signalfd;
pub mod socket;
pub mod stream;

use std::io;

/// The result of a call that returns -1 for failure.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Repeats a call while signals interrupt it.
fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
