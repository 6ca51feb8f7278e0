//! An answer on its way: where its stream and its buffers go.

use std::sync::Arc;

use pyo3_ffi as ffi;
use ropewalk_pool::frame::{self, Entry, Part};
use ropewalk_pool::wire::flags;
use ropewalk_pool::worker::FdChannel;
use ropewalk_shm::memory::Segment;

use crate::lending::Loans;
use crate::shared::Piece;
use ropewalk_capi::errors::raise;
use ropewalk_capi::object::{Object, Raised, detached};

/// Buffers up to this many bytes together are copied into the record.
const INLINE: usize = 16 * 1024;
/// Copies longer than this are made with the interpreter released.
const LONG_COPY: usize = 256 * 1024;

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
    handles: &Loans,
    max_inline: usize,
    channel: &FdChannel,
) -> Result<Answer, Raised> {
    let bytes = stream.as_bytes().ok_or(Raised)?;
    if buffers.is_empty() && handles.segments.is_empty() && bytes.len() <= max_inline {
        return Ok(Answer { flags: 0, body: Body::Stream(stream) });
    }
    let views: Vec<RawView> = buffers.iter().map(RawView::of).collect::<Result<_, _>>()?;
    let all: Vec<Piece<'_>> = std::iter::once(Piece::Copied(bytes))
        .chain(views.iter().map(|view| Piece::of(view.bytes(), handles)))
        .collect();
    let mut entries = Vec::new();
    for segment in &handles.segments {
        let (id, generation) = (segment.id(), segment.generation());
        entries.push(Entry { segment: id, generation, offset: 0, length: segment.size() });
    }
    // When nothing can go wrong any more: the parent takes in what a reply names, each as often as it was passed.
    let pass = |own: Option<&Segment>| -> ropewalk_base::Result<()> {
        // The parent has them from now on, for as long as it likes.
        handles.lend_for_good();
        for segment in &handles.segments {
            channel.send_segment(segment, false)?;
        }
        own.map_or(Ok(()), |segment| channel.send_segment(segment, true))
    };
    let total = all.iter().map(|piece| piece.copied().len()).sum::<usize>();
    let mut parts = Vec::new();
    for piece in &all {
        piece.append(&mut parts, Part::Inline);
    }
    if total <= INLINE && frame::encoded_len(&parts, entries.len()) <= max_inline {
        detached(|| pass(None)).map_err(|error| raise(&error))?;
        return Ok(Answer { flags: flags::DESCRIBED, body: Body::Frame(frame::encode(0, &parts, &entries)) });
    }
    let write = || -> ropewalk_base::Result<(Arc<Segment>, Vec<Part<'_>>)> {
        let size = all.iter().map(|piece| piece.copied().len().next_multiple_of(frame::ALIGN)).sum::<usize>();
        let segment = Segment::create(size, false)?;
        segment.make_huge();
        let mut parts = Vec::new();
        let mut offset = 0;
        let (id, generation) = (segment.id(), segment.generation());
        for piece in &all {
            let length = piece.copied().len() as u64;
            segment.fill(offset, piece.copied())?;
            let entry = Entry { segment: id, generation, offset, length };
            piece.append(&mut parts, |_| Part::Placed(entry));
            offset += length.next_multiple_of(frame::ALIGN as u64);
        }
        segment.set_aside()?;
        let segment = segment.publish(None);
        Ok((segment, parts))
    };
    let written = if total > LONG_COPY { detached(write) } else { write() };
    let (segment, parts) = written.map_err(|error| raise(&error))?;
    // The socket may be full until the parent looks.
    detached(|| pass(Some(&segment))).map_err(|error| raise(&error))?;
    debug_assert!(frame::encoded_len(&parts, entries.len()) <= max_inline, "`lending` sees to that");
    Ok(Answer { flags: flags::DESCRIBED, body: Body::Frame(frame::encode(0, &parts, &entries)) })
}

/// Puts a copy in the place of a buffer, whose memory the program may come to write to. What was lent is shared: the
/// program's writes to it are to be seen.
pub(super) fn copy_unless_shared(buffer: &mut Object, loans: &Loans) -> Result<(), Raised> {
    let view = RawView::of(buffer)?;
    let copy = match Piece::of(view.bytes(), loans) {
        Piece::Copied(bytes) => Object::bytes(bytes)?,
        Piece::Shared(..) => return Ok(()),
    };
    drop(view);
    *buffer = copy;
    Ok(())
}

/// The raw bytes of a `PickleBuffer`.
struct RawView {
    view: Box<ffi::Py_buffer>,
}

impl RawView {
    fn of(buffer: &Object) -> Result<Self, Raised> {
        // A `PickleBuffer`, or a copy of what was in one.
        let is_copy = buffer.as_bytes().is_some();
        let raw = if is_copy { buffer.clone() } else { buffer.attribute(c"raw")?.call(&[])? };
        // SAFETY: zeros are a valid, empty Py_buffer; GetBuffer fills it, and keeps its own reference to the exporter.
        unsafe {
            let mut view: Box<ffi::Py_buffer> = Box::new(std::mem::zeroed());
            if ffi::PyObject_GetBuffer(raw.as_ptr(), &raw mut *view, ffi::PyBUF_SIMPLE) != 0 {
                return Err(Raised);
            }
            Ok(Self { view })
        }
    }

    fn bytes(&self) -> &[u8] {
        match usize::try_from(self.view.len) {
            // SAFETY: a simple view is `len` contiguous bytes, exported until it is released.
            Ok(len) if len > 0 => unsafe { std::slice::from_raw_parts(self.view.buf.cast::<u8>(), len) },
            _ => &[],
        }
    }
}

impl Drop for RawView {
    fn drop(&mut self) {
        // SAFETY: filled by GetBuffer, and released once.
        unsafe { ffi::PyBuffer_Release(&raw mut *self.view) };
    }
}
