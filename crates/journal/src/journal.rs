//! The journal: records gather in memory, and one of the threads that wait for them writes all of them at once.
//!
//! # Protocol
//!
//! `append` puts a frame into the batch that is *gathering*, and then waits for this batch. One of the threads that
//! wait finds the *writer* at home and takes it along, and the batch with it: it leads. Frames that come from then on
//! gather in the next batch. The leader writes and syncs without a lock, brings the writer back, notes the outcome in
//! the batch and wakes the others, of whom one leads next. So there are never two writers, and no thread of ours.
//!
//! | field | changes |
//! |---|---|
//! | `State::gathering` | under the lock; a leader replaces it with an empty batch |
//! | `State::writer` | taken and brought back under the lock; whoever has taken it owns the file |
//! | `Batch::outcome` | set once, under the lock of the state, by the batch's leader |
//! | `State::failed` | set once: the disk is in an unknown state, and the journal writes nothing any more |
//!
//! A write that fails before anything was changed on the disk (no room) costs its batch, and no other. If it cannot be
//! ruled out that records of a failed batch are on the disk, the journal has failed: only opening it again tells.

#[cfg(all(test, loom))]
mod loom_tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ropewalk_base::{Code, Error, Result};
#[cfg(not(loom))]
use ropewalk_executor::{Executor as _, Job, background};
use ropewalk_os::process;
use ropewalk_sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::compaction::{Draft, Unfinished, beside, take};
use crate::disk::{Disk, File, LocalDisk};
use crate::errors;
use crate::format::{Kind, MOST_BYTES, size_of_record};
use crate::recovery::{Dropped, Record, scan};
use crate::writer::{Frames, MOST_GATHERED, Unwritten, Writer};

/// The longest time for which [`Durability`] lets a record wait; a longer one counts as this.
pub const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// When a record is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When `append` returns. Records that are appended while others are written share the next sync.
    Always,
    /// When `append` returns. The thread that writes waits for company first: until a batch has 64 records, or for this
    /// time. A record takes that much longer, and more of them fit into a second.
    Group(Duration),
    /// At the latest this time after `append` has returned. Then the kernel has the record: the end of the process
    /// costs nothing, that of the machine the last records.
    Interval(Duration),
}

/// How a journal is opened.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// When a record is on the disk.
    pub durability: Durability,
    /// No record may make the file larger than this. A mark may, which has 32 bytes.
    pub max_bytes: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self { durability: Durability::Always, max_bytes: u64::MAX }
    }
}

/// A batch has enough company with so many records.
const COMPANY: usize = if cfg!(loom) { 2 } else { 64 };

/// What recovery has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The number of whole records, those of a snapshot included.
    pub records: u64,
    /// Whether the last writer has closed the journal. A new one counts as closed.
    pub was_closed: bool,
    /// Bytes behind the last whole record, which were no record and are gone.
    pub dropped: Option<Dropped>,
}

/// Frames on their way to the disk.
struct Batch {
    outcome: Mutex<Option<Result<(), errors::Shared>>>,
}

impl Batch {
    fn new() -> Arc<Self> {
        Arc::new(Self { outcome: Mutex::new(None) })
    }
}

struct State<F> {
    gathering: Arc<Batch>,
    frames: Frames,
    /// The number of the last record that was appended.
    sequence: u64,
    /// The number before the file's first record.
    base: u64,
    /// The bytes of the file and of all frames.
    planned: u64,
    /// Somebody else has the writer while there is none here.
    writer: Option<Box<Writer<F>>>,
    failed: Option<errors::Shared>,
    closed: bool,
    /// The file was let go: no batch has an outcome any more that it has not by now.
    gone: bool,
    /// A sync of what was written is under way.
    is_due: bool,
}

/// The lock, and the writer that was in its state.
type Taken<'a, F> = (MutexGuard<'a, State<F>>, Box<Writer<F>>);

struct Shared<D: Disk> {
    disk: D,
    path: PathBuf,
    config: Config,
    state: Mutex<State<D::File>>,
    /// A batch has its outcome, a batch has company, or the writer is back.
    turned: Condvar,
    /// Held while the draft beside the journal is made: there is one.
    drafting: Mutex<()>,
    /// How many forks lie before the process that has opened it.
    generation: u64,
}

/// An append-only file of records; see the [crate].
///
/// Clones are the same journal. It is closed by [`close`](Self::close), or when the last clone is dropped.
pub struct Journal<D: Disk = LocalDisk> {
    shared: Arc<Shared<D>>,
}

