//! Arrays over HTTP: files of NumPy's, as a body and as an answer.

use axum::body::{Body, Bytes};
use axum::response::Response;
use futures::stream;
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};

use super::tools::accepts;
use crate::arrays::{Array, Given, npy_head, read_npy};
use crate::call::{Beside, Form};
use crate::envelope::invalid;
use crate::failed::{Failed, Violation};

/// What NumPy's files are called.
pub(super) const MEDIA_TYPE: &str = "application/x-npy";

/// What the body gives to the tool, and how the caller wants the result.
pub(super) fn given(form: Form, body: Bytes, headers: &HeaderMap, streams: bool) -> Result<Given, Failed> {
    let mut given = if form == Form::Array {
        let wrong = |description| invalid(vec![Violation { field: String::new(), description }]);
        Given::one(read_npy(&body).map_err(wrong)?)
    } else {
        Given { form, arguments: body, beside: Beside::default() }
    };
    // The items of a stream are lines of JSON.
    given.beside.wanted = if !streams && accepts(headers, MEDIA_TYPE) {
        Some(Form::Array)
    } else {
        (given.form == Form::Arrays).then_some(Form::Json)
    };
    Ok(given)
}

/// An array as the body of an answer. Its items are not copied.
pub(super) fn answer(array: &Array) -> Response {
    let head = npy_head(array);
    let length = head.len() + array.data.len();
    let parts = [head, array.data.clone()].map(Ok::<_, std::convert::Infallible>);
    let mut response = Response::new(Body::from_stream(stream::iter(parts)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    response
}
