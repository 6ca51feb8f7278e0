//! The numbers of a context's options.

/// Threads for input and output.
pub const IO_THREADS: i32 = 1;
/// The most sockets at once.
pub const MAX_SOCKETS: i32 = 2;
/// The most that [`MAX_SOCKETS`] can be.
pub const SOCKET_LIMIT: i32 = 3;
/// The priority of threads; the same number as [`SOCKET_LIMIT`], for setting.
pub const THREAD_PRIORITY: i32 = 3;
/// The scheduling policy of threads.
pub const THREAD_SCHED_POLICY: i32 = 4;
/// The largest message that is sent, in bytes.
pub const MAX_MSGSZ: i32 = 5;
/// The size of libzmq's message structure.
pub const MSG_T_SIZE: i32 = 6;
/// A processor for the threads.
pub const THREAD_AFFINITY_CPU_ADD: i32 = 7;
/// A processor no more for the threads.
pub const THREAD_AFFINITY_CPU_REMOVE: i32 = 8;
/// How the threads' names begin.
pub const THREAD_NAME_PREFIX: i32 = 9;
/// Messages are received without a copy.
pub const ZERO_COPY_RECV: i32 = 10;
/// Whether sockets use IPv6 from the start; the same number as the socket's option.
pub const IPV6: i32 = super::option::IPV6;
/// Whether the context's end waits for messages.
pub const BLOCKY: i32 = super::option::BLOCKY;
