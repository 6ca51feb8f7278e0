//! Answers and failures in HTTP's words.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use serde_json::json;

use crate::call::Answer;
use crate::failed::{Failed, Violation};

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.bytes));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(self.form.media_type()));
        response
    }
}

/// The failure as JSON: `{"error": {"code", "message", "violations"}}`.
pub(crate) fn document(failed: &Failed) -> serde_json::Value {
    let violations: &[Violation] = &failed.violations;
    let mut error = json!({"code": failed.code.name(), "message": failed.message});
    if !violations.is_empty()
        && let Some(error) = error.as_object_mut()
    {
        error.insert(String::from("violations"), json!(violations));
    }
    json!({ "error": error })
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(document(&self).to_string()));
        *response.status_mut() = self.status.unwrap_or_else(|| self.code.status());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(time) = self.retry_after {
            // Whole seconds, as RFC 9110, section 10.2.3 wants them, and never none.
            headers.insert(RETRY_AFTER, HeaderValue::from(time.as_secs().max(1)));
        }
        response
    }
}
