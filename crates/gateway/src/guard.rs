//! Whose requests are served: those of clients, if there are such, and none that another site's page has sent.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{AUTHORIZATION, HOST, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use http::uri::Authority;
use http::{Extensions, HeaderMap};
use ropewalk_sync::Mutex;

use crate::clients::{Caller, Clients, Peer, Stranger};
use crate::failed::{Code, Failed};
use crate::http::skip;

/// The token that the headers show.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    token_of(headers.get(AUTHORIZATION)?.as_bytes())
}

/// The token of `Authorization: Bearer TOKEN` (RFC 6750, section 2.1).
pub(crate) fn token_of(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
}

/// Whether a host, with its port, is this machine by a name that no other can have.
fn is_this_machine(host: &[u8]) -> bool {
    let Some(host) = std::str::from_utf8(host).ok().and_then(|host| host.parse::<Authority>().ok()) else {
        return false;
    };
    let name = host.host().trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// Whether a browser has sent it for a page of another site. Other clients send no `Origin`.
///
/// A site may give its own name the address of this machine, so that its pages are of the server's site (DNS
/// rebinding). A server that only this machine reaches therefore has none but the machine's own names.
fn is_foreign(request: &Request, is_local: bool) -> bool {
    let Some(origin) = request.headers().get(ORIGIN) else { return false };
    // In HTTP/2 the host is a part of the request's line.
    let host = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let host = host.or_else(|| request.headers().get(HOST).map(HeaderValue::as_bytes));
    let site =
        origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, site)| site.as_bytes());
    site.is_none() || site != host || (is_local && !host.is_some_and(is_this_machine))
}

/// Whether it reads what goes on by a name that may be another site's. A browser sends no `Origin` with the reads of a
/// page's own site, so after DNS rebinding the name alone shows it.
fn is_misnamed(request: &Request) -> bool {
    let host = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let host = host.or_else(|| request.headers().get(HOST).map(HeaderValue::as_bytes));
    request.uri().path().starts_with("/v1/status") && !host.is_some_and(is_this_machine)
}

/// What everybody may ask for: health, and the files of the dashboard, which say nothing of the server and ask for the
/// token themselves.
pub(crate) const PUBLIC: [&str; 6] =
    ["/healthz", "/readyz", "/", "/dashboard.css", "/dashboard.js", "/dashboard.svg"];

/// Where a request came from.
pub(crate) fn peer(extensions: &Extensions) -> Peer {
    extensions.get().cloned().unwrap_or_default()
}

/// Whose requests are served.
pub(crate) struct Guard {
    clients: Mutex<Arc<Clients>>,
    /// Whether the server listens to this machine alone.
    is_local: bool,
}

impl Guard {
    pub(crate) fn new(clients: Arc<Clients>, is_local: bool) -> Self {
        Self { clients: Mutex::new(clients), is_local }
    }

    /// Whether every caller is admitted.
    pub(crate) fn is_open(&self) -> bool {
        self.clients.lock().is_empty()
    }

    /// Whether the server listens to this machine alone, and admits every caller there.
    pub(crate) fn is_local(&self) -> bool {
        self.is_local
    }

    /// The caller that shows this token, at this end of a connection.
    pub(crate) fn caller(&self, token: Option<&[u8]>, peer: &Peer) -> Result<Caller, Stranger> {
        let clients = Arc::clone(&self.clients.lock());
        clients.admit(token, peer)
    }

    /// Admits these from now on; what former ones have begun goes on.
    pub(crate) fn admit(&self, clients: Clients) {
        let mut now = self.clients.lock();
        let clients = Arc::new(clients.after(&now));
        let former = std::mem::replace(&mut *now, clients);
        drop(now);
        drop(former);
    }
}

/// Why a caller is not served. Clients of gRPC read this status of HTTP as UNAUTHENTICATED.
fn refused(why: Stranger) -> Response {
    // RFC 6750, section 3.
    let (text, challenge) = match why {
        Stranger::Unproven => (
            "the request needs the header `Authorization: Bearer TOKEN`, with a token that the server knows",
            "Bearer",
        ),
        Stranger::Unknown => (
            "the server does not know the token, or not with this certificate",
            "Bearer error=\"invalid_token\"",
        ),
        Stranger::Expired => {
            ("the caller's token or certificate has expired here", "Bearer error=\"invalid_token\"")
        }
    };
    let mut response = Failed::new(Code::Unauthenticated, text).into_response();
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    response
}

/// Serves a request, or refuses it.
pub(crate) async fn guard(State(guard): State<Arc<Guard>>, mut request: Request, next: Next) -> Response {
    if PUBLIC.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    if is_foreign(&request, guard.is_local) || (guard.is_local && is_misnamed(&request)) {
        let text = "a page of another site may not call this server";
        skip(request).await;
        return Failed::new(Code::PermissionDenied, text).into_response();
    }
    match guard.caller(bearer(request.headers()), &peer(request.extensions())) {
        Ok(caller) => request.extensions_mut().insert(caller),
        Err(why) => {
            skip(request).await;
            return refused(why);
        }
    };
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_is_read() {
        let shown = |text: &str| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, text.parse().expect("a header"))]);
            bearer(&headers).map(<[u8]>::to_vec)
        };
        for (text, wanted) in [("Bearer ab", "ab"), ("bearer cd", "cd"), ("BEARER ", "")] {
            assert_eq!(shown(text).as_deref(), Some(wanted.as_bytes()));
        }
        for text in ["Bearer", "Basic ab", "", "ab"] {
            assert_eq!(shown(text), None, "{text}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[test]
    fn pages_of_other_sites_are_foreign() {
        let foreign = |origin: &str, host: &str| {
            let request = Request::builder().uri("/v1/tools").header(ORIGIN, origin).header(HOST, host);
            is_foreign(&request.body(axum::body::Body::empty()).expect("a request"), true)
        };
        assert!(!foreign("http://localhost:8080", "localhost:8080"));
        assert!(foreign("http://localhost:3000", "localhost:8080"));
        assert!(foreign("https://example.org", "localhost:8080"));
        assert!(foreign("null", "localhost:8080"));
        assert!(!is_foreign(&Request::new(axum::body::Body::empty()), true));
    }

    #[test]
    fn a_site_that_takes_the_address_of_this_machine_is_foreign() {
        let foreign = |host: &str, is_local| {
            let request = Request::builder().header(ORIGIN, format!("http://{host}")).header(HOST, host);
            is_foreign(&request.body(axum::body::Body::empty()).expect("a request"), is_local)
        };
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "[::1]:8080"] {
            assert!(!foreign(host, true), "{host}");
        }
        for host in ["evil.example:8080", "10.0.0.1", "localhost.evil.example", ""] {
            assert!(foreign(host, true), "{host}");
        }
        assert!(!foreign("tools.example:8080", false));
    }
}
