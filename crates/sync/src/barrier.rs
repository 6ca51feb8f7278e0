//! The two halves of an asymmetric barrier: a light one for readers, which are many, and a heavy one for writers.
//!
//! One thread stores, passes a light barrier, and loads; another stores, passes a heavy barrier, and loads. Then at
//! least one of the loads sees the other thread's store, as with two `SeqCst` fences. Where the kernel has no
//! `membarrier`, and under loom, both halves are such fences.

#[cfg(any(loom, miri))]
pub use fences::{heavy, is_asymmetric, light};
#[cfg(not(any(loom, miri)))]
pub use kernel::{heavy, is_asymmetric, light};

#[cfg(not(any(loom, miri)))]
mod kernel {
    use std::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};

    use ropewalk_os::membarrier;

    const UNKNOWN: u8 = 0;
    const ASYMMETRIC: u8 = 1;
    const SYMMETRIC: u8 = 2;

    /// One of the constants above. It changes from the first to one of the others once, before the first reader reads.
    /// Relaxed, because every reader calls `is_asymmetric` itself.
    static MODE: AtomicU8 = AtomicU8::new(UNKNOWN);

    /// Whether this process has the asymmetric barrier. Every thread calls this before its first read.
    pub fn is_asymmetric() -> bool {
        learn(&MODE, || membarrier::register().is_ok())
    }

    /// Whether the mode is asymmetric; registers the process if no thread has done so.
    fn learn(mode: &AtomicU8, register: impl FnOnce() -> bool) -> bool {
        let known = mode.load(Ordering::Relaxed);
        if known != UNKNOWN {
            return known == ASYMMETRIC;
        }
        let found = if register() { ASYMMETRIC } else { SYMMETRIC };
        match mode.compare_exchange(UNKNOWN, found, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => found == ASYMMETRIC,
            Err(other) => other == ASYMMETRIC,
        }
    }

    /// The reader's half; `asymmetric` is the result of `is_asymmetric`.
    #[inline]
    pub fn light(asymmetric: bool) {
        if asymmetric {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// The writer's half; returns whether every reader has passed a barrier. If a sandbox takes the asymmetric barrier
    /// away after readers have begun to rely on it, readers can no longer be made to pass one: then nothing may be
    /// freed any more.
    #[must_use]
    pub fn heavy() -> bool {
        fence(Ordering::SeqCst);
        passed(is_asymmetric(), || membarrier::everywhere().is_ok(), || membarrier::register().is_ok())
    }

    /// Whether every reader has passed a barrier. A forked child may have to register anew.
    fn passed(asymmetric: bool, everywhere: impl Fn() -> bool, register: impl FnOnce() -> bool) -> bool {
        !asymmetric || everywhere() || (register() && everywhere())
    }

    #[cfg(test)]
    mod tests {
        use std::cell::Cell;

        use super::*;

        #[test]
        fn the_mode_is_found_out_once() {
            for (found, other) in [(true, SYMMETRIC), (false, ASYMMETRIC)] {
                let mode = AtomicU8::new(UNKNOWN);
                assert_eq!(learn(&mode, || found), found);
                assert_eq!(learn(&mode, || unreachable!("it is known")), found);
                // Another thread has found another mode meanwhile, and all threads use that one.
                let mode = AtomicU8::new(UNKNOWN);
                let late = learn(&mode, || {
                    mode.store(other, Ordering::Relaxed);
                    found
                });
                assert_eq!(late, !found);
            }
        }

        #[test]
        fn the_kernel_s_barrier_is_used_where_there_is_one() {
            assert_eq!(is_asymmetric(), membarrier::register().is_ok());
            assert!(heavy());
        }

        #[test]
        fn a_child_registers_anew_and_a_sandbox_has_nothing_freed() {
            assert!(passed(false, || false, || unreachable!("readers pass their own")));
            assert!(passed(true, || true, || unreachable!("it is registered")));
            let registered = Cell::new(false);
            assert!(passed(true, || registered.get(), || !registered.replace(true)));
            assert!(!passed(true, || false, || true));
            assert!(!passed(true, || false, || false));
        }
    }
}

#[cfg(any(loom, miri))]
mod fences {
    use crate::atomic::{Ordering, fence};

    /// Loom has no asymmetric barrier.
    #[cfg_attr(mutants, mutants::skip)]
    pub fn is_asymmetric() -> bool {
        false
    }

    /// The reader's half.
    #[cfg_attr(mutants, mutants::skip)]
    pub fn light(_asymmetric: bool) {
        fence(Ordering::SeqCst);
    }

    /// The writer's half.
    #[must_use]
    #[cfg_attr(mutants, mutants::skip)]
    pub fn heavy() -> bool {
        fence(Ordering::SeqCst);
        true
    }
}
