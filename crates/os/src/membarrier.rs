//! A memory barrier on every thread of the process at once, so that frequent readers need no barrier of their own.
//!
//! Source: membarrier(2).

use std::io;

use crate::call::check;

const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

fn call(command: libc::c_int) -> io::Result<()> {
    // SAFETY: takes two numbers and touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, command, 0_u32) };
    check(result as libc::c_int).map(|_| ())
}

/// Registers this process for [`everywhere`].
///
/// # Errors
///
/// If the kernel lacks the call, or a sandbox forbids it.
pub fn register() -> io::Result<()> {
    call(REGISTER_PRIVATE_EXPEDITED)
}

/// When this returns, every running thread of the process has passed a full memory barrier since it was called.
///
/// # Errors
///
/// When the process has not called [`register`].
pub fn everywhere() -> io::Result<()> {
    call(PRIVATE_EXPEDITED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_works_once_it_is_registered() {
        if register().is_ok() {
            everywhere().expect("registered");
        }
    }
}