impl<D: Disk> Clone for Journal<D> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl Journal {
    /// Opens the journal at a path, makes it if there is none, and calls `each` with every record that it holds.
    ///
    /// # Errors
    ///
    /// `JournalLocked` if another process, or this one, has it open; `NotAJournal` for other files; `JournalCorrupt` if
    /// committed records are damaged; `JournalUnsafe` if other users may write the file; `OutOfDisk`; `JournalError`
    /// for what else the system refuses.
    pub fn open(
        path: &Path,
        config: Config,
        each: impl FnMut(Record<'_>) -> Result<()>,
    ) -> Result<(Self, Recovered)> {
        Self::open_on(LocalDisk, path, config, each)
    }
}

impl<D: Disk> Journal<D> {
    /// The same on another disk.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Journal::open).
    pub fn open_on(
        disk: D,
        path: &Path,
        config: Config,
        mut each: impl FnMut(Record<'_>) -> Result<()>,
    ) -> Result<(Self, Recovered)> {
        let refused = |error| errors::of_opening(path, error);
        let file = take(&disk, path)?;
        let size = file.size().map_err(refused)?;
        let mut records = 0;
        let counted = |record: Record<'_>| {
            records += 1;
            each(record)
        };
        let end = scan(&file, counted).map_err(|why| errors::of_refusal(path, why))??;
        let mut writer = Writer::new(file, &end, size, disk.number());
        writer.begin(&end).map_err(refused)?;
        let was_closed = end.last == Some(Kind::Closed) || records == 0;
        let recovered = Recovered { records, was_closed, dropped: end.dropped };
        let state = State {
            gathering: Batch::new(),
            frames: Frames::default(),
            sequence: writer.last(),
            base: end.header.base,
            planned: writer.end(),
            writer: Some(Box::new(writer)),
            failed: None,
            closed: false,
            gone: false,
            is_due: false,
        };
        let shared = Shared {
            disk,
            path: path.to_owned(),
            config,
            state: Mutex::new(state),
            turned: Condvar::new(),
            drafting: Mutex::new(()),
            generation: process::fork_generation(),
        };
        Ok((Self { shared: Arc::new(shared) }, recovered))
    }

    /// Whether nobody can append any more: it was closed, has failed, or is another process's since a fork.
    pub fn is_closed(&self) -> bool {
        self.lock().is_err()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Appends a record, and gives its number when it is as durable as the configuration says.
    ///
    /// # Errors
    ///
    /// `OutOfDisk`, `JournalFull`, `JournalError`: the record was not written; later ones may be. `JournalFailed`: the
    /// disk has reported an error, and the record may be there or not when the journal is opened again.
    /// `JournalClosed`.
    pub fn append(&self, payload: &[u8]) -> Result<u64> {
        self.append_all([payload])
    }

    /// Appends records, which share one sync; gives the number of the last one, or of the last before if there is none.
    /// A crash may leave only the first of them.
    ///
    /// # Errors
    ///
    /// Those of [`append`](Self::append).
    pub fn append_all<'a>(&self, payloads: impl IntoIterator<Item = &'a [u8]>) -> Result<u64> {
        let ticket = self.begin(payloads)?;
        self.finish(&ticket)?;
        Ok(ticket.sequence)
    }

    /// Puts records into the next batch, and does not wait for them.
    ///
    /// # Errors
    ///
    /// Those of [`append`](Self::append), but for those of the disk, which [`finish`](Self::finish) reports.
    pub fn begin<'a>(&self, payloads: impl IntoIterator<Item = &'a [u8]>) -> Result<Ticket> {
        let (ticket, is_full) = self.enqueue(payloads)?;
        if is_full {
            self.finish(&ticket)?;
        }
        Ok(ticket)
    }

