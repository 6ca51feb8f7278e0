//! The writer: it owns the file, and puts batches of frames at its end.

use std::io;
use std::path::Path;

use crate::disk::{File, write_whole};
use crate::errors;
use crate::format::{Chain, Kind, encode, size_of_record};
use crate::recovery::End;

/// The file grows by so much at once, and what no record fills yet is written with zeros. Then most syncs write records
/// and no metadata: one into room that was only taken has to note that the room is in use, and takes twice the time.
const STEP: u64 = if cfg!(any(test, fuzzing)) { 256 } else { 1 << 20 };
/// A gathering batch has at most so many bytes; whoever appends more writes it first.
pub(crate) const MOST_GATHERED: usize = if cfg!(any(test, fuzzing)) { 1 << 10 } else { 16 << 20 };
/// So many zeros are written at once.
const ZEROS: usize = if cfg!(any(test, fuzzing)) { 64 } else { 1 << 16 };

/// Records one behind the other: the sequence number and length of each, and all payloads.
#[derive(Default)]
pub(crate) struct Frames {
    heads: Vec<(u64, usize)>,
    payloads: Vec<u8>,
    /// What they will take on the disk.
    size: u64,
}

/// How far frames went.
#[derive(Clone, Copy)]
pub(crate) struct FramesMark {
    count: usize,
    bytes: usize,
    size: u64,
}

impl Frames {
    pub(crate) fn push(&mut self, sequence: u64, payload: &[u8]) {
        self.heads.push((sequence, payload.len()));
        self.payloads.extend_from_slice(payload);
        self.size += size_of_record(payload.len());
    }

    pub(crate) fn count(&self) -> usize {
        self.heads.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.payloads.len()
    }

    /// What they will take on the disk.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn mark(&self) -> FramesMark {
        FramesMark { count: self.count(), bytes: self.bytes(), size: self.size }
    }

    /// Takes back what was added since.
    pub(crate) fn reset(&mut self, mark: FramesMark) {
        self.heads.truncate(mark.count);
        self.payloads.truncate(mark.bytes);
        self.size = mark.size;
    }

    pub(crate) fn clear(&mut self) {
        self.reset(FramesMark { count: 0, bytes: 0, size: 0 });
        // One huge batch does not keep its memory for ever.
        self.payloads.shrink_to(MOST_GATHERED);
    }
}

/// Why a batch was not written.
pub(crate) enum Unwritten<W = errors::Shared> {
    /// The file is as it was; later batches may be written.
    Without(W),
    /// Nobody knows what is on the disk.
    Failed(W),
}

impl Unwritten<io::Error> {
    pub(crate) fn at(self, path: &Path) -> Unwritten {
        match self {
            Self::Without(error) => Unwritten::Without(errors::Shared::without(path, &error)),
            Self::Failed(error) => Unwritten::Failed(errors::Shared::failed(path, &error)),
        }
    }
}

/// A file that takes the place of a writer's.
pub(crate) struct Replacement<F> {
    pub(crate) file: F,
    pub(crate) chain: Chain,
    /// Its size, all of which is on the disk.
    pub(crate) end: u64,
}

/// Whoever has it, owns the file.
pub(crate) struct Writer<F> {
    file: F,
    /// What the next record continues. Up to `chain.synced` the file is on the disk.
    chain: Chain,
    /// Where the next record goes.
    end: u64,
    /// The size of the file.
    size: u64,
    /// The number of the last record.
    last: u64,
    /// The frames of the last batch, empty, whose memory the next one uses.
    pub(crate) spare: Frames,
    bytes: Vec<u8>,
}

impl<F: File> Writer<F> {
    /// Continues a file that ends there, in a new run.
    pub(crate) fn new(file: F, found: &End, size: u64, run: u64) -> Self {
        let chain = Chain { id: found.header.id, synced: found.offset, previous: found.sum, run };
        let (spare, bytes) = (Frames::default(), Vec::new());
        Self { file, chain, end: found.offset, size, last: found.sequence, spare, bytes }
    }

    pub(crate) fn file(&self) -> &F {
        &self.file
    }

    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Whether something was written and not synced.
    pub(crate) fn is_dirty(&self) -> bool {
        self.chain.synced < self.end
    }

