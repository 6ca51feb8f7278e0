//! A tool as a model: what its JSON Schemas say of tensors.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::arrays::Dtype;
use crate::tool::Tool;

/// The key in a schema that says which array stands behind nested lists. `python/ropewalk/serving/_arrays.py` writes
/// it.
const ARRAY: &str = "x-ropewalk-array";
/// The name of a result that is one tensor.
pub(super) const RESULT: &str = "result";

/// What a parameter or a result is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// An array, with the type of its items if that is said, and its dimensions likewise.
    Array(Option<Dtype>, Option<Vec<Option<i64>>>),
    Bool,
    Int,
    Float,
    Text,
    /// Bytes, which JSON has in base64.
    Bytes,
    /// A list of any kind.
    List,
    /// Anything else: JSON, as a text.
    Json,
}

/// A parameter or a result by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tensor {
    pub(super) name: String,
    pub(super) role: Role,
}

impl Tensor {
    /// KServe's name for the type of its items; empty where any will do.
    pub(super) fn datatype(&self) -> &'static str {
        match &self.role {
            Role::Array(dtype, _) => dtype.and_then(Dtype::datatype).unwrap_or_default(),
            Role::Bool => "BOOL",
            Role::Int => "INT64",
            Role::Float => "FP64",
            Role::Text | Role::Bytes | Role::Json => "BYTES",
            Role::List => "",
        }
    }

    /// Its dimensions: -1 for a length that may be any.
    pub(super) fn shape(&self) -> Vec<i64> {
        match &self.role {
            Role::Array(_, Some(dims)) => dims.iter().map(|dim| dim.unwrap_or(-1)).collect(),
            Role::Array(_, None) | Role::List => vec![-1],
            _ => vec![1],
        }
    }
}

/// The tensors of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) inputs: Vec<Tensor>,
    pub(crate) outputs: Vec<Tensor>,
}

impl Model {
    /// What the schemas of a tool say.
    pub(super) fn of(tool: &Tool) -> Self {
        Self::read(&tool.input_schema, &tool.output_schema)
    }

    pub(crate) fn read(input: &str, output: &str) -> Self {
        Self { inputs: properties(input), outputs: outputs(output) }
    }

    /// What the parameter of this name is; the tool's own checks say that there is none.
    pub(super) fn role(&self, name: &str) -> &Role {
        self.inputs.iter().find(|input| input.name == name).map_or(&Role::Json, |input| &input.role)
    }
}

/// The fields of an object, in their order.
#[derive(Default)]
pub(super) struct Fields(pub(super) Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Fields(fields))
    }
}

/// A schema of an object, as far as it is looked at.
#[derive(Default, Deserialize)]
struct Schema {
    #[serde(default)]
    properties: Fields,
}

fn properties(schema: &str) -> Vec<Tensor> {
    let Schema { properties } = serde_json::from_str(schema).unwrap_or_default();
    properties.0.into_iter().map(|(name, schema)| Tensor { name, role: role(&schema) }).collect()
}

/// A result is one tensor; an object, or a tuple with arrays in it, has one for each part.
fn outputs(text: &str) -> Vec<Tensor> {
    let schema: Value = serde_json::from_str(text).unwrap_or(Value::Null);
    let one = role(&schema);
    if !matches!(one, Role::Array(..)) {
        let named = properties(text);
        if !named.is_empty() {
            return named;
        }
        let parts = schema.get("prefixItems").and_then(Value::as_array).into_iter().flatten();
        let parts: Vec<_> =
            parts.enumerate().map(|(at, part)| Tensor { name: nth(at), role: role(part) }).collect();
        if parts.iter().any(|part| matches!(part.role, Role::Array(..))) {
            return parts;
        }
    }
    vec![Tensor { name: String::from(RESULT), role: one }]
}

/// The name of a part of a tuple.
pub(super) fn nth(at: usize) -> String {
    format!("{RESULT}_{at}")
}

fn role(schema: &Value) -> Role {
    if let Some(array) = schema.get(ARRAY) {
        let dtype = array.get("dtype").and_then(Value::as_str).and_then(Dtype::of_name);
        let dims = array.get("shape").and_then(Value::as_array);
        return Role::Array(dtype, dims.map(|dims| dims.iter().map(Value::as_i64).collect()));
    }
    let is_binary = schema.get("contentEncoding").is_some()
        || matches!(schema.get("format").and_then(Value::as_str), Some("binary" | "base64url"));
    match schema.get("type").and_then(Value::as_str) {
        Some("boolean") => Role::Bool,
        Some("integer") => Role::Int,
        Some("number") => Role::Float,
        Some("string") if is_binary => Role::Bytes,
        Some("string") => Role::Text,
        Some("array") => Role::List,
        _ => Role::Json,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_say_what_tensors_there_are() {
        let input = r#"{"properties": {
            "a": {"type": "array", "x-ropewalk-array": {"dtype": "float32", "shape": ["n", 3]}},
            "b": {"anyOf": [{}], "x-ropewalk-array": {"dtype": null, "shape": null}},
            "c": {"type": "integer"}, "d": {"type": "string"}, "e": {"type": "string", "format": "binary"},
            "f": {"type": "object"}, "g": {"type": "array"}, "h": true, "i": {"type": "number"}}}"#;
        let model = Model::read(input, r#"{"type": "integer"}"#);
        let shown: Vec<_> =
            model.inputs.iter().map(|one| (one.name.as_str(), one.datatype(), one.shape())).collect();
        let wanted = [
            ("a", "FP32", vec![-1, 3]),
            ("b", "", vec![-1]),
            ("c", "INT64", vec![1]),
            ("d", "BYTES", vec![1]),
            ("e", "BYTES", vec![1]),
            ("f", "BYTES", vec![1]),
            ("g", "", vec![-1]),
            ("h", "BYTES", vec![1]),
            ("i", "FP64", vec![1]),
        ];
        assert_eq!(shown, wanted);
        assert_eq!(model.outputs, [Tensor { name: "result".into(), role: Role::Int }]);
        assert_eq!(*model.role("none"), Role::Json);
    }

    #[test]
    fn results_of_several_parts_have_several_outputs() {
        let array = r#"{"x-ropewalk-array": {"dtype": "bool", "shape": []}}"#;
        let names = |schema: &str| -> Vec<String> {
            Model::read("{}", schema).outputs.into_iter().map(|one| one.name).collect()
        };
        assert_eq!(names(&format!(r#"{{"prefixItems": [{array}, true]}}"#)), ["result_0", "result_1"]);
        assert_eq!(names(r#"{"type": "array", "prefixItems": [true]}"#), ["result"]);
        assert_eq!(names(&format!(r#"{{"properties": {{"x": {array}, "y": true}}}}"#)), ["x", "y"]);
        assert_eq!(names("nonsense"), ["result"]);
    }
}
