//! The fuzz targets: any bytes that a file may hold, and files that were written and then damaged.

use std::io;
use std::path::Path;

use ropewalk_base::Code;
use ropewalk_sync::atomic::{AtomicUsize, Ordering};

use crate::disk::File;
use crate::format::{Chain, HEAD, HEADER, Head, Header, Kind, encode, size_of_record};
use crate::journal::{Config, Journal, Recovered};
use crate::reader::Reader;
use crate::recovery::{End, Refusal, Scanner, Window};
use crate::simulation::disk::SimulatedDisk;

const PATH: &str = "journal";

/// A record's offset, number and payload.
type Found = (u64, u64, Vec<u8>);

fn small(number: u64) -> usize {
    usize::try_from(number).expect("within a file")
}

/// A file that is only read, and counts how often.
struct Bytes<'a> {
    bytes: &'a [u8],
    reads: AtomicUsize,
}

impl<'a> Bytes<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, reads: AtomicUsize::new(0) }
    }
}

fn read_only<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl File for Bytes<'_> {
    fn lock(&self) -> io::Result<Result<(), u32>> {
        Ok(Ok(()))
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        assert!(to.len() <= self.bytes.len(), "more memory than the file has bytes");
        let from = &self.bytes[small(offset).min(self.bytes.len())..];
        let count = from.len().min(to.len());
        to[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
        read_only()
    }

    fn extend(&self, _: u64, _: u64) -> io::Result<()> {
        read_only()
    }

    fn truncate(&self, _: u64) -> io::Result<()> {
        read_only()
    }

    fn sync(&self) -> io::Result<()> {
        read_only()
    }
}

/// Any bytes as a journal's file. If the first of them is odd, those that follow are mended first, so that more of them
/// are records.
///
/// Reading ends, with no more memory and no more reads than the file accounts for. What is accepted encodes to the same
/// bytes, and is there again with what is appended behind it; what is refused is left alone.
pub fn file(input: &[u8]) {
    let Some((how, bytes)) = input.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if how % 2 == 1 {
        mend(&mut bytes);
    }
    let source = Bytes::new(&bytes);
    let scanned = scan(&source);
    let reads = source.reads.load(Ordering::Relaxed);
    assert!(reads <= bytes.len() / 4 + 64, "{reads} reads of {} bytes", bytes.len());
    let found = match scanned {
        Ok((found, end)) => {
            is_encoded(&bytes, &found, &end);
            Some(found)
        }
        Err(Refusal::Corrupt { offset, witness }) => {
            assert!(offset < witness && witness < bytes.len() as u64);
            None
        }
        Err(Refusal::NoHeader(_)) => None,
        Err(Refusal::Unreadable(error)) => panic!("it can be read: {error}"),
    };
    goes_on(&bytes, found.as_deref());
    // A lookup reads any place that it is asked for.
    let id = bytes.get(8..16).map_or(0, |id| u64::from_le_bytes(*id.first_chunk().expect("8")));
    let mut window = Window::new(&source, 64).expect("a size");
    for offset in [u64::from(*how), u64::from(*how) * 8, bytes.len() as u64, u64::MAX] {
        let read = window.record(id, offset).expect("it can be read");
        assert!(read.is_none_or(|(head, payload)| payload.len() == head.length));
    }
}

/// Makes records of what could be some: their sums are right, and mostly their numbers, kinds and links.
fn mend(bytes: &mut [u8]) {
    let Some(header) = bytes.first_chunk::<{ HEADER as usize }>() else { return };
    let base = if header[59] % 4 == 0 { u64_at(header, 16) } else { u64::from(header[16]) };
    let header = Header { id: u64_at(header, 8), base };
    bytes[..HEADER as usize].copy_from_slice(&header.encode());
    let (mut offset, mut previous, mut last) = (HEADER, header.sum(), base);
    while let Some(record) = bytes.get_mut(small(offset)..).filter(|rest| rest.len() >= HEAD) {
        let how = record[29];
        if how % 2 == 0 {
            let length = usize::from(record[0]).min(record.len() - HEAD);
            record[..4].copy_from_slice(&u32::try_from(length).expect("small").to_le_bytes());
            record[28] %= 5;
        }
        if how & 2 == 0 {
            let more = u64::from(record[28] == Kind::Appended as u8 && how & 32 == 0);
            record[8..16].copy_from_slice(&last.wrapping_add(more).to_le_bytes());
        }
        if how & 4 == 0 {
            let synced = u64::from(record[16]) * 8 % (offset + 9);
            record[16..24].copy_from_slice(&synced.to_le_bytes());
        }
        if how & 8 == 0 {
            record[24..28].copy_from_slice(&previous.to_le_bytes());
        }
        let head = Head::decode(record).filter(|head| head.length <= record.len() - HEAD);
        let Some(head) = head else {
            offset += 8;
            continue;
        };
        let again = again(record, &head, header.id, offset);
        record[4..8].copy_from_slice(&again[4..8]);
        if how & 16 == 0 {
            (previous, last) = (u32_at(&again, 4), head.sequence);
            offset += head.size();
        } else {
            offset += 8;
        }
    }
}

