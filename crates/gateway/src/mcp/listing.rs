//! The tools as MCP lists them, and the form in which each gives its result.

use std::collections::HashMap;
use std::sync::Arc;

use rmcp::model::{JsonObject, ListToolsResult, Tool as Listed, ToolAnnotations};
use serde_json::{Map, Value, json};

use super::sessions;
use crate::clients::Caller;
use crate::failed::Failed;
use crate::tool::{SessionTool, Tool, Tools};

/// Tools on a page of `tools/list`.
const PAGE: usize = 100;

/// What a tool's `structuredContent` is. MCP wants objects there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// The tool says nothing of its result: an object stands as it is, anything else is text alone.
    Unknown,
    /// An object, as it is.
    Object,
    /// `{"result": …}`, around a result that is no object, or around the items of a stream.
    Wrapped,
}

/// What a tool of MCP is here.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// A tool.
    Tool,
    /// It opens a session.
    Open(Arc<SessionTool>),
    /// It calls a method of a session.
    Method(Arc<SessionTool>),
    /// It ends a session.
    Close(Arc<SessionTool>),
}

/// A tool, as MCP shows it.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) kind: Kind,
    /// What runs. What ends a session runs more than that.
    pub(super) tool: Arc<Tool>,
    pub(super) shape: Shape,
    /// Whether its schema wants arguments in headers, too.
    pub(super) has_headers: bool,
    /// The tool's place in the list.
    place: usize,
}

/// All tools.
#[derive(Debug)]
pub(super) struct Listing {
    by_name: HashMap<Arc<str>, Shown>,
    listed: Vec<Listed>,
}

impl Listing {
    pub(super) fn new(tools: &Tools) -> Self {
        let mut by_name = HashMap::new();
        let mut listed = Vec::new();
        let mut add = |kind: Kind, tool: &Arc<Tool>, (made, shape): (Listed, Shape)| {
            let has_headers = tool.input_schema.contains("x-mcp-header");
            let (name, tool, place) = (Arc::from(&*made.name), Arc::clone(tool), listed.len());
            listed.push(made);
            by_name.insert(name, Shown { kind, tool, shape, has_headers, place });
        };
        for tool in tools.iter() {
            add(Kind::Tool, tool, described(tool));
        }
        for of in tools.sessions() {
            add(Kind::Open(Arc::clone(of)), &of.open, sessions::opens(of, described(&of.open).0));
            for tool in of.methods.values() {
                add(Kind::Method(Arc::clone(of)), tool, sessions::calls(of, described(tool)));
            }
            add(Kind::Close(Arc::clone(of)), of.close.as_ref().unwrap_or(&of.open), sessions::closes(of));
        }
        Self { by_name, listed }
    }

    fn get(&self, name: &str) -> Option<&Shown> {
        self.by_name.get(name)
    }

    /// Whether the caller may know of the tool of this name. Who may open a session may call what it has.
    pub(super) fn may_call(&self, caller: &Caller, name: &str) -> bool {
        match self.get(name).map(|shown| &shown.kind) {
            Some(Kind::Open(of) | Kind::Method(of) | Kind::Close(of)) => caller.may_call(of.name()),
            Some(Kind::Tool) | None => caller.may_call(name),
        }
    }

    /// The tool of this name, if the caller may call it.
    pub(super) fn shown(&self, caller: &Caller, name: &str) -> Result<&Shown, Failed> {
        if !self.may_call(caller, name) {
            return Err(Caller::denied(name));
        }
        self.get(name).ok_or_else(|| Failed::no_tool(name))
    }

    /// The tool's description.
    pub(super) fn described(&self, name: &str) -> Option<&Listed> {
        self.listed.get(self.get(name)?.place)
    }

    /// A page of what a caller may know of. A cursor is the name of the last tool of the page before; `None` if there
    /// is no such tool.
    pub(super) fn page(&self, caller: &Caller, cursor: Option<&str>) -> Option<ListToolsResult> {
        let place = |name: &str| Some(self.get(name).filter(|_| self.may_call(caller, name))?.place + 1);
        let begin = cursor.map_or(Some(0), place)?;
        let mut left = self.listed.get(begin..)?.iter().filter(|tool| self.may_call(caller, &tool.name));
        let page: Vec<Listed> = left.by_ref().take(PAGE).cloned().collect();
        let has_more = left.next().is_some();
        let next = page.last().filter(|_| has_more).map(|tool| tool.name.to_string());
        Some(ListToolsResult { next_cursor: next, ..ListToolsResult::with_all_items(page) })
    }
}

