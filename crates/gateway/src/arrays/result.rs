//! Results with arrays in them, as workers write them and as answers keep them: the length of a header, the header, and
//! the bytes of all arrays one after another. What a worker has written is not trusted.

use bytes::{Buf as _, Bytes};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Array, Dtype, size_of};

/// What a result with arrays is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// One array.
    Array,
    /// A tuple or a list.
    List,
    /// A dictionary.
    Values,
}

/// A part of a result.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    /// An array.
    Array(Array),
    /// Anything else, as JSON.
    Json(Bytes),
}

/// A result with arrays, or an item of a stream with such.
#[derive(Clone, Debug)]
pub(crate) struct Results {
    pub(crate) kind: Kind,
    /// Its parts; those of `Values` have names.
    pub(crate) items: Vec<(Option<String>, Item)>,
}

impl Results {
    /// Puts what a worker has sent into an answer: its header, and the bytes of its arrays.
    pub(crate) fn joined(header: &[u8], length: usize) -> Vec<u8> {
        let mut joined = Vec::with_capacity(4 + header.len() + length);
        joined.extend_from_slice(&u32::try_from(header.len()).unwrap_or(u32::MAX).to_le_bytes());
        joined.extend_from_slice(header);
        joined
    }

    /// What an answer has; `None` if it makes no sense.
    pub(crate) fn read(answer: &Bytes) -> Option<Self> {
        let mut rest = answer.clone();
        let length = usize::try_from(rest.try_get_u32_le().ok()?).ok()?;
        if length > rest.len() {
            return None;
        }
        let header = rest.split_to(length);
        let (kind, parts): (Kind, Vec<Vec<&RawValue>>) = serde_json::from_slice(&header).ok()?;
        let mut items = Vec::with_capacity(parts.len());
        for part in &parts {
            // A part has a name, and either JSON or a type and a shape.
            let (name, item) = match part[..] {
                [name, text] => (name, Item::Json(header.slice_ref(text.get().as_bytes()))),
                [name, dtype, shape] => {
                    let dtype = Dtype::of_name(serde_json::from_str(dtype.get()).ok()?)?;
                    let shape: Vec<u64> = serde_json::from_str(shape.get()).ok()?;
                    let (_, bytes) = size_of(dtype, &shape).ok()?;
                    if bytes > rest.len() {
                        return None;
                    }
                    (name, Item::Array(Array::new(dtype, shape, rest.split_to(bytes)).ok()?))
                }
                _ => return None,
            };
            let name: Option<String> = serde_json::from_str(name.get()).ok()?;
            if name.is_some() != (kind == Kind::Values) {
                return None;
            }
            items.push((name, item));
        }
        let is_one = matches!(items.as_slice(), [(None, Item::Array(_))]);
        (rest.is_empty() && (kind != Kind::Array || is_one)).then_some(Self { kind, items })
    }

    /// The array, if it is one and nothing else.
    pub(crate) fn only(self) -> Option<Array> {
        match (self.kind, self.items.into_iter().next()) {
            (Kind::Array, Some((_, Item::Array(array)))) => Some(array),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(header: &str, data: &[u8]) -> Bytes {
        let mut joined = Results::joined(header.as_bytes(), data.len());
        joined.extend(data);
        Bytes::from(joined)
    }

    #[test]
    fn one_array_is_read() {
        let read = Results::read(&answer(r#"["array", [[null, "int16", [2, 1]]]]"#, b"abcd")).expect("sound");
        let array = read.only().expect("one array");
        assert_eq!((array.dtype, array.shape, &array.data[..]), (Dtype::Int16, vec![2, 1], &b"abcd"[..]));
    }

    #[test]
    fn lists_and_values_have_other_parts_too() {
        let header = r#"["values", [["a", "uint8", [2]], ["b", {"c": [1]}], ["d", "uint8", [1]]]]"#;
        let read = Results::read(&answer(header, b"xyz")).expect("sound");
        let [(_, Item::Array(first)), (_, Item::Json(second)), (_, Item::Array(third))] = &read.items[..]
        else {
            panic!("{read:?}")
        };
        assert_eq!((&first.data[..], &third.data[..]), (&b"xy"[..], &b"z"[..]));
        assert_eq!(&second[..], br#"{"c": [1]}"#);
        assert!(read.only().is_none());
        let list = Results::read(&answer(r#"["list", [[null, 1], [null, "x"]]]"#, b"")).expect("sound");
        assert_eq!((list.kind, list.items.len()), (Kind::List, 2));
    }

    #[test]
    fn what_makes_no_sense_is_none() {
        let whole = answer(r#"["array", [[null, "int16", [2, 1]]]]"#, b"abcd");
        for end in 0..whole.len() {
            assert!(Results::read(&whole.slice(..end)).is_none(), "cut at {end}");
        }
        for (header, data) in [
            (r#"["array", [["a", "uint8", [1]]]]"#, &b"x"[..]),
            (r#"["array", []]"#, b""),
            (r#"["array", [[null, 3]]]"#, b""),
            (r#"["values", [[null, "uint8", [1]]]]"#, b"x"),
            (r#"["list", [[null, "uint8", [1]]]]"#, b"xx"),
            (r#"["list", [[null, "object", [1]]]]"#, b"x"),
            (r#"["list", [[null, "uint8", [18446744073709551615, 2]]]]"#, b"x"),
            (r#"["list", [[null, "uint8", [-1]]]]"#, b"x"),
            (r#"["set", []]"#, b""),
            ("\u{1}", b""),
        ] {
            assert!(Results::read(&answer(header, data)).is_none(), "{header}");
        }
    }
}
