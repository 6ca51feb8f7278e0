//! What clients may see and call, and how often, by each protocol.

use std::time::{Duration, SystemTime};

use http::StatusCode;
use ropewalk_gateway::{Clients, Dashboard, Known, Rate, Server, digest_of};
use serde_json::{Value, json};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::floods::{PREFACE, frame};
use crate::http::{Said, ask};
use crate::{rpc, server};

const ANN: (&str, &str) = ("authorization", "Bearer ann");
const JSON: (&str, &str) = ("content-type", "application/json");
const MCP: [(&str, &str); 3] = [JSON, ("accept", "application/json, text/event-stream"), ANN];

fn known(name: &'static str) -> Known {
    Known { name: Some(name.into()), token: Some(digest_of(name.as_bytes())), ..Known::default() }
}

/// A server at which `ann` may call two tools.
fn restricted(change: impl FnOnce(&mut Known)) -> Server {
    let mut ann = Known { tools: Some(vec!["echo".into(), "cou*".into()]), ..known("ann") };
    change(&mut ann);
    let clients = Clients::new([ann, known("bob")], None);
    server(|settings| settings.clients = clients.into()).0
}

async fn mcp(server: &Server, method: &str, params: Value) -> Value {
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    ask(server, "POST", "/mcp", &MCP, message.into_bytes().leak()).await.json()
}

async fn connect(server: &Server, method: &str, message: &'static str) -> Said {
    let path = format!("/ropewalk.v1.Tools/{method}");
    ask(server, "POST", &path, &[JSON, ANN], message.as_bytes()).await
}

#[tokio::test]
async fn a_client_sees_what_it_may_call() {
    let server = restricted(|_| {});
    let names = |listed: &Value, place: &str| -> Vec<String> {
        let tools = listed.pointer(place).and_then(Value::as_array).cloned().unwrap_or_default();
        tools.iter().filter_map(|tool| Some(tool.get("name")?.as_str()?.to_owned())).collect()
    };
    let wanted = ["count", "echo"];
    assert_eq!(names(&ask(&server, "GET", "/v1/tools", &[ANN], b"").await.json(), "/tools"), wanted);
    assert_eq!(names(&connect(&server, "ListTools", "{}").await.json(), "/tools"), wanted);
    assert_eq!(names(&mcp(&server, "tools/list", json!({})).await, "/result/tools"), wanted);
    let document = ask(&server, "GET", "/openapi.json", &[ANN], b"").await.json();
    let paths: Vec<&String> = document["paths"].as_object().expect("paths").keys().collect();
    assert_eq!(paths, ["/v1/tools/count", "/v1/tools/echo"]);
    let all = ask(&server, "GET", "/openapi.json", &[("authorization", "Bearer bob")], b"").await.json();
    assert_eq!(all["paths"].as_object().map(|paths| paths.len()), Some(7));
    // A cursor that names a tool which the client may not call is none.
    let said = mcp(&server, "tools/list", json!({"cursor": "meta"})).await;
    assert_eq!(said["error"]["code"], -32602);
}

