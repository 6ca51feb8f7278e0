//! The page: three files and an icon, which ask for nothing that is not the server's.

use axum::Router;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};

/// Path, media type and text of each file.
const FILES: [(&str, &str, &str); 4] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/dashboard.css", "text/css; charset=utf-8", include_str!("page/dashboard.css")),
    ("/dashboard.js", "text/javascript; charset=utf-8", include_str!("page/dashboard.js")),
    ("/dashboard.svg", "image/svg+xml", include_str!("page/dashboard.svg")),
];

/// What the page may load and do: nothing but its own files and this server's calls; no script or style in the text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) fn routes() -> Router {
    FILES.iter().fold(Router::new(), |router, (path, media_type, text)| {
        router.route(path, get(move || async move { file(media_type, text) }))
    })
}

fn file(media_type: &'static str, text: &'static str) -> Response {
    let mut response = text.into_response();
    let headers = response.headers_mut();
    let mut add = |name: HeaderName, value: &'static str| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    add(CONTENT_TYPE, media_type);
    add(CONTENT_SECURITY_POLICY, POLICY);
    add(X_CONTENT_TYPE_OPTIONS, "nosniff");
    add(REFERRER_POLICY, "no-referrer");
    // Another version of the server may be there tomorrow.
    add(CACHE_CONTROL, "no-cache");
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::PUBLIC;

    #[test]
    fn everybody_may_read_the_files_and_they_name_nothing_elsewhere() {
        for (path, _, text) in FILES {
            assert!(PUBLIC.contains(&path), "{path}");
            let elsewhere = ["http://", "https://", "//cdn"].iter().filter(|what| text.contains(**what));
            // The name of a language is an address by its form.
            let allowed = text.matches("http://www.w3.org/2000/svg").count();
            assert!(elsewhere.count() <= allowed, "{path} loads from elsewhere");
            assert!(
                !text.contains(" style=") && !text.contains("<script>"),
                "{path} has what the policy forbids"
            );
        }
        assert!(!POLICY.contains("unsafe"));
    }
}
