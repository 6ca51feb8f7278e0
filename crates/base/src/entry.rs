//! What a row of the table of errors becomes: the macro that reads it, and the entry of a code.

use std::ffi::CStr;

/// One code's row in the table of errors.
///
/// `crates/base/tests/generated.rs` makes the Python class and the paragraphs of `docs/errors.md` from it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Entry {
    /// The code as text: programs match on it, so it never changes.
    pub code: &'static str,
    /// The Python class, which has the variant's name.
    pub class: &'static CStr,
    /// The Python module that holds the class.
    pub module: &'static CStr,
    /// What the class derives from: classes of the table, or Python's own.
    pub bases: &'static [&'static str],
    /// The operating system's numbers for this failure, by the names they have in Python's `errno`.
    pub numbers: &'static [(&'static str, i32)],
    /// The lines that say what failed: a first paragraph that stands alone, then paragraphs with details.
    pub doc: &'static [&'static str],
    /// What to try, in a sentence or two.
    pub remedy: &'static str,
}

/// Makes `Code` and its entries from one table, so that no code can lack a column.
macro_rules! errors {
    ($(
        in $module:literal {$(
            $(#[doc = $doc:literal])+
            $name:ident($($base:literal),+) $([$($number:ident),+])? = $code:literal, $remedy:literal;
        )+}
    )+) => {
        /// The kind of a failure: one row of the table of errors. Each variant has the name of its Python class.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Code {
            $($(
                $(#[doc = $doc])+
                $name,
            )+)+
        }

        impl Code {
            /// Every code, in the table's order: a class comes after those it derives from.
            pub const ALL: &[Self] = &[$($(Self::$name,)+)+];
        }

        static ENTRIES: [$crate::entry::Entry; Code::ALL.len()] = [
            $($(
                $crate::entry::Entry {
                    code: $code,
                    class: $crate::entry::c_text(concat!(stringify!($name), "\0")),
                    module: $crate::entry::c_text(concat!($module, "\0")),
                    bases: &[$($base),+],
                    numbers: &[$($((stringify!($number), $crate::entry::$number)),+)?],
                    doc: &[$($doc),+],
                    remedy: $remedy,
                },
            )+)+
        ];

        impl Code {
            /// This code's row in the table.
            #[inline]
            pub fn entry(self) -> &'static $crate::entry::Entry {
                &ENTRIES[self as usize]
            }
        }
    };
}

pub(crate) use errors;

/// The text as a C string; `text` ends with its zero byte.
pub(crate) const fn c_text(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a name holds a zero"),
    }
}

// Linux's numbers for the limits.
pub(crate) const EAGAIN: i32 = 11;
pub(crate) const ENOMEM: i32 = 12;
pub(crate) const ENFILE: i32 = 23;
pub(crate) const EMFILE: i32 = 24;
pub(crate) const EFBIG: i32 = 27;
pub(crate) const ENOSPC: i32 = 28;
pub(crate) const ENOSYS: i32 = 38;
