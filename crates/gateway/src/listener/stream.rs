//! A connection, whatever carries it, with the bytes of it that were read to see which HTTP its client speaks.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

use super::heads::Came;
use super::patient::Patient;

/// What a client of HTTP/2 says first (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What carries a connection.
pub(super) enum Carrier {
    Tcp(Patient<TcpStream>),
    Unix(Patient<UnixStream>),
    Tls(Box<TlsStream<Patient<TcpStream>>>),
}

/// See the module.
pub(super) struct Stream {
    carrier: Carrier,
    read: [u8; PREFACE.len()],
    /// Where those of the bytes begin and end that were read and not given yet.
    left: (usize, usize),
    came: Came,
}

impl Stream {
    pub(super) fn new(carrier: Carrier) -> Self {
        Self { carrier, read: [0; PREFACE.len()], left: (0, 0), came: Came::default() }
    }

    /// What is set with each read that gives bytes.
    pub(super) fn came(&self) -> Came {
        self.came.clone()
    }

    /// Whether the client speaks HTTP/2, which its first bytes say.
    pub(super) async fn is_http2(&mut self) -> io::Result<bool> {
        let mut length = 0;
        while length < PREFACE.len() {
            let Some(room) = self.read.get_mut(length..) else { break };
            let count = match &mut self.carrier {
                Carrier::Tcp(stream) => stream.read(room).await?,
                Carrier::Unix(stream) => stream.read(room).await?,
                Carrier::Tls(stream) => stream.read(room).await?,
            };
            length += count;
            self.left = (0, length);
            if count == 0 || self.read.get(..length) != PREFACE.get(..length) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

macro_rules! carried {
    ($self:expr, $stream:ident => $call:expr) => {
        match &mut $self.get_mut().carrier {
            Carrier::Tcp($stream) => $call,
            Carrier::Unix($stream) => $call,
            Carrier::Tls($stream) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (begin, end) = self.left;
        if begin < end && into.remaining() > 0 {
            let count = into.remaining().min(end - begin);
            into.put_slice(self.read.get(begin..begin + count).unwrap_or_default());
            self.left.0 += count;
            self.came.set();
            return Poll::Ready(Ok(()));
        }
        ready!(carried!(self.as_mut(), stream => Pin::new(stream).poll_read(context, into)))?;
        self.came.set();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        carried!(self, stream => Pin::new(stream).poll_write(context, from))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        carried!(self, stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        carried!(self, stream => Pin::new(stream).poll_shutdown(context))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        carried!(self, stream => Pin::new(stream).poll_write_vectored(context, from))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.carrier {
            Carrier::Tcp(stream) => stream.is_write_vectored(),
            Carrier::Unix(stream) => stream.is_write_vectored(),
            Carrier::Tls(stream) => stream.is_write_vectored(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncWriteExt as _;

    use super::*;

    async fn sniffed(pieces: &[&[u8]]) -> (bool, Vec<u8>) {
        let (mut client, server) = UnixStream::pair().expect("a pair");
        let mut stream = Stream::new(Carrier::Unix(Patient::new(server, Duration::MAX)));
        let writing = async {
            for piece in pieces {
                client.write_all(piece).await.expect("written");
                tokio::task::yield_now().await;
            }
            drop(client);
        };
        let (is_http2, ()) = futures::join!(stream.is_http2(), writing);
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.expect("the rest");
        (is_http2.expect("no error"), all)
    }

    #[tokio::test]
    async fn the_first_bytes_say_which_http_it_is_and_are_not_lost() {
        for (pieces, is_http2) in [
            (&[&b"GET / HTTP/1.1\r\n"[..], b"host: a\r\n"][..], false),
            (&[&PREFACE[..], b"more"], true),
            (&[&PREFACE[..5], &PREFACE[5..], b"more"], true),
            (&[b"PRI", b" / HTTP/1.1\r\n\r\n"], false),
            (&[b"PRI * HTTP"], false),
            (&[], false),
        ] {
            assert_eq!(sniffed(pieces).await, (is_http2, pieces.concat()));
        }
    }
}
