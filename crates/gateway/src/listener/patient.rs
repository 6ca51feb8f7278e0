//! A socket whose peer takes what is written, or loses the connection.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// See the module. A connection on which nothing is to be written may be silent for as long as it likes.
pub(super) struct Patient<S> {
    socket: S,
    /// How long the peer may take none of the bytes that are to be written.
    patience: Duration,
    /// Runs since the first write that the socket did not take, until it takes one.
    waits: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub(super) fn new(socket: S, patience: Duration) -> Self {
        Self { socket, patience, waits: None }
    }

    pub(super) fn socket(&self) -> &S {
        &self.socket
    }

    /// What a write has come to, which fails if the socket has taken nothing for too long.
    fn bounded<T>(&mut self, context: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.waits = None;
            return done;
        }
        let patience = self.patience;
        let waits = self.waits.get_or_insert_with(|| Box::pin(sleep(patience)));
        waits.as_mut().poll(context).map(|()| Err(ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.socket).poll_write(context, from);
        self.bounded(context, done)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Sockets keep nothing back: this says nothing of the peer.
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.socket).poll_write_vectored(context, from);
        self.bounded(context, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn a_peer_that_takes_nothing_ends_the_write() {
        let (peer, socket) = duplex(10);
        let mut socket = Patient::new(socket, Duration::from_millis(20));
        socket.write_all(&[7; 10]).await.expect("there is room");
        let failed = socket.write_all(&[7; 1]).await.expect_err("there is none");
        assert_eq!(failed.kind(), ErrorKind::TimedOut);
        drop(peer);
    }

    #[tokio::test]
    async fn the_time_begins_anew_with_each_write_that_is_taken() {
        let (mut peer, socket) = duplex(10);
        let mut socket = Patient::new(socket, Duration::from_secs(3600));
        socket.write_all(&[7; 10]).await.expect("there is room");
        assert!(socket.waits.is_none());
        assert!(futures::poll!(std::pin::pin!(socket.write(&[7; 5]))).is_pending());
        assert!(socket.waits.is_some());
        assert_eq!(peer.read_u8().await.expect("a byte"), 7);
        assert_eq!(socket.write(&[7; 5]).await.expect("there is room"), 1);
        assert!(socket.waits.is_none());
    }
}
