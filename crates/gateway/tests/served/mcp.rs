use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use ropewalk_gateway::{Clients, Server, Settings};
use serde_json::{Value, json};

use crate::{Seen, server, until};

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";

/// What a request has beside its message.
#[derive(Clone, Copy)]
struct Beside<'a> {
    headers: &'a [(&'a str, &'a str)],
}

const PLAIN: Beside<'static> = Beside { headers: &[] };

async fn sent(server: &Server, beside: Beside<'_>, body: impl Into<Bytes>) -> Response<Bytes> {
    let address = server.listening().http.expect("an address");
    let mut request = Request::post(format!("http://{address}/mcp"));
    let usual = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
    let given = |name: &str| beside.headers.iter().any(|(own, _)| *own == name);
    for (name, value) in usual.iter().filter(|(name, _)| !given(name)).chain(beside.headers) {
        request = request.header(*name, *value);
    }
    let client = Client::builder(TokioExecutor::new()).build_http();
    let request = request.body(Full::new(body.into())).expect("a request");
    let (parts, body) = client.request(request).await.expect("a response").into_parts();
    Response::from_parts(parts, body.collect().await.expect("a body").to_bytes())
}

async fn asked(server: &Server, beside: Beside<'_>, body: impl Into<Bytes>) -> (StatusCode, Value) {
    let response = sent(server, beside, body).await;
    let status = response.status();
    let body = response.into_body();
    (status, serde_json::from_slice(&body).unwrap_or_else(|_| json!(String::from_utf8_lossy(&body))))
}

fn request(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
}

/// A request of the revision without sessions.
async fn modern(server: &Server, method: &str, mut params: Value, name: Option<&str>) -> (StatusCode, Value) {
    let own = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let meta = params.as_object_mut().expect("an object").entry("_meta").or_insert_with(|| json!({}));
    meta.as_object_mut().expect("an object").extend(own.as_object().expect("an object").clone());
    let mut headers = vec![("mcp-protocol-version", MODERN), ("mcp-method", method)];
    headers.extend(name.map(|name| ("mcp-name", name)));
    asked(server, Beside { headers: &headers }, request(method, &params).to_string()).await
}

/// A request of the revision before.
async fn legacy(server: &Server, method: &str, params: &Value) -> (StatusCode, Value) {
    let beside = Beside { headers: &[("mcp-protocol-version", LEGACY)] };
    asked(server, beside, request(method, params).to_string()).await
}

fn initialize(version: &str) -> Value {
    let params =
        json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    request("initialize", &params)
}

#[tokio::test]
async fn both_revisions_list_the_same_tools() {
    let (server, _) = server(|_| {});
    let (status, new) = modern(&server, "tools/list", json!({}), None).await;
    assert_eq!(status, StatusCode::OK, "{new}");
    let (status, old) = legacy(&server, "tools/list", &json!({})).await;
    assert_eq!((status, &old["result"]["tools"]), (StatusCode::OK, &new["result"]["tools"]));
    let tools = new["result"]["tools"].as_array().expect("tools");
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["broken", "count", "echo", "fail", "meta", "steps", "wait"]);
    let echo = &tools[2];
    assert_eq!((&echo["description"], &echo["inputSchema"]), (&json!("echos."), &json!({"type": "object"})));
    assert_eq!(echo["annotations"], json!({"readOnlyHint": true, "idempotentHint": true}));
    assert_eq!(tools[3].get("annotations"), None);
    assert_eq!(tools[1]["outputSchema"]["properties"]["result"]["type"], "array");
}

