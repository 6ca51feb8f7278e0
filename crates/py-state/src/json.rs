//! JSON, written straight from the values of a state.
//!
//! `buffer` is the text as it grows, `plan` what is known of a class, `atom` reads constants and numbers, and `encoder`
//! writes values by their plans. `trie` writes maps and vectors, and keeps the text of a node with the node: a node
//! never changes, so that the next encoding of anything that shares it copies bytes. `functions` is the face to Python.

mod atom;
mod buffer;
mod encoder;
mod functions;
mod plan;
mod trie;

pub(crate) use self::functions::table as functions;
