//! Connections of HTTP/2 on which nothing is asked.
//!
//! Such a connection holds a place for as long as its client answers pings, which costs the client next to nothing. So
//! it must open a stream soon, as a connection of HTTP/1 must send the head of a request. Once it has done so it may
//! rest for much longer: clients keep connections for later calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;

/// The streams of a connection. Their tasks write both counts, the connection's task reads them; they order nothing:
/// relaxed.
#[derive(Debug, Default)]
pub(super) struct Streamed {
    /// Streams that were opened.
    opened: AtomicU64,
    /// Those of them that have ended.
    ended: AtomicU64,
}

/// One that is open, until this is dropped.
#[derive(Debug)]
pub(super) struct Open(Arc<Streamed>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

impl Streamed {
    pub(super) fn open(this: &Arc<Self>) -> Open {
        this.opened.fetch_add(1, Ordering::Relaxed);
        Open(Arc::clone(this))
    }

    /// How many were opened, and how many have ended.
    fn counts(&self) -> (u64, u64) {
        (self.opened.load(Ordering::Relaxed), self.ended.load(Ordering::Relaxed))
    }

    /// Returns when no stream was opened within the first time, or then none was open for the other one.
    pub(super) async fn idle(&self, first: Duration, longest: Duration) {
        sleep(first).await;
        if self.counts() != (0, 0) {
            self.quiet(longest).await;
        }
    }

    /// Returns when no stream has been open for this time; it looks as often, so that may be twice as long.
    pub(super) async fn quiet(&self, time: Duration) {
        loop {
            let before = self.counts();
            sleep(time).await;
            let now = self.counts();
            if now == before && now.0 == now.1 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const SHORT: Duration = Duration::from_millis(5);
    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn a_connection_is_idle_soon_if_nothing_was_asked_and_later_if_something_was() {
        let streamed = Arc::<Streamed>::default();
        streamed.idle(SHORT, LONG).await;
        let open = Streamed::open(&streamed);
        let rests = |longest| timeout(SHORT * 20, streamed.idle(SHORT, longest));
        assert!(rests(SHORT).await.is_err(), "a stream is open");
        drop(open);
        assert!(rests(LONG).await.is_err(), "it may rest for longer");
        streamed.idle(SHORT, SHORT).await;
    }

    #[tokio::test]
    async fn a_stream_that_has_come_and_gone_begins_the_time_anew() {
        let streamed = Arc::<Streamed>::default();
        let mut quiet = std::pin::pin!(streamed.quiet(SHORT));
        for _ in 0..5 {
            drop(Streamed::open(&streamed));
            assert!(futures::poll!(quiet.as_mut()).is_pending());
            drop(Streamed::open(&streamed));
            sleep(SHORT * 2).await;
        }
        quiet.await;
    }
}