fn object(text: &str) -> Option<JsonObject> {
    serde_json::from_str(text).ok()
}

fn described(tool: &Tool) -> (Listed, Shape) {
    let input = object(&tool.input_schema)
        .unwrap_or_else(|| Map::from_iter([(String::from("type"), json!("object"))]));
    let (output, shape) = output(object(&tool.output_schema), tool.streams);
    let description = (!tool.description.is_empty()).then(|| tool.description.clone().into());
    let mut made = Listed::new_with_raw(tool.name.to_string(), description, Arc::new(input));
    made.output_schema = output.map(Arc::new);
    let mut hints = ToolAnnotations::new();
    // A hint that is absent says that the tool may do harm: only what the tool declares is said.
    if tool.read_only {
        hints = hints.read_only(true);
    }
    if tool.idempotent {
        hints = hints.idempotent(true);
    }
    made.annotations = (tool.read_only || tool.idempotent).then_some(hints);
    (made, shape)
}

/// The schema of a tool's `structuredContent`, by that of its result or of each item.
fn output(schema: Option<JsonObject>, streams: bool) -> (Option<JsonObject>, Shape) {
    let schema = schema.unwrap_or_default();
    if streams {
        let (items, definitions) = apart(schema);
        return (Some(wrapped(json!({"type": "array", "items": items}), definitions)), Shape::Wrapped);
    }
    if schema.is_empty() {
        return (None, Shape::Unknown);
    }
    let schema = resolved(schema);
    if schema.get("type") == Some(&json!("object")) {
        return (Some(schema), Shape::Object);
    }
    let (result, definitions) = apart(schema);
    (Some(wrapped(Value::Object(result), definitions)), Shape::Wrapped)
}

/// A schema and its definitions: references to them begin at the root.
fn apart(mut schema: JsonObject) -> (JsonObject, Option<Value>) {
    let definitions = schema.remove("$defs");
    (schema, definitions)
}

fn wrapped(result: Value, definitions: Option<Value>) -> JsonObject {
    let mut made = Map::new();
    if let Some(definitions) = definitions {
        made.insert(String::from("$defs"), definitions);
    }
    made.insert(String::from("type"), json!("object"));
    made.insert(String::from("properties"), json!({ "result": result }));
    made.insert(String::from("required"), json!(["result"]));
    made
}

/// The schema with the definition in place of a root that only refers to it, as msgspec and recursive models have it.
fn resolved(schema: JsonObject) -> JsonObject {
    let own = || {
        let name = schema.get("$ref")?.as_str()?.strip_prefix("#/$defs/")?;
        let definitions = schema.get("$defs")?;
        let mut found = definitions.get(name)?.as_object()?.clone();
        found.entry("$defs").or_insert_with(|| definitions.clone());
        Some(found)
    };
    own().unwrap_or(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(value: Value) -> (Option<Value>, Shape) {
        let (made, shape) = output(value.as_object().cloned(), false);
        (made.map(Value::Object), shape)
    }

    #[test]
    fn a_result_that_is_no_object_is_wrapped_in_one() {
        let (made, shape) = schema(json!({"type": "integer"}));
        assert_eq!(shape, Shape::Wrapped);
        let wanted =
            json!({"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]});
        assert_eq!(made, Some(wanted));
    }

    #[test]
    fn definitions_stay_at_the_root() {
        let point = json!({"type": "object", "properties": {"x": {"type": "integer"}}});
        let refers = json!({"$ref": "#/$defs/Point"});
        let (made, shape) = schema(json!({"$ref": "#/$defs/Point", "$defs": {"Point": point.clone()}}));
        assert_eq!(shape, Shape::Object);
        let made = made.expect("a schema");
        assert_eq!((made.get("type"), made.pointer("/$defs/Point")), (Some(&json!("object")), Some(&point)));

        let (made, shape) =
            schema(json!({"type": "array", "items": refers.clone(), "$defs": {"Point": point.clone()}}));
        assert_eq!(shape, Shape::Wrapped);
        let made = made.expect("a schema");
        assert_eq!(made.pointer("/properties/result/items"), Some(&refers));
        assert_eq!(made.pointer("/$defs/Point"), Some(&point));
        assert_eq!(made.pointer("/properties/result/$defs"), None);
    }

    #[test]
    fn a_result_of_which_nothing_is_known_has_no_schema() {
        assert_eq!(schema(json!({})), (None, Shape::Unknown));
        assert_eq!(output(None, false), (None, Shape::Unknown));
    }
}