#[tokio::test]
async fn a_tool_that_a_client_may_not_call_is_as_one_that_is_not_there() {
    let server = restricted(|_| {});
    let mut said = Vec::new();
    for name in ["meta", "none"] {
        let http = ask(&server, "POST", &format!("/v1/tools/{name}"), &[ANN], b"{}").await;
        assert_eq!(http.status, StatusCode::FORBIDDEN);
        let message = if name == "meta" { r#"{"tool": "meta"}"# } else { r#"{"tool": "none"}"# };
        let over_connect = connect(&server, "Execute", message).await;
        assert_eq!(over_connect.json()["code"], "permission_denied");
        // Both ways of MCP: the short one, and the one by rmcp, which takes what has a token of progress.
        let mut texts = vec![http.json().to_string(), over_connect.json().to_string()];
        for meta in [json!({}), json!({"progressToken": 1})] {
            let params = json!({"name": name, "arguments": {}, "_meta": meta});
            let answer = mcp(&server, "tools/call", params).await;
            assert_eq!(answer["error"]["code"], -32602);
            texts.push(answer.to_string());
        }
        said.push(texts.iter().map(|text| text.replace(name, "NAME")).collect::<Vec<_>>());
    }
    assert_eq!(said[0], said[1]);
    assert!(said[0][0].contains("PERMISSION_DENIED"), "{said:?}");
    // What it may call it calls, and a name that fits and leads nowhere is not found.
    let said = ask(&server, "POST", "/v1/tools/echo", &[ANN], b"{}").await;
    assert_eq!(said.status, StatusCode::OK);
    let said = ask(&server, "POST", "/v1/tools/couch", &[ANN], b"{}").await;
    assert_eq!(said.status, StatusCode::NOT_FOUND);
    let answer = mcp(&server, "tools/call", json!({"name": "echo", "arguments": {}})).await;
    assert_eq!(answer["result"]["isError"], false);
}

#[tokio::test]
async fn a_model_is_a_tool_that_its_client_may_call() {
    let server = restricted(|ann| ann.rate = Rate::new(0.001, 1));
    let said = async |method: &str, message: String| {
        let path = format!("/inference.GRPCInferenceService/{method}");
        ask(&server, "POST", &path, &[JSON, ANN], message.into_bytes().leak()).await
    };
    for (method, field) in [("ModelReady", "name"), ("ModelMetadata", "name"), ("ModelInfer", "modelName")] {
        let mut texts = Vec::new();
        for name in ["meta", "none"] {
            let answer = said(method, json!({ field: name }).to_string()).await;
            assert_eq!(answer.json()["code"], "permission_denied", "{method}");
            texts.push(answer.json().to_string().replace(name, "NAME"));
        }
        assert_eq!(texts[0], texts[1]);
    }
    let ready = said("ModelReady", json!({"name": "echo"}).to_string()).await;
    assert_eq!(ready.status, StatusCode::OK);
    // A call counts for the client's rate, whatever becomes of it.
    let first = said("ModelInfer", json!({"modelName": "echo"}).to_string()).await;
    assert_ne!(first.json()["code"], "resource_exhausted");
    let second = said("ModelInfer", json!({"modelName": "echo"}).to_string()).await;
    assert_eq!(second.json()["code"], "resource_exhausted");
}

#[tokio::test]
async fn numbers_are_for_clients_that_see_all_tools_or_may_read_them() {
    let server = restricted(|_| {});
    let read = |server: Server, token: &'static str| async move {
        ask(&server, "GET", "/metrics", &[("authorization", token)], b"").await.status
    };
    assert_eq!(ask(&server, "GET", "/metrics", &[ANN], b"").await.status, StatusCode::FORBIDDEN);
    assert_eq!(read(server, "Bearer bob").await, StatusCode::OK);
    assert_eq!(read(restricted(|ann| ann.metrics = Some(true)), "Bearer ann").await, StatusCode::OK);
}

#[tokio::test]
async fn a_token_that_has_expired_is_refused_and_says_so() {
    let server = restricted(|ann| ann.expires = Some(SystemTime::now() - Duration::from_secs(1)));
    for path in ["/v1/tools", "/ropewalk.v1.Tools/ListTools", "/mcp"] {
        let said = ask(&server, "POST", path, &[ANN, JSON], b"{}").await;
        assert_eq!(said.status, StatusCode::UNAUTHORIZED);
        assert!(String::from_utf8_lossy(&said.body).contains("has expired"), "{:?}", said.body);
        let challenge = said.headers.get("www-authenticate").and_then(|one| one.to_str().ok());
        assert_eq!(challenge, Some("Bearer error=\"invalid_token\""));
    }
}

