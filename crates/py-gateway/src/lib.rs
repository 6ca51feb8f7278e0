//! `ropewalk._gateway`: a server of tools, as Python starts and ends it.
//!
//! Python says which tools there are and on which pools they run. From then on a request passes it by, but for the
//! exception of a tool, which only Python can read.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use ropewalk_capi::module::check_main_interpreter;
use ropewalk_capi::object::Raised;
use ropewalk_gateway::{
    Code, Driver, Engines, Exception, Exceptions, Export, Failed, Gravity, Lines, Logged, Logging, Readiness,
    Server, SessionTool, Settings, Tokens, Tool, Tools, Violation,
};
use ropewalk_os::file::duplicate;
use ropewalk_py_pool::parent::served::{self, Served};

/// A tool as Python describes it; see `Tool` of the gateway. `call` is what the workers are to call.
#[derive(FromPyObject)]
struct Described<'py> {
    name: String,
    description: String,
    input_schema: String,
    output_schema: String,
    streams: bool,
    read_only: bool,
    idempotent: bool,
    timeout: Option<f64>,
    deadline: Option<f64>,
    hang: Option<f64>,
    retries: u32,
    pool: usize,
    call: Bound<'py, PyAny>,
}

/// A session as Python describes it; see `SessionTool` of the gateway.
#[derive(FromPyObject)]
struct DescribedSession<'py> {
    idle_timeout: f64,
    open: Described<'py>,
    methods: Vec<Described<'py>>,
    close: Option<Described<'py>>,
}

/// How a server listens; see `Settings` of the gateway.
#[derive(FromPyObject)]
struct Wanted {
    http: Option<String>,
    grpc: Option<String>,
    threads: usize,
    largest: usize,
    connections: usize,
    head_timeout: f64,
    tokens: Vec<String>,
    otlp: Option<String>,
    log: String,
    sessions: usize,
}

fn seconds(name: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| PyValueError::new_err(format!("{name} must be a time in seconds")))
}

fn address(text: Option<&String>) -> PyResult<Option<SocketAddr>> {
    let read = |text: &String| {
        text.parse().map_err(|_| {
            PyValueError::new_err(format!(
                "{text:?} is no address: write an IP and a port, as in 127.0.0.1:8080"
            ))
        })
    };
    text.map(read).transpose()
}

fn logging(text: &str) -> PyResult<Logging> {
    match text {
        "nothing" => Ok(Logging::Nothing),
        "failures" => Ok(Logging::Failures),
        "calls" => Ok(Logging::Calls),
        _ => Err(PyValueError::new_err("log must be nothing, failures or calls")),
    }
}

/// A record as Python takes it: its level and time; tool, protocol, status and message; times; worker, attempts and
/// items; trace and span.
type Fields<'a> = (
    (u8, f64),
    (&'a str, &'static str, &'static str, Option<&'a str>),
    (f64, Option<f64>, Option<f64>),
    (i32, u32, u64),
    Option<(&'a str, &'a str)>,
);

fn fields(line: &Logged) -> Fields<'_> {
    // The levels of `logging`.
    let level = match line.gravity {
        Gravity::Info => 20,
        Gravity::Warning => 30,
        Gravity::Error => 40,
    };
    let at = line.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = |time: Option<Duration>| time.as_ref().map(Duration::as_secs_f64);
    (
        (level, at.as_secs_f64()),
        (&line.tool, line.protocol, line.status, line.message.as_deref()),
        (line.took.as_secs_f64(), seconds(line.queued), seconds(line.ran)),
        (line.pid, line.attempts, line.items),
        line.trace.as_ref().map(|(trace, span)| (trace.as_str(), span.as_str())),
    )
}

/// Why a call failed whose tool raised, as a function of the program says.
fn explained(explain: &Bound<'_, PyAny>, exception: &Exception) -> PyResult<Failed> {
    let Some(reply) = exception.reply() else {
        return Ok(Failed::new(Code::Internal, "the tool has not raised"));
    };
    let error = served::exception(explain.py(), reply)?;
    let (code, message, violations): (String, String, Vec<(String, String)>) =
        explain.call1((error,))?.extract()?;
    let violations = violations.into_iter().map(|(field, description)| Violation { field, description });
    let code = Code::of_name(&code).unwrap_or(Code::Unknown);
    Ok(Failed { violations: violations.collect(), ..Failed::new(code, message) })
}

/// A server that runs; see `ropewalk/_gateway.pyi`.
#[pyclass(frozen, module = "ropewalk._gateway")]
struct Gateway {
    server: Server,
    lines: Arc<Lines>,
    exceptions: Arc<Exceptions>,
}

