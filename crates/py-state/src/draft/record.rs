//! The draft of a record: its fields are attributes, which may be read and assigned.

use std::cell::{Cell as Plain, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::ptr;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::errors;
use ropewalk_capi::heap::{self, Field, content};
use ropewalk_capi::object::{Object, Raised};

use super::cell::{CHILD, Cell, READ, WRITTEN};
use super::scope::{self, Head};
use super::{check_write, enter, savepoint, shown, stored};
use crate::node::Pointer;
use crate::record::Record;
use crate::types::State;

/// So many cells lie in the draft itself: to take memory for them apart is a good part of making a draft.
const FEW: usize = 4;

/// The cells of the fields.
#[derive(Default)]
struct Fields {
    count: usize,
    few: [Cell; FEW],
    /// All of them, if they are more.
    many: Vec<Cell>,
}

impl Fields {
    fn new(count: usize) -> Self {
        let many = if count > FEW { vec![Cell::default(); count] } else { Vec::new() };
        Self { count, few: Default::default(), many }
    }

    #[inline]
    fn all(&mut self) -> &mut [Cell] {
        if self.count > FEW { &mut self.many } else { &mut self.few[..self.count] }
    }
}

/// The content of a `RecordDraft`.
pub(crate) struct Draft {
    pub(super) head: Head,
    /// The `Record` of the base's class.
    info: Field,
    /// A cell for each field. Only the transaction's thread touches them, and no reference to one is held while the
    /// interpreter may run code of the program.
    cells: UnsafeCell<Fields>,
    /// Drafts of fields that were assigned to since, by field: what was read through them still counts.
    replaced: UnsafeCell<Vec<(usize, Field)>>,
    /// All of the base was read.
    pub(super) is_whole: Plain<bool>,
}

impl Draft {
    pub(super) fn info(&self) -> &Record {
        // SAFETY: set when the draft was made; the collector clears no draft that is used.
        unsafe { content::<Record>(self.info.get()) }
    }

    pub(super) fn info_pointer(&self) -> Pointer {
        self.info.get()
    }

    /// # Safety
    ///
    /// No reference into the cells lives, and the interpreter runs no code while this one does.
    #[allow(clippy::mut_from_ref, reason = "one thread touches the cells, and holds one reference at a time")]
    pub(super) unsafe fn cells(&self) -> &mut [Cell] {
        // SAFETY: the caller's.
        unsafe { (*self.cells.get()).all() }
    }

    /// # Safety
    ///
    /// As [`cells`](Self::cells).
    #[allow(clippy::mut_from_ref, reason = "as for the cells")]
    pub(super) unsafe fn replaced(&self) -> &mut Vec<(usize, Field)> {
        // SAFETY: the caller's.
        unsafe { &mut *self.replaced.get() }
    }
}

/// # Safety
///
/// `info` is the `Record` of the base's class.
pub(super) unsafe fn make(types: &State, head: Head, info: Object) -> Result<Object, Raised> {
    // SAFETY: the caller's; the module's own type.
    unsafe {
        let count = content::<Record>(info.as_ptr()).count();
        let draft = Draft {
            head,
            info: Field::new(info),
            cells: UnsafeCell::new(Fields::new(count)),
            replaced: UnsafeCell::new(Vec::new()),
            is_whole: Plain::new(false),
        };
        heap::make(types.record_draft.cast(), draft)
    }
}

/// `tp_getattro`.
#[entry]
pub(crate) unsafe extern "C" fn getattro(own: Pointer, name: Pointer) -> Pointer {
    // SAFETY: a draft of ours, and a live string.
    match unsafe { get(own, name) } {
        Ok(value) => value.into_ptr(),
        Err(Raised) => ptr::null_mut(),
    }
}

/// # Safety
///
/// As [`getattro`].
#[inline]
unsafe fn get(own: Pointer, name: Pointer) -> Result<Object, Raised> {
    // SAFETY: the caller's; the references into the cells end before anything of the program may run.
    unsafe {
        let draft = content::<Draft>(own);
        if draft.info.get().is_null() {
            return Err(errors::fail(c"the draft was given up"));
        }
        let info = draft.info();
        let Some(index) = info.index(name) else { return other(own, name, draft) };
        draft.head.open()?;
        let (state, held) = {
            let cell = &draft.cells()[index];
            (cell.state(), cell.get())
        };
        if state & CHILD != 0 {
            return Object::share(held);
        }
        let types = scope::types(own)?;
        let below = draft.head.rule().field(draft.head.rule.get(), draft.info.get(), index);
        if state & WRITTEN != 0 {
            let value = Object::share(held)?;
            return match enter(types, &draft.head, own, name, &below, value.as_ptr(), true)? {
                None => Ok(value),
                Some(child) => {
                    draft.cells()[index].set_child(child.clone());
                    Ok(child)
                }
            };
        }
        let value = info.read(draft.head.base.get(), index)?;
        match enter(types, &draft.head, own, name, &below, value.as_ptr(), draft.head.is_fresh)? {
            None => {
                draft.cells()[index].mark(READ);
                Ok(value)
            }
            Some(child) => {
                draft.cells()[index].set_child(child.clone());
                Ok(child)
            }
        }
    }
}

/// An attribute that is no field: of the record's class, so that its methods and properties work on the draft; or of
/// the draft.
///
/// # Safety
///
/// As [`getattro`].
#[cold]
unsafe fn other(own: Pointer, name: Pointer, draft: &Draft) -> Result<Object, Raised> {
    // SAFETY: the caller's; the base is live, so its class is.
    unsafe {
        let class = Object::share(ffi::Py_TYPE(draft.head.base.get()).cast())?;
        if ffi::PyUnicode_CompareWithASCIIString(name, c"__class__".as_ptr()) == 0 {
            return Ok(class);
        }
        let is_special = ffi::PyUnicode_ReadChar(name, 0) == u32::from(b'_')
            && ffi::PyUnicode_GetLength(name) > 4
            && ffi::PyUnicode_ReadChar(name, 1) == u32::from(b'_');
        if !is_special {
            // The attribute as the class has it, without binding, as `inspect.getattr_static` finds it.
            let order = class.attribute(c"__mro__")?;
            for index in 0..ffi::PyTuple_Size(order.as_ptr()) {
                let one = ffi::PyTuple_GetItem(order.as_ptr(), index);
                if one == (&raw mut ffi::PyBaseObject_Type).cast() {
                    continue;
                }
                let Ok(names) = Object::share(one)?.attribute(c"__dict__") else { return Err(Raised) };
                let found = match Object::own(ffi::PyObject_GetItem(names.as_ptr(), name)) {
                    Ok(found) => found,
                    Err(Raised) if ffi::PyErr_ExceptionMatches(ffi::PyExc_KeyError) != 0 => {
                        ffi::PyErr_Clear();
                        continue;
                    }
                    Err(Raised) => return Err(Raised),
                };
                let Some(bind) = (*ffi::Py_TYPE(found.as_ptr())).tp_descr_get else { return Ok(found) };
                if is_of_library(one, name)? {
                    // It looks into the object, which a draft is not.
                    let value = shown::current(scope::types(own)?, own)?;
                    return Object::own(bind(found.as_ptr(), value.as_ptr(), class.as_ptr()));
                }
                return Object::own(bind(found.as_ptr(), own, class.as_ptr()));
            }
        }
        let found = Object::own(ffi::PyObject_GenericGetAttr(own, name));
        if found.is_err() && !is_special && ffi::PyErr_ExceptionMatches(ffi::PyExc_AttributeError) != 0 {
            ffi::PyErr_Clear();
            return Err(absent(scope::types(own)?, class.as_ptr(), name));
        }
        found
    }
}

/// Whether an attribute that a class defines is a method of pydantic or of named tuples.
///
/// # Safety
///
/// A live class, and a live string.
unsafe fn is_of_library(class: Pointer, name: Pointer) -> Result<bool, Raised> {
    // SAFETY: the caller's; the type of the module's name is checked before it is read as a string.
    unsafe {
        if class == (&raw mut ffi::PyTuple_Type).cast() {
            return Ok(true);
        }
        let is = |text: &std::ffi::CStr| ffi::PyUnicode_CompareWithASCIIString(name, text.as_ptr()) == 0;
        if is(c"_replace") || is(c"_asdict") {
            return Ok(ffi::PyType_IsSubtype(class.cast(), &raw mut ffi::PyTuple_Type) != 0);
        }
        let module = Object::share(class)?.attribute(c"__module__")?;
        let prefix = ropewalk_capi::object::text("pydantic.")?;
        if ffi::PyUnicode_Check(module.as_ptr()) == 0 {
            return Ok(false);
        }
        match ffi::PyUnicode_Tailmatch(module.as_ptr(), prefix.as_ptr(), 0, isize::MAX, -1) {
            -1 => Err(Raised),
            answer => Ok(answer == 1),
        }
    }
}

/// Raises the exception for a field that a record has not.
///
/// # Safety
///
/// A live class, and a live string.
#[cold]
unsafe fn absent(types: &State, class: Pointer, name: Pointer) -> Raised {
    // SAFETY: the caller's; the hook gives an exception or raises one.
    unsafe {
        if types.absent.is_null() {
            return errors::fail(c"ropewalk.state was not imported");
        }
        let made = Object::share(types.absent).and_then(|hook| hook.call(&[class, name]));
        if let Ok(error) = made {
            ffi::PyErr_SetObject(ffi::Py_TYPE(error.as_ptr()).cast(), error.as_ptr());
        }
    }
    Raised
}

/// `tp_setattro`.
#[entry]
pub(crate) unsafe extern "C" fn setattro(own: Pointer, name: Pointer, value: Pointer) -> c_int {
    // SAFETY: a draft of ours, a live string, and a live object or null.
    match unsafe { set(own, name, value) } {
        Ok(()) => 0,
        Err(Raised) => -1,
    }
}

/// # Safety
///
/// As [`setattro`].
unsafe fn set(own: Pointer, name: Pointer, value: Pointer) -> Result<(), Raised> {
    // SAFETY: the caller's; the references into the cells end before anything of the program may run.
    unsafe {
        let draft = content::<Draft>(own);
        draft.head.open()?;
        let types = scope::types(own)?;
        let info = draft.info();
        let class = ffi::Py_TYPE(draft.head.base.get());
        let Some(index) = info.index(name) else {
            return Err(absent(types, class.cast(), name));
        };
        if value.is_null() {
            ffi::PyErr_Format(
                ffi::PyExc_TypeError,
                c"the field %R of %.200s cannot be deleted; assign None if its type allows that".as_ptr(),
                name,
                (*class).tp_name,
            );
            return Err(Raised);
        }
        if draft.cells()[index].has(CHILD) && draft.cells()[index].get() == value {
            // `draft.field += ...` assigns the draft that it has changed.
            return Ok(());
        }
        let below = draft.head.rule().field(draft.head.rule.get(), draft.info.get(), index);
        check_write(types, &draft.head, own, name, &below)?;
        let form = draft.head.rule().form().and_then(|form| form.field(draft.info.get(), index));
        let value = stored(types, &draft.head, own, name, form, value)?;
        savepoint::save(types, own, &draft.head)?;
        let (was_child, old) = {
            let cell = &mut draft.cells()[index];
            (cell.has(CHILD) && !cell.has(WRITTEN), cell.write(Some(value)))
        };
        if let Some(old) = old {
            if was_child {
                draft.replaced().push((index, old));
            } else {
                drop(old);
            }
        }
        Ok(())
    }
}

/// `repr`: the record as it is now.
#[entry]
pub(crate) unsafe extern "C" fn repr(own: Pointer) -> Pointer {
    // SAFETY: a draft of ours.
    unsafe { super::shown::shown(own) }
}

#[entry]
pub(crate) unsafe extern "C" fn traverse(own: Pointer, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a complete object of ours, and the collector's own function, while no other thread runs.
    unsafe {
        let draft = content::<Draft>(own);
        for field in draft.cells().iter().filter_map(Cell::field) {
            let answer = field.visit(visit, arg);
            if answer != 0 {
                return answer;
            }
        }
        for (_, field) in &*draft.replaced.get() {
            let answer = field.visit(visit, arg);
            if answer != 0 {
                return answer;
            }
        }
        let [scope, base, rule] = draft.head.fields();
        let answer = heap::visit_fields(&[scope, base, rule, &draft.info], visit, arg);
        if answer != 0 { answer } else { heap::visit_type(own, visit, arg) }
    }
}

#[entry]
pub(crate) unsafe extern "C" fn clear(own: Pointer) -> c_int {
    // SAFETY: only the collector has the object; what is dropped is out of it by then.
    unsafe {
        let draft = content::<Draft>(own);
        let gone = (std::mem::take(&mut *draft.cells.get()), std::mem::take(draft.replaced()));
        drop((draft.head.scope.take(), draft.head.base.take(), draft.info.take(), gone));
    }
    0
}
