//! Clients that speak HTTP without TLS where TLS is spoken.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::patient::Patient;

const ANSWER: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 36\r\n\
    connection: close\r\n\r\nThis port speaks TLS: use https://.\n";
/// Bytes of such a request that are read, and how long that may take: a connection that ends upon bytes that are not
/// read takes the answer with it.
const READ: u64 = 64 << 10;
const READING: Duration = Duration::from_secs(1);

/// Answers a client whose first byte is one of HTTP. Gives the connection of any other, which begins a handshake, or
/// fails at it.
pub(super) async fn refused(mut stream: Patient<TcpStream>) -> Option<Patient<TcpStream>> {
    let mut first = [0];
    let count = stream.socket().peek(&mut first).await.ok()?;
    // A record of TLS begins with its kind, a small number; a request of HTTP with its method.
    if count == 0 || !first.iter().all(u8::is_ascii_uppercase) {
        return Some(stream);
    }
    stream.write_all(ANSWER).await.ok()?;
    stream.shutdown().await.ok()?;
    let mut rest = stream.take(READ);
    let _ = timeout(READING, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
    None
}