#[tokio::test]
async fn clients_are_exchanged_while_the_server_runs() {
    let server = restricted(|_| {});
    for (token, before) in [("Bearer ann", true), ("Bearer eve", false)] {
        let said = ask(&server, "GET", "/v1/tools", &[("authorization", token)], b"").await;
        assert_eq!(said.status == StatusCode::OK, before);
    }
    server.admit(Clients::of_tokens(["eve"]));
    for (token, after) in [("Bearer ann", false), ("Bearer eve", true)] {
        let said = ask(&server, "GET", "/v1/tools", &[("authorization", token)], b"").await;
        assert_eq!(said.status == StatusCode::OK, after);
    }
}

#[tokio::test]
async fn who_calls_too_often_is_refused_at_once_by_every_protocol() {
    let server = restricted(|ann| ann.rate = Rate::new(0.4, 1));
    assert_eq!(ask(&server, "POST", "/v1/tools/echo", &[ANN], b"{}").await.status, StatusCode::OK);
    let said = ask(&server, "POST", "/v1/tools/echo", &[ANN], b"{}").await;
    assert_eq!(said.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(said.json()["error"]["code"], "RESOURCE_EXHAUSTED");
    assert_eq!(said.headers.get("retry-after").and_then(|one| one.to_str().ok()), Some("3"));
    let said = connect(&server, "Execute", r#"{"tool": "echo"}"#).await;
    assert_eq!(said.json()["code"], "resource_exhausted");
    assert_eq!(said.headers.get("retry-after").and_then(|one| one.to_str().ok()), Some("3"));
    for meta in [json!({}), json!({"progressToken": 1})] {
        let params = json!({"name": "echo", "arguments": {}, "_meta": meta});
        let answer = mcp(&server, "tools/call", params).await;
        assert_eq!(answer["result"]["isError"], true);
        assert!(answer.to_string().contains("calls too often"), "{answer}");
    }
    // Another client is not held up, and the operator sees what was refused.
    let bob = ("authorization", "Bearer bob");
    assert_eq!(ask(&server, "POST", "/v1/tools/echo", &[bob], b"{}").await.status, StatusCode::OK);
    let numbers = ask(&server, "GET", "/metrics", &[bob], b"").await.body;
    let numbers = String::from_utf8_lossy(&numbers).into_owned();
    let shed = "ropewalk_tool_calls_shed_total{tool=\"echo\",cause=\"rate\"} 4";
    assert!(numbers.contains(shed), "{numbers}");
}

#[tokio::test]
async fn clients_of_grpc_read_when_to_try_again() {
    let clients = Clients::new([], Rate::new(0.4, 1));
    let (server, _) = server(|settings| settings.clients = clients.into());
    assert_eq!(rpc::call(&server, "Execute", &rpc::execute("echo", b"{}"), None).await.status(), "0");
    let said = rpc::call(&server, "Execute", &rpc::execute("echo", b"{}"), None).await;
    assert_eq!(said.status(), "8");
    let wait: u64 = said.trailer("grpc-retry-pushback-ms").parse().expect("a number");
    assert!(wait <= 2501, "{wait}");
}

#[tokio::test]
async fn a_client_that_still_sends_its_body_reads_why_it_is_refused() {
    let server = restricted(|_| {});
    let address = server.listening().http.expect("an address");
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    for (tool, token, status) in
        [("echo", "no", "401"), ("meta", "ann", "403"), ("none", "bob", "404"), ("echo", "bob", "200")]
    {
        let head = format!(
            "POST /v1/tools/{tool} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {token}\r\n\
             content-length: 40000\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.expect("sent");
        tokio::task::yield_now().await;
        for _ in 0..4 {
            stream.write_all(&[b' '; 10_000]).await.expect("sent");
            tokio::task::yield_now().await;
        }
        // The connection is of use for the next one.
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.expect("an answer");
        assert_eq!(start, format!("HTTP/1.1 {status}").as_bytes());
        let mut rest = Vec::new();
        while !rest.windows(4).any(|four| four == b"\r\n\r\n") {
            rest.push(stream.read_u8().await.expect("a head"));
        }
        let head = String::from_utf8_lossy(&rest).to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|left| left.split("\r\n").next());
        let length = length.and_then(|text| text.parse().ok()).expect("a length");
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.expect("a body");
    }
}

/// A request of HTTP/2 with a token and the first parts of a body that has not ended, 10,000 bytes each.
fn begun(path: &str, token: &str, media_type: &str, parts: usize) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).expect("short")], text.as_bytes()].concat();
    // `:method: POST` and `:scheme: http` of the static table, and literals with its names: `:path`, `authorization`,
    // `content-type`.
    let head = [
        vec![0x83, 0x86, 0x04],
        text(path),
        vec![0x0f, 0x08],
        text(&format!("Bearer {token}")),
        vec![0x0f, 0x10],
        text(media_type),
    ];
    [PREFACE, &frame(1, 4, 1, &head.concat()), &frame(0, 0, 1, &[b' '; 10_000]).repeat(parts)].concat()
}

