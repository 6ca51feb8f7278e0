//! Reading a journal's file: all whole records, and where they end.
//!
//! Records end where bytes follow that are none. That is how a journal looks whose writer died: what it wrote last may
//! be there in parts, and later parts without earlier ones, because a disk writes in any order. All of it lies behind
//! what the writer knew to be on the disk, and nobody was promised that it stays. Damage before that point is another
//! thing, for it would make committed records disappear. The two are told apart by the records behind the damage: each
//! says up to which offset the file was on the disk when it was written. If one says that of the damaged place, the
//! journal is refused. A mark is a record that says nothing else: a compaction ends with one, and opening a journal
//! writes one if the last writer has not closed it.

use std::io;

use crate::disk::{File, read_whole};
use crate::format::{HEAD, HEADER, Head, Header, Kind, NoHeader, size_of_record};

/// How much is read at once; little in tests, so that records lie across its ends.
const CHUNK: usize = if cfg!(any(test, fuzzing)) { 128 } else { 1 << 20 };

/// A record, as it is read.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Where the record begins in the file; a compaction moves it.
    pub offset: u64,
    /// The number of the record, which rises by 1 or more from one to the next. All parts of a snapshot have that of
    /// the last record that the snapshot stands for.
    pub sequence: u64,
    /// Whether it is a part of a snapshot, which stands for all records before.
    pub is_snapshot: bool,
    /// What was appended.
    pub payload: &'a [u8],
}

/// What was found behind the last whole record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Where the last whole record ends.
    pub offset: u64,
    /// The number of bytes from there to the last one that is not zero.
    pub bytes: u64,
}

/// Where a file's records end, and what its next record has to continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) header: Header,
    pub(crate) offset: u64,
    pub(crate) sequence: u64,
    /// The checksum of the last record, or of the header.
    pub(crate) sum: u32,
    /// What the last record is; `None` if there is none.
    pub(crate) last: Option<Kind>,
    pub(crate) dropped: Option<Dropped>,
}

/// Why a file is refused.
#[derive(Debug)]
pub(crate) enum Refusal {
    NoHeader(NoHeader),
    /// Bytes are damaged that were on the disk.
    Corrupt {
        offset: u64,
        /// The offset of a record which proves it.
        witness: u64,
    },
    Unreadable(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Unreadable(error)
    }
}

/// Reads the records of a file, one after the other.
pub(crate) struct Scanner<F> {
    window: Window<F>,
    header: Header,
    offset: u64,
    sequence: u64,
    sum: u32,
    last: Option<Kind>,
}

impl<F: File> Scanner<F> {
    /// Reads the header.
    pub(crate) fn new(file: F) -> Result<Self, Refusal> {
        let mut window = Window::new(file, CHUNK)?;
        let header = Header::decode(window.bytes(0, HEADER as usize)?).map_err(Refusal::NoHeader)?;
        Ok(Self { window, header, offset: HEADER, sequence: header.base, sum: header.sum(), last: None })
    }

    /// The next whole record.
    pub(crate) fn next(&mut self) -> Result<Option<Record<'_>>, Refusal> {
        let (head, at) = loop {
            let at = self.offset;
            let Some((head, _)) = self.window.record(self.header.id, at)? else { return Ok(None) };
            let follows = match head.kind {
                Kind::Appended => head.sequence > self.sequence,
                Kind::Snapshot | Kind::Closed | Kind::Synced => head.sequence == self.sequence,
            };
            if !follows || head.previous != self.sum || head.synced > at {
                return Ok(None);
            }
            (self.sequence, self.sum, self.last) = (head.sequence, head.sum, Some(head.kind));
            self.offset += head.size();
            if matches!(head.kind, Kind::Appended | Kind::Snapshot) {
                break (head, at);
            }
        };
        // The window has it still; the borrow checker does not let the loop keep it.
        let payload = self.window.bytes(at + HEAD as u64, head.length)?;
        let is_snapshot = head.kind == Kind::Snapshot;
        Ok(Some(Record { offset: at, sequence: head.sequence, is_snapshot, payload }))
    }

    /// What follows the last whole record, and where the next one goes.
    pub(crate) fn end(&mut self) -> Result<End, Refusal> {
        let Self { header, offset, sequence, sum, last, .. } = *self;
        let dropped = self.window.rest(header.id, offset, sequence)?;
        Ok(End { header, offset, sequence, sum, last, dropped })
    }

    /// Looks anew at a file that somebody else writes.
    pub(crate) fn refresh(&mut self) -> Result<(), Refusal> {
        Ok(self.window.refresh()?)
    }
}