#[tokio::test]
async fn a_client_finds_out_what_the_server_speaks() {
    let (server, _) = server(|_| {});
    let (status, said) = modern(&server, "server/discover", json!({}), None).await;
    assert_eq!(status, StatusCode::OK, "{said}");
    assert_eq!(said["result"]["supportedVersions"], json!(["2025-06-18", LEGACY, MODERN]));
    assert_eq!(
        said["result"]["capabilities"],
        json!({"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}})
    );

    let response = sent(&server, PLAIN, initialize(LEGACY).to_string()).await;
    assert!(response.headers().contains_key("mcp-session-id"));
    let (_, said) = asked(&server, PLAIN, initialize("1999-01-01").to_string()).await;
    assert_eq!(said["result"]["protocolVersion"], LEGACY);
    assert_eq!(said["result"]["serverInfo"]["name"], "ropewalk");
}

/// Begins a call that becomes a task, and the drain of its server; gives what the drain will say.
async fn drain_with_a_task(server: &Arc<Server>, within: Duration) -> tokio::task::JoinHandle<bool> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
    });
    let params = json!({"name": "wait", "arguments": {}, "_meta": meta});
    let headers = [("mcp-protocol-version", MODERN), ("mcp-method", "tools/call"), ("mcp-name", "wait")];
    let call = request("tools/call", &params).to_string();
    let (status, said) = asked(server, Beside { headers: &headers }, call).await;
    assert_eq!((status, &said["result"]["resultType"]), (StatusCode::OK, &json!("task")), "{said}");
    let (leaving, address) = (Arc::clone(server), server.listening().http.expect("an address"));
    let drained = tokio::task::spawn_blocking(move || leaving.drain(within));
    until(|| std::net::TcpStream::connect(address).is_err()).await;
    drained
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_leaves_waits_for_its_tasks() {
    let (server, seen) = server(|_| {});
    let server = Arc::new(server);
    let drained = drain_with_a_task(&server, Duration::from_secs(60)).await;
    // No request is open, and no connection.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!drained.is_finished());
    seen.open.store(true, Ordering::SeqCst);
    assert!(drained.await.expect("drained"));
    assert_eq!(seen.left.load(Ordering::SeqCst), 0);
    tokio::task::spawn_blocking(move || server.stop()).await.expect("stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_gives_a_task_up_says_so() {
    let (server, seen) = server(|_| {});
    let server = Arc::new(server);
    let drained = drain_with_a_task(&server, Duration::from_millis(50)).await;
    assert!(!drained.await.expect("drained"));
    until(|| seen.left.load(Ordering::SeqCst) == 1).await;
    tokio::task::spawn_blocking(move || server.stop()).await.expect("stopped");
}

#[tokio::test]
async fn a_result_is_structured_and_text() {
    let (server, _) = server(|_| {});
    let params = json!({"name": "echo", "arguments": {"a": [1, "ü"]}});
    let wanted = json!({"content": [{"type": "text", "text": "{\"a\":[1,\"ü\"]}"}],
        "structuredContent": {"a": [1, "ü"]}, "isError": false});
    let (status, said) = legacy(&server, "tools/call", &params).await;
    assert_eq!((status, &said), (StatusCode::OK, &json!({"jsonrpc": "2.0", "id": 7, "result": wanted})));

    let (status, said) = modern(&server, "tools/call", params, Some("echo")).await;
    let mut wanted = wanted;
    wanted["resultType"] = json!("complete");
    assert_eq!((status, &said), (StatusCode::OK, &json!({"jsonrpc": "2.0", "id": 7, "result": wanted})));
}

/// Calls that `direct.rs` takes are answered as rmcp answers them; a charset sends them rmcp's way.
#[tokio::test]
async fn the_short_way_gives_what_the_long_one_gives() {
    let (server, _) = server(|_| {});
    for params in [
        json!({"name": "echo", "arguments": {"a": {"b": [1.5, null, "x\n"]}}}),
        json!({"name": "echo"}),
        json!({"name": "fail", "arguments": {}}),
        json!({"name": "count"}),
        json!({"name": "meta", "_meta": {"traceparent": "00-1", "number": 5}}),
        json!({"name": "nothing"}),
        json!({"name": "echo", "arguments": [1]}),
        json!({"name": "echo", "extra": 1}),
        json!({}),
    ] {
        let body = request("tools/call", &params).to_string();
        let version = ("mcp-protocol-version", LEGACY);
        let short = asked(&server, Beside { headers: &[version] }, body.clone()).await;
        let charset = ("content-type", "application/json; charset=utf-8");
        let long = asked(&server, Beside { headers: &[version, charset] }, body).await;
        assert_eq!(short, long, "{params}");
    }
}

#[tokio::test]
async fn numbers_are_as_exact_as_the_client_wrote_them() {
    let (server, _) = server(|_| {});
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call",
        "params":{"name":"echo","arguments":{"n":36893488147419103232}}}"#;
    for media_type in ["application/json", "application/json;charset=utf-8"] {
        let beside = Beside { headers: &[("content-type", media_type)] };
        let response = sent(&server, beside, body).await;
        let said = response.into_body();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.contains(r#"{\"n\":36893488147419103232}"#), "{said}");
    }
}

#[tokio::test]
async fn a_stream_is_one_result() {
    let (server, _) = server(|_| {});
    let (_, said) = legacy(&server, "tools/call", &json!({"name": "count"})).await;
    assert_eq!(said["result"]["structuredContent"], json!({"result": [0, 1, 2]}));
    let (_, said) = legacy(&server, "tools/call", &json!({"name": "broken"})).await;
    assert_eq!(
        (&said["result"]["isError"], &said["result"]["content"][0]["text"]),
        (&json!(true), &json!("ValueError: enough"))
    );
}

#[tokio::test]
async fn failures_of_tools_are_for_the_model_and_others_for_the_client() {
    let (server, _) = server(|_| {});
    let (status, said) = legacy(&server, "tools/call", &json!({"name": "fail", "arguments": {}})).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(said["result"]["isError"], true);
    assert_eq!(said["result"]["content"][0]["text"], "ZeroDivisionError: division by zero");
    assert_eq!(said["result"].get("structuredContent"), None);

    let (_, said) = legacy(&server, "tools/call", &json!({"name": "wrong", "arguments": {}})).await;
    assert_eq!(said["error"]["code"], -32602);
    assert_eq!(said["error"]["message"], "there is no tool named \"wrong\"");
    let (_, said) = legacy(&server, "tools/call", &json!({"name": "echo", "arguments": 5})).await;
    assert_eq!(said["error"]["code"], -32602);
    let (_, said) = legacy(&server, "tools/list", &json!({"cursor": "wrong"})).await;
    assert_eq!(said["error"]["code"], -32602);
    let (status, said) = modern(&server, "resources/fly", json!({}), None).await;
    assert_eq!((status, &said["error"]["code"]), (StatusCode::NOT_FOUND, &json!(-32601)));
}

#[tokio::test]
async fn what_is_no_message_is_refused_with_its_reason() {
    let (server, _) = server(|settings| settings.largest = 400);
    for (body, status, code) in [
        ("{", 400, -32700),
        ("[]", 400, -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, 400, -32600),
        (r#"{"id":1,"method":"ping"}"#, 400, -32600),
        ("\u{0}", 400, -32700),
        (&"x".repeat(500), 413, -32600),
    ] {
        let (found, said) = asked(&server, PLAIN, body.to_owned()).await;
        assert_eq!((found.as_u16(), &said["error"]["code"]), (status, &json!(code)), "{body}: {said}");
    }
    let (_, said) = asked(&server, PLAIN, "x".repeat(500)).await;
    assert!(said["error"]["message"].as_str().expect("a text").contains("400 bytes"), "{said}");
    // A tool gets what it is sent, however deep; only what is as large as a request stops it.
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{{"a":{}{}}}}}}}"#,
        "[".repeat(140),
        "]".repeat(140)
    );
    let response = sent(&server, PLAIN, deep).await;
    let said = response.into_body();
    assert!(said.ends_with(br#""isError":false}}"#), "{said:?}");
}

#[tokio::test]
async fn headers_that_do_not_fit_are_refused() {
    let (server, _) = server(|_| {});
    let ping = request("ping", &json!({})).to_string();
    for (header, status) in [
        (("mcp-protocol-version", "1999-01-01"), 400),
        (("accept", "text/html"), 406),
        (("content-type", "text/plain"), 415),
        (("origin", "https://evil.example"), 403),
    ] {
        let (found, said) = asked(&server, Beside { headers: &[header] }, ping.clone()).await;
        assert_eq!(found.as_u16(), status, "{header:?}: {said}");
    }
    // The name in the header is another one.
    let (status, said) = modern(&server, "tools/call", json!({"name": "echo"}), Some("fail")).await;
    assert_eq!((status, &said["error"]["code"]), (StatusCode::BAD_REQUEST, &json!(-32020)), "{said}");
    // The revision in the message is one that the server does not speak.
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2030-01-01",
        "io.modelcontextprotocol/clientCapabilities": {}});
    let headers =
        [("mcp-protocol-version", "2030-01-01"), ("mcp-method", "tools/call"), ("mcp-name", "echo")];
    let body = request("tools/call", &json!({"name": "echo", "_meta": meta})).to_string();
    let (status, said) = asked(&server, Beside { headers: &headers }, body).await;
    assert_eq!((status, &said["error"]["code"]), (StatusCode::BAD_REQUEST, &json!(-32022)), "{said}");

    let address = server.listening().http.expect("an address");
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    for method in ["GET", "DELETE"] {
        let request = Request::builder().method(method).uri(format!("http://{address}/mcp"));
        let request = request.header("accept", "text/event-stream").body(Full::default()).expect("a request");
        let response = client.request(request).await.expect("a response");
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    }
}

