//! What the path and the query of a request say. What is wrong with them is answered as every failure is.

use axum::extract::FromRequestParts;
use axum::extract::Query as InQuery;
use axum::extract::path::Path as InPath;
use axum::extract::rejection::{PathRejection, QueryRejection};
use http::StatusCode;
use http::request::Parts;
use serde::de::DeserializeOwned;

use crate::failed::{Code, Failed, cut};

/// The parts of the path that its route leaves open.
#[derive(Debug)]
pub(crate) struct Path<T>(pub(crate) T);

/// The query.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

fn wrong(part: &str, why: String) -> Failed {
    let text = format!("the {part} of the address cannot be read: {}", cut(why));
    Failed::new(Code::InvalidArgument, text).with_status(StatusCode::BAD_REQUEST)
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failed> {
        let read: Result<InPath<T>, PathRejection> = InPath::from_request_parts(parts, state).await;
        read.map(|InPath(found)| Self(found)).map_err(|error| wrong("path", error.body_text()))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failed> {
        let read: Result<InQuery<T>, QueryRejection> = InQuery::from_request_parts(parts, state).await;
        read.map(|InQuery(found)| Self(found)).map_err(|error| wrong("query", error.body_text()))
    }
}
