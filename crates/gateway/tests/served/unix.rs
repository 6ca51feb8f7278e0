//! The unix socket.

use std::sync::Arc;
use std::time::Duration;

use ropewalk_gateway::{Clients, Rate, Server, Settings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::authority::{Authority, Folder};
use crate::{Stub, server};

async fn asked(server: &Server, head: &str) -> String {
    let path = server.listening().unix.expect("a socket");
    let mut stream = UnixStream::connect(path).await.expect("a connection");
    let request = format!(
        "POST /v1/tools/echo HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 2\r\n{head}\r\n{{}}"
    );
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut said = Vec::new();
    stream.read_to_end(&mut said).await.expect("the end");
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_is_served_at_the_socket_until_the_server_leaves() {
    let folder = Folder::new();
    let path = folder.0.join("s");
    let (server, _) = server(|settings| settings.unix = Some(path.clone()));
    assert!(asked(&server, "").await.starts_with("HTTP/1.1 200 "));
    // HTTP/2, and with it gRPC: the server's settings come first.
    let mut stream = UnixStream::connect(&path).await.expect("a connection");
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.expect("sent");
    let mut frame = [0; 9];
    stream.read_exact(&mut frame).await.expect("a frame");
    assert_eq!(frame[3], 4);
    drop(stream);
    let server = Arc::new(server);
    let leaving = Arc::clone(&server);
    tokio::task::spawn_blocking(move || assert!(leaving.drain(Duration::from_secs(30))))
        .await
        .expect("drained");
    assert!(!path.exists());
    tokio::task::spawn_blocking(move || server.stop()).await.expect("stopped");
}

#[tokio::test]
async fn a_socket_that_is_taken_is_refused() {
    let folder = Folder::new();
    let (first, _) = server(|settings| settings.unix = Some(folder.0.join("s")));
    let settings = Settings { unix: first.listening().unix, ..Settings::default() };
    let starting = move || Server::start(&settings, Default::default(), Arc::new(Stub(Arc::default())));
    let error = tokio::task::spawn_blocking(starting).await.expect("a thread").expect_err("taken");
    assert!(error.to_string().contains("another server listens there"), "{error}");
    assert!(asked(&first, "").await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn the_socket_asks_for_tokens_and_rates_and_is_not_encrypted() {
    let (authority, folder) = (Authority::new("ours"), Folder::new());
    let tls = authority.server_files().tls(Some(authority.file()));
    let (first, _) = server(|settings| {
        settings.unix = Some(folder.0.join("a"));
        settings.tls = Some(tls);
        settings.clients = Clients::of_tokens(["secret"]).into();
    });
    assert!(asked(&first, "").await.starts_with("HTTP/1.1 401 "));
    assert!(asked(&first, "authorization: Bearer secret\r\n").await.starts_with("HTTP/1.1 200 "));
    let (second, _) = server(|settings| {
        settings.unix = Some(folder.0.join("b"));
        settings.clients = Clients::new([], Rate::new(0.001, 1)).into();
    });
    assert!(asked(&second, "").await.starts_with("HTTP/1.1 200 "));
    assert!(asked(&second, "").await.starts_with("HTTP/1.1 429 "));
}
