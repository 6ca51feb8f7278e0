//! Tools: functions with a name, a description and schemas.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ropewalk_pool::Function;

/// A function that callers may call.
#[derive(Debug)]
pub struct Tool {
    /// Its name, unique on the server.
    pub name: Arc<str>,
    /// What it does, for people and for models.
    pub description: String,
    /// The JSON Schema of its arguments, an object.
    pub input_schema: String,
    /// The JSON Schema of its result, or of each item of a stream.
    pub output_schema: String,
    /// Whether it makes a stream of items.
    pub streams: bool,
    /// Whether it changes nothing.
    pub read_only: bool,
    /// Whether running it twice does no more than running it once.
    pub idempotent: bool,
    /// How long a run may take.
    pub timeout: Option<Duration>,
    /// How long a call may take from its arrival: waiting, all runs, and the ways there and back.
    pub deadline: Option<Duration>,
    /// How long a run may go without a sign of life.
    pub hang: Option<Duration>,
    /// How often it may be run again when its worker dies: only a tool that may run twice has such.
    pub retries: u32,
    /// How its calls are run together, if they are.
    pub batch: Option<Batch>,
    /// For how long a result answers equal calls, if it does.
    pub cache_ttl: Option<Duration>,
    /// How often the tools had been loaded again before it was made.
    pub generation: u64,
    /// The number of its pool among the engines.
    pub engine: usize,
    /// What the pool's workers call; `None` where no engine runs it.
    pub function: Option<Arc<Function>>,
}

/// How calls of a tool are run together.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// Calls of a batch.
    pub most: usize,
    /// How long a call may wait for others.
    pub window: Duration,
    /// Calls that may wait.
    pub capacity: usize,
    /// Batches that the tool's workers can run at a time.
    pub lanes: usize,
}

/// The tools of a server, by name.
#[derive(Debug, Default)]
pub struct Tools(BTreeMap<Arc<str>, Arc<Tool>>);

impl Tools {
    /// The tool of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Tool>> {
        self.0.get(name)
    }

    /// All, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.0.values()
    }
}

impl FromIterator<Tool> for Tools {
    fn from_iter<I: IntoIterator<Item = Tool>>(tools: I) -> Self {
        Self(tools.into_iter().map(|tool| (Arc::clone(&tool.name), Arc::new(tool))).collect())
    }
}