    /// Makes a file that was just read the base of what follows, and cuts off what lies behind its records. Records
    /// were read that the last writer may not have synced; from now on they count as committed. A mark says so to the
    /// next opening, unless the last record is one, or there is no record.
    pub(crate) fn begin(&mut self, found: &End) -> io::Result<()> {
        if found.dropped.is_some() {
            self.cut()?
        } else {
            self.file.sync()?
        }
        if !matches!(found.last, Some(Kind::Appended | Kind::Snapshot)) {
            return Ok(());
        }
        match self.mark(Kind::Synced) {
            Ok(()) => {}
            // The journal can be read all the same, and compacted; the next opening tries again.
            Err(Unwritten::Without(error)) if errors::is_no_room(&error) => return Ok(()),
            Err(Unwritten::Without(error) | Unwritten::Failed(error)) => return Err(error),
        }
        self.file.sync()?;
        self.chain.synced = self.end;
        Ok(())
    }

    /// Writes a record that says that all before it is on the disk, which is so.
    fn mark(&mut self, kind: Kind) -> Result<(), Unwritten<io::Error>> {
        self.bytes.clear();
        let mut chain = self.chain;
        encode(&mut self.bytes, self.end, &mut chain, kind, self.last, &[]);
        self.put()?;
        self.chain = chain;
        Ok(())
    }

    /// Ends the file behind its last record.
    fn cut(&mut self) -> io::Result<()> {
        self.file.truncate(self.end)?;
        self.size = self.end;
        self.file.sync()
    }

    /// Writes frames, and waits for the disk if asked to.
    pub(crate) fn write(&mut self, frames: &Frames, sync: bool) -> Result<(), Unwritten<io::Error>> {
        if let Some((last, _)) = frames.heads.last() {
            self.bytes.clear();
            let mut chain = self.chain;
            let mut at = 0;
            for (sequence, length) in &frames.heads {
                let payload = &frames.payloads[at..at + length];
                encode(&mut self.bytes, self.end, &mut chain, Kind::Appended, *sequence, payload);
                at += length;
            }
            self.put()?;
            (self.chain, self.last) = (chain, *last);
            self.bytes.shrink_to(2 * MOST_GATHERED);
        }
        if sync && self.is_dirty() {
            self.file.sync().map_err(Unwritten::Failed)?;
            self.chain.synced = self.end;
        }
        Ok(())
    }

    /// Writes the bytes behind the last record.
    fn put(&mut self) -> Result<(), Unwritten<io::Error>> {
        let end = self.end + self.bytes.len() as u64;
        if end > self.size {
            self.grow(end).map_err(Unwritten::Without)?;
        }
        if let Err(error) = write_whole(&self.file, &self.bytes, self.end) {
            // With room taken before, no error is expected here. Without it the disk may be full in the middle.
            if !errors::is_no_room(&error) || self.cut().is_err() {
                return Err(Unwritten::Failed(error));
            }
            self.chain.run = self.chain.run.wrapping_add(1);
            return Err(Unwritten::Without(error));
        }
        (self.end, self.size) = (end, self.size.max(end));
        Ok(())
    }

    /// Takes room for what ends there, and more if there is more.
    fn grow(&mut self, end: u64) -> io::Result<()> {
        for to in [end.next_multiple_of(STEP), end] {
            match self.file.extend(self.size, to) {
                Ok(()) => {
                    self.size = to;
                    return self.fill(end, to);
                }
                Err(error) if errors::is_no_room(&error) && to > end => {}
                // A file system that cannot do it; writing makes the file larger.
                Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn fill(&self, mut from: u64, to: u64) -> io::Result<()> {
        static FILLING: [u8; ZEROS] = [0; ZEROS];
        while from < to {
            let count = usize::try_from(to - from).unwrap_or(usize::MAX).min(ZEROS);
            match write_whole(&self.file, &FILLING[..count], from) {
                // A file system that writes elsewhere than in the room that was taken.
                Err(error) if errors::is_no_room(&error) => break,
                written => written?,
            }
            from += count as u64;
        }
        Ok(())
    }

    /// Goes on in another file, which has all of the old one's records or a snapshot in their place.
    pub(crate) fn replace(&mut self, by: Replacement<F>) {
        self.file = by.file;
        self.chain = by.chain;
        (self.end, self.size) = (by.end, by.end);
    }

    /// Marks the end, and gives back the room that was taken ahead. All was synced before.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        self.mark(Kind::Closed).map_err(|(Unwritten::Without(error) | Unwritten::Failed(error))| error)?;
        self.cut()
    }
}
