//! The process's own pool, for work beside the program.

use std::time::Duration;

use ropewalk_sync::PerProcess;

use crate::config::Config;
use crate::dynamic::{Bounds, DynamicExecutor};

static CURRENT: PerProcess<DynamicExecutor> = PerProcess::new();

const BOUNDS: Bounds = Bounds { min: 1, max: 512, keep_alive: Duration::from_secs(10) };

/// A [`DynamicExecutor`] of this process, made at its first use: 1 to 512 workers.
///
/// A forked child, in which the parent's threads do not exist, makes another one. The process's end does not wait for
/// its jobs.
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
    CURRENT.get_or_try(|| DynamicExecutor::new(BOUNDS, Config::named("background")))
}
