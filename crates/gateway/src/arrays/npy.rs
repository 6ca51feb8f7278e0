//! Arrays as files of NumPy's (`application/x-npy`, what `numpy.save` writes): a header that says what the items are,
//! and their bytes. Nothing of a pickle is ever read: items that are objects are refused with all other types.
//!
//! Source: [NEP 1](https://numpy.org/neps/nep-0001-npy-format.html), versions 1 to 3.

use bytes::Bytes;

use super::{Array, Dtype};

const MAGIC: &[u8] = b"\x93NUMPY";
/// Bytes that a header may have: that of an array with many dimensions has some hundreds.
const LONGEST_HEADER: usize = 4096;

/// The array of a file.
///
/// # Errors
///
/// A text that says what is wrong with it.
pub(crate) fn read(file: &Bytes) -> Result<Array, String> {
    let wrong = || String::from("the body is no file of NumPy's (.npy)");
    if file.get(..6) != Some(MAGIC) {
        return Err(wrong());
    }
    let (start, length) = match file.get(6).ok_or_else(wrong)? {
        1 => {
            let length: [u8; 2] = file.get(8..10).and_then(|part| part.try_into().ok()).ok_or_else(wrong)?;
            (10_usize, usize::from(u16::from_le_bytes(length)))
        }
        2 | 3 => {
            let length: [u8; 4] = file.get(8..12).and_then(|part| part.try_into().ok()).ok_or_else(wrong)?;
            (12, usize::try_from(u32::from_le_bytes(length)).map_err(|_| wrong())?)
        }
        version => return Err(format!("a file of NumPy's of version {version}: 1, 2 and 3 are read")),
    };
    if length > LONGEST_HEADER {
        return Err(format!("the file's header has {length} bytes: {LONGEST_HEADER} are the most"));
    }
    let header = file.get(start..start + length).ok_or_else(wrong)?;
    let header = std::str::from_utf8(header).map_err(|_| wrong())?;
    let (descr, fortran, shape) = Reader(header).header().ok_or_else(|| {
        String::from("the file's header is not {'descr': ..., 'fortran_order': ..., 'shape': ...}")
    })?;
    let dtype = Dtype::of_descr(descr).ok_or_else(|| {
        format!("items of type {descr:?}: little-endian numbers and bool are read, and never objects")
    })?;
    // One dimension has one order.
    if fortran && shape.len() > 1 {
        return Err(String::from("the file is in Fortran's order: save numpy.ascontiguousarray(array)"));
    }
    Array::new(dtype, shape, file.slice(start + length..))
}

/// What stands before the bytes of an array in its file.
pub(crate) fn head(array: &Array) -> Bytes {
    let lengths: String = array.shape.iter().map(|length| format!("{length}, ")).collect();
    let shape = if array.shape.len() == 1 { lengths.trim_end() } else { lengths.trim_end_matches(", ") };
    let mut header =
        format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({shape}), }}", array.dtype.descr());
    // The items begin at a multiple of 64 bytes, and the header ends with a line break.
    while (header.len() + 11) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut head = Vec::with_capacity(header.len() + 10);
    head.extend_from_slice(MAGIC);
    head.extend_from_slice(&[1, 0]);
    head.extend_from_slice(&u16::try_from(header.len()).unwrap_or(u16::MAX).to_le_bytes());
    head.extend_from_slice(header.as_bytes());
    Bytes::from(head)
}

/// Reads the header: a dictionary of Python's with these three keys, and no other expression.
struct Reader<'a>(&'a str);

impl<'a> Reader<'a> {
    fn header(mut self) -> Option<(&'a str, bool, Vec<u64>)> {
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        self.take("{")?;
        while self.take("}").is_none() {
            match self.text()? {
                "descr" if descr.is_none() => {
                    self.take(":")?;
                    descr = Some(self.text()?);
                }
                "fortran_order" if fortran.is_none() => {
                    self.take(":")?;
                    let is_true = self.take("True").is_some();
                    if !is_true {
                        self.take("False")?;
                    }
                    fortran = Some(is_true);
                }
                "shape" if shape.is_none() => {
                    self.take(":")?;
                    shape = Some(self.shape()?);
                }
                _ => return None,
            }
            if self.take(",").is_none() {
                self.take("}")?;
                break;
            }
        }
        self.0.trim().is_empty().then_some((descr?, fortran?, shape?))
    }

