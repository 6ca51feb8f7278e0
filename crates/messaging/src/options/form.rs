//! The forms of option values: the type, the range, and the field that the socket keeps.

use std::time::Duration;

use ropewalk_zmtp::z85;

use super::value::{Mechanism, Value, ValueType};

/// The longest name that fits in one byte of a length.
const SHORT: usize = 255;

/// One way of reading and writing a value.
pub(super) trait Form {
    /// The field that the socket keeps.
    type Field;
    const TYPE: ValueType;

    /// The accepted values, in words.
    fn values() -> String;

    /// The value in the bytes of a C value, in the machine's byte order; `None` if its size or range is wrong.
    fn parse(value: &[u8]) -> Option<Self::Field>;

    /// The value as programs read it.
    fn get(field: &Self::Field) -> Value;

    /// Changes the field; `None` and no change if the value is refused.
    fn set(field: &mut Self::Field, value: &[u8]) -> Option<()> {
        *field = Self::parse(value)?;
        Some(())
    }
}

// --- numbers -----------------------------------------------------------------------------------------------

/// A number from `MIN` to `MAX`.
pub(super) struct Int<const MIN: i32, const MAX: i32>;

impl<const MIN: i32, const MAX: i32> Form for Int<MIN, MAX> {
    type Field = i32;
    const TYPE: ValueType = ValueType::Int;

    fn values() -> String {
        match (MIN, MAX) {
            (i32::MIN, i32::MAX) => "a number".to_owned(),
            (_, i32::MAX) => format!("a number ≥ {MIN}"),
            _ => format!("{MIN} to {MAX}"),
        }
    }

    fn parse(value: &[u8]) -> Option<i32> {
        Some(i32::from_ne_bytes(value.try_into().ok()?)).filter(|number| (MIN..=MAX).contains(number))
    }

    fn get(field: &i32) -> Value {
        Value::Int(*field)
    }
}

type Natural = Int<0, { i32::MAX }>;

/// 0 or 1.
pub(super) struct OnOff;

impl Form for OnOff {
    type Field = bool;
    const TYPE: ValueType = ValueType::Int;

    fn values() -> String {
        "0 or 1".to_owned()
    }

    fn parse(value: &[u8]) -> Option<bool> {
        Int::<0, 1>::parse(value).map(|number| number == 1)
    }

    fn get(field: &bool) -> Value {
        Value::Int(i32::from(*field))
    }
}

/// A number that is not less than `MIN`; all but 0 are true.
pub(super) struct Truth<const MIN: i32>;

impl<const MIN: i32> Form for Truth<MIN> {
    type Field = bool;
    const TYPE: ValueType = ValueType::Int;

    fn values() -> String {
        "0, or a number for 1".to_owned()
    }

    fn parse(value: &[u8]) -> Option<bool> {
        Int::<MIN, { i32::MAX }>::parse(value).map(|number| number != 0)
    }

    fn get(field: &bool) -> Value {
        OnOff::get(field)
    }
}

/// The opposite of a field that is on or off.
pub(super) struct Inverse;

impl Form for Inverse {
    type Field = bool;
    const TYPE: ValueType = ValueType::Int;

    fn values() -> String {
        OnOff::values()
    }

    fn parse(value: &[u8]) -> Option<bool> {
        OnOff::parse(value).map(|is_on| !is_on)
    }

    fn get(field: &bool) -> Value {
        OnOff::get(&!*field)
    }
}

/// How many of something.
pub(super) struct Count;

impl Form for Count {
    type Field = usize;
    const TYPE: ValueType = ValueType::Int;

    fn values() -> String {
        Natural::values()
    }

    fn parse(value: &[u8]) -> Option<usize> {
        Natural::parse(value).map(|number| number as usize)
    }

    fn get(field: &usize) -> Value {
        Value::Int(i32::try_from(*field).unwrap_or(i32::MAX))
    }
}

/// 64 bits.
pub(super) struct Bits;

impl Form for Bits {
    type Field = u64;
    const TYPE: ValueType = ValueType::Int64;

    fn values() -> String {
        "64 bits".to_owned()
    }

