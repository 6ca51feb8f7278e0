//! The answers of a connection of HTTP/2. A stream whose client takes nothing of its answer is reset.
//!
//! A client may keep the window of one stream closed (RFC 9113, section 5.2): no write of the connection waits then, so
//! the socket cannot show it. What shows it is the task of the stream. It takes a part of the answer's body, waits for
//! room in the window, and only then asks for the next one. So a body that waits for its tool was asked last and had
//! nothing, and a client is waited for when the body was asked last and had something.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use hyper::rt::Executor;
use tokio::task_local;
use tokio::time::{Sleep, sleep};

use super::idle::{Open, Streamed};

/// Bytes of an answer that a client takes at once: as many as a frame has. Whoever takes these in time goes on, however
/// large the answer is. Of an answer that has ended, so many may stay with the connection.
const PART: usize = 16 << 10;

task_local! {
    /// What watches the stream whose task is polled.
    static WATCH: Arc<Watch>;
}

/// What is known of an answer. Only the task of its stream reads and writes it: relaxed.
#[derive(Default)]
struct Watch {
    /// Whether the body was asked last, and had something.
    gave: AtomicBool,
    /// Whether the body was asked since the watch was looked at.
    moved: AtomicBool,
}

/// Runs the tasks of a connection's streams.
#[derive(Clone)]
pub(super) struct Streams {
    /// How long a client may take nothing of an answer.
    pub(super) patience: Duration,
    /// Counts them.
    pub(super) streamed: Arc<Streamed>,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, future: F) {
        let (patience, watch, open) = (self.patience, Arc::default(), Streamed::open(&self.streamed));
        tokio::spawn(Watched { future: Box::pin(future), watch, patience, waits: None, _open: open });
    }
}

/// The task of a stream. It ends early when the client has taken nothing for too long: what it drops resets the stream.
struct Watched<F> {
    future: Pin<Box<F>>,
    watch: Arc<Watch>,
    patience: Duration,
    /// Runs since the body has given what the client does not take.
    waits: Option<Pin<Box<Sleep>>>,
    _open: Open,
}

impl<F: Future<Output = ()>> Future for Watched<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let (future, watch) = (this.future.as_mut(), Arc::clone(&this.watch));
        if WATCH.sync_scope(watch, || future.poll(context)).is_ready() {
            return Poll::Ready(());
        }
        if this.watch.moved.swap(false, Ordering::Relaxed) {
            this.waits = None;
        }
        if !this.watch.gave.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        let patience = this.patience;
        this.waits.get_or_insert_with(|| Box::pin(sleep(patience))).as_mut().poll(context)
    }
}

/// An answer, whose body is watched if it is that of a stream.
pub(super) fn watched(answer: Response) -> Response {
    match WATCH.try_with(Arc::clone) {
        Ok(watch) => answer.map(|body| Body::new(Parts { body, rest: Bytes::new(), watch })),
        // The connection speaks HTTP/1: its socket shows whether the client reads.
        Err(_) => answer,
    }
}

/// A body in parts.
struct Parts {
    body: Body,
    /// What is left of the last frame.
    rest: Bytes,
    watch: Arc<Watch>,
}

impl hyper::body::Body for Parts {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        this.watch.moved.store(true, Ordering::Relaxed);
        if this.rest.is_empty() {
            this.watch.gave.store(false, Ordering::Relaxed);
            let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
            this.watch.gave.store(true, Ordering::Relaxed);
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => this.rest = data,
                Some(Ok(Err(other))) => return Poll::Ready(Some(Ok(other))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                None => return Poll::Ready(None),
            }
        }
        let part = this.rest.split_to(this.rest.len().min(PART));
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // It is asked for before the first part.
        if self.rest.is_empty() { self.body.size_hint() } else { SizeHint::default() }
    }
}
