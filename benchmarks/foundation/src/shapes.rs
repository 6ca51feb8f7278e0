//! Pairs of functions, of which ours may cost no instruction more than the one written by hand.
//!
//! `ours_*` uses [`ropewalk_base::Result`] and its methods; `hand_*` is the `match` that one would write over an
//! [`Outcome`] of one's own. `_assembly.py` compares what the compiler makes of them, instruction by instruction.

use ropewalk_base::{Error, Result};

/// A value or an error, without a method.
pub enum Outcome {
    /// It went well.
    Value(u64),
    /// It did not.
    Failed(Error),
}

use Outcome::{Failed, Value};

/// Makes a value.
#[inline(never)]
pub fn ours_ok(value: u64) -> Result<u64> {
    Ok(value)
}

/// Makes a value.
#[inline(never)]
pub fn hand_ok(value: u64) -> Outcome {
    Value(value)
}

/// Makes a failure.
#[inline(never)]
pub fn ours_err(error: Error) -> Result<u64> {
    Err(error)
}

/// Makes a failure.
#[inline(never)]
pub fn hand_err(error: Error) -> Outcome {
    Failed(error)
}

/// Looks which it is.
#[inline(never)]
pub fn ours_check(result: &Result<u64>) -> bool {
    result.is_ok()
}

/// Looks which it is.
#[inline(never)]
pub fn hand_check(outcome: &Outcome) -> bool {
    match outcome {
        Value(_) => true,
        Failed(_) => false,
    }
}

/// Changes the value.
#[inline(never)]
pub fn ours_map(result: Result<u64>) -> Result<u64> {
    result.map(|value| value.wrapping_mul(3))
}

/// Changes the value.
#[inline(never)]
pub fn hand_map(outcome: Outcome) -> Outcome {
    match outcome {
        Value(value) => Value(value.wrapping_mul(3)),
        Failed(error) => Failed(error),
    }
}

/// Goes on with a step that may fail.
#[inline(never)]
pub fn ours_and_then(result: Result<u64>, step: fn(u64) -> Result<u64>) -> Result<u64> {
    result.and_then(step)
}

/// Goes on with a step that may fail.
#[inline(never)]
pub fn hand_and_then(outcome: Outcome, step: fn(u64) -> Outcome) -> Outcome {
    match outcome {
        Value(value) => step(value),
        Failed(error) => Failed(error),
    }
}

/// Goes on, or returns the error to the caller.
#[inline(never)]
pub fn ours_question(step: fn() -> Result<u64>) -> Result<u64> {
    let value = step()?;
    Ok(value.wrapping_add(1))
}

/// Goes on, or returns the error to the caller.
#[inline(never)]
pub fn hand_question(step: fn() -> Outcome) -> Outcome {
    match step() {
        Value(value) => Value(value.wrapping_add(1)),
        Failed(error) => Failed(error),
    }
}

/// Ends with the value or another one.
#[inline(never)]
pub fn ours_unwrap_or(result: Result<u64>, other: u64) -> u64 {
    result.unwrap_or(other)
}

/// Ends with the value or another one.
#[inline(never)]
pub fn hand_unwrap_or(outcome: Outcome, other: u64) -> u64 {
    match outcome {
        Value(value) => value,
        Failed(error) => {
            drop(error);
            other
        }
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_base::Code;

    use super::*;

    fn error() -> Error {
        Error::new(Code::Os, "it failed")
    }

    fn plain(result: Result<u64>) -> Option<u64> {
        result.ok()
    }

    fn own(outcome: Outcome) -> Option<u64> {
        match outcome {
            Value(value) => Some(value),
            Failed(_) => None,
        }
    }

    /// The same machine code shows nothing if the two of a pair do different things.
    #[test]
    fn the_two_of_a_pair_agree() {
        assert_eq!(plain(ours_ok(4)), own(hand_ok(4)));
        assert_eq!(plain(ours_err(error())), own(hand_err(error())));
        assert_eq!(ours_check(&Ok(4)), hand_check(&Value(4)));
        assert_eq!(ours_check(&Err(error())), hand_check(&Failed(error())));
        assert_eq!(plain(ours_map(Ok(4))), own(hand_map(Value(4))));
        assert_eq!(plain(ours_map(Err(error()))), own(hand_map(Failed(error()))));
        assert_eq!(plain(ours_and_then(Ok(4), ours_ok)), own(hand_and_then(Value(4), hand_ok)));
        assert_eq!(plain(ours_and_then(Err(error()), ours_ok)), own(hand_and_then(Failed(error()), hand_ok)));
        assert_eq!(plain(ours_question(|| Ok(4))), own(hand_question(|| Value(4))));
        assert_eq!(plain(ours_question(|| Err(error()))), own(hand_question(|| Failed(error()))));
        assert_eq!(ours_unwrap_or(Ok(4), 5), hand_unwrap_or(Value(4), 5));
        assert_eq!(ours_unwrap_or(Err(error()), 5), hand_unwrap_or(Failed(error()), 5));
    }

    #[test]
    fn an_error_adds_at_most_sixteen_bytes() {
        assert!(size_of::<Result<[u64; 4]>>() - size_of::<[u64; 4]>() <= 16);
        assert!(size_of::<Error>() <= 16);
    }
}