    fn parse(value: &[u8]) -> Option<u64> {
        Some(u64::from_ne_bytes(value.try_into().ok()?))
    }

    fn get(field: &u64) -> Value {
        Value::Uint64(*field)
    }
}

/// A number of bytes, or a negative number for none.
pub(super) struct MaxSize;

impl Form for MaxSize {
    type Field = Option<u64>;
    const TYPE: ValueType = ValueType::Int64;

    fn values() -> String {
        "a number of bytes, or -1".to_owned()
    }

    fn parse(value: &[u8]) -> Option<Option<u64>> {
        Some(u64::try_from(i64::from_ne_bytes(value.try_into().ok()?)).ok())
    }

    fn get(field: &Option<u64>) -> Value {
        Value::Int64(field.map_or(-1, |most| i64::try_from(most).unwrap_or(i64::MAX)))
    }
}

/// A number of bytes, as an `int64_t` or an `int`.
pub(super) struct ByteLimit;

impl Form for ByteLimit {
    type Field = usize;
    const TYPE: ValueType = ValueType::Int64;

    fn values() -> String {
        "a number of bytes".to_owned()
    }

    fn parse(value: &[u8]) -> Option<usize> {
        match value.try_into() {
            Ok(wide) => usize::try_from(i64::from_ne_bytes(wide)).ok(),
            Err(_) => Count::parse(value),
        }
    }

    fn get(field: &usize) -> Value {
        Value::Int64(i64::try_from(*field).unwrap_or(i64::MAX))
    }
}

/// The mechanism, which is never set by its number.
pub(super) struct Role;

impl Form for Role {
    type Field = Mechanism;
    const TYPE: ValueType = ValueType::Int;

    fn values() -> String {
        "NULL, PLAIN or CURVE".to_owned()
    }

    fn parse(_: &[u8]) -> Option<Mechanism> {
        None
    }

    fn get(field: &Mechanism) -> Value {
        Value::Int(*field as i32)
    }
}

// --- times -------------------------------------------------------------------------------------------------

fn millis(number: i32) -> Duration {
    Duration::from_millis(u64::try_from(number).unwrap_or(0))
}

/// Milliseconds, and the most that an `int` holds for what Rust code has set beyond that.
fn in_millis(time: Duration) -> Value {
    Value::Int(i32::try_from(time.as_millis()).unwrap_or(i32::MAX))
}

/// Milliseconds that are not less than `MIN`; `NONE` is no time.
pub(super) struct Millis<const MIN: i32, const NONE: i32>;

impl<const MIN: i32, const NONE: i32> Form for Millis<MIN, NONE> {
    type Field = Option<Duration>;
    const TYPE: ValueType = ValueType::Int;

    fn values() -> String {
        format!("ms ≥ {MIN}")
    }

    fn parse(value: &[u8]) -> Option<Option<Duration>> {
        let number = Int::<MIN, { i32::MAX }>::parse(value)?;
        Some((number != NONE).then(|| millis(number)))
    }

    fn get(field: &Option<Duration>) -> Value {
        field.map_or(Value::Int(NONE), in_millis)
    }
}

/// Milliseconds.
pub(super) struct Delay;

impl Form for Delay {
    type Field = Duration;
    const TYPE: ValueType = ValueType::Int;

    fn values() -> String {
        "ms ≥ 0".to_owned()
    }

    fn parse(value: &[u8]) -> Option<Duration> {
        Natural::parse(value).map(millis)
    }

    fn get(field: &Duration) -> Value {
        in_millis(*field)
    }
}

/// Milliseconds, of which whole tenths of a second are kept: they have 16 bits on the wire.
pub(super) struct Tenths;

impl Form for Tenths {
    type Field = Duration;
    const TYPE: ValueType = ValueType::Int;

    fn values() -> String {
        "ms, 0 to 6553599, cut to tenths of a second".to_owned()
    }

    fn parse(value: &[u8]) -> Option<Duration> {
        let tenths = u16::try_from(Natural::parse(value)? / 100).ok()?;
        Some(Duration::from_millis(u64::from(tenths) * 100))
    }

    fn get(field: &Duration) -> Value {
        in_millis(*field)
    }
}

