//! Coded errors.