/// What encodes to a record that was read.
fn again(record: &[u8], head: &Head, id: u64, offset: u64) -> Vec<u8> {
    let run = u64::from(u32_at(record, 28) >> 8);
    let mut chain = Chain { id, synced: head.synced, previous: head.previous, run };
    let mut bytes = Vec::new();
    encode(&mut bytes, offset, &mut chain, head.kind, head.sequence, &record[HEAD..HEAD + head.length]);
    bytes
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn scan(file: &impl File) -> Result<(Vec<Found>, End), Refusal> {
    let mut scanner = Scanner::new(file)?;
    let mut found = Vec::new();
    while let Some(record) = scanner.next()? {
        found.push((record.offset, record.sequence, record.payload.to_vec()));
    }
    Ok((found, scanner.end()?))
}

/// Each record is what its content encodes to, behind the one before.
fn is_encoded(bytes: &[u8], found: &[Found], end: &End) {
    let (mut offset, mut previous, mut last) = (HEADER, end.header.sum(), end.header.base);
    let mut rest = found.iter();
    while offset < end.offset {
        let record = &bytes[small(offset)..];
        let head = Head::decode(record).expect("it was read");
        let encoded = again(record, &head, end.header.id, offset);
        // What fills a record up to a multiple of 8 says nothing.
        assert_eq!(encoded[..HEAD + head.length], record[..HEAD + head.length]);
        let is_next = if head.kind == Kind::Appended { head.sequence > last } else { head.sequence == last };
        assert!(is_next && head.previous == previous && head.synced <= offset);
        if matches!(head.kind, Kind::Appended | Kind::Snapshot) {
            let (at, sequence, payload) = rest.next().expect("each of them");
            assert_eq!((*at, *sequence, payload.len()), (offset, head.sequence, head.length));
        }
        (previous, last) = (head.sum, head.sequence);
        offset += head.size();
    }
    assert!(rest.next().is_none() && offset == end.offset && offset <= bytes.len() as u64);
    assert_eq!((end.sum, end.sequence), (previous, last));
    let dropped = bytes[small(offset)..].iter().rposition(|byte| *byte != 0).map(|at| at as u64 + 1);
    assert_eq!(end.dropped.as_ref().map(|it| (it.offset, it.bytes)), dropped.map(|bytes| (offset, bytes)));
}

fn open(disk: &SimulatedDisk) -> ropewalk_base::Result<(Journal<SimulatedDisk>, Recovered, Vec<Found>)> {
    let mut found = Vec::new();
    let each = |record: crate::Record<'_>| {
        found.push((record.offset, record.sequence, record.payload.to_vec()));
        Ok(())
    };
    let (journal, recovered) = Journal::open_on(disk.clone(), Path::new(PATH), Config::default(), each)?;
    Ok((journal, recovered, found))
}

/// A journal opens such a file if a scan has read it, and goes on behind what it has; else it leaves it alone.
fn goes_on(bytes: &[u8], found: Option<&[Found]>) {
    // An empty file becomes a journal.
    if bytes.is_empty() {
        return;
    }
    let disk = SimulatedDisk::new(1);
    disk.put(Path::new(PATH), bytes);
    let Some(expected) = found else {
        let error = open(&disk).err().expect("refused");
        assert!(matches!(error.code(), Code::JournalCorrupt | Code::NotAJournal), "{}", error.report());
        assert_eq!(disk.content(Path::new(PATH)), bytes);
        return;
    };
    let (journal, recovered, mut all) = open(&disk).expect("it was read");
    assert_eq!((all.as_slice(), recovered.records), (expected, expected.len() as u64));
    let last = journal.last().expect("open");
    for payload in [&b"one more"[..], b"", b"and another"] {
        let offset = journal.size().expect("open");
        match journal.append(payload) {
            Ok(sequence) => all.push((offset, sequence, payload.to_vec())),
            Err(error) => {
                assert_eq!((error.code(), journal.last().ok()), (Code::JournalFull, Some(u64::MAX)));
            }
        }
    }
    assert_eq!(journal.last().expect("open"), last.saturating_add(3));
    journal.close().expect("closed");
    let (_, recovered, again) = open(&disk).expect("it was closed");
    assert_eq!((again, recovered.was_closed), (all, true));
}

