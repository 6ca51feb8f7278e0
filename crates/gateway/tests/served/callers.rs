//! What clients may see and call, and how often, by each protocol.

use std::time::{Duration, SystemTime};

use http::StatusCode;
use ropewalk_gateway::{Clients, Known, Rate, Server, digest_of};
use serde_json::{Value, json};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

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
