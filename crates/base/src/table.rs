//! The table of errors: one row for each failure that Ropewalk reports under a code of its own.
//!
//! A row holds the lines that say what failed, the Python class with its bases, the operating system's numbers (if the
//! failure is one of the system's limits), the stable code, and what to try. [`Code`] is made from it here;
//! `make generate` writes the head of each class in Python and the paragraphs of `docs/errors.md` from it, and a test
//! fails until that is done. What a class does beside that, such as the fields of `WorkerCrashed`, stands with the
//! class in Python. A new row needs a class of that name there, of which `make generate` asks one line: `remedy = ""`.
//!
//! Texts are Markdown. The first paragraph stands alone in the page's table.

use crate::entry::errors;

errors! {
    in "ropewalk._errors" {
        /// The root of all errors of this package.
        ///
        /// `code` is stable across versions: match on it or on the class, never on the text. `remedy` says what to
        /// try.
        RopewalkError("Exception") = "RW-ERROR",
            "Read the error's own class and message.";

        /// Compiled code of Ropewalk reached a state that should be impossible.
        ///
        /// This is a defect of Ropewalk. The rest of the program is not affected.
        InternalError("RopewalkError", "RuntimeError") = "RW-INTERNAL",
            "Report it with the error's text. The object whose call failed may be in any state.";

        /// An `Err` was unwrapped as a value, or an `Ok` as an error.
        ///
        /// `unwrap()` raises it for an `Err` whose error is not an exception; else it raises that exception.
        /// `expect()` of an `Err` and `unwrap_err()` of an `Ok` always raise it.
        UnwrapError("RopewalkError") = "RW-UNWRAP",
            "Ask `is_ok()` first, use `unwrap_or`, or `match` on `Ok` and `Err`.";

        /// A call on a pool failed, in a forked child for instance.
        PoolError("RopewalkError", "RuntimeError") = "RW-POOL",
            "Make a new pool. A forked child needs a pool of its own.";

        /// The zygote, the process that forks workers, could not be started or has ended.
        ZygoteFailed("PoolError") = "RW-ZYGOTE",
            "Make a new pool. If it fails again, read what the zygote wrote to standard error.";

        /// The pool was shut down and accepts no more tasks.
        PoolClosed("PoolError") = "RW-POOL-CLOSED",
            "Make a new pool.";

        /// The pool's queue is full and the pool was made with `overflow="error"`, or `submit_nowait` was called.
        QueueFull("PoolError", "queue.Full") = "RW-POOL-FULL",
            "Try again later, raise `capacity`, or wait: with `overflow=\"block\"`, `submit` and `submit_async` do.";

        /// The pool can run no task any more; the message names the cause.
        PoolBroken("PoolError", "BrokenProcessPool") = "RW-POOL-BROKEN",
            "Make a new pool.";

        /// A worker process died while it ran this task.
        ///
        /// Only this task fails. The pool replaces the worker and goes on, unless it was made with
        /// `on_crash="break"`.
        WorkerCrashed("PoolBroken") = "RW-WORKER-CRASHED",
            "If the task may be run twice, give it `retries`. If the worker was killed for memory, run fewer workers.";

        /// Workers of a pool start pools whose workers start pools, without end.
        PoolNested("PoolError") = "RW-POOL-NESTED",
            "Move the use of the pool under `if __name__ == \"__main__\":`, or into a function.";

        /// The pool was terminated while this task ran, by `Pool.terminate` or by a signal to its workers.
        PoolTerminated("PoolBroken") = "RW-POOL-TERMINATED",
            "If the task may be run twice, submit it to a new pool.";

        /// The pool's `initializer` raised an exception in a worker.
        ///
        /// That exception is the cause (`__cause__`).
        InitializerFailed("PoolBroken") = "RW-INITIALIZER",
            "Correct what the cause reports of the initializer, and make a new pool.";

        /// A task exceeded its `task_timeout`, which limits the run alone, or its `deadline`, counted from submission.
        TaskTimeout("RopewalkError", "TimeoutError") = "RW-TIMEOUT",
            "Raise the limit or split the task. `phase` says whether the task had started.";

        /// A function or an argument cannot be pickled, so it cannot be sent to a worker process.
        EncodeError("RopewalkError", "pickle.PicklingError") = "RW-ENCODE",
            "Send something that can be pickled: open files, locks and sockets belong to their process.";

        /// A result cannot be pickled, so the worker process cannot send it back.
        ResultEncodeError("EncodeError") = "RW-ENCODE-RESULT",
            "Return something that can be pickled.";

        /// Data from another process could not be unpickled.
        ///
        /// Only the task that it belongs to fails. The class is a `BrokenProcessPool` because that is what the standard
        /// library's pool raises here.
        DecodeError("RopewalkError", "BrokenProcessPool") = "RW-DECODE",
            "Read the cause (`__cause__`): the object must unpickle in the receiving process, too.";

        /// A worker could not load the task's function, for instance because its module does not import there.
        FunctionLoadError("RopewalkError", "ImportError") = "RW-FUNCTION",
            "Put the module where workers can import it: on `sys.path` before the pool is made.";

        /// The operating system refused a call; `errno` is its number for the reason.
        SystemCallFailed("RopewalkError", "OSError") = "RW-OS",
            "Check the limits of this process: `ropewalk doctor` prints them.";

        /// The kernel or a sandbox does not provide a call that Ropewalk needs.
        Unsupported("SystemCallFailed") [ENOSYS] = "RW-UNSUPPORTED",
            "Use Linux 5.3 or newer, outside of a sandbox that hides its calls, or `kind=\"thread\"`.";

        /// The root of the limits: a limit of the process, the user or the machine is reached.
        ///
        /// It is never raised itself. The subclass names the limit.
        LimitReached("SystemCallFailed") = "RW-LIMIT",
            "Raise the limit that the class names, or use less of it.";

        /// The process or the machine has reached its limit of open files.
        OutOfDescriptors("LimitReached") [EMFILE, ENFILE] = "RW-FILES",
            "Raise the limit of open files (`ulimit -n`), keep fewer large results at once, or run fewer workers.";

        /// The user or the control group has reached its limit of processes and threads.
        OutOfProcesses("LimitReached") [EAGAIN] = "RW-PROCESSES",
            "Raise the limit of processes (`ulimit -u`, or `pids.max` of the control group), or run fewer workers.";

        /// Shared memory could not be made, mapped or read.
        SharedMemoryError("RopewalkError", "OSError") = "RW-SHM",
            "Read the subclass, which names the reason.";

        /// Shared memory holds impossible values: the process that wrote them is faulty or hostile.
        SharedMemoryCorrupt("SharedMemoryError") = "RW-SHM-CORRUPT",
            "Look for native code in a task that writes outside of its own memory. The pool replaces the worker.";

        /// A record is larger than the room that it should go into.
        TooLarge("SharedMemoryError") = "RW-TOO-LARGE",
            "Send it in parts, or put it into shared memory (`ropewalk.share`) and send that.";

        /// Shared memory would exceed the process's limit of file sizes; to the kernel, shared memory is a file.
        FileSizeExceeded("LimitReached", "SharedMemoryError") [EFBIG] = "RW-FILE-SIZE",
            "Raise the limit of file sizes (`ulimit -f`), which holds for shared memory too, or send less at once.";

        /// A handle names shared memory that was freed, and perhaps reused.
        StaleHandle("SharedMemoryError") = "RW-SHM-STALE",
            "Keep the shared object alive for as long as its handle is used.";

        /// The machine, or the control group, has no room for a buffer in shared memory.
        OutOfMemory("LimitReached", "SharedMemoryError", "MemoryError") [ENOMEM, ENOSPC] = "RW-NOMEM",
            "Free memory, send less at once, or raise the memory limit.";

        /// Every port of a bus between processes is taken.
        OutOfPorts("LimitReached") [ENOSPC] = "RW-PORTS",
            "Close the bus in workers that no longer need it, or use another bus.";

        /// Stands in for a worker's exception that could not be pickled there or unpickled here.
        ///
        /// Its text has the type and the message of the original.
        RemoteError("RopewalkError") = "RW-REMOTE",
            "Give the original's class a working `__reduce__`.";

        /// A call on a bus failed, in a forked child for instance.
        BusError("RopewalkError", "RuntimeError") = "RW-BUS",
            "Read the message. A forked child needs a bus of its own.";

        /// The bus is closed, or the subscription is closed and every message in it was received.
        BusClosed("BusError") = "RW-BUS-CLOSED",
            "Make a new bus, or subscribe again.";

        /// A subscription has no room, and its publisher does not wait, or its timeout has passed.
        BusFull("BusError", "queue.Full") = "RW-BUS-FULL",
            "Receive faster, raise `capacity`, or choose an `overflow` that drops messages.";

        /// A subscription has no message, or none arrived within the timeout.
        BusEmpty("BusError", "queue.Empty", "TimeoutError") = "RW-BUS-EMPTY",
            "Wait longer, or try again later.";

        /// Messages were dropped before the next one, because the receiver was slower than its publishers.
        ///
        /// It is raised once for each gap, at the place of the gap. The next call receives the message after it.
        Lagged("BusError") = "RW-BUS-LAGGED",
            "Go on receiving. To lose none, receive faster or raise `capacity`.";

        /// Handlers publish to handlers deeper than the bus allows.
        PublishTooDeep("BusError", "RecursionError") = "RW-BUS-DEPTH",
            "Break the circle of handlers, publish from a subscription's receiver, or raise `max_depth`.";

        /// A topic or a pattern is malformed; the message names the byte.
        InvalidTopic("RopewalkError", "ValueError") = "RW-TOPIC",
            "Write segments between dots. In patterns, `*` stands for one segment and `**` for any number of segments.";
    }

    in "ropewalk.zmq.error" {
        /// The root of all errors of the messaging part.
        ZMQBaseError("RopewalkError") = "RW-ZMQ",
            "Read the subclass, which says more.";

        /// An operation on a socket or a context failed; `errno` is the number for the reason.
        ///
        /// `Errno` names the numbers. `EAGAIN`, `ETERM` and `EINTR` have classes of their own.
        ZMQError("ZMQBaseError") = "RW-ZMQ-ERRNO",
            "Look `errno` up in `ropewalk.zmq.Errno`; the numbers are libzmq's.";

        /// `Socket.bind_to_random_port` found no free port.
        ZMQBindError("ZMQBaseError") = "RW-ZMQ-BIND",
            "Widen the range of ports, or try again later.";

        /// `MessageTracker.wait` timed out before the message was released.
        NotDone("ZMQBaseError") = "RW-ZMQ-NOT-DONE",
            "Wait longer. The message still waits for its peer.";

        /// The socket's context was terminated: `ETERM`.
        ContextTerminated("ZMQError") = "RW-ZMQ-TERMINATED",
            "Close the socket. Make a new context to go on.";

        /// The operation would have to wait but may not, or its timeout has passed: `EAGAIN`.
        Again("ZMQError") = "RW-ZMQ-AGAIN",
            "Try again later, poll the socket first, or raise `SNDTIMEO` or `RCVTIMEO`.";

        /// A signal interrupted a call: `EINTR`.
        ///
        /// No call raises it, because each call continues after a signal handler has run.
        InterruptedSystemCall("ZMQError", "InterruptedError") = "RW-ZMQ-INTERRUPTED",
            "Nothing. The class is there because programs for pyzmq name it.";

        /// A feature needs a later version of libzmq's API than `zmq_version_info` reports.
        ZMQVersionError("RopewalkError", "NotImplementedError") = "RW-ZMQ-VERSION",
            "Do without the feature, or install a later version.";
    }
}
