//! What is stored: values that nobody can change.
//!
//! A list becomes a vector, a `dict` a map, a `set` a `frozenset`, a `bytearray` bytes, a draft the value that it has
//! now; records, tuples and sets of values that never change stay the objects that they are, and
//! so do arrays in shared memory that nothing can write to. Everything else is refused
//! by `kind_of`, which knows what to say. The maps and vectors that were checked carry a mark, so that a value is
//! checked once.
//!
//! On the way the parts of a new value are compared with the form of their places, which has the types that are
//! declared. What carries the mark is taken by its class alone: it was compared when it was stored first.

mod leaf;

use pyo3_ffi as ffi;
use ropewalk_base::Code;
use ropewalk_capi::errors;
use ropewalk_capi::heap::content;
use ropewalk_capi::object::{Object, Raised, take_exception};

use super::scope::Head;
use super::{array, path, shown};
use crate::form::Form;
use crate::kinds::{self, Kind};
use crate::node::Pointer;
use crate::record::Record;
use crate::types::State;
use crate::{map, vector};

/// Nested deeper than this, values are refused: what walks them uses the stack.
pub(super) const DEEPEST: u32 = 500;

/// The error for values that are nested too deep.
#[cold]
pub(super) fn too_deep() -> Raised {
    let said = format!("a value is nested more than {DEEPEST} levels deep; store a flatter one");
    errors::raise_text(Code::StateError, &said)
}

/// The place that a value is stored at.
pub(super) struct Place<'a> {
    pub(super) head: &'a Head,
    pub(super) draft: Pointer,
    /// The name, key or index below the draft; null behind the last item of a vector.
    pub(super) step: Pointer,
    /// What is declared of the place.
    pub(super) form: Option<&'a Form>,
}

/// The value to store for a value.
///
/// # Errors
///
/// `NotFrozen`, if a part of it may change; `WrongType`, if the place is declared to have others; `StateError`, if it
/// is nested too deep.
///
/// # Safety
///
/// `value` is live, and so is what the place names.
#[inline]
pub(super) unsafe fn freeze(types: &State, place: &Place<'_>, value: Pointer) -> Result<Object, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let class = ffi::Py_TYPE(value);
        if kinds::is_atom(class) && place.form.is_none_or(|form| form.has(class)) {
            return Object::share(value);
        }
        let form = place.form.filter(|form| !form.is_loose());
        let mut walk = Walk::new(types, false);
        walk.frozen(value, form, 0).map_err(|Raised| walk.explained(Some(place), value))
    }
}

/// The value to store for a whole state. All of it is compared with its form, what carries the mark too.
///
/// # Errors
///
/// As [`freeze`].
///
/// # Safety
///
/// `value` is live, and the caller holds the form.
pub(crate) unsafe fn freeze_whole(
    types: &State,
    value: Pointer,
    form: Option<&Form>,
) -> Result<Object, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let mut walk = Walk::new(types, true);
        walk.frozen(value, form, 0).map_err(|Raised| walk.explained(None, value))
    }
}

/// The same for a value that stands at no place whose form is known. What carries the mark is taken as it is.
///
/// # Errors
///
/// As [`freeze`].
///
/// # Safety
///
/// `value` is live.
pub(super) unsafe fn freeze_loose(types: &State, value: Pointer) -> Result<Object, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let mut walk = Walk::new(types, false);
        walk.frozen(value, None, 0).map_err(|Raised| walk.explained(None, value))
    }
}

/// Checks that a key of a map never changes, is one of those that are declared, and can be found again.
///
/// # Errors
///
/// `NotFrozen`; `WrongType`; `StateError`, if NaN is in it.
///
/// # Safety
///
/// As [`freeze`], for a place of the map itself.
#[inline]
pub(super) unsafe fn check_key(types: &State, place: &Place<'_>, key: Pointer) -> Result<(), Raised> {
    // SAFETY: the caller's.
    unsafe {
        let class = ffi::Py_TYPE(key);
        let is_plain = class == &raw mut ffi::PyUnicode_Type || class == &raw mut ffi::PyLong_Type;
        if is_plain && place.form.is_none_or(|form| form.has(class)) {
            return Ok(());
        }
        let mut walk = Walk::new(types, false);
        walk.key(key, place.form).map_err(|Raised| walk.explained(Some(place), key))
    }
}

