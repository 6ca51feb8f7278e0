//! The records that travel in a lane's two rings, by number.
//!
//! A record is a ring header (`kind`, `flags`, `id`, `aux`) and a payload. What each field means depends on the kind;
//! the table is in this crate's `README.md`.

/// Kinds of record.
pub mod kind {
    /// Parent to worker: `aux` is a function's id, the payload its pickle.
    pub const FUNCTION: u16 = 1;
    /// Parent to worker: `id` is the task's, `aux` the function's, the payload a frame of arguments.
    pub const TASK: u16 = 2;
    /// Parent to worker: read the socket now, because it holds a message that no task will request.
    pub const LOOK: u16 = 3;
    /// Parent to worker: leave once everything before this record has been run.
    pub const EXIT: u16 = 4;
    /// Parent to worker: function `aux` will not be asked for again.
    pub const FORGET_FUNCTION: u16 = 5;
    /// Worker to parent: the initializer has run.
    pub const READY: u16 = 16;
    /// Worker to parent: the initializer raised; the payload is a frame of the exception.
    pub const INIT_FAILED: u16 = 17;
    /// Worker to parent: task `id` has ended after `aux` nanoseconds of work; the payload is a frame.
    pub const DONE: u16 = 18;
    /// Worker to parent: the last view into lease `aux` has died; settles `id` of the times that it was retained.
    pub const RELEASE: u16 = 19;
    /// Worker to parent: segment `aux` came and did not fit into the worker; pass it again if it is needed.
    pub const LOST: u16 = 20;
}

/// Flag bits of a record.
pub mod flags {
    /// There is no payload: arguments `((), {})`, or the result `None`.
    pub const EMPTY: u16 = 1;
    /// The payload is a descriptor table (`frame`), not a bare pickle stream.
    pub const DESCRIBED: u16 = 2;
    /// `DONE` carries an exception.
    pub const ERROR: u16 = 4;
    /// The argument is a list of inputs, the result a list of outputs.
    pub const BATCH: u16 = 8;
    /// The inputs of a batch are tuples of positional arguments.
    pub const STAR: u16 = 16;
    /// Some inputs of a batch failed: the result is a list of `(ok, value or error)`.
    pub const MIXED: u16 = 32;
    /// Views into the task's lease outlive the task; a `RELEASE` that counts this answer will follow.
    pub const RETAINED: u16 = 64;
    /// The arguments live in a lease, named by the table.
    pub const LEASED: u16 = 128;
    /// Shared arrays that the task was given by handle may be looked into after it, here or elsewhere.
    pub const KEPT: u16 = 512;
    /// `TASK`: the task may write to its arguments, of which it has copies of its own.
    pub const WRITABLE: u16 = 1024;
    /// The worker says when it begins the call, in the lane's `Begun`.
    pub const TIMED: u16 = 256;
}