// --- bytes -------------------------------------------------------------------------------------------------

/// `MIN` to `MAX` bytes.
pub(super) struct Text<const MIN: usize, const MAX: usize>;

impl<const MIN: usize, const MAX: usize> Form for Text<MIN, MAX> {
    type Field = Vec<u8>;
    const TYPE: ValueType = ValueType::Bytes;

    fn values() -> String {
        format!("{MIN} to {MAX} bytes")
    }

    fn parse(value: &[u8]) -> Option<Vec<u8>> {
        (MIN..=MAX).contains(&value.len()).then(|| value.to_vec())
    }

    fn get(field: &Vec<u8>) -> Value {
        Value::Bytes(field.clone())
    }
}

/// At most `MAX` bytes; none if they are empty.
pub(super) struct Blob<const MAX: usize>;

impl<const MAX: usize> Form for Blob<MAX> {
    type Field = Option<Vec<u8>>;
    const TYPE: ValueType = ValueType::Bytes;

    fn values() -> String {
        if MAX == usize::MAX { "bytes".to_owned() } else { format!("up to {MAX} bytes") }
    }

    fn parse(value: &[u8]) -> Option<Option<Vec<u8>>> {
        (value.len() <= MAX).then(|| (!value.is_empty()).then(|| value.to_vec()))
    }

    fn get(field: &Option<Vec<u8>>) -> Value {
        Value::Bytes(field.clone().unwrap_or_default())
    }
}

/// Bytes of another form that are not there at first, and taken away by the socket when they are used.
pub(super) struct Optional<F>(std::marker::PhantomData<F>);

impl<F: Form<Field = Vec<u8>>> Form for Optional<F> {
    type Field = Option<Vec<u8>>;
    const TYPE: ValueType = F::TYPE;

    fn values() -> String {
        F::values()
    }

    fn parse(value: &[u8]) -> Option<Option<Vec<u8>>> {
        F::parse(value).map(Some)
    }

    fn get(field: &Option<Vec<u8>>) -> Value {
        Value::Bytes(field.clone().unwrap_or_default())
    }
}

/// A CURVE key: 32 bytes, or 40 characters of Z85, or these with a final zero.
pub(super) struct Key;

impl Form for Key {
    type Field = Option<[u8; 32]>;
    const TYPE: ValueType = ValueType::Bytes;

    fn values() -> String {
        "32 bytes, or 40 characters of Z85".to_owned()
    }

    fn parse(value: &[u8]) -> Option<Option<[u8; 32]>> {
        let encoded = match value.len() {
            32 => return Some(value.try_into().ok()),
            40 => value,
            41 if value[40] == 0 => &value[..40],
            _ => return None,
        };
        z85::decode(std::str::from_utf8(encoded).ok()?)?.try_into().ok().map(Some)
    }

    /// Zeros if there is no key.
    fn get(field: &Option<[u8; 32]>) -> Value {
        Value::Bytes(field.unwrap_or_default().to_vec())
    }
}

/// `X-name:value`, once for each property.
pub(super) struct Property;

impl Form for Property {
    type Field = Vec<(String, Vec<u8>)>;
    const TYPE: ValueType = ValueType::Bytes;

    fn values() -> String {
        "`X-name:value`".to_owned()
    }

    fn parse(value: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
        let colon = value.iter().position(|&byte| byte == b':')?;
        let (name, value) = (std::str::from_utf8(&value[..colon]).ok()?, &value[colon + 1..]);
        let is_valid = name.starts_with("X-") && name.len() <= SHORT && !value.is_empty();
        is_valid.then(|| vec![(name.to_owned(), value.to_vec())])
    }

    /// Nothing: it is only set.
    fn get(_: &Vec<(String, Vec<u8>)>) -> Value {
        Value::Bytes(Vec::new())
    }

    /// Adds a property; the first value of a name stays.
    fn set(field: &mut Vec<(String, Vec<u8>)>, value: &[u8]) -> Option<()> {
        for property in Self::parse(value)? {
            if field.iter().all(|(known, _)| *known != property.0) {
                field.push(property);
            }
        }
        Some(())
    }
}
