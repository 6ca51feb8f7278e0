//! What kinds of failures there are.

/// What kind of failure it was. The text of each is stable across versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// The operating system refused a call.
    Os,
    /// There is no room for a buffer.
    NoMemory,
    /// The process, or the machine, has as many files open as it may.
    Files,
    /// Shared memory holds numbers that make no sense: its peer is faulty or hostile.
    ShmCorrupt,
    /// A handle names memory that has been given back.
    ShmStale,
    /// A record does not fit where it should go.
    TooLarge,
    /// The pool takes no more tasks.
    PoolClosed,
    /// The process that forks workers failed.
    Zygote,
}

impl Code {
    /// The stable text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Os => "WL-OS",
            Self::NoMemory => "WL-NOMEM",
            Self::Files => "WL-FILES",
            Self::ShmCorrupt => "WL-SHM-CORRUPT",
            Self::ShmStale => "WL-SHM-STALE",
            Self::TooLarge => "WL-TOO-LARGE",
            Self::PoolClosed => "WL-POOL-CLOSED",
            Self::Zygote => "WL-ZYGOTE",
        }
    }

    /// What to try, as a sentence; empty where there is nothing general to say.
    pub fn hint(self) -> &'static str {
        match self {
            Self::Os => "Check the limits of this process: `windlass doctor` prints them.",
            Self::NoMemory => "Free memory, send less at once, or raise the memory limit.",
            Self::Files => "Raise the limit of open files (`ulimit -n`), or run fewer workers.",
            Self::ShmStale => "Keep the shared object alive for as long as its handle is used.",
            Self::PoolClosed => "Make a new pool.",
            Self::ShmCorrupt | Self::TooLarge | Self::Zygote => "",
        }
    }
}
