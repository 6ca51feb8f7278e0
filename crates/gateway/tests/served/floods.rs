//! Requests that want too much: heads, frames, depths.

use std::time::Duration;

use http::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::http::ask;
use crate::unread::request;
use crate::{rpc, server};

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Writes until the server has enough or all is written, and returns what it says until the end of the connection.
async fn said(address: std::net::SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let stream = TcpStream::connect(address).await.expect("a connection");
    let (mut from, mut to) = stream.into_split();
    let bytes = bytes.to_vec();
    let writing = tokio::spawn(async move {
        let _ = to.write_all(&bytes).await;
        to
    });
    let mut said = Vec::new();
    let reading = from.read_to_end(&mut said);
    let _ = tokio::time::timeout(Duration::from_secs(30), reading).await.expect("the end");
    drop(writing.await);
    said
}

/// A frame of HTTP/2.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut made = vec![length[1], length[2], length[3], kind, flags];
    made.extend(stream.to_be_bytes());
    made.extend_from_slice(payload);
    made
}

#[tokio::test]
async fn heads_that_are_too_large_are_refused() {
    let (server, _) = server(|_| {});
    let address = server.listening().http.expect("an address");
    let many: String = (0..200).map(|number| format!("x-{number}: 1\r\n")).collect();
    let long = format!("x: {}\r\n", "a".repeat(100_000));
    for head in [many, long] {
        let request = format!("GET /healthz HTTP/1.1\r\nhost: a\r\n{head}\r\n");
        let answer = said(address, request.as_bytes()).await;
        assert!(answer.starts_with(b"HTTP/1.1 431 "), "{}", String::from_utf8_lossy(&answer));
    }
    // And over HTTP/2, by a client that knows the limit or does not.
    let value = "a".repeat(40_000);
    let client: hyper_util::client::legacy::Client<_, http_body_util::Full<bytes::Bytes>> =
        hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
            .http2_only(true)
            .build_http();
    let request = http::Request::get(format!("http://{address}/healthz")).header("x", value);
    let response = client.request(request.body(Default::default()).expect("a request")).await;
    assert!(response.is_err() || response.is_ok_and(|one| one.status() == 431));
    assert_eq!(ask(&server, "GET", "/healthz", &[], b"").await.status, StatusCode::OK);
}

