//! An array's items as JSON, nested as its dimensions: for tools whose parameters are numbers and lists.

use std::fmt::Write as _;

use super::{Array, Dtype};

/// The items as nested lists; an array without dimensions is its item.
///
/// # Errors
///
/// A text that says which items JSON has no words for.
pub(crate) fn listed(array: &Array) -> Result<String, String> {
    let mut text = String::with_capacity(array.data.len());
    let mut items = array.data.chunks_exact(array.dtype.size());
    nested(array.dtype, &array.shape, &mut items, &mut text)?;
    Ok(text)
}

fn nested<'a>(
    dtype: Dtype,
    shape: &[u64],
    items: &mut impl Iterator<Item = &'a [u8]>,
    text: &mut String,
) -> Result<(), String> {
    let Some((length, inner)) = shape.split_first() else {
        let item = items.next().ok_or_else(|| String::from("an item is missing"))?;
        return write(dtype, item, text);
    };
    // Lists without an item could be as many as a shape says.
    if inner.contains(&0) && *length > MOST_EMPTY {
        return Err(format!("an array of {length} empty lists: {MOST_EMPTY} are the most in JSON"));
    }
    text.push('[');
    for at in 0..*length {
        if at > 0 {
            text.push(',');
        }
        nested(dtype, inner, items, text)?;
    }
    text.push(']');
    Ok(())
}

/// Empty lists in one list.
const MOST_EMPTY: u64 = 16;

fn write(dtype: Dtype, item: &[u8], text: &mut String) -> Result<(), String> {
    macro_rules! number {
        ($kind:ty) => {
            <$kind>::from_le_bytes(item.try_into().map_err(|_| String::from("an item is cut off"))?)
        };
    }
    let written = match dtype {
        Dtype::Bool => write!(text, "{}", item != [0]),
        Dtype::Int8 => write!(text, "{}", number!(i8)),
        Dtype::Int16 => write!(text, "{}", number!(i16)),
        Dtype::Int32 => write!(text, "{}", number!(i32)),
        Dtype::Int64 => write!(text, "{}", number!(i64)),
        Dtype::Uint8 => write!(text, "{}", number!(u8)),
        Dtype::Uint16 => write!(text, "{}", number!(u16)),
        Dtype::Uint32 => write!(text, "{}", number!(u32)),
        Dtype::Uint64 => write!(text, "{}", number!(u64)),
        Dtype::Float16 => return float(half(number!(u16)), text),
        Dtype::Float32 => return float(f64::from(number!(f32)), text),
        Dtype::Float64 => return float(number!(f64), text),
        Dtype::Complex64 | Dtype::Complex128 => return Err(String::from("JSON has no complex numbers")),
    };
    written.map_err(|error| error.to_string())
}

fn float(number: f64, text: &mut String) -> Result<(), String> {
    if !number.is_finite() {
        return Err(format!("JSON has no {number}"));
    }
    write!(text, "{number:?}").map_err(|error| error.to_string())
}

/// A number of 16 bits: a sign, five bits of an exponent, ten of a fraction (IEEE 754).
fn half(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2.0_f64.powi(-24),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        _ => (1024.0 + fraction) * 2.0_f64.powi(exponent - 25),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn text(dtype: Dtype, shape: &[u64], data: &[u8]) -> Result<String, String> {
        listed(&Array::new(dtype, shape.to_vec(), Bytes::copy_from_slice(data)).expect("it fits"))
    }

    #[test]
    fn items_are_nested_as_the_dimensions() {
        assert_eq!(text(Dtype::Uint8, &[2, 2], &[1, 2, 3, 4]), Ok("[[1,2],[3,4]]".into()));
        assert_eq!(text(Dtype::Int16, &[], &[0xff, 0xff]), Ok("-1".into()));
        assert_eq!(text(Dtype::Bool, &[2], &[0, 1]), Ok("[false,true]".into()));
        assert_eq!(text(Dtype::Int64, &[0, 3], &[]), Ok("[]".into()));
        assert_eq!(text(Dtype::Int64, &[2, 0], &[]), Ok("[[],[]]".into()));
        assert_eq!(text(Dtype::Float64, &[1], &1e300_f64.to_le_bytes()), Ok("[1e300]".into()));
        assert_eq!(text(Dtype::Float32, &[1], &0.5_f32.to_le_bytes()), Ok("[0.5]".into()));
    }

    #[test]
    fn what_json_cannot_say_is_an_error() {
        assert!(text(Dtype::Float32, &[1], &f32::NAN.to_le_bytes()).is_err());
        assert!(text(Dtype::Complex64, &[1], &[0; 8]).is_err());
        assert!(text(Dtype::Uint8, &[1 << 40, 0], &[]).is_err_and(|text| text.contains("16 are the most")));
    }

    #[test]
    fn numbers_of_16_bits_are_read() {
        for (bits, number) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x0001, 2.0_f64.powi(-24)),
            (0x7bff, 65504.0),
            (0x3555, 0.333_251_953_125),
            (0x0400, 2.0_f64.powi(-14)),
        ] {
            assert!((half(bits) - number).abs() < f64::EPSILON * number.abs(), "{bits:x}");
        }
        assert!(half(0x7c00).is_infinite() && half(0x7e00).is_nan());
    }
}
