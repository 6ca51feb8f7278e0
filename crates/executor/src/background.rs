//! The process's own pool, for what has to happen beside the program.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use ropewalk_os::process;

use crate::config::Config;
use crate::dynamic::{Bounds, DynamicExecutor};

/// Null, or from `Box::into_raw`: the fork generation that it was made in, and the pool. Release and Acquire
/// carry its contents. Never freed: a forked child cannot know who of its parent's threads used it.
static CURRENT: AtomicPtr<(u64, DynamicExecutor)> = AtomicPtr::new(ptr::null_mut());

const BOUNDS: Bounds = Bounds { min: 1, max: 512, keep_alive: Duration::from_secs(10) };

/// A [`DynamicExecutor`] of this process, made at its first use: 1 to 512 workers.
///
/// In a forked child, whose parent's threads do not exist, it is another one. Nobody waits for its jobs when
/// the process ends.
///
/// # Errors
///
/// When its first thread cannot be started; the next call tries again.
///
/// # Examples
///
/// ```
/// use ropewalk_executor::{Submit, background};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// assert_eq!(background()?.submit(|| 6 * 7)?.join()?, 42);
/// # Ok(())
/// # }
/// ```
pub fn background() -> ropewalk_base::Result<&'static DynamicExecutor> {
    let generation = process::fork_generation();
    let found = CURRENT.load(Ordering::Acquire);
    // SAFETY: it is null or was published below, and what was published is neither freed nor changed.
    if let Some((made_in, executor)) = unsafe { found.as_ref() }
        && *made_in == generation
    {
        return Ok(executor);
    }
    let executor = DynamicExecutor::new(BOUNDS, Config::named("background"))?;
    let fresh = Box::into_raw(Box::new((generation, executor)));
    match CURRENT.compare_exchange(found, fresh, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: it is published now, and never freed.
        Ok(_) => Ok(unsafe { &(*fresh).1 }),
        Err(other) => {
            // SAFETY: ours was not published, so it is ours to free. Another thread of this process has
            // published `other`, which is not null and never freed.
            unsafe {
                drop(Box::from_raw(fresh));
                Ok(&(*other).1)
            }
        }
    }
}
