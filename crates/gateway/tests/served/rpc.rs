use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use ropewalk_gateway::{Clients, Server};
use serde_json::{Value, json};

use crate::http::ask;
use crate::{server, until};

/// Messages and trailers of a call by gRPC.
pub(crate) struct Said {
    http: u16,
    messages: Vec<Bytes>,
    trailers: http::HeaderMap,
}

impl Said {
    pub(crate) fn status(&self) -> &str {
        self.trailer("grpc-status")
    }

    pub(crate) fn trailer(&self, name: &str) -> &str {
        self.trailers.get(name).and_then(|one| one.to_str().ok()).unwrap_or_default()
    }
}

/// A field of protobuf: its number, and bytes.
pub(crate) fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut made = vec![number << 3 | 2, u8::try_from(bytes.len()).expect("short")];
    made.extend_from_slice(bytes);
    made
}

/// `ExecuteRequest` with JSON.
pub(crate) fn execute(tool: &str, json: &[u8]) -> Vec<u8> {
    [field(1, tool.as_bytes()), field(2, &field(1, json))].concat()
}

pub(crate) async fn call(server: &Server, method: &str, message: &[u8], timeout: Option<&str>) -> Said {
    let address = server.listening().grpc.expect("an address");
    let mut headers = vec![("content-type", "application/grpc"), ("te", "trailers")];
    headers.extend(timeout.map(|timeout| ("grpc-timeout", timeout)));
    post(format!("http://{address}/ropewalk.v1.Tools/{method}"), &headers, message).await
}

async fn post(url: String, headers: &[(&str, &str)], message: &[u8]) -> Said {
    let mut body = BytesMut::new();
    body.put_u8(0);
    body.put_u32(u32::try_from(message.len()).expect("short"));
    body.put_slice(message);
    let mut request = Request::post(url).version(http::Version::HTTP_2);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let response = client.request(request.body(Full::from(body.freeze())).expect("a request")).await;
    let (parts, body) = response.expect("a response").into_parts();
    let collected = body.collect().await.expect("a body");
    // A failure without messages may have its status in the head.
    let trailers = collected.trailers().cloned().unwrap_or(parts.headers);
    let mut bytes = collected.to_bytes();
    let mut messages = Vec::new();
    while bytes.first() == Some(&0) && bytes.len() >= 5 {
        let head = bytes.split_to(5);
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        messages.push(bytes.split_to(usize::try_from(length).expect("short")));
    }
    Said { http: parts.status.as_u16(), messages, trailers }
}

#[tokio::test]
async fn a_call_by_grpc() {
    let (server, _) = server(|_| {});
    let said = call(&server, "Execute", &execute("echo", b"{\"a\": 1}"), None).await;
    assert_eq!(said.status(), "0");
    assert_eq!(said.messages, [field(1, &field(1, b"{\"a\": 1}"))]);
}

#[tokio::test]
async fn a_stream_by_grpc() {
    let (server, _) = server(|_| {});
    let said = call(&server, "ExecuteStream", &execute("count", b"2"), None).await;
    assert_eq!(said.status(), "0");
    assert_eq!(said.messages, [b"0", b"1"].map(|item| field(1, &field(1, item))));
}

#[tokio::test]
async fn failures_by_grpc() {
    let (server, _) = server(|_| {});
    let status = async |method, tool, arguments: &'static [u8]| {
        call(&server, method, &execute(tool, arguments), None).await.status().to_owned()
    };
    assert_eq!(status("Execute", "nothing", b"{}").await, "5");
    assert_eq!(status("Execute", "fail", b"{}").await, "2");
    assert_eq!(status("Execute", "fail", b"\"fields\"").await, "3");
    assert_eq!(status("Execute", "fail", b"\"full\"").await, "8");
    assert_eq!(status("Execute", "count", b"{}").await, "9");
    assert_eq!(status("ExecuteStream", "echo", b"{}").await, "9");
    assert_eq!(call(&server, "Execute", b"\xff\xff\xff", None).await.status(), "3");
    assert_eq!(status("Nothing", "echo", b"{}").await, "12");
    let said = call(&server, "Execute", &execute("fail", b"\"fields\""), None).await;
    assert!(said.trailers.contains_key("grpc-status-details-bin"));
}

