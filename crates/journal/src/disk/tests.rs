//! This machine's disk, and files that take or give a part of what they are asked for.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use ropewalk_base::Code;
use ropewalk_sync::Mutex;

use super::*;
use crate::{Config, Journal};

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ropewalk-journal-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a folder");
        Self(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn with_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("our own file");
}

/// A forked child has a copy of the descriptor, and its parent's lock with it, until the parent drops the file.
#[test]
fn a_lock_ends_with_the_file_though_a_copy_of_its_descriptor_lives_on() {
    let folder = Folder::new("locks");
    let path = folder.at("journal");
    let file = LocalDisk.open(&path, true).expect("made");
    assert_eq!(file.lock().expect("locks"), Ok(()));
    let other = LocalDisk.open(&path, false).expect("it is there");
    assert_eq!(other.lock().expect("locks"), Err(std::process::id()));
    let copy = file.file.try_clone().expect("a descriptor");
    drop(file);
    assert_eq!(other.lock().expect("locks"), Ok(()));
    // What this one has not locked, it does not unlock.
    drop(LocalFile::from(copy));
    assert!(LocalDisk.open(&path, false).expect("it is there").lock().expect("locks").is_err());
}

#[test]
fn a_file_that_others_may_write_is_refused() {
    let folder = Folder::new("modes");
    let path = folder.at("journal");
    drop(LocalDisk.open(&path, true).expect("made"));
    for mode in [0o620, 0o602, 0o666] {
        with_mode(&path, mode);
        let error = LocalDisk.open(&path, false).expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(error.to_string().contains(&format!("mode {mode:03o}")), "{error}");
        let error = Journal::open(&path, Config::default(), |_| Ok(())).err().expect("refused");
        assert_eq!(error.code(), Code::JournalUnsafe);
    }
    with_mode(&path, 0o644);
    assert!(LocalDisk.open(&path, false).is_ok());
    let error = LocalDisk.open(&folder.0, false).expect_err("a folder");
    assert_ne!(error.kind(), io::ErrorKind::PermissionDenied);
}