    /// Puts records into the next batch and never waits. Tells whether the batch is large: then the caller calls
    /// [`finish`](Self::finish) soon, because the batch is in memory.
    ///
    /// # Errors
    ///
    /// Those of [`begin`](Self::begin).
    pub fn enqueue<'a>(&self, payloads: impl IntoIterator<Item = &'a [u8]>) -> Result<(Ticket, bool)> {
        let mut state = self.lock()?;
        let (sequence, planned, frames) = (state.sequence, state.planned, state.frames.mark());
        for payload in payloads {
            let size = size_of_record(payload.len());
            let refused = if payload.len() > MOST_BYTES {
                errors::of_size(payload.len())
            } else if size > self.shared.config.max_bytes.saturating_sub(state.planned) {
                errors::of_room(&self.shared.path, self.shared.config.max_bytes)
            } else if state.sequence == u64::MAX {
                errors::of_numbers(&self.shared.path)
            } else {
                state.sequence += 1;
                state.planned += size;
                let sequence = state.sequence;
                state.frames.push(sequence, payload);
                continue;
            };
            // All of them or none.
            (state.sequence, state.planned) = (sequence, planned);
            state.frames.reset(frames);
            return Err(refused);
        }
        let ticket = Ticket { batch: Arc::clone(&state.gathering), sequence: state.sequence };
        let (count, is_full) = (state.frames.count(), state.frames.bytes() > MOST_GATHERED);
        drop(state);
        if count >= COMPANY {
            self.shared.turned.notify_all();
        }
        Ok((ticket, is_full))
    }

    /// Waits until records are as durable as the configuration says.
    ///
    /// # Errors
    ///
    /// Those of [`append`](Self::append).
    pub fn finish(&self, ticket: &Ticket) -> Result<()> {
        let sync = !matches!(self.shared.config.durability, Durability::Interval(_));
        let mut state = self.lock_open()?;
        loop {
            if let Some(outcome) = &*ticket.batch.outcome.lock() {
                return outcome.as_ref().copied().map_err(errors::Shared::again);
            }
            if let Some(writer) = state.writer.take() {
                state = self.lead(state, writer, sync);
            } else if state.gone {
                let closed = || errors::of_closed(&self.shared.path);
                return Err(state.failed.as_ref().map_or_else(closed, errors::Shared::again));
            } else {
                state = self.shared.turned.wait(state);
            }
        }
    }

    /// Waits until all that was appended is on the disk, whatever the configuration says.
    ///
    /// # Errors
    ///
    /// Those of [`append`](Self::append).
    pub fn sync(&self) -> Result<()> {
        let (state, writer) = self.take_writer()?;
        let batch = Arc::clone(&state.gathering);
        drop(self.lead(state, writer, true));
        let outcome = batch.outcome.lock();
        match &*outcome {
            Some(outcome) => outcome.as_ref().copied().map_err(errors::Shared::again),
            None => Ok(()),
        }
    }

    /// The number of the last record that was appended.
    ///
    /// # Errors
    ///
    /// `JournalClosed`, `JournalFailed`.
    pub fn last(&self) -> Result<u64> {
        Ok(self.lock()?.sequence)
    }

    /// The bytes of the file that records take, those included that are on their way.
    ///
    /// # Errors
    ///
    /// `JournalClosed`, `JournalFailed`.
    pub fn size(&self) -> Result<u64> {
        Ok(self.lock()?.planned)
    }

    /// Puts a snapshot into the place of all records up to that number. Others append meanwhile, and wait only while
    /// what they have appended since is copied; another compaction waits for the end of this one. After a crash the old
    /// file is there, or the new one.
    ///
    /// # Errors
    ///
    /// `JournalError` for a number that the journal has not reached, or that an older snapshot has passed. `OutOfDisk`:
    /// the journal is as it was, and so after every `JournalError`. `JournalFailed`, `JournalClosed`.
    pub fn compact<P: AsRef<[u8]>>(&self, upto: u64, snapshot: impl IntoIterator<Item = P>) -> Result<()> {
        // A closed journal says so at once, and a forked child waits for no lock.
        drop(self.lock()?);
        let _drafting = self.shared.drafting.lock();
        let state = self.lock()?;
        let (base, last) = (state.base, state.sequence);
        drop(state);
        self.check_upto(upto, base, last)?;
        let (disk, path) = (&self.shared.disk, &self.shared.path);
        let failed = |error| errors::of_compacting(path, error);
        let draft = Draft::begin(disk, &beside(path), upto, self.shared.config.max_bytes).map_err(failed)?;
        let result = self.replace_by(upto, snapshot, draft);
        if let Err(Unfinished::AsBefore(error)) = result {
            // It has no name that anybody looks for, so an error costs room at the most.
            let _ = disk.remove(&beside(path));
            return Err(error);
        }
        result.map_err(Unfinished::into_error)
    }

    fn check_upto(&self, upto: u64, base: u64, last: u64) -> Result<()> {
        match (base..=last).contains(&upto) {
            true => Ok(()),
            false => Err(errors::of_upto(&self.shared.path, upto, base, last)),
        }
    }

    fn replace_by<P: AsRef<[u8]>>(
        &self,
        upto: u64,
        snapshot: impl IntoIterator<Item = P>,
        mut draft: Draft<D>,
    ) -> Result<(), Unfinished<Error>> {
        let (disk, path) = (&self.shared.disk, &self.shared.path);
        let failed = |error| Unfinished::AsBefore(errors::of_compacting(path, error));
        for payload in snapshot {
            let payload = payload.as_ref();
            if payload.len() > MOST_BYTES {
                return Err(Unfinished::AsBefore(errors::of_size(payload.len())));
            }
            draft.add(Kind::Snapshot, upto, payload).map_err(failed)?;
        }
        // What was appended before the mark and is not written yet goes to the old file: it is in the snapshot.
        let (state, writer) = self.take_writer().map_err(Unfinished::AsBefore)?;
        drop(self.lead(state, writer, true));
        let (state, mut writer) = self.take_writer().map_err(Unfinished::AsBefore)?;
        drop(state);
        let copied = catch_unwind(AssertUnwindSafe(|| draft.finish(disk, path, upto, &writer)));
        let copied = match copied {
            Ok(copied) => copied.map_err(|why| why.map(|error| errors::of_compacting(path, error))),
            Err(_) => Err(Unfinished::Unknown(errors::Shared::panicked(path).again())),
        };
        let mut state = self.shared.state.lock();
        let result = match copied {
            Ok(file) => {
                let before = writer.end();
                writer.replace(file);
                state.planned = state.planned - before + writer.end();
                state.base = upto;
                Ok(())
            }
            Err(Unfinished::AsBefore(error)) => Err(Unfinished::AsBefore(error)),
            Err(Unfinished::Unknown(error)) => {
                state.failed = Some(errors::Shared::after(path, &error));
                Err(Unfinished::Unknown(error))
            }
        };
        state.writer = Some(writer);
        drop(state);
        self.shared.turned.notify_all();
        result
    }

    /// Waits until everything is on the disk, marks the end, and lets the file go. Further calls fail.
    ///
    /// # Errors
    ///
    /// Those of [`append`](Self::append). The file is let go all the same.
    pub fn close(&self) -> Result<()> {
        let (mut state, writer) = match self.take_writer() {
            Ok(taken) => taken,
            Err(error) if error.code() == Code::JournalClosed => return Ok(()),
            Err(error) => {
                self.shared.let_go();
                return Err(error);
            }
        };
        state.closed = true;
        let batch = Arc::clone(&state.gathering);
        let mut state = self.lead(state, writer, true);
        let mut result = match &*batch.outcome.lock() {
            Some(outcome) => outcome.as_ref().copied().map_err(errors::Shared::again),
            None => Ok(()),
        };
        state.gone = true;
        if let Some(mut writer) = state.writer.take() {
            drop(state);
            if result.is_ok() {
                result = writer.close().map_err(|error| errors::of_closing(&self.shared.path, error));
            }
        }
        self.shared.turned.notify_all();
        result
    }

    fn lock(&self) -> Result<MutexGuard<'_, State<D::File>>> {
        let state = self.lock_open()?;
        match (&state.failed, state.closed) {
            (Some(why), _) => Err(why.again()),
            (None, true) => Err(errors::of_closed(&self.shared.path)),
            (None, false) => Ok(state),
        }
    }

    fn lock_open(&self) -> Result<MutexGuard<'_, State<D::File>>> {
        // The lock may be taken for ever by a thread that is not there.
        if process::fork_generation() != self.shared.generation {
            return Err(errors::of_fork(&self.shared.path));
        }
        Ok(self.shared.state.lock())
    }

    fn take_writer(&self) -> Result<Taken<'_, D::File>> {
        let mut state = self.lock()?;
        loop {
            if let Some(writer) = state.writer.take() {
                return Ok((state, writer));
            }
            drop(self.shared.turned.wait(state));
            state = self.lock()?;
        }
    }

    /// Writes the batch that gathers.
    fn lead<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<D::File>>,
        mut writer: Box<Writer<D::File>>,
        sync: bool,
    ) -> MutexGuard<'a, State<D::File>> {
        if let Durability::Group(window) = self.shared.config.durability
            && !state.closed
        {
            state = self.wait_for_company(state, window);
        }
        let batch = std::mem::replace(&mut state.gathering, Batch::new());
        let frames = std::mem::replace(&mut state.frames, std::mem::take(&mut writer.spare));
        let failed = state.failed.clone();
        drop(state);
        let written = match failed {
            Some(why) => Err(Unwritten::Failed(why)),
            None => self.write(&mut writer, &frames, sync),
        };
        let is_dirty = writer.is_dirty();
        let size = frames.size();
        writer.spare = frames;
        writer.spare.clear();
        let mut state = self.shared.state.lock();
        let outcome = match written {
            Ok(()) => Ok(()),
            Err(Unwritten::Without(why)) => {
                state.planned -= size;
                Err(why)
            }
            Err(Unwritten::Failed(why)) => {
                state.failed.get_or_insert_with(|| why.clone());
                Err(why)
            }
        };
        *batch.outcome.lock() = Some(outcome);
        state.writer = Some(writer);
        if is_dirty && !state.is_due && state.failed.is_none() {
            self.sync_later(&mut state);
        }
        self.shared.turned.notify_all();
        state
    }

    /// A panic would leave the others waiting for a writer that never comes back, so it is an error of the batch.
    fn write(&self, writer: &mut Writer<D::File>, frames: &Frames, sync: bool) -> Result<(), Unwritten> {
        let path = &self.shared.path;
        match catch_unwind(AssertUnwindSafe(|| writer.write(frames, sync))) {
            Ok(written) => written.map_err(|why| why.at(path)),
            Err(_) => Err(Unwritten::Failed(errors::Shared::panicked(path))),
        }
    }

    fn wait_for_company<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<D::File>>,
        window: Duration,
    ) -> MutexGuard<'a, State<D::File>> {
        let (since, window) = (Instant::now(), window.min(LONGEST_WAIT));
        while state.frames.count() < COMPANY {
            // No time is added to the clock: the sum might have no room, and a panic would take the writer along.
            let left = window.saturating_sub(since.elapsed());
            if left.is_zero() {
                break;
            }
            state = self.shared.turned.wait_timeout(state, left).0;
        }
        state
    }

    /// What was written without a sync gets one after the interval.
    #[cfg(not(loom))]
    fn sync_later(&self, state: &mut State<D::File>) {
        let Durability::Interval(interval) = self.shared.config.durability else { return };
        let shared = Arc::downgrade(&self.shared);
        let job = Job::new(move || {
            if let Some(shared) = shared.upgrade() {
                Self { shared }.sync_as_due();
            }
        });
        let interval = interval.min(LONGEST_WAIT);
        let later = background().map(|executor| executor.execute_after(interval, job));
        // Without a thread for it the next record would ask again.
        state.is_due = matches!(later, Ok(Ok(_)));
    }

    /// A model has no executor; one of its threads does the job.
    #[cfg(loom)]
    #[cfg_attr(mutants, mutants::skip)]
    fn sync_later(&self, state: &mut State<D::File>) {
        state.is_due = matches!(self.shared.config.durability, Durability::Interval(_));
    }

    /// Whether what was written without a sync waits for the one after the interval.
    #[cfg(test)]
    pub(crate) fn has_sync_ahead(&self) -> bool {
        self.shared.state.lock().is_due
    }

    /// The sync after the interval.
    #[cfg_attr(loom, allow(dead_code, reason = "the model alone calls it"))]
    fn sync_as_due(&self) {
        if let Ok(mut state) = self.lock() {
            state.is_due = false;
            drop(state);
            // An error is kept, and the next call reports it.
            let _ = self.sync();
        }
    }
}

