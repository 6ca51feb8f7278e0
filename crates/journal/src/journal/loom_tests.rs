//! The leader's protocol on every schedule that loom finds. The journal is the real one; its disk is a model, of which
//! other threads may come between any two steps. A wake-up that is lost is a deadlock, which loom reports.

use std::io;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ropewalk_base::Code;
use ropewalk_sync::atomic::{AtomicBool, Ordering};
use ropewalk_sync::loom::model::Builder;
use ropewalk_sync::loom::thread;
use ropewalk_sync::{Arc, Mutex};

use super::{Config, Durability, Journal, Record, Recovered};
use crate::disk::{Disk, File};

const PATH: &str = "journal";
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// What a step does instead of what it should.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fault {
    #[default]
    None,
    /// The next write of records fails; the zeros that fill the room ahead are none.
    Write,
    /// The next sync fails.
    Sync,
    /// The next sync panics.
    Panic,
    /// No room can be taken so many times.
    Room(u32),
}

#[derive(Default)]
struct Bytes {
    /// What was written.
    seen: Vec<u8>,
    /// What was there at the last sync.
    kept: Vec<u8>,
}

#[derive(Default)]
struct Inode {
    bytes: Mutex<Bytes>,
    /// A thread is at it. Two at the same time would be two writers.
    is_taken: AtomicBool,
}

#[derive(Default)]
struct World {
    names: Vec<(PathBuf, Arc<Inode>)>,
    fault: Fault,
    /// Files that are open.
    open: usize,
}

#[derive(Clone)]
struct ModelDisk(Arc<Mutex<World>>);

impl ModelDisk {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(World::default())))
    }

    /// From now on this goes wrong, once.
    fn fails(&self, fault: Fault) {
        self.0.lock().fault = fault;
    }

    /// Whether this step fails; it does so once.
    fn is_hit(&self, fault: Fault) -> bool {
        let mut world = self.0.lock();
        let is_hit = world.fault == fault;
        if is_hit {
            world.fault = Fault::None;
        }
        is_hit
    }

    fn journal(&self) -> Arc<Inode> {
        let world = self.0.lock();
        let found = world.names.iter().find(|(name, _)| name == Path::new(PATH));
        Arc::clone(&found.expect("the journal").1)
    }

    /// Whether a payload was on the disk at the last sync.
    fn has_kept(&self, payload: &[u8]) -> bool {
        self.journal().bytes.lock().kept.windows(payload.len()).any(|part| part == payload)
    }

    fn open_files(&self) -> usize {
        self.0.lock().open
    }

    fn file(&self, inode: &Arc<Inode>) -> ModelFile {
        ModelFile { disk: self.clone(), inode: Arc::clone(inode) }
    }
}

struct ModelFile {
    disk: ModelDisk,
    inode: Arc<Inode>,
}

impl ModelFile {
    /// One step on the file. No other thread may be at it meanwhile.
    fn step<R>(&self, change: impl FnOnce(&mut Bytes) -> R) -> R {
        assert!(!self.inode.is_taken.swap(true, Ordering::Relaxed), "two threads have the file");
        let result = change(&mut self.inode.bytes.lock());
        self.inode.is_taken.store(false, Ordering::Relaxed);
        result
    }
}

impl Drop for ModelFile {
    fn drop(&mut self) {
        self.disk.0.lock().open -= 1;
    }
}

impl Disk for ModelDisk {
    type File = ModelFile;
    type Folder = ();

