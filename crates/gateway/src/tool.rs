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
    /// How long a run may take to stop when its caller has left; `None` for the gateway's own times.
    pub grace: Option<Duration>,
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

/// A class whose objects live in one worker from one call to the next. Each of its operations is run as a tool is.
#[derive(Debug)]
pub struct SessionTool {
    /// Makes the object. Its name and its description are the session's.
    pub open: Arc<Tool>,
    /// The methods, by their own names. In metrics, and to agents, each has the session's name before its own.
    pub methods: BTreeMap<Arc<str>, Arc<Tool>>,
    /// Ends the object, if there is something to call.
    pub close: Option<Arc<Tool>>,
    /// How long a session lives without a call.
    pub idle_timeout: Duration,
}

impl SessionTool {
    /// Puts the operations together. A method's name is what follows the session's and a dot.
    pub fn new(
        open: Tool,
        methods: impl IntoIterator<Item = Tool>,
        close: Option<Tool>,
        idle_timeout: Duration,
    ) -> Self {
        let prefix = format!("{}.", open.name);
        let named =
            |tool: Tool| (tool.name.strip_prefix(&prefix).unwrap_or(&tool.name).into(), Arc::new(tool));
        let methods = methods.into_iter().map(named).collect();
        Self { open: Arc::new(open), methods, close: close.map(Arc::new), idle_timeout }
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.open.name
    }

    /// Its operations, each a tool.
    pub fn operations(&self) -> impl Iterator<Item = &Arc<Tool>> {
        [&self.open].into_iter().chain(self.methods.values()).chain(&self.close)
    }
}

/// The tools of a server, by name, and its sessions.
#[derive(Debug, Default)]
pub struct Tools {
    tools: BTreeMap<Arc<str>, Arc<Tool>>,
    sessions: BTreeMap<Arc<str>, Arc<SessionTool>>,
}

impl Tools {
    /// The tool of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Tool>> {
        self.tools.get(name)
    }

    /// All tools, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.tools.values()
    }

    /// All tools, and the operations of all sessions, each of which is a tool.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.iter().chain(self.sessions().flat_map(|session| session.operations()))
    }

    /// The same tools, and these sessions.
    pub fn with_sessions(mut self, sessions: impl IntoIterator<Item = SessionTool>) -> Self {
        let named = |session: SessionTool| (Arc::clone(session.name()), Arc::new(session));
        self.sessions = sessions.into_iter().map(named).collect();
        self
    }

    /// The session of this name.
    pub fn session(&self, name: &str) -> Option<&Arc<SessionTool>> {
        self.sessions.get(name)
    }

    /// All sessions, in the order of their names.
    pub fn sessions(&self) -> impl Iterator<Item = &Arc<SessionTool>> {
        self.sessions.values()
    }
}

impl FromIterator<Tool> for Tools {
    fn from_iter<I: IntoIterator<Item = Tool>>(tools: I) -> Self {
        let tools = tools.into_iter().map(|tool| (Arc::clone(&tool.name), Arc::new(tool))).collect();
        Self { tools, sessions: BTreeMap::new() }
    }
}
