//! How a call and its result become bytes, except the pickling itself: the format that both ends of a lane share.
//!
//! A **frame** is a pickle-5 stream and the buffers that the pickler left out of it. Short parts are in the record
//! ([`table`] has their places); large parts are in a lease of the sender's arena, or in a segment that the receiver
//! takes over; parts that are in shared memory already are named by a handle ([`places`]) and not copied. The segments
//! that a frame refers to are its [`loans`]: their descriptors travel before the record. A [`chunk`] of inputs or
//! results is one stream, put together from a stream for each.
//!
//! Nothing here knows Python. The layer above pickles, and its pickler asks [`limits`] which buffers stay in the
//! stream.

pub mod chunk;
pub mod frame;
pub mod limits;
pub mod loans;
pub mod places;
pub mod table;

pub use chunk::Item;
pub use frame::Frame;
pub use loans::{Lent, Loans};
pub use places::Place;
pub use table::{Entry, Part, Table};