#[tokio::test]
async fn callers_without_a_token_are_not_served() {
    let (server, _) = server(|settings| settings.clients = Clients::of_tokens(["secret"]).into());
    let ping = request("ping", &json!({})).to_string();
    assert_eq!(asked(&server, PLAIN, ping.clone()).await.0, StatusCode::UNAUTHORIZED);
    let beside = Beside { headers: &[("authorization", "Bearer secret")] };
    assert_eq!(asked(&server, beside, ping).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_call_whose_client_leaves_is_given_up() {
    let (server, seen) = server(|_| {});
    for charset in ["", ";charset=utf-8"] {
        let media_type = format!("application/json{charset}");
        let headers = [("content-type", media_type.as_str())];
        let body = request("tools/call", &json!({"name": "wait"})).to_string();
        let (begun, left) = (seen.begun.load(Ordering::SeqCst), seen.left.load(Ordering::SeqCst));
        {
            let call = asked(&server, Beside { headers: &headers }, body);
            tokio::select! {
                _ = call => panic!("it waits"),
                () = until(|| seen.begun.load(Ordering::SeqCst) > begun) => {}
            }
        }
        until(|| seen.left.load(Ordering::SeqCst) > left).await;
    }
}

#[tokio::test]
async fn a_session_cancels_its_calls_and_no_others() {
    let (server, seen) = server(|_| {});
    let server = Arc::new(server);
    let mut sessions = Vec::new();
    for _ in 0..2 {
        let response = sent(&server, PLAIN, initialize(LEGACY).to_string()).await;
        let session = response.headers().get("mcp-session-id").expect("a session");
        sessions.push(session.to_str().expect("a text").to_owned());
    }
    assert_ne!(sessions[0], sessions[1]);
    for (number, charset) in ["", ";charset=utf-8"].into_iter().enumerate() {
        let call = tokio::spawn({
            let (server, session) = (Arc::clone(&server), sessions[0].clone());
            async move {
                let media_type = format!("application/json{charset}");
                let headers = [("mcp-session-id", session.as_str()), ("content-type", &media_type)];
                let body = request("tools/call", &json!({"name": "wait"})).to_string();
                asked(&server, Beside { headers: &headers }, body).await
            }
        });
        until(|| seen.begun.load(Ordering::SeqCst) > number).await;
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
        for (session, left) in [(&sessions[1], number), (&sessions[0], number + 1)] {
            let headers = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", LEGACY)];
            let (status, _) = asked(&server, Beside { headers: &headers }, cancel.to_string()).await;
            assert_eq!(status, StatusCode::ACCEPTED);
            until(|| seen.left.load(Ordering::SeqCst) == left).await;
        }
        let (_, said) = call.await.expect("it ends");
        assert_eq!((&said["id"], &said["error"]["message"]), (&json!(7), &json!("the call was cancelled")));
    }
}

#[tokio::test]
async fn progress_comes_before_the_result() {
    let (server, _) = server(|_| {});
    let params = json!({"name": "steps", "_meta": {"progressToken": "p"}});
    let beside = Beside { headers: &[("mcp-protocol-version", LEGACY)] };
    let response = sent(&server, beside, request("tools/call", &params).to_string()).await;
    assert_eq!(response.headers().get("content-type").expect("a type"), "text/event-stream");
    let body = response.into_body();
    let body = String::from_utf8_lossy(&body).into_owned();
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    let messages: Vec<Value> = data.filter_map(|line| serde_json::from_str(line).ok()).collect();
    let (last, progress) = messages.split_last().expect("messages");
    assert_eq!(last["result"]["isError"], false, "{body}");
    assert!(!progress.is_empty(), "{body}");
    for one in progress {
        assert_eq!(
            (&one["method"], &one["params"]["progressToken"]),
            (&json!("notifications/progress"), &json!("p"))
        );
    }
    let end = &progress.last().expect("one")["params"];
    assert_eq!(
        (&end["progress"], &end["total"], &end["message"]),
        (&json!(3.0), &json!(3.0), &json!("step 3"))
    );
}

#[tokio::test]
async fn a_long_list_comes_in_pages() {
    let names: Vec<String> = (0..250).map(|number| format!("tool{number:03}")).collect();
    let tools = names.iter().map(|name| crate::tool(name, false)).collect();
    let (server, _) = crate::server_of(tools, |_| {});
    let (mut found, mut cursor, mut pages) = (Vec::new(), Value::Null, 0);
    loop {
        let params = if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) };
        let (_, said) = legacy(&server, "tools/list", &params).await;
        let tools = said["result"]["tools"].as_array().expect("tools").clone();
        found.extend(tools.into_iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()));
        pages += 1;
        cursor = said["result"]["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!((found, pages), (names, 3));
}

/// A client at a server's descriptors.
struct Session {
    server: Arc<Server>,
    seen: Arc<Seen>,
    client: UnixStream,
    served: std::thread::JoinHandle<()>,
}

impl Session {
    fn begin(largest: usize) -> Self {
        Self::begin_with(|settings| settings.largest = largest)
    }

    fn begin_with(change: impl FnOnce(&mut Settings)) -> Self {
        let (server, seen) = server(|settings| {
            settings.http = None;
            settings.grpc = None;
            change(settings);
        });
        let server = Arc::new(server);
        let (client, other) = UnixStream::pair().expect("sockets");
        client.set_read_timeout(Some(Duration::from_secs(30))).expect("a limit");
        let served = std::thread::spawn({
            let server = Arc::clone(&server);
            move || {
                let input = other.try_clone().expect("a descriptor");
                server.attend(input.into(), other.into()).expect("it is served");
            }
        });
        Self { server, seen, client, served }
    }

    fn say(&mut self, line: &str) {
        self.client.write_all(line.as_bytes()).expect("it is read");
        self.client.write_all(b"\n").expect("it is read");
    }

    /// The next message.
    fn hear(&mut self) -> Value {
        let mut line = Vec::new();
        let mut byte = [0];
        while self.client.read(&mut byte).expect("it answers") == 1 && byte != [b'\n'] {
            line.push(byte[0]);
        }
        serde_json::from_slice(&line).expect("JSON")
    }

    fn open(&mut self) {
        self.say(&initialize(LEGACY).to_string());
        assert_eq!(self.hear()["result"]["protocolVersion"], LEGACY);
        self.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    }

    fn call(&mut self, id: u32, name: &str) {
        self.say(
            &json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name}})
                .to_string(),
        );
    }

    /// Waits until something holds.
    fn until(&self, what: impl Fn(&Seen) -> bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(until(|| what(&self.seen)));
    }

    fn end(self) {
        drop(self.client);
        self.served.join().expect("it ends");
    }
}

