//! `ropewalk._journal`: the journal of `crates/journal`, with Python's types, and the finished calls in one.
//!
//! Nothing here holds a Python object beyond a call. Every call that may wait for the disk lets the interpreter go.

mod calls;
mod digests;
mod index;

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule};
use ropewalk_base::{Code, Error};
use ropewalk_capi::errors;
use ropewalk_capi::module::check_main_interpreter;
use ropewalk_capi::object::Raised;
use ropewalk_journal::{Config, Durability, Journal, LONGEST_WAIT, Reader, Ticket};
use ropewalk_sync::Mutex;

/// Fills the module.
///
/// # Errors
///
/// Outside of the main interpreter, whose types pyo3 would share with others.
pub fn fill(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let instead =
        c"ropewalk._journal cannot be loaded in a subinterpreter: write the journal in the main interpreter";
    check_main_interpreter(instead).map_err(|Raised| PyErr::fetch(m.py()))?;
    m.add_class::<JournalBase>()?;
    m.add_class::<RecordReader>()?;
    m.add_class::<calls::CallLog>()?;
    m.add_function(wrap_pyfunction!(calls::lay_out, m)?)?;
    m.add_function(wrap_pyfunction!(digest, m)?)
}

/// The name of a value that another process gives to an equal one; `parts` makes plain values of those of other types.
#[pyfunction]
fn digest<'py>(value: &Bound<'py, PyAny>, parts: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(value.py(), &digests::of(value, None, parts)?))
}

/// The exception for an error of the crates below.
fn raised(py: Python<'_>, error: &Error) -> PyErr {
    match errors::of(error) {
        // SAFETY: a reference that we own, and the thread is attached.
        Ok(object) => PyErr::from_value(unsafe { Bound::from_owned_ptr(py, object.into_ptr()) }),
        Err(Raised) => PyErr::fetch(py),
    }
}

/// The bytes of a record: those of a `bytes` itself, or a copy of what a buffer has now.
enum Payload<'a> {
    Borrowed(&'a [u8]),
    Copied(Vec<u8>),
}

impl<'a> Payload<'a> {
    fn of(object: &'a Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self::Borrowed(bytes.as_bytes()));
        }
        let buffer = PyBuffer::<u8>::get(object)?;
        Ok(Self::Copied(buffer.to_vec(object.py())?))
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Copied(bytes) => bytes,
        }
    }
}

/// The compiled base of `Journal`.
#[pyclass(module = "ropewalk._journal", frozen, subclass)]
struct JournalBase {
    journal: Journal,
    /// `(records, was_closed, dropped_bytes, offset)`
    recovered: (u64, bool, u64, Option<u64>),
    /// Records that nobody has waited for.
    begun: Mutex<Vec<Begun>>,
}

/// Records that a thread has put into a batch without waiting for them.
#[derive(Clone)]
struct Begun {
    /// The last one of them.
    ticket: Arc<Ticket>,
    thread: ThreadId,
    /// Whether their failure was reported. It is reported again to the thread that has appended them, which counts on
    /// its own `sync` for that.
    is_said: bool,
}

/// So many failures at most are kept for threads that have not called `sync`.
const KEPT: usize = 1000;

impl JournalBase {
    /// The failure to report to this thread: of its own records, or one that no thread has heard of.
    fn say(&self, failed: Vec<(Begun, Error)>) -> Result<(), Error> {
        let mine = thread::current().id();
        let mut begun = self.begun.lock();
        let mut said = Ok(());
        for (one, error) in failed {
            let same =
                |other: &&mut Begun| other.thread == one.thread && other.ticket.is_of_batch(&one.ticket);
            let is_news = match begun.iter_mut().find(same) {
                Some(other) => one.thread == mine || !std::mem::replace(&mut other.is_said, true),
                None => one.thread == mine,
            };
            if is_news && said.is_ok() {
                said = Err(error);
            }
            if one.thread == mine {
                begun.retain(|other| other.thread != mine || !other.ticket.is_of_batch(&one.ticket));
            }
        }
        begun.retain(|one| !one.ticket.is_written());
        let mut surplus = begun.len().saturating_sub(KEPT);
        begun.retain(|one| {
            let goes = one.is_said && surplus > 0;
            surplus -= usize::from(goes);
            !goes
        });
        said
    }
}

