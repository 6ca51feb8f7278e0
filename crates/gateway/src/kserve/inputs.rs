//! The tensors of a request as the arguments of a tool.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::Value;

use super::model::{Model, Role};
use super::words;
use crate::arrays::{Array, Dtype, Given, Named, lengths, listed};
use crate::envelope::invalid;
use crate::failed::{Code, Failed, shortened};
use crate::generated::inference::{
    InferTensorContents, ModelInferRequest, model_infer_request::InferInputTensor,
};

/// What a request gives to its tool.
///
/// # Errors
///
/// `INVALID_ARGUMENT`, with a violation for each wrong input.
pub(crate) fn given(model: &Model, request: &mut ModelInferRequest) -> Result<Given, Failed> {
    let raw = std::mem::take(&mut request.raw_input_contents);
    if !raw.is_empty() && raw.len() != request.inputs.len() {
        let text = format!("{} inputs have {} raw contents", request.inputs.len(), raw.len());
        return Err(Failed::new(Code::InvalidArgument, text));
    }
    let mut raw = raw.into_iter();
    let mut named = Named::default();
    for input in std::mem::take(&mut request.inputs) {
        let data = raw.next();
        let name = input.name.clone();
        if let Err(wrong) = add(&mut named, model.role(&name), input, data) {
            named.refuse(&name, wrong);
        }
    }
    if named.wrong.is_empty() { Ok(named.given()) } else { Err(invalid(named.wrong)) }
}

fn add(named: &mut Named, role: &Role, input: InferInputTensor, raw: Option<Bytes>) -> Result<(), String> {
    let InferInputTensor { name, datatype, shape, parameters, contents, .. } = input;
    if parameters.contains_key("shared_memory_region") {
        return Err(String::from("regions of shared memory are not served: send the contents"));
    }
    let shape = lengths(&shape)?;
    let contents = contents.into_option();
    if raw.is_some() && contents.is_some() {
        return Err(String::from("it has raw contents and others: send one of them"));
    }
    if datatype == "BYTES" {
        let items = match raw {
            Some(raw) => words::read(raw, product(&shape)?)?,
            None => contents.map(|contents| contents.bytes_contents).unwrap_or_default(),
        };
        if items.len() as u64 != product(&shape)? {
            return Err(format!("the shape {shape:?} has another number of items than {}", items.len()));
        }
        return add_words(named, role, &name, &shape, &items);
    }
    let dtype = Dtype::of_datatype(&datatype)
        .ok_or_else(|| format!("tensors of {:?} are not served", shortened(&datatype)))?;
    let data = match raw {
        Some(raw) => raw,
        None => packed(dtype, &contents.unwrap_or_default())?,
    };
    let array = Array::new(dtype, shape, data)?;
    match role {
        Role::Array(..) => named.add_array(&name, array),
        Role::List => named.add_value(&name, &listed(&array)?),
        _ if array.shape.iter().all(|length| *length == 1) => {
            named.add_value(&name, &listed(&Array { shape: Vec::new(), ..array })?);
        }
        _ => return Err(format!("a tensor of shape [1] is wanted, not {:?}", array.shape)),
    }
    Ok(())
}

/// The number of items in a shape.
fn product(shape: &[u64]) -> Result<u64, String> {
    let product = shape.iter().try_fold(1_u64, |product, length| product.checked_mul(*length));
    product.ok_or_else(|| format!("the shape {shape:?} has too many items"))
}

/// The bytes of items that came as numbers of the message.
fn packed(dtype: Dtype, contents: &InferTensorContents) -> Result<Bytes, String> {
    fn of<T: Copy, U: TryFrom<T>, const N: usize>(
        items: &[T],
        bytes: impl Fn(U) -> [u8; N],
    ) -> Result<Vec<u8>, String> {
        let narrow = |item: &T| {
            U::try_from(*item).map(&bytes).map_err(|_| String::from("an item is beyond its type's range"))
        };
        Ok(items.iter().map(narrow).collect::<Result<Vec<_>, _>>()?.concat())
    }
    let (ints, uints) = (&contents.int_contents, &contents.uint_contents);
    let data = match dtype {
        Dtype::Bool => contents.bool_contents.iter().map(|item| u8::from(*item)).collect(),
        Dtype::Int8 => of(ints, i8::to_le_bytes)?,
        Dtype::Int16 => of(ints, i16::to_le_bytes)?,
        Dtype::Int32 => of(ints, i32::to_le_bytes)?,
        Dtype::Int64 => of(&contents.int64_contents, i64::to_le_bytes)?,
        Dtype::Uint8 => of(uints, u8::to_le_bytes)?,
        Dtype::Uint16 => of(uints, u16::to_le_bytes)?,
        Dtype::Uint32 => of(uints, u32::to_le_bytes)?,
        Dtype::Uint64 => of(&contents.uint64_contents, u64::to_le_bytes)?,
        Dtype::Float32 => of(&contents.fp32_contents, f32::to_le_bytes)?,
        Dtype::Float64 => of(&contents.fp64_contents, f64::to_le_bytes)?,
        Dtype::Float16 | Dtype::Complex64 | Dtype::Complex128 => {
            return Err(String::from("FP16 has raw contents alone"));
        }
    };
    Ok(Bytes::from(data))
}