/// Whether a value is NaN, or a tuple or a set with one. Such a tuple equals itself and no copy of it.
///
/// # Safety
///
/// `value` is live, and was frozen: it is not nested deep.
unsafe fn has_nan(value: Pointer) -> Result<bool, Raised> {
    // SAFETY: the caller's; the types are checked before objects are read as such. A tuple keeps its items.
    unsafe {
        if ffi::PyFloat_Check(value) != 0 {
            return Ok(ffi::PyFloat_AsDouble(value).is_nan());
        }
        if ffi::PyComplex_Check(value) != 0 {
            let (real, imaginary) = (ffi::PyComplex_RealAsDouble(value), ffi::PyComplex_ImagAsDouble(value));
            return Ok(real.is_nan() || imaginary.is_nan());
        }
        if ffi::PyTuple_Check(value) == 0 && ffi::PyFrozenSet_Check(value) == 0 {
            return Ok(false);
        }
        let parts = Object::own(ffi::PySequence_Tuple(value))?;
        for index in 0..ffi::PyTuple_Size(parts.as_ptr()) {
            if has_nan(ffi::PyTuple_GetItem(parts.as_ptr(), index))? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A step of the way into a value.
enum Step {
    Key(Object),
    Index(isize),
}

/// What is wrong with a part of a value.
enum Problem {
    /// The part and how the annotation of its place is written.
    Type(Object, Object),
    /// The same for a key of the map that the steps lead to.
    Key(Object, Object),
    /// It can be changed; an exception says that.
    Changes,
}

/// One walk through a value.
struct Walk<'a> {
    types: &'a State,
    /// Whether what carries the mark is compared too.
    is_deep: bool,
    /// The way to the part at hand; after a failure that to the part that is wrong.
    steps: Vec<Step>,
    problem: Option<Problem>,
}

impl<'a> Walk<'a> {
    fn new(types: &'a State, is_deep: bool) -> Self {
        Self { types, is_deep, steps: Vec::new(), problem: None }
    }

    /// Raises the exception for what was wrong, with the path to it.
    #[cold]
    unsafe fn explained(&mut self, place: Option<&Place<'_>>, value: Pointer) -> Raised {
        let Some(problem) = self.problem.take() else { return Raised };
        // SAFETY: live objects; the hook gives an exception or raises one.
        unsafe {
            let raised = if matches!(problem, Problem::Changes) { Some(take_exception()) } else { None };
            let made = (|| {
                let mut steps = Vec::new();
                for step in self.steps.drain(..) {
                    steps.push(match step {
                        Step::Key(key) => key,
                        Step::Index(index) => Object::own(ffi::PyLong_FromSsize_t(index))?,
                    });
                }
                let (scope, way) = match place {
                    Some(place) => {
                        // An item behind the last one has no index that would stay.
                        let is_item = place.step.is_null() && !matches!(problem, Problem::Key(..));
                        let step = if is_item { ffi::Py_Ellipsis() } else { place.step };
                        (
                            place.head.scope.share().ok_or(Raised)?,
                            path::to(self.types, place.head, place.draft, step)?,
                        )
                    }
                    None => (Object::none(), path::tuple(&[])?),
                };
                let steps = path::tuple(&steps)?;
                let (text, part, is_key) = match problem {
                    Problem::Type(part, text) => (text, part, false),
                    Problem::Key(part, text) => (text, part, true),
                    Problem::Changes => (Object::none(), Object::none(), false),
                };
                let is_key = Object::own(ffi::PyBool_FromLong(is_key.into()))?;
                if self.types.misplaced.is_null() {
                    return Err(errors::fail(c"ropewalk.state was not imported"));
                }
                let error = raised.unwrap_or_else(Object::none);
                Object::share(self.types.misplaced)?.call(&[
                    scope.as_ptr(),
                    way.as_ptr(),
                    value,
                    steps.as_ptr(),
                    text.as_ptr(),
                    part.as_ptr(),
                    is_key.as_ptr(),
                    error.as_ptr(),
                ])
            })();
            if let Ok(error) = made {
                ffi::PyErr_SetObject(ffi::Py_TYPE(error.as_ptr()).cast(), error.as_ptr());
            }
        }
        Raised
    }

    /// Notes that the part at hand can be changed; an exception is set.
    fn changes(&mut self, raised: Raised) -> Raised {
        self.problem = Some(Problem::Changes);
        raised
    }

    /// # Safety
    ///
    /// `value` is live.
    unsafe fn frozen(&mut self, value: Pointer, form: Option<&Form>, depth: u32) -> Result<Object, Raised> {
        // SAFETY: the caller's.
        unsafe {
            let class = ffi::Py_TYPE(value);
            if kinds::is_atom(class) {
                self.check(form, value, value)?;
                return Object::share(value);
            }
            let made = self.made(value, form, depth)?;
            self.check(form, made.as_ptr(), value)?;
            Ok(made)
        }
    }

    /// Compares a value to be stored with the form of its place.
    ///
    /// # Safety
    ///
    /// Live objects.
    #[inline]
    unsafe fn check(&mut self, form: Option<&Form>, made: Pointer, given: Pointer) -> Result<(), Raised> {
        // SAFETY: the caller's.
        unsafe {
            let Some(form) = form.filter(|form| !form.is_loose()) else { return Ok(()) };
            if form.takes(made)? {
                return Ok(());
            }
            let text = form.text().unwrap_or_else(Object::none);
            self.problem = Some(Problem::Type(Object::share(given)?, text));
            Err(Raised)
        }
    }

    /// # Safety
    ///
    /// As [`frozen`](Self::frozen); what is walked is held, because what is called may run anything.
    unsafe fn made(&mut self, value: Pointer, form: Option<&Form>, depth: u32) -> Result<Object, Raised> {
        // SAFETY: the caller's.
        unsafe {
            if depth > DEEPEST {
                return Err(too_deep());
            }
            let (types, class, below) = (self.types, ffi::Py_TYPE(value), depth + 1);
            // The forms of parts are those of a map, or of a vector, if the place is declared to be one.
            let as_a = |kind: Pointer| form.filter(|form| form.has(kind.cast()));
            if types.is_draft(value) {
                return shown::checked(types, value);
            }
            if class == &raw mut ffi::PyTuple_Type {
                return self.tuple(value, below);
            }
            if class == &raw mut ffi::PyDict_Type {
                return self.map_of(value, as_a(types.map), below);
            }
            if class == &raw mut ffi::PyList_Type {
                return self.vector_of(value, as_a(types.vector), below);
            }
            if class == &raw mut ffi::PySet_Type {
                let copy = Object::own(ffi::PyFrozenSet_New(value))?;
                return self.set(copy, below);
            }
            if class == &raw mut ffi::PyFrozenSet_Type {
                return self.set(Object::share(value)?, below);
            }
            if class == &raw mut ffi::PyByteArray_Type {
                return Object::own(ffi::PyBytes_FromObject(value));
            }
            match kinds::kind_of(types, value).map_err(|raised| self.changes(raised))? {
                Kind::Leaf => self.leaf(value, below),
                Kind::Map => self.checked_map(value, as_a(types.map), below),
                Kind::Vector => self.checked_vector(value, as_a(types.vector), below),
                Kind::Array => array::ask(types, c"frozen", &[value]).map_err(|raised| self.changes(raised)),
                Kind::Record(info) => self.record(value, &info, form, below),
            }
        }
    }

    /// # Safety
    ///
    /// `key` is live.
    #[inline]
    unsafe fn key(&mut self, key: Pointer, form: Option<&Form>) -> Result<(), Raised> {
        // SAFETY: the caller's.
        unsafe {
            let class = ffi::Py_TYPE(key);
            let is_plain = class == &raw mut ffi::PyUnicode_Type || class == &raw mut ffi::PyLong_Type;
            if is_plain && form.is_none_or(|form| form.has(class)) {
                return Ok(());
            }
            self.other_key(key, form)
        }
    }

    /// # Safety
    ///
    /// `key` is live.
    unsafe fn other_key(&mut self, key: Pointer, form: Option<&Form>) -> Result<(), Raised> {
        // SAFETY: the caller's.
        unsafe {
            let class = ffi::Py_TYPE(key);
            if !kinds::is_atom(class) && self.made(key, None, 0)?.as_ptr() != key {
                return Err(self.changes(errors::raise_text(
                    Code::NotFrozen,
                    "a key of a map must be a value that never changes",
                )));
            }
            if has_nan(key)? {
                let said = "NaN cannot be a key of a map, or a part of one: it equals nothing, so that the key would \
                            not be found when the state is read from its journal; use None, for instance";
                return Err(errors::raise_text(Code::StateError, said));
            }
            let Some(form) = form else { return Ok(()) };
            if form.takes(key)? {
                return Ok(());
            }
            let text = form.text().unwrap_or_else(Object::none);
            self.problem = Some(Problem::Key(Object::share(key)?, text));
            Err(Raised)
        }
    }

    /// # Safety
    ///
    /// `value` is live.
    #[inline]
    unsafe fn part(
        &mut self,
        step: impl FnOnce() -> Result<Step, Raised>,
        value: Pointer,
        form: Option<&Form>,
        depth: u32,
    ) -> Result<Object, Raised> {
        // SAFETY: the caller's.
        unsafe {
            let class = ffi::Py_TYPE(value);
            if kinds::is_atom(class) && form.is_none_or(|form| form.is_loose() || form.has(class)) {
                return Object::share(value);
            }
            // A failure leaves the steps to what is wrong.
            self.steps.push(step()?);
            let made = self.frozen(value, form, depth)?;
            drop(self.steps.pop());
            Ok(made)
        }
    }

    /// # Safety
    ///
    /// `value` is a tuple, which the caller holds.
    unsafe fn tuple(&mut self, value: Pointer, depth: u32) -> Result<Object, Raised> {
        // SAFETY: the caller's; a tuple never changes. A fresh tuple's places are filled once.
        unsafe {
            let size = ffi::PyTuple_Size(value);
            let (mut parts, mut changed) = (Vec::with_capacity(size.unsigned_abs()), false);
            for index in 0..size {
                let part = ffi::PyTuple_GetItem(value, index);
                let new = self.part(|| Ok(Step::Index(index)), part, None, depth)?;
                changed |= new.as_ptr() != part;
                parts.push(new);
            }
            if !changed {
                return Object::share(value);
            }
            let made = Object::own(ffi::PyTuple_New(size))?;
            for (index, part) in (0..).zip(parts) {
                ffi::PyTuple_SetItem(made.as_ptr(), index, part.into_ptr());
            }
            Ok(made)
        }
    }

    /// # Safety
    ///
    /// `value` is a `frozenset`.
    unsafe fn set(&mut self, value: Object, depth: u32) -> Result<Object, Raised> {
        // SAFETY: the caller's.
        unsafe {
            let parts = Object::own(ffi::PySequence_Tuple(value.as_ptr()))?;
            for index in 0..ffi::PyTuple_Size(parts.as_ptr()) {
                let part = ffi::PyTuple_GetItem(parts.as_ptr(), index);
                if self.frozen(part, None, depth)?.as_ptr() != part {
                    let said = "an element of a set must be a value that never changes";
                    return Err(self.changes(errors::raise_text(Code::NotFrozen, said)));
                }
            }
            Ok(value)
        }
    }

    /// # Safety
    ///
    /// `value` is a `dict`.
    unsafe fn map_of(&mut self, value: Pointer, form: Option<&Form>, depth: u32) -> Result<Object, Raised> {
        // SAFETY: the caller's; a copy is walked, because another thread may change the original.
        unsafe {
            let items = Object::own(ffi::PyDict_Items(value))?;
            let empty = map::empty(self.types)?;
            let mut edit = map::Edit::new(empty.as_ptr());
            for index in 0..ffi::PyList_Size(items.as_ptr()) {
                let pair = ffi::PyList_GetItem(items.as_ptr(), index);
                let (key, part) = (ffi::PyTuple_GetItem(pair, 0), ffi::PyTuple_GetItem(pair, 1));
                let new = self.entry(key, part, form, depth)?;
                edit.set(key, new.as_ptr())?;
            }
            let made = edit.finish()?;
            map::set_frozen(made.as_ptr());
            Ok(made)
        }
    }

    /// The value to store for a value of a map with this form.
    ///
    /// # Safety
    ///
    /// Live objects.
    unsafe fn entry(
        &mut self,
        key: Pointer,
        part: Pointer,
        form: Option<&Form>,
        depth: u32,
    ) -> Result<Object, Raised> {
        // SAFETY: the caller's.
        unsafe {
            self.key(key, form.and_then(Form::key))?;
            let item = match form {
                Some(form) => form.at_key(key)?,
                None => None,
            };
            self.part(|| Ok(Step::Key(Object::share(key)?)), part, item, depth)
        }
    }

    /// # Safety
    ///
    /// `value` is a list.
    unsafe fn vector_of(
        &mut self,
        value: Pointer,
        form: Option<&Form>,
        depth: u32,
    ) -> Result<Object, Raised> {
        // SAFETY: the caller's; a copy is walked, because another thread may change the original.
        unsafe {
            let items = Object::own(ffi::PyList_AsTuple(value))?;
            let empty = vector::empty(self.types)?;
            let mut edit = vector::Edit::new(empty.as_ptr())?;
            let item = form.and_then(Form::item);
            for index in 0..ffi::PyTuple_Size(items.as_ptr()) {
                let part = ffi::PyTuple_GetItem(items.as_ptr(), index);
                let new = self.part(|| Ok(Step::Index(index)), part, item, depth)?;
                edit.append(new.as_ptr())?;
            }
            let made = edit.finish()?;
            vector::set_frozen(made.as_ptr());
            Ok(made)
        }
    }

    /// # Safety
    ///
    /// `value` is a map, which the caller holds.
    unsafe fn checked_map(
        &mut self,
        value: Pointer,
        form: Option<&Form>,
        depth: u32,
    ) -> Result<Object, Raised> {
        // SAFETY: the caller's.
        unsafe {
            if map::is_frozen(value) && (form.is_none() || !self.is_deep) {
                return Object::share(value);
            }
            let mut edit = None;
            let mut cursor = map::Cursor::new(value);
            while let Some((key, part)) = cursor.next() {
                let new = self.entry(key, part, form, depth)?;
                if new.as_ptr() != part {
                    if edit.is_none() {
                        edit = Some(map::Edit::new(value));
                    }
                    if let Some(edit) = &mut edit {
                        edit.set(key, new.as_ptr())?;
                    }
                }
            }
            let made = match edit {
                None => Object::share(value)?,
                Some(mut edit) => edit.finish()?,
            };
            map::set_frozen(made.as_ptr());
            Ok(made)
        }
    }

    /// # Safety
    ///
    /// `value` is a vector, which the caller holds.
    unsafe fn checked_vector(
        &mut self,
        value: Pointer,
        form: Option<&Form>,
        depth: u32,
    ) -> Result<Object, Raised> {
        // SAFETY: the caller's.
        unsafe {
            if vector::is_frozen(value) && (form.is_none() || !self.is_deep) {
                return Object::share(value);
            }
            let mut edit = None;
            let item = form.and_then(Form::item);
            for index in 0..vector::len(value) {
                let Some(part) = vector::get(value, index) else { break };
                let new = self.part(|| Ok(Step::Index(index.cast_signed())), part, item, depth)?;
                if new.as_ptr() != part {
                    if edit.is_none() {
                        edit = Some(vector::Edit::new(value)?);
                    }
                    if let Some(edit) = &mut edit {
                        edit.set(index, new.as_ptr())?;
                    }
                }
            }
            let made = match edit {
                None => Object::share(value)?,
                Some(mut edit) => edit.finish()?,
            };
            vector::set_frozen(made.as_ptr());
            Ok(made)
        }
    }

    /// # Safety
    ///
    /// `value` is of the class that `info` describes, and the caller holds it.
    unsafe fn record(
        &mut self,
        value: Pointer,
        info: &Object,
        form: Option<&Form>,
        depth: u32,
    ) -> Result<Object, Raised> {
        // SAFETY: the caller's.
        unsafe {
            let record = content::<Record>(info.as_ptr());
            let (mut new, mut changed) = (Vec::with_capacity(record.count()), false);
            for index in 0..record.count() {
                let part = record.read(value, index)?;
                let field = form.and_then(|form| form.field(info.as_ptr(), index));
                let name = || Ok(Step::Key(Object::share(record.name(index))?));
                let stored = self.part(name, part.as_ptr(), field, depth)?;
                let is_other = stored.as_ptr() != part.as_ptr();
                changed |= is_other;
                new.push(is_other.then_some(stored));
            }
            let mut attributes = Vec::new();
            // What a model has beside its fields is its own affair.
            let beside = if record.is_rebuilt() { Vec::new() } else { record.attributes(value)? };
            for (name, part) in beside {
                let stored = self.part(|| Ok(Step::Key(name.clone())), part.as_ptr(), None, depth)?;
                changed |= stored.as_ptr() != part.as_ptr();
                attributes.push((name, stored));
            }
            if !changed {
                return Object::share(value);
            }
            let made = record.copy(value, &new)?;
            for (name, stored) in attributes {
                if ffi::PyObject_GenericSetAttr(made.as_ptr(), name.as_ptr(), stored.as_ptr()) < 0 {
                    return Err(Raised);
                }
            }
            Ok(made)
        }
    }
}
