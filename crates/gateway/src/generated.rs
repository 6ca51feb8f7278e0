//! What the definitions of `proto/` compile to.

#![allow(missing_docs, unreachable_pub, clippy::all)]

connectrpc::include_generated!();

/// The definitions themselves, for reflection.
pub(crate) const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
