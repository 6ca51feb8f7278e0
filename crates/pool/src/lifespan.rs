//! The limits that one worker is born with: those of its pool, each less by a part that chance decides.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::config::Life;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifespan {
    /// Tasks that it is given at most.
    pub(crate) tasks: u64,
    /// How long it is ready before it is replaced.
    pub(crate) age: Option<Duration>,
    /// The memory beyond which it is replaced, in bytes.
    pub(crate) memory: Option<u64>,
}

/// That of a worker without limits.
impl Default for Lifespan {
    fn default() -> Self {
        Self { tasks: u64::MAX, age: None, memory: None }
    }
}

impl Lifespan {
    /// That of a new worker with this number.
    pub(crate) fn of(number: u64, life: &Life) -> Self {
        Self::draw(life, RandomState::new().hash_one(number) as f64 / u64::MAX as f64)
    }

    /// The same; `chance` is between 0 and 1.
    pub(crate) fn draw(life: &Life, chance: f64) -> Self {
        let part = 1.0 - life.jitter.clamp(0.0, 1.0) * chance;
        // A float holds every limit that a program means, and casts stop at the ends of a type.
        let less = |limit: u64| ((limit as f64 * part).ceil() as u64).clamp(1, limit.max(1));
        Self {
            tasks: life.max_tasks.map_or(u64::MAX, less),
            age: life.max_age.map(|age| age.mul_f64(part)),
            memory: life.max_memory.map(less),
        }
    }
}
