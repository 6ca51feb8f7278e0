//! Writes values.

use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3_ffi as ffi;
use ropewalk_base::Code;
use ropewalk_capi::errors::{fail, raise_text};
use ropewalk_capi::heap::content;
use ropewalk_capi::object::{Object, Raised};

use super::buffer::Buffer;
use super::plan::{Plan, Plans, heads, utf8};
use crate::iterate::each;
use crate::node::Pointer;
use crate::record::{Heads, Record};
use crate::types::State;

/// The most values in one another. Each takes some hundred bytes of the stack.
const DEEPEST: usize = 512;
/// The most steps of a path that an error shows from each end.
const SHOWN: usize = 6;

/// The longest text of which a buffer may begin with as much room.
const LONGEST: usize = 1 << 23;
/// How much room the last text took: the next one is often that of the same state after a change. It is a guess, and
/// guards nothing: relaxed.
static LENGTH: AtomicUsize = AtomicUsize::new(0);

/// How many bytes of the text are kept by nodes: in coarse texts, and in fine ones.
pub(super) type Kept = [usize; 2];

/// One encoding.
pub(super) struct Encoder<'a> {
    state: &'a State,
    pub(super) out: Buffer,
    /// Makes a value of an object that has no form of its own; null if there is none.
    default: Pointer,
    /// Gives the plan for a class.
    classify: Pointer,
    /// Whether nodes keep their texts and give them.
    pub(super) is_cached: bool,
    pub(super) kept: Kept,
    /// Where the text ended when the last part was written that may change.
    pub(super) changing: usize,
    depth: usize,
    plans: Plans,
    /// What is wrong with a value, while the steps that lead to it are collected.
    wrong: Option<String>,
    /// The steps from the value to the top.
    steps: Vec<String>,
}

impl<'a> Encoder<'a> {
    /// # Safety
    ///
    /// The state of a module that is complete; live functions, which the caller keeps alive; `default` may be null.
    pub(super) unsafe fn new(
        state: &'a State,
        default: Pointer,
        classify: Pointer,
        is_cached: bool,
    ) -> Result<Self, Raised> {
        Ok(Self {
            state,
            out: Buffer::new(LENGTH.load(Ordering::Relaxed))?,
            default,
            classify,
            is_cached,
            kept: [0; 2],
            changing: 0,
            depth: 0,
            plans: Plans::default(),
            wrong: None,
            steps: Vec::new(),
        })
    }

    /// The text of a value, with nothing around it.
    ///
    /// # Safety
    ///
    /// A live value, which the caller keeps alive. Python code may run.
    pub(super) unsafe fn encode(mut self, value: Pointer) -> Result<Object, Raised> {
        // SAFETY: the caller's.
        match unsafe { self.value(value) } {
            Ok(()) => {
                let room = self.out.next_room();
                LENGTH.store(if room > LONGEST { 0 } else { room }, Ordering::Relaxed);
                self.out.finish()
            }
            Err(Raised) => Err(self.raise()),
        }
    }

    /// Fetches what a record that is written soon refers to.
    ///
    /// # Safety
    ///
    /// A live value.
    #[inline]
    pub(super) unsafe fn fetch(&self, value: Pointer) {
        // SAFETY: the caller's; a plan belongs to the value's class.
        unsafe {
            if let Some((record, _)) = self.plans.latest_record(ffi::Py_TYPE(value)) {
                (*record).fetch(value);
            }
        }
    }

    /// Writes a value.
    ///
    /// # Safety
    ///
    /// A live value, which the caller keeps alive. Python code may run.
    #[inline]
    pub(super) unsafe fn value(&mut self, value: Pointer) -> Result<(), Raised> {
        // SAFETY: the caller's, and the addresses of static types.
        unsafe {
            let class = ffi::Py_TYPE(value);
            if class == &raw mut ffi::PyUnicode_Type {
                self.text(value)
            } else if class == &raw mut ffi::PyLong_Type {
                self.integer(value)
            } else if let Some((record, heads)) = self.plans.latest_record(class)
                && self.depth < DEEPEST
            {
                // Most often a map has records of one class.
                self.depth += 1;
                self.fields(value, &*record, &*heads)?;
                self.depth -= 1;
                Ok(())
            } else if class == &raw mut ffi::PyFloat_Type {
                self.out.float(ffi::PyFloat_AS_DOUBLE(value))
            } else if let Some(word) = word(value) {
                self.out.extend(word)
            } else {
                self.compound(value, class)
            }
        }
    }

