//! A call, whichever protocol it came by, and what runs it.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures::Stream;
use futures::future::BoxFuture;
use tokio::sync::watch;

use ropewalk_pool::Engine;
pub use ropewalk_pool::Progress;

use crate::deadline::Deadline;
use crate::failed::{Code, Failed};
use crate::telemetry::{Now, Watched};
use crate::tool::{SessionTool, Tool};

/// What bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Form {
    /// JSON text.
    Json = 1,
    /// MessagePack.
    Msgpack = 2,
    /// Bytes that mean what the tool says.
    Raw = 3,
    /// JSON, and arrays beside it.
    Arrays = 4,
    /// As a result: one array as such, and anything else as JSON.
    Array = 5,
}

impl Form {
    /// The form of this number.
    pub(crate) fn of(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Json,
            2 => Self::Msgpack,
            3 => Self::Raw,
            4 => Self::Arrays,
            _ => return None,
        })
    }

    /// The media type that says so.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Msgpack => "application/msgpack",
            Self::Raw => "application/octet-stream",
            Self::Arrays | Self::Array => "application/x-npy",
        }
    }
}

/// How far a call is: the last that its tool has said.
pub type Reports = watch::Sender<Option<Progress>>;

/// What a call is given beside its arguments.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// The arrays among the arguments, as a JSON list of their names, types and shapes; empty for none.
    pub arrays: Bytes,
    /// The bytes of each of them.
    pub buffers: Vec<Bytes>,
    /// In what form the result is wanted; `None` for that of the arguments.
    pub wanted: Option<Form>,
}

/// A call of a tool.
#[derive(Clone, Debug)]
pub struct Request {
    /// The tool.
    pub tool: Arc<Tool>,
    /// What the arguments are, and in what form the result is wanted.
    pub form: Form,
    /// The arguments.
    pub arguments: Bytes,
    /// Arrays among the arguments, and how the result is to be written.
    pub beside: Beside,
    /// What the caller says beside them, as a JSON object of texts; empty for nothing.
    pub metadata: Bytes,
    /// When its time is up.
    pub deadline: Option<Deadline>,
    /// Where the call says how far it is, if the caller wants to know.
    pub reports: Option<Reports>,
    /// What telemetry keeps of it; the runner reports the end of its task there.
    pub watched: Watched,
}

/// What a tool gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What the bytes are.
    pub form: Form,
    /// The result, or an item of a stream.
    pub bytes: Bytes,
}

/// The items of a stream. Dropping it stops the tool.
pub type Items = Pin<Box<dyn Stream<Item = Result<Answer, Failed>> + Send>>;

/// Whether calls can be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// They can.
    Ready,
    /// Not yet: so many of so many workers are ready.
    Starting(usize, usize),
    /// Not any more: the text says why.
    NotReady(String),
}

impl Readiness {
    /// Why calls cannot be taken; `None` if they can.
    pub fn why_not(&self) -> Option<String> {
        match self {
            Self::Ready => None,
            Self::Starting(ready, size) => Some(format!("{ready} of {size} workers are ready")),
            Self::NotReady(why) => Some(why.clone()),
        }
    }
}

/// What runs calls. Dropping a future of it gives the call up: what runs is ended.
pub trait Runner: Send + Sync + 'static {
    /// Runs a call, and gives its result.
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Answer, Failed>>;

    /// Begins a call of a tool that streams.
    fn stream(&self, request: Request) -> BoxFuture<'_, Result<Items, Failed>>;

    /// Finds a place for the state of a session.
    ///
    /// # Errors
    ///
    /// When there is no worker for it, or the runner keeps no states.
    fn seat(&self, _of: &SessionTool) -> Result<Arc<dyn Seat>, Failed> {
        Err(Failed::new(Code::Internal, "no pool keeps the states of sessions"))
    }

    /// Whether it takes calls.
    fn readiness(&self) -> Readiness;

    /// What the pools do now.
    fn now(&self) -> Now;

    /// The engines of the pools, by the numbers that tools name them by.
    fn engines(&self) -> Vec<Engine> {
        Vec::new()
    }
}

/// The place of a session's state: one worker, in which its calls run one after the other. Dropping it lets the state
/// go. Dropping a future of it gives the call up, as with a [`Runner`].
pub trait Seat: Send + Sync + 'static {
    /// Runs a call, and gives its result.
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Answer, Failed>>;

    /// Begins a call of an operation that streams.
    fn stream(&self, request: Request) -> BoxFuture<'_, Result<Items, Failed>>;

    /// Why the state is gone, if its worker is.
    fn lost(&self) -> Option<Failed>;
}
