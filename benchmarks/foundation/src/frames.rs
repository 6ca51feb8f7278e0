//! A value and an error on their way up through ten frames.
//!
//! Every frame is a function that is never inlined, asks the one below with `?` and adds one. `peers.cpp` has the same
//! ten frames over `std::expected` and over an exception.

use std::hint::black_box;

use ropewalk_base::{Code, Error, error};

use crate::clock::per_call;

/// What happens below the ten frames.
pub trait Bottom {
    /// What goes wrong.
    type Error;

    /// Answers an even number with itself and an odd one with the error.
    fn ask(&mut self, number: u64) -> Result<u64, Self::Error>;
}

/// Makes Ropewalk's error when it is asked, as a program does that fails.
pub struct Made;

impl Bottom for Made {
    type Error = Error;

    #[inline(never)]
    fn ask(&mut self, number: u64) -> Result<u64, Error> {
        if number & 1 == 0 { Ok(number) } else { Err(error!(Code::TooLarge, "odd numbers do not fit")) }
    }
}

/// Has Ropewalk's error at hand: the frames alone.
pub struct AtHand(pub Option<Error>);

impl Bottom for AtHand {
    type Error = Error;

    #[inline(never)]
    fn ask(&mut self, number: u64) -> Result<u64, Error> {
        match self.0.take() {
            Some(error) if number & 1 == 1 => Err(error),
            kept => {
                self.0 = kept;
                Ok(number)
            }
        }
    }
}

/// The least that an error with a code and a message can be: two fields by value, written by hand.
#[derive(Debug)]
pub struct Plain {
    /// What kind of failure it was.
    pub code: Code,
    /// What is said about it.
    pub message: &'static str,
}

/// Makes the hand-written error.
pub struct ByHand;

impl Bottom for ByHand {
    type Error = Plain;

    #[inline(never)]
    fn ask(&mut self, number: u64) -> Result<u64, Plain> {
        if number & 1 == 0 {
            Ok(number)
        } else {
            Err(Plain { code: Code::TooLarge, message: "odd numbers do not fit" })
        }
    }
}

macro_rules! frames {
    ($top:ident $next:ident $($rest:ident)*) => {
        #[inline(never)]
        fn $top<B: Bottom>(bottom: &mut B, number: u64) -> Result<u64, B::Error> {
            let below = $next(bottom, number)?;
            Ok(below + 1)
        }
        frames!($next $($rest)*);
    };
    ($last:ident) => {
        #[inline(never)]
        fn $last<B: Bottom>(bottom: &mut B, number: u64) -> Result<u64, B::Error> {
            let below = bottom.ask(number)?;
            Ok(below + 1)
        }
    };
}

frames!(frame_10 frame_9 frame_8 frame_7 frame_6 frame_5 frame_4 frame_3 frame_2 frame_1);

/// Asks through ten frames.
///
/// # Errors
///
/// What the bottom answers to an odd number.
#[inline]
pub fn through_ten<B: Bottom>(bottom: &mut B, number: u64) -> Result<u64, B::Error> {
    frame_10(bottom, number)
}

/// Nanoseconds for a value through ten frames.
pub fn value<B: Bottom>(bottom: &mut B, calls: usize) -> f64 {
    per_call(calls, |index| {
        let _ = black_box(through_ten(bottom, black_box(2 * index as u64)));
    })
}

/// Nanoseconds for an error through ten frames, from where it is made until it is dropped.
pub fn error<B: Bottom>(bottom: &mut B, calls: usize) -> f64 {
    per_call(calls, |index| {
        let _ = black_box(through_ten(bottom, black_box(2 * index as u64 + 1)));
    })
}

/// Nanoseconds for an error that is neither made nor dropped on the way.
pub fn error_at_hand(calls: usize) -> f64 {
    let mut bottom = AtHand(Some(error!(Code::TooLarge, "odd numbers do not fit")));
    per_call(calls, |index| {
        let answer = black_box(through_ten(&mut bottom, black_box(2 * index as u64 + 1)));
        bottom.0 = answer.err();
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_gain_one_in_each_frame_and_errors_arrive() {
        assert_eq!(through_ten(&mut Made, 32).expect("32 is even"), 42);
        assert_eq!(through_ten(&mut Made, 33).expect_err("33 is odd").code(), Code::TooLarge);
        assert_eq!(through_ten(&mut ByHand, 33).expect_err("33 is odd").code, Code::TooLarge);
    }

    #[test]
    fn an_error_at_hand_is_handed_over_and_can_be_given_back() {
        let mut bottom = AtHand(Some(error!(Code::Os, "it failed")));
        assert_eq!(through_ten(&mut bottom, 2).expect("2 is even"), 12);
        bottom.0 = through_ten(&mut bottom, 1).err();
        assert_eq!(bottom.0.as_ref().map(Error::code), Some(Code::Os));
    }
}
