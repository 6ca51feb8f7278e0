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
    /// Parent to worker: the terms of task `id`, the next one: its limits, and what it may send as a stream.
    pub const TERMS: u16 = 6;
    /// Parent to worker, in the ring of answers: the answer to call `aux` of task `id`, a frame; with `ERROR` of an
    /// exception.
    pub const ANSWER: u16 = 7;
    /// Parent to worker: the tasks `OF_SESSION` that follow belong to session `id & u32::MAX`, whose state is to be
    /// made and has the number `id >> 32`. `aux` is the function that makes the state, or 0; the payload a frame of its
    /// arguments.
    pub const SESSION: u16 = 8;
    /// Parent to worker: drop the state of session `aux`.
    pub const DROP_SESSION: u16 = 9;
    /// Parent to worker: the tasks `OF_SESSION` that follow belong to session `aux`, whose state is here.
    pub const ENTER_SESSION: u16 = 10;
    /// Worker to parent: the initializer has run.
    pub const READY: u16 = 16;
    /// Worker to parent: the initializer raised; the payload is a frame of the exception.
    pub const INIT_FAILED: u16 = 17;
    /// Worker to parent: task `id` has ended, `aux` says when and after how much work ([`Times`](crate::Times)); the
    /// payload is a frame.
    pub const DONE: u16 = 18;
    /// Worker to parent: the last view into lease `aux` has died; settles `id` of the times that it was retained.
    pub const RELEASE: u16 = 19;
    /// Worker to parent: segment `aux` came and did not fit into the worker; pass it again if it is needed.
    pub const LOST: u16 = 20;
    /// Worker to parent: how far task `id` said that it was when it ended: `aux` are the bits of what was done, the
    /// payload those of the total, and the note.
    pub const PROGRESS: u16 = 21;
    /// Worker to parent, before `READY`: it is not fit for tasks, and leaves; the payload says why, as text.
    pub const UNFIT: u16 = 30;
    /// Worker to parent: an item of task `id`, a stream; `aux` is one of `form`, the payload what that says.
    pub const ITEM: u16 = 22;
    /// Worker to parent: task `id` calls a function of the program, `aux` is the number of its call, the payload a
    /// frame of the function's name, its arguments by position, and those by name.
    pub const CALL: u16 = 23;
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
    /// `SESSION`: its state is an actor's object, of which the worker tries to make one only. `DONE`: the actor's
    /// object could not be made, for this exception.
    pub const ACTOR: u16 = 1 << 14;
    /// `TASK`: it belongs to the session that was named last.
    pub const OF_SESSION: u16 = 1 << 15;
    /// `TASK`: the time that the call may take counts from its beginning. `DONE`: times of the call follow the payload.
    pub const TIMED: u16 = 256;
    /// `DONE`: the task was asked to stop, and did.
    pub const STOPPED: u16 = 2048;
    /// `TASK`, which has no use for the bit as `STOPPED`: the CPU time of the call is to be measured.
    pub const MEASURED: u16 = STOPPED;
    /// `TASK`: what it returns is iterated over, each element is an `ITEM`, and the result is what the iteration
    /// returned.
    pub const STREAM: u16 = 4096;
    /// `TASK`: the worker says when it begins each input of a batch, and when the call has ended, in the lane's
    /// `Pulse`.
    pub const WATCHED: u16 = 8192;
    /// `DONE` with `ERROR`: the task is not to be run again. Without: it was not run, because its deadline had passed.
    /// The bit means something else in a `TASK`.
    pub const FINAL: u16 = 8192;
}

/// Forms of an item: those of the most frequent types go without a pickle.
pub mod form {
    /// A frame, as in `DONE`.
    pub const FRAME: u8 = 0;
    /// `bytes`, as they are.
    pub const BYTES: u8 = 1;
    /// `str`, in UTF-8.
    pub const TEXT: u8 = 2;
    /// An `int`, of 8 bytes.
    pub const INT: u8 = 3;
    /// A `float`, of 8 bytes.
    pub const FLOAT: u8 = 4;
    /// `None`, without a payload.
    pub const NONE: u8 = 5;
    /// `True`.
    pub const TRUE: u8 = 6;
    /// `False`.
    pub const FALSE: u8 = 7;
}

/// The real-time signal on which a worker writes the stacks of its threads into its notes. Programs do not use it: it
/// is none of those with names, and far from both ends of the range, where libraries take theirs.
pub const STACK_SIGNAL: i32 = 44;
