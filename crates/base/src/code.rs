//! The table of what can fail here: for each failure its code, and what to try.
//!
//! Whoever shows errors to users finds their class by the code. A law test (`tests/law`) holds the table, those classes
//! and the docs together.

/// Makes the enum and its look-ups from one table, so that a new failure cannot lack a column.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $remedy:literal;)*) => {
        /// What kind of failure it was. The text of each is stable across versions.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The stable text.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// What to try, in a sentence or two.
            pub const fn hint(self) -> &'static str {
                match self { $(Self::$name => $remedy,)* }
            }
        }
    };
}

codes! {
    /// The operating system refused a call.
    Os = "RW-OS",
        "Check the limits of this process: `ropewalk doctor` prints them.";
    /// The operating system does not know a call.
    Unsupported = "RW-UNSUPPORTED",
        "Use Linux 5.3 or newer, outside of a sandbox that hides its calls, or `kind=\"thread\"`.";
    /// There is no room for a buffer.
    NoMemory = "RW-NOMEM",
        "Free memory, send less at once, or raise the memory limit.";
    /// The process, or the machine, has as many files open as it may.
    Files = "RW-FILES",
        "Raise the limit of open files (`ulimit -n`), keep fewer large results at once, or run fewer workers.";
    /// The user, or the control group, has as many processes and threads as it may.
    Processes = "RW-PROCESSES",
        "Raise the limit of processes (`ulimit -u`, or `pids.max` of the control group), or run fewer workers.";
    /// A file, and shared memory is one, would be larger than the process may make it.
    FileSize = "RW-FILE-SIZE",
        "Raise the limit of file sizes (`ulimit -f`), which holds for shared memory too, or send less at once.";
    /// Every port of a bus between processes is taken.
    Ports = "RW-PORTS",
        "Close buses in workers that need them no more, or use another bus.";
    /// Shared memory holds numbers that make no sense: its peer is faulty or hostile.
    ShmCorrupt = "RW-SHM-CORRUPT",
        "Look for native code in a task that writes where it must not; the worker is replaced.";
    /// A handle names memory that has been given back.
    ShmStale = "RW-SHM-STALE",
        "Keep the shared object alive for as long as its handle is used.";
    /// A record does not fit where it should go.
    TooLarge = "RW-TOO-LARGE",
        "Send it in parts, or put it into shared memory (`ropewalk.share`) and send that.";
    /// The pool takes no more tasks.
    PoolClosed = "RW-POOL-CLOSED",
        "Make a new pool.";
    /// The process that forks workers failed.
    Zygote = "RW-ZYGOTE",
        "Make a new pool; if it fails again, look at standard error for what the zygote said.";
}
