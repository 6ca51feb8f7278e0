//! The listeners, and how they end: no request that has begun is lost when the server is asked to leave.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use std::{fmt, io};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware;
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use connectrpc::ConnectRpcService;
use futures::StreamExt as _;
use ropewalk_sync::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;
use tokio::time::timeout;
use tower::Service as _;

use crate::call::{Readiness, Runner};
use crate::clients::{Clients, Roster};
use crate::ending::Ending;
use crate::failed::{Code, Failed};
use crate::guard::{self, Guard};
use crate::http::{self, Catalog, Shared};
use crate::listener::{Certificates, Listener, Source, Tls};
use crate::mcp::{self, Mcp};
use crate::rpc;
use crate::sessions::Sessions;
use crate::status::{Dashboard, Made, Status, Wishes};
use crate::telemetry::{self, Export, Lines, Now, Telemetry};
use crate::tool::{Tool, Tools};
use crate::zmq::{self, Zmq};

/// How a server listens.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where HTTP is served.
    pub http: Option<SocketAddr>,
    /// Where gRPC is served.
    pub grpc: Option<SocketAddr>,
    /// The path of the unix socket.
    pub unix: Option<PathBuf>,
    /// What encrypts connections of TCP.
    pub tls: Option<Tls>,
    /// Where calls come by ZeroMQ: `tcp://127.0.0.1:5555`, or `ipc://PATH`.
    pub zmq: Option<String>,
    /// Threads that serve.
    pub threads: usize,
    /// Bytes that a request may have.
    pub largest: usize,
    /// Connections that may be open at each address.
    pub most_connections: usize,
    /// Sessions that may be open at a time.
    pub most_sessions: usize,
    /// How long a client may take for a handshake, for the head of a request, and then for each further part of it.
    pub head_timeout: Duration,
    /// How long a client may take nothing of what is to be written to it.
    pub write_timeout: Duration,
    /// Who may call.
    pub clients: Arc<Clients>,
    /// What goes to a collector.
    pub export: Export,
    /// Where the records of calls go.
    pub lines: Arc<Lines>,
    /// What the program does for the dashboard and for the numbers.
    pub wishes: Arc<Wishes>,
    /// The page that shows what goes on, if there is to be one.
    pub dashboard: Option<Dashboard>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            http: None,
            grpc: None,
            unix: None,
            tls: None,
            zmq: None,
            threads: 2,
            largest: 16 << 20,
            most_connections: 16_384,
            most_sessions: 1024,
            head_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(30),
            clients: Arc::default(),
            export: Export::default(),
            lines: Arc::default(),
            wishes: Arc::default(),
            dashboard: None,
        }
    }
}

/// Where a server listens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listening {
    /// For HTTP.
    pub http: Option<SocketAddr>,
    /// For gRPC.
    pub grpc: Option<SocketAddr>,
    /// The unix socket.
    pub unix: Option<PathBuf>,
}

/// A server that runs. Dropping it ends it at once.
pub struct Server {
    runtime: Mutex<Option<Runtime>>,
    runner: Arc<dyn Runner>,
    ending: Arc<Ending>,
    telemetry: Arc<Telemetry>,
    sessions: Arc<Sessions>,
    listening: Listening,
    shared: Arc<Shared>,
    mcp: Mcp,
    certificates: Option<Arc<Certificates>>,
    zmq: Option<zmq::Listening>,
    write_timeout: Duration,
    leave: watch::Sender<bool>,
    /// Listeners and sessions that have not drained yet.
    open: Arc<watch::Sender<usize>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("listening", &self.listening).finish_non_exhaustive()
    }
}

