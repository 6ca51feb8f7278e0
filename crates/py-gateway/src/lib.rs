//! `ropewalk._gateway`: a server of tools, as Python starts and ends it.
//!
//! Python says which tools there are and on which pools they run. From then on a request passes it by, but for the
//! exception of a tool, which only Python can read.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{io, thread};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use ropewalk_capi::module::check_main_interpreter;
use ropewalk_capi::object::Raised;
use ropewalk_gateway::{
    Batch, Batched, BusNow, Cached, Clients, Code, Dashboard, Digest, Driver, EndedWorker, Engines,
    Exception, Exceptions, Export, Failed, Generations, Gravity, Known, Lines, Logged, Logging, Rate,
    Readiness, Runner, Server, SessionTool, Settings, Thrown, Tls, Tool, Tools, Violation, Wish, Wishes,
};
use ropewalk_os::file::duplicate;
use ropewalk_pool::Engine;
use ropewalk_py_pool::parent::served::{self, Served};
use ropewalk_sync::Mutex;

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
    grace: Option<f64>,
    retries: u32,
    /// The size of a batch, its window in seconds, how many calls may wait, how many batches run at a time.
    batch: Option<(usize, f64, usize, usize)>,
    cache_ttl: Option<f64>,
    pool: usize,
    call: Bound<'py, PyAny>,
}

/// Who may call; see `Known` of the gateway.
#[derive(FromPyObject)]
struct Client {
    name: Option<String>,
    token: Option<Vec<u8>>,
    certificate: Option<String>,
    tools: Option<Vec<String>>,
    expires: Option<f64>,
    rate: Option<(f64, u32)>,
    admin: bool,
    metrics: Option<bool>,
}

fn rate(given: Option<(f64, u32)>) -> PyResult<Option<Rate>> {
    let made = |(per_second, burst)| {
        Rate::new(per_second, burst)
            .ok_or_else(|| PyValueError::new_err("rate is no rate of calls, or its burst is none"))
    };
    given.map(made).transpose()
}

fn time_of_day(seconds: f64) -> PyResult<SystemTime> {
    let at =
        Duration::try_from_secs_f64(seconds.max(0.0)).ok().and_then(|since| UNIX_EPOCH.checked_add(since));
    at.ok_or_else(|| PyValueError::new_err("expires is no time of day"))
}

fn known(given: Vec<Client>, of_all: Option<(f64, u32)>) -> PyResult<Clients> {
    let made = |client: Client| -> PyResult<Known> {
        let token = client.token.map(Digest::try_from).transpose();
        Ok(Known {
            name: client.name.map(Into::into),
            token: token.map_err(|_| PyValueError::new_err("token is no SHA-256"))?,
            certificate: client.certificate.map(Into::into),
            tools: client.tools.map(|tools| tools.into_iter().map(Into::into).collect()),
            expires: client.expires.map(time_of_day).transpose()?,
            rate: rate(client.rate)?,
            is_admin: client.admin,
            metrics: client.metrics,
        })
    };
    let made = given.into_iter().map(made).collect::<PyResult<Vec<_>>>()?;
    Ok(Clients::new(made, rate(of_all)?))
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
    write_timeout: f64,
    unix: Option<PathBuf>,
    tls: Option<(PathBuf, PathBuf, Option<PathBuf>)>,
    clients: Vec<Client>,
    rate: Option<(f64, u32)>,
    otlp: Option<String>,
    otlp_ca: Option<PathBuf>,
    log: String,
    sessions: usize,
    cache_size: usize,
    zmq: Option<String>,
    dashboard: bool,
    /// The descriptor of the socket that workers connect to, which stays the caller's.
    inspected: Option<i32>,
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

/// A record as Python takes it: its level and time; tool, protocol, status, message and caller; times; worker,
/// attempts and items; trace and span; the class of what the tool raised, and the traceback.
type Fields<'a> = (
    (u8, f64),
    (&'a str, &'static str, &'static str, Option<&'a str>, Option<&'a str>),
    (f64, Option<f64>, Option<f64>),
    (i32, u32, u64),
    Option<(&'a str, &'a str)>,
    Option<(&'a str, Option<&'a str>)>,
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
        (&line.tool, line.protocol, line.status, line.message.as_deref(), line.caller.as_deref()),
        (line.took.as_secs_f64(), seconds(line.queued), seconds(line.ran)),
        (line.pid, line.attempts, line.items),
        line.trace.as_ref().map(|(trace, span)| (trace.as_str(), span.as_str())),
        line.raised.as_ref().and_then(|raised| Some((raised.class.as_deref()?, raised.traceback.as_deref()))),
    )
}

