//! The items of a stream of a session, which end with the session, whether their client reads them or not.
//!
//! The stream lies in its session while nothing polls it. What polls it takes it out, and puts it back unless the
//! session has ended meanwhile; so no lock is held while it is polled or dropped.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::{Stream, StreamExt as _};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::{Session, Sessions};
use crate::call::{Answer, Items};
use crate::failed::Failed;
use crate::turns::Turn;

/// A stream of a session, and its turn. Dropping it stops the tool.
pub(super) struct OfStream {
    /// Dropped before the turn: the next call comes behind the generator's end.
    items: Items,
    _turn: Turn,
}

/// See the module.
pub(super) struct InSession {
    /// Whether the last item has been given.
    ended: bool,
    over: Pin<Box<WaitForCancellationFutureOwned>>,
    session: Arc<Session>,
    sessions: Arc<Sessions>,
}

impl InSession {
    /// The items of a stream that has begun, in its turn.
    pub(super) fn new(items: Items, turn: Turn, session: Arc<Session>, sessions: Arc<Sessions>) -> Self {
        session.keep(OfStream { items, _turn: turn });
        let over = Box::pin(session.over.clone().cancelled_owned());
        Self { ended: false, over, session, sessions }
    }
}

impl Session {
    /// Keeps its stream, unless it has ended.
    fn keep(&self, stream: OfStream) {
        let mut kept = self.stream.lock();
        // Asked within the lock: who ends the session cancels first, and then takes what is kept.
        let unkept = if self.over.is_cancelled() { Some(stream) } else { kept.replace(stream) };
        drop(kept);
        drop(unkept);
    }
}

impl Stream for InSession {
    type Item = Result<Answer, Failed>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        let kept = this.session.stream.lock().take();
        let Some(mut running) = kept else {
            this.ended = true;
            return Poll::Ready(Some(Err(this.session.gone())));
        };
        let next = running.items.poll_next_unpin(context);
        let end = match next {
            Poll::Ready(Some(Ok(item))) => {
                this.session.keep(running);
                return Poll::Ready(Some(Ok(item)));
            }
            Poll::Ready(Some(Err(failed))) => Some(Err(this.sessions.failed(&this.session, failed))),
            Poll::Ready(None) => None,
            Poll::Pending => match this.over.as_mut().poll(context) {
                Poll::Ready(()) => Some(Err(this.session.gone())),
                Poll::Pending => {
                    this.session.keep(running);
                    return Poll::Pending;
                }
            },
        };
        this.ended = true;
        Poll::Ready(end)
    }
}

impl Drop for InSession {
    fn drop(&mut self) {
        // Until its end it has the turn: no other stream is kept there.
        if !self.ended {
            let kept = self.session.stream.lock().take();
            drop(kept);
        }
    }
}
