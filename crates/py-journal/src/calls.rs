//! The results of finished calls in a journal, so that a call which has finished is not made again.
//!
//! The first record says what the journal is. Each of the others has the digest of a call, and then the pickle of its
//! result. The digest of a call that is made several times counts them, so that each has a record of its own.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::path::PathBuf;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ropewalk_base::{Code, Error, error};
use ropewalk_journal::{Config, Durability, Journal, Lookup, Record};
use ropewalk_sync::Mutex;

use crate::digests::{self, Digest, SIZE};
use crate::{Payload, raised};

/// The first record of a journal of calls.
const TITLE: &[u8] = b"ropewalk calls 1\n";
/// At the latest after this time a result is on the disk which nobody has waited for.
const INTERVAL: Duration = Duration::from_millis(50);

/// Digests are evenly spread as they are.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks_exact(size_of::<u64>()).take(1) {
            let mut word = [0; size_of::<u64>()];
            word.copy_from_slice(part);
            self.0 = u64::from_le_bytes(word);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Table<V> = HashMap<Digest, V, BuildHasherDefault<Spread>>;

/// What a journal had when it was opened, and how often each call was begun since.
#[derive(Default)]
struct Index {
    /// Where the record of a finished call begins.
    finished: Table<u64>,
    begun: Table<u32>,
}

/// The finished calls of one function, or of several.
#[pyclass(module = "ropewalk._journal", frozen)]
pub(crate) struct CallLog {
    journal: Journal,
    index: Mutex<Index>,
    lookup: Mutex<Lookup>,
    known: usize,
}

#[pymethods]
impl CallLog {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        py.detach(|| Self::open(&path)).map_err(|error| raised(py, &error))
    }

    /// Begins a call: its key, and the pickle of its result if it has finished before.
    fn begin<'py>(
        &self,
        function: &Bound<'py, PyBytes>,
        arguments: &Bound<'py, PyAny>,
        parts: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>)> {
        let py = arguments.py();
        let digest = digests::of(arguments, function.as_bytes().try_into().ok(), parts)?;
        let (key, offset) = {
            let mut index = self.index.lock();
            let number = index.begun.entry(digest).or_default();
            let key = digests::again(digest, *number);
            *number = number.saturating_add(1);
            (key, index.finished.get(&key).copied())
        };
        let result = match offset {
            None => None,
            Some(offset) => {
                let read = py.detach(|| {
                    let mut lookup = self.lookup.lock();
                    lookup.payload(offset).map(|payload| payload.get(SIZE..).unwrap_or_default().to_vec())
                });
                Some(PyBytes::new(py, &read.map_err(|error| raised(py, &error))?))
            }
        };
        Ok((PyBytes::new(py, &key), result))
    }

    /// Records the result of a call. The end of the process costs nothing from then on; see `sync`.
    fn finish(&self, key: &Bound<'_, PyBytes>, result: &Bound<'_, PyAny>) -> PyResult<u64> {
        let result = Payload::of(result)?;
        let record = [key.as_bytes(), result.as_slice()].concat();
        let py = key.py();
        py.detach(|| self.journal.append(&record)).map_err(|error| raised(py, &error))
    }

    /// Waits until every result that was recorded is on the disk; gives the number of the last one.
    fn sync(&self, py: Python<'_>) -> PyResult<u64> {
        let synced = py.detach(|| {
            let last = self.journal.last()?;
            self.journal.sync().map(|()| last)
        });
        synced.map_err(|error| raised(py, &error))
    }

    /// Waits until everything is on the disk, and lets the file go.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.journal.close()).map_err(|error| raised(py, &error))
    }

    /// How many finished calls the journal had when it was opened.
    #[getter]
    fn known(&self) -> usize {
        self.known
    }
}

impl CallLog {
    fn open(path: &std::path::Path) -> Result<Self, Error> {
        let mut finished = Table::<u64>::default();
        let mut titled = false;
        let kept = |record: Record<'_>| {
            match record.payload.first_chunk::<SIZE>() {
                _ if !titled && record.payload == TITLE => titled = true,
                Some(key) if titled => {
                    finished.insert(*key, record.offset);
                }
                _ => {
                    return Err(error!(
                        Code::NotAJournal,
                        "{} is a journal, but not of finished calls",
                        path.display()
                    ));
                }
            }
            Ok(())
        };
        let config = Config { durability: Durability::Interval(INTERVAL), max_bytes: u64::MAX };
        let (journal, _) = Journal::open(path, config, kept)?;
        if !titled {
            journal.append(TITLE)?;
        }
        let lookup = Lookup::open(path)?;
        let known = finished.len();
        let index = Mutex::new(Index { finished, begun: Table::default() });
        Ok(Self { journal, index, lookup: Mutex::new(lookup), known })
    }
}
