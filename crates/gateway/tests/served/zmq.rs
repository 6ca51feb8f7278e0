//! Calls by messages of ZeroMQ: which connection gets an answer, and what one client can make the server keep.

use std::io::Read as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ropewalk_gateway::{Clients, Server, Settings};
use ropewalk_messaging::{Context, Frame, Socket, SocketType, option};
use serde_json::{Value, json};

use super::http::ask;
use super::{Seen, server, until};

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(30))
}

fn listening(change: impl FnOnce(&mut Settings)) -> (Server, Arc<Seen>) {
    server(|settings| {
        settings.zmq = Some(String::from("tcp://127.0.0.1:*"));
        change(settings);
    })
}

/// A DEALER.
struct Client {
    context: Context,
    socket: Socket,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.socket.close(Some(0));
        self.context.term(Duration::from_secs(30));
    }
}

impl Client {
    fn new(server: &Server, routing_id: &[u8]) -> Self {
        Self::with(server, &[(option::ROUTING_ID, routing_id)])
    }

    fn with(server: &Server, options: &[(i32, &[u8])]) -> Self {
        let context = Context::new();
        let socket = context.socket(SocketType::Dealer).expect("a socket");
        for (option, value) in options {
            socket.set(*option, value).expect("set");
        }
        socket.connect(server.zmq().expect("an endpoint")).expect("connected");
        Self { context, socket }
    }

    fn send(&self, parts: &[&[u8]]) {
        for (index, part) in parts.iter().enumerate() {
            self.socket.send(&Frame::copy_of(part), index + 1 < parts.len(), soon()).expect("sent");
        }
    }

    fn call(&self, id: &[u8], tool: &str, arguments: &Value) {
        self.send(&[id, json!({"tool": tool, "arguments": arguments}).to_string().as_bytes()]);
    }

    /// The id, the kind and the body of the next message.
    fn next(&self) -> (Vec<u8>, String, Value) {
        let [id, kind, body] =
            [(); 3].map(|()| self.socket.recv(soon()).expect("a message").bytes().to_vec());
        let body = serde_json::from_slice(&body).unwrap_or_default();
        (id, String::from_utf8(kind).expect("text"), body)
    }

