//! The kinds of worker that can run a pool's tasks.
//!
//! A kind is one file of this folder that implements [`Backend`](crate::pool::Backend), and one line in `engine.rs`,
//! where the layer above can name it. Nothing outside of this folder asks which kind a pool has;
//! `tests/law/test_backends.py` holds that.

#[cfg(test)]
mod inline;
pub(crate) mod interpreters;
pub(crate) mod processes;
pub(crate) mod ray;
#[cfg(test)]
mod tests;
pub(crate) mod threads;
