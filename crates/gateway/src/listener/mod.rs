//! An address, or a unix socket, and the connections that it takes.

mod certificate;
mod heads;
mod idle;
mod patient;
mod plain;
mod rest;
mod socket;
mod stream;
mod streams;
mod tls;

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use axum::routing::future::RouteFuture;
use http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tower::Service;

use self::heads::Heads;
use self::idle::Streamed;
use self::patient::Patient;
use self::rest::{Bounds, Whole};
use self::socket::Socket;
pub(crate) use self::socket::{SocketFile, open as open_socket};
use self::stream::{Carrier, Stream};
use self::streams::{Streams, watched};
pub use self::tls::Tls;
pub(crate) use self::tls::{Certificates, authorities};
use crate::clients::Peer;

/// Bytes that the heads of a request may have.
const LARGEST_HEAD: usize = 32 << 10;
/// Lines that the head of a request may have.
const MOST_HEADERS: usize = 100;
/// Streams of HTTP/2 that a connection may have open.
const MOST_STREAMS: u32 = 1024;
/// Streams of HTTP/2 that a client may have reset before the server has looked at them (CVE-2023-44487).
const MOST_RESET: usize = 20;
/// Streams of HTTP/2 that the server may have reset for a fault of the client's (CVE-2025-8671).
const MOST_FAULTY: usize = 256;
/// How often a silent connection of HTTP/2 is asked whether its client is there, and how long the answer may take.
const ASKED_EVERY: Duration = Duration::from_secs(20);
/// How long a connection may have no request, once it has had one; of HTTP/2, it is twice as long at most. Proxies keep
/// theirs for up to ten minutes, and must be the first to close.
const LONGEST_IDLE: Duration = Duration::from_secs(620);
/// How long a listener rests when the process has no descriptor for a connection: one must end first.
const NO_DESCRIPTOR: Duration = Duration::from_millis(50);

/// What connections come from.
pub(crate) enum Source {
    Tcp(TcpListener),
    Unix(Socket),
}

impl Source {
    /// Listens at an address. It must be called within a runtime, as `unix`.
    pub(crate) fn tcp(address: SocketAddr) -> io::Result<(Self, SocketAddr)> {
        let listener = StdListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let found = listener.local_addr()?;
        Ok((Self::Tcp(TcpListener::from_std(listener)?), found))
    }

    /// Listens at a unix socket.
    pub(crate) fn unix(path: &Path) -> io::Result<Self> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("unix: {error}"));
        socket::open(path).map(Self::Unix).map_err(named)
    }

    /// Takes a connection, whose client may leave what is written to it for so long.
    async fn accept(&self, patience: Duration) -> io::Result<(Carrier, Peer)> {
        Ok(match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Small answers go at once.
                let _ = stream.set_nodelay(true);
                let stream = Carrier::Tcp(Patient::new(stream, patience));
                (stream, Peer { address: Some(address.ip()), ..Peer::default() })
            }
            Self::Unix(socket) => {
                let stream = Patient::new(socket.accept().await?, patience);
                (Carrier::Unix(stream), Peer::default())
            }
        })
    }
}

/// What an address serves.
#[derive(Clone)]
pub(crate) struct Listener {
    pub(crate) routes: Router,
    pub(crate) leaving: watch::Receiver<bool>,
    pub(crate) most: usize,
    /// Bytes that a request may have.
    pub(crate) largest: usize,
    pub(crate) head_timeout: Duration,
    pub(crate) write_timeout: Duration,
    /// With them, connections of TCP begin with a handshake of TLS.
    pub(crate) certificates: Option<Arc<Certificates>>,
}

impl Listener {
    /// Takes connections until the server leaves, and returns when they have ended.
    pub(crate) async fn serve(mut self, source: Source) {
        // Its receivers are the connections.
        let connections = watch::Sender::new(());
        let open = Arc::new(AtomicUsize::new(0));
        loop {
            let accepted = tokio::select! {
                accepted = source.accept(self.write_timeout) => accepted,
                _ = self.leaving.wait_for(|leaving| *leaving) => break,
            };
            match accepted {
                Ok((carrier, peer)) => {
                    let Some(place) = Place::take(&open, self.most) else { continue };
                    let (listener, connection) = (self.clone(), connections.subscribe());
                    tokio::spawn(async move {
                        listener.attend(carrier, peer).await;
                        drop((place, connection));
                    });
                }
                Err(_) => tokio::time::sleep(NO_DESCRIPTOR).await,
            }
        }
        drop(source);
        connections.closed().await;
    }