    /// Takes this away, and the spaces before it.
    fn take(&mut self, what: &str) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(what)?;
        Some(())
    }

    /// A text without escapes.
    fn text(&mut self) -> Option<&'a str> {
        let rest = self.0.trim_start();
        let quote = rest.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
        let (text, rest) = rest.get(1..)?.split_once(quote)?;
        self.0 = rest;
        (!text.contains('\\')).then_some(text)
    }

    fn shape(&mut self) -> Option<Vec<u64>> {
        let mut shape = Vec::new();
        let mut ends = false;
        self.take("(")?;
        while self.take(")").is_none() {
            // `(3)` is a number in Python, and no tuple; it is refused below.
            if ends || shape.len() > super::MOST_DIMS {
                return None;
            }
            let rest = self.0.trim_start();
            let end = rest.find(|one: char| !one.is_ascii_digit()).unwrap_or(rest.len());
            let (digits, rest) = rest.split_at_checked(end)?;
            // Python 2 wrote an L behind long numbers.
            self.0 = rest.strip_prefix('L').unwrap_or(rest);
            shape.push(digits.parse().ok()?);
            ends = self.take(",").is_none();
        }
        (!ends || shape.len() != 1).then_some(shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Bytes {
        let mut file = MAGIC.to_vec();
        file.extend([1, 0]);
        file.extend(u16::try_from(header.len()).expect("short").to_le_bytes());
        file.extend(header.as_bytes());
        file.extend(data);
        Bytes::from(file)
    }

    #[test]
    fn what_is_written_is_read() {
        for shape in [vec![], vec![3], vec![2, 3], vec![2, 0, 5], vec![1; 32]] {
            let items: u64 = shape.iter().product();
            let data = Bytes::from(vec![7; items as usize * 4]);
            let array = Array::new(Dtype::Float32, shape, data).expect("it fits");
            let head = head(&array);
            assert_eq!(head.len() % 64, 0);
            let file: Bytes = [head, array.data.clone()].concat().into();
            assert_eq!(read(&file), Ok(array));
        }
    }

    #[test]
    fn numpy_s_own_files_are_read_and_nothing_else() {
        let header = "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }     \n";
        let array = read(&file(header, &[1, 0, 0, 0, 2, 0, 0, 0])).expect("a file");
        assert_eq!((array.dtype, array.shape), (Dtype::Int32, vec![2]));
        for wrong in [
            "{'descr': '|O', 'fortran_order': False, 'shape': (2,), }",
            "{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (2,), }",
            "{'descr': '>i4', 'fortran_order': False, 'shape': (2,), }",
            "{'descr': '<i4', 'fortran_order': True, 'shape': (1, 2), }",
            "{'descr': '<i4', 'fortran_order': False, 'shape': (2), }",
            "{'descr': '<i4', 'fortran_order': False, 'shape': (-2,), }",
            "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), 'more': 1}",
            "{'descr': '<i4', 'descr': '<i4', 'fortran_order': False, 'shape': (2,)}",
            "{'descr': '<i4', 'fortran_order': False}",
            "{'descr': '<i4', 'fortran_order': False, 'shape': (2,)} or exit()",
            "{'descr': '<i4', 'fortran_order': 0, 'shape': (2,)}",
            "{'descr': '<i4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
            "{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }",
            "",
        ] {
            assert!(read(&file(wrong, &[0; 8])).is_err(), "{wrong}");
        }
        let whole = file(header, &[0; 8]);
        for end in 0..whole.len() {
            assert!(read(&whole.slice(..end)).is_err(), "cut at {end}");
        }
        let mut later = whole.to_vec();
        later[6] = 4;
        assert!(read(&Bytes::from(later)).is_err_and(|text| text.contains("version 4")));
    }
}