    fn open(&self, path: &Path, make: bool) -> io::Result<ModelFile> {
        let mut world = self.0.lock();
        let found = world.names.iter().find(|(name, _)| name == path).map(|(_, inode)| Arc::clone(inode));
        let inode = match found {
            Some(inode) => inode,
            None if make => {
                let inode = Arc::new(Inode::default());
                world.names.push((path.to_owned(), Arc::clone(&inode)));
                inode
            }
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        world.open += 1;
        drop(world);
        Ok(self.file(&inode))
    }

    fn create(&self, path: &Path) -> io::Result<ModelFile> {
        self.0.lock().names.retain(|(name, _)| name != path);
        self.open(path, true)
    }

    fn is_at(&self, _: &ModelFile, _: &Path) -> io::Result<bool> {
        Ok(true)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = self.0.lock();
        world.names.retain(|(name, _)| name != to);
        let found = world.names.iter_mut().find(|(name, _)| name == from);
        found.ok_or(io::ErrorKind::NotFound)?.0 = to.to_owned();
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.lock().names.retain(|(name, _)| name != path);
        Ok(())
    }

    fn folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_folder(&self, (): &()) -> io::Result<()> {
        Ok(())
    }

    fn number(&self) -> u64 {
        7
    }
}

fn put(bytes: &mut Vec<u8>, from: &[u8], offset: u64) {
    let offset = usize::try_from(offset).expect("small");
    bytes.resize(bytes.len().max(offset + from.len()), 0);
    bytes[offset..offset + from.len()].copy_from_slice(from);
}

impl File for ModelFile {
    fn lock(&self) -> io::Result<Result<(), u32>> {
        Ok(Ok(()))
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.step(|bytes| bytes.seen.len() as u64))
    }

    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self.step(|bytes| {
            let from = bytes.seen.get(usize::try_from(offset).expect("small")..).unwrap_or_default();
            let count = from.len().min(to.len());
            to[..count].copy_from_slice(&from[..count]);
            count
        }))
    }

    fn write_at(&self, from: &[u8], offset: u64) -> io::Result<usize> {
        if from.iter().any(|byte| *byte != 0) && self.disk.is_hit(Fault::Write) {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        self.step(|bytes| put(&mut bytes.seen, from, offset));
        Ok(from.len())
    }

    fn extend(&self, _: u64, to: u64) -> io::Result<()> {
        let mut world = self.disk.0.lock();
        if let Fault::Room(times) = world.fault {
            world.fault = if times > 1 { Fault::Room(times - 1) } else { Fault::None };
            return Err(io::Error::from_raw_os_error(ENOSPC));
        }
        drop(world);
        self.step(|bytes| bytes.seen.resize(usize::try_from(to).expect("small"), 0));
        Ok(())
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.step(|bytes| bytes.seen.resize(usize::try_from(size).expect("small"), 0));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        // No panic hook, which would print what is expected.
        if self.disk.is_hit(Fault::Panic) {
            resume_unwind(Box::new("in a sync"));
        }
        if self.disk.is_hit(Fault::Sync) {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        self.step(|bytes| bytes.kept.clone_from(&bytes.seen));
        Ok(())
    }
}

/// All schedules with at most so many forced switches of threads.
fn bounded(switches: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(switches);
    builder.max_branches = 20_000;
    builder.check(model);
}

fn open(disk: &ModelDisk, durability: Durability) -> Journal<ModelDisk> {
    let config = Config { durability, ..Config::default() };
    Journal::open_on(disk.clone(), Path::new(PATH), config, |_| Ok(())).expect("it opens").0
}

/// A new journal; its disk has this fault.
fn new(durability: Durability, fault: Fault) -> (Journal<ModelDisk>, ModelDisk) {
    let disk = ModelDisk::new();
    let journal = open(&disk, durability);
    disk.fails(fault);
    (journal, disk)
}

/// Appends a record, which is on the disk if it went well; gives whether it did, or the error.
fn append(journal: &Journal<ModelDisk>, disk: &ModelDisk, payload: &[u8]) -> Result<u64, Code> {
    let appended = journal.append(payload).map_err(|error| error.code());
    assert!(appended.is_err() || disk.has_kept(payload), "no sync came after it was written");
    appended
}

type Appending = thread::JoinHandle<Result<u64, Code>>;

fn appending(journal: &Journal<ModelDisk>, disk: &ModelDisk, payload: &'static [u8]) -> Appending {
    let (journal, disk) = (journal.clone(), disk.clone());
    thread::spawn(move || append(&journal, &disk, payload))
}

/// What is in the file, when nobody has it any more.
fn read(disk: &ModelDisk) -> (Vec<(u64, Vec<u8>)>, Recovered) {
    let mut found = Vec::new();
    let each = |record: Record<'_>| {
        found.push((record.sequence, record.payload.to_vec()));
        Ok(())
    };
    let (_, recovered) =
        Journal::open_on(disk.clone(), Path::new(PATH), Config::default(), each).expect("it opens");
    found.sort();
    (found, recovered)
}

