//! A file that changes between two looks.

use std::io;
use std::path::Path;

use ropewalk_base::Code;
use ropewalk_sync::{Arc, Mutex};

use super::*;
use crate::disk::File;
use crate::format::{Chain, HEADER, Header, Kind, encode};

/// What the file holds from one look at its size to the next; the last content stays.
#[derive(Default)]
struct Looks {
    contents: Vec<Vec<u8>>,
    looks: usize,
}

#[derive(Clone)]
struct Changing(Arc<Mutex<Looks>>);

impl Changing {
    fn now(&self) -> Vec<u8> {
        let looks = self.0.lock();
        looks.contents[looks.looks.saturating_sub(1).min(looks.contents.len() - 1)].clone()
    }
}

impl Disk for Changing {
    type File = Self;
    type Folder = ();

    fn open(&self, _: &Path, make: bool) -> io::Result<Self> {
        assert!(!make, "a reader makes no file");
        Ok(self.clone())
    }

    fn create(&self, _: &Path) -> io::Result<Self> {
        unreachable!("a reader makes no file")
    }

    fn is_at(&self, _: &Self, _: &Path) -> io::Result<bool> {
        unreachable!("a reader goes on in the file that it has")
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        unreachable!("a reader changes nothing")
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        unreachable!("a reader changes nothing")
    }

    fn folder(&self, _: &Path) -> io::Result<()> {
        unreachable!("a reader changes nothing")
    }

    fn sync_folder(&self, (): &()) -> io::Result<()> {
        unreachable!("a reader changes nothing")
    }

    fn number(&self) -> u64 {
        unreachable!("a reader makes no file")
    }
}

impl File for Changing {
    fn lock(&self) -> io::Result<Result<(), u32>> {
        unreachable!("a reader takes no lock")
    }

    fn size(&self) -> io::Result<u64> {
        self.0.lock().looks += 1;
        Ok(self.now().len() as u64)
    }

    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize> {
        let content = self.now();
        let from = content.get(usize::try_from(offset).expect("small")..).unwrap_or_default();
        let count = from.len().min(to.len());
        to[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
        unreachable!("a reader changes nothing")
    }

    fn extend(&self, _: u64, _: u64) -> io::Result<()> {
        unreachable!("a reader changes nothing")
    }

    fn truncate(&self, _: u64) -> io::Result<()> {
        unreachable!("a reader changes nothing")
    }

    fn sync(&self) -> io::Result<()> {
        unreachable!("a reader changes nothing")
    }
}

/// A journal of two records, of which the second says that the first one is on the disk.
fn two() -> Vec<u8> {
    let header = Header { id: 3, base: 0 };
    let mut bytes = header.encode().to_vec();
    let mut chain = Chain { id: 3, synced: HEADER, previous: header.sum(), run: 1 };
    encode(&mut bytes, 0, &mut chain, Kind::Appended, 1, b"first");
    chain.synced = bytes.len() as u64;
    encode(&mut bytes, 0, &mut chain, Kind::Appended, 2, b"second");
    bytes
}

fn none() -> Vec<u8> {
    two()[..64].to_vec()
}

/// The second record is there, and the first one is not yet.
fn torn() -> Vec<u8> {
    let mut bytes = two();
    bytes[96..104].fill(0);
    bytes
}

/// What a reader gives that sees these contents, one at each look after its opening, and how often it has looked.
fn read(contents: &[Vec<u8>]) -> (Result<Option<Vec<u8>>, Code>, usize) {
    let contents = std::iter::once(&none()).chain(contents).cloned().collect();
    let disk = Changing(Arc::new(Mutex::new(Looks { contents, looks: 0 })));
    let mut reader = Reader::open_on(&disk, Path::new("journal")).expect("a header");
    // The first look is at what the opening has seen.
    let read = reader.next(|record| record.payload.to_vec()).map_err(|error| error.code());
    let looks = disk.0.lock().looks - 1;
    (read, looks)
}

#[test]
fn a_record_that_comes_while_a_reader_looks_is_read() {
    assert_eq!(read(&[two()]), (Ok(Some(b"first".to_vec())), 1));
    assert_eq!(read(&[torn(), two()]), (Ok(Some(b"first".to_vec())), 2));
    assert_eq!(read(&[none()]), (Ok(None), 1));
}

#[test]
fn damage_that_stays_is_an_error() {
    assert_eq!(read(&[torn(), torn()]), (Err(Code::JournalCorrupt), 2));
}

#[test]
fn a_reader_gives_each_record_once_and_those_that_come_later() {
    let contents = vec![none(), two()[..104].to_vec(), two()];
    let disk = Changing(Arc::new(Mutex::new(Looks { contents, looks: 0 })));
    let mut reader = Reader::open_on(&disk, Path::new("journal")).expect("a header");
    let mut next = || reader.next(|record| (record.sequence, record.payload.to_vec())).expect("whole");
    assert_eq!([next(), next(), next()], [Some((1, b"first".to_vec())), Some((2, b"second".to_vec())), None]);
}
