//! Taking a journal's file, and putting a smaller one into its place.
//!
//! A file is complete before it gets the journal's name, and it is locked before. So the name always leads to a whole
//! journal, or to an empty file of a program that died while it made one. Whoever has waited for the lock of a file
//! that lost the name meanwhile looks again.

use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, File, write_whole};
use crate::errors;
use crate::format::{Chain, HEADER, Header, Kind, encode};
use crate::recovery::{Refusal, scan};
use crate::writer::{Replacement, Writer};

/// A draft is written when it has so many bytes.
const CHUNK: usize = if cfg!(any(test, fuzzing)) { 128 } else { 1 << 20 };
/// What the name of a draft ends with. No journal's does, so a draft never takes the place of one.
const SUFFIX: &str = ".ropewalk-draft";
/// How often a file is taken that has lost its name meanwhile; each time another process has replaced it.
const ATTEMPTS: usize = 100;

/// Opens and locks the file with this name, and makes one with a header if there is none.
pub(crate) fn take<D: Disk>(disk: &D, path: &Path) -> ropewalk_base::Result<D::File> {
    let refused = |error| errors::of_opening(path, error);
    if path.as_os_str().as_encoded_bytes().ends_with(SUFFIX.as_bytes()) {
        return Err(errors::of_name(path, SUFFIX));
    }
    for _ in 0..ATTEMPTS {
        let file = disk.open(path, true).map_err(refused)?;
        if let Err(holder) = file.lock().map_err(refused)? {
            return Err(errors::of_lock(path, holder));
        }
        if !disk.is_at(&file, path).map_err(refused)? {
            continue;
        }
        if file.size().map_err(refused)? > 0 {
            return Ok(file);
        }
        let beside = beside(path);
        let draft = Draft::begin(disk, &beside, 0, u64::MAX).map_err(refused)?;
        let made = draft.publish(disk, path, &beside);
        return made.map(|made| made.file).map_err(|why| refused(why.into_error()));
    }
    Err(refused(io::Error::other("other processes keep replacing it")))
}

/// The name of a file that is to get that one.
pub(crate) fn beside(path: &Path) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(SUFFIX);
    PathBuf::from(name)
}

/// Why a draft did not take the place.
pub(crate) enum Unfinished<E = io::Error> {
    /// The old file has it.
    AsBefore(E),
    /// The old one has it, or the new one.
    Unknown(E),
}

impl<E> Unfinished<E> {
    pub(crate) fn into_error(self) -> E {
        match self {
            Self::AsBefore(error) | Self::Unknown(error) => error,
        }
    }

    pub(crate) fn map<T>(self, convert: impl FnOnce(E) -> T) -> Unfinished<T> {
        match self {
            Self::AsBefore(error) => Unfinished::AsBefore(convert(error)),
            Self::Unknown(error) => Unfinished::Unknown(convert(error)),
        }
    }
}

/// A file that is to become a journal.
pub(crate) struct Draft<D: Disk> {
    file: D::File,
    /// It is opened before anything is made, so that the want of a descriptor leaves the old file in its place.
    folder: D::Folder,
    chain: Chain,
    /// The number of the last record.
    last: u64,
    /// What is written.
    end: u64,
    bytes: Vec<u8>,
    most: u64,
}

impl<D: Disk> Draft<D> {
    /// Begins a journal whose first record comes after `base`.
    pub(crate) fn begin(disk: &D, path: &Path, base: u64, most: u64) -> io::Result<Self> {
        let folder = disk.folder(path)?;
        let file = disk.create(path)?;
        let header = Header { id: disk.number(), base };
        let chain = Chain { id: header.id, synced: HEADER, previous: header.sum(), run: disk.number() };
        Ok(Self { file, folder, chain, last: base, end: 0, bytes: header.encode().to_vec(), most })
    }

    /// Adds a record.
    pub(crate) fn add(&mut self, kind: Kind, sequence: u64, payload: &[u8]) -> io::Result<()> {
        encode(&mut self.bytes, self.end, &mut self.chain, kind, sequence, payload);
        self.last = sequence;
        if self.end + self.bytes.len() as u64 > self.most {
            let why = format!("with the snapshot it would have more than max_bytes={}", self.most);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        if self.bytes.len() >= CHUNK { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> io::Result<()> {
        write_whole(&self.file, &self.bytes, self.end)?;
        self.end += self.bytes.len() as u64;
        self.bytes.clear();
        Ok(())
    }

    /// Adds the records of a journal's file after the snapshot, whose writer nobody else has, and takes its place.
    pub(crate) fn finish(
        mut self,
        disk: &D,
        path: &Path,
        upto: u64,
        old: &Writer<D::File>,
    ) -> Result<Replacement<D::File>, Unfinished> {
        let copied = scan(old.file(), |record| {
            if record.is_snapshot || record.sequence <= upto {
                return Ok(());
            }
            self.add(Kind::Appended, record.sequence, record.payload)
        });
        let end = match copied {
            Ok(end) => end.map_err(Unfinished::AsBefore)?,
            Err(Refusal::Unreadable(error)) => return Err(Unfinished::AsBefore(error)),
            Err(why) => return Err(Unfinished::AsBefore(io::Error::other(format!("{why:?}")))),
        };
        if end.offset != old.end() {
            let (found, wanted) = (end.offset, old.end());
            let why = format!("its records end at offset {found}, and {wanted} bytes were written");
            return Err(Unfinished::AsBefore(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        self.publish(disk, path, &beside(path))
    }

    /// Puts what was added on the disk, and gives it the name. The mark at its end is true whenever somebody reads it,
    /// because the file gets the name only after the sync.
    fn publish(mut self, disk: &D, path: &Path, from: &Path) -> Result<Replacement<D::File>, Unfinished> {
        let end = self.end + self.bytes.len() as u64;
        if end > HEADER {
            self.chain.synced = end;
            encode(&mut self.bytes, self.end, &mut self.chain, Kind::Synced, self.last, &[]);
        }
        self.write().map_err(Unfinished::AsBefore)?;
        self.file.sync().map_err(Unfinished::AsBefore)?;
        disk.rename(from, path).map_err(Unfinished::AsBefore)?;
        disk.sync_folder(&self.folder).map_err(Unfinished::Unknown)?;
        let chain = Chain { synced: self.end, ..self.chain };
        Ok(Replacement { file: self.file, chain, end: self.end })
    }
}
