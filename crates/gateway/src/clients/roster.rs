//! The clients as they are now: what names them may change while the server serves.

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{Extensions, HeaderMap};
use ropewalk_sync::Mutex;

use super::{Caller, Clients, Digest, Peer, Stranger, digest_of};

/// The token of `Bearer TOKEN` (RFC 6750, section 2.1).
fn token_of(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
}

/// What a caller shows, with each request or once for a connection.
#[derive(Clone)]
pub(crate) struct Shown {
    token: Option<Digest>,
    peer: Peer,
}

impl Shown {
    /// What a request of HTTP shows.
    pub(crate) fn of(headers: &HeaderMap, extensions: &Extensions) -> Self {
        let value = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        Self::new(value, extensions.get().cloned().unwrap_or_default())
    }

    /// The value of `authorization`, at this end of a connection.
    pub(crate) fn new(authorization: Option<&[u8]>, peer: Peer) -> Self {
        Self { token: authorization.and_then(token_of).map(digest_of), peer }
    }
}

/// See the module.
pub(crate) struct Roster(Mutex<Arc<Clients>>);

impl Roster {
    pub(crate) fn new(clients: Arc<Clients>) -> Self {
        Self(Mutex::new(clients))
    }

    /// Whether every caller is admitted.
    pub(crate) fn is_open(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// The caller that shows this.
    pub(crate) fn admit(&self, shown: &Shown) -> Result<Caller, Stranger> {
        let clients = Arc::clone(&self.0.lock());
        clients.find(shown.token.as_ref(), &shown.peer)
    }

    /// Admits these from now on; what former ones have begun goes on.
    pub(crate) fn replace(&self, clients: Clients) {
        let mut now = self.0.lock();
        let clients = Arc::new(clients.after(&now));
        let former = std::mem::replace(&mut *now, clients);
        drop(now);
        drop(former);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_is_read() {
        for (text, wanted) in [("Bearer ab", "ab"), ("bearer cd", "cd"), ("BEARER ", "")] {
            assert_eq!(token_of(text.as_bytes()), Some(wanted.as_bytes()));
        }
        for text in ["Bearer", "Basic ab", "", "ab"] {
            assert_eq!(token_of(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Shown::of(&HeaderMap::new(), &Extensions::new()).token, None);
    }
}
