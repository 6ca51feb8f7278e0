//! The two halves of an asymmetric barrier: the light one for readers, who are many, the heavy one for writers.
//!
//! Between a store and a load before and behind a light barrier in one thread, and a store and a load before and
//! behind a heavy one in another, at least one of the loads sees the other's store: as with two `SeqCst` fences, which
//! is what they are where the kernel has no `membarrier`, and under loom.

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

    /// One of the above; goes from the first to one of the others once, before the first reader reads. Relaxed: a
    /// reader that has learnt its mode has it from a call of `mode` of its own.
    static MODE: AtomicU8 = AtomicU8::new(UNKNOWN);

    /// Whether this process has the asymmetric barrier. Every thread asks before it reads for the first time.
    pub fn is_asymmetric() -> bool {
        learn(&MODE, || membarrier::register().is_ok())
    }

    /// What a mode says, found out if nobody has.
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

    /// The reader's half; `asymmetric` is what `is_asymmetric` said.
    #[inline]
    pub fn light(asymmetric: bool) {
        if asymmetric {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// The writer's half; whether there was one. Where there is the asymmetric barrier at first and then no more,
    /// because a sandbox was put up meanwhile, readers cannot be made to pass it: then nothing may be freed any more.
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
                // Another thread has found something else meanwhile, and all go by that.
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

    /// There is none.
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
