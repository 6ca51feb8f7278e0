//! The numbers of a context's options.

macro_rules! options {
    ($(#[doc = $about:literal] $name:ident = $number:literal;)*) => {
        $(#[doc = $about] pub const $name: i32 = $number;)*

        /// Names and numbers of the options above: Python's enum is made from them.
        pub const NAMES: &[(&str, i32)] = &[$((stringify!($name), $number)),*];
    };
}

options! {
    /// Threads for input and output.
    IO_THREADS = 1;
    /// The most sockets at once.
    MAX_SOCKETS = 2;
    /// The most that [`MAX_SOCKETS`] can be.
    SOCKET_LIMIT = 3;
    /// The priority of threads; the same number as [`SOCKET_LIMIT`], for setting.
    THREAD_PRIORITY = 3;
    /// The scheduling policy of threads.
    THREAD_SCHED_POLICY = 4;
    /// The largest message that is sent, in bytes.
    MAX_MSGSZ = 5;
    /// The size of libzmq's message structure.
    MSG_T_SIZE = 6;
    /// A processor for the threads.
    THREAD_AFFINITY_CPU_ADD = 7;
    /// A processor no more for the threads.
    THREAD_AFFINITY_CPU_REMOVE = 8;
    /// How the threads' names begin.
    THREAD_NAME_PREFIX = 9;
}

/// Messages are received without a copy.
pub const ZERO_COPY_RECV: i32 = 10;
/// Whether sockets use IPv6 from the start; the same number as the socket's option.
pub const IPV6: i32 = super::option::IPV6;
/// Whether the context's end waits for messages.
pub const BLOCKY: i32 = super::option::BLOCKY;
