//! `ceiling axum` and `ceiling tonic`: servers that answer what they are sent, on two threads. They print their port,
//! and end with their standard input.

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::{Request, Response, Status};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    println!("{}", listener.local_addr().expect("an address").port());
    tokio::spawn(async {
        let mut rest = Vec::new();
        let _ = tokio::io::stdin().read_to_end(&mut rest).await;
        std::process::exit(0);
    });
    let routes = match std::env::args().nth(1).as_deref() {
        Some("axum") => Router::new().route("/v1/tools/echo", post(async |body: Bytes| body)),
        Some("tonic") => tonic::service::Routes::new(Echo).into_axum_router(),
        _ => panic!("axum or tonic"),
    };
    axum::serve(NoDelay(listener), routes).await.expect("a server");
}

/// Small answers go at once, as those of every other contender.
struct NoDelay(TcpListener);

impl axum::serve::Listener for NoDelay {
    type Io = tokio::net::TcpStream;
    type Addr = std::net::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            if let Ok((stream, address)) = self.0.accept().await {
                let _ = stream.set_nodelay(true);
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

/// What the service of tools is sent and answers, as far as an echo needs it.
#[derive(Clone, PartialEq, prost::Message)]
struct Execute {
    #[prost(string, tag = "1")]
    tool: String,
    #[prost(message, optional, tag = "2")]
    arguments: Option<Value>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Value {
    #[prost(bytes = "bytes", tag = "1")]
    json: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Executed {
    #[prost(message, optional, tag = "1")]
    result: Option<Value>,
}

/// `ropewalk.v1.Tools` with its `Execute` alone, as tonic's code generator writes services.
#[derive(Clone)]
struct Echo;

impl tonic::server::NamedService for Echo {
    const NAME: &'static str = "ropewalk.v1.Tools";
}

impl tonic::server::UnaryService<Execute> for Echo {
    type Response = Executed;
    type Future = std::future::Ready<Result<Response<Executed>, Status>>;

    fn call(&mut self, request: Request<Execute>) -> Self::Future {
        std::future::ready(Ok(Response::new(Executed { result: request.into_inner().arguments })))
    }
}

impl Service<http::Request<tonic::body::Body>> for Echo {
    type Response = http::Response<tonic::body::Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(tonic_prost::ProstCodec::<Executed, Execute>::default());
            Ok(grpc.unary(Echo, request).await)
        })
    }
}