    /// Serves a connection to its end. A client that breaks a protocol, or leaves, ends its own connection.
    async fn attend(mut self, carrier: Carrier, peer: Peer) {
        let mut leaving = self.leaving.clone();
        let begun = tokio::select! {
            begun = timeout(self.head_timeout, self.begin(carrier, peer)) => begun,
            // Nothing that was asked is lost.
            _ = leaving.wait_for(|leaving| *leaving) => return,
        };
        let Ok(Some((stream, peer, is_http2))) = begun else { return };
        let streamed = Arc::<Streamed>::default();
        let streams = Streams { patience: self.write_timeout, streamed: Arc::clone(&streamed) };
        let mut builder = auto::Builder::new(streams);
        builder
            .http1()
            .timer(Heads { came: stream.came(), time: self.head_timeout })
            .header_read_timeout(LONGEST_IDLE)
            .max_headers(MOST_HEADERS)
            .max_buf_size(LARGEST_HEAD);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(MOST_STREAMS)
            .max_header_list_size(u32::try_from(LARGEST_HEAD).unwrap_or(u32::MAX))
            .max_pending_accept_reset_streams(MOST_RESET)
            .max_local_error_reset_streams(MOST_FAULTY)
            .keep_alive_interval(ASKED_EVERY)
            .keep_alive_timeout(ASKED_EVERY);
        let builder = if is_http2 { builder.http2_only() } else { builder.http1_only() };
        let (bytes, time) = (self.largest, self.head_timeout);
        let bounds = Arc::new(Bounds { bytes, time, leaving: self.leaving.clone() });
        let service = TowerToHyperService::new(Served { routes: self.routes.clone(), peer, bounds });
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service).into_owned());
        let is_idle = tokio::select! {
            _ = connection.as_mut() => return,
            () = streamed.idle(self.head_timeout, LONGEST_IDLE), if is_http2 => true,
            () = async { drop(leaving.wait_for(|leaving| *leaving).await) } => false,
        };
        connection.as_mut().graceful_shutdown();
        if is_idle {
            // It ends when the client has acknowledged the first GOAWAY (RFC 9113, section 6.8), if the client does.
            tokio::select! {
                _ = connection => {}
                () = streamed.quiet(self.head_timeout) => {}
            }
        } else {
            let _ = connection.await;
        }
    }

    /// Makes the handshake, if there is one, and reads which HTTP the client speaks.
    async fn begin(&mut self, carrier: Carrier, mut peer: Peer) -> Option<(Stream, Peer, bool)> {
        let carrier = match (carrier, &self.certificates) {
            (Carrier::Tcp(stream), Some(certificates)) => encrypted(stream, certificates, &mut peer).await?,
            (carrier, _) => carrier,
        };
        let mut stream = Stream::new(carrier);
        let is_http2 = stream.is_http2().await.ok()?;
        Some((stream, peer, is_http2))
    }
}

async fn encrypted(
    stream: Patient<TcpStream>,
    certificates: &Certificates,
    peer: &mut Peer,
) -> Option<Carrier> {
    let stream = plain::refused(stream).await?;
    let acceptor = TlsAcceptor::from(certificates.current());
    let stream = acceptor.accept(stream).await.ok()?;
    let shown = stream.get_ref().1.peer_certificates().and_then(|all| all.first());
    peer.names = shown.map(certificate::names).unwrap_or_default().into();
    Some(Carrier::Tls(Box::new(stream)))
}

/// The routes, for the requests of a connection: each has its peer among its extensions, and its answer is watched.
#[derive(Clone)]
struct Served {
    routes: Router,
    peer: Peer,
    bounds: Arc<Bounds>,
}

impl Service<Request<Incoming>> for Served {
    type Response = Response;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Service::<Request<Whole>>::poll_ready(&mut self.routes, context)
    }

    fn call(&mut self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.peer.clone());
        Answering(self.routes.call(Whole::of(request, &self.bounds)))
    }
}

/// An answer that is being made.
struct Answering(RouteFuture<Infallible>);

impl Future for Answering {
    type Output = Result<Response, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Ok(answer) = ready!(Pin::new(&mut self.0).poll(context));
        Poll::Ready(Ok(watched(answer)))
    }
}

/// One of so many places for connections.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(open: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let place = Self(Arc::clone(open));
        // Counts alone, which order nothing: relaxed.
        (open.fetch_add(1, Ordering::Relaxed) < most).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