/// A worker that was ended: its pool, its process, the tool, whether its time was up, and how many others were ended.
type Gone<'a> = (&'a str, i32, &'a str, bool, u64);

fn gone(of: &EndedWorker) -> Gone<'_> {
    (&of.pool, of.pid, &of.tool, of.late, of.others)
}

/// What a function of the program says of an exception: a code, a message, violations, the traceback, and the class of
/// one that is no answer.
type Explained = (String, String, Vec<(String, String)>, Option<String>, Option<String>);

/// Why a call failed whose tool raised, as a function of the program says.
fn explained(explain: &Bound<'_, PyAny>, exception: &Exception) -> PyResult<Failed> {
    let Some(reply) = exception.reply() else {
        return Ok(Failed::new(Code::Internal, "the tool has not raised"));
    };
    let error = served::exception(explain.py(), reply)?;
    let (code, message, violations, traceback, raised): Explained = explain.call1((error,))?.extract()?;
    let violations = violations.into_iter().map(|(field, description)| Violation { field, description });
    let code = Code::of_name(&code).unwrap_or(Code::Unknown);
    let raised = Thrown { class: raised.map(Arc::from), traceback: traceback.map(Arc::from) };
    let (violations, raised) = (Violation::bounded(violations), Some(Arc::new(raised)));
    Ok(Failed { violations, raised, ..Failed::new(code, message) })
}

/// The counts of buses, as a function of the program gives them.
fn counts(found: &Bound<'_, PyAny>) -> PyResult<Vec<BusNow>> {
    let found: Vec<(String, u64, u64, u64)> = found.extract()?;
    let counts = found.into_iter();
    Ok(counts
        .map(|(name, published, waiting, failed)| BusNow { name: name.into(), published, waiting, failed })
        .collect())
}

/// A server that runs; see `ropewalk/_gateway.pyi`.
#[pyclass(frozen, module = "ropewalk._gateway")]
struct Gateway {
    server: Server,
    lines: Arc<Lines>,
    exceptions: Arc<Exceptions>,
    generations: Arc<Generations>,
    cached: Arc<Cached>,
    /// How often the tools were loaded again. Orders nothing: relaxed.
    reloads: AtomicU64,
    /// The tools of generations that were replaced, until `retire` takes them.
    replaced: Mutex<BTreeMap<u64, Vec<Weak<Tool>>>>,
    /// Set at the end, for what waits. Orders nothing: relaxed.
    stopped: AtomicBool,
    wishes: Arc<Wishes>,
}

/// The tools as they are described, of this generation.
fn tools_of(
    pools: &[Served],
    described: Vec<Described<'_>>,
    sessions: Vec<DescribedSession<'_>>,
    generation: u64,
) -> PyResult<Tools> {
    let made = |tool: Described<'_>| -> PyResult<Tool> {
        let pool =
            pools.get(tool.pool).ok_or_else(|| PyValueError::new_err("a tool names a pool by its place"))?;
        let batch = tool.batch.map(|(most, window, capacity, lanes)| -> PyResult<Batch> {
            Ok(Batch { most, window: seconds("window", window)?, capacity, lanes })
        });
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
            grace: tool.grace.map(|time| seconds("grace", time)).transpose()?,
            retries: tool.retries,
            batch: batch.transpose()?,
            cache_ttl: tool.cache_ttl.map(|time| seconds("cache_ttl", time)).transpose()?,
            generation,
            engine: tool.pool,
            function: Some(pool.ship(&tool.call)?),
        })
    };
    let tools: Tools = described.into_iter().map(made).collect::<PyResult<Vec<_>>>()?.into_iter().collect();
    let session = |of: DescribedSession<'_>| -> PyResult<SessionTool> {
        let methods = of.methods.into_iter().map(made).collect::<PyResult<Vec<_>>>()?;
        let idle_timeout = seconds("idle_timeout", of.idle_timeout)?;
        Ok(SessionTool::new(made(of.open)?, methods, of.close.map(made).transpose()?, idle_timeout))
    };
    Ok(tools.with_sessions(sessions.into_iter().map(session).collect::<PyResult<Vec<_>>>()?))
}

/// What runs the calls of one generation.
fn engines_of(engines: Vec<Engine>, exceptions: &Arc<Exceptions>) -> io::Result<Arc<Engines>> {
    let drivers = engines.into_iter().map(Driver::start).collect::<Result<Vec<_>, _>>()?;
    Ok(Arc::new(Engines::new(drivers, Arc::clone(exceptions))))
}

