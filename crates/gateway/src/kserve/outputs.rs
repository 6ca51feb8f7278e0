//! The result of a tool as tensors.

use bytes::Bytes;
use serde_json::Value;

use super::model::{Fields, RESULT, nth};
use super::words;
use crate::arrays::{Array, Item, Kind, Results};
use crate::call::{Answer, Form};
use crate::failed::{Code, Failed, shortened};
use crate::generated::inference::ModelInferResponse;
use crate::generated::inference::model_infer_request::InferRequestedOutputTensor;
use crate::generated::inference::model_infer_response::InferOutputTensor;

/// A tensor of a result.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Output {
    name: String,
    datatype: &'static str,
    shape: Vec<i64>,
    data: Bytes,
}

/// The tensors of an answer.
pub(crate) fn outputs(answer: Answer) -> Result<Vec<Output>, Failed> {
    let strange = || Failed::new(Code::Internal, "the tool's worker has sent something that is no answer");
    Ok(match answer.form {
        Form::Arrays | Form::Array => {
            let Results { kind, items } = Results::read(&answer.bytes).ok_or_else(strange)?;
            let name = |at, name: Option<String>| match kind {
                Kind::Array => String::from(RESULT),
                Kind::List => nth(at),
                Kind::Values => name.unwrap_or_default(),
            };
            let items = items.into_iter().enumerate();
            items
                .map(|(at, (own, item))| match item {
                    Item::Array(array) => of_array(name(at, own), array),
                    Item::Json(text) => Ok(of_json(name(at, own), &text)),
                })
                .collect::<Result<_, _>>()?
        }
        Form::Json => match serde_json::from_slice::<Fields>(&answer.bytes) {
            Ok(Fields(fields)) => fields.into_iter().map(|(name, value)| of_value(name, &value)).collect(),
            Err(_) => vec![of_json(String::from(RESULT), &answer.bytes)],
        },
        Form::Raw | Form::Msgpack => vec![of_words(String::from(RESULT), vec![1], [&answer.bytes[..]])],
    })
}

fn of_array(name: String, array: Array) -> Result<Output, Failed> {
    let datatype = array.dtype.datatype().ok_or_else(|| {
        let text =
            format!("the protocol has no tensors of {}, as the output {name:?} is", array.dtype.name());
        Failed::new(Code::Internal, text)
    })?;
    let shape = array.shape.into_iter().map(|length| i64::try_from(length).unwrap_or(i64::MAX)).collect();
    Ok(Output { name, datatype, shape, data: array.data })
}

fn of_words<'a>(name: String, shape: Vec<i64>, items: impl IntoIterator<Item = &'a [u8]>) -> Output {
    Output { name, datatype: "BYTES", shape, data: words::written(items) }
}

fn of_json(name: String, text: &Bytes) -> Output {
    match serde_json::from_slice(text) {
        Ok(value) => of_value(name, &value),
        // A number beyond what Rust has a type for.
        Err(_) => of_words(name, vec![1], [&text[..]]),
    }
}

/// A number, a text, or a list of such is a tensor; anything else is one item of JSON.
fn of_value(name: String, value: &Value) -> Output {
    let (items, shape) = match value {
        Value::Array(items) => (&items[..], vec![i64::try_from(items.len()).unwrap_or(i64::MAX)]),
        one => (std::slice::from_ref(one), vec![1]),
    };
    if let Some(texts) = all(items, Value::as_str) {
        return of_words(name, shape, texts.into_iter().map(str::as_bytes));
    }
    let numbers = |datatype, data: Vec<u8>| Some((datatype, Bytes::from(data)));
    let made = all(items, Value::as_bool)
        .and_then(|items| numbers("BOOL", items.into_iter().map(u8::from).collect()))
        .or_else(|| {
            numbers("INT64", all(items, Value::as_i64)?.into_iter().flat_map(i64::to_le_bytes).collect())
        })
        .or_else(|| {
            numbers("UINT64", all(items, Value::as_u64)?.into_iter().flat_map(u64::to_le_bytes).collect())
        })
        .or_else(|| {
            numbers("FP64", all(items, Value::as_f64)?.into_iter().flat_map(f64::to_le_bytes).collect())
        });
    match made {
        Some((datatype, data)) => Output { name, datatype, shape, data },
        None => of_words(name, vec![1], [value.to_string().as_bytes()]),
    }
}

/// The items, if all of them are of one kind, and there is one.
fn all<'a, T>(items: &'a [Value], of: impl Fn(&'a Value) -> Option<T>) -> Option<Vec<T>> {
    if items.is_empty() { None } else { items.iter().map(of).collect() }
}

