//! Tensors of text and bytes (BYTES): before each item four bytes have its length.

use bytes::{Buf as _, Bytes};

/// The items of a tensor, each a part of its bytes.
///
/// # Errors
///
/// A text that says what is wrong.
pub(super) fn read(mut data: Bytes, wanted: u64) -> Result<Vec<Bytes>, String> {
    let mut items = Vec::new();
    while !data.is_empty() {
        let length = data.try_get_u32_le().map_err(|_| String::from("the length of an item is cut off"))?;
        if length as usize > data.len() {
            return Err(format!("an item of {length} bytes is cut off"));
        }
        items.push(data.split_to(length as usize));
    }
    if items.len() as u64 == wanted {
        Ok(items)
    } else {
        Err(format!("the shape has {wanted} items, and {} came", items.len()))
    }
}

/// The bytes of a tensor with these items.
pub(super) fn written<'a>(items: impl IntoIterator<Item = &'a [u8]>) -> Bytes {
    let mut data = Vec::new();
    for item in items {
        data.extend_from_slice(&u32::try_from(item.len()).unwrap_or(u32::MAX).to_le_bytes());
        data.extend_from_slice(item);
    }
    Bytes::from(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let items = [&b"a"[..], b"", b"\xff\xff"];
        let data = written(items);
        assert_eq!(read(data.clone(), 3), Ok(items.map(Bytes::from_static).to_vec()));
        assert!(read(data.clone(), 2).is_err_and(|text| text.contains("3 came")));
        for end in [1, 3, 4, 7, data.len() - 1] {
            assert!(read(data.slice(..end), 3).is_err(), "cut at {end}");
        }
    }
}
