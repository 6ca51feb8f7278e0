//! `GET /openapi.json`: the tools in OpenAPI 3.1, whose schemas are JSON Schemas as they are.

use std::collections::BTreeMap;
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
    let mut paths: Map<String, Value> = tools
        .iter()
        .map(|tool| (format!("/v1/tools/{}", tool.name), json!({ "post": operation(tool, &mut schemas) })))
        .collect();
    paths.extend(sessions(tools, &mut schemas));
    let document = json!({
        "openapi": "3.1.0",
        "info": {"title": "Ropewalk tools", "version": env!("CARGO_PKG_VERSION")},
        "paths": paths,
        "components": {"schemas": schemas},
    });
    document.to_string()
}

/// The paths of sessions. Those of methods do not say what the session is of: methods of one name share a path.
fn sessions(tools: &Tools, schemas: &mut Map<String, Value>) -> Map<String, Value> {
    let mut paths = Map::new();
    let mut methods: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for of in tools.sessions() {
        let mut opens = operation(&of.open, schemas);
        if let Some(responses) = opens.get_mut("responses").and_then(Value::as_object_mut) {
            responses.remove("200");
            responses.insert(String::from("201"), opened());
        }
        paths.insert(format!("/v1/sessions/{}", of.name()), json!({ "post": opens }));
        for (name, tool) in &of.methods {
            methods.entry(name).or_default().push(operation(tool, schemas));
        }
    }
    if paths.is_empty() {
        return paths;
    }
    let session = json!({"name": "session", "in": "path", "required": true, "schema": {"type": "string"},
        "description": "What POST /v1/sessions/NAME has given."});
    let ends = json!({
        "operationId": "sessions.end", "description": "Ends a session.", "parameters": [session.clone()],
        "responses": {"204": {"description": "It has ended."}, "default": failure()},
    });
    paths.insert(String::from("/v1/sessions/{session}"), json!({ "delete": ends }));
    for (name, operations) in methods {
        let mut operation = merged(name, operations);
        if let Some(parameters) = operation.get_mut("parameters").and_then(Value::as_array_mut) {
            parameters.insert(0, session.clone());
        }
        paths.insert(format!("/v1/sessions/{{session}}/{name}"), json!({ "post": operation }));
    }
    paths
}

fn opened() -> Value {
    let schema = json!({
        "type": "object", "required": ["session", "idle_timeout"],
        "properties": {"session": {"type": "string"}, "idle_timeout": {"type": "number"}},
    });
    json!({
        "description": "The session is open.", "content": {"application/json": {"schema": schema}},
        "headers": {"Location": {"required": true, "schema": {"type": "string"}}},
    })
}

/// One operation for the methods of this name: each schema is one of theirs.
fn merged(name: &str, operations: Vec<Value>) -> Value {
    let mut operations = operations.into_iter();
    let mut first = operations.next().unwrap_or_default();
    for other in operations {
        first["operationId"] = json!(format!("sessions.{name}"));
        for place in ["/requestBody/content", "/responses/200/content"] {
            let more = other.pointer(place).and_then(Value::as_object).cloned().unwrap_or_default();
            let Some(content) = first.pointer_mut(place).and_then(Value::as_object_mut) else { continue };
            for (media_type, one) in more {
                let known = content.remove(&media_type);
                let both = known.map_or(
                    one.clone(),
                    |known| json!({"schema": {"anyOf": [known["schema"], one["schema"]]}}),
                );
                content.insert(media_type, both);
            }
        }
    }
    first
}

fn failure() -> Value {
    let schema = json!({"$ref": "#/components/schemas/Error"});
    json!({"description": "Why there is no result.", "content": {"application/json": {"schema": schema}}})
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
            "default": failure(),
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
    fn methods_of_one_name_share_a_path() {
        let of = |kind: &str, media_type: &str| {
            json!({"operationId": kind, "requestBody": {"content": {"application/json": {"schema": kind}}},
                "responses": {"200": {"content": {media_type: {"schema": kind}}}}})
        };
        let both = merged("add", vec![of("A", "application/json"), of("B", "text/event-stream")]);
        assert_eq!(both["operationId"], "sessions.add");
        let asked = both.pointer("/requestBody/content/application~1json/schema/anyOf");
        assert_eq!(asked, Some(&json!(["A", "B"])));
        let said = both.pointer("/responses/200/content").and_then(Value::as_object);
        assert_eq!(said.map(Map::len), Some(2));
        let one = merged("add", vec![of("A", "application/json")]);
        assert_eq!(one["operationId"], "A");
    }

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
