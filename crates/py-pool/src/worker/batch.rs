//! A chunk of inputs: the function is called on each, and its outcome is recorded before the next call.
//!
//! The program may go on to change an object that it has returned, and return it again. So each result is pickled when
//! its call has ended, on its own; results that nothing can change are kept, and pickled together at the end.

use std::ptr;
use std::time::{Duration, Instant};

use pyo3_ffi as ffi;
use ropewalk_pool::codec::limits::{MOST_SEGMENTS_OF_CHUNK, MOST_VIEWS_OF_CHUNK};
use ropewalk_pool::codec::{Item, Loans, chunk};
use ropewalk_pool::wire::flags;
use ropewalk_pool::worker::FdChannel;

use super::answer::{self, Answer};
use super::serve::leave_if_forked;
use super::tools::Tools;
use crate::constants;
use crate::pickle::{OPEN_APART, Pickled};
use ropewalk_capi::object::{Object, Raised, take_exception};

/// A batch that has met a failure, and has taken so long, is not run to its end.
const LONG_FAILURE: Duration = Duration::from_millis(20);

/// The outcome of one input.
enum Came {
    /// Nothing can change it.
    Constant(Object),
    /// It is in bytes, and these buffers belong to it.
    Pickled { stream: Object, buffers: usize, ok: bool },
}

/// The outcomes of the inputs so far.
pub(super) struct Batch {
    came: Vec<Came>,
    buffers: Vec<Object>,
    loans: Loans,
    failed: bool,
}

impl Batch {
    /// Calls the function on each item of a list, and says before each which it is, counted from 1, until `reach` says
    /// that the rest is not wanted. A failure is what came of its input, and no other's.
    pub(super) fn run(
        tools: &Tools,
        forks: u64,
        function: &Object,
        items: &Object,
        task: u16,
        reach: impl Fn(u64) -> bool,
    ) -> Result<Self, Raised> {
        // SAFETY: `items` is a list that the parent pickled and no other code has; every reference is owned or borrowed
        // from it while it lives.
        unsafe {
            let count = ffi::PyList_Size(items.as_ptr());
            let room = usize::try_from(count).map_err(|_| Raised)?;
            let mut batch = Self {
                came: Vec::with_capacity(room),
                buffers: Vec::new(),
                loans: Loans::default(),
                failed: false,
            };
            let start = Instant::now();
            for at in 0..count {
                // The parent must learn of a failure now; it sends the inputs that are left out again.
                if (batch.failed && start.elapsed() > LONG_FAILURE) || batch.is_full() {
                    break;
                }
                if !reach(at as u64 + 1) {
                    break;
                }
                let item = ffi::PyList_GetItem(items.as_ptr(), at);
                let result = if task & flags::STAR != 0 {
                    Object::own(ffi::PyObject_Call(function.as_ptr(), item, ptr::null_mut()))
                } else {
                    Object::own(ffi::PyObject_Vectorcall(
                        function.as_ptr(),
                        &raw const item,
                        1,
                        ptr::null_mut(),
                    ))
                };
                leave_if_forked(forks, &result);
                match result {
                    Ok(value) if constants::is_constant(value.as_ptr()) => {
                        batch.came.push(Came::Constant(value))
                    }
                    Ok(value) => batch.take_down(tools, &value, at + 1 == count)?,
                    Err(Raised) => {
                        let error = take_exception();
                        tools.note_read_only(task, &error);
                        batch.fail(tools, &error)?;
                    }
                }
            }
            Ok(batch)
        }
    }

    fn is_full(&self) -> bool {
        !self.loans.segments.is_empty()
            && (self.loans.segments.len() >= MOST_SEGMENTS_OF_CHUNK
                || self.buffers.len() >= MOST_VIEWS_OF_CHUNK)
    }

    /// Pickles a result. Its buffers are copied, unless nothing runs after it that could write to them.
    fn take_down(&mut self, tools: &Tools, value: &Object, last: bool) -> Result<(), Raised> {
        let pickled = tools.pickle(value, self.buffers.len()).and_then(|mut pickled| {
            if !last {
                for buffer in &mut pickled.buffers {
                    answer::copy_unless_shared(buffer, &pickled.loans)?;
                }
            }
            Ok(pickled)
        });
        match pickled {
            Ok(pickled) => {
                self.push(pickled, true);
                Ok(())
            }
            Err(Raised) => self.fail(tools, &take_exception()),
        }
    }

    fn fail(&mut self, tools: &Tools, error: &Object) -> Result<(), Raised> {
        let pickled = tools.pickle_error(error)?;
        self.failed = true;
        self.push(pickled, false);
        Ok(())
    }

    fn push(&mut self, pickled: Pickled, ok: bool) {
        self.came.push(Came::Pickled { stream: pickled.stream, buffers: pickled.buffers.len(), ok });
        self.buffers.extend(pickled.buffers);
        self.loans.add(pickled.loans);
    }

    /// The answer with all outcomes.
    pub(super) fn encode(
        mut self,
        tools: &Tools,
        max_inline: usize,
        channel: &FdChannel,
    ) -> Result<Answer, Raised> {
        let stream = match self.constants(tools)? {
            Some(stream) => stream,
            None => self.joined(tools)?,
        };
        let mut answer = answer::place(stream, &self.buffers, &self.loans, max_inline, channel)?;
        answer.flags |= if self.failed { flags::BATCH | flags::MIXED } else { flags::BATCH };
        Ok(answer)
    }

    /// The pickle of the list, if all that came are constants.
    fn constants(&self, tools: &Tools) -> Result<Option<Object>, Raised> {
        if !self.came.iter().all(|came| matches!(came, Came::Constant(_))) {
            return Ok(None);
        }
        // SAFETY: a fresh list with room for as many; PyList_SetItem takes over what it is given.
        let list = unsafe {
            let count = ffi::Py_ssize_t::try_from(self.came.len()).map_err(|_| Raised)?;
            let list = Object::own(ffi::PyList_New(count))?;
            for (at, came) in (0..count).zip(&self.came) {
                if let Came::Constant(value) = came {
                    ffi::PyList_SetItem(list.as_ptr(), at, value.clone().into_ptr());
                }
            }
            list
        };
        match tools.dump(&list) {
            Ok(stream) => Ok(Some(stream)),
            Err(Raised) => {
                // One of them cannot be pickled: pickling each separately shows which.
                drop(take_exception());
                Ok(None)
            }
        }
    }

    /// The pickle of the list, each item of which has a pickle of its own.
    fn joined(&mut self, tools: &Tools) -> Result<Object, Raised> {
        let came = std::mem::take(&mut self.came);
        let mut buffers = std::mem::take(&mut self.buffers).into_iter();
        for one in came {
            match one {
                Came::Constant(value) => self.take_down(tools, &value, true)?,
                Came::Pickled { stream, buffers: count, ok } => {
                    self.buffers.extend(buffers.by_ref().take(count));
                    self.came.push(Came::Pickled { stream, buffers: count, ok });
                }
            }
        }
        let items: Vec<Item<'_>> = self
            .came
            .iter()
            .filter_map(|came| match came {
                Came::Constant(_) => None,
                Came::Pickled { stream, buffers, ok } => Some(Item {
                    stream: stream.as_bytes().unwrap_or_default(),
                    buffers: *buffers,
                    went_well: self.failed.then_some(*ok),
                }),
            })
            .collect();
        Object::bytes(&chunk::join(OPEN_APART, &items))
    }
}
