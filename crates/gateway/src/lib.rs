//! The pool over gRPC, Connect and HTTP, without a word of Python.
//!
//! A request becomes a task of a pool's engine: its bytes go into the same rings as a program's own tasks, and no
//! thread here takes the interpreter's lock. See `README.md`.

#![forbid(unsafe_code)]

mod arrays;
mod batch;
mod cache;
mod call;
mod clients;
mod deadline;
mod depth;
mod driver;
mod ending;
mod engine;
mod envelope;
mod explain;
mod failed;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod generated;
mod generations;
mod guard;
mod http;
mod kserve;
mod listener;
mod mcp;
mod rpc;
mod server;
mod sessions;
mod status;
mod swap;
mod telemetry;
mod tool;
mod turns;
mod zmq;

pub use batch::Batched;
pub use cache::Cached;
pub use call::{Answer, Beside, Form, Items, Progress, Readiness, Reports, Request, Runner, Seat};
pub use clients::{Caller, Clients, Digest, Known, Rate, digest_of};
pub use deadline::Deadline;
pub use driver::Driver;
pub use engine::Engines;
pub use explain::{Exception, Exceptions};
pub use failed::{Code, Failed, Shed, Thrown, Violation};
pub use generations::Generations;
pub use listener::Tls;
pub use server::{Listening, Server, Settings};
pub use status::{Answering, Counting, Dashboard, Wish, Wishes};
pub use telemetry::{
    BusNow, EndedWorker, Export, Gravity, Lines, Logged, Logging, Now, Protocol, Taken, Watched,
};
pub use tool::{Batch, SessionTool, Tool, Tools};
