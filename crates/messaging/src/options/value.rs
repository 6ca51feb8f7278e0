//! The values of options, as programs read them.

/// A value as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A C `int`.
    Int(i32),
    /// An `int64_t`.
    Int64(i64),
    /// A `uint64_t`.
    Uint64(u64),
    /// Bytes, or a string without its final zero.
    Bytes(Vec<u8>),
}

/// How two ends make sure of each other; the value is the option's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(i32)]
pub enum Mechanism {
    /// Not at all, unless an authenticator looks at addresses.
    #[default]
    Null = 0,
    /// By a name and a password, sent in the clear.
    Plain = 1,
    /// By keys, and everything is encrypted.
    Curve = 2,
}

/// The type of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// A C `int`.
    Int,
    /// An `int64_t`, or a `uint64_t`.
    Int64,
    /// Bytes, or text.
    Bytes,
    /// A file descriptor.
    Descriptor,
}
