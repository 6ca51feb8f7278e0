//! The results of finished calls in a journal, so that a call which has finished is not made again.
//!
//! The first record says what the journal is. Each of the others has the digest of a call, and then the pickle of its
//! result. The digest of a call that is made several times counts them, so that each has a record of its own.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyException, PyStopIteration};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyIterator, PyList, PyTuple};
use ropewalk_base::{Code, Error, error};
use ropewalk_journal::{Config, Durability, Journal, Lookup, Record};
use ropewalk_sync::Mutex;

use crate::digests::{self, SIZE};
use crate::index::{Finished, Index};
use crate::{Payload, raised};

/// The first record of a journal of calls.
const TITLE: &[u8] = b"ropewalk calls 1\n";
/// At the latest after this time a result is on the disk which nobody has waited for.
const INTERVAL: Duration = Duration::from_millis(50);

/// So long `take` takes inputs, at most: other threads may wait for the interpreter.
const TURN: Duration = Duration::from_millis(2);
/// So many bytes of results are read at once.
const MANY: usize = 1 << 20;

/// The finished calls of one function, or of several.
#[pyclass(module = "ropewalk._journal", frozen)]
pub(crate) struct CallLog {
    journal: Journal,
    index: Mutex<Index>,
    lookup: Mutex<Lookup>,
    known: usize,
    /// How many inputs `take` has taken. One thread at a time takes some; every thread may look, and reads nothing else
    /// by it.
    taken: AtomicUsize,
}

/// What a map's inputs are: the digest of the function; whether an input is the tuple of all arguments; what makes
/// plain values of others; what makes an entry of the map's line of an input's number and its error.
type Calls<'py> = (Bound<'py, PyBytes>, bool, Bound<'py, PyAny>, Bound<'py, PyAny>);

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
        let (key, offset) = self.index.lock().begin(digest);
        let result = match offset {
            None => None,
            Some(offset) => {
                let mut read = py.detach(|| self.read(&[offset]));
                let end = read.ends.pop().transpose().map_err(|error| raised(py, &error))?;
                end.map(|_| PyBytes::new(py, &read.bytes))
            }
        };
        Ok((PyBytes::new(py, &key), result))
    }

    /// Takes inputs of a map from their iterator, as long as their calls have finished, and appends the pickles of the
    /// results to `line`, with the entries of inputs that have no key. At most `most` are taken.
    ///
    /// Returns the arguments and the key of an input that has not finished, with which it ends; the exception of the
    /// iterator, also when that has no more inputs; or `None`. No lock of ours is held while Python code runs.
    fn take<'py>(
        &self,
        inputs: &Bound<'py, PyIterator>,
        most: usize,
        line: &Bound<'py, PyAny>,
        calls: Calls<'py>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = inputs.py();
        let mut offsets = Vec::new();
        let end = self.pull(&mut inputs.clone(), most, &calls, &mut offsets);
        self.deliver(&offsets, line, &calls.3)?;
        match end? {
            End::Full => Ok(None),
            End::Raised(error) => Ok(Some(error.into_value(py).into_bound(py).into_any())),
            End::Unfinished(arguments, key) => {
                self.taken.fetch_add(1, Ordering::Relaxed);
                Ok(Some((arguments, key).into_pyobject(py)?.into_any()))
            }
            End::WithoutKey(error) => {
                let number = self.taken.fetch_add(1, Ordering::Relaxed);
                line.call_method1("append", (calls.3.call1((number, error))?,))?;
                Ok(None)
            }
        }
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

    /// How many inputs `take` has taken, without those that it is taking just now.
    #[getter]
    fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

/// Unpickles the results at the head of a map's line, and moves them to what is laid out, as `made` makes them if that
/// is given. It ends at an entry that is no pickle, and leaves a pickle there that raises.
#[pyfunction]
pub(crate) fn lay_out(
    line: &Bound<'_, PyAny>,
    laid: &Bound<'_, PyAny>,
    loads: &Bound<'_, PyAny>,
    made: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let py = line.py();
    let (popleft, append) = (line.getattr("popleft")?, laid.getattr("append")?);
    let began = Instant::now();
    while began.elapsed() < TURN && line.len()? > 0 {
        // Code that runs here, or another thread, may close the map, which empties the line.
        let Ok(first) = line.get_item(0) else { break };
        if !first.is_exact_instance_of::<PyBytes>() {
            break;
        }
        let value = match loads.call1((&first,)) {
            Ok(value) => value,
            Err(error) if error.is_instance_of::<PyException>(py) => break,
            Err(error) => return Err(error),
        };
        let value = match made {
            Some(made) => made.call1((value,))?,
            None => value,
        };
        if popleft.call0().is_err() {
            break;
        }
        append.call1((value,))?;
        py.check_signals()?;
    }
    Ok(())
}

