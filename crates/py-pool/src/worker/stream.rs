//! A task that is a stream: what its function returned is iterated over, and each element is sent at once.

use std::ptr;
use std::time::Duration;

use pyo3_ffi as ffi;
use ropewalk_pool::wire::{flags, form};
use ropewalk_pool::worker::{Incoming, WorkerEnd};
use ropewalk_pool::{Credit, cost};

use super::answer::{self, Answer, Body};
use super::serve::Server;
use super::tools::imported;
use crate::pickle::Pickled;
use ropewalk_capi::errors::raise;
use ropewalk_capi::object::{Kept, Object, Raised, detached};

/// How long a task that waits for its reader sleeps before it lets signals' handlers run, and says that it is alive.
const SLICE: Duration = Duration::from_millis(100);

/// How a stream ended.
pub(super) enum Streamed {
    /// The iteration returned this.
    Returned(Object),
    /// The reader has left, or the program has asked the task to stop, and the generator was closed.
    Stopped,
}

impl Server<'_> {
    /// Iterates over what the function of a stream returned.
    pub(super) fn stream(&mut self, record: &Incoming, returned: Object) -> Result<Streamed, Raised> {
        let items = iterate(returned)?;
        let mut credit = record.terms.credit;
        let mut sent = Credit::default();
        loop {
            if record.flags & flags::WATCHED != 0 {
                // Also while it waits for its reader: it does not hang.
                self.running.report(record.id, None);
            }
            if self.running.stopped(record.id) || self.end.borrow().must_leave() {
                return close(&items).map(|()| Streamed::Stopped);
            }
            if sent.items >= credit.items || sent.bytes >= credit.bytes {
                credit = self.wait_for_reader(record.id, credit).inspect_err(|Raised| abandon(&items))?;
                continue;
            }
            let mut item = ptr::null_mut();
            // SAFETY: a live iterator, and a place for its element, its result or nothing.
            let came = unsafe { ffi::PyIter_Send(items.as_ptr(), ffi::Py_None(), &raw mut item) };
            match came {
                ffi::PySendResult::PYGEN_NEXT => {
                    // SAFETY: a reference that is ours.
                    let item = unsafe { Object::own(item)? };
                    let cost = self.send_item(record.id, &item).inspect_err(|Raised| abandon(&items))?;
                    sent.items += 1;
                    sent.bytes = sent.bytes.saturating_add(cost);
                }
                ffi::PySendResult::PYGEN_RETURN => {
                    // SAFETY: as above.
                    let value = unsafe { Object::own(item)? };
                    return Ok(Streamed::Returned(value));
                }
                ffi::PySendResult::PYGEN_ERROR => return Err(Raised),
            }
        }
    }

    /// Waits until more may be sent than `known` allows, or the task is to stop.
    fn wait_for_reader(&mut self, task: u64, known: Credit) -> Result<Credit, Raised> {
        if let Some(granted) = self.running.granted(task)
            && granted != known
        {
            return Ok(granted);
        }
        let mut end = self.end.borrow_mut();
        detached(|| end.wait_for_credit(task, known, SLICE));
        drop(end);
        // SAFETY: the thread is attached.
        if unsafe { ffi::PyErr_CheckSignals() } != 0 {
            return Err(Raised);
        }
        Ok(self.running.granted(task).unwrap_or(known))
    }

    /// Sends one item, and gives what it costs.
    fn send_item(&mut self, task: u64, item: &Object) -> Result<u64, Raised> {
        if let Some((form, bytes)) = plain(item, &mut [0; 8])
            && bytes.len() <= self.max_inline
        {
            push(&mut self.end.borrow_mut(), task, form, 0, bytes)?;
            return Ok(cost(0, bytes));
        }
        let Pickled { stream, buffers, loans } = self.tools.pickle(item, 0)?;
        let Answer { flags: bits, body } =
            answer::place(stream, &buffers, &loans, self.max_inline, self.channel)?;
        let bytes: &[u8] = match &body {
            Body::Empty => &[],
            Body::Stream(stream) => stream.as_bytes().unwrap_or_default(),
            Body::Frame(bytes) => bytes,
        };
        push(&mut self.end.borrow_mut(), task, form::FRAME, bits, bytes)?;
        Ok(cost(bits & flags::DESCRIBED, bytes))
    }
}

fn push(end: &mut WorkerEnd, task: u64, form: u8, flags: u16, bytes: &[u8]) -> Result<(), Raised> {
    while !end.try_item(task, form, flags, bytes).map_err(|error| raise(&error))? {
        detached(|| end.wait_room(bytes.len()));
    }
    Ok(())
}

/// The form and the bytes of an object that goes without a pickle: of these very types, whose values nothing can
/// change.
fn plain<'a>(item: &'a Object, number: &'a mut [u8; 8]) -> Option<(u8, &'a [u8])> {
    let object = item.as_ptr();
    // SAFETY: a live object, whose type is compared before it is read as one of it; the interpreter's own types. A text
    // keeps the UTF-8 that is asked of it.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        if ptr::eq(kind, &raw const ffi::PyBytes_Type) {
            return item.as_bytes().map(|bytes| (form::BYTES, bytes));
        }
        if ptr::eq(kind, &raw const ffi::PyUnicode_Type) {
            let mut length = 0;
            let text = ffi::PyUnicode_AsUTF8AndSize(object, &raw mut length);
            if text.is_null() {
                // A lone surrogate has no UTF-8.
                ffi::PyErr_Clear();
                return None;
            }
            let length = usize::try_from(length).unwrap_or(0);
            return Some((form::TEXT, std::slice::from_raw_parts(text.cast(), length)));
        }
        if ptr::eq(kind, &raw const ffi::PyLong_Type) {
            let mut overflow = 0;
            let value = ffi::PyLong_AsLongLongAndOverflow(object, &raw mut overflow);
            *number = value.to_le_bytes();
            return (overflow == 0).then_some((form::INT, &number[..]));
        }
        if ptr::eq(kind, &raw const ffi::PyFloat_Type) {
            *number = ffi::PyFloat_AsDouble(object).to_le_bytes();
            return Some((form::FLOAT, &number[..]));
        }
        let form = match object {
            object if object == ffi::Py_None() => form::NONE,
            object if object == ffi::Py_True() => form::TRUE,
            object if object == ffi::Py_False() => form::FALSE,
            _ => return None,
        };
        Some((form, &[]))
    }
}

/// An iterator over what a function returned: a generator as it is, and what `_streams.iterate` makes of the rest.
fn iterate(returned: Object) -> Result<Object, Raised> {
    // SAFETY: a live object.
    if unsafe { ffi::PyIter_Check(returned.as_ptr()) } != 0 {
        return Ok(returned);
    }
    imported(c"ropewalk.pool.wire._streams")?.attribute(c"iterate")?.call(&[returned.as_ptr()])
}

/// Closes a generator, which runs its `finally`; another iterator has nothing to close.
fn close(items: &Object) -> Result<(), Raised> {
    // SAFETY: a live object; a missing attribute is no error here.
    let generator = unsafe { ffi::PyObject_HasAttrString(items.as_ptr(), c"throw".as_ptr()) } != 0;
    if generator { items.attribute(c"close")?.call(&[]).map(drop) } else { Ok(()) }
}

/// Closes a generator because of the exception that is set, which stays; what the generator raises then is reported.
fn abandon(items: &Object) {
    let cause = Kept::take();
    if close(items).is_err() {
        // SAFETY: an exception is set.
        unsafe { ffi::PyErr_WriteUnraisable(items.as_ptr()) };
    }
    cause.put_back();
}
