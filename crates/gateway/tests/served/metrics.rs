use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::StatusCode;
use ropewalk_gateway::{Clients, Gravity, Lines, Logging, Server};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::http::ask;
use crate::rpc;
use crate::{server, until};

/// The value of the line that begins with this and a space.
async fn number(server: &Server, line: &str) -> Option<f64> {
    let said = ask(server, "GET", "/metrics", &[], b"").await;
    assert_eq!(said.status, StatusCode::OK);
    let text = String::from_utf8(said.body.to_vec()).expect("text");
    let value = text.lines().find_map(|one| one.strip_prefix(line)?.strip_prefix(' ')).map(str::parse);
    value.transpose().expect("a number")
}

/// The same, when it has this value: calls are counted when everything of them is over.
async fn comes(server: &Server, line: &str, wanted: f64) {
    for _ in 0..3000 {
        if number(server, line).await == Some(wanted) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    panic!("{line} is {:?} and not {wanted}", number(server, line).await);
}

fn calls(tool: &str, protocol: &str, code: &str) -> String {
    format!(
        "ropewalk_tool_calls_total{{tool=\"{tool}\",protocol=\"{protocol}\",rpc_response_status_code=\"{code}\"}}"
    )
}

#[tokio::test]
async fn calls_are_counted_by_tool_and_status() {
    let (server, _) = server(|_| {});
    for _ in 0..3 {
        ask(&server, "POST", "/v1/tools/echo", &[], b"{}").await;
    }
    ask(&server, "POST", "/v1/tools/fail", &[], b"\"full\"").await;
    ask(&server, "POST", "/v1/tools/fail", &[], b"\"else\"").await;
    ask(&server, "POST", "/v1/tools/echo", &[("content-type", "text/html")], b"{}").await;
    comes(&server, &calls("echo", "http", "OK"), 3.0).await;
    comes(&server, &calls("echo", "http", "INVALID_ARGUMENT"), 1.0).await;
    comes(&server, &calls("fail", "http", "UNKNOWN"), 1.0).await;
    comes(&server, "ropewalk_tool_calls_shed_total{tool=\"fail\",cause=\"queue_full\"}", 1.0).await;
    comes(&server, "ropewalk_tool_calls_shed_total{tool=\"fail\",cause=\"deadline\"}", 0.0).await;
    comes(&server, "ropewalk_tool_call_duration_seconds_count{tool=\"echo\",protocol=\"http\"}", 4.0).await;
    comes(&server, "ropewalk_tool_calls_active{tool=\"echo\"}", 0.0).await;
    comes(&server, "ropewalk_shared_memory_usage_bytes", 5.0).await;
    comes(&server, "ropewalk_server_ready", 0.0).await;
}

#[tokio::test]
async fn names_that_clients_make_up_are_one_label() {
    let (server, _) = server(|_| {});
    for number in 0..20 {
        let said = ask(&server, "POST", &format!("/v1/tools/made-up-{number}"), &[], b"{}").await;
        assert_eq!(said.status, StatusCode::NOT_FOUND);
        ask(&server, "GET", &format!("/made/up/{number}"), &[], b"").await;
    }
    comes(&server, &calls("_unknown", "http", "NOT_FOUND"), 20.0).await;
    let request = |route: &str| {
        format!(
            "http_server_request_duration_seconds_count{{http_request_method=\"{}\",http_route=\"{route}\",\
             http_response_status_code=\"404\"}}",
            if route == "other" { "GET" } else { "POST" }
        )
    };
    comes(&server, &request("other"), 20.0).await;
    comes(&server, &request("/v1/tools/{name}"), 20.0).await;
    let text = ask(&server, "GET", "/metrics", &[], b"").await.body;
    assert!(!String::from_utf8_lossy(&text).contains("made-up"));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_in_flight_are_counted_until_the_client_leaves() {
    let (server, seen) = server(|_| {});
    let address = server.listening().http.expect("an address");
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let head = b"POST /v1/tools/wait HTTP/1.1\r\nhost: it\r\ncontent-length: 2\r\n\r\n{}";
    stream.write_all(head).await.expect("sent");
    until(|| seen.begun.load(Ordering::SeqCst) == 1).await;
    comes(&server, "ropewalk_tool_calls_active{tool=\"wait\"}", 1.0).await;
    drop(stream);
    comes(&server, "ropewalk_tool_calls_active{tool=\"wait\"}", 0.0).await;
    comes(&server, &calls("wait", "http", "CANCELLED"), 1.0).await;
    // This one is the only request that is answered now.
    comes(&server, "http_server_active_requests", 1.0).await;
}

#[tokio::test]
async fn items_of_streams_are_counted() {
    let (server, _) = server(|_| {});
    ask(&server, "POST", "/v1/tools/count", &[], b"5").await;
    comes(&server, "ropewalk_tool_stream_items_total{tool=\"count\"}", 5.0).await;
    comes(&server, &calls("count", "http", "OK"), 1.0).await;
    ask(&server, "POST", "/v1/tools/broken", &[], b"{}").await;
    comes(&server, &calls("broken", "http", "UNKNOWN"), 1.0).await;
}

#[tokio::test]
async fn the_format_is_the_one_that_the_client_asks_for() {
    let (server, _) = server(|_| {});
    let type_of = |said: &crate::http::Said| {
        said.headers.get("content-type").and_then(|one| one.to_str().ok()).map(str::to_owned)
    };
    let plain = ask(&server, "GET", "/metrics", &[], b"").await;
    assert_eq!(type_of(&plain).as_deref(), Some("text/plain; version=0.0.4; charset=utf-8"));
    let open = ask(&server, "GET", "/metrics", &[("accept", "application/openmetrics-text")], b"").await;
    let wanted = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!((type_of(&open).as_deref(), open.body.ends_with(b"# EOF\n")), (Some(wanted), true));
}

#[tokio::test]
async fn numbers_are_shown_to_callers_with_a_token() {
    let (server, _) = server(|settings| settings.clients = Clients::of_tokens(["secret"]).into());
    assert_eq!(ask(&server, "GET", "/metrics", &[], b"").await.status, StatusCode::UNAUTHORIZED);
    let said = ask(&server, "GET", "/metrics", &[("authorization", "Bearer secret")], b"").await;
    let text = String::from_utf8_lossy(&said.body).into_owned();
    assert!(text.contains("http_response_status_code=\"401\"") && !text.contains("secret"), "{text}");
}

#[tokio::test]
async fn a_client_s_trace_is_passed_on_though_nothing_is_exported() {
    let (server, _) = server(|_| {});
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers = [("traceparent", parent), ("tracestate", "a=b"), ("x-ropewalk-meta-user", "u")];
    let said = ask(&server, "POST", "/v1/tools/meta", &headers, b"{}").await;
    assert_eq!(said.json(), json!({"traceparent": parent, "tracestate": "a=b", "user": "u"}));
    assert!(ask(&server, "POST", "/v1/tools/meta", &[], b"{}").await.body.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_calls_tell_no_secrets() {
    let lines = Arc::new(Lines::new(Logging::Calls));
    let (server, _) = server(|settings| {
        settings.lines = Arc::clone(&lines);
        settings.clients = Clients::of_tokens(["token-secret"]).into();
    });
    let headers = [
        ("authorization", "Bearer token-secret"),
        ("x-ropewalk-meta-key", "meta-secret"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ];
    ask(&server, "POST", "/v1/tools/echo", &headers, b"{\"a\": \"argument-secret\"}").await;
    ask(&server, "POST", "/v1/tools/fail", &headers, b"\"argument-secret\"").await;
    let mut came = Vec::new();
    while came.len() < 2 {
        let lines = Arc::clone(&lines);
        let some = tokio::task::spawn_blocking(move || lines.next()).await.expect("a thread");
        came.extend(some.expect("records").calls);
    }
    let tools: Vec<_> = came.iter().map(|line| (&*line.tool, line.status, line.gravity)).collect();
    assert_eq!(tools, [("echo", "OK", Gravity::Info), ("fail", "UNKNOWN", Gravity::Error)]);
    let trace = came[0].trace.as_ref().expect("a trace");
    assert_eq!(trace.0, "0af7651916cd43dd8448eb211c80319c");
    assert!(!format!("{came:?}").contains("secret"), "{came:?}");
    lines.close();
}

#[tokio::test]
async fn protocols_are_told_apart() {
    let (server, _) = server(|_| {});
    rpc::call(&server, "Execute", &rpc::execute("echo", b"{}"), None).await;
    rpc::call(&server, "Execute", &rpc::execute("count", b"3"), None).await;
    rpc::call(&server, "ExecuteStream", &rpc::execute("count", b"3"), None).await;
    rpc::call(&server, "Execute", &rpc::execute("nothing", b"{}"), None).await;
    let message = br#"{"tool": "echo", "arguments": {"json": "e30="}}"#;
    let said =
        ask(&server, "POST", "/ropewalk.v1.Tools/Execute", &[("content-type", "application/json")], message);
    assert_eq!(said.await.status, StatusCode::OK);
    comes(&server, &calls("echo", "grpc", "OK"), 1.0).await;
    comes(&server, &calls("count", "grpc", "FAILED_PRECONDITION"), 1.0).await;
    comes(&server, &calls("count", "grpc", "OK"), 1.0).await;
    comes(&server, "ropewalk_tool_stream_items_total{tool=\"count\"}", 3.0).await;
    comes(&server, &calls("_unknown", "grpc", "NOT_FOUND"), 1.0).await;
    comes(&server, &calls("echo", "connect", "OK"), 1.0).await;
}

#[tokio::test]
async fn calls_of_agents_are_counted_and_pass_on_their_trace() {
    let (server, _) = server(|_| {});
    let headers = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let message =
        br#"{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "meta", "arguments": {},
        "_meta": {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}}"#;
    let said = ask(&server, "POST", "/mcp", &headers, message).await;
    assert!(String::from_utf8_lossy(&said.body).contains(parent), "{:?}", said.body);
    let unknown = br#"{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "nothing"}}"#;
    ask(&server, "POST", "/mcp", &headers, unknown).await;
    comes(&server, &calls("meta", "mcp", "OK"), 1.0).await;
    comes(&server, &calls("_unknown", "mcp", "NOT_FOUND"), 1.0).await;
}
