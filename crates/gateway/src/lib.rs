//! The pool over gRPC, Connect and HTTP, without a word of Python.
//!
//! A request becomes a task of a pool's engine: its bytes go into the same rings as a program's own tasks, and no
//! thread here takes the interpreter's lock. See `README.md`.

#![forbid(unsafe_code)]

mod arrays;
mod call;
mod clients;
mod depth;
mod driver;
mod engine;
mod envelope;
mod explain;
mod failed;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod generated;
mod guard;
mod http;
mod kserve;
mod listener;
mod mcp;
mod rpc;
mod server;
mod telemetry;
mod tool;

pub use call::{Answer, Beside, Form, Items, Progress, Readiness, Reports, Request, Runner};
pub use clients::{Caller, Clients, Digest, Known, Rate, digest_of};
pub use driver::Driver;
pub use engine::Engines;
pub use explain::{Exception, Exceptions};
pub use failed::{Code, Failed, Shed, Violation};
pub use listener::Tls;
pub use server::{Listening, Server, Settings};
pub use telemetry::{Export, Gravity, Lines, Logged, Logging, Now, Protocol, Watched};
pub use tool::{Tool, Tools};
