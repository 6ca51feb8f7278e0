//! The process's own pool, for what has to happen beside the program.

use std::time::Duration;

use ropewalk_sync::PerProcess;

use crate::config::Config;
use crate::dynamic::{Bounds, DynamicExecutor};

static CURRENT: PerProcess<DynamicExecutor> = PerProcess::new();

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
    CURRENT.get_or_try(|| DynamicExecutor::new(BOUNDS, Config::named("background")))
}