/// The next frame that is none of the connection's own: its kind, its flags, its payload.
async fn next(stream: &mut TcpStream) -> (u8, u8, Vec<u8>) {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.expect("a frame");
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).expect("short")];
        stream.read_exact(&mut payload).await.expect("a payload");
        if !matches!(head[3], 4 | 8) {
            return (head[3], head[4], payload);
        }
    }
}

#[tokio::test]
async fn a_stream_that_still_sends_its_body_is_answered_and_not_reset() {
    let clients =
        || Clients::new([Known { tools: Some(vec!["echo".into(), "none".into()]), ..known("ann") }], None);
    let (server, _) = server(|settings| {
        settings.clients = clients().into();
        settings.largest = 30_000;
    });
    let address = server.listening().http.expect("an address");
    for (path, token, media_type, code) in [
        ("/v1/tools/echo", "no", "application/json", "UNAUTHENTICATED"),
        ("/v1/tools/meta", "ann", "application/json", "PERMISSION_DENIED"),
        ("/v1/tools/none", "ann", "application/json", "NOT_FOUND"),
        ("/v1/tools/echo", "ann", "text/html", "must be application/json"),
        ("/v1/tools/echo", "ann", "application/json", "larger than 30000 bytes"),
        ("/ropewalk.v1.Tools/Execute", "no", "application/json", "unauthenticated"),
    ] {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let parts = if code.starts_with("larger") { 4 } else { 1 };
        stream.write_all(&begun(path, token, media_type, parts)).await.expect("sent");
        assert_eq!(next(&mut stream).await.0, 1, "{path}: a head");
        let mut body = Vec::new();
        loop {
            let (kind, flags, part) = next(&mut stream).await;
            assert_eq!(kind, 0, "{path}: the answer");
            body.extend(part);
            if flags == 1 {
                break;
            }
        }
        assert!(String::from_utf8_lossy(&body).contains(code), "{}", String::from_utf8_lossy(&body));
        // The client goes on to send, and ends. Nothing else came before the answer to its ping.
        let rest = [frame(0, 0, 1, b" "), frame(0, 1, 1, b" "), frame(6, 0, 0, &[7; 8])].concat();
        stream.write_all(&rest).await.expect("sent");
        assert_eq!(next(&mut stream).await, (6, 1, vec![7; 8]), "{path}");
    }
}

#[tokio::test]
async fn a_body_without_end_does_not_hold_its_refused_request() {
    let clients = Clients::new([known("ann")], None);
    let (server, _) = server(|settings| {
        settings.clients = clients.into();
        settings.head_timeout = Duration::from_millis(500);
        settings.largest = 20_000;
    });
    let address = server.listening().http.expect("an address");
    // One that sends nothing more, and one that sends more than a request may have.
    for parts in [1, 5] {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let sent = begun("/v1/tools/echo", "no", "application/json", parts);
        stream.write_all(&sent).await.expect("sent");
        let came = async {
            let mut kinds = Vec::new();
            loop {
                let (kind, _, payload) = next(&mut stream).await;
                kinds.push(kind);
                if kind == 3 {
                    return (kinds, payload);
                }
            }
        };
        let came = tokio::time::timeout(Duration::from_secs(30), came).await.expect("a reset");
        // NO_ERROR, behind the answer.
        assert_eq!(came, (vec![1, 0, 3], vec![0; 4]));
    }
    // Over HTTP/1 the connection ends.
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let head = b"POST /v1/tools/echo HTTP/1.1\r\nhost: a\r\ncontent-length: 40000\r\n\r\n ";
    stream.write_all(head).await.expect("sent");
    let mut said = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut said)).await;
    read.expect("in time").expect("the end");
    assert!(said.starts_with(b"HTTP/1.1 401 "), "{}", String::from_utf8_lossy(&said));
}