/// Records on their way.
#[must_use = "records are on their way until `finish`"]
pub struct Ticket {
    batch: Arc<Batch>,
    sequence: u64,
}

impl Ticket {
    /// The number of the last record.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether both were put into the same batch.
    pub fn is_of_batch(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.batch, &other.batch)
    }

    /// Whether the records were written, without an error.
    pub fn is_written(&self) -> bool {
        matches!(&*self.batch.outcome.lock(), Some(Ok(())))
    }
}

impl<D: Disk> Shared<D> {
    /// Closes the file of a journal that has failed.
    fn let_go(&self) {
        if process::fork_generation() != self.generation {
            return;
        }
        let mut state = self.state.lock();
        while !state.gone && state.writer.is_none() {
            state = self.turned.wait(state);
        }
        (state.closed, state.gone) = (true, true);
        state.writer = None;
        drop(state);
        self.turned.notify_all();
    }
}

impl<D: Disk> Drop for Shared<D> {
    /// A journal that nobody has closed is closed as if somebody had; nobody learns of an error.
    fn drop(&mut self) {
        // A forked child would write into its parent's file.
        if process::fork_generation() != self.generation {
            return;
        }
        let state = self.state.get_mut();
        if let (Some(mut writer), None) = (state.writer.take(), &state.failed)
            && writer.write(&state.frames, true).is_ok()
        {
            let _ = writer.close();
        }
    }
}