/// Why inputs are taken no further.
enum End<'py> {
    /// There are as many as there may be, or they took their time.
    Full,
    /// What the iterator has raised.
    Raised(PyErr),
    /// The arguments and the key of an input that has not finished.
    Unfinished(Bound<'py, PyTuple>, Bound<'py, PyBytes>),
    /// Why an input has no key.
    WithoutKey(PyErr),
}

/// Results of finished calls.
#[derive(Default)]
struct Results {
    /// Their pickles, one behind the other.
    bytes: Vec<u8>,
    /// Where each of them ends, or why it cannot be read.
    ends: Vec<Result<usize, Error>>,
}

impl CallLog {
    fn open(path: &std::path::Path) -> Result<Self, Error> {
        let mut finished = Finished::default();
        let mut titled = false;
        let kept = |record: Record<'_>| {
            match record.payload.first_chunk::<SIZE>() {
                _ if !titled && record.payload == TITLE => titled = true,
                Some(key) if titled => finished.push(*key, record.offset),
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
        let index = finished.into_index();
        let known = index.finished();
        Ok(Self {
            journal,
            index: Mutex::new(index),
            lookup: Mutex::new(lookup),
            known,
            taken: AtomicUsize::new(0),
        })
    }

    /// Takes inputs as long as their calls have finished; `offsets` gets the places of their results. An error is one
    /// that ends what the program does, such as that of Ctrl-C.
    fn pull<'py>(
        &self,
        inputs: &mut Bound<'py, PyIterator>,
        most: usize,
        (function, star, parts, _): &Calls<'py>,
        offsets: &mut Vec<NonZeroU64>,
    ) -> PyResult<End<'py>> {
        let py = inputs.py();
        let function = function.as_bytes().try_into()?;
        let began = Instant::now();
        let mut bytes = Vec::new();
        while offsets.len() < most {
            if !offsets.is_empty() {
                if began.elapsed() > TURN {
                    break;
                }
                // An iterator of compiled code may never look.
                py.check_signals()?;
            }
            let input = match inputs.next() {
                Some(Ok(input)) => input,
                Some(Err(error)) if error.is_instance_of::<PyException>(py) => return Ok(End::Raised(error)),
                Some(Err(error)) => return Err(error),
                None => return Ok(End::Raised(PyStopIteration::new_err(()))),
            };
            let digest = match digests::of_input(&input, *star, function, parts, &mut bytes) {
                Ok(digest) => digest,
                Err(error) if error.is_instance_of::<PyException>(py) => return Ok(End::WithoutKey(error)),
                Err(error) => {
                    self.taken.fetch_add(1, Ordering::Relaxed);
                    return Err(error);
                }
            };
            let (key, offset) = self.index.lock().begin(digest);
            let Some(offset) = offset else {
                let arguments = match star {
                    true => input.cast_into::<PyTuple>()?,
                    false => PyTuple::new(py, [input])?,
                };
                return Ok(End::Unfinished(arguments, PyBytes::new(py, &key)));
            };
            offsets.push(offset);
        }
        Ok(End::Full)
    }

    /// Reads results, as many as are read at once.
    fn read(&self, offsets: &[NonZeroU64]) -> Results {
        let mut read = Results::default();
        let mut lookup = self.lookup.lock();
        for offset in offsets {
            let payload = lookup.payload(offset.get());
            let result = payload.map(|payload| payload.get(SIZE..).unwrap_or_default());
            read.ends.push(result.map(|result| {
                read.bytes.extend(result);
                read.bytes.len()
            }));
            if read.bytes.len() >= MANY {
                break;
            }
        }
        read
    }

    /// Appends results to the line of a map, and counts their inputs.
    fn deliver<'py>(
        &self,
        offsets: &[NonZeroU64],
        line: &Bound<'py, PyAny>,
        refused: &Bound<'py, PyAny>,
    ) -> PyResult<()> {
        let py = line.py();
        let mut interrupted = Ok(());
        let mut left = offsets;
        while !left.is_empty() {
            let read = py.detach(|| self.read(left));
            let number = self.taken();
            left = &left[read.ends.len()..];
            let mut at = 0;
            let mut entries = Vec::with_capacity(read.ends.len());
            for (index, end) in read.ends.iter().enumerate() {
                match end {
                    Ok(end) => {
                        entries.push(PyBytes::new(py, &read.bytes[at..*end]).into_any());
                        at = *end;
                    }
                    Err(error) => match refused.call1((number + index, raised(py, error))) {
                        Ok(entry) => entries.push(entry),
                        // The results behind it stay.
                        Err(error) => interrupted = Err(error),
                    },
                }
            }
            line.call_method1("extend", (PyList::new(py, entries)?,))?;
            self.taken.fetch_add(read.ends.len(), Ordering::Relaxed);
        }
        interrupted
    }
}
