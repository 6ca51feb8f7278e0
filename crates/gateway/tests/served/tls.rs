//! TLS and mutual TLS.

use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use ropewalk_gateway::{Clients, Known, Lines, Logging, Server, Settings, Tls};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, HandshakeKind};

use crate::authority::Authority;
use crate::{Stub, server, until};

async fn tcp(server: &Server) -> TcpStream {
    TcpStream::connect(server.listening().http.expect("an address")).await.expect("a connection")
}

async fn connected(server: &Server, config: &Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let name = "localhost".try_into().expect("a name");
    TlsConnector::from(Arc::clone(config)).connect(name, tcp(server).await).await
}

/// What is said to a request, on a connection of its own; an error if there is no answer.
async fn asked(server: &Server, config: &Arc<ClientConfig>, path: &str, head: &str) -> io::Result<String> {
    let mut stream = connected(server, config).await?;
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\nconnection: close\r\n{head}\r\n{{}}"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut said = Vec::new();
    let ended = stream.read_to_end(&mut said).await;
    if said.is_empty() {
        return Err(ended.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(String::from_utf8_lossy(&said).into_owned())
}

async fn is_served(server: &Server, config: &Arc<ClientConfig>) -> bool {
    asked(server, config, "/v1/tools/echo", "").await.is_ok_and(|said| said.starts_with("HTTP/1.1 200 "))
}

/// Reads until the server ends the connection.
async fn ends(mut stream: TcpStream) {
    let mut rest = Vec::new();
    let _ =
        tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut rest)).await.expect("the end");
}

#[tokio::test]
async fn both_versions_of_http_are_served_over_tls() {
    let authority = Authority::new("ours");
    let tls = authority.server_files().tls(None);
    let (server, _) = server(|settings| settings.tls = Some(tls));
    for (protocols, chosen) in
        [(&["h2", "http/1.1"][..], Some("h2")), (&["http/1.1"], Some("http/1.1")), (&[], None)]
    {
        let stream = connected(&server, &authority.client(None, protocols)).await.expect("a handshake");
        let found = stream.get_ref().1.alpn_protocol();
        assert_eq!(found, chosen.map(str::as_bytes));
    }
    assert!(is_served(&server, &authority.client(None, &[])).await);
    // The whole way of a client of HTTP/2, to the address of gRPC.
    let mut config = (*authority.client(None, &[])).clone();
    config.alpn_protocols.clear();
    let connector = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(config).https_only();
    let client: Client<_, Full<Bytes>> =
        Client::builder(TokioExecutor::new()).http2_only(true).build(connector.enable_http2().build());
    let port = server.listening().grpc.expect("an address").port();
    let request = Request::post(format!("https://localhost:{port}/v1/tools/echo")).body(Full::from("[1]"));
    let response = client.request(request.expect("a request")).await.expect("a response");
    assert_eq!(response.version(), http::Version::HTTP_2);
    assert_eq!(&response.into_body().collect().await.expect("a body").to_bytes()[..], b"[1]");
}

#[tokio::test]
async fn with_an_authority_of_clients_only_its_clients_are_served() {
    let authority = Authority::new("ours");
    let tls = authority.server_files().tls(Some(authority.file()));
    let lines = Arc::new(Lines::new(Logging::Calls));
    let (server, _) = server(|settings| {
        settings.tls = Some(tls);
        settings.lines = Arc::clone(&lines);
    });
    let known = authority.issue("ann.example", false);
    let expired = authority.issue("ann.example", true);
    let foreign = Authority::new("another").issue("ann.example", false);
    for shown in [None, Some(&expired), Some(&foreign)] {
        assert!(asked(&server, &authority.client(shown, &[]), "/healthz", "").await.is_err());
    }
    assert!(is_served(&server, &authority.client(Some(&known), &[])).await);
    // The log has the caller's name.
    let taken = tokio::task::spawn_blocking(move || lines.next()).await.expect("a thread").expect("records");
    assert_eq!(taken.calls.first().and_then(|line| line.caller.as_deref()), Some("ann.example"));
}

