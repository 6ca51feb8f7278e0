//! Clients that do not read their answers.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use ropewalk_gateway::Settings;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::floods::{PREFACE, frame, read_frame};
use crate::http::ask;
use crate::{server, until};

/// More items than any buffer between a server and its client has room for.
const ENDLESS: &str = "99999999999999";
const PATIENCE: Duration = Duration::from_millis(300);

fn impatient(settings: &mut Settings) {
    settings.write_timeout = PATIENCE;
}

/// A request of HTTP/2 on this stream, with a body of JSON.
pub(crate) fn request(stream: u32, path: &str, body: &str) -> Vec<u8> {
    // `:method: POST` and `:scheme: http` of the static table, and a literal `:path`.
    let path = [&[0x83, 0x86, 0x04, u8::try_from(path.len()).expect("short")], path.as_bytes()].concat();
    [frame(1, 4, stream, &path), frame(0, 1, stream, body.as_bytes())].concat()
}

/// A setting of a client: `SETTINGS_INITIAL_WINDOW_SIZE`.
fn windows_of(size: u32) -> Vec<u8> {
    frame(4, 0, 0, &[&[0, 4][..], &size.to_be_bytes()].concat())
}

/// A connection of HTTP/2 whose client says this.
async fn connected(address: SocketAddr, said: &[&[u8]]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(&[&[PREFACE], said].concat().concat()).await.expect("written");
    stream
}

#[tokio::test]
async fn an_answer_that_is_not_read_is_given_up() {
    let (server, seen) = server(impatient);
    let address = server.listening().http.expect("an address");
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let head =
        format!("POST /v1/tools/count HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", ENDLESS.len());
    stream.write_all([head.as_bytes(), ENDLESS.as_bytes()].concat().as_slice()).await.expect("written");
    until(|| seen.left.load(Ordering::SeqCst) == 1).await;
    drop(stream);
}

#[tokio::test]
async fn a_stream_that_is_not_read_ends_and_the_others_of_its_connection_do_not() {
    let (server, seen) = server(impatient);
    let address = server.listening().http.expect("an address");
    // No stream of this connection has a window, so all that the socket has to carry are heads.
    let one = request(1, "/v1/tools/count", ENDLESS);
    let other = request(3, "/v1/tools/wait", "{}");
    let mut stream = connected(address, &[&windows_of(0), &one, &other]).await;
    until(|| seen.begun.load(Ordering::SeqCst) == 2).await;
    until(|| seen.left.load(Ordering::SeqCst) == 1).await;
    assert_eq!(reset(&mut stream).await, 1);
    // A tool that runs says nothing for longer than a client may take nothing.
    tokio::time::sleep(PATIENCE * 3).await;
    assert_eq!(seen.left.load(Ordering::SeqCst), 1);
    seen.open.store(true, Ordering::SeqCst);
    // Its answer is there, and is not read either; a whole answer holds no stream for ever.
    assert_eq!(reset(&mut stream).await, 3);
    drop(stream);
}

/// Reads until the server resets a stream; gives its number.
async fn reset(stream: &mut TcpStream) -> u32 {
    let reading = async {
        loop {
            let came = read_frame(stream).await.expect("a frame");
            if came.kind == 3 {
                return came.stream;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), reading).await.expect("a reset")
}

#[tokio::test]
async fn a_client_that_reads_slowly_is_answered() {
    let patience = Duration::from_secs(2);
    let (server, seen) = server(|settings| settings.write_timeout = patience);
    let address = server.listening().http.expect("an address");
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .http2_initial_stream_window_size(16 << 10)
        .build_http();
    let large = Bytes::from(vec![b' '; 256 << 10]);
    let request = http::Request::post(format!("http://{address}/v1/tools/echo"))
        .header("content-type", "application/octet-stream")
        .body(Full::from(large.clone()));
    let mut body = client.request(request.expect("a request")).await.expect("an answer").into_body();
    let mut came = 0;
    while let Some(frame) = body.frame().await {
        came += frame.expect("a frame").into_data().map_or(0, |data| data.len());
        // All of it takes several times as long as nothing may be taken.
        tokio::time::sleep(patience / 8).await;
    }
    assert_eq!((came, seen.begun.load(Ordering::SeqCst)), (large.len(), 1));
    assert_eq!(ask(&server, "GET", "/healthz", &[], b"").await.status, 200);
}