/// A file that programs write one after the other, some of which die, and that is damaged from some place on. Each step
/// of the input is three bytes.
///
/// What is read are the first of the records that were written, in one of the two files if parts of another life of
/// this file are pasted in. All that lie before the damage are there, or the file is refused; and it is only refused if
/// a record says that the damaged place was on the disk.
pub fn tail(program: &[u8]) {
    let mut steps = program.chunks_exact(3).take(64);
    let (bytes, other) = written(&mut steps);
    let (whole, _) = scan(&Bytes::new(&bytes)).expect("it was written");
    let (elsewhere, _) = scan(&Bytes::new(&other)).expect("it was written");
    let last = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1).max(HEADER as usize);
    let place = steps.next().map_or(0, |step| usize::from(step[0]) << 8 | usize::from(step[1]));
    let from = HEADER as usize + place % (last - HEADER as usize + 1);
    let (damaged, is_pasted) = damaged(&bytes, &other, from, steps);
    let read = scan(&Bytes::new(&damaged));
    match &read {
        Ok((found, _)) => {
            let is_first = whole.starts_with(found) || (is_pasted && elsewhere.starts_with(found));
            assert!(is_first, "records that were not appended, or not in this order");
            let before =
                |(offset, _, payload): &&Found| small(offset + size_of_record(payload.len())) <= from;
            assert!(found.len() >= whole.iter().filter(before).count(), "records before the damage are gone");
        }
        Err(Refusal::Corrupt { offset, .. }) => {
            assert!(
                is_pasted || most_synced(&bytes) > from as u64,
                "refused at {offset}, and nothing says so"
            );
        }
        Err(why) => panic!("the header is whole: {why:?}"),
    }
    goes_on(&damaged, read.as_ref().ok().map(|(found, _)| found.as_slice()));
    seen_in_parts(&bytes, &damaged, &whole, is_pasted);
}

/// What the records of a file say that was on the disk.
fn most_synced(bytes: &[u8]) -> u64 {
    let (mut offset, mut most) = (HEADER, 0);
    let mut window = Window::new(Bytes::new(bytes), bytes.len()).expect("a size");
    while let Some((head, _)) = window.record(u64_at(bytes, 8), offset).expect("it can be read") {
        (offset, most) = (offset + head.size(), most.max(head.synced));
    }
    most
}

/// The file that a program has written, and the same file in another life: some of its records, and then others.
fn written<'a>(steps: &mut impl Iterator<Item = &'a [u8]>) -> (Vec<u8>, Vec<u8>) {
    let disk = SimulatedDisk::new(2);
    let (mut journal, ..) = open(&disk).expect("a new one");
    let mut other = None;
    for step in steps {
        let (what, a, b) = (step[0] % 8, step[1], step[2]);
        match what {
            0..=2 => {
                journal.append(&vec![b; usize::from(a) % 80]).expect("appended");
            }
            3 => {
                let payloads = vec![vec![b; usize::from(a / 8)]; usize::from(a % 8)];
                journal.append_all(payloads.iter().map(Vec::as_slice)).expect("appended");
            }
            4 => {
                let last = journal.last().expect("open");
                let parts = vec![vec![b; usize::from(a / 8)]; usize::from(a % 4)];
                // A number that an older snapshot has passed is an error.
                let _ = journal.compact(last.saturating_sub(u64::from(a % 2)), parts);
            }
            5 => {
                die(journal, &disk);
                (journal, ..) = open(&disk).expect("it was written");
            }
            6 => {
                journal.close().expect("closed");
                (journal, ..) = open(&disk).expect("it was closed");
            }
            _ if other.is_none() => {
                let end = small(journal.size().expect("open"));
                other = Some(life(&disk.content(Path::new(PATH))[..end], a, b));
            }
            _ => break,
        }
    }
    die(journal, &disk);
    let bytes = disk.content(Path::new(PATH));
    let other = other.unwrap_or_else(|| bytes.clone());
    (bytes, other)
}

