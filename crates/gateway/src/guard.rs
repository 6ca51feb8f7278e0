//! Whose requests are served: those of clients, if there are such, and none that another site's page has sent.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{HOST, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use http::uri::Authority;
use http::{HeaderMap, Method};

use crate::clients::{Peer, Roster, Shown, Stranger};
use crate::failed::{Code, Failed};
use crate::rpc;

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
    let Some(origin) = request.headers().get(ORIGIN) else {
        // Browsers send none with images and the like, but say where they stand (Fetch Metadata). Links may be
        // followed.
        let said = |name: &str| request.headers().get(name).map_or(&b""[..], HeaderValue::as_bytes);
        let embedded = said("sec-fetch-dest") != b"document";
        return embedded && matches!(said("sec-fetch-site"), b"cross-site" | b"same-site");
    };
    // In HTTP/2 the host is a part of the request's line.
    let host = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let host = host.or_else(|| request.headers().get(HOST).map(HeaderValue::as_bytes));
    let site =
        origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, site)| site.as_bytes());
    site.is_none() || site != host || (is_local && !host.is_some_and(is_this_machine))
}

/// Whether it names a host that is not this machine.
fn is_misnamed(request: &Request) -> bool {
    let host = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let host = host.or_else(|| request.headers().get(HOST).map(HeaderValue::as_bytes));
    // No site has the name of a unix socket.
    let at_address = request.extensions().get::<Peer>().is_none_or(|peer| peer.address.is_some());
    at_address && host.is_some_and(|host| !is_this_machine(host))
}

/// Whether it reads. A browser sends no `Origin` with the reads of a page's own site, so after DNS rebinding the name
/// alone shows that the page is another site's.
fn reads(request: &Request) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
}

/// Whether a proxy says that it has passed the request on (RFC 7239; RFC 9110, section 7.6.3). The headers say nothing
/// that could be believed of anything else. A caller that adds one itself loses by it.
fn is_relayed(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| {
        let name = name.as_str();
        matches!(name, "forwarded" | "via" | "x-real-ip") || name.starts_with("x-forwarded-")
    })
}

/// Why a page is refused whose site is another than the server's.
const OF_ANOTHER_SITE: &str = "a page of another site may not call this server: its Origin is not the Host that it \
     calls. Let a proxy serve both under one host and pass that Host on, and give callers tokens (--token-file, \
     --clients-file)";
/// Why a request is refused that names the server as another site may.
const BY_ANOTHER_NAME: &str = "the Host of the request is not this machine, so it may be that of a page of another \
     site. Behind a proxy that passes its own Host on, give callers tokens (--token-file, --clients-file)";

/// What everybody may ask for: health, and the files of the dashboard, which say nothing of the server and ask for the
/// token themselves.
pub(crate) const PUBLIC: [&str; 6] =
    ["/healthz", "/readyz", "/", "/dashboard.css", "/dashboard.js", "/dashboard.svg"];

/// Whose requests are served.
pub(crate) struct Guard {
    roster: Arc<Roster>,
    /// Whether the server listens to this machine alone.
    is_local: bool,
}

impl Guard {
    pub(crate) fn new(roster: Arc<Roster>, is_local: bool) -> Self {
        Self { roster, is_local }
    }

    /// Whether the server listens to this machine alone, and admits every caller there.
    pub(crate) fn is_local(&self) -> bool {
        self.is_local
    }
}

/// An answer to a request that is not served.
fn refuse(request: &Request, failed: Failed) -> Response {
    if rpc::is_call(request) { rpc::refuse(failed, request.headers()) } else { failed.into_response() }
}

/// Why a caller is not served.
fn refused(request: &Request, why: Stranger) -> Response {
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
    let mut response = refuse(request, Failed::new(Code::Unauthenticated, text));
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    response
}

/// Serves a request, or refuses it.
pub(crate) async fn guard(State(guard): State<Arc<Guard>>, mut request: Request, next: Next) -> Response {
    if PUBLIC.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let names_another = guard.is_local && is_misnamed(&request);
    if is_foreign(&request, guard.is_local) || (names_another && reads(&request)) {
        let text = if is_foreign(&request, false) { OF_ANOTHER_SITE } else { BY_ANOTHER_NAME };
        return refuse(&request, Failed::new(Code::PermissionDenied, text));
    }
    // A proxy passes the name on by which its client has asked, or says in a header that it was there.
    if names_another || is_relayed(request.headers()) {
        request.extensions_mut().get_or_insert_default::<Peer>().is_relayed = true;
    }
    match guard.roster.admit(&Shown::of(request.headers(), request.extensions())) {
        Ok(caller) => request.extensions_mut().insert(caller),
        Err(why) => return refused(&request, why),
    };
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_another_site_s_page_embeds_is_foreign() {
        let foreign = |site: &str| {
            let request = Request::builder().uri("/v1/status/events").header("sec-fetch-site", site);
            is_foreign(&request.body(axum::body::Body::empty()).expect("a request"), true)
        };
        assert!(foreign("cross-site"));
        assert!(foreign("same-site"));
        assert!(!foreign("same-origin"));
        assert!(!foreign("none"));
        let link =
            Request::builder().header("sec-fetch-site", "cross-site").header("sec-fetch-dest", "document");
        assert!(!is_foreign(&link.body(axum::body::Body::empty()).expect("a request"), true));
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

    #[test]
    fn what_a_site_reads_by_a_name_of_its_own_is_misnamed() {
        let refused = |method: Method, host: Option<&str>, peer: Option<Peer>| {
            let mut request = Request::builder().method(method).uri("/metrics");
            if let Some(host) = host {
                request = request.header(HOST, host);
            }
            let mut request = request.body(axum::body::Body::empty()).expect("a request");
            if let Some(peer) = peer {
                request.extensions_mut().insert(peer);
            }
            is_misnamed(&request) && reads(&request)
        };
        assert!(refused(Method::GET, Some("evil.example:8080"), None));
        assert!(refused(Method::HEAD, Some("evil.example:8080"), None));
        assert!(!refused(Method::GET, Some("localhost:8080"), None));
        assert!(!refused(Method::GET, None, None), "a browser says the name");
        assert!(!refused(Method::POST, Some("my-tools:8080"), None), "a browser says its origin");
        assert!(!refused(Method::GET, Some("tools"), Some(Peer::default())), "a unix socket");
    }

    #[test]
    fn a_proxy_says_that_it_has_passed_a_request_on() {
        let relayed = |name: &str| {
            let request = Request::builder().header(HOST, "localhost").header(name, "10.0.0.1");
            is_relayed(request.body(axum::body::Body::empty()).expect("a request").headers())
        };
        for name in ["Forwarded", "Via", "X-Real-IP", "X-Forwarded-For", "x-forwarded-proto"] {
            assert!(relayed(name), "{name}");
        }
        assert!(!relayed("x-ropewalk-meta-forwarded"));
    }
}
