//! `GET /openapi.json`: the tools in OpenAPI 3.1, whose schemas are JSON Schemas as they are.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::header::{CONTENT_TYPE, HeaderValue};
use serde_json::{Map, Value, json};

use super::Shared;
use crate::tool::{Tool, Tools};

pub(super) async fn show(State(shared): State<Arc<Shared>>) -> Response {
    let mut response = shared.catalog.get().openapi.clone().into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The document of these tools.
pub(super) fn document(tools: &Tools) -> String {
    let mut schemas = Map::new();
    schemas.insert(String::from("Error"), error());
    let paths: Map<String, Value> = tools
        .iter()
        .map(|tool| (format!("/v1/tools/{}", tool.name), json!({ "post": operation(tool, &mut schemas) })))
        .collect();
    let document = json!({
        "openapi": "3.1.0",
        "info": {"title": "Ropewalk tools", "version": env!("CARGO_PKG_VERSION")},
        "paths": paths,
        "components": {"schemas": schemas},
    });
    document.to_string()
}

fn operation(tool: &Tool, schemas: &mut Map<String, Value>) -> Value {
    let mut schema = |text: &str, role: &str| hoisted(text, &format!("{}.{role}", tool.name), schemas);
    let content = |schema: Value| json!({"application/json": {"schema": schema}});
    let streamed = |schema: Value| {
        let item = json!({"schema": schema});
        json!({"application/jsonl": item.clone(), "text/event-stream": item})
    };
    let input = schema(&tool.input_schema, "input");
    let output = schema(&tool.output_schema, "output");
    let failure = json!({"description": "Why there is no result.",
        "content": content(json!({"$ref": "#/components/schemas/Error"}))});
    json!({
        "operationId": *tool.name,
        "description": tool.description,
        "parameters": [{
            "name": "X-Ropewalk-Timeout", "in": "header", "required": false,
            "description": "Seconds that the caller waits.", "schema": {"type": "number", "minimum": 0},
        }],
        "requestBody": {"required": true, "content": content(input)},
        "responses": {
            "200": {"description": "The result.",
                "content": if tool.streams { streamed(output) } else { content(output) }},
            "default": failure,
        },
    })
}

/// A schema whose definitions stand among the document's components: its references begin at the document's root.
fn hoisted(text: &str, prefix: &str, schemas: &mut Map<String, Value>) -> Value {
    let Ok(mut schema) = serde_json::from_str::<Value>(text) else { return json!(true) };
    let own = schema.as_object_mut().and_then(|schema| schema.remove("$defs"));
    refer(&mut schema, prefix);
    if let Some(Value::Object(own)) = own {
        for (name, mut definition) in own {
            refer(&mut definition, prefix);
            schemas.insert(format!("{prefix}.{name}"), definition);
        }
    }
    schema
}

/// Changes the references to definitions.
fn refer(schema: &mut Value, prefix: &str) {
    match schema {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(place) if key == "$ref" => {
                        if let Some(name) = place.strip_prefix("#/$defs/") {
                            *place = format!("#/components/schemas/{prefix}.{name}");
                        }
                    }
                    value => refer(value, prefix),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| refer(item, prefix)),
        _ => {}
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_of_schemas_are_the_document_s() {
        let text = r##"{"type": "array", "items": {"$ref": "#/$defs/A"}, "$defs":
            {"A": {"properties": {"b": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}}}}}"##;
        let mut schemas = Map::new();
        let place = "#/components/schemas/t.input.A";
        let schema = hoisted(text, "t.input", &mut schemas);
        assert_eq!(schema, json!({"type": "array", "items": {"$ref": place}}));
        let definition = json!({"properties": {"b": {"anyOf": [{"$ref": place}, {"type": "null"}]}}});
        assert_eq!(schemas.get("t.input.A"), Some(&definition));
    }
}