#[tokio::test]
async fn a_client_shows_its_certificate_with_each_connection() {
    let authority = Authority::new("ours");
    let known = authority.issue("ann.example", false);
    for (client_ca, second) in [(Some(authority.file()), HandshakeKind::Full), (None, HandshakeKind::Resumed)]
    {
        let tls = authority.server_files().tls(client_ca);
        let (server, _) = server(|settings| settings.tls = Some(tls));
        for version in [&TLS12, &TLS13] {
            // It keeps what a server gives it to resume the session by.
            let config = authority.client_of(&[version], Some(&known), &[]);
            for wanted in [HandshakeKind::Full, second] {
                let mut stream = connected(&server, &config).await.expect("a handshake");
                let request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
                stream.write_all(request).await.expect("sent");
                let mut said = Vec::new();
                stream.read_to_end(&mut said).await.expect("the end");
                assert!(said.starts_with(b"HTTP/1.1 200 "));
                assert_eq!(stream.get_ref().1.handshake_kind(), Some(wanted), "{version:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_certificate_is_a_client_by_its_names() {
    let authority = Authority::new("ours");
    let tls = authority.server_files().tls(Some(authority.file()));
    let of = |name: &str, tool: &str| Known {
        name: Some("client".into()),
        certificate: Some(name.into()),
        tools: Some(vec![tool.into()]),
        ..Known::default()
    };
    let clients = Clients::new([of("ann.example", "echo"), of("common bob.example", "meta")], None);
    let (server, _) = server(|settings| {
        settings.tls = Some(tls);
        settings.clients = clients.into();
    });
    for (name, status) in [("ann.example", "200"), ("bob.example", "403"), ("eve.example", "401")] {
        let shown = authority.issue(name, false);
        let said = asked(&server, &authority.client(Some(&shown), &[]), "/v1/tools/echo", "")
            .await
            .expect("an answer");
        assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{name}: {said}");
    }
}

#[tokio::test]
async fn what_is_no_handshake_ends_its_own_connection_and_no_other() {
    let authority = Authority::new("ours");
    let tls = authority.server_files().tls(None);
    let (server, _) = server(|settings| {
        settings.tls = Some(tls);
        settings.head_timeout = Duration::from_millis(200);
        settings.most_connections = 4;
    });
    let config = authority.client(None, &[]);
    // Each takes a place, and gives it back: there are fewer places than there are connections here.
    for _ in 0..2 {
        let mut plain = tcp(&server).await;
        plain.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("sent");
        ends(plain).await;
        // The first bytes of a hello, and no more: cut off by the client, or by the server's clock.
        let mut cut = tcp(&server).await;
        cut.write_all(b"\x16\x03\x01\x02\x00\x01").await.expect("sent");
        drop(cut);
        let mut slow = tcp(&server).await;
        slow.write_all(b"\x16\x03\x01\x02\x00\x01").await.expect("sent");
        ends(slow).await;
        ends(tcp(&server).await).await;
        // A client that does not trust the server.
        assert!(connected(&server, &Authority::new("another").client(None, &[])).await.is_err());
        // A handshake and then nothing, or half a head, or half a preface.
        for piece in ["", "GET / HTTP/1.1\r\nhost:", "PRI * HTTP/2"] {
            // On a machine that is busy, the handshake itself may take too long.
            let Ok(mut stream) = connected(&server, &config).await else { continue };
            let _ = stream.write_all(piece.as_bytes()).await;
            let mut rest = Vec::new();
            let read = stream.read_to_end(&mut rest);
            let _ = tokio::time::timeout(Duration::from_secs(30), read).await.expect("the end");
        }
    }
    let served = || async { is_served(&server, &config).await };
    let end = std::time::Instant::now() + Duration::from_secs(30);
    while !served().await {
        assert!(std::time::Instant::now() < end, "places were lost");
    }
}

#[tokio::test]
async fn a_client_without_tls_reads_that_the_port_speaks_it() {
    let authority = Authority::new("ours");
    let tls = authority.server_files().tls(None);
    let (server, _) = server(|settings| settings.tls = Some(tls));
    for body in [&b""[..], &[b' '; 40_000]] {
        let mut plain = tcp(&server).await;
        let head = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", body.len());
        plain.write_all(&[head.as_bytes(), body].concat()).await.expect("sent");
        let mut said = Vec::new();
        plain.read_to_end(&mut said).await.expect("an answer, and the end");
        let said = String::from_utf8_lossy(&said);
        assert!(said.starts_with("HTTP/1.1 400 "), "{said}");
        let (head, body) = said.split_once("\r\n\r\n").expect("a body");
        assert_eq!(body, "This port speaks TLS: use https://.\n");
        assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
    }
    assert!(is_served(&server, &authority.client(None, &[])).await);
}

#[tokio::test]
async fn certificates_are_read_again() {
    let authority = Authority::new("ours");
    let other = Authority::new("another");
    let files = authority.server_files();
    let (server, _) = server(|settings| settings.tls = Some(files.tls(None)));
    let (old, new) = (authority.client(None, &[]), other.client(None, &[]));
    let mut kept = connected(&server, &old).await.expect("a handshake");
    assert!(!is_served(&server, &new).await);
    // A file that is half of a pair changes nothing.
    let issued = other.issue("localhost", false);
    fs::write(&files.cert, &issued.cert).expect("written");
    let error = server.certify().expect_err("refused").to_string();
    assert!(error.starts_with("tls_key: the file ") && error.contains("does not fit tls_cert"), "{error}");
    assert!(is_served(&server, &old).await);
    fs::write(&files.key, &issued.key).expect("written");
    server.certify().expect("read");
    assert!(is_served(&server, &new).await && !is_served(&server, &old).await);
    // What was connected before goes on.
    kept.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("sent");
    let mut some = [0; 12];
    kept.read_exact(&mut some).await.expect("an answer");
    assert_eq!(&some, b"HTTP/1.1 200");
}

#[test]
fn what_is_wrong_with_a_file_is_said() {
    let authority = Authority::new("ours");
    let files = authority.server_files();
    let empty = files.cert.with_file_name("empty.pem");
    fs::write(&empty, "").expect("written");
    let broken = files.cert.with_file_name("broken.pem");
    fs::write(&broken, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").expect("written");
    let missing = files.cert.with_file_name("missing.pem");
    let good = files.tls(None);
    for (tls, wanted) in [
        (Tls { cert: missing.clone(), ..good.clone() }, ("tls_cert", "missing.pem", "cannot be read")),
        (Tls { cert: empty.clone(), ..good.clone() }, ("tls_cert", "empty.pem", "has no certificate")),
        (Tls { key: files.cert.clone(), ..good.clone() }, ("tls_key", "cert.pem", "has no private key")),
        (Tls { key: missing, ..good.clone() }, ("tls_key", "missing.pem", "cannot be read")),
        (
            Tls { client_ca: Some(empty), ..good.clone() },
            ("tls_client_ca", "empty.pem", "has no certificate"),
        ),
        (
            Tls { client_ca: Some(broken), ..good },
            ("tls_client_ca", "broken.pem", "a certificate that is none"),
        ),
    ] {
        let settings = Settings { tls: Some(tls), http: "127.0.0.1:0".parse().ok(), ..Settings::default() };
        let runner = Arc::new(Stub(Arc::default()));
        let error = Server::start(&settings, Default::default(), runner).expect_err("refused").to_string();
        let (setting, file, what) = wanted;
        assert!(error.starts_with(setting) && error.contains(file) && error.contains(what), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_leaves_waits_for_no_handshake() {
    let authority = Authority::new("ours");
    let tls = authority.server_files().tls(None);
    let (server, _) = server(|settings| settings.tls = Some(tls));
    let mut slow = tcp(&server).await;
    slow.write_all(b"\x16\x03").await.expect("sent");
    let server = Arc::new(server);
    let leaving = Arc::clone(&server);
    let drained = tokio::task::spawn_blocking(move || leaving.drain(Duration::from_secs(30)));
    ends(slow).await;
    until(|| drained.is_finished()).await;
    assert!(drained.await.expect("drained"));
    tokio::task::spawn_blocking(move || server.stop()).await.expect("stopped");
}
