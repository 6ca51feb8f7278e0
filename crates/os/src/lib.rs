//! Every raw system call that Ropewalk makes, one mechanism a file.
//!
//! Linux only, on x86-64 and aarch64. Interrupted calls are retried here unless the name says otherwise.

mod call;
pub mod clock;
pub mod cpu;
pub mod epoll;
pub mod eventfd;
pub mod file;
pub mod futex;
pub mod limits;
pub mod membarrier;
pub mod memfd;
pub mod memory;
pub mod mmap;
pub mod net;
pub mod pidfd;
pub mod pipe;
pub mod poll;
pub mod process;
pub mod signalfd;
pub mod socket;
pub mod stream;
pub mod symbol;
pub mod title;
pub mod uring;