/// Calls `each` with every whole record, in their order. It ends the reading by returning `Err`, which is given back.
pub(crate) fn scan<E>(
    file: &impl File,
    mut each: impl FnMut(Record<'_>) -> Result<(), E>,
) -> Result<Result<End, E>, Refusal> {
    let mut scanner = Scanner::new(file)?;
    while let Some(record) = scanner.next()? {
        if let Err(end) = each(record) {
            return Ok(Err(end));
        }
    }
    Ok(Ok(scanner.end()?))
}

/// How much is read behind a leap.
const LEAP: usize = 1 << 12;

/// A part of a file.
pub(crate) struct Window<F> {
    file: F,
    size: u64,
    /// How much is read at once.
    chunk: usize,
    start: u64,
    buffer: Vec<u8>,
}

impl<F: File> Window<F> {
    pub(crate) fn new(file: F, chunk: usize) -> io::Result<Self> {
        Ok(Self { size: file.size()?, file, chunk, start: 0, buffer: Vec::new() })
    }

    fn refresh(&mut self) -> io::Result<()> {
        self.size = self.file.size()?;
        self.buffer.clear();
        Ok(())
    }

    /// So many bytes from an offset on, or fewer if the file ends there.
    pub(crate) fn bytes(&mut self, offset: u64, count: usize) -> io::Result<&[u8]> {
        let within = |start: u64, len: usize| {
            let at = usize::try_from(offset.checked_sub(start)?).ok()?;
            (count <= len.checked_sub(at)?).then_some(at)
        };
        let at = match within(self.start, self.buffer.len()) {
            Some(at) => at,
            None => {
                let left = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
                // Behind a leap the rest of a whole chunk would be read for nothing, if the next one is a leap too.
                let goes_on =
                    offset.checked_sub(self.start).is_some_and(|gap| gap <= self.buffer.len() as u64);
                let ahead = if goes_on { self.chunk } else { self.chunk.min(LEAP) };
                self.buffer.resize(count.max(ahead).min(left), 0);
                self.start = offset;
                let read = read_whole(&self.file, &mut self.buffer, offset)?;
                self.buffer.truncate(read);
                0
            }
        };
        let end = (at + count).min(self.buffer.len());
        Ok(&self.buffer[at..end])
    }

    /// The record that was written to this offset, if one was.
    pub(crate) fn record(&mut self, id: u64, offset: u64) -> io::Result<Option<(Head, &[u8])>> {
        let Some(head) = Head::decode(self.bytes(offset, HEAD)?) else { return Ok(None) };
        if head.size() > self.size.saturating_sub(offset) {
            return Ok(None);
        }
        let bytes = self.bytes(offset, HEAD + head.length)?;
        let Some(payload) = bytes.get(HEAD..HEAD + head.length) else { return Ok(None) };
        Ok(head.is_proved(bytes, payload, id, offset).then_some((head, payload)))
    }

    /// Looks at what follows the last whole record.
    fn rest(&mut self, id: u64, end: u64, sequence: u64) -> Result<Option<Dropped>, Refusal> {
        let mut last = end;
        let mut offset = end;
        while offset < self.size {
            let bytes = self.bytes(offset, CHUNK)?;
            if bytes.is_empty() {
                break;
            }
            let len = bytes.len();
            if let Some(at) = bytes.iter().rposition(|byte| *byte != 0) {
                last = offset + at as u64 + 1;
            }
            offset += len as u64;
        }
        if last == end {
            return Ok(None);
        }
        // The smallest record that says anything of the damaged one lies behind it.
        let mut offset = end + size_of_record(0);
        while offset < last {
            // A head is read in full before the payload, which may be large, and only if it could be the proof.
            let is_witness =
                |head: &Head| head.synced > end && head.synced <= offset && head.sequence >= sequence;
            if Head::decode(self.bytes(offset, HEAD)?).as_ref().is_some_and(is_witness)
                && self.record(id, offset)?.is_some()
            {
                return Err(Refusal::Corrupt { offset: end, witness: offset });
            }
            offset += 8;
        }
        Ok(Some(Dropped { offset: end, bytes: last - end }))
    }
}
