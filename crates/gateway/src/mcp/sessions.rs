//! Sessions as tools: one opens a session and gives its name, the methods have the name as an argument, one ends it.
//!
//! The protocol's own sessions, in the revisions that have them, are connections; an agent may want several of ours.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use rmcp::model::{JsonObject, Tool as Listed};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::listing::Shape;
use crate::envelope::invalid;
use crate::failed::{Failed, Violation};
use crate::tool::SessionTool;

/// The argument of methods that names the session.
const SESSION: &str = "session";

fn argument(of: &SessionTool) -> Value {
    json!({"type": "string", "description": format!("The session, as {} has named it.", of.name())})
}

fn schema(properties: Value) -> JsonObject {
    let mut made = Map::new();
    made.insert(String::from("type"), json!("object"));
    made.insert(String::from("properties"), properties);
    made.insert(String::from("required"), json!([SESSION]));
    made
}

/// The tool that opens a session.
pub(super) fn opens(of: &SessionTool, mut listed: Listed) -> (Listed, Shape) {
    let names: Vec<String> = of.methods.keys().map(|name| format!("{}.{name}", of.name())).collect();
    let own = &of.open.description;
    let text = format!(
        "{own}{}Opens a session, and gives its name: pass that as `session` to {}, and to {}.close at the end. The \
         session ends by itself when it was not called for {} seconds.",
        if own.is_empty() { "" } else { "\n\n" },
        names.join(", "),
        of.name(),
        of.idle_timeout.as_secs_f64(),
    );
    listed.description = Some(text.into());
    listed.output_schema = Some(Arc::new(schema(json!({SESSION: argument(of)}))));
    (listed, Shape::Object)
}

/// The tool that calls a method.
pub(super) fn calls(of: &SessionTool, (mut listed, shape): (Listed, Shape)) -> (Listed, Shape) {
    let mut input = JsonObject::clone(&listed.input_schema);
    let properties = input.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        properties.insert(String::from(SESSION), argument(of));
    }
    let required = input.entry("required").or_insert_with(|| json!([]));
    if let Some(required) = required.as_array_mut() {
        required.insert(0, json!(SESSION));
    }
    listed.input_schema = Arc::new(input);
    (listed, shape)
}

/// The tool that ends a session.
pub(super) fn closes(of: &SessionTool) -> (Listed, Shape) {
    let text = format!("Ends a session that {} has opened.", of.name());
    let input = schema(json!({SESSION: argument(of)}));
    let listed = Listed::new_with_raw(format!("{}.close", of.name()), Some(text.into()), Arc::new(input));
    (listed, Shape::Unknown)
}

/// The session that arguments name, and the others, as they came.
pub(super) fn apart(arguments: &[u8]) -> Result<(String, Bytes), Failed> {
    let wrong = |field: &str, description: &str| {
        invalid(vec![Violation { field: field.to_owned(), description: description.to_owned() }])
    };
    let given: Result<BTreeMap<Cow<'_, str>, &RawValue>, _> = serde_json::from_slice(arguments);
    let mut given = given.map_err(|_| wrong("", "the arguments are no object"))?;
    let session = given.remove(SESSION).ok_or_else(|| wrong(SESSION, "it is missing"))?;
    let session = serde_json::from_str(session.get()).map_err(|_| wrong(SESSION, "it is no text"))?;
    let others = serde_json::to_vec(&given).map_err(|_| wrong("", "the arguments cannot be read"))?;
    Ok((session, others.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_is_taken_from_the_arguments() {
        let (session, others) =
            apart(br#"{"n": 36893488147419103232, "session": "a", "b": [1.0]}"#).expect("fine");
        assert_eq!((&*session, &others[..]), ("a", &br#"{"b":[1.0],"n":36893488147419103232}"#[..]));
        for (given, field) in [(&b"{}"[..], "session"), (b"{\"session\": 1}", "session"), (b"[]", "")] {
            let failed = apart(given).expect_err("it is wrong");
            assert_eq!(failed.violations.first().map(|one| &*one.field), Some(field));
        }
    }
}
