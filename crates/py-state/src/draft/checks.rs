//! The checks of new records, and what the checks themselves have changed.
//!
//! A `__post_init__` may put other values into fields of the new record: it normalises, or derives one field from
//! others. It may also set attributes that are no fields. Both are part of what is committed, so they are noted behind
//! the changes of the transaction: what replays the list runs no check.

use std::ptr;

use pyo3_ffi as ffi;
use ropewalk_base::Code;
use ropewalk_capi::errors;
use ropewalk_capi::heap::content;
use ropewalk_capi::object::{Object, Raised};

use super::change::{self, Change};
use super::{freeze, path};
use crate::node::Pointer;
use crate::record::Record;
use crate::types::State;

/// A new record that its class checks.
pub(crate) struct Unchecked {
    pub(super) made: Object,
    /// The `Record` of its class.
    pub(super) info: Object,
    /// What it is a changed copy of.
    pub(super) before: Object,
    /// The values that its fields were to have, if the class has made it and validated them.
    pub(super) given: Vec<Object>,
    /// The way to it, if changes of it are noted. Otherwise a change above it has the record itself as its value.
    pub(super) way: Option<Vec<Object>>,
    /// For each field, whether it is transient, so that its changes are not noted.
    pub(super) transient: Vec<bool>,
}

impl Unchecked {
    /// Whether the list of changes has the changes of the record itself, so that to repeat them makes the record anew.
    pub(crate) fn is_noted(&self) -> bool {
        self.way.is_some()
    }

    /// Calls the check, and adds what it has changed to the list of changes.
    ///
    /// # Errors
    ///
    /// What the check raises; `NotFrozen`, if it has set what may change.
    ///
    /// # Safety
    ///
    /// `changes` is a list.
    pub(crate) unsafe fn run(&self, types: &State, changes: Option<&Object>) -> Result<(), Raised> {
        // SAFETY: the caller's; the objects are held, and the `Record` is that of their class.
        unsafe {
            let info = content::<Record>(self.info.as_ptr());
            let made = self.made.as_ptr();
            let read;
            let given = if info.is_rebuilt() {
                &self.given
            } else {
                read = (0..info.count()).map(|index| info.read(made, index)).collect::<Result<_, _>>()?;
                &read
            };
            if let Some(check) = info.check() {
                drop(check.call(&[made])?);
            }
            for (index, given) in given.iter().enumerate() {
                let set = info.read(made, index)?;
                if is_same(set.as_ptr(), given.as_ptr()) {
                    continue;
                }
                self.must_be_frozen(types, info.name(index), set.as_ptr())?;
                if !self.transient.get(index).is_some_and(|is_transient| *is_transient) {
                    self.note(changes, Change::Set, info.name(index), set.as_ptr())?;
                }
            }
            let (before, after) = (info.attributes(self.before.as_ptr())?, info.attributes(made)?);
            for (name, value) in &after {
                let old = find(&before, name);
                if old.is_none_or(|old| !ptr::eq(old.as_ptr(), value.as_ptr())) {
                    if !info.is_rebuilt() {
                        self.must_be_frozen(types, name.as_ptr(), value.as_ptr())?;
                    }
                    self.note(changes, Change::Set, beside_step(name)?.as_ptr(), value.as_ptr())?;
                }
            }
            for (name, _) in &before {
                if find(&after, name).is_none() {
                    self.note(changes, Change::Delete, beside_step(name)?.as_ptr(), ffi::Py_None())?;
                }
            }
            Ok(())
        }
    }

    /// # Safety
    ///
    /// Live objects.
    unsafe fn must_be_frozen(&self, types: &State, name: Pointer, value: Pointer) -> Result<(), Raised> {
        // SAFETY: the caller's.
        unsafe {
            let frozen = freeze::freeze_loose(types, value)?;
            if ptr::eq(frozen.as_ptr(), value) {
                return Ok(());
            }
            let class = Object::share(ffi::Py_TYPE(self.made.as_ptr()).cast())?.attribute(c"__qualname__")?;
            let kind = Object::share(ffi::Py_TYPE(value).cast())?.attribute(c"__qualname__")?;
            let frozen = Object::share(ffi::Py_TYPE(frozen.as_ptr()).cast())?.attribute(c"__name__")?;
            let by = if content::<Record>(self.info.as_ptr()).is_rebuilt() {
                c"A validator"
            } else {
                c"__post_init__"
            };
            let said = Object::own(ffi::PyUnicode_FromFormat(
                c"%s of %U has set %U to a value of class %U, which may change in place, or a part of it may. \
                  Set what a state keeps, such as a %U"
                    .as_ptr(),
                by.as_ptr(),
                class.as_ptr(),
                name,
                kind.as_ptr(),
                frozen.as_ptr(),
            ))?;
            Err(errors::raise_made(Code::NotFrozen, &[said.as_ptr()]))
        }
    }

    /// # Safety
    ///
    /// `changes` is a list; live objects.
    unsafe fn note(
        &self,
        changes: Option<&Object>,
        change: Change,
        name: Pointer,
        value: Pointer,
    ) -> Result<(), Raised> {
        let (Some(changes), Some(way)) = (changes, &self.way) else { return Ok(()) };
        // SAFETY: the caller's.
        unsafe {
            let mut way = way.clone();
            way.push(Object::share(name)?);
            change::note(changes, change, &way, value)
        }
    }
}

/// The step to an attribute that is no field: a field of that name may be gone from the class, or come to it.
fn beside_step(name: &Object) -> Result<Object, Raised> {
    path::tuple(std::slice::from_ref(name))
}

/// The value of an attribute. The names are those of one class's attributes, and few.
fn find<'a>(attributes: &'a [(Object, Object)], name: &Object) -> Option<&'a Object> {
    // SAFETY: live objects. The names are strings, to compare which runs no code of the program.
    let has_name = |known: &Object| unsafe {
        ptr::eq(known.as_ptr(), name.as_ptr())
            || ffi::PyUnicode_Check(known.as_ptr()) != 0
                && ffi::PyUnicode_Check(name.as_ptr()) != 0
                && ffi::PyUnicode_Compare(known.as_ptr(), name.as_ptr()) == 0
    };
    attributes.iter().find(|(known, _)| has_name(known)).map(|(_, value)| value)
}

/// Whether two values are one, or are atoms that cannot be told apart: a model takes its values apart.
///
/// # Safety
///
/// Live objects.
unsafe fn is_same(one: Pointer, other: Pointer) -> bool {
    // SAFETY: the caller's, and the addresses of static types, whose comparison runs no code of the program.
    unsafe {
        let class = ffi::Py_TYPE(one);
        ptr::eq(one, other)
            || ptr::eq(class, ffi::Py_TYPE(other))
                && (class == &raw mut ffi::PyUnicode_Type
                    || class == &raw mut ffi::PyLong_Type
                    || class == &raw mut ffi::PyBytes_Type)
                && ffi::PyObject_RichCompareBool(one, other, ffi::Py_EQ) == 1
    }
}
