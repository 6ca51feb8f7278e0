//! Leaves that hold other values: subclasses of `tuple` and `frozenset`, and slices.

use pyo3_ffi as ffi;
use ropewalk_base::Code;
use ropewalk_capi::errors;
use ropewalk_capi::object::{Object, Raised, text};

use super::{Step, Walk};
use crate::node::Pointer;

impl Walk<'_> {
    /// The parts of a leaf that holds others: nothing can be put in their places, because a subclass is what it is.
    ///
    /// # Safety
    ///
    /// `value` is live, and the caller holds it.
    pub(super) unsafe fn leaf(&mut self, value: Pointer, depth: u32) -> Result<Object, Raised> {
        // SAFETY: the caller's; the class is checked before an object is read as such.
        unsafe {
            let class = ffi::Py_TYPE(value);
            let is_slice = class == &raw mut ffi::PySlice_Type;
            let is_set = ffi::PyFrozenSet_Check(value) != 0;
            if !is_slice && !is_set && ffi::PyTuple_Check(value) == 0 {
                return Object::share(value);
            }
            match ffi::PyDict_Contains(self.types.leaves, class.cast()) {
                // The program has promised.
                1 => return Object::share(value),
                0 => {}
                _ => return Err(Raised),
            }
            if is_set {
                // A copy, because the subclass may show other elements.
                self.set(Object::own(ffi::PyFrozenSet_New(value))?, depth)?;
            } else if is_slice {
                for name in [c"start", c"stop", c"step"] {
                    let part = Object::own(ffi::PyObject_GetAttrString(value, name.as_ptr()))?;
                    let step = || Ok(Step::Key(text(name.to_str().unwrap_or_default())?));
                    let stored = self.part(step, part.as_ptr(), None, depth)?;
                    self.must_be(&stored, part.as_ptr(), class)?;
                }
            } else {
                for index in 0..ffi::PyTuple_Size(value) {
                    let part = ffi::PyTuple_GetItem(value, index);
                    let stored = self.part(|| Ok(Step::Index(index)), part, None, depth)?;
                    self.must_be(&stored, part, class)?;
                }
            }
            Object::share(value)
        }
    }

    /// Raises unless what is stored for a part is the part itself.
    ///
    /// # Safety
    ///
    /// Live objects.
    unsafe fn must_be(
        &mut self,
        stored: &Object,
        part: Pointer,
        class: *mut ffi::PyTypeObject,
    ) -> Result<(), Raised> {
        if stored.as_ptr() == part {
            return Ok(());
        }
        // SAFETY: the caller's; the formats' arguments are live strings.
        unsafe {
            let whole = Object::share(class.cast())?.attribute(c"__qualname__")?;
            let kind = Object::share(ffi::Py_TYPE(part).cast())?.attribute(c"__qualname__")?;
            let said = Object::own(ffi::PyUnicode_FromFormat(
                c"a part of class %U changes in place, and a %U cannot be stored with another in its place. Make it \
                  of parts that never change"
                    .as_ptr(),
                kind.as_ptr(),
                whole.as_ptr(),
            ))?;
            Err(self.changes(errors::raise_made(Code::NotFrozen, &[said.as_ptr()])))
        }
    }
}