#[test]
fn a_client_of_standard_input_is_served() {
    let mut session = Session::begin(1 << 20);
    session.open();
    session.call(1, "echo");
    let said = session.hear();
    assert_eq!((&said["id"], &said["result"]["structuredContent"]), (&json!(1), &json!({})));
    session.end();
}

#[test]
fn what_is_no_message_is_answered_on_standard_output_too() {
    let mut session = Session::begin(300);
    session.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    session.open();
    for (line, code) in [("{", -32700), ("[]", -32600), (&"x".repeat(70_000), -32600), ("{}", -32600)] {
        session.say(line);
        let said = session.hear();
        assert_eq!((&said["id"], &said["error"]["code"]), (&Value::Null, &json!(code)), "{said}");
    }
    session.call(2, "echo");
    assert_eq!(session.hear()["id"], 2);
    session.end();
}

#[test]
fn a_client_cancels_by_a_notification() {
    let mut session = Session::begin(1 << 20);
    session.open();
    session.call(1, "wait");
    session.until(|seen| seen.begun.load(Ordering::SeqCst) == 1);
    session.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    session.until(|seen| seen.left.load(Ordering::SeqCst) == 1);
    session.call(2, "echo");
    assert_eq!(session.hear()["id"], 2);
    session.end();
}

#[test]
fn the_end_of_the_input_waits_for_calls() {
    let mut session = Session::begin(1 << 20);
    session.open();
    session.call(1, "wait");
    session.until(|seen| seen.begun.load(Ordering::SeqCst) == 1);
    session.client.shutdown(Shutdown::Write).expect("a socket");
    session.seen.open.store(true, Ordering::SeqCst);
    assert_eq!(session.hear()["id"], 1);
    session.served.join().expect("it ends");
}

