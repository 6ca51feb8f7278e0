//! How a call and its result become bytes, but for the pickling itself: what every end of a lane agrees on.
//!
//! A **frame** is a pickle-5 stream and the buffers that the pickler left out of it. What is short lies in the record
//! ([`table`] says where); what is large lies in a lease of the sender's arena, or in a segment that its receiver takes
//! over; what lies in shared memory already is named by its handle ([`places`]) and copied by nobody. The segments that
//! a frame refers to are its [`loans`]: their descriptors travel before the record. A [`chunk`] of inputs or results is
//! one stream, put together from a stream for each.
//!
//! Nothing here knows Python. The layer above pickles, and has the pickler ask [`limits`] what stays in the stream.

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
