//! Channels between processes: rings of records, pipes of bytes, the word that wakes a reader, and the switchboard
//! between one process and many.

pub mod attention;
pub mod pipe;
pub mod ring;
#[cfg(not(loom))]
pub mod switchboard;