#[test]
fn a_client_that_is_gone_has_cancelled_its_calls() {
    let mut session = Session::begin(1 << 20);
    session.open();
    session.call(1, "wait");
    session.until(|seen| seen.begun.load(Ordering::SeqCst) == 1);
    let Session { server, seen, client, served } = session;
    drop(client);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(until(|| seen.left.load(Ordering::SeqCst) == 1));
    served.join().expect("it ends");
    drop(server);
}

#[test]
fn a_client_that_does_not_read_is_gone() {
    let mut session = Session::begin_with(|settings| {
        settings.largest = 8 << 20;
        settings.write_timeout = Duration::from_millis(300);
    });
    session.open();
    session.call(1, "wait");
    session.until(|seen| seen.begun.load(Ordering::SeqCst) == 1);
    // Its answer is larger than what the buffers of a socket hold.
    let params = json!({"name": "echo", "arguments": {"a": "x".repeat(4 << 20)}});
    session.say(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}).to_string());
    session.until(|seen| seen.left.load(Ordering::SeqCst) == 1);
    let Session { server, client, served, .. } = session;
    let end = Instant::now() + Duration::from_secs(30);
    while !served.is_finished() {
        assert!(Instant::now() < end, "the session goes on");
        std::thread::sleep(Duration::from_millis(1));
    }
    served.join().expect("it ends");
    drop((server, client));
}

#[test]
fn a_server_that_leaves_answers_what_has_begun() {
    let mut session = Session::begin(1 << 20);
    session.open();
    session.call(1, "wait");
    session.until(|seen| seen.begun.load(Ordering::SeqCst) == 1);
    let draining = std::thread::spawn({
        let server = Arc::clone(&session.server);
        move || server.drain(Duration::from_secs(30))
    });
    session.seen.open.store(true, Ordering::SeqCst);
    assert_eq!(session.hear()["id"], 1);
    assert!(draining.join().expect("it ends"));
    session.served.join().expect("it ends");
}