impl Server {
    /// Starts to listen, and to serve.
    ///
    /// # Errors
    ///
    /// When an address cannot be listened on, a file of TLS cannot be used, or the machine is out of threads or
    /// descriptors.
    pub fn start(settings: &Settings, tools: Tools, runner: Arc<dyn Runner>) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(settings.threads.max(1))
            .thread_name("ropewalk-serve")
            .enable_io()
            .enable_time()
            .build()?;
        let ending = Ending::new(runner);
        let runner: Arc<dyn Runner> = Arc::clone(&ending) as _;
        let asked = Arc::clone(&runner);
        let wishes = Arc::clone(&settings.wishes);
        let now = move || Now { buses: wishes.buses(), ..asked.now() };
        let telemetry = Telemetry::new(&tools, Arc::clone(&settings.lines), now);
        telemetry.export(&settings.export, runtime.handle())?;
        let (largest, patience) = (settings.largest, settings.head_timeout);
        let sessions = Sessions::new(settings.most_sessions, Arc::clone(&runner), Arc::clone(&telemetry));
        Sessions::watch(&sessions, runtime.handle());
        let roster = Arc::new(Roster::new(Arc::clone(&settings.clients)));
        let shared = Shared::new(
            tools,
            Arc::clone(&runner),
            Arc::clone(&telemetry),
            Arc::clone(&sessions),
            Arc::clone(&roster),
            largest,
            patience,
        );
        let shared = Arc::new(shared);
        // With clients, or at an address that others reach, the server may have any name.
        let mut addresses = settings.http.iter().chain(&settings.grpc);
        let is_local = settings.clients.is_empty() && addresses.all(|address| address.ip().is_loopback());
        let guard = Arc::new(Guard::new(roster, is_local));
        let guarded = middleware::from_fn_with_state(Arc::clone(&guard), guard::guard);
        let (leave, leaving) = watch::channel(false);
        let status = settings.dashboard.as_ref().map(|dashboard| {
            let (runner, telemetry) = (Arc::clone(&runner), Arc::clone(&telemetry));
            let (shared, guard, leaving) = (Arc::clone(&shared), Arc::clone(&guard), leaving.clone());
            let wishes = Arc::clone(&settings.wishes);
            let made = Made { dashboard, wishes, shared, runner, telemetry, guard, leaving };
            Status::new(made, runtime.handle())
        });
        let status = status.transpose()?.map_or_else(Router::new, Status::routes);
        let measured = middleware::from_fn_with_state(Arc::clone(&telemetry), telemetry::measure);
        let mcp = Mcp::new(Arc::clone(&shared));
        let services = rpc::service(Arc::clone(&shared), leaving.clone()).map_err(io::Error::other)?;
        let routes = http::routes(Arc::clone(&shared))
            .merge(mcp.routes())
            .merge(status)
            .method_not_allowed_fallback(http::not_allowed)
            .fallback(any({
                let leaving = leaving.clone();
                move |request| otherwise(services.clone(), leaving.clone(), request)
            }));
        let routes = routes.layer(guarded).layer(measured);
        let certificates = settings.tls.clone().map(Certificates::new).transpose()?.map(Arc::new);
        let listener = Listener {
            routes,
            leaving,
            most: settings.most_connections,
            largest,
            head_timeout: settings.head_timeout,
            write_timeout: settings.write_timeout,
            certificates: certificates.clone(),
        };
        let (listening, sources) = {
            let _within = runtime.enter();
            opened(settings)?
        };
        let open = Arc::new(watch::Sender::new(sources.len()));
        for source in sources {
            let (listener, open) = (listener.clone(), Arc::clone(&open));
            runtime.spawn(async move {
                listener.serve(source).await;
                open.send_modify(|open| *open -= 1);
            });
        }
        let zmq = match &settings.zmq {
            None => None,
            Some(endpoint) => {
                let handle = runtime.handle().clone();
                open.send_modify(|open| *open += 1);
                let ended = {
                    let open = Arc::clone(&open);
                    move || open.send_modify(|open| *open -= 1)
                };
                let limits = zmq::Limits {
                    connections: settings.most_connections,
                    handshake: settings.head_timeout,
                    patience: settings.write_timeout,
                };
                Some(Zmq::start(Arc::clone(&shared), handle, endpoint, limits, ended)?)
            }
        };
        let runtime = Mutex::new(Some(runtime));
        let made = Self {
            runtime,
            runner,
            ending,
            telemetry,
            sessions,
            listening,
            shared,
            mcp,
            certificates,
            zmq,
            write_timeout: settings.write_timeout,
            leave,
            open,
        };
        Ok(made)
    }

    /// Admits these clients from now on. What others have begun goes on, and rates go on where they were.
    pub fn admit(&self, clients: Clients) {
        self.shared.roster.replace(clients);
    }

    /// Reads the files of TLS again, for new connections.
    ///
    /// # Errors
    ///
    /// When one cannot be used; then the server goes on with what it had.
    pub fn certify(&self) -> io::Result<()> {
        self.certificates.as_ref().map_or(Ok(()), |certificates| certificates.reload())
    }

    /// Where it listens: the ports that the system chose, too.
    pub fn listening(&self) -> Listening {
        self.listening.clone()
    }

    /// Where calls come by ZeroMQ.
    pub fn zmq(&self) -> Option<&str> {
        self.zmq.as_ref().map(zmq::Listening::endpoint)
    }

    /// Whether it takes calls.
    pub fn readiness(&self) -> Readiness {
        self.runner.readiness()
    }

    /// From now on calls find these tools. Gives those that there were, and the operations of sessions: calls that
    /// have found them hold them, and so do sessions.
    pub fn replace(&self, tools: Tools) -> Vec<Weak<Tool>> {
        self.telemetry.replace(&tools);
        self.mcp.replace(&tools);
        let before = self.shared.catalog.replace(Catalog::new(tools));
        before.tools.all().map(Arc::downgrade).collect()
    }

    /// Takes no more connections and no more requests, opens no more sessions, and waits until the requests that have
    /// begun are answered, and the tasks of MCP have ended; then it ends the sessions that are left. What is left after
    /// that time is given up: its client reads that the server leaves, for which there is a second more. False if a
    /// call had to be given up.
    pub fn drain(&self, within: Duration) -> bool {
        let _ = self.leave.send(true);
        self.sessions.leave();
        self.mcp.leave();
        if let Some(zmq) = &self.zmq {
            zmq.leave();
        }
        let Some(handle) = self.handle() else { return true };
        let (mut open, mcp, sessions) = (self.open.subscribe(), self.mcp.clone(), Arc::clone(&self.sessions));
        let ending = Arc::clone(&self.ending);
        let begun = Instant::now();
        let drained = handle.spawn(async move {
            let answered = async {
                all_closed(&mut open).await;
                mcp.at_rest().await;
            };
            let _ = timeout(within, answered).await;
            let no_task = mcp.give_up();
            ending.give_up();
            // A session that is as long as its connection has kept that open until now.
            let last = async { tokio::join!(sessions.end_all(), all_closed(&mut open)).0 };
            let time = within.saturating_sub(begun.elapsed()).max(LAST);
            timeout(time, last).await == Ok(true) && no_task && !ending.gave_up()
        });
        // A task of the runtime, since `stop` may end that meanwhile: it drops the task, and no timer is polled then.
        handle.block_on(drained).unwrap_or(false)
    }

    /// Serves MCP to a client at these descriptors, until it leaves or the server does. A client has left that takes
    /// nothing of what is to be written for `write_timeout`.
    ///
    /// # Errors
    ///
    /// When the machine is out of threads or descriptors.
    pub fn attend(&self, input: OwnedFd, output: OwnedFd) -> io::Result<()> {
        let Some(handle) = self.handle() else { return Ok(()) };
        self.open.send_modify(|open| *open += 1);
        let (mcp, leaving, open) = (self.mcp.clone(), self.leave.subscribe(), Arc::clone(&self.open));
        let patience = self.write_timeout;
        let session = handle.spawn(async move {
            let served = mcp::attend(mcp, input, output, leaving, patience).await;
            open.send_modify(|open| *open -= 1);
            served
        });
        // A session that a server's end has broken off has ended, too.
        handle.block_on(session).unwrap_or(Ok(()))
    }

    fn handle(&self) -> Option<Handle> {
        self.runtime.lock().as_ref().map(|runtime| runtime.handle().clone())
    }

    /// Ends it: what has not been answered is given up.
    pub fn stop(&self) {
        let runtime = self.runtime.lock().take();
        if let Some(zmq) = &self.zmq {
            zmq.stop();
        }
        if let Some(runtime) = runtime {
            self.telemetry.shutdown();
            runtime.shutdown_timeout(Duration::from_secs(2));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.lock().take() {
            runtime.shutdown_background();
        }
    }
}