/// Those that a request asks for, in its order; all of them if it names none.
pub(super) fn wanted(
    outputs: Vec<Output>,
    asked: &[InferRequestedOutputTensor],
) -> Result<Vec<Output>, Failed> {
    if asked.is_empty() {
        return Ok(outputs);
    }
    let mut left: Vec<_> = outputs.into_iter().map(Some).collect();
    let found = asked.iter().map(|one| {
        let has =
            |output: &&mut Option<Output>| output.as_ref().is_some_and(|output| output.name == one.name);
        left.iter_mut().find(has).and_then(Option::take).ok_or_else(|| {
            let text =
                format!("the result has no output {:?}, or it is asked for twice", shortened(&one.name));
            Failed::new(Code::InvalidArgument, text)
        })
    });
    found.collect()
}

/// Whether a request asks for outputs in a way that is not served.
pub(super) fn refused(asked: &[InferRequestedOutputTensor]) -> Option<Failed> {
    let unserved = ["shared_memory_region", "classification"];
    let found = unserved.iter().find(|key| asked.iter().any(|one| one.parameters.contains_key(**key)))?;
    Some(Failed::new(
        Code::InvalidArgument,
        format!("outputs by {found} are not served: ask for their contents"),
    ))
}

/// The message with these tensors.
pub(crate) fn response(outputs: Vec<Output>) -> ModelInferResponse {
    let mut response = ModelInferResponse { model_version: String::from("1"), ..Default::default() };
    for Output { name, datatype, shape, data } in outputs {
        let datatype = String::from(datatype);
        response.outputs.push(InferOutputTensor { name, datatype, shape, ..Default::default() });
        response.raw_output_contents.push(data);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(form: Form, bytes: &'static [u8]) -> Vec<(String, &'static str, Vec<i64>, Bytes)> {
        let outputs = outputs(Answer { form, bytes: Bytes::from_static(bytes) }).expect("tensors");
        outputs.into_iter().map(|one| (one.name, one.datatype, one.shape, one.data)).collect()
    }

    fn one(text: &'static [u8]) -> (&'static str, Vec<i64>, Bytes) {
        let [(name, datatype, shape, data)] = &of(Form::Json, text)[..] else { panic!("one output") };
        assert_eq!(name, "result");
        (datatype, shape.clone(), data.clone())
    }

    #[test]
    fn values_are_tensors() {
        assert_eq!(one(b"3"), ("INT64", vec![1], Bytes::copy_from_slice(&3_i64.to_le_bytes())));
        assert_eq!(one(b"18446744073709551615").0, "UINT64");
        assert_eq!(one(b"[1, 2.5]"), ("FP64", vec![2], [1.0, 2.5].map(f64::to_le_bytes).concat().into()));
        assert_eq!(one(b"[true]"), ("BOOL", vec![1], Bytes::from_static(&[1])));
        assert_eq!(one(b"[\"a\", \"\"]"), ("BYTES", vec![2], Bytes::from_static(b"\x01\0\0\0a\0\0\0\0")));
        assert_eq!(one(b"[]"), ("BYTES", vec![1], Bytes::from_static(b"\x02\0\0\0[]")));
        assert_eq!(one(b"[1, null]").0, "BYTES");
        assert_eq!(one(b"null"), ("BYTES", vec![1], Bytes::from_static(b"\x04\0\0\0null")));
        assert_eq!(of(Form::Raw, b"ab")[0].3, Bytes::from_static(b"\x02\0\0\0ab"));
        let names: Vec<_> =
            of(Form::Json, br#"{"a": 1, "b": {"c": 2}}"#).into_iter().map(|one| (one.0, one.1)).collect();
        assert_eq!(names, [("a".into(), "INT64"), ("b".into(), "BYTES")]);
    }

    #[test]
    fn outputs_are_chosen_by_their_names() {
        let made = || outputs(Answer { form: Form::Json, bytes: Bytes::from_static(br#"{"a":1,"b":2}"#) });
        let ask = |name: &str| InferRequestedOutputTensor { name: name.into(), ..Default::default() };
        let names = |asked: &[_]| -> Result<Vec<String>, Failed> {
            Ok(wanted(made()?, asked)?.into_iter().map(|one| one.name).collect())
        };
        assert_eq!(names(&[]).expect("all"), ["a", "b"]);
        assert_eq!(names(&[ask("b"), ask("a")]).expect("both"), ["b", "a"]);
        assert!(names(&[ask("c")]).is_err() && names(&[ask("a"), ask("a")]).is_err());
    }
}