/// The file has what was appended, under the numbers that were given, and nothing else.
fn holds(disk: &ModelDisk, appended: &[(&'static [u8], Result<u64, Code>)]) {
    let sorted = |payload: &(&'static [u8], Result<u64, Code>)| Some((payload.1.ok()?, payload.0.to_vec()));
    let mut expected: Vec<_> = appended.iter().filter_map(sorted).collect();
    expected.sort();
    assert_eq!(read(disk).0, expected);
}

#[test]
fn one_of_three_threads_leads_and_all_are_on_the_disk() {
    bounded(3, || {
        let (journal, disk) = new(Durability::Always, Fault::None);
        let (one, two) = (appending(&journal, &disk, b"one"), appending(&journal, &disk, b"two"));
        let three = append(&journal, &disk, b"three");
        let (one, two) = (one.join().expect("no panic"), two.join().expect("no panic"));
        assert!(one.is_ok() && two.is_ok() && three.is_ok());
        journal.close().expect("closed");
        holds(&disk, &[(b"one", one), (b"two", two), (b"three", three)]);
    });
}

/// A leader's next record gathers while another thread leads.
#[test]
fn two_threads_take_turns_at_leading() {
    bounded(3, || {
        let (journal, disk) = new(Durability::Always, Fault::None);
        let other = {
            let (journal, disk) = (journal.clone(), disk.clone());
            thread::spawn(move || [append(&journal, &disk, b"one"), append(&journal, &disk, b"two")])
        };
        let (three, four) = (append(&journal, &disk, b"three"), append(&journal, &disk, b"four"));
        let [one, two] = other.join().expect("no panic");
        assert!([one, two, three, four].iter().all(Result::is_ok));
        assert!(one.ok() < two.ok() && three.ok() < four.ok(), "in the order of their threads");
        journal.close().expect("closed");
        holds(&disk, &[(b"one", one), (b"two", two), (b"three", three), (b"four", four)]);
    });
}

/// A batch belongs to no thread: any thread may wait for it, and two may.
#[test]
fn two_threads_that_wait_for_the_same_records_both_see_them() {
    bounded(4, || {
        let (journal, disk) = new(Durability::Always, Fault::None);
        let ticket = Arc::new(journal.begin([&b"one"[..]]).expect("open"));
        let other = {
            let (journal, disk, ticket) = (journal.clone(), disk.clone(), Arc::clone(&ticket));
            thread::spawn(move || {
                journal.finish(&ticket).expect("written");
                assert!(disk.has_kept(b"one") && ticket.is_written());
            })
        };
        let two = append(&journal, &disk, b"two");
        journal.finish(&ticket).expect("written");
        assert!(disk.has_kept(b"one"));
        other.join().expect("no panic");
        journal.close().expect("closed");
        holds(&disk, &[(b"one", Ok(1)), (b"two", two)]);
    });
}

#[test]
fn a_leader_that_waits_for_company_is_woken_by_it() {
    bounded(4, || {
        let (journal, disk) = new(Durability::Group(Duration::MAX), Fault::None);
        let one = appending(&journal, &disk, b"one");
        let two = append(&journal, &disk, b"two");
        let one = one.join().expect("no panic");
        assert!(one.is_ok() && two.is_ok());
        journal.close().expect("closed");
        holds(&disk, &[(b"one", one), (b"two", two)]);
    });
}

/// What was appended before a sync is on the disk after it. What comes later has a sync ahead.
#[test]
fn what_was_written_without_a_sync_gets_one() {
    bounded(3, || {
        let (journal, disk) = new(Durability::Interval(Duration::MAX), Fault::None);
        journal.append(b"zero").expect("appended");
        assert!(journal.has_sync_ahead() && !disk.has_kept(b"zero"));
        journal.sync_as_due();
        assert!(!journal.has_sync_ahead() && disk.has_kept(b"zero"));
        journal.append(b"one").expect("appended");
        let other = {
            let journal = journal.clone();
            thread::spawn(move || journal.append(b"two").map_err(|error| error.code()))
        };
        let background = {
            let journal = journal.clone();
            thread::spawn(move || journal.sync_as_due())
        };
        journal.sync().expect("synced");
        assert!(disk.has_kept(b"one"));
        let two = other.join().expect("no panic");
        background.join().expect("no panic");
        assert!(journal.has_sync_ahead() || disk.has_kept(b"two"), "no sync is ahead");
        journal.close().expect("closed");
        holds(&disk, &[(b"zero", Ok(1)), (b"one", Ok(2)), (b"two", two)]);
    });
}

fn a_failure_reaches_all(fault: Fault) {
    bounded(3, move || {
        let (journal, disk) = new(Durability::Always, fault);
        let (one, two) = (appending(&journal, &disk, b"one"), appending(&journal, &disk, b"two"));
        // It leads, waits, or comes too late.
        let synced = journal.sync().err().map_or(Code::JournalFailed, |error| error.code());
        assert_eq!(synced, Code::JournalFailed);
        let results = [one.join().expect("no panic"), two.join().expect("no panic")];
        assert!(results.iter().any(Result::is_err));
        for result in results {
            assert_eq!(result.err().unwrap_or(Code::JournalFailed), Code::JournalFailed);
        }
        assert_eq!(append(&journal, &disk, b"late"), Err(Code::JournalFailed));
        for _ in 0..2 {
            assert_eq!(journal.close().expect_err("failed").code(), Code::JournalFailed);
        }
        assert_eq!(disk.open_files(), 0);
    });
}

#[test]
fn a_sync_that_fails_is_the_error_of_all_who_wait() {
    a_failure_reaches_all(Fault::Sync);
}

#[test]
fn a_write_that_fails_is_the_error_of_all_who_wait() {
    a_failure_reaches_all(Fault::Write);
}

#[test]
fn a_leader_that_panics_is_the_error_of_all_who_wait() {
    a_failure_reaches_all(Fault::Panic);
}

/// A full disk costs the batch that found no room. Which records that are, depends on who came in time.
#[test]
fn a_full_disk_costs_one_batch() {
    bounded(3, || {
        let (journal, disk) = new(Durability::Always, Fault::Room(2));
        let (one, two) = (appending(&journal, &disk, b"one"), appending(&journal, &disk, b"two"));
        let three = append(&journal, &disk, b"three");
        let (one, two) = (one.join().expect("no panic"), two.join().expect("no panic"));
        let failed: Vec<_> = [one, two, three].into_iter().filter_map(Result::err).collect();
        assert!(!failed.is_empty() && failed.iter().all(|code| *code == Code::OutOfDisk));
        let four = append(&journal, &disk, b"four");
        assert!(four.is_ok());
        let size = journal.size().expect("open");
        assert_eq!(size, 64 + 40 * (4 - failed.len() as u64));
        journal.close().expect("closed");
        holds(&disk, &[(b"one", one), (b"two", two), (b"three", three), (b"four", four)]);
    });
}

#[test]
fn a_close_leaves_nobody_waiting() {
    bounded(3, || {
        let (journal, disk) = new(Durability::Always, Fault::None);
        let one = appending(&journal, &disk, b"one");
        let closing = {
            let journal = journal.clone();
            thread::spawn(move || journal.close().expect("closed"))
        };
        journal.close().expect("closed");
        let two = append(&journal, &disk, b"two");
        assert_eq!(two, Err(Code::JournalClosed));
        let one = one.join().expect("no panic");
        assert_eq!(one.err().unwrap_or(Code::JournalClosed), Code::JournalClosed);
        closing.join().expect("no panic");
        assert_eq!(disk.open_files(), 0);
        assert!(read(&disk).1.was_closed);
        holds(&disk, &[(b"one", one)]);
    });
}

/// Records that were begun before a close are written by it, or by the thread that waits for them.
#[test]
fn a_close_writes_what_was_begun() {
    bounded(4, || {
        let (journal, disk) = new(Durability::Always, Fault::None);
        let ticket = journal.begin([&b"one"[..]]).expect("open");
        let closing = {
            let journal = journal.clone();
            thread::spawn(move || journal.close().expect("closed"))
        };
        journal.finish(&ticket).expect("written");
        assert!(disk.has_kept(b"one"));
        closing.join().expect("no panic");
        assert_eq!(disk.open_files(), 0);
        holds(&disk, &[(b"one", Ok(1))]);
    });
}

/// The close of a journal that fails meanwhile lets the file go, and no thread waits for a batch that nobody writes.
#[test]
fn a_close_beside_a_failure_leaves_nobody_waiting() {
    bounded(3, || {
        let (journal, disk) = new(Durability::Always, Fault::Sync);
        let ticket = journal.begin([&b"one"[..]]).expect("open");
        let two = appending(&journal, &disk, b"two");
        let closing = {
            let journal = journal.clone();
            thread::spawn(move || journal.close().map_err(|error| error.code()))
        };
        assert_eq!(journal.finish(&ticket).expect_err("failed").code(), Code::JournalFailed);
        let two = two.join().expect("no panic");
        assert!(matches!(two, Err(Code::JournalFailed | Code::JournalClosed)));
        assert_eq!(closing.join().expect("no panic"), Err(Code::JournalFailed));
        assert_eq!(disk.open_files(), 0);
    });
}

/// A compaction takes the writer between two batches; what is appended meanwhile goes to the old file or the new one.
#[test]
fn a_compaction_loses_no_record() {
    bounded(3, || {
        let (journal, disk) = new(Durability::Always, Fault::None);
        assert_eq!(append(&journal, &disk, b"one"), Ok(1));
        let two = appending(&journal, &disk, b"two");
        journal.compact(1, [b"snapshot"]).expect("compacted");
        let two = two.join().expect("no panic");
        journal.close().expect("closed");
        assert_eq!(disk.open_files(), 0);
        holds(&disk, &[(b"snapshot", Ok(1)), (b"two", two)]);
    });
}
