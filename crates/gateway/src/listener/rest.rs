//! The body of a request, whose rest is read though nothing wants it.
//!
//! A request may be answered before its body has come: by a refusal, mostly. If the body were dropped then, HTTP/2
//! would reset the stream behind the answer (RFC 9113, section 8.1), and HTTP/1 would close the connection upon bytes
//! that are not read (RFC 9112, section 9.6). Clients that still send take either for a failure, and do not read the
//! answer. So the rest is read and dropped, within bounds: as many bytes as a request may have, and a few seconds.
//! Meanwhile it counts as an open stream of its connection, or keeps the connection of HTTP/1 from its next request.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use http::Request;
use http::header::EXPECT;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long the rest may take, if the settings do not say less.
const LONGEST: Duration = Duration::from_secs(5);

/// How much of a body is read that nothing wants.
pub(super) struct Bounds {
    pub(super) bytes: usize,
    pub(super) time: Duration,
    /// A server that leaves reads nothing in vain.
    pub(super) leaving: watch::Receiver<bool>,
}

/// See the module.
pub(super) struct Whole {
    /// `None` once it has ended.
    body: Option<Incoming>,
    /// Whether the client sends it without being asked to.
    comes: bool,
    bounds: Arc<Bounds>,
}

impl Whole {
    /// The request, with this body.
    pub(super) fn of(request: Request<Incoming>, bounds: &Arc<Bounds>) -> Request<Self> {
        // Where nothing has asked for the body, such a client has not begun to send it (RFC 9110, section 10.1.1).
        let comes = !request.headers().contains_key(EXPECT);
        request.map(|body| Self {
            body: Some(body).filter(|body| !body.is_end_stream()),
            comes,
            bounds: Arc::clone(bounds),
        })
    }
}

impl HttpBody for Whole {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        this.comes = true;
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        let came = Pin::new(&mut *body).poll_frame(context);
        if matches!(came, Poll::Ready(None | Some(Err(_)))) || body.is_end_stream() {
            this.body = None;
        }
        came
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        let Some(body) = self.body.take().filter(|_| self.comes) else { return };
        // Without a runtime there is no connection either.
        let Ok(runtime) = Handle::try_current() else { return };
        let (bytes, time) = (self.bounds.bytes, self.bounds.time.min(LONGEST));
        let mut leaving = self.bounds.leaving.clone();
        runtime.spawn(async move {
            let mut rest = Limited::new(body, bytes);
            let read = timeout(time, async { while let Some(Ok(_)) = rest.frame().await {} });
            tokio::select! {
                _ = read => {}
                _ = leaving.wait_for(|leaving| *leaving) => {}
            }
        });
    }
}
