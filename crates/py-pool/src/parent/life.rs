//! The limits of a pool's workers and the bounds of their number, as Python's side has checked them.

use pyo3::prelude::*;
use ropewalk_pool::{Life, Scale};

use super::settings::limit;

/// `(max_tasks, max_age, max_rss, jitter, least, idle)`; `least` is `None` if the number does not follow the load.
pub(super) type LifeSettings = (Option<u64>, Option<f64>, Option<u64>, f64, Option<usize>, Option<f64>);

pub(super) fn life(settings: LifeSettings) -> PyResult<Life> {
    let (max_tasks, max_age, max_memory, jitter, least, idle) = settings;
    let idle = limit("idle_timeout", idle)?;
    Ok(Life {
        max_tasks,
        max_age: limit("max_age", max_age)?,
        max_memory,
        jitter,
        scale: least.map(|least| Scale { least, idle }),
    })
}
