//! Arguments with arrays among them, on their way to the worker.

use std::collections::HashSet;

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Array;
use crate::call::{Beside, Form};
use crate::failed::Violation;

/// Arrays that a call may have.
const MOST_ARRAYS: usize = 256;

/// What a call is given.
#[derive(Debug)]
pub(crate) struct Given {
    /// What the arguments are.
    pub(crate) form: Form,
    /// Those that are no arrays: a JSON object.
    pub(crate) arguments: Bytes,
    /// The arrays.
    pub(crate) beside: Beside,
}

impl Given {
    /// One array, for the one parameter that is an array.
    pub(crate) fn one(array: Array) -> Self {
        let mut named = Named::default();
        named.arrays.push((None, array));
        named.given()
    }
}

/// Arguments by their names.
#[derive(Debug, Default)]
pub(crate) struct Named {
    /// The fields of the object so far, without its braces.
    json: Vec<u8>,
    arrays: Vec<(Option<String>, Array)>,
    names: HashSet<String>,
    /// What is wrong with some.
    pub(crate) wrong: Vec<Violation>,
}

impl Named {
    /// Adds an argument that is JSON.
    pub(crate) fn add_json(&mut self, name: &str, text: &[u8]) {
        // A text that were more than one value would name arguments by itself.
        match serde_json::from_slice::<&RawValue>(text) {
            Ok(value) => self.add_value(name, value.get()),
            Err(error) => self.refuse(name, format!("Invalid JSON: {error}")),
        }
    }

    /// Adds an argument whose JSON is sound.
    pub(crate) fn add_value(&mut self, name: &str, text: &str) {
        if !self.is_new(name) {
            return;
        }
        if !self.json.is_empty() {
            self.json.push(b',');
        }
        self.json.extend_from_slice(Value::from(name).to_string().as_bytes());
        self.json.push(b':');
        self.json.extend_from_slice(text.as_bytes());
    }

    /// Adds an argument that is an array.
    pub(crate) fn add_array(&mut self, name: &str, array: Array) {
        if self.arrays.len() == MOST_ARRAYS {
            self.refuse(name, format!("a call may have {MOST_ARRAYS} arrays"));
            return;
        }
        if !self.is_new(name) {
            return;
        }
        self.arrays.push((Some(name.to_owned()), array));
    }

    fn is_new(&mut self, name: &str) -> bool {
        let is_new = self.names.insert(name.to_owned());
        if !is_new {
            self.refuse(name, String::from("the argument is given twice"));
        }
        is_new
    }

    /// Says what is wrong with an argument.
    pub(crate) fn refuse(&mut self, name: &str, description: String) {
        // A message with many wrong arguments has an answer that is no longer than it has to be.
        if self.wrong.len() < MOST_ARRAYS {
            self.wrong.push(Violation { field: name.to_owned(), description });
        }
    }

    /// All of them.
    pub(crate) fn given(self) -> Given {
        let Self { json, arrays, .. } = self;
        let arguments = Bytes::from([b"{", &json[..], b"}"].concat());
        let listed = arrays.iter().map(|(name, array)| json!([name, array.dtype.name(), array.shape]));
        let listed = Value::from_iter(listed);
        let beside = Beside {
            arrays: Bytes::from(listed.to_string()),
            buffers: arrays.into_iter().map(|(_, array)| array.data).collect(),
            wanted: None,
        };
        Given { form: Form::Arrays, arguments, beside }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrays::Dtype;

    #[test]
    fn arguments_are_an_object_and_arrays() {
        let mut named = Named::default();
        named.add_json("k\"", b" 3 ");
        named.add_json("none", b"null");
        let array = Array::new(Dtype::Int8, vec![2], Bytes::from_static(b"ab")).expect("it fits");
        named.add_array("x", array.clone());
        let given = named.given();
        assert_eq!(&given.arguments[..], br#"{"k\"":3,"none":null}"#);
        assert_eq!(&given.beside.arrays[..], br#"[["x","int8",[2]]]"#);
        assert_eq!(given.beside.buffers, [Bytes::from_static(b"ab")]);
        assert_eq!(&Given::one(array).beside.arrays[..], br#"[[null,"int8",[2]]]"#);
    }

    #[test]
    fn a_value_names_no_other_arguments() {
        let mut named = Named::default();
        for text in [&b"1, \"y\": 2"[..], b"", b"1}", b"\xff", b"nul"] {
            named.add_json("x", text);
        }
        assert_eq!(named.wrong.len(), 5);
        assert!(named.wrong.iter().all(|one| one.field == "x"));
        assert_eq!(&named.given().arguments[..], b"{}");
    }

    #[test]
    fn arrays_are_counted() {
        let array = Array::new(Dtype::Int8, vec![0], Bytes::new()).expect("it fits");
        let mut named = Named::default();
        named.add_array("0", array.clone());
        for at in 0..=MOST_ARRAYS {
            named.add_array(&at.to_string(), array.clone());
        }
        assert_eq!((named.arrays.len(), named.wrong.len()), (MOST_ARRAYS, 2));
    }
}