    /// Writes a value without any other code, if its class is one of those whose objects can be written so.
    ///
    /// # Safety
    ///
    /// A live value.
    #[cfg(not(Py_GIL_DISABLED))]
    #[inline]
    unsafe fn plain(&mut self, value: Pointer) -> Option<Result<(), Raised>> {
        // SAFETY: the caller's, and the addresses of static types.
        unsafe {
            let class = ffi::Py_TYPE(value);
            if class == &raw mut ffi::PyUnicode_Type {
                Some(self.text(value))
            } else if class == &raw mut ffi::PyLong_Type {
                Some(self.integer(value))
            } else if class == &raw mut ffi::PyFloat_Type {
                Some(self.out.float(ffi::PyFloat_AS_DOUBLE(value)))
            } else {
                word(value).map(|word| self.out.extend(word))
            }
        }
    }

    /// Writes a value that may have others in it.
    ///
    /// # Safety
    ///
    /// As for [`value`](Self::value), with its class.
    unsafe fn compound(&mut self, value: Pointer, class: *mut ffi::PyTypeObject) -> Result<(), Raised> {
        if self.depth == DEEPEST {
            return Err(self.say(format!("nests more than {DEEPEST} values in one another, or holds itself")));
        }
        self.depth += 1;
        // SAFETY: the caller's, and the addresses of static types.
        unsafe {
            if class == self.state.map.cast() {
                self.map(value)?;
            } else if class == self.state.vector.cast() {
                self.vector(value)?;
            } else if class == &raw mut ffi::PyTuple_Type {
                self.tuple(value)?;
            } else if class == &raw mut ffi::PyList_Type {
                self.list(value)?;
            } else if class == &raw mut ffi::PyDict_Type {
                self.dict(value)?;
            } else {
                self.planned(value, class)?;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// # Safety
    ///
    /// As for [`compound`](Self::compound).
    unsafe fn planned(&mut self, value: Pointer, class: *mut ffi::PyTypeObject) -> Result<(), Raised> {
        // SAFETY: the caller's; a plan belongs to the value's class, and lives as long as the encoder.
        unsafe {
            let plan = self.plans.of(self.state, class, self.classify)?;
            match &*plan {
                Plan::Record { info, is_frozen } => {
                    self.record(value, info)?;
                    self.note(*is_frozen);
                }
                Plan::Text(function) => {
                    let made = function.call(&[value])?;
                    if ffi::PyUnicode_Check(made.as_ptr()) == 0 {
                        return Err(self.say("has a text that is no str".to_owned()));
                    }
                    self.text(made.as_ptr())?;
                }
                Plan::Value { function, is_frozen } => {
                    let made = function.call(&[value])?;
                    self.value(made.as_ptr())?;
                    self.note(*is_frozen);
                }
                Plan::Str => self.text(value)?,
                Plan::Int => self.integer(value)?,
                Plan::Float => self.out.float(ffi::PyFloat_AsDouble(value))?,
                Plan::Set { is_frozen } => {
                    self.set(value)?;
                    self.note(*is_frozen);
                }
                Plan::Other(hint) => {
                    if self.default.is_null() {
                        let hint = String::from_utf8_lossy(utf8(hint.as_ptr())?);
                        return Err(self.say(format!("is {hint}")));
                    }
                    let made = Object::share(self.default)?.call(&[value])?;
                    self.value(made.as_ptr())?;
                    self.note(false);
                }
            }
            Ok(())
        }
    }

    /// Notes whether what was written last stays as it is.
    #[inline]
    fn note(&mut self, is_frozen: bool) {
        if !is_frozen {
            self.changing = self.out.len();
        }
    }

    /// Writes a `str`, or an object of a subclass.
    ///
    /// # Safety
    ///
    /// A live `str`.
    #[inline]
    unsafe fn text(&mut self, text: Pointer) -> Result<(), Raised> {
        // SAFETY: the caller's; the bytes live with the text.
        match unsafe { utf8(text) } {
            Ok(bytes) => self.out.string(bytes),
            Err(Raised) => Err(self.no_text()),
        }
    }

    #[cold]
    fn no_text(&mut self) -> Raised {
        // SAFETY: an exception is set.
        unsafe {
            if ffi::PyErr_ExceptionMatches(ffi::PyExc_UnicodeEncodeError) == 0 {
                return Raised;
            }
            ffi::PyErr_Clear();
        }
        self.say("is a text with a lone surrogate, which UTF-8 has no bytes for".to_owned())
    }

    /// Writes an `int`, or an object of a subclass.
    ///
    /// # Safety
    ///
    /// A live `int`.
    #[inline]
    unsafe fn integer(&mut self, number: Pointer) -> Result<(), Raised> {
        // SAFETY: the caller's.
        if let Some(small) = unsafe { digit(number) } {
            return self.out.integer(small);
        }
        let mut overflow = 0;
        // SAFETY: the caller's; an `int` has its number without running code.
        unsafe {
            let small = ffi::PyLong_AsLongLongAndOverflow(number, &raw mut overflow);
            if overflow == 0 {
                return self.out.integer(small);
            }
            // An `int` of its own class, because the text of another is what that makes of it.
            let plain = Object::own(ffi::PyNumber_Long(number))?;
            let digits =
                Object::own(ffi::PyLong_Type.tp_repr.map_or(ptr::null_mut(), |repr| repr(plain.as_ptr())))?;
            self.out.extend(utf8(digits.as_ptr())?)
        }
    }

    /// Writes a record by its fields.
    ///
    /// # Safety
    ///
    /// A live object of the class that the `Record` describes.
    unsafe fn record(&mut self, object: Pointer, info: &Object) -> Result<(), Raised> {
        // SAFETY: the caller's.
        unsafe { self.fields(object, content::<Record>(info.as_ptr()), heads(info)?) }
    }

    /// As [`record`](Self::record), with what stands before the fields.
    ///
    /// # Safety
    ///
    /// As there.
    unsafe fn fields(&mut self, object: Pointer, record: &Record, heads: &Heads) -> Result<(), Raised> {
        // SAFETY: the caller's.
        unsafe {
            for (index, head) in heads.iter().enumerate() {
                self.out.head(head)?;
                // No code runs while one of these is written that could take it out of its slot.
                #[cfg(not(Py_GIL_DISABLED))]
                if let Some(value) = record.slot(object, index)
                    && let Some(written) = self.plain(value)
                {
                    if let Err(Raised) = written {
                        return Err(self.below_field(record.name(index)));
                    }
                    continue;
                }
                let value = record.read(object, index)?;
                if let Err(Raised) = self.value(value.as_ptr()) {
                    return Err(self.below_field(record.name(index)));
                }
            }
            if heads.is_empty() {
                self.out.push(b'{')?;
            }
        }
        self.out.push(b'}')
    }

    /// # Safety
    ///
    /// A live tuple, which the caller keeps alive.
    unsafe fn tuple(&mut self, tuple: Pointer) -> Result<(), Raised> {
        self.out.push(b'[')?;
        let start = self.out.len();
        // SAFETY: the caller's; a tuple holds its items, and never changes.
        unsafe {
            for at in 0..ffi::PyTuple_GET_SIZE(tuple) {
                self.item(ffi::PyTuple_GET_ITEM(tuple, at), at as usize)?;
            }
        }
        self.out.close(start, b']')
    }

    /// # Safety
    ///
    /// A live list, which the caller keeps alive.
    unsafe fn list(&mut self, list: Pointer) -> Result<(), Raised> {
        self.out.push(b'[')?;
        let start = self.out.len();
        let mut at = 0;
        // SAFETY: the caller's; other code may change the list, so that its length is asked for each item, which is
        // held. On a free-threaded build the list may be shorter a moment later.
        unsafe {
            while at < ffi::PyList_Size(list) {
                let Ok(item) = Object::own(ffi::compat::PyList_GetItemRef(list, at)) else {
                    if ffi::PyErr_ExceptionMatches(ffi::PyExc_IndexError) == 0 {
                        return Err(Raised);
                    }
                    ffi::PyErr_Clear();
                    break;
                };
                self.item(item.as_ptr(), at as usize)?;
                at += 1;
            }
        }
        self.out.close(start, b']')?;
        self.note(false);
        Ok(())
    }

    /// Writes an item of an array, with a comma.
    ///
    /// # Safety
    ///
    /// As for [`value`](Self::value).
    #[inline]
    unsafe fn item(&mut self, item: Pointer, index: usize) -> Result<(), Raised> {
        // SAFETY: the caller's.
        match unsafe { self.value(item) } {
            Ok(()) => self.out.push(b','),
            Err(Raised) => Err(self.below_index(index)),
        }
    }

    /// # Safety
    ///
    /// A live `dict`, which the caller keeps alive.
    unsafe fn dict(&mut self, dict: Pointer) -> Result<(), Raised> {
        self.out.push(b'{')?;
        let start = self.out.len();
        // SAFETY: the caller's. No other code has the copy, so that its entries are borrowed from it.
        unsafe {
            let copy = Object::own(ffi::PyDict_Copy(dict))?;
            let (mut place, mut key, mut value) = (0, ptr::null_mut(), ptr::null_mut());
            while ffi::PyDict_Next(copy.as_ptr(), &raw mut place, &raw mut key, &raw mut value) != 0 {
                self.key(key)?;
                if let Err(Raised) = self.value(value) {
                    return Err(self.below_key(key));
                }
                self.out.push(b',')?;
            }
        }
        self.out.close(start, b'}')?;
        self.note(false);
        Ok(())
    }

    /// Writes a set in the order of its items' texts, so that equal sets have equal texts.
    ///
    /// # Safety
    ///
    /// A live set, which the caller keeps alive.
    unsafe fn set(&mut self, set: Pointer) -> Result<(), Raised> {
        self.out.push(b'[')?;
        let start = self.out.len();
        let mut texts: Vec<Box<[u8]>> = Vec::new();
        // SAFETY: the caller's. Nodes that keep their texts have copies of them.
        unsafe {
            each(set, |_, item| {
                let first = self.out.len();
                if let Err(Raised) = self.value(item.as_ptr()) {
                    return Err(self.below_item());
                }
                texts.push(self.out.since(first).into());
                Ok(std::ops::ControlFlow::Continue(()))
            })?;
        }
        let is_changing = self.changing > start;
        self.out.truncate(start);
        texts.sort_unstable();
        for text in texts {
            self.out.extend(&text)?;
            self.out.push(b',')?;
        }
        self.out.close(start, b']')?;
        self.note(!is_changing);
        Ok(())
    }

    /// Writes a key of an object, with a colon.
    ///
    /// # Safety
    ///
    /// A live key, which the caller keeps alive. Python code may run.
    #[inline]
    pub(super) unsafe fn key(&mut self, key: Pointer) -> Result<(), Raised> {
        // SAFETY: the caller's, and the address of a static type.
        unsafe {
            if ffi::Py_TYPE(key) == &raw mut ffi::PyUnicode_Type {
                return match utf8(key) {
                    Ok(text) => self.out.name(text),
                    Err(Raised) => {
                        let Raised = self.no_text();
                        Err(self.below_key(key))
                    }
                };
            }
            self.other_key(key, key).map_err(|Raised| self.below_key(key))?;
        }
        self.out.push(b':')
    }

    /// Writes a key that is no `str`; `of` is the key whose value it is.
    ///
    /// # Safety
    ///
    /// As for [`key`](Self::key).
    unsafe fn other_key(&mut self, key: Pointer, of: Pointer) -> Result<(), Raised> {
        // SAFETY: the caller's; a plan belongs to the key's class.
        unsafe {
            let class = ffi::Py_TYPE(key);
            if class == &raw mut ffi::PyUnicode_Type {
                return self.text(key);
            }
            if class == &raw mut ffi::PyLong_Type
                || class == &raw mut ffi::PyFloat_Type
                || word(key).is_some()
            {
                self.out.push(b'"')?;
                self.value(key)?;
                return self.out.push(b'"');
            }
            if class != &raw mut ffi::PyTuple_Type
                && class != self.state.map.cast()
                && class != self.state.vector.cast()
            {
                let plan = self.plans.of(self.state, class, self.classify)?;
                match &*plan {
                    Plan::Text(_) | Plan::Str => return self.planned(key, class),
                    Plan::Int | Plan::Float => {
                        self.out.push(b'"')?;
                        self.planned(key, class)?;
                        return self.out.push(b'"');
                    }
                    // The member of an enumeration; one step, because what it holds may be anything.
                    Plan::Value { function, is_frozen: true } if key == of => {
                        let made = function.call(&[key])?;
                        return self.other_key(made.as_ptr(), of);
                    }
                    _ => {}
                }
            }
            let name = Object::own(ffi::PyType_GetQualName(ffi::Py_TYPE(of)))?;
            let name = String::from_utf8_lossy(utf8(name.as_ptr())?).into_owned();
            Err(self.say(format!(
                "has a key of class {name}; a key is a str, a number, None, a date, a UUID, or an enum of these"
            )))
        }
    }

    /// Says what is wrong with a value. The callers add the steps that lead to it.
    #[cold]
    fn say(&mut self, wrong: String) -> Raised {
        self.wrong = Some(wrong);
        Raised
    }

    /// Adds the step to a field.
    #[cold]
    fn below_field(&mut self, name: Pointer) -> Raised {
        if self.wrong.is_some() {
            // SAFETY: a live `str`, whose text has been written.
            let name = unsafe { utf8(name) }.map_or_else(|Raised| "?".into(), String::from_utf8_lossy);
            self.steps.push(format!(".{name}"));
        }
        Raised
    }

    /// Adds the step to the value of a key.
    #[cold]
    pub(super) fn below_key(&mut self, key: Pointer) -> Raised {
        if self.wrong.is_some() {
            // SAFETY: a live key; the text is read while it is held.
            let shown = unsafe {
                Object::own(ffi::PyObject_ASCII(key))
                    .and_then(|text| {
                        utf8(text.as_ptr()).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
                    })
                    .unwrap_or_else(|Raised| {
                        ffi::PyErr_Clear();
                        "?".to_owned()
                    })
            };
            self.steps.push(format!("[{shown}]"));
        }
        Raised
    }

    /// Adds the step to an item.
    #[cold]
    pub(super) fn below_index(&mut self, index: usize) -> Raised {
        if self.wrong.is_some() {
            self.steps.push(format!("[{index}]"));
        }
        Raised
    }

    /// Adds the step to an item of a set.
    #[cold]
    fn below_item(&mut self) -> Raised {
        if self.wrong.is_some() {
            self.steps.push("[...]".to_owned());
        }
        Raised
    }

    /// Raises the error, unless an exception of other code is set already.
    fn raise(mut self) -> Raised {
        let Some(wrong) = self.wrong.take() else {
            // SAFETY: the thread is attached.
            let is_set = unsafe { !ffi::PyErr_Occurred().is_null() };
            return if is_set { Raised } else { fail(c"an encoding failed without a reason") };
        };
        self.steps.reverse();
        if self.steps.len() > 2 * SHOWN {
            let end = self.steps.len() - SHOWN;
            self.steps.splice(SHOWN..end, ["...".to_owned()]);
        }
        let path = self.steps.concat();
        raise_text(
            Code::NotJson,
            &format!("the value{}{path} {wrong}", if path.is_empty() { "" } else { " at " }),
        )
    }
}

/// The word that JSON has for a constant.
///
/// # Safety
///
/// The interpreter is initialised.
#[inline]
unsafe fn word(value: Pointer) -> Option<&'static [u8]> {
    // SAFETY: the addresses of immortal objects.
    unsafe {
        if value == ffi::Py_None() {
            Some(b"null")
        } else if value == ffi::Py_True() {
            Some(b"true")
        } else if value == ffi::Py_False() {
            Some(b"false")
        } else {
            None
        }
    }
}

/// The number of an `int` that has at most one digit of 30 bits, as most have.
///
/// # Safety
///
/// A live `int`.
#[inline]
unsafe fn digit(number: Pointer) -> Option<i64> {
    /// An `int` of the interpreter's, up to its first digit.
    #[repr(C)]
    struct Long {
        head: ffi::PyObject,
        /// The number of digits, with the sign of the number; since 3.12 shifted by 3 bits, with one less than the sign
        /// reversed in the lowest two.
        size: isize,
        digit: u32,
    }
    if cfg!(any(Py_3_15, Py_LIMITED_API)) {
        return None;
    }
    // SAFETY: the caller's; these versions have it so, and there is room for a digit, also in 0.
    unsafe {
        let long = number.cast::<Long>();
        let (size, digit) = ((*long).size, i64::from((*long).digit));
        if cfg!(Py_3_12) {
            (size < 16).then(|| (1 - (size as i64 & 3)) * digit)
        } else {
            (size.unsigned_abs() < 2).then(|| size as i64 * digit)
        }
    }
}
