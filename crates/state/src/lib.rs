//! What typed state needs and no interpreter: the arithmetic of 32-way tries, and claims on parts of a state.

#![forbid(unsafe_code)]

pub mod bits;
pub mod claims;