/// Adds a tensor of texts or bytes.
fn add_words(
    named: &mut Named,
    role: &Role,
    name: &str,
    shape: &[u64],
    items: &[Bytes],
) -> Result<(), String> {
    let text = |item: &Bytes| -> Result<Value, String> {
        let text = std::str::from_utf8(item).map_err(|_| String::from("an item is no text (UTF-8)"))?;
        Ok(Value::from(text))
    };
    if matches!(role, Role::List | Role::Array(..)) {
        let items = items.iter().map(text).collect::<Result<Vec<_>, _>>()?;
        let nested = nested(shape, &mut items.into_iter())?;
        named.add_value(name, &nested.to_string());
        return Ok(());
    }
    let [item] = items else {
        return Err(format!("a tensor of shape [1] is wanted, not {shape:?}"));
    };
    match role {
        Role::Bytes => named.add_value(name, &Value::from(STANDARD.encode(item)).to_string()),
        Role::Text => named.add_value(name, &text(item)?.to_string()),
        _ => named.add_json(name, item),
    }
    Ok(())
}

fn nested(shape: &[u64], items: &mut impl Iterator<Item = Value>) -> Result<Value, String> {
    let Some((length, inner)) = shape.split_first() else {
        return items.next().ok_or_else(|| String::from("an item is missing"));
    };
    // Lists of no items at all could be as many as a shape says.
    if inner.contains(&0) && *length > 16 {
        return Err(format!("a tensor of {length} empty lists: 16 are the most"));
    }
    (0..*length).map(|_| nested(inner, items)).collect::<Result<Vec<_>, _>>().map(Value::Array)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Form;

    const SCHEMA: &str = r#"{"properties": {
        "x": {"x-ropewalk-array": {"dtype": "float32", "shape": null}},
        "n": {"type": "integer"}, "s": {"type": "string"}, "l": {"type": "array"}, "o": {"type": "object"},
        "b": {"type": "string", "format": "binary"}}}"#;

    fn input(name: &str, datatype: &str, shape: &[i64]) -> InferInputTensor {
        InferInputTensor {
            name: name.into(),
            datatype: datatype.into(),
            shape: shape.to_vec(),
            ..Default::default()
        }
    }

    fn read(inputs: Vec<InferInputTensor>, raw: &[&[u8]]) -> Result<Given, Failed> {
        let raw_input_contents = raw.iter().map(|data| Bytes::copy_from_slice(data)).collect();
        let mut request = ModelInferRequest { inputs, raw_input_contents, ..Default::default() };
        given(&Model::read(SCHEMA, "{}"), &mut request)
    }

    fn wrong(inputs: Vec<InferInputTensor>, raw: &[&[u8]]) -> String {
        read(inputs, raw).expect_err("it is wrong").message.into_owned()
    }

    #[test]
    fn tensors_are_arguments() {
        let inputs = vec![
            input("x", "FP32", &[2]),
            input("n", "INT32", &[1, 1]),
            input("s", "BYTES", &[1]),
            input("l", "INT8", &[2, 1]),
            input("o", "BYTES", &[1]),
            input("b", "BYTES", &[]),
        ];
        let raw = [
            &[0; 8][..],
            &[5, 0, 0, 0],
            b"\x02\0\0\0hi",
            &[1, 2],
            b"\x09\0\0\0{\"a\": [] }",
            b"\x01\0\0\0\xff",
        ];
        let raw = [raw[0], raw[1], raw[2], raw[3], b"\x08\0\0\0{\"a\":[]}", raw[5]];
        let given = read(inputs, &raw).expect("they fit");
        assert_eq!(given.form, Form::Arrays);
        let text = std::str::from_utf8(&given.arguments).expect("JSON");
        assert_eq!(text, r#"{"n":5,"s":"hi","l":[[1],[2]],"o":{"a":[]},"b":"/w=="}"#);
        assert_eq!(&given.beside.arrays[..], br#"[["x","float32",[2]]]"#);
    }

    #[test]
    fn contents_may_be_numbers_of_the_message() {
        let of = |contents| InferInputTensor { contents: Some(contents).into(), ..input("x", "UINT8", &[2]) };
        let contents = InferTensorContents { uint_contents: vec![1, 255], ..Default::default() };
        let given = read(vec![of(contents)], &[]).expect("they fit");
        assert_eq!(given.beside.buffers, [Bytes::from_static(&[1, 255])]);
        let contents = InferTensorContents { uint_contents: vec![1, 256], ..Default::default() };
        assert!(wrong(vec![of(contents.clone())], &[]).contains("range"));
        assert!(wrong(vec![of(contents)], &[&[1, 2]]).contains("one of them"));
    }

    #[test]
    fn what_does_not_fit_names_its_input() {
        assert!(wrong(vec![input("x", "FP32", &[2])], &[&[0; 7]]).contains("x: an array of float32"));
        assert!(wrong(vec![input("x", "FP32", &[-1])], &[&[0; 4]]).contains("negative"));
        assert!(wrong(vec![input("x", "BF16", &[1])], &[&[0; 2]]).contains("\"BF16\" are not served"));
        assert!(wrong(vec![input("n", "INT32", &[2])], &[&[0; 8]]).contains("shape [1] is wanted"));
        assert!(wrong(vec![input("s", "BYTES", &[1])], &[b"\x01\0\0\0\xff"]).contains("no text"));
        assert!(wrong(vec![input("s", "BYTES", &[1])], &[b"\x09\0\0\0a"]).contains("cut off"));
        assert!(wrong(vec![input("o", "BYTES", &[1])], &[b"\x01\0\0\0}"]).contains("Invalid JSON"));
        assert!(wrong(vec![input("l", "BYTES", &[1 << 40, 0])], &[b""]).contains("16 are the most"));
        assert!(wrong(vec![input("x", "FP32", &[1])], &[&[0; 4], &[0; 4]]).contains("1 inputs have 2"));
        let two = vec![input("n", "INT8", &[1]), input("n", "INT8", &[1])];
        assert!(wrong(two, &[&[1], &[2]]).contains("twice"));
    }
}
