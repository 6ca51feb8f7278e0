//! The fuzz targets' access to private parts of this crate: whatever parses bytes of a client or of a worker.

use buffa::Message as _;
use bytes::Bytes;
use ropewalk_pool::Reply;
use ropewalk_pool::codec::{Part, table};
use ropewalk_pool::wire::flags;
use serde_json::Value;

use crate::arrays::{Array, Dtype, Given, listed, npy_head, read_npy};
use crate::call::Form;
use crate::generated::inference::ModelInferRequest;
use crate::generated::ropewalk::v1::ExecuteRequest;
use crate::kserve::{self, Model};
use crate::{envelope, mcp, rpc};

/// What a call is given, whatever a client has sent: JSON, a list of arrays, and the bytes of each.
fn check(given: &Given) {
    let Given { form, arguments, beside } = given;
    assert_eq!(*form == Form::Arrays, !beside.arrays.is_empty());
    if *form == Form::Arrays {
        assert!(serde_json::from_slice::<Value>(arguments).is_ok_and(|value| value.is_object()));
        let listed: Vec<(Option<String>, String, Vec<u64>)> =
            serde_json::from_slice(&beside.arrays).expect("a list of arrays");
        assert_eq!(listed.len(), beside.buffers.len());
        for ((_, dtype, shape), buffer) in listed.into_iter().zip(&beside.buffers) {
            let dtype = Dtype::of_name(&dtype).expect("a type");
            Array::new(dtype, shape, buffer.clone()).expect("it was checked");
        }
    }
    let length = arguments.len() + beside.buffers.iter().map(Bytes::len).sum::<usize>();
    for most in [0, usize::MAX] {
        let call = envelope::call(*form, arguments, beside, b"", most);
        let outside: usize = call.outside.iter().map(|part| part.len()).sum();
        assert!(call.pickle.ends_with(b".") && call.pickle.len() + outside >= length);
        assert!(most == 0 || outside == 0);
    }
}

/// A message of gRPC that asks for a call.
pub fn execute(message: &[u8]) {
    let Ok(request) = ExecuteRequest::decode_from_slice(message) else { return };
    if let Ok(given) = rpc::given(request.arguments.into_option()) {
        check(&given);
    }
}

/// What a worker answers: the first byte says how much of the rest is its pickle, and what follows lies beside that.
pub fn answer(input: &[u8]) {
    let Some((&first, rest)) = input.split_first() else { return };
    let (pickle, buffer) = rest.split_at(rest.len().min(usize::from(first)));
    let (one, other) = buffer.split_at(buffer.len() / 2);
    let parts: Vec<_> = [pickle, one, other].into_iter().map(Part::Inline).collect();
    let described =
        Reply { flags: flags::DESCRIBED, bytes: table::write(0, &parts, &[]), segments: Vec::new() };
    let plain = Reply { flags: 0, bytes: rest.to_vec(), segments: Vec::new() };
    let hostile = Reply { flags: flags::DESCRIBED, bytes: rest.to_vec(), segments: Vec::new() };
    for reply in [described, plain, hostile] {
        let Ok(answer) = envelope::answer(&reply) else { continue };
        let _ = rpc::value(answer.clone());
        if let Ok(outputs) = kserve::outputs(answer) {
            let response = kserve::response(outputs);
            assert_eq!(response.outputs.len(), response.raw_output_contents.len());
        }
    }
}

/// A file of NumPy's: what is read can be written, and reads the same.
pub fn npy(file: &[u8]) {
    let Ok(array) = read_npy(&Bytes::copy_from_slice(file)) else { return };
    let again = Bytes::from([&npy_head(&array)[..], &array.data].concat());
    assert_eq!(read_npy(&again).as_ref(), Ok(&array));
    if let Ok(text) = listed(&array) {
        serde_json::from_str::<Value>(&text).expect("JSON");
    }
}

/// A tool with a parameter of each kind.
const SCHEMA: &str = r#"{"properties": {
    "a": {"x-ropewalk-array": {"dtype": "float32", "shape": ["n", 3]}}, "b": {"type": "boolean"},
    "i": {"type": "integer"}, "f": {"type": "number"}, "s": {"type": "string"}, "l": {"type": "array"},
    "o": {"type": "object"}, "r": {"type": "string", "format": "binary"}}}"#;

/// A message of KServe's that asks for a call.
pub fn infer(message: &[u8]) {
    let Ok(mut request) = ModelInferRequest::decode_from_slice(message) else { return };
    if let Ok(given) = kserve::given(&Model::read(SCHEMA, "{}"), &mut request) {
        check(&given);
    }
}

/// Schemas, of which the tensors of a tool are read.
pub fn schema(text: &str) {
    let _ = Model::read(text, text);
}

/// A message of MCP.
pub fn mcp(message: &[u8]) {
    mcp::look(message);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The targets with few inputs, so that they hold without a fuzzer too.
    #[test]
    fn few_inputs_of_each_kind_are_read() {
        let mut state = 1_u64;
        let mut byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        let array = Array::new(Dtype::Int16, vec![2], Bytes::from_static(b"abcd")).expect("it fits");
        let seeds = [
            b"\x0a\x01t\x12\x04\x0a\x02{}".to_vec(),
            b"\x12\x11\x22\x0f\x0a\x05int16\x12\x01\x02\x1a\x03abc".to_vec(),
            b"\x14\x80\x05C\x01\x03\x94\x97\x98\x86\x94.bytes".to_vec(),
            b"\x0a\x01t\x2a\x0e\x0a\x01l\x12\x04INT8\x1a\x01\x02\x3a\x02ab".to_vec(),
            [&npy_head(&array)[..], b"abcd"].concat(),
            br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{}}}"#
                .to_vec(),
        ];
        for round in 0..2000_usize {
            let mut input = seeds[round % seeds.len()].clone();
            for _ in 0..round % 5 {
                let at = usize::from(byte()) % input.len();
                input[at] = byte();
            }
            for target in [execute, answer, npy, infer, mcp] {
                target(&input);
            }
            schema(&String::from_utf8_lossy(&input));
        }
    }
}