#[tokio::test]
async fn what_is_wrong_fits_into_the_head_that_a_client_of_grpc_reads() {
    let (server, _) = server(|_| {});
    let said = call(&server, "Execute", &execute("fail", b"\"many\""), None).await;
    let details = said.trailer("grpc-status-details-bin").len();
    assert!((1000..6000).contains(&details), "{details}");
}

#[tokio::test]
async fn the_deadline_of_grpc_is_the_call_s() {
    let (server, _) = server(|_| {});
    let said = call(&server, "Execute", &execute("wait", b"{}"), Some("50m")).await;
    assert_eq!(said.status(), "4");
}

#[tokio::test]
async fn a_reset_stream_ends_its_call() {
    let (server, seen) = server(|_| {});
    let message = execute("wait", b"{}");
    let asking = call(&server, "Execute", &message, None);
    // Dropped in the midst.
    let _ = tokio::time::timeout(Duration::from_millis(200), asking).await;
    until(|| seen.begun.load(Ordering::SeqCst) >= 1).await;
    until(|| seen.left.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn connect_speaks_json() {
    let (server, _) = server(|_| {});
    let address = server.listening().http.expect("an address");
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let request = Request::post(format!("http://{address}/ropewalk.v1.Tools/ListTools"))
        .header("content-type", "application/json")
        .body(Full::from("{}"))
        .expect("a request");
    let response = client.request(request).await.expect("a response");
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    let tools: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(tools.pointer("/tools/1/name"), Some(&json!("count")));
    assert_eq!(tools.pointer("/tools/1/streams"), Some(&json!(true)));
}

/// What a service says of gRPC's own health service.
async fn health(server: &Server, service: &str) -> Said {
    let address = server.listening().grpc.expect("an address");
    let url = format!("http://{address}/grpc.health.v1.Health/Check");
    post(url, &[("content-type", "application/grpc"), ("te", "trailers")], &field(1, service.as_bytes()))
        .await
}

#[tokio::test]
async fn health_by_grpc_is_the_readiness() {
    let (server, seen) = server(|_| {});
    for service in ["", "ropewalk.v1.Tools"] {
        seen.open.store(false, Ordering::SeqCst);
        assert_eq!(health(&server, service).await.messages, [&b"\x08\x02"[..]], "not serving");
        seen.open.store(true, Ordering::SeqCst);
        assert_eq!(health(&server, service).await.messages, [&b"\x08\x01"[..]], "serving");
    }
    assert_eq!(health(&server, "other").await.status(), "5");
}

#[tokio::test]
async fn a_message_beyond_the_limit_is_refused() {
    let (server, _) = server(|settings| settings.largest = 100);
    let said = call(&server, "Execute", &execute("echo", &[b' '; 90]), None).await;
    assert_eq!(said.status(), "8");
}

#[tokio::test]
async fn a_caller_without_a_token_is_not_served() {
    let (server, _) = server(|settings| settings.clients = Clients::of_tokens(["secret"]).into());
    let address = server.listening().grpc.expect("an address");
    let url = format!("http://{address}/ropewalk.v1.Tools/Execute");
    let grpc = [("content-type", "application/grpc"), ("te", "trailers")];
    // It reads why, in gRPC's own words.
    for (shown, why) in [(None, "needs the header"), (Some("Bearer other"), "does not know the token")] {
        let mut headers = grpc.to_vec();
        headers.extend(shown.map(|shown| ("authorization", shown)));
        let refused = post(url.clone(), &headers, &execute("echo", b"{}")).await;
        assert_eq!((refused.http, refused.status()), (200, "16"));
        assert!(refused.trailer("grpc-message").contains(why), "{}", refused.trailer("grpc-message"));
    }
    let said =
        ask(&server, "POST", "/ropewalk.v1.Tools/Execute", &[("content-type", "application/json")], b"{}");
    let said = said.await;
    assert_eq!((said.status, &said.json()["code"]), (StatusCode::UNAUTHORIZED, &json!("unauthenticated")));
    let known = [grpc[0], grpc[1], ("authorization", "Bearer secret")];
    assert_eq!(post(url, &known, &execute("echo", b"{}")).await.status(), "0");
}
