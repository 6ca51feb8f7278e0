//! `ReadPipe` and `WritePipe`: the parts of pipes' transports that run for each message.
//!
//! `ropewalk.loop` adds what runs once for each pipe, and decides what counts as one: a pipe, a socket, a terminal.

pub(super) mod kind;
mod read;
mod write;
