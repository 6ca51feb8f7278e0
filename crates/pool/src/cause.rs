//! Why a pool has put another worker in one's place.

/// The cause of a worker's replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It was given as many tasks as a worker is to have.
    MaxTasks,
    /// It was ready for as long as a worker is to be.
    MaxAge,
    /// It has more memory than a worker is to have.
    MaxMemory,
    /// The program asked for it.
    Asked,
    /// The pool is to have fewer workers; no other takes its place.
    Shrunk,
    /// One of its tasks was cancelled or out of time, and could be ended only with the worker.
    Task,
}

impl Cause {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::MaxTasks, Self::MaxAge, Self::MaxMemory, Self::Asked, Self::Shrunk, Self::Task];

    /// Whether it makes a worker due that is due for that cause, if any. One that is due for its tasks alone may go on
    /// until it is spent, and so does a lone one; nothing else waits for this.
    pub(crate) fn outweighs(self, due: Option<Self>) -> bool {
        due.is_none() || (due == Some(Self::MaxTasks) && self != Self::MaxTasks)
    }

    /// Its name in events and statistics.
    pub fn name(self) -> &'static str {
        match self {
            Self::MaxTasks => "max_tasks",
            Self::MaxAge => "max_age",
            Self::MaxMemory => "max_rss",
            Self::Asked => "asked",
            Self::Shrunk => "shrunk",
            Self::Task => "task",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_numbered_in_the_order_of_the_list() {
        for (number, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, number, "{}", cause.name());
        }
    }
}
