use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ropewalk_gateway::{Clients, Server};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::{server, until};

pub(crate) struct Said {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
}

impl Said {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

pub(crate) fn client() -> Client<HttpConnector, Full<Bytes>> {
    Client::builder(TokioExecutor::new()).build_http()
}

pub(crate) async fn ask(
    server: &Server,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &'static [u8],
) -> Said {
    let address = server.listening().http.expect("an address");
    let mut request = Request::builder().method(method).uri(format!("http://{address}{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::from(body)).expect("a request");
    let response = client().request(request).await.expect("a response");
    let (parts, body) = response.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    Said { status: parts.status, headers: parts.headers, body }
}

#[tokio::test]
async fn a_call_is_answered_in_its_own_form() {
    let (server, _) = server(|_| {});
    for form in ["application/json", "application/msgpack", "application/octet-stream"] {
        let said = ask(&server, "POST", "/v1/tools/echo", &[("content-type", form)], b"[1]").await;
        assert_eq!((said.status, &said.body[..]), (StatusCode::OK, &b"[1]"[..]));
        assert_eq!(said.headers.get("content-type").and_then(|one| one.to_str().ok()), Some(form));
    }
    let said = ask(&server, "POST", "/v1/tools/echo", &[], b"{}").await;
    assert_eq!(said.headers.get("content-type").and_then(|one| one.to_str().ok()), Some("application/json"));
}

#[tokio::test]
async fn what_cannot_be_called_says_why() {
    let (server, _) = server(|settings| settings.largest = 100);
    let said = ask(&server, "POST", "/v1/tools/nothing", &[], b"{}").await;
    assert_eq!(said.status, StatusCode::NOT_FOUND);
    assert_eq!(
        said.json(),
        json!({"error": {"code": "NOT_FOUND", "message": "there is no tool named \"nothing\""}})
    );

    let said = ask(&server, "POST", "/v1/tools/echo", &[("content-type", "text/html")], b"{}").await;
    assert_eq!(said.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let said = ask(&server, "POST", "/v1/tools/echo", &[("x-ropewalk-timeout", "soon")], b"{}").await;
    assert_eq!(said.status, StatusCode::UNPROCESSABLE_ENTITY);
    let said = ask(&server, "POST", "/v1/tools/echo", &[], &[b' '; 101]).await;
    assert_eq!(said.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(said.json().to_string().contains("larger than 100 bytes"));
    let said = ask(&server, "GET", "/v1/tools/echo", &[], b"").await;
    assert_eq!(said.status, StatusCode::METHOD_NOT_ALLOWED);
    let said = ask(&server, "POST", "/nowhere", &[], b"{}").await;
    assert_eq!(
        (said.status, said.json().pointer("/error/code")),
        (StatusCode::NOT_FOUND, Some(&json!("NOT_FOUND")))
    );
}

#[tokio::test]
async fn failures_have_their_status() {
    let (server, _) = server(|_| {});
    let said = ask(&server, "POST", "/v1/tools/fail", &[], b"\"full\"").await;
    assert_eq!(said.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(said.headers.get("retry-after").and_then(|one| one.to_str().ok()), Some("2"));
    let said = ask(&server, "POST", "/v1/tools/fail", &[], b"\"fields\"").await;
    assert_eq!(said.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        said.json().pointer("/error/violations"),
        Some(&json!([{"field": "a[1]", "description": "is no number"}]))
    );
    let said = ask(&server, "POST", "/v1/tools/fail", &[], b"{}").await;
    assert_eq!(said.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(said.json().pointer("/error/code"), Some(&json!("UNKNOWN")));
}

#[tokio::test]
async fn headers_for_the_tool_come_as_metadata() {
    let (server, _) = server(|_| {});
    let headers = [("x-ropewalk-meta-user", "ann"), ("authorization", "Bearer secret")];
    let said = ask(&server, "POST", "/v1/tools/meta", &headers, b"{}").await;
    assert_eq!(said.json(), json!({"user": "ann"}));
}

#[tokio::test]
async fn streams_come_as_lines_and_as_events() {
    let (server, _) = server(|_| {});
    let said = ask(&server, "POST", "/v1/tools/count", &[], b"3").await;
    assert_eq!(&said.body[..], b"0\n1\n2\n");
    assert_eq!(said.headers.get("content-type").and_then(|one| one.to_str().ok()), Some("application/jsonl"));
    let said = ask(&server, "POST", "/v1/tools/count", &[("accept", "text/event-stream")], b"2").await;
    assert_eq!(&said.body[..], b"event: item\ndata: 0\n\nevent: item\ndata: 1\n\n");
    // A failure in the midst is the last word.
    let said = ask(&server, "POST", "/v1/tools/count", &[], b"1001").await;
    let last = said.body.split(|byte| *byte == b'\n').rev().nth(1).map(<[u8]>::to_vec).expect("a line");
    let last: Value = serde_json::from_slice(&last).expect("JSON");
    assert_eq!(last, json!({"error": {"code": "UNKNOWN", "message": "ValueError: enough"}}));
}

#[tokio::test]
async fn health_and_readiness_are_two_things() {
    let (server, seen) = server(|_| {});
    assert_eq!(ask(&server, "GET", "/healthz", &[], b"").await.status, StatusCode::OK);
    let said = ask(&server, "GET", "/readyz", &[], b"").await;
    assert_eq!(
        (said.status, &said.body[..]),
        (StatusCode::SERVICE_UNAVAILABLE, &b"the workers are coming up\n"[..])
    );
    seen.open.store(true, Ordering::SeqCst);
    assert_eq!(ask(&server, "GET", "/readyz", &[], b"").await.status, StatusCode::OK);
}

#[tokio::test]
async fn tools_are_listed_and_described() {
    let (server, _) = server(|_| {});
    let tools = ask(&server, "GET", "/v1/tools", &[], b"").await.json();
    assert_eq!(tools.pointer("/tools/1/name"), Some(&json!("count")));
    assert_eq!(tools.pointer("/tools/0/input_schema"), Some(&json!({"type": "object"})));
    let document = ask(&server, "GET", "/openapi.json", &[], b"").await.json();
    assert_eq!(document.pointer("/openapi"), Some(&json!("3.1.0")));
    assert_eq!(document.pointer("/paths/~1v1~1tools~1echo/post/operationId"), Some(&json!("echo")));
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_call() {
    let (server, seen) = server(|_| {});
    let address = server.listening().http.expect("an address");
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let request = b"POST /v1/tools/wait HTTP/1.1\r\nhost: it\r\ncontent-length: 2\r\n\r\n{}";
    stream.write_all(request).await.expect("sent");
    until(|| seen.begun.load(Ordering::SeqCst) == 1).await;
    drop(stream);
    until(|| seen.left.load(Ordering::SeqCst) == 1).await;
    // So does one that leaves in the midst of a stream.
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let request = b"POST /v1/tools/count HTTP/1.1\r\nhost: it\r\ncontent-length: 7\r\n\r\n1000000";
    stream.write_all(request).await.expect("sent");
    let mut some = [0; 100];
    let _ = stream.read(&mut some).await.expect("items");
    drop(stream);
    until(|| seen.left.load(Ordering::SeqCst) == 2).await;
}

#[tokio::test]
async fn a_deadline_of_the_caller_s_is_the_call_s() {
    let (server, _) = server(|_| {});
    let said = ask(&server, "POST", "/v1/tools/wait", &[("x-ropewalk-timeout", "0.05")], b"{}").await;
    assert_eq!(said.status, StatusCode::GATEWAY_TIMEOUT);
}

#[tokio::test]
async fn a_head_that_does_not_come_ends_its_connection() {
    let (server, _) = server(|settings| settings.head_timeout = Duration::from_millis(50));
    let address = server.listening().http.expect("an address");
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(b"POST /v1/tools/echo HTTP/1.1\r\nhost:").await.expect("sent");
    let mut rest = Vec::new();
    // The server closes; it may say why first.
    let _ =
        tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut rest)).await.expect("the end");
}

#[tokio::test]
async fn a_connection_that_has_asked_is_kept_until_a_head_is_late() {
    let patience = Duration::from_millis(50);
    let (server, _) = server(|settings| settings.head_timeout = patience);
    let address = server.listening().http.expect("an address");
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    for _ in 0..3 {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: it\r\n\r\n").await.expect("sent");
        let mut said = Vec::new();
        while !said.ends_with(b"\r\n\r\nok\n") {
            let count = stream.read_buf(&mut said).await.expect("an answer");
            assert_ne!(count, 0, "it was closed after {}", String::from_utf8_lossy(&said));
        }
        tokio::time::sleep(patience * 4).await;
    }
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost:").await.expect("sent");
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut rest)).await;
    let _ = ended.expect("the end");
}

#[tokio::test]
async fn a_body_that_does_not_come_ends_its_request() {
    let (server, _) = server(|settings| settings.head_timeout = Duration::from_millis(50));
    let mut stream =
        TcpStream::connect(server.listening().http.expect("an address")).await.expect("a stream");
    let head = b"POST /v1/tools/echo HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n{";
    stream.write_all(head).await.expect("written");
    let mut said = Vec::new();
    stream.read_to_end(&mut said).await.expect("the end");
    assert!(said.starts_with(b"HTTP/1.1 408 "), "{}", String::from_utf8_lossy(&said));
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed() {
    let (server, _) = server(|settings| settings.most_connections = 1);
    let address = server.listening().http.expect("an address");
    let mut first = TcpStream::connect(address).await.expect("a connection");
    first.write_all(b"GET /healthz HTTP/1.1\r\nhost: it\r\n\r\n").await.expect("sent");
    let mut some = [0; 12];
    first.read_exact(&mut some).await.expect("an answer");
    assert_eq!(&some, b"HTTP/1.1 200");
    let mut second = TcpStream::connect(address).await.expect("a connection");
    let mut rest = Vec::new();
    assert!(!matches!(second.read_to_end(&mut rest).await, Ok(1..)), "it was served");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_leaves_answers_what_has_begun() {
    let (server, seen) = server(|_| {});
    let server = std::sync::Arc::new(server);
    let asking = tokio::spawn({
        let server = std::sync::Arc::clone(&server);
        async move { ask(&server, "POST", "/v1/tools/wait", &[], b"[7]").await }
    });
    until(|| seen.begun.load(Ordering::SeqCst) == 1).await;
    let leaving = std::sync::Arc::clone(&server);
    let drained = tokio::task::spawn_blocking(move || leaving.drain(Duration::from_secs(30)));
    let address = server.listening().http.expect("an address");
    until(|| std::net::TcpStream::connect(address).is_err()).await;
    assert!(!drained.is_finished());
    seen.open.store(true, Ordering::SeqCst);
    assert_eq!(&asking.await.expect("an answer").body[..], b"[7]");
    assert!(drained.await.expect("drained"));
    tokio::task::spawn_blocking(move || server.stop()).await.expect("stopped");
}

#[tokio::test]
async fn a_stream_that_fails_before_its_first_item_has_the_failure_s_status() {
    let (server, _) = server(|_| {});
    let said = ask(&server, "POST", "/v1/tools/broken", &[("accept", "text/event-stream")], b"{}").await;
    assert_eq!(said.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(said.json().pointer("/error/message"), Some(&json!("ValueError: enough")));
}

#[tokio::test]
async fn items_are_json_and_bytes_are_base64() {
    let (server, _) = server(|_| {});
    let count = "/v1/tools/count";
    let said = ask(&server, "POST", count, &[("content-type", "application/octet-stream")], b"2").await;
    assert_eq!(&said.body[..], b"\"MA==\"\n\"MQ==\"\n");
    let said = ask(&server, "POST", count, &[("content-type", "application/msgpack")], b"2").await;
    assert_eq!(said.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test]
async fn tokens_guard_everything_but_health() {
    let (server, _) = server(|settings| settings.clients = Clients::of_tokens(["secret"]).into());
    for path in ["/v1/tools", "/openapi.json"] {
        let said = ask(&server, "GET", path, &[], b"").await;
        assert_eq!(said.status, StatusCode::UNAUTHORIZED);
        assert_eq!(said.headers.get("www-authenticate").and_then(|one| one.to_str().ok()), Some("Bearer"));
        let said = ask(&server, "GET", path, &[("authorization", "Bearer secret")], b"").await;
        assert_eq!(said.status, StatusCode::OK);
    }
    assert_eq!(ask(&server, "GET", "/healthz", &[], b"").await.status, StatusCode::OK);
    assert_eq!(ask(&server, "GET", "/readyz", &[], b"").await.status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn a_page_of_another_site_is_refused() {
    let (server, _) = server(|_| {});
    let address = server.listening().http.expect("an address");
    let own = format!("http://{address}");
    for (origin, status) in [(&*own, StatusCode::OK), ("http://example.org", StatusCode::FORBIDDEN)] {
        let said = ask(&server, "POST", "/v1/tools/echo", &[("origin", origin)], b"{}").await;
        assert_eq!(said.status, status);
    }
}

#[tokio::test]
async fn a_refusal_of_a_page_says_what_to_do() {
    let (local, _) = server(|_| {});
    let (known, _) = server(|settings| settings.clients = Clients::of_tokens(["secret"]).into());
    let text = |said: Said| {
        assert_eq!(said.status, StatusCode::FORBIDDEN);
        said.json().pointer("/error/message").and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    // A front end of its own, whether callers have tokens or not.
    for server in [&local, &known] {
        let head = [("origin", "http://localhost:3000"), ("authorization", "Bearer secret")];
        let said = text(ask(server, "POST", "/v1/tools/echo", &head, b"{}").await);
        assert!(said.contains("another site") && said.contains("under one host"), "{said}");
    }
    // A proxy that keeps the host, for a page of that host and for a client that is no browser.
    let host = ("host", "tools.example.org");
    let page = [host, ("origin", "https://tools.example.org")];
    for (method, head) in [("POST", &page[..]), ("GET", &page[..1])] {
        let path = if method == "GET" { "/v1/tools" } else { "/v1/tools/echo" };
        let said = text(ask(&local, method, path, head, b"{}").await);
        assert!(said.contains("proxy") && said.contains("--token-file"), "{said}");
        let head = [head, &[("authorization", "Bearer secret")]].concat();
        assert_eq!(ask(&known, method, path, &head, b"{}").await.status, StatusCode::OK);
    }
}