#[pymethods]
impl JournalBase {
    #[new]
    #[pyo3(signature = (path, sync, seconds, max_bytes))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        sync: &str,
        seconds: f64,
        max_bytes: Option<u64>,
    ) -> PyResult<Self> {
        let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| *time <= LONGEST_WAIT);
        let time = time.ok_or_else(|| {
            let most = LONGEST_WAIT.as_secs();
            PyValueError::new_err(format!("seconds must be 0 or more and at most {most}, not {seconds:?}"))
        })?;
        let durability = match sync {
            "always" => Durability::Always,
            "group" => Durability::Group(time),
            "interval" => Durability::Interval(time),
            _ => {
                let allowed = format!("sync must be 'always', 'group' or 'interval', not {sync:?}");
                return Err(PyValueError::new_err(allowed));
            }
        };
        let config = Config { durability, max_bytes: max_bytes.unwrap_or(u64::MAX) };
        let opened = py.detach(|| Journal::open(&path, config, |_| Ok(())));
        let (journal, found) = opened.map_err(|error| raised(py, &error))?;
        let (bytes, offset) = found.dropped.map_or((0, None), |gone| (gone.bytes, Some(gone.offset)));
        let recovered = (found.records, found.was_closed, bytes, offset);
        Ok(Self { journal, recovered, begun: Mutex::new(Vec::new()) })
    }

    /// Appends a record, and returns its number when it is as durable as the journal's `sync` says.
    fn append(&self, record: &Bound<'_, PyAny>) -> PyResult<u64> {
        let payload = Payload::of(record)?;
        let py = record.py();
        py.detach(|| self.journal.append(payload.as_slice())).map_err(|error| raised(py, &error))
    }

    /// Puts a record into the next batch, and returns its number without waiting for the disk.
    fn append_nowait(&self, record: &Bound<'_, PyAny>) -> PyResult<u64> {
        let payload = Payload::of(record)?;
        let py = record.py();
        let begun = py.detach(|| {
            let ticket = self.journal.begin([payload.as_slice()])?;
            let sequence = ticket.sequence();
            let (ticket, thread) = (Arc::new(ticket), thread::current().id());
            let mut begun = self.begun.lock();
            match begun.last_mut() {
                Some(last) if last.thread == thread && last.ticket.is_of_batch(&ticket) => {
                    last.ticket = ticket
                }
                _ => begun.push(Begun { ticket, thread, is_said: false }),
            }
            // Those that are written by now have nothing more to say, unless they failed.
            begun.retain(|begun| !begun.ticket.is_written());
            Ok(sequence)
        });
        begun.map_err(|error: Error| raised(py, &error))
    }

    /// Appends records that share one sync, and returns the number of the last one.
    fn append_all(&self, py: Python<'_>, records: Vec<Bound<'_, PyAny>>) -> PyResult<u64> {
        let payloads = records.iter().map(Payload::of).collect::<PyResult<Vec<_>>>()?;
        py.detach(|| self.journal.append_all(payloads.iter().map(Payload::as_slice)))
            .map_err(|error| raised(py, &error))
    }

    /// Waits until all that was appended is on the disk, whatever the journal's `sync` says.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let synced = py.detach(|| {
            // In a forked child the lock below may be taken for ever.
            self.journal.last()?;
            // They stay in the list until they are written: another thread that syncs waits for them too.
            let begun = self.begun.lock().clone();
            let mut failed: Vec<(Begun, Error)> = Vec::new();
            for one in begun {
                if let Err(error) = self.journal.finish(&one.ticket) {
                    failed.push((one, error));
                }
            }
            let synced = self.journal.sync();
            let said = self.say(failed);
            synced?;
            said
        });
        synced.map_err(|error| raised(py, &error))
    }

    /// Puts a snapshot into the place of all records up to that number.
    fn compact(&self, py: Python<'_>, snapshot: Vec<Bound<'_, PyAny>>, upto: u64) -> PyResult<()> {
        let parts = snapshot.iter().map(Payload::of).collect::<PyResult<Vec<_>>>()?;
        py.detach(|| self.journal.compact(upto, parts.iter().map(Payload::as_slice)))
            .map_err(|error| raised(py, &error))
    }

    /// Waits until everything is on the disk, marks the end, and lets the file go.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let closed = py.detach(|| {
            let begun = match self.journal.is_closed() {
                true => Vec::new(),
                false => std::mem::take(&mut *self.begun.lock()),
            };
            let failed = begun
                .iter()
                .map(|one| self.journal.finish(&one.ticket))
                .find(|done| done.as_ref().is_err_and(|error| error.code() != Code::JournalClosed));
            self.journal.close()?;
            failed.unwrap_or(Ok(()))
        });
        closed.map_err(|error| raised(py, &error))
    }

    /// The journal in a capsule, for another extension module of this shared object.
    fn _handle<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        PyCapsule::new(py, self.journal.clone(), Some(c"ropewalk.journal".to_owned()))
    }

    /// The number of the last record that was appended; 0 if there was none.
    #[getter]
    fn last(&self, py: Python<'_>) -> PyResult<u64> {
        self.journal.last().map_err(|error| raised(py, &error))
    }

    /// The bytes that records take in the file, those included that are on their way.
    #[getter]
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        self.journal.size().map_err(|error| raised(py, &error))
    }

    /// Whether nobody can append any more: it was closed, its disk has failed, or this is a forked child.
    #[getter]
    fn closed(&self) -> bool {
        self.journal.is_closed()
    }

    #[getter]
    fn _path(&self) -> PathBuf {
        self.journal.path().to_owned()
    }

    #[getter]
    fn _recovered(&self) -> (u64, bool, u64, Option<u64>) {
        self.recovered
    }
}

/// Reads a journal's records, as tuples.
#[pyclass(module = "ropewalk._journal", frozen)]
struct RecordReader {
    reader: Mutex<Reader>,
}

#[pymethods]
impl RecordReader {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let reader = py.detach(|| Reader::open(&path)).map_err(|error| raised(py, &error))?;
        Ok(Self { reader: Mutex::new(reader) })
    }

    /// The next records: about so many bytes of them.
    fn read<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Vec<(u64, bool, Bound<'py, PyBytes>)>> {
        let read = py.detach(|| {
            let mut reader = self.reader.lock();
            let (mut found, mut bytes) = (Vec::new(), 0);
            while bytes < most {
                let taken =
                    reader.next(|record| (record.sequence, record.is_snapshot, record.payload.to_vec()))?;
                let Some(record) = taken else { break };
                bytes += record.2.len() + size_of_val(&record);
                found.push(record);
            }
            Ok(found)
        });
        let found = read.map_err(|error: Error| raised(py, &error))?;
        let made = found.into_iter();
        Ok(made.map(|(sequence, part, bytes)| (sequence, part, PyBytes::new(py, &bytes))).collect())
    }
}
