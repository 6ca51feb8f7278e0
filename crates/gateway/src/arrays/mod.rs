//! Arrays among arguments and results: what they are, and what is wrong with those that a caller or a worker sends.

mod dtype;
mod given;
mod items;
mod npy;
mod result;

use bytes::Bytes;

pub(crate) use dtype::Dtype;
pub(crate) use given::{Given, Named};
pub(crate) use items::listed;
pub(crate) use npy::{head as npy_head, read as read_npy};
pub(crate) use result::{Item, Kind, Results};

/// Dimensions that an array may have: NumPy before version 2 has no more.
pub(crate) const MOST_DIMS: usize = 32;

/// An array: items of one type, little-endian, in C order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Array {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<u64>,
    pub(crate) data: Bytes,
}

/// The number of items in an array of this shape, and the bytes of all of them.
///
/// # Errors
///
/// A text that says what is wrong with the shape.
fn size_of(dtype: Dtype, shape: &[u64]) -> Result<(usize, usize), String> {
    if shape.len() > MOST_DIMS {
        return Err(format!("an array of {} dimensions: {MOST_DIMS} are the most", shape.len()));
    }
    // The lengths beside a zero are bounded, too: NumPy multiplies them.
    let product = shape.iter().try_fold(1_u64, |product, length| product.checked_mul((*length).max(1)));
    let bytes = product.and_then(|items| items.checked_mul(dtype.size() as u64));
    if bytes.is_none_or(|bytes| i64::try_from(bytes).is_err()) {
        return Err(format!("the shape {shape:?} has more items than memory has bytes"));
    }
    let items: u64 = shape.iter().product();
    let items = usize::try_from(items).map_err(|_| String::from("the shape has too many items"))?;
    Ok((items, items * dtype.size()))
}

/// The lengths of a shape, as messages have them.
///
/// # Errors
///
/// A text that names the negative one.
pub(crate) fn lengths(shape: &[i64]) -> Result<Vec<u64>, String> {
    let checked = |length: &i64| {
        u64::try_from(*length).map_err(|_| format!("the shape {shape:?} has a negative length"))
    };
    if shape.len() > MOST_DIMS {
        return Err(format!("an array of {} dimensions: {MOST_DIMS} are the most", shape.len()));
    }
    shape.iter().map(checked).collect()
}

impl Array {
    /// An array of these parts, which fit together.
    ///
    /// # Errors
    ///
    /// A text that says what does not fit.
    pub(crate) fn new(dtype: Dtype, shape: Vec<u64>, data: Bytes) -> Result<Self, String> {
        let (_, bytes) = size_of(dtype, &shape)?;
        if bytes != data.len() {
            return Err(format!(
                "an array of {} {shape:?} has {bytes} bytes, and {} came",
                dtype.name(),
                data.len()
            ));
        }
        // NumPy's truth is one bit; a byte of another value would be neither true nor false.
        if dtype == Dtype::Bool && data.iter().any(|byte| *byte > 1) {
            return Err(String::from("an item of bool is a byte of 0 or 1"));
        }
        Ok(Self { dtype, shape, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(dtype: Dtype, shape: &[u64], bytes: usize) -> Result<Array, String> {
        Array::new(dtype, shape.to_vec(), Bytes::from(vec![0; bytes]))
    }

    #[test]
    fn an_array_has_the_bytes_of_its_shape() {
        assert!(of(Dtype::Float32, &[2, 3], 24).is_ok());
        assert!(of(Dtype::Complex128, &[], 16).is_ok());
        assert!(of(Dtype::Int64, &[3, 0], 0).is_ok());
        assert!(of(Dtype::Float32, &[2, 3], 23).is_err_and(|text| text.contains("24 bytes, and 23 came")));
    }

    #[test]
    fn shapes_beyond_memory_are_refused() {
        for shape in [&[u64::MAX, 2][..], &[1 << 62, 2], &[1 << 32, 1 << 32, 0], &[0, u64::MAX, u64::MAX]] {
            assert!(of(Dtype::Uint8, shape, 0).is_err(), "{shape:?}");
        }
        assert!(of(Dtype::Uint8, &[1; 33], 1).is_err_and(|text| text.contains("32 are the most")));
        assert!(lengths(&[2, -1]).is_err_and(|text| text.contains("negative")));
        assert!(lengths(&[1; 33]).is_err());
        assert_eq!(lengths(&[2, 0]), Ok(vec![2, 0]));
    }

    #[test]
    fn items_of_bool_are_zero_or_one() {
        assert!(Array::new(Dtype::Bool, vec![2], Bytes::from_static(&[0, 1])).is_ok());
        assert!(Array::new(Dtype::Bool, vec![2], Bytes::from_static(&[0, 2])).is_err());
    }
}
