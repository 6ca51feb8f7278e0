//! `GET /openapi.json`: the tools in OpenAPI 3.1, whose schemas are JSON Schemas as they are.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::header::{CONTENT_TYPE, HeaderValue};
use serde_json::{Map, Value, json};

use super::Shared;
use crate::tool::{Tool, Tools};

pub(super) async fn show(State(shared): State<Arc<Shared>>) -> Response {
    let mut response = shared.openapi.clone().into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The document of these tools.
pub(super) fn document(tools: &Tools) -> String {
    let paths: Map<String, Value> = tools
        .iter()
        .map(|tool| (format!("/v1/tools/{}", tool.name), json!({ "post": operation(tool) })))
        .collect();
    let document = json!({
        "openapi": "3.1.0",
        "info": {"title": "Ropewalk tools", "version": env!("CARGO_PKG_VERSION")},
        "paths": paths,
        "components": {"schemas": {"Error": error()}},
    });
    document.to_string()
}

fn operation(tool: &Tool) -> Value {
    let schema = |text: &str| serde_json::from_str::<Value>(text).unwrap_or(json!(true));
    let content = |schema: Value| json!({"application/json": {"schema": schema}});
    let streamed = |schema: Value| json!({"application/jsonl": {"schema": schema.clone()}, "text/event-stream": {"schema": schema}});
    let output = schema(&tool.output_schema);
    let failure = json!({"description": "Why there is no result.",
        "content": content(json!({"$ref": "#/components/schemas/Error"}))});
    json!({
        "operationId": *tool.name,
        "description": tool.description,
        "parameters": [{
            "name": "X-Ropewalk-Timeout", "in": "header", "required": false,
            "description": "Seconds that the caller waits.", "schema": {"type": "number", "minimum": 0},
        }],
        "requestBody": {"required": true, "content": content(schema(&tool.input_schema))},
        "responses": {
            "200": {"description": "The result.",
                "content": if tool.streams { streamed(output) } else { content(output) }},
            "default": failure,
        },
    })
}

fn error() -> Value {
    let text = json!({"type": "string"});
    json!({
        "type": "object", "required": ["error"],
        "properties": {"error": {
            "type": "object", "required": ["code", "message"],
            "properties": {
                "code": text, "message": text,
                "violations": {"type": "array", "items": {
                    "type": "object", "required": ["field", "description"],
                    "properties": {"field": text, "description": text},
                }},
            },
        }},
    })
}