    fn failure(&self) -> (String, String) {
        let (_, kind, body) = self.next();
        assert_eq!(kind, "error", "{body}");
        let text = |at| body.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        (text("/error/code"), text("/error/message"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_ends_its_calls_and_none_gets_its_answers() {
    let (server, seen) = listening(|_| {});
    let first = Client::new(&server, b"same");
    first.call(b"1", "wait", &json!({"of": "first"}));
    until(|| seen.begun.load(Ordering::SeqCst) == 1).await;
    drop(first);
    until(|| seen.left.load(Ordering::SeqCst) == 1).await;
    let second = Client::new(&server, b"same");
    seen.open.store(true, Ordering::SeqCst);
    second.call(b"1", "echo", &json!({"of": "second"}));
    assert_eq!(second.next().2, json!({"of": "second"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_the_name_of_another_gets_its_own_answers_and_cancels_its_own_calls() {
    let (server, seen) = listening(|_| {});
    let clients = [b"1", b"2"].map(|_| Client::new(&server, b"same"));
    for (number, client) in clients.iter().enumerate() {
        client.call(b"id", "wait", &json!({"of": number}));
        until(|| seen.begun.load(Ordering::SeqCst) == number + 1).await;
    }
    clients[1].send(&[b"id"]);
    until(|| seen.left.load(Ordering::SeqCst) == 1).await;
    seen.open.store(true, Ordering::SeqCst);
    assert_eq!(clients[0].next(), (b"id".to_vec(), String::from("result"), json!({"of": 0})));
    clients[1].call(b"id", "echo", &json!({"of": 1}));
    assert_eq!(clients[1].next().2, json!({"of": 1}));
    assert_eq!(seen.left.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_ends_no_connection_but_its_own_by_an_empty_message() {
    let (server, seen) = listening(|_| {});
    let client = Client::new(&server, b"name");
    client.call(b"1", "wait", &json!([1]));
    until(|| seen.begun.load(Ordering::SeqCst) == 1).await;
    client.send(&[b""]);
    // For an envelope without a message, which comes back.
    assert!(client.socket.recv(soon()).expect("a part").bytes().is_empty());
    assert_eq!(client.failure().0, "INVALID_ARGUMENT");
    seen.open.store(true, Ordering::SeqCst);
    assert_eq!(client.next().2, json!([1]));
}

/// A client that takes in little.
fn idle(server: &Server) -> Client {
    let (few, small, never) = (1_i32.to_ne_bytes(), 4096_i32.to_ne_bytes(), (-1_i32).to_ne_bytes());
    let options = [(option::RCVHWM, few), (option::RCVBUF, small), (option::RECONNECT_IVL, never)]
        .map(|(o, v)| (o, v.to_vec()));
    let options: Vec<(i32, &[u8])> = options.iter().map(|(option, value)| (*option, &**value)).collect();
    Client::with(server, &options)
}

/// Whether the server has dropped a client.
async fn has_dropped(server: &Server) -> bool {
    let said = ask(server, "GET", "/metrics", &[("authorization", "Bearer secret")], b"").await;
    String::from_utf8_lossy(&said.body).contains("ropewalk_clients_dropped_total{protocol=\"zmq\"} 1")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_write_timeout_holds_for_answers_that_a_client_does_not_take() {
    let (server, seen) = listening(|settings| settings.write_timeout = Duration::from_millis(50));
    let client = idle(&server);
    client.call(b"wait", "wait", &json!([]));
    until(|| seen.begun.load(Ordering::SeqCst) == 1).await;
    // More than the kernel and the socket keep, and less than may wait.
    let large = json!({"tool": "echo", "arguments": "x".repeat(1 << 20)}).to_string();
    for number in 0..40_u8 {
        // It may be cut off before it has sent all.
        let at_once = Some(Instant::now());
        if client.socket.send(&Frame::copy_of(&[number + 1]), true, at_once).is_ok() {
            let _ = client.socket.send(&Frame::copy_of(large.as_bytes()), false, soon());
        }
    }
    let end = Instant::now() + Duration::from_secs(60);
    while !has_dropped(&server).await {
        assert!(Instant::now() < end, "the server waits for a client that takes nothing");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Its calls end with it.
    until(|| seen.left.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_without_reading_is_dropped_and_others_are_served() {
    let (server, seen) = listening(|settings| settings.clients = Clients::of_tokens(["secret"]).into());
    let flood = idle(&server);
    let end = Instant::now() + Duration::from_secs(60);
    while !has_dropped(&server).await {
        assert!(Instant::now() < end, "the server keeps what the client does not take");
        for _ in 0..1000 {
            // The client may be cut off at any time, and connects again.
            let request = Frame::copy_of(br#"{"tool": "echo"}"#);
            let _ = flood.socket.send(&Frame::copy_of(b"1"), true, Some(Instant::now()));
            let _ = flood.socket.send(&request, false, Some(Instant::now()));
        }
    }
    let other = Client::new(&server, b"other");
    let request = json!({"tool": "echo", "metadata": {"authorization": "Bearer secret"}});
    other.send(&[b"1", request.to_string().as_bytes()]);
    assert_eq!(other.next().1, "result");
    assert_eq!(seen.begun.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_not_repeated_to_a_client_that_takes_nothing() {
    let (server, seen) = listening(|_| {});
    let few = 1_i32.to_ne_bytes();
    let client = Client::with(&server, &[(option::RCVHWM, &few), (option::RCVBUF, &4096_i32.to_ne_bytes())]);
    // Each is answered with the name of the field, which is long.
    let request = format!("{{\"{}\": 1}}", "x".repeat(3 << 20));
    let requests = 40;
    for _ in 0..requests {
        client.send(&[b"1", request.as_bytes()]);
    }
    // It has answered them all when it begins what comes behind them, and the client has taken nothing.
    client.call(b"2", "wait", &json!([]));
    until(|| seen.begun.load(Ordering::SeqCst) == 1).await;
    let mut codes = Vec::new();
    let mut bytes = 0;
    for _ in 0..requests {
        let (_, _, body) = client.next();
        bytes += body.to_string().len();
        codes.push(body.pointer("/error/code").and_then(Value::as_str).unwrap_or_default().to_owned());
    }
    assert_eq!(codes.first().map(String::as_str), Some("INVALID_ARGUMENT"));
    assert_eq!(codes.last().map(String::as_str), Some("RESOURCE_EXHAUSTED"));
    assert!(bytes < 90 << 20, "{bytes} bytes have waited");
}

/// Reads to the end of a connection that the server closes; the bytes that came.
fn rest_of(mut stream: TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
    let mut rest = Vec::new();
    if let Err(error) = stream.read_to_end(&mut rest) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "the server keeps it open");
    }
    rest
}

fn raw(server: &Server) -> TcpStream {
    let endpoint = server.zmq().expect("an endpoint");
    TcpStream::connect(endpoint.trim_start_matches("tcp://")).expect("a connection")
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_limit_are_closed() {
    let (server, _seen) = listening(|settings| settings.most_connections = 1);
    let first = Client::new(&server, b"first");
    first.call(b"1", "echo", &json!([1]));
    assert_eq!(first.next().2, json!([1]));
    assert!(rest_of(raw(&server)).is_empty(), "it was greeted");
    first.call(b"2", "echo", &json!([2]));
    assert_eq!(first.next().2, json!([2]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_greet_holds_a_place_for_the_head_timeout() {
    let (server, _seen) = listening(|settings| {
        settings.most_connections = 1;
        settings.head_timeout = Duration::from_millis(50);
    });
    // The server greets, and hears nothing.
    assert_eq!(rest_of(raw(&server)).first(), Some(&0xff));
    let client = Client::new(&server, b"next");
    client.call(b"1", "echo", &json!([1]));
    assert_eq!(client.next().2, json!([1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_leaves_refuses_calls_and_waits_for_none_of_a_client_that_has_left() {
    let (server, seen) = listening(|_| {});
    let server = Arc::new(server);
    let [stays, leaves] = [b"stays".as_slice(), b"leaves"].map(|name| Client::new(&server, name));
    stays.call(b"1", "wait", &json!([1]));
    leaves.call(b"1", "wait", &json!([2]));
    until(|| seen.begun.load(Ordering::SeqCst) == 2).await;
    let leaving = Arc::clone(&server);
    let drained = tokio::task::spawn_blocking(move || leaving.drain(Duration::from_secs(60)));
    loop {
        stays.call(b"2", "echo", &json!([3]));
        let (_, kind, body) = stays.next();
        if kind == "error" {
            assert_eq!(body.pointer("/error/code"), Some(&json!("UNAVAILABLE")));
            break;
        }
    }
    drop(leaves);
    until(|| seen.left.load(Ordering::SeqCst) == 1).await;
    assert!(!drained.is_finished());
    seen.open.store(true, Ordering::SeqCst);
    assert_eq!(stays.next().2, json!([1]));
    assert!(drained.await.expect("drained"));
    tokio::task::spawn_blocking(move || server.stop()).await.expect("stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_of_the_caller_s_is_the_call_s_in_protobuf_too() {
    let (server, _seen) = listening(|_| {});
    let client = Client::new(&server, b"name");
    // An ExecuteRequest: the tool, and an entry of the metadata.
    let mut request = b"\x0a\x04wait\x1a\x1a\x0a\x12x-ropewalk-timeout\x12\x040.05".to_vec();
    client.send(&[b"1", &request]);
    assert_eq!(client.failure().0, "DEADLINE_EXCEEDED");
    request.truncate(request.len() - 4);
    request.extend(b"soon");
    client.send(&[b"2", &request]);
    let (code, message) = client.failure();
    assert_eq!(code, "INVALID_ARGUMENT");
    assert_eq!(message, "x-ropewalk-timeout in the metadata must be a number of seconds");
}