#[test]
fn a_file_is_made_in_the_place_of_what_has_the_name() {
    let folder = Folder::new("drafts");
    let (path, target) = (folder.at("draft"), folder.at("target"));
    fs::write(&target, b"left alone").expect("written");
    symlink(&target, &path).expect("a link");
    let draft = LocalDisk.create(&path).expect("made");
    assert_eq!((draft.size().expect("open"), fs::read(&target).expect("there")), (0, b"left alone".to_vec()));
    assert!(!fs::symlink_metadata(&path).expect("there").is_symlink());
    let error = LocalDisk.create(&path).expect_err("it is locked");
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
    drop(draft);
    assert!(LocalDisk.create(&path).is_ok(), "a stale one");
    LocalDisk.remove(&path).expect("there");
    fs::create_dir(&path).expect("no file");
    let error = LocalDisk.create(&path).expect_err("a folder stays");
    assert_ne!(error.kind(), io::ErrorKind::AlreadyExists, "why it cannot be removed");
    let error = LocalDisk.remove(&folder.at("missing")).expect_err("no file");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_name_leads_to_one_file() {
    let folder = Folder::new("names");
    let (path, other) = (folder.at("journal"), folder.at("other"));
    let file = LocalDisk.open(&path, true).expect("made");
    assert!(LocalDisk.is_at(&file, &path).expect("there"));
    assert!(!LocalDisk.is_at(&file, &other).expect("nothing is there"));
    drop(LocalDisk.open(&other, true).expect("made"));
    LocalDisk.rename(&other, &path).expect("renamed");
    assert!(!LocalDisk.is_at(&file, &path).expect("there"));
    let error = LocalDisk.is_at(&file, &path.join("beneath")).expect_err("no folder");
    assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
    assert!(LocalDisk.folder(Path::new("journal")).is_ok(), "the current one");
    assert!(LocalDisk.folder(&folder.at("missing").join("journal")).is_err());
    let named = LocalDisk.folder(&path).expect("there");
    LocalDisk.sync_folder(&named).expect("synced");
    assert_ne!(LocalDisk.number(), LocalDisk.number());
}

fn has_the_size_that_it_is_given(file: impl File) {
    file.extend(0, 4096).expect("room");
    assert_eq!(file.size().expect("open"), 4096);
    assert_eq!(file.write_at(b"bytes", 100).expect("room"), 5);
    file.truncate(104).expect("shorter");
    let mut read = [7; 6];
    assert_eq!(file.read_at(&mut read, 99).expect("open"), 5);
    assert_eq!(read, *b"\0byte\x07");
    file.sync().expect("synced");
}

/// A file, and one that is borrowed.
#[test]
fn a_file_has_the_size_that_it_is_given() {
    let folder = Folder::new("sizes");
    has_the_size_that_it_is_given(LocalDisk.open(&folder.at("one"), true).expect("made"));
    let borrowed = LocalDisk.open(&folder.at("two"), true).expect("made");
    has_the_size_that_it_is_given(&borrowed);
    assert_eq!(borrowed.size().expect("open"), 104);
    let open = || LocalDisk.open(&folder.at("one"), false).expect("there");
    let (file, other) = (open(), open());
    assert_eq!(File::lock(&&file).expect("locks"), Ok(()));
    assert!(File::lock(&&other).expect("locks").is_err());
}

/// A draft that is not wanted any more is gone.
#[test]
fn a_compaction_that_fails_leaves_no_draft() {
    let folder = Folder::new("compactions");
    let path = folder.at("journal");
    let config = Config { max_bytes: 200, ..Config::default() };
    let (journal, _) = Journal::open(&path, config, |_| Ok(())).expect("a new one");
    let last = journal.append(b"x").expect("appended");
    assert_eq!(journal.compact(last, [[0; 200]]).expect_err("too large").code(), Code::OutOfDisk);
    assert_eq!(fs::read_dir(&folder.0).expect("there").count(), 1);
}

/// A file that gives and takes one byte at a time, is interrupted before each, and breaks in one of its calls.
struct Slow {
    bytes: Mutex<Vec<u8>>,
    calls: Mutex<usize>,
    breaks_at: usize,
}

impl Slow {
    fn new(bytes: &[u8], breaks_at: usize) -> Self {
        Self { bytes: Mutex::new(bytes.to_vec()), calls: Mutex::new(0), breaks_at }
    }

    fn call(&self) -> io::Result<()> {
        let mut calls = self.calls.lock();
        *calls += 1;
        match *calls {
            call if call == self.breaks_at => Err(io::Error::from_raw_os_error(5)),
            call if call % 2 == 1 => Err(io::ErrorKind::Interrupted.into()),
            _ => Ok(()),
        }
    }
}

impl File for Slow {
    fn lock(&self) -> io::Result<Result<(), u32>> {
        unreachable!("no test locks it")
    }

    fn size(&self) -> io::Result<u64> {
        unreachable!("no test asks for it")
    }

    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize> {
        self.call()?;
        let bytes = self.bytes.lock();
        let Some(byte) = bytes.get(usize::try_from(offset).expect("small")) else { return Ok(0) };
        to[0] = *byte;
        Ok(1)
    }

    fn write_at(&self, from: &[u8], offset: u64) -> io::Result<usize> {
        self.call()?;
        let mut bytes = self.bytes.lock();
        let Some(byte) = bytes.get_mut(usize::try_from(offset).expect("small")) else { return Ok(0) };
        *byte = from[0];
        Ok(1)
    }

    fn extend(&self, _: u64, _: u64) -> io::Result<()> {
        unreachable!("no test does it")
    }

    fn truncate(&self, _: u64) -> io::Result<()> {
        unreachable!("no test does it")
    }

    fn sync(&self) -> io::Result<()> {
        unreachable!("no test does it")
    }
}

#[test]
fn whole_reads_and_writes_go_on_after_a_part_and_after_a_signal() {
    let mut read = [0; 4];
    assert_eq!(read_whole(&Slow::new(b"0123456", 0), &mut read, 2).expect("read"), 4);
    assert_eq!(read, *b"2345");
    assert_eq!(read_whole(&Slow::new(b"0123", 0), &mut read, 2).expect("read"), 2, "the end of the file");
    assert_eq!(read_whole(&Slow::new(b"0123", 3), &mut read, 0).expect_err("broken").raw_os_error(), Some(5));
    let file = Slow::new(b"0123456", 0);
    write_whole(&file, b"abcd", 2).expect("written");
    assert_eq!(*file.bytes.lock(), b"01abcd6");
    let error = write_whole(&file, b"abcd", 5).expect_err("no room");
    assert_eq!(error.kind(), io::ErrorKind::WriteZero);
    assert_eq!(write_whole(&Slow::new(b"01", 3), b"abcd", 0).expect_err("broken").raw_os_error(), Some(5));
}
