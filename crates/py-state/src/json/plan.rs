//! What the encoder knows of a class: how its objects are written.

use pyo3_ffi as ffi;
use ropewalk_capi::errors::fail;
use ropewalk_capi::heap::content;
use ropewalk_capi::object::{Object, Raised};

use super::buffer::Buffer;
use crate::kinds;
use crate::node::Pointer;
use crate::record::{Head, Heads, Record};
use crate::types::State;

/// How the objects of a class are written.
pub(super) enum Plan {
    /// By their fields.
    Record {
        info: Object,
        is_frozen: bool,
    },
    /// As the string that the function makes of one.
    Text(Object),
    /// As the value that the function makes of one.
    Value {
        function: Object,
        is_frozen: bool,
    },
    /// As what the class derives from.
    Str,
    Int,
    Float,
    /// In the order of the items' texts.
    Set {
        is_frozen: bool,
    },
    /// By the caller's `default`; the text says what to do without.
    Other(Object),
}

/// The plans of one encoding. Each class is looked up once.
#[derive(Default)]
pub(super) struct Plans {
    /// Classes with their plans; none is removed. The class is held, so that its address stays its own.
    known: Vec<(Object, Box<Plan>)>,
    /// Which of them was asked for last.
    latest: usize,
    /// The same, if it is that of a frozen record. What it points to belongs to a plan.
    record: Option<Latest>,
}

/// The class of records that was asked for last.
#[derive(Clone, Copy)]
struct Latest {
    class: *mut ffi::PyTypeObject,
    record: *const Record,
    heads: *const Heads,
}

impl Plans {
    /// The plan that was asked for last, if it is that of the class.
    #[inline]
    pub(super) fn latest(&self, class: *mut ffi::PyTypeObject) -> Option<&Plan> {
        self.known
            .get(self.latest)
            .filter(|(known, _)| known.as_ptr() == class.cast())
            .map(|(_, plan)| &**plan)
    }

    /// What a record is written by, if its class was asked for last and has fields.
    #[inline]
    pub(super) fn latest_record(
        &self,
        class: *mut ffi::PyTypeObject,
    ) -> Option<(*const Record, *const Heads)> {
        self.record.filter(|found| found.class == class).map(|found| (found.record, found.heads))
    }

    /// The plan for a class, which lives as long as this. `classify(class)` gives its number and what belongs to it;
    /// Python code may run.
    ///
    /// # Safety
    ///
    /// A live class, and a live function.
    pub(super) unsafe fn of(
        &mut self,
        state: &State,
        class: *mut ffi::PyTypeObject,
        classify: Pointer,
    ) -> Result<*const Plan, Raised> {
        if let Some(plan) = self.latest(class) {
            return Ok(plan);
        }
        if let Some(at) = self.known.iter().position(|(known, _)| known.as_ptr() == class.cast()) {
            self.latest = at;
            let address = &raw const *self.known[at].1;
            // SAFETY: a plan's `Record`.
            self.record = unsafe { latest_of(class, &*address) }?;
            return Ok(address);
        }
        // SAFETY: the caller's.
        unsafe {
            let class = Object::share(class.cast())?;
            let plan = Box::new(match kinds::known(state, &class)? {
                Some(info) => Plan::Record { info, is_frozen: true },
                None => read(state, &Object::share(classify)?.call(&[class.as_ptr()])?)?,
            });
            self.latest = self.known.len();
            let address = &raw const *plan;
            self.record = latest_of(class.as_ptr().cast(), &plan)?;
            self.known.push((class, plan));
            Ok(address)
        }
    }
}

/// # Safety
///
/// The plan of the class.
unsafe fn latest_of(class: *mut ffi::PyTypeObject, plan: &Plan) -> Result<Option<Latest>, Raised> {
    let Plan::Record { info, is_frozen: true } = plan else { return Ok(None) };
    // SAFETY: the caller's.
    let (record, heads) = unsafe { (content::<Record>(info.as_ptr()), heads(info)?) };
    Ok(Some(Latest { class, record, heads }))
}

/// The plan that the package has made: a tuple of a number and an object.
///
/// # Safety
///
/// The state of a module that is complete.
unsafe fn read(state: &State, made: &Object) -> Result<Plan, Raised> {
    // SAFETY: the tuple is live, and its type and length are checked before its items are read.
    unsafe {
        if ffi::PyTuple_Check(made.as_ptr()) == 0 || ffi::PyTuple_Size(made.as_ptr()) != 2 {
            return Err(fail(c"the plan for a class is a number and an object"));
        }
        let with = Object::share(ffi::PyTuple_GetItem(made.as_ptr(), 1))?;
        let is_record = std::ptr::eq(ffi::Py_TYPE(with.as_ptr()), state.record.cast());
        // The numbers are those of `ropewalk.state._json`.
        match ffi::PyLong_AsLong(ffi::PyTuple_GetItem(made.as_ptr(), 0)) {
            number @ (0 | 1) if is_record => Ok(Plan::Record { info: with, is_frozen: number == 0 }),
            2 => Ok(Plan::Text(with)),
            number @ (3 | 4) => Ok(Plan::Value { function: with, is_frozen: number == 3 }),
            5 => Ok(Plan::Str),
            6 => Ok(Plan::Int),
            7 => Ok(Plan::Float),
            number @ (8 | 9) => Ok(Plan::Set { is_frozen: number == 8 }),
            10 if ffi::PyUnicode_Check(with.as_ptr()) != 0 => Ok(Plan::Other(with)),
            _ => {
                Err(if ffi::PyErr_Occurred().is_null() { fail(c"a class has no such plan") } else { Raised })
            }
        }
    }
}

/// What stands before the value of each field of a record.
///
/// # Safety
///
/// A live `Record`.
pub(super) unsafe fn heads(info: &Object) -> Result<&Heads, Raised> {
    // SAFETY: the caller's.
    let record = unsafe { content::<Record>(info.as_ptr()) };
    if let Some(heads) = record.heads().get() {
        return Ok(heads);
    }
    let mut made = Vec::with_capacity(record.count());
    for index in 0..record.count() {
        let mut buffer = Buffer::new(0)?;
        buffer.push(if index == 0 { b'{' } else { b',' })?;
        // SAFETY: a name is a `str`, which lives with the record.
        buffer.string(unsafe { utf8(record.name(index)) }?)?;
        buffer.push(b':')?;
        made.push(Head::new(buffer.since(0)));
    }
    Ok(record.heads().get_or_init(|| made.into()))
}

/// The text of a `str` as UTF-8, borrowed; it raises if there is a surrogate.
///
/// # Safety
///
/// A `str` that lives as long as the slice.
#[inline]
pub(super) unsafe fn utf8<'a>(text: Pointer) -> Result<&'a [u8], Raised> {
    #[cfg(not(Py_3_14))]
    // SAFETY: the caller's; the characters of such a text lie behind its head, a byte each.
    unsafe {
        if ffi::PyUnicode_IS_COMPACT_ASCII(text) != 0 {
            let start = text.cast::<ffi::PyASCIIObject>().add(1).cast::<u8>();
            return Ok(std::slice::from_raw_parts(start, ffi::PyUnicode_GET_LENGTH(text) as usize));
        }
    }
    let mut size = 0;
    // SAFETY: the caller's; the interpreter keeps the bytes with the text.
    unsafe {
        let start = ffi::PyUnicode_AsUTF8AndSize(text, &raw mut size);
        if start.is_null() {
            return Err(Raised);
        }
        Ok(std::slice::from_raw_parts(start.cast(), size as usize))
    }
}