#[pymethods]
impl Gateway {
    #[new]
    #[pyo3(signature = (pools, tools, settings, sessions=Vec::new()))]
    fn new(
        py: Python<'_>,
        pools: Vec<Bound<'_, PyAny>>,
        tools: Vec<Described<'_>>,
        settings: Wanted,
        sessions: Vec<DescribedSession<'_>>,
    ) -> PyResult<Self> {
        let pools = pools.iter().map(Served::of).collect::<PyResult<Vec<_>>>()?;
        let made = |tool: Described<'_>| -> PyResult<Tool> {
            let pool = pools
                .get(tool.pool)
                .ok_or_else(|| PyValueError::new_err("a tool names a pool by its place"))?;
            Ok(Tool {
                name: tool.name.into(),
                description: tool.description,
                input_schema: tool.input_schema,
                output_schema: tool.output_schema,
                streams: tool.streams,
                read_only: tool.read_only,
                idempotent: tool.idempotent,
                timeout: tool.timeout.map(|time| seconds("timeout", time)).transpose()?,
                deadline: tool.deadline.map(|time| seconds("deadline", time)).transpose()?,
                hang: tool.hang.map(|time| seconds("hang", time)).transpose()?,
                retries: tool.retries,
                engine: tool.pool,
                function: Some(pool.ship(&tool.call)?),
            })
        };
        let tools: Tools = tools.into_iter().map(made).collect::<PyResult<Vec<_>>>()?.into_iter().collect();
        let session = |of: DescribedSession<'_>| -> PyResult<SessionTool> {
            let methods = of.methods.into_iter().map(made).collect::<PyResult<Vec<_>>>()?;
            let idle_timeout = seconds("idle_timeout", of.idle_timeout)?;
            Ok(SessionTool::new(made(of.open)?, methods, of.close.map(made).transpose()?, idle_timeout))
        };
        let tools = tools.with_sessions(sessions.into_iter().map(session).collect::<PyResult<Vec<_>>>()?);
        let lines = Arc::new(Lines::new(logging(&settings.log)?));
        let settings = Settings {
            http: address(settings.http.as_ref())?,
            grpc: address(settings.grpc.as_ref())?,
            threads: settings.threads,
            largest: settings.largest,
            most_connections: settings.connections,
            most_sessions: settings.sessions,
            head_timeout: seconds("head_timeout", settings.head_timeout)?,
            tokens: Tokens::new(settings.tokens),
            export: Export { endpoint: settings.otlp },
            lines: Arc::clone(&lines),
        };
        let engines: Vec<_> = pools.iter().map(Served::engine).collect();
        let started = py.detach(move || {
            let drivers = engines.into_iter().map(Driver::start).collect::<Result<Vec<_>, _>>()?;
            let exceptions = Arc::new(Exceptions::default());
            let engines = Engines::new(drivers, Arc::clone(&exceptions));
            let server = Server::start(&settings, tools, Arc::new(engines))?;
            Ok::<_, std::io::Error>(Self { server, lines, exceptions })
        });
        started.map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidInput => PyValueError::new_err(error.to_string()),
            _ => PyErr::from(error),
        })
    }

    /// Where HTTP is served, and gRPC: `"127.0.0.1:8080"`.
    #[getter]
    fn addresses(&self) -> (Option<String>, Option<String>) {
        let listening = self.server.listening();
        (listening.http.map(|address| address.to_string()), listening.grpc.map(|address| address.to_string()))
    }

    /// Serves MCP at two descriptors, which stay the caller's, until the client leaves or the server ends.
    fn attend(&self, py: Python<'_>, input: i32, output: i32) -> PyResult<()> {
        let (input, output) = (duplicate(input)?, duplicate(output)?);
        py.detach(|| self.server.attend(input, output)).map_err(PyErr::from)
    }

    /// Takes no more requests, and waits until those that have begun are answered; false if that took longer.
    fn drain(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let timeout = seconds("timeout", timeout)?;
        Ok(py.detach(|| self.server.drain(timeout)))
    }

    /// Reads the exceptions of tools until the server ends: `explain` gives a code, a message and violations for each.
    fn explain(&self, py: Python<'_>, explain: &Bound<'_, PyAny>) {
        while let Some(exception) = py.detach(|| self.exceptions.next()) {
            let failed = explained(explain, &exception)
                .unwrap_or_else(|_| Failed::new(Code::Internal, "the tool's exception cannot be read"));
            py.detach(|| exception.answer(failed));
        }
    }

    /// Writes the records of calls until the server ends: `write` is given some at a time, and how many were dropped
    /// since it was given some.
    fn log(&self, py: Python<'_>, write: &Bound<'_, PyAny>) {
        let mut dropped = 0;
        while let Some(lines) = py.detach(|| self.lines.next()) {
            let now = self.lines.dropped();
            let fields: Vec<_> = lines.iter().map(fields).collect();
            if let Err(error) = write.call1((fields, now - dropped)) {
                error.write_unraisable(py, Some(write));
            }
            dropped = now;
        }
    }

    /// Whether it takes calls: `None`, or why it does not, and whether it is starting.
    fn not_ready(&self, py: Python<'_>) -> Option<(String, bool)> {
        let readiness = py.detach(|| self.server.readiness());
        readiness.why_not().map(|why| (why, matches!(readiness, Readiness::Starting(..))))
    }

    /// Ends it: what has not been answered is given up.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| {
            self.server.stop();
            self.exceptions.close();
            self.lines.close();
        });
    }
}

/// Fills `ropewalk._gateway`.
///
/// # Errors
///
/// Outside of the main interpreter, whose types pyo3 would share with others.
pub fn fill(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let instead = c"ropewalk._gateway cannot be loaded in a subinterpreter: serve from the main interpreter";
    check_main_interpreter(instead).map_err(|Raised| PyErr::fetch(m.py()))?;
    m.add_class::<Gateway>()
}