#[tokio::test]
async fn one_client_has_a_share_of_the_watchers() {
    let admin = |name| Known { is_admin: true, ..known(name) };
    let clients = Clients::new([admin("ann"), admin("bob")], None);
    let (server, _) = server(|settings| {
        settings.clients = clients.into();
        settings.dashboard = Some(Dashboard::default());
    });
    let address = server.listening().http.expect("an address");
    let watch = async |name: &str| {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let head = format!(
            "GET /v1/status/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {name}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.expect("sent");
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.expect("an answer");
        (stream, String::from_utf8_lossy(&start).into_owned())
    };
    let mut held = Vec::new();
    for _ in 0..8 {
        let (stream, said) = watch("ann").await;
        assert_eq!(said, "HTTP/1.1 200");
        held.push(stream);
    }
    let refused = ask(&server, "GET", "/v1/status/events", &[ANN], b"").await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(String::from_utf8_lossy(&refused.body).contains("8 times"), "{:?}", refused.body);
    let (_other, said) = watch("bob").await;
    assert_eq!(said, "HTTP/1.1 200");
    // What leaves gives its place back.
    held.pop();
    let end = std::time::Instant::now() + Duration::from_secs(30);
    while watch("ann").await.1 != "HTTP/1.1 200" {
        assert!(std::time::Instant::now() < end, "the place is taken");
    }
}

#[tokio::test]
async fn what_a_proxy_passes_on_gives_no_orders_and_sees_no_status() {
    let (server, _) = server(|settings| settings.dashboard = Some(Dashboard::default()));
    let ordered = ask(&server, "POST", "/v1/drain", &[], b"").await;
    assert_eq!(ordered.json()["error"]["code"], "FAILED_PRECONDITION", "this program ends its server itself");
    let seen = ask(&server, "GET", "/v1/status", &[], b"").await;
    assert_eq!((seen.status, &seen.json()["may_administer"]), (StatusCode::OK, &json!(true)));
    for header in [
        ("host", "tools.example.org"),
        ("forwarded", "for=10.0.0.1"),
        ("x-forwarded-for", "10.0.0.1"),
        ("x-forwarded-proto", "https"),
        ("via", "1.1 proxy"),
    ] {
        for (method, path) in [
            ("POST", "/v1/drain"),
            ("POST", "/v1/pools/main/resize"),
            ("GET", "/v1/status"),
            ("GET", "/v1/status/events"),
        ] {
            let said = ask(&server, method, path, &[header], b"").await;
            assert_eq!(said.status, StatusCode::FORBIDDEN, "{header:?} {path}: {:?}", said.body);
        }
        let said = ask(&server, "POST", "/v1/tools/echo", &[header], b"{}").await;
        assert_eq!(said.status, StatusCode::OK, "{header:?}");
    }
    // A client is known by its token, whatever has passed its request on.
    let clients = Clients::new([Known { is_admin: true, ..known("ann") }], None);
    let (server, _) = crate::server(|settings| {
        settings.clients = clients.into();
        settings.dashboard = Some(Dashboard::default());
    });
    let said = ask(&server, "POST", "/v1/drain", &[ANN, ("x-forwarded-for", "10.0.0.1")], b"").await;
    assert_eq!(said.json()["error"]["code"], "FAILED_PRECONDITION");
}
