//! The times that a connection of HTTP/1 has between its requests.
//!
//! Clients and proxies keep connections for later calls. One that is closed while such a call is on its way loses it
//! (RFC 9112, section 9.5), and who sent it cannot know whether it has run. So a connection that has had a request may
//! rest for long, as one of HTTP/2 may, and a head must come soon once its first byte has come. hyper knows one time
//! for both, which it asks its timer for when it begins to wait for a head.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt;
use tokio::time::{self, Sleep};

/// Whether bytes have come since a head is waited for. Only the connection's task reads and writes it: relaxed.
#[derive(Clone, Debug, Default)]
pub(super) struct Came(Arc<AtomicBool>);

impl Came {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// hyper's timer of a connection, which it uses for heads alone.
#[derive(Clone, Debug)]
pub(super) struct Heads {
    pub(super) came: Came,
    /// How long a head may take that has begun.
    pub(super) time: Duration,
}

impl rt::Timer for Heads {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn rt::Sleep>> {
        self.sleep_until(Instant::now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn rt::Sleep>> {
        self.came.0.store(false, Ordering::Relaxed);
        let sleep = Box::pin(time::sleep_until(deadline.into()));
        Box::pin(Head { heads: self.clone(), begun: false, sleep })
    }
}

/// Ends when a head is late. It is polled whenever bytes have come that are no whole head yet.
struct Head {
    heads: Heads,
    begun: bool,
    sleep: Pin<Box<Sleep>>,
}

impl rt::Sleep for Head {}

impl Future for Head {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if !self.begun && self.heads.came.0.load(Ordering::Relaxed) {
            self.begun = true;
            let end = time::Instant::now() + self.heads.time;
            self.sleep.as_mut().reset(end);
        }
        self.sleep.as_mut().poll(context)
    }
}

#[cfg(test)]
mod tests {
    use hyper::rt::Timer as _;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);
    const SHORT: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn a_rest_ends_too() {
        Heads { came: Came::default(), time: LONG }.sleep(SHORT).await;
    }

    #[tokio::test]
    async fn a_head_has_its_own_time_from_its_first_byte() {
        let heads = Heads { came: Came::default(), time: SHORT };
        heads.came.set();
        let mut head = heads.sleep(LONG);
        // Those bytes were of an earlier request.
        assert!(time::timeout(SHORT * 3, head.as_mut()).await.is_err());
        heads.came.set();
        head.await;
    }
}
