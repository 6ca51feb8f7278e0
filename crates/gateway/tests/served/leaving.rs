//! Streams that their clients keep for later, and a server that leaves.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::Response;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use ropewalk_gateway::Server;
use tokio::task::JoinHandle;

use crate::http::ask;
use crate::rpc::{call, execute, field};
use crate::{server, until};

/// Begins a call of gRPC with these messages, and leaves it open.
async fn open(server: &Server, path: &str, messages: &[Vec<u8>]) -> Response<Incoming> {
    let address = server.listening().grpc.expect("an address");
    let framed = messages.iter().map(|message| {
        let length = u32::try_from(message.len()).expect("short").to_be_bytes();
        Ok::<_, Infallible>(Frame::data(Bytes::from([&[0][..], &length, message].concat())))
    });
    let framed: Vec<_> = framed.collect();
    let body = StreamBody::new(stream::iter(framed).chain(stream::pending())).boxed_unsync();
    let request = http::Request::post(format!("http://{address}{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body);
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    client.request(request.expect("a request")).await.expect("an answer")
}

/// Begins a drain that may take longer than any test, and returns when the server has begun to leave.
async fn drain(server: &Arc<Server>) -> JoinHandle<bool> {
    let (leaving, address) = (Arc::clone(server), server.listening().http.expect("an address"));
    let drained = tokio::task::spawn_blocking(move || leaving.drain(Duration::from_secs(600)));
    until(|| std::net::TcpStream::connect(address).is_err()).await;
    drained
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_without_a_call_does_not_keep_a_server_that_leaves() {
    for (path, status) in [
        ("/inference.GRPCInferenceService/ModelStreamInfer", "14"),
        ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "0"),
        ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "0"),
    ] {
        let (server, _) = server(|_| {});
        let server = Arc::new(server);
        let answer = open(&server, path, &[]).await;
        let drained = drain(&server).await;
        until(|| drained.is_finished()).await;
        assert!(drained.await.expect("drained"), "{path}");
        let end = answer.into_body().collect().await.expect("an end");
        let trailers = end.trailers().expect("trailers");
        assert_eq!(trailers.get("grpc-status").expect("a status"), status, "{path}");
        tokio::task::spawn_blocking(move || server.stop()).await.expect("stopped");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_a_stream_has_begun_is_answered_before_its_end() {
    let (server, seen) = server(|_| {});
    let server = Arc::new(server);
    let path = "/inference.GRPCInferenceService/ModelStreamInfer";
    let answer = open(&server, path, &[field(1, b"wait")]).await;
    until(|| seen.begun.load(Ordering::SeqCst) == 1).await;
    let drained = drain(&server).await;
    assert!(!drained.is_finished());
    seen.open.store(true, Ordering::SeqCst);
    let end = answer.into_body().collect().await.expect("an end");
    assert_eq!(end.trailers().and_then(|all| all.get("grpc-status")).expect("a status"), "14");
    // The runner here echoes the arguments, which are no tensors, and the answer says so.
    let answered = end.to_bytes();
    let text = String::from_utf8_lossy(&answered);
    assert!(text.contains("something that is no answer"), "{text:?}");
    assert!(drained.await.expect("drained"));
    tokio::task::spawn_blocking(move || server.stop()).await.expect("stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_a_stop_breaks_off_says_so() {
    let (server, _) = server(|_| {});
    let server = Arc::new(server);
    // A request whose body never ends keeps the drain waiting.
    let address = server.listening().http.expect("an address");
    let mut held = std::net::TcpStream::connect(address).expect("connected");
    std::io::Write::write_all(
        &mut held,
        b"POST /v1/tools/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n",
    )
    .expect("written");
    let mut said = [0; 12];
    std::io::Read::read_exact(&mut held, &mut said).expect("the server waits for the body");
    assert_eq!(&said, b"HTTP/1.1 100");
    let stopping = Arc::clone(&server);
    let drained = drain(&server).await;
    tokio::task::spawn_blocking(move || stopping.stop()).await.expect("stopped");
    assert!(!drained.await.expect("no panic"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_a_drain_gives_up_reads_why() {
    let (server, seen) = server(|_| {});
    let server = Arc::new(server);
    let asked = |path: &'static str, headers: &'static [(&str, &str)], body: &'static [u8]| {
        let server = Arc::clone(&server);
        tokio::spawn(async move { ask(&server, "POST", path, headers, body).await })
    };
    let plain = asked("/v1/tools/wait", &[], b"{}");
    let items = asked("/v1/tools/count", &[], b"99999999999999");
    let mcp = asked(
        "/mcp",
        &[("content-type", "application/json"), ("accept", "application/json, text/event-stream")],
        br#"{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "wait", "arguments": {}}}"#,
    );
    let by_grpc = tokio::spawn({
        let server = Arc::clone(&server);
        async move { call(&server, "Execute", &execute("wait", b"{}"), None).await }
    });
    until(|| seen.begun.load(Ordering::SeqCst) == 4).await;
    let leaving = Arc::clone(&server);
    let drained = tokio::task::spawn_blocking(move || leaving.drain(Duration::from_millis(100)));
    let plain = plain.await.expect("an answer");
    assert_eq!(plain.status, 503);
    assert_eq!(
        plain.json(),
        serde_json::json!({"error": {"code": "UNAVAILABLE", "message": "the server is leaving"}})
    );
    let items = items.await.expect("items").body;
    assert!(items.starts_with(b"0\n1\n"));
    let last = items.split(|byte| *byte == b'\n').rev().nth(1).map(String::from_utf8_lossy).expect("a line");
    assert!(last.contains("UNAVAILABLE") && last.contains("the server is leaving"), "{last}");
    let by_grpc = by_grpc.await.expect("an answer");
    assert_eq!((by_grpc.status(), by_grpc.trailer("grpc-message")), ("14", "the server is leaving"));
    let mcp = mcp.await.expect("an answer").json().to_string();
    assert!(mcp.contains("the server is leaving"), "{mcp}");
    // All of it has ended, and none of it was answered as it had asked.
    assert!(!drained.await.expect("drained"));
    assert_eq!(seen.left.load(Ordering::SeqCst), 4);
    tokio::task::spawn_blocking(move || server.stop()).await.expect("stopped");
}
