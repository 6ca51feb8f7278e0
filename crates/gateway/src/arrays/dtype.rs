//! The types of an array's items: NumPy's name, what a file of NumPy's says, and KServe's name.

/// The type of an array's items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dtype {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Float16,
    Float32,
    Float64,
    Complex64,
    Complex128,
}

use Dtype::{
    Bool, Complex64, Complex128, Float16, Float32, Float64, Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32,
    Uint64,
};

/// Of each type NumPy's name, its type string of little-endian items, KServe's name, and the bytes of an item.
const ALL: [(Dtype, &str, &str, Option<&str>, usize); 14] = [
    (Bool, "bool", "|b1", Some("BOOL"), 1),
    (Int8, "int8", "|i1", Some("INT8"), 1),
    (Int16, "int16", "<i2", Some("INT16"), 2),
    (Int32, "int32", "<i4", Some("INT32"), 4),
    (Int64, "int64", "<i8", Some("INT64"), 8),
    (Uint8, "uint8", "|u1", Some("UINT8"), 1),
    (Uint16, "uint16", "<u2", Some("UINT16"), 2),
    (Uint32, "uint32", "<u4", Some("UINT32"), 4),
    (Uint64, "uint64", "<u8", Some("UINT64"), 8),
    (Float16, "float16", "<f2", Some("FP16"), 2),
    (Float32, "float32", "<f4", Some("FP32"), 4),
    (Float64, "float64", "<f8", Some("FP64"), 8),
    (Complex64, "complex64", "<c8", None, 8),
    (Complex128, "complex128", "<c16", None, 16),
];

impl Dtype {
    fn row(self) -> &'static (Self, &'static str, &'static str, Option<&'static str>, usize) {
        // The table has them in the order of the enum.
        ALL.get(self as usize).unwrap_or(&ALL[0])
    }

    fn find(is_it: impl Fn(&(Self, &str, &str, Option<&str>, usize)) -> bool) -> Option<Self> {
        ALL.iter().find(|row| is_it(row)).map(|row| row.0)
    }

    /// The type of NumPy's name.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::find(|row| row.1 == name)
    }

    /// The type of a type string in a file of NumPy's; `None` for big-endian items, objects and all others.
    pub(crate) fn of_descr(text: &str) -> Option<Self> {
        // Items of one byte have no order: NumPy writes `|`, and reads any.
        Self::find(|row| row.2 == text || (row.4 == 1 && text.strip_prefix('<') == row.2.strip_prefix('|')))
    }

    /// The type of KServe's name.
    pub(crate) fn of_datatype(name: &str) -> Option<Self> {
        Self::find(|row| row.3 == Some(name))
    }

    /// NumPy's name.
    pub(crate) fn name(self) -> &'static str {
        self.row().1
    }

    /// What a file of NumPy's says.
    pub(crate) fn descr(self) -> &'static str {
        self.row().2
    }

    /// KServe's name; complex numbers have none there.
    pub(crate) fn datatype(self) -> Option<&'static str> {
        self.row().3
    }

    /// The bytes of an item.
    pub(crate) fn size(self) -> usize {
        self.row().4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_is_found_by_its_names() {
        for (at, row) in ALL.iter().enumerate() {
            assert_eq!(row.0 as usize, at);
            assert_eq!(Dtype::of_name(row.0.name()), Some(row.0));
            assert_eq!(Dtype::of_descr(row.0.descr()), Some(row.0));
            assert_eq!(row.0.datatype().map(Dtype::of_datatype), row.3.map(|_| Some(row.0)));
            assert!(row.0.descr().ends_with(&row.0.size().to_string()));
        }
        assert_eq!(Dtype::of_descr("<u1"), Some(Uint8));
        for strange in ["|O", "O", ">f4", "<f4 ", "|f4", "<U4", "|S4", "<M8[ns]", "|V8", ""] {
            assert_eq!(Dtype::of_descr(strange), None, "{strange}");
        }
    }
}
