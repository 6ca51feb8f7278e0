//! Answers and failures in HTTP's words.

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use serde_json::json;

use super::npy;
use crate::arrays::Results;
use crate::call::{Answer, Form};
use crate::failed::{Code, Failed, Violation};

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        if self.form == Form::Arrays {
            return match Results::read(&self.bytes).and_then(Results::only) {
                Some(array) => npy::answer(&array),
                None => Failed::new(Code::Internal, "the tool's worker has sent no array").into_response(),
            };
        }
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

/// The time of a `Retry-After`: whole seconds (RFC 9110, section 10.2.3), none of them too early, and never none.
pub(crate) fn whole_seconds(time: Duration) -> u64 {
    (time.as_secs() + u64::from(time.subsec_nanos() > 0)).max(1)
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(document(&self).to_string()));
        *response.status_mut() = self.status.unwrap_or_else(|| self.code.status());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(time) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(time)));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_never_asked_to_come_too_early() {
        for (millis, wanted) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (59_999, 60)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), wanted);
        }
    }
}