/// How often what waits looks again.
const LOOK: Duration = Duration::from_millis(5);

#[pymethods]
impl Gateway {
    #[new]
    fn new(
        py: Python<'_>,
        pools: Vec<Bound<'_, PyAny>>,
        tools: Vec<Described<'_>>,
        sessions: Vec<DescribedSession<'_>>,
        settings: Wanted,
    ) -> PyResult<Self> {
        let pools = pools.iter().map(Served::of).collect::<PyResult<Vec<_>>>()?;
        let tools = tools_of(&pools, tools, sessions, 0)?;
        let cache_size = settings.cache_size;
        let lines = Arc::new(Lines::new(logging(&settings.log)?));
        let wishes = Arc::new(Wishes::default());
        let socket = settings.inspected.map(duplicate).transpose()?.map(Arc::new);
        let dashboard = Dashboard { socket };
        let settings = Settings {
            http: address(settings.http.as_ref())?,
            grpc: address(settings.grpc.as_ref())?,
            zmq: settings.zmq,
            threads: settings.threads,
            largest: settings.largest,
            most_connections: settings.connections,
            most_sessions: settings.sessions,
            head_timeout: seconds("head_timeout", settings.head_timeout)?,
            write_timeout: seconds("write_timeout", settings.write_timeout)?,
            unix: settings.unix,
            tls: settings.tls.map(|(cert, key, client_ca)| Tls { cert, key, client_ca }),
            clients: Arc::new(known(settings.clients, settings.rate)?),
            export: Export { endpoint: settings.otlp, ca: settings.otlp_ca },
            lines: Arc::clone(&lines),
            wishes: Arc::clone(&wishes),
            dashboard: settings.dashboard.then_some(dashboard),
        };
        let engines: Vec<_> = pools.iter().map(Served::engine).collect();
        let started = py.detach(move || {
            let exceptions = Arc::new(Exceptions::default());
            let generations = Arc::new(Generations::new(engines_of(engines, &exceptions)?));
            let batched: Arc<dyn Runner> = Arc::new(Batched::new(Arc::<Generations>::clone(&generations)));
            let cached = Arc::new(Cached::new(batched, cache_size));
            let server = Server::start(&settings, tools, Arc::<Cached>::clone(&cached))?;
            let (reloads, replaced, stopped) = (AtomicU64::new(0), Mutex::default(), AtomicBool::new(false));
            Ok::<_, io::Error>(Self {
                server,
                lines,
                exceptions,
                generations,
                cached,
                reloads,
                replaced,
                stopped,
                wishes,
            })
        });
        started.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => PyValueError::new_err(error.to_string()),
            _ => PyErr::from(error),
        })
    }

    /// Where HTTP is served, and gRPC: `"127.0.0.1:8080"`.
    #[getter]
    fn addresses(&self) -> (Option<String>, Option<String>) {
        let listening = self.server.listening();
        (listening.http.map(|address| address.to_string()), listening.grpc.map(|address| address.to_string()))
    }

    /// Where calls come by ZeroMQ: `"tcp://127.0.0.1:5555"`.
    #[getter]
    fn zmq(&self) -> Option<&str> {
        self.server.zmq()
    }

    /// Serves MCP at two descriptors, which stay the caller's, until the client leaves or the server ends.
    fn attend(&self, py: Python<'_>, input: i32, output: i32) -> PyResult<()> {
        let (input, output) = (duplicate(input)?, duplicate(output)?);
        py.detach(|| self.server.attend(input, output)).map_err(PyErr::from)
    }

    /// Admits these clients from now on.
    fn admit(&self, py: Python<'_>, clients: Vec<Client>, rate: Option<(f64, u32)>) -> PyResult<()> {
        let made = known(clients, rate)?;
        py.detach(|| self.server.admit(made));
        Ok(())
    }

    /// Reads the files of certificates again, for new connections.
    fn certify(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.server.certify()).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Serves these tools of these pools in place of those that there are, once every worker is ready; what has begun
    /// goes on. Gives the number of those, for `retire`.
    fn reload(
        &self,
        py: Python<'_>,
        pools: Vec<Bound<'_, PyAny>>,
        tools: Vec<Described<'_>>,
        sessions: Vec<DescribedSession<'_>>,
    ) -> PyResult<u64> {
        let number = self.reloads.fetch_add(1, Ordering::Relaxed) + 1;
        let pools = pools.iter().map(Served::of).collect::<PyResult<Vec<_>>>()?;
        let tools = tools_of(&pools, tools, sessions, number)?;
        let engines: Vec<_> = pools.iter().map(Served::engine).collect();
        let engines = py.detach(|| engines_of(engines, &self.exceptions))?;
        let ready = self.wait_ready(py, &engines);
        // With no lock of Python's, also when they are dropped: their threads end.
        py.detach(move || {
            ready?;
            self.generations.add(number, engines);
            let before = self.server.replace(tools);
            let old = self.generations.make_current(number);
            self.cached.clear();
            self.replaced.lock().insert(old, before);
            Ok(old)
        })
    }

    /// Returns when no call is left that may yet go to the workers of tools which were replaced, and forgets these.
    /// False if that took longer than `timeout`, or the server has ended.
    fn retire(&self, py: Python<'_>, number: u64, timeout: f64) -> PyResult<bool> {
        let timeout = seconds("timeout", timeout)?;
        Ok(py.detach(|| {
            let mut before = self.replaced.lock().remove(&number).unwrap_or_default();
            let end = Instant::now().checked_add(timeout);
            loop {
                before.retain(|tool| tool.strong_count() > 0);
                let over =
                    self.stopped.load(Ordering::Relaxed) || end.is_some_and(|end| end <= Instant::now());
                if before.is_empty() || over {
                    self.generations.remove(number);
                    return before.is_empty();
                }
                thread::sleep(LOOK);
            }
        }))
    }

    /// Ends the processes that have forked the workers of pools which are gone.
    #[staticmethod]
    fn end_idle_zygotes(py: Python<'_>) {
        py.detach(ropewalk_pool::end_idle_zygotes);
    }

    /// From now on records of these calls are written.
    fn change_log(&self, log: &str) -> PyResult<()> {
        self.lines.set(logging(log)?);
        Ok(())
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

    /// Writes the records until the server ends: `write` is given some calls and ended workers at a time, and how many
    /// calls were dropped since it was given some.
    fn log(&self, py: Python<'_>, write: &Bound<'_, PyAny>) {
        let mut dropped = 0;
        while let Some(taken) = py.detach(|| self.lines.next()) {
            let now = self.lines.dropped();
            let calls: Vec<_> = taken.calls.iter().map(fields).collect();
            let ended: Vec<_> = taken.ended.iter().map(gone).collect();
            if let Err(error) = write.call1((calls, ended, now - dropped)) {
                error.write_unraisable(py, Some(write));
            }
            dropped = now;
        }
    }

    /// Does what only the program can, until the server ends: `drain` begins the server's end, `beside` gives what goes
    /// on beside the tools, as the text of a JSON object, or nothing, and `buses` the counts of each bus that is shown:
    /// its name, messages published, messages that wait, handlers that failed.
    fn fulfil(
        &self,
        py: Python<'_>,
        drain: &Bound<'_, PyAny>,
        beside: &Bound<'_, PyAny>,
        buses: &Bound<'_, PyAny>,
    ) {
        while let Some(wish) = py.detach(|| self.wishes.next()) {
            let done = match wish {
                Wish::Drain => drain.call0().map(drop),
                Wish::Beside(answering) => beside.call0().and_then(|text| text.extract()).map(|text| {
                    py.detach(|| answering.answer(text));
                }),
                Wish::Buses(counting) => buses.call0().and_then(|found| counts(&found)).map(|found| {
                    py.detach(|| counting.answer(found));
                }),
            };
            if let Err(error) = done {
                error.write_unraisable(py, None);
            }
        }
    }

    /// Whether it takes calls: `None`, or why it does not, and whether it is starting.
    fn not_ready(&self, py: Python<'_>) -> Option<(String, bool)> {
        let readiness = py.detach(|| self.server.readiness());
        readiness.why_not().map(|why| (why, matches!(readiness, Readiness::Starting(..))))
    }

    /// Ends it: what has not been answered is given up.
    fn stop(&self, py: Python<'_>) {
        self.stopped.store(true, Ordering::Relaxed);
        py.detach(|| {
            self.server.stop();
            self.exceptions.close();
            self.lines.close();
            self.wishes.close();
        });
    }
}

impl Gateway {
    /// Waits until every worker of these engines is ready. An interrupt ends that.
    fn wait_ready(&self, py: Python<'_>, engines: &Engines) -> PyResult<()> {
        loop {
            let readiness = py.detach(|| engines.readiness());
            let Some(why) = readiness.why_not() else { return Ok(()) };
            if !matches!(readiness, Readiness::Starting(..)) || self.stopped.load(Ordering::Relaxed) {
                return Err(io::Error::other(why).into());
            }
            py.check_signals()?;
            py.detach(|| thread::sleep(LOOK));
        }
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
