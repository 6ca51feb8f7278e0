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

        /// The configuration of a runtime is wrong.
        ///
        /// The message names the file, the key, its value, and what is allowed there; so do the attributes `place`,
        /// `key`, `value` and `allowed`.
        ConfigError("RopewalkError", "ValueError") = "RW-CONFIG",
            "Correct the key that the message names; `ropewalk check FILE.toml` tries a file and starts nothing.";

        /// A call on a pool failed, in a forked child for instance.
        PoolError("RopewalkError", "RuntimeError") = "RW-POOL",
            "Make a new pool. A forked child needs a pool of its own.";

        /// The zygote, the process that forks workers, could not be started or has ended.
        ZygoteFailed("PoolError") = "RW-ZYGOTE",
            "Make a new pool. If it fails again, read what the zygote wrote to standard error.";

        /// A Ray cluster could not be reached, or a local one could not be started.
        ClusterUnreachable("PoolError") = "RW-CLUSTER",
            "Check that the cluster runs and that this machine reaches it: `ray status --address=HOST:PORT`.";

        /// A library that was asked for is not installed; an extra of Ropewalk installs it.
        ExtraMissing("RopewalkError", "ImportError") = "RW-EXTRA",
            "Install the extra that the message names, in the environment of this program.";

        /// The pool was shut down and accepts no more tasks.
        PoolClosed("PoolError") = "RW-POOL-CLOSED",
            "Make a new pool.";

        /// The pool's queue is full and the pool was made with `overflow="error"`, or `submit_nowait` was called.
        QueueFull("PoolError", "queue.Full") = "RW-POOL-FULL",
            "Try again later, raise `capacity`, or wait: with `overflow=\"block\"`, `submit` and `submit_async` do.";

        /// A full queue dropped this task, which waited, to take a newer one.
        ///
        /// The pool was made with `overflow="drop_oldest"`. `depth` says how many tasks waited.
        TaskDropped("PoolError") = "RW-TASK-DROPPED",
            "Submit less at once, raise `capacity`, or give what must not be lost a higher `priority`.";

        /// A circuit breaker refused a call, because what it guards keeps failing.
        ///
        /// `retry_after` says in how many seconds the breaker lets a call through again.
        CircuitOpen("RopewalkError") = "RW-CIRCUIT-OPEN",
            "Wait until then, do without the callee, or close the breaker by hand with `reset()`.";

        /// The pool can run no task any more; the message names the cause.
        PoolBroken("PoolError", "BrokenProcessPool") = "RW-POOL-BROKEN",
            "Make a new pool.";

        /// A worker process died while it ran this task.
        ///
        /// Only this task fails. The pool replaces the worker and goes on, unless it was made with
        /// `on_crash="break"`.
        WorkerCrashed("PoolBroken") = "RW-WORKER-CRASHED",
            "If the task may be run twice, give it `retries`. If the worker was killed for memory, run fewer workers.";

        /// A task has cost so many workers their life that the pool runs it no more, whatever its `retries`.
        ///
        /// `Pool(poison_after=)` is the number. The pool goes on; `Pool.quarantine` has the last of these tasks.
        PoisonTask("WorkerCrashed") = "RW-POISON-TASK",
            "Look at `crashes` and at the task's function: memory, native code, or arguments that it cannot handle.";

        /// More workers of the pool have died within a time than its `max_restarts` allows.
        ///
        /// The cause (`__cause__`) is the last crash.
        PoolUnhealthy("PoolBroken") = "RW-POOL-UNHEALTHY",
            "Read the cause. If such crashes are to be expected, raise `max_restarts`; then make a new pool.";

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

        /// The worker of a session with `mode="fail"` is busy.
        SessionBusy("PoolError") = "RW-SESSION-BUSY",
            "Try again later, or make the session with `mode=\"queue\"` or `mode=\"prefer\"`.";

        /// The session or the actor was closed and accepts no more tasks.
        SessionClosed("PoolError") = "RW-SESSION-CLOSED",
            "Ask the pool for the session again, or make a new actor.";

        /// The pool has no session of the key that was asked for without `init`.
        ///
        /// No session was made by that key, or it was closed. The pool also forgets a session of which the program
        /// holds no view once its state is gone.
        SessionMissing("PoolError", "LookupError") = "RW-SESSION-MISSING",
            "Give `init=`, which makes the state; `init=None` makes a session whose state is `None`.";

        /// The object of an actor is gone: its worker died, or its class raised.
        ///
        /// The cause (`__cause__`) is the death, or the exception of the class.
        ActorDied("PoolError") = "RW-ACTOR-DIED",
            "Make a new actor. With `max_restarts`, an actor whose worker died is made again.";

        /// A task exceeded its `task_timeout`, which limits the run alone, or its `deadline`, counted from submission.
        TaskTimeout("RopewalkError", "TimeoutError") = "RW-TIMEOUT",
            "Raise the limit or split the task. `phase` says whether the task had started.";

        /// A task was asked to stop, by `Future.request_cancel`, or because the reader of its stream has gone.
        ///
        /// `CurrentTask.check` raises it inside the task. If the task lets it pass, its future is cancelled.
        TaskCancelled("RopewalkError") = "RW-TASK-CANCELLED",
            "Release what the task holds, and let the exception pass.";

        /// A task gave no sign of life for as long as its `hang_timeout`.
        ///
        /// `stack` says where it was. In a worker process it was ended; in a thread the call goes on.
        TaskHung("TaskTimeout") = "RW-TASK-HUNG",
            "Read `stack`. A task that may work so long can call `ropewalk.current_task().heartbeat()`.";

        /// The value of a stream was asked for that was not read to its end, or whose task has failed.
        StreamUnfinished("RopewalkError", "RuntimeError") = "RW-STREAM-UNFINISHED",
            "Read all items first, as `for item in stream` does. `stream.future` has the outcome of the task.";

        /// A task called a function that the program has not exposed to the tasks of its pool.
        NotExposed("PoolError", "LookupError") = "RW-NOT-EXPOSED",
            "Name the function in `Pool(calls={...})`, or call `pool.expose(name, function)` before the task runs.";

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

        /// The kernel, a sandbox, this version of Python, or the kind of a pool does not provide what a call needs.
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

        /// A journal could not be opened, read, written or compacted.
        JournalError("RopewalkError", "OSError") = "RW-JOURNAL",
            "Check the path, and make its folder first if it is missing; else change what the message names.";

        /// A journal is open already, in another process or in this one: one writes at a time.
        JournalLocked("JournalError", "BlockingIOError") = "RW-JOURNAL-LOCKED",
            "Close it where it is open. The end of a process closes it too, and nothing has to be cleaned up.";

        /// A file that was to be a journal is another file, or the journal of a newer version.
        NotAJournal("JournalError", "ValueError") = "RW-JOURNAL-FOREIGN",
            "Check the path. Nothing was written to the file.";

        /// Committed records of a journal are damaged; the message names the offset.
        ///
        /// What a crash leaves behind the last committed record is no such damage, and is dropped when the journal is
        /// opened.
        JournalCorrupt("JournalError") = "RW-JOURNAL-CORRUPT",
            "Restore the file from a copy, and check the disk. Nothing was written to the file.";

        /// Other users may write the file of a journal, and what it holds would be run as this user.
        JournalUnsafe("JournalError", "PermissionError") = "RW-JOURNAL-UNSAFE",
            "Take the file over and take away the others' right to write it: `chmod go-w`, `chown`.";

        /// The disk of a journal has reported an error, and the last records may be there or not.
        JournalFailed("JournalError") = "RW-JOURNAL-FAILED",
            "Check the disk, and open the journal again: it then says which records it has.";

        /// The journal was closed, or belongs to the process that this one was forked from.
        JournalClosed("JournalError", "ValueError") = "RW-JOURNAL-CLOSED",
            "Open it again.";

        /// A record would make the journal larger than its `max_bytes`. It was not written; smaller ones may be.
        JournalFull("LimitReached", "JournalError") [ENOSPC] = "RW-JOURNAL-FULL",
            "Compact the journal, or raise `max_bytes`.";

        /// The disk, or the user's share of it, has no room for a record. It was not written; later ones may be.
        OutOfDisk("LimitReached", "JournalError") [ENOSPC] = "RW-DISK",
            "Free room on the disk or raise the quota (`df`, `quota`, `ulimit -f`); the journal goes on by itself.";

        /// A call on flows failed, or `step` was called where no flow runs.
        FlowError("RopewalkError", "RuntimeError") = "RW-FLOW",
            "Read the message; `ropewalk flows ls FILE` shows the runs of a journal.";

        /// A journal has no run of that id, a run no such step, or the program no flow of that name.
        FlowUnknown("FlowError", "LookupError") = "RW-FLOW-UNKNOWN",
            "Check the name; `ropewalk flows ls FILE` and `ropewalk flows show FILE ID` list what is there.";

        /// The id of a run stands for another flow, or for other arguments.
        FlowExists("FlowError", "ValueError") = "RW-FLOW-EXISTS",
            "Use another id for other arguments; put into the id what tells the runs apart, a date for instance.";

        /// The code of a flow has changed since its run began, and the flow refuses to go on then.
        FlowCodeChanged("FlowError") = "RW-FLOW-CODE",
            "Go back to the old code until the run has ended, or say `@flow(code=\"resume\")` or `code=\"restart\"`.";

        /// A run of a flow was cancelled.
        FlowCancelled("FlowError") = "RW-FLOW-CANCELLED",
            "`Run.retry()` or `ropewalk flows retry` lets it go on behind its finished steps.";

        /// A server of tools cannot start, or a function cannot be a tool.
        ServingError("RopewalkError", "RuntimeError") = "RW-SERVE",
            "Correct what the message names: the tool, the address or the setting.";

        /// A tool refuses a call, for a reason that its caller shall read.
        ///
        /// A tool raises it; the caller receives its `status`, its message and its `violations`. Any other exception
        /// of a tool is an `UNKNOWN` to the caller.
        ToolError("RopewalkError") = "RW-TOOL",
            "Read the message, which is the tool's own.";

        /// A server of tools answered a call with a failure, or its answer cannot be read.
        ///
        /// `status` is the status by the names of gRPC, `violations` are pairs of a field and what is wrong with it,
        /// and `retry_after` is the number of seconds after which the server asks to try again, or `None`.
        CallFailed("RopewalkError") = "RW-CALL",
            "Read the status and the message, which are the server's own.";

        /// A tool does not accept the arguments of a call; `violations` names the fields.
        CallInvalid("CallFailed", "ValueError") = "RW-CALL-ARGUMENTS",
            "Correct the fields that the message names; `Client.tools()` has the schema of each tool.";

        /// A call was not answered within its `timeout`, or within the limits of its tool.
        CallTimeout("CallFailed", "TimeoutError") = "RW-CALL-TIMEOUT",
            "Give the call more time, or ask for less. The server has stopped the work.";

        /// A server cannot be reached, is leaving, or lost the worker of a call.
        CallUnavailable("CallFailed", "ConnectionError") = "RW-CALL-UNAVAILABLE",
            "Try again with `retries` once the server runs; with `idempotent` if running twice does no harm.";

        /// A server is full, or a call is larger than it accepts.
        CallRefused("CallFailed") = "RW-CALL-FULL",
            "Try again after `retry_after` seconds, by `retries` for instance; without it, send less.";

        /// Flows were closed before a run had ended. Its finished steps are in the journal.
        FlowsClosed("FlowError") = "RW-FLOWS-CLOSED",
            "Open the journal again with `Flows(path)`: the run then goes on.";

        /// What was given cannot be the state of a store, or a part of it.
        StateError("RopewalkError") = "RW-STATE",
            "Change what the message names.";

        /// A class or a field of the state can be changed in place.
        NotFrozen("StateError", "TypeError") = "RW-NOT-FROZEN",
            "Freeze the class, or use the type that the message names.";

        /// A value is none of those that the annotation of its place allows.
        ///
        /// `path` is the place in the state.
        WrongType("StateError", "TypeError") = "RW-WRONG-TYPE",
            "Store a value of the declared type, or correct the annotation.";

        /// A task touches what its contract does not declare, or a contract declares what cannot be.
        ///
        /// `task` is the name of the task, `path` the place in the state, and `access` is `"read"` or `"write"`.
        ContractViolation("StateError") = "RW-CONTRACT",
            "Declare the place in `reads` or `writes`; `ropewalk check FILE.py` compares contracts and code.";

        /// The state has no such place: a class no such field, or a map no keys of that type.
        NoSuchPath("StateError", "AttributeError") = "RW-NO-SUCH-PATH",
            "Check the name against the fields that the message lists.";

        /// What a transaction has read was changed by another one before it could commit.
        ///
        /// `path` is the place, `version` the version that the transaction began with.
        Conflict("StateError", "RuntimeError") = "RW-CONFLICT",
            "Run the transaction again; `Store.run` does that by itself.";

        /// A transaction would have made a state that an invariant forbids.
        InvariantBroken("StateError", "ValueError") = "RW-INVARIANT",
            "Change the task so that the new state fulfils the invariant that the message names.";

        /// A draft was used after its transaction had ended, or by another thread.
        TransactionEnded("StateError", "RuntimeError") = "RW-TRANSACTION-ENDED",
            "Take values out of drafts before the transaction ends, and read a snapshot afterwards.";

        /// A store no longer has a version, or never had it.
        HistoryGone("StateError", "LookupError") = "RW-HISTORY-GONE",
            "Keep more versions with `Store(history=...)`.";

        /// A store was closed.
        StoreClosed("StateError", "ValueError") = "RW-STORE-CLOSED",
            "Open the store again.";

        /// A value has no form in JSON.
        NotJson("StateError", "TypeError") = "RW-NOT-JSON",
            "Give `dumps` a `default`, or change the value at the place that the message names.";

        /// A text is not JSON, or does not fit the type that was asked for.
        ///
        /// `path` is the place in the text: `$` is all of it, and `$.accounts.ann` a part.
        BadJson("StateError", "ValueError") = "RW-BAD-JSON",
            "Correct the text at the place that the message names, or ask for another type.";

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