#[tokio::test]
async fn floods_of_http2_end_their_connection_alone() {
    let (server, _) = server(|_| {});
    let address = server.listening().http.expect("an address");
    // `:method: GET`, `:scheme: http`, `:path: /`, of the static table.
    let head = [0x82, 0x86, 0x84];
    let resets: Vec<u8> = (0..5000_u32)
        .map(|number| 2 * number + 1)
        .flat_map(|stream| [frame(1, 5, stream, &head), frame(3, 0, stream, &[0, 0, 0, 8])].concat())
        .collect();
    let first = frame(1, 1, 1, &head);
    // Header fields without end: literals that are not indexed.
    let field: Vec<u8> = [&[0x00, 1, b'x', 100][..], &[b'a'; 100]].concat().repeat(100);
    let continued: Vec<u8> = std::iter::repeat_n(frame(9, 0, 1, &field), 1000).flatten().collect();
    let empty: Vec<u8> = std::iter::repeat_n(frame(9, 0, 1, &[]), 100_000).flatten().collect();
    for flood in [resets, [&first[..], &continued].concat(), [&first[..], &empty].concat()] {
        let answer = said(address, &[PREFACE, &flood].concat()).await;
        // It begins with the server's settings, and ends before all was read: with GOAWAY, or by force.
        assert_eq!(answer.get(3), Some(&4));
    }
    assert_eq!(ask(&server, "GET", "/healthz", &[], b"").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_client_that_says_nothing_is_let_go() {
    let (server, _) = server(|settings| {
        settings.head_timeout = Duration::from_millis(50);
        settings.most_connections = 1;
    });
    let address = server.listening().http.expect("an address");
    for piece in [&b""[..], b"P", b"PRI * HTTP/2.0\r\n", b"G"] {
        // It returns at the end of the connection.
        said(address, piece).await;
    }
    let end = std::time::Instant::now() + Duration::from_secs(30);
    while !said(address, b"GET /healthz HTTP/1.0\r\n\r\n").await.starts_with(b"HTTP/1.0 200 ") {
        assert!(std::time::Instant::now() < end, "the place is taken");
    }
}

/// A frame that was read.
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// The next frame; `None` at the end of the connection.
pub(crate) async fn read_frame(stream: &mut TcpStream) -> Option<Frame> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.ok()?;
    let [a, b, c, kind, flags, number @ ..] = head;
    let mut payload = vec![0; usize::try_from(u32::from_be_bytes([0, a, b, c])).expect("short")];
    stream.read_exact(&mut payload).await.ok()?;
    Some(Frame { kind, flags, stream: u32::from_be_bytes(number), payload })
}

#[tokio::test]
async fn a_connection_of_http2_that_asks_for_nothing_gives_its_place_back() {
    let (server, _) = server(|settings| {
        settings.head_timeout = Duration::from_millis(200);
        settings.most_connections = 1;
    });
    let address = server.listening().http.expect("an address");
    // One client acknowledges whatever the server asks, the other nothing.
    for acknowledges in [true, false] {
        let silent = async {
            let mut seen = 0;
            // Where the former client still has the place, a connection ends at once.
            while seen == 0 {
                let mut stream = TcpStream::connect(address).await.expect("a connection");
                let _ = stream.write_all(PREFACE).await;
                while let Some(came) = read_frame(&mut stream).await {
                    seen += 1;
                    // Of settings nothing is repeated, of pings all.
                    let said = if came.kind == 4 { &[][..] } else { &came.payload };
                    if acknowledges && matches!(came.kind, 4 | 6) && came.flags & 1 == 0 {
                        let _ = stream.write_all(&frame(came.kind, 1, 0, said)).await;
                    }
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), silent).await.expect("the end");
    }
    let end = std::time::Instant::now() + Duration::from_secs(30);
    while !said(address, b"GET /healthz HTTP/1.0\r\n\r\n").await.starts_with(b"HTTP/1.0 200 ") {
        assert!(std::time::Instant::now() < end, "the place is taken");
    }
}

#[tokio::test]
async fn a_connection_of_http2_that_has_asked_is_kept() {
    let patience = Duration::from_millis(200);
    let (server, _) = server(|settings| settings.head_timeout = patience);
    let address = server.listening().http.expect("an address");
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let first = request(1, "/v1/tools/echo", "{}");
    stream.write_all(&[PREFACE, &first].concat()).await.expect("written");
    let answered = async |stream: &mut TcpStream, number: u32| {
        let reading = async {
            // The head of the answer.
            let is_answer = |came: &Frame| came.kind == 1 && came.stream == number;
            while !is_answer(&read_frame(stream).await.expect("a frame")) {}
        };
        tokio::time::timeout(Duration::from_secs(30), reading).await.expect("an answer");
    };
    answered(&mut stream, 1).await;
    tokio::time::sleep(patience * 3).await;
    stream.write_all(&request(3, "/v1/tools/echo", "{}")).await.expect("written");
    answered(&mut stream, 3).await;
}

#[tokio::test]
async fn messages_of_bottomless_depth_are_refused() {
    let (server, _) = server(|_| {});
    let deep: &'static [u8] = format!("{{\"x\":{}", "[".repeat(100_000)).into_bytes().leak();
    for path in ["/ropewalk.v1.Tools/Execute", "/ropewalk.v1.Tools/ListTools"] {
        let answer = ask(&server, "POST", path, &[("content-type", "application/json")], deep).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        assert_eq!(answer.json()["code"], "invalid_argument", "{path}");
    }
    let headers = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
    let open = "[".repeat(100_000);
    for text in
        [format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{open}"), open.clone()]
    {
        let answer = ask(&server, "POST", "/mcp", &headers, text.into_bytes().leak()).await;
        assert!(answer.json()["error"]["code"].is_i64(), "{:?}", answer.body);
    }
    // What nothing reads may be as deep as it likes.
    let deep = format!("{open}{}", "]".repeat(100_000));
    let params = format!("{{\"name\":\"echo\",\"_meta\":{{\"a\":{deep}}}}}");
    let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{params}}}");
    let answer = ask(&server, "POST", "/mcp", &headers, text.into_bytes().leak()).await;
    assert_eq!(answer.json()["result"]["isError"], false);
    // Groups within groups, of which protobuf has still some idea.
    let said = rpc::call(&server, "Execute", &[0x7b].repeat(100_000), None).await;
    assert_eq!(said.status(), "3");
    assert_eq!(ask(&server, "GET", "/healthz", &[], b"").await.status, StatusCode::OK);
}