/// What becomes of a file whose next program appends these records.
fn life(bytes: &[u8], a: u8, b: u8) -> Vec<u8> {
    let disk = SimulatedDisk::new(3);
    disk.put(Path::new(PATH), bytes);
    let (journal, ..) = open(&disk).expect("it was written");
    for _ in 0..1 + a % 4 {
        journal.append(&vec![b; usize::from(a) % 80]).expect("appended");
    }
    die(journal, &disk);
    disk.content(Path::new(PATH))
}

/// Leaves the file as a program does that ends without closing its journal, but without its memory.
fn die(journal: Journal<SimulatedDisk>, disk: &SimulatedDisk) {
    let content = disk.content(Path::new(PATH));
    drop(journal);
    disk.change(Path::new(PATH), &content);
}

/// Damages what lies behind a place, and says whether parts of the other file are there now. A checksum notices up to
/// three changed bits for certain, so there are no more than that.
fn damaged<'a>(
    bytes: &[u8],
    other: &[u8],
    from: usize,
    steps: impl Iterator<Item = &'a [u8]>,
) -> (Vec<u8>, bool) {
    let (mut damaged, mut flips, mut is_pasted) = (bytes.to_vec(), 0, false);
    for step in steps {
        let (what, a, b) = (step[0], usize::from(step[1]), usize::from(step[2]));
        let room = damaged.len().saturating_sub(from);
        if room == 0 {
            break;
        }
        let start = from + (usize::from(what) / 8 * 256 + a) % room;
        let end = (start + b + 1).min(damaged.len());
        match what % 8 {
            0 => damaged.truncate(start),
            1 => damaged[start..end].fill(0),
            2 if flips < 3 => {
                damaged[start] ^= 1 << (b % 8);
                flips += 1;
            }
            3 => {
                let source = start.saturating_sub(a);
                damaged.copy_within(source..source + (end - start), start);
            }
            4 if end <= other.len() => {
                damaged[start..end].copy_from_slice(&other[start..end]);
                is_pasted = true;
            }
            5 if from <= other.len() => {
                damaged.truncate(from);
                damaged.extend_from_slice(&other[from..]);
                is_pasted = true;
            }
            // An offset that records have, rather than any.
            6 => {
                let start = (start / 8 * 8).max(from);
                damaged[start..end.max(start)].fill(0);
            }
            _ => damaged.extend(std::iter::repeat_n(0, b)),
        }
    }
    (damaged, is_pasted)
}

/// A reader sees the damaged file first and the whole one later, as if it were being written. It gives the records that
/// were written, each once, or reports damage.
fn seen_in_parts(bytes: &[u8], damaged: &[u8], whole: &[Found], is_pasted: bool) {
    let disk = SimulatedDisk::new(4);
    disk.put(Path::new(PATH), damaged);
    let Ok(mut reader) = Reader::open_on(&disk, Path::new(PATH)) else { return };
    let mut found: Vec<Found> = Vec::new();
    for content in [damaged, bytes] {
        disk.change(Path::new(PATH), content);
        let kept = |record: crate::Record<'_>| (record.offset, record.sequence, record.payload.to_vec());
        loop {
            match reader.next(kept) {
                Ok(Some(record)) => found.push(record),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(error.code(), Code::JournalCorrupt, "{}", error.report());
                    break;
                }
            }
        }
        assert!(is_pasted || whole.starts_with(&found));
    }
    assert!(is_pasted || found == whole, "a reader misses records that are whole now");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::disk::Chance;

    /// The targets with few inputs, so that they hold without a fuzzer too.
    fn few(target: fn(&[u8]), length: u64) {
        let count = std::env::var("ROPEWALK_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(400);
        for seed in 0..count {
            let mut chance = Chance::of(seed);
            let length = chance.below(length);
            let input: Vec<u8> = (0..length).map(|_| (chance.next() >> 56) as u8).collect();
            target(&input);
        }
    }

    #[test]
    fn any_bytes_are_records_or_none() {
        few(file, 600);
    }

    #[test]
    fn a_damaged_tail_yields_no_record_that_was_not_appended() {
        few(tail, 150);
    }
}