/// Opens all that the settings name.
fn opened(settings: &Settings) -> io::Result<(Listening, Vec<Source>)> {
    let mut sources = Vec::new();
    let mut tcp = |address: Option<SocketAddr>| -> io::Result<Option<SocketAddr>> {
        let Some(address) = address else { return Ok(None) };
        let (source, found) = Source::tcp(address)?;
        sources.push(source);
        Ok(Some(found))
    };
    let (http, grpc) = (tcp(settings.http)?, tcp(settings.grpc)?);
    let unix = settings.unix.clone();
    if let Some(path) = &unix {
        sources.push(Source::unix(path)?);
    }
    Ok((Listening { http, grpc, unix }, sources))
}

/// Serves what is no path of HTTP's own: calls of services, and what does not exist.
async fn otherwise(
    mut services: ConnectRpcService,
    mut leaving: watch::Receiver<bool>,
    request: Request,
) -> Response {
    // A client of gRPC expects an answer of gRPC.
    if rpc::is_call(&request) {
        // A client may keep a stream of reflection for later, which would keep a server that leaves.
        let request = if request.uri().path().starts_with("/grpc.reflection.") {
            let left = async move { drop(leaving.wait_for(|leaving| *leaving).await) };
            request.map(|body| Body::from_stream(body.into_data_stream().take_until(left)))
        } else {
            request
        };
        return services.call(request).await.into_response();
    }
    Failed::new(Code::NotFound, "there is nothing at this path; /openapi.json lists what is").into_response()
}

/// Waits until nothing is open.
async fn all_closed(open: &mut watch::Receiver<usize>) {
    // It ends with an error only if the sender is gone: the server has ended.
    let _ = open.wait_for(|open| *open == 0).await;
}

/// How long the ends of the last calls and sessions may take at least, when the server leaves.
const LAST: Duration = Duration::from_secs(1);
