//! An answer, and the places of its stream and its buffers.

use ropewalk_pool::codec::{Frame, Loans, frame};
use ropewalk_pool::wire::flags;
use ropewalk_pool::worker::FdChannel;
use ropewalk_shm::memory::Segment;

use crate::pickle::RawView;
use ropewalk_capi::errors::raise;
use ropewalk_capi::object::{Object, Raised, detached};

/// An answer that is ready to be sent.
pub(super) struct Answer {
    pub(super) flags: u16,
    pub(super) body: Body,
}

pub(super) enum Body {
    Empty,
    Stream(Object),
    Frame(Vec<u8>),
}

/// Puts a stream and its buffers where they fit: in the record, or in a segment that the parent takes over.
pub(super) fn place(
    stream: Object,
    buffers: &[Object],
    loans: &Loans,
    max_inline: usize,
    channel: &FdChannel,
) -> Result<Answer, Raised> {
    let bytes = stream.as_bytes().ok_or(Raised)?;
    if buffers.is_empty() && loans.segments.is_empty() && bytes.len() <= max_inline {
        return Ok(Answer { flags: 0, body: Body::Stream(stream) });
    }
    let views: Vec<RawView> = buffers.iter().map(RawView::of).collect::<Result<_, _>>()?;
    let frame = Frame::new(bytes, views.iter().map(RawView::bytes), loans);
    let handles = frame::handles(loans);
    // When nothing can go wrong any more: the parent takes in what a reply names, each as often as it was passed.
    let pass = |own: Option<&Segment>| -> ropewalk_base::Result<()> {
        // The parent may use them from now on for any time.
        loans.lend_for_good();
        for segment in &loans.segments {
            channel.send_segment(segment, false)?;
        }
        own.map_or(Ok(()), |segment| channel.send_segment(segment, true))
    };
    let described = |bytes| Answer { flags: flags::DESCRIBED, body: Body::Frame(bytes) };
    if let Some(bytes) = frame.inline(&handles, max_inline) {
        detached(|| pass(None)).map_err(|error| raise(&error))?;
        return Ok(described(bytes));
    }
    let give = || frame.give(&handles);
    let given = if frame.is_long() { detached(give) } else { give() };
    let (segment, bytes) = given.map_err(|error| raise(&error))?;
    // The socket may be full until the parent reads it.
    detached(|| pass(Some(&segment))).map_err(|error| raise(&error))?;
    debug_assert!(bytes.len() <= max_inline, "`codec::limits` sees to that");
    Ok(described(bytes))
}

/// Puts a copy in the place of a buffer, whose memory the program may come to write to. What was lent is shared: the
/// program's writes to it are to be seen.
pub(super) fn copy_unless_shared(buffer: &mut Object, loans: &Loans) -> Result<(), Raised> {
    let view = RawView::of(buffer)?;
    if frame::is_lent(view.bytes(), loans) {
        return Ok(());
    }
    let copy = Object::bytes(view.bytes())?;
    drop(view);
    *buffer = copy;
    Ok(())
}
