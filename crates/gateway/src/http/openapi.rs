//! `GET /openapi.json`: the tools in OpenAPI 3.1, whose schemas are JSON Schemas as they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::header::{CONTENT_TYPE, HeaderValue};
use serde_json::{Map, Value, json};

use super::Shared;
use crate::clients::Caller;
use crate::tool::{SessionTool, Tool};

pub(super) async fn show(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (caller, catalog) = (Caller::of(request.extensions()), shared.catalog.get());
    let text = if caller.sees_all() {
        catalog.openapi.clone()
    } else {
        document(catalog.tools_of(&caller), catalog.sessions_of(&caller))
    };
    let mut response = text.into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The document of these tools and sessions.
pub(super) fn document<'a>(
    tools: impl Iterator<Item = &'a Arc<Tool>>,
    of: impl Iterator<Item = &'a Arc<SessionTool>>,
) -> String {
    let mut schemas = Map::new();
    schemas.insert(String::from("Error"), error());
    let mut paths: Map<String, Value> = tools
        .map(|tool| (format!("/v1/tools/{}", tool.name), json!({ "post": operation(tool, &mut schemas) })))
        .collect();
    paths.extend(sessions(of, &mut schemas));
    let document = json!({
        "openapi": "3.1.0",
        "info": {"title": "Ropewalk tools", "version": env!("CARGO_PKG_VERSION")},
        "paths": paths,
        "components": {"schemas": schemas},
    });
    document.to_string()
}

/// Why a call has no result, by its status.
const FAILURES: [(&str, &str); 14] = [
    ("400", "The request is malformed, or the tool says that it cannot be met."),
    ("401", "The caller did not say who it is."),
    ("403", "The caller may not do this."),
    ("408", "The body did not come in time."),
    ("409", "The tool says that it is there already, or that another caller was faster."),
    ("413", "The body is larger than the server takes."),
    ("415", "The body is of a media type that is not read."),
    ("422", "The arguments do not fit, or the tool says so: each violation names a field."),
    ("429", "The server is full: try again after some seconds."),
    ("499", "The call was cancelled."),
    ("500", "The tool raised, or its result cannot be written."),
    ("501", "The tool says that it does not do that."),
    ("503", "The tool's worker died, or the server leaves: the call may be tried again."),
    ("504", "The time of the caller, or that of the tool, is up."),
];

/// The paths of sessions. Those of methods do not say what the session is of: methods of one name share a path.
fn sessions<'a>(
    sessions: impl Iterator<Item = &'a Arc<SessionTool>>,
    schemas: &mut Map<String, Value>,
) -> Map<String, Value> {
    let mut paths = Map::new();
    let mut methods: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for of in sessions {
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
        "responses": {"204": {"description": "It has ended."}, "default": failure(NO_RESULT)},
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
                // Bytes and arrays have no schema.
                let both = match known.as_ref().map(|known| (known.get("schema"), one.get("schema"))) {
                    Some((Some(known), Some(one))) => json!({"schema": {"anyOf": [known, one]}}),
                    _ => one,
                };
                content.insert(media_type, both);
            }
        }
    }
    first
}

const NO_RESULT: &str = "Why there is no result.";

fn failure(text: &str) -> Value {
    let schema = json!({"$ref": "#/components/schemas/Error"});
    json!({"description": text, "content": {"application/json": {"schema": schema}}})
}

fn operation(tool: &Tool, schemas: &mut Map<String, Value>) -> Value {
    let mut schema = |text: &str, role: &str| hoisted(text, &format!("{}.{role}", tool.name), schemas);
    let input = schema(&tool.input_schema, "input");
    let output = schema(&tool.output_schema, "output");
    let success = json!({"description": "The result.",
        "content": if tool.streams { streamed(&output) } else { answered(&output) }});
    let mut responses = Map::new();
    responses.insert(String::from("200"), success);
    for (status, text) in FAILURES {
        let mut failure = failure(text);
        if status == "429" {
            let seconds = json!({"schema": {"type": "integer", "minimum": 1}, "required": false,
                "description": "Seconds after which a new try is worth it, if the server is what is full."});
            failure["headers"] = json!({ "Retry-After": seconds });
        }
        responses.insert(status.to_owned(), failure);
    }
    // A tool chooses among other statuses itself.
    responses.insert(String::from("default"), failure(NO_RESULT));
    json!({
        "operationId": *tool.name,
        "description": tool.description,
        "parameters": [{
            "name": "X-Ropewalk-Timeout", "in": "header", "required": false,
            "description": "Seconds that the caller waits.", "schema": {"type": "number", "minimum": 0},
        }],
        "requestBody": {"required": true, "content": taken(input)},
        "responses": responses,
    })
}

/// What stands in a schema for an array; `python/ropewalk/serving/_arrays.py` writes it.
const ARRAY: &str = "x-ropewalk-array";

/// Whether a schema is that of bytes.
fn is_binary(schema: &Value) -> bool {
    schema.get("contentEncoding").is_some()
        || matches!(schema.get("format").and_then(Value::as_str), Some("binary" | "base64url"))
}

/// The media types that a tool takes: one of its own for a parameter that is alone in being bytes, or an array.
fn taken(schema: Value) -> Value {
    let mut content = Map::new();
    let properties: Vec<_> =
        schema.get("properties").and_then(Value::as_object).into_iter().flatten().collect();
    if matches!(properties[..], [(_, only)] if is_binary(only)) {
        content.insert(String::from("application/octet-stream"), json!({}));
    }
    if properties.iter().filter(|(_, one)| one.get(ARRAY).is_some()).count() == 1 {
        content.insert(String::from("application/x-npy"), json!({}));
    }
    content.insert(String::from("application/json"), json!({ "schema": schema }));
    Value::Object(content)
}

/// The media types of a result.
fn answered(schema: &Value) -> Value {
    let bytes = ("application/octet-stream", json!({}));
    let json = ("application/json", json!({ "schema": schema }));
    // Without an annotation it may be anything.
    let says_nothing = schema.as_object().is_none_or(Map::is_empty);
    let content: Vec<(&str, Value)> = if is_binary(schema) {
        vec![bytes]
    } else if says_nothing {
        vec![bytes, json]
    } else if schema.get(ARRAY).is_some() {
        vec![json, ("application/x-npy", json!({}))]
    } else {
        vec![json]
    };
    Value::from_iter(content)
}

/// Those of a stream.
fn streamed(schema: &Value) -> Value {
    let item = json!({ "schema": schema });
    json!({"application/jsonl": item.clone(), "text/event-stream": item})
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
