//! `Record`: what the interpreter's side of a class of records says: its fields, and how a changed copy is made.
//!
//! A record is a frozen object with named fields. `ropewalk.state._kinds` makes one `Record` for each class, and keeps
//! it on the class, so that it goes with the class.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::heap::{self, Field, content};
use ropewalk_capi::object::{Object, Raised, text};

use crate::node::{Pointer, fetch, is_hidden};

/// Where a field of a record lies.
enum Place {
    /// In a slot of the object, which many bytes behind its head.
    Slot(usize),
    /// Where `object.__getattribute__` finds it.
    Attribute,
}

/// How a changed copy is made.
enum Copy {
    /// As `object.__new__` and `object.__setattr__` do.
    Plain,
    /// By a function of the program's side: `rebuild(old, changes)`.
    Call,
}

/// The content of a `Record`.
pub(crate) struct Record {
    /// The address of the class, to compare: the class has this object, and not the reverse.
    class: usize,
    names: Vec<Field>,
    places: Vec<Place>,
    copy: Copy,
    /// A copy whose values the collector does not know is hidden from it: nothing but its class is left to be found
    /// through it, which its module keeps.
    hides: bool,
    rebuild: Field,
    /// Called with a new copy: it raises if its fields do not fit together. Null if there is nothing to check.
    check: Field,
    /// `beside(record)`: a `dict` of the attributes that the check has set and that are no fields. Null if the objects
    /// have no place for such.
    beside: Field,
    /// What stands before the value of each field in JSON. Any thread sets it once; all would set the same.
    heads: OnceLock<Heads>,
}

/// For each field, its name as JSON, with what separates it from the field before.
pub(crate) type Heads = Box<[Head]>;

/// What stands before the value of a field.
pub(crate) struct Head {
    /// The text, if it is short enough, with anything behind it: a copy of this length needs no call and no loop.
    short: Short,
    text: Box<[u8]>,
}

/// A short text with what is behind it.
pub(crate) type Short = [u8; 32];

impl Head {
    pub(crate) fn new(text: &[u8]) -> Self {
        let mut short = [b' '; size_of::<Short>()];
        for (to, from) in short.iter_mut().zip(text) {
            *to = *from;
        }
        Self { short, text: text.into() }
    }

    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// The text with what is behind it, and its length, if it is short.
    #[inline]
    pub(crate) fn short(&self) -> Option<(&Short, usize)> {
        let len = self.text.len();
        (len <= size_of::<Short>()).then_some((&self.short, len))
    }
}

/// `T_OBJECT_EX`: a slot of `__slots__`.
const OBJECT_EX: c_int = 16;

impl Record {
    /// Whether it describes this class.
    #[inline]
    pub(crate) fn is_of(&self, class: *mut ffi::PyTypeObject) -> bool {
        self.class == class as usize
    }

    /// The class, which this does not keep alive.
    pub(crate) fn class(&self) -> *mut ffi::PyTypeObject {
        self.class as *mut ffi::PyTypeObject
    }

    pub(crate) fn count(&self) -> usize {
        self.names.len()
    }

    /// A field's name, borrowed.
    pub(crate) fn name(&self, index: usize) -> Pointer {
        self.names[index].get()
    }

    /// Where the encoder of JSON keeps what stands before the value of each field.
    pub(crate) fn heads(&self) -> &OnceLock<Heads> {
        &self.heads
    }

    pub(crate) fn check(&self) -> Option<Object> {
        self.check.share()
    }

    /// Whether what its class has made of a changed copy is noted: a class with checks, or one that validates.
    pub(crate) fn is_watched(&self) -> bool {
        !self.check.get().is_null() || !self.beside.get().is_null()
    }

    /// Whether the class makes copies by itself, and validates their fields.
    pub(crate) fn is_rebuilt(&self) -> bool {
        matches!(self.copy, Copy::Call)
    }

    /// The attributes of an object that are no fields, with their names.
    ///
    /// # Safety
    ///
    /// `object` is live, and of the record's class. Python code may run.
    pub(crate) unsafe fn attributes(&self, object: Pointer) -> Result<Vec<(Object, Object)>, Raised> {
        let mut found = Vec::new();
        let Some(beside) = self.beside.share() else { return Ok(found) };
        // SAFETY: the caller's; nobody else has the `dict`, and what is given out is held.
        unsafe {
            let items = beside.call(&[object])?;
            if ffi::PyDict_Check(items.as_ptr()) == 0 {
                return Ok(found);
            }
            let (mut at, mut name, mut value) = (0, ptr::null_mut(), ptr::null_mut());
            while ffi::PyDict_Next(items.as_ptr(), &raw mut at, &raw mut name, &raw mut value) != 0 {
                found.push((Object::share(name)?, Object::share(value)?));
            }
        }
        Ok(found)
    }

    /// Which field has this name.
    ///
    /// # Safety
    ///
    /// `name` is a live `str`.
    #[inline]
    pub(crate) unsafe fn index(&self, name: Pointer) -> Option<usize> {
        if let Some(found) = self.names.iter().position(|known| known.get() == name) {
            return Some(found);
        }
        // Names in code are interned, so this is another name, or one that was made at run time.
        // SAFETY: live strings; comparing them runs no code of the program.
        self.names.iter().position(|known| unsafe { ffi::PyUnicode_Compare(known.get(), name) } == 0)
    }

    /// The value of a field.
    ///
    /// # Safety
    ///
    /// `object` is of the record's class, and frozen.
    #[inline]
    pub(crate) unsafe fn read(&self, object: Pointer, index: usize) -> Result<Object, Raised> {
        // SAFETY: the class has a slot there, which no code changes; null is a slot without a value.
        unsafe {
            if let Place::Slot(offset) = self.places[index] {
                let value = *object.cast::<u8>().add(offset).cast::<Pointer>();
                if !value.is_null() {
                    return Object::share(value);
                }
            }
            match self.copy {
                Copy::Plain => Object::own(ffi::PyObject_GenericGetAttr(object, self.names[index].get())),
                Copy::Call => Object::own(ffi::PyObject_GetAttr(object, self.names[index].get())),
            }
        }
    }

    /// The value in a slot, borrowed from the object, if the field has one.
    ///
    /// # Safety
    ///
    /// `object` is of the record's class.
    #[cfg(not(Py_GIL_DISABLED))]
    #[inline]
    pub(crate) unsafe fn slot(&self, object: Pointer, index: usize) -> Option<Pointer> {
        let Place::Slot(offset) = self.places[index] else { return None };
        // SAFETY: the class has a slot there; null is a slot without a value.
        let value = unsafe { *object.cast::<u8>().add(offset).cast::<Pointer>() };
        (!value.is_null()).then_some(value)
    }

    /// Fetches the values in slots into the processor's caches.
    ///
    /// # Safety
    ///
    /// `object` is of the record's class.
    #[inline]
    pub(crate) unsafe fn fetch(&self, object: Pointer) {
        for place in &self.places {
            if let Place::Slot(offset) = place {
                // SAFETY: the class has a slot there.
                fetch(unsafe { *object.cast::<u8>().add(*offset).cast::<Pointer>() });
            }
        }
    }

    /// A copy of a record with other values in the fields where `changes` has one.
    ///
    /// # Safety
    ///
    /// `old` is of the record's class.
    pub(crate) unsafe fn copy(&self, old: Pointer, changes: &[Option<Object>]) -> Result<Object, Raised> {
        // SAFETY: the caller's.
        unsafe {
            match self.copy {
                Copy::Plain => self.copy_plain(old, changes),
                Copy::Call => {
                    let named = Object::own(ffi::PyDict_New())?;
                    for (name, value) in self.names.iter().zip(changes) {
                        if let Some(value) = value
                            && ffi::PyDict_SetItem(named.as_ptr(), name.get(), value.as_ptr()) < 0
                        {
                            return Err(Raised);
                        }
                    }
                    self.rebuild.share().ok_or(Raised)?.call(&[old, named.as_ptr()])
                }
            }
        }
    }

    /// # Safety
    ///
    /// As [`copy`](Self::copy), of a class whose objects `object.__new__` makes.
    unsafe fn copy_plain(&self, old: Pointer, changes: &[Option<Object>]) -> Result<Object, Raised> {
        // SAFETY: the caller's.
        unsafe {
            self.make_of(ffi::Py_TYPE(old), |index| match &changes[index] {
                None => self.read(old, index),
                Some(value) => Ok(value.clone()),
            })
        }
    }

    /// Whether its objects are nothing but their fields, and `object.__new__` makes them.
    pub(crate) fn is_its_fields(&self) -> bool {
        matches!(self.copy, Copy::Plain) && self.beside.get().is_null()
    }

    /// A record with these fields, unchecked.
    ///
    /// # Safety
    ///
    /// The class [is its fields](Self::is_its_fields), and the caller holds it.
    pub(crate) unsafe fn make(
        &self,
        value: impl FnMut(usize) -> Result<Object, Raised>,
    ) -> Result<Object, Raised> {
        // SAFETY: the caller's.
        unsafe { self.make_of(self.class(), value) }
    }

    /// # Safety
    ///
    /// A live class whose objects `object.__new__` makes, with the places of this record.
    unsafe fn make_of(
        &self,
        class: *mut ffi::PyTypeObject,
        mut value: impl FnMut(usize) -> Result<Object, Raised>,
    ) -> Result<Object, Raised> {
        // SAFETY: a type that `object.__new__` serves has an allocator; a fresh object has empty slots, and no other
        // code has it yet.
        unsafe {
            let Some(alloc) = (*class).tp_alloc else { return Err(Raised) };
            let new = Object::own(alloc(class, 0))?;
            let mut hides = self.hides;
            for (index, place) in self.places.iter().enumerate() {
                let value = value(index)?;
                hides = hides && is_hidden(value.as_ptr());
                match place {
                    Place::Slot(offset) => {
                        let slot = new.as_ptr().cast::<u8>().add(*offset).cast::<Pointer>();
                        ptr::write(slot, value.into_ptr());
                    }
                    Place::Attribute => {
                        let name = self.names[index].get();
                        if ffi::PyObject_GenericSetAttr(new.as_ptr(), name, value.as_ptr()) < 0 {
                            return Err(Raised);
                        }
                    }
                }
            }
            if hides {
                ffi::PyObject_GC_UnTrack(new.as_ptr().cast());
            }
            Ok(new)
        }
    }
}

/// Whether the objects of a class have slots for its fields and nothing else, and the class is one of a module's: the
/// module keeps it. A class that a function has made may go, and is in a cycle if an attribute of it leads to a record;
/// the collector must see the reference from the record to the class then.
///
/// # Safety
///
/// A live class. Python code may run.
unsafe fn can_hide(class: Pointer, places: &[Place]) -> Result<bool, Raised> {
    // The collector of a free-threaded build stops all threads, and finds objects by itself.
    if cfg!(Py_GIL_DISABLED) || !places.iter().all(|place| matches!(place, Place::Slot(_))) {
        return Ok(false);
    }
    let kind = class.cast::<ffi::PyTypeObject>();
    let size = size_of::<ffi::PyObject>() + places.len() * size_of::<Pointer>();
    // SAFETY: the caller's; what is found is held while it is looked at.
    unsafe {
        if (*kind).tp_basicsize.unsigned_abs() != size
            || (*kind).tp_dictoffset != 0
            || ffi::PyType_IS_GC(kind) == 0
        {
            return Ok(false);
        }
        let class = Object::share(class)?;
        let module = class.attribute(c"__module__")?;
        let name = Object::own(ffi::PyType_GetQualName(kind))?;
        let path = Object::own(ffi::PyUnicode_Split(name.as_ptr(), text(".")?.as_ptr(), -1))?;
        let Ok(mut found) = Object::own(ffi::PyImport_GetModule(module.as_ptr())) else {
            return if ffi::PyErr_Occurred().is_null() { Ok(false) } else { Err(Raised) };
        };
        for index in 0..ffi::PyList_Size(path.as_ptr()) {
            let Ok(next) =
                Object::own(ffi::PyObject_GetAttr(found.as_ptr(), ffi::PyList_GetItem(path.as_ptr(), index)))
            else {
                ffi::PyErr_Clear();
                return Ok(false);
            };
            found = next;
        }
        Ok(found.as_ptr() == class.as_ptr())
    }
}

/// The offset of a field's slot, if the class has one that can be read and written directly.
///
/// # Safety
///
/// A live class and a live `str`.
unsafe fn slot_of(class: *mut ffi::PyTypeObject, name: Pointer) -> Option<usize> {
    // SAFETY: the caller's; the type of the object that is found is checked before it is read as such.
    unsafe {
        let Ok(found) = Object::own(ffi::PyObject_GetAttr(class.cast(), name)) else {
            ffi::PyErr_Clear();
            return None;
        };
        if ffi::Py_TYPE(found.as_ptr()) != &raw mut ffi::PyMemberDescr_Type {
            return None;
        }
        let member = (*found.as_ptr().cast::<ffi::PyMemberDescrObject>()).d_member;
        let offset = usize::try_from((*member).offset).ok()?;
        ((*member).type_code == OBJECT_EX && offset > 0).then_some(offset)
    }
}

/// `Record(class, names, rebuild, check, beside)`. If `object.__new__` makes the objects, `rebuild` is `None`.
#[entry]
pub(crate) unsafe extern "C" fn new(
    kind: *mut ffi::PyTypeObject,
    arguments: Pointer,
    named: Pointer,
) -> Pointer {
    // SAFETY: the interpreter's arguments: our type, a tuple, a dictionary or null.
    match unsafe { make(kind, arguments, named) } {
        Ok(made) => made.into_ptr(),
        Err(Raised) => ptr::null_mut(),
    }
}

/// # Safety
///
/// As [`new`].
unsafe fn make(kind: *mut ffi::PyTypeObject, arguments: Pointer, named: Pointer) -> Result<Object, Raised> {
    let [mut class, mut names, mut rebuild, mut check, mut beside]: [Pointer; 5] = [ptr::null_mut(); 5];
    // SAFETY: the caller's; the parsed objects are borrowed from the tuple, and a tuple of names is checked item by
    // item.
    unsafe {
        if !named.is_null() && ffi::PyDict_Size(named) != 0
            || ffi::PyArg_ParseTuple(
                arguments,
                c"O!O!OOO".as_ptr(),
                &raw mut ffi::PyType_Type,
                &raw mut class,
                &raw mut ffi::PyTuple_Type,
                &raw mut names,
                &raw mut rebuild,
                &raw mut check,
                &raw mut beside,
            ) == 0
        {
            if ffi::PyErr_Occurred().is_null() {
                ffi::PyErr_SetString(ffi::PyExc_TypeError, c"Record takes no argument by name".as_ptr());
            }
            return Err(Raised);
        }
        let optional = |object: Pointer| {
            if object == ffi::Py_None() { Ok(Field::empty()) } else { Object::share(object).map(Field::new) }
        };
        let plain = rebuild == ffi::Py_None();
        let (mut fields, mut places) = (Vec::new(), Vec::new());
        for index in 0..ffi::PyTuple_Size(names) {
            let mut name = Object::share(ffi::PyTuple_GetItem(names, index))?.into_ptr();
            if ffi::PyUnicode_CheckExact(name) == 0 {
                ffi::Py_DECREF(name);
                ffi::PyErr_SetString(ffi::PyExc_TypeError, c"a field's name must be a str".as_ptr());
                return Err(Raised);
            }
            ffi::PyUnicode_InternInPlace(&raw mut name);
            let name = Object::own(name)?;
            let place = if plain { slot_of(class.cast(), name.as_ptr()) } else { None };
            places.push(place.map_or(Place::Attribute, Place::Slot));
            fields.push(Field::new(name));
        }
        heap::make(
            kind,
            Record {
                class: class as usize,
                names: fields,
                hides: plain && can_hide(class, &places)?,
                places,
                copy: if plain { Copy::Plain } else { Copy::Call },
                rebuild: optional(rebuild)?,
                check: optional(check)?,
                beside: optional(beside)?,
                heads: OnceLock::new(),
            },
        )
    }
}

/// `record.__reduce__()`: a class that is pickled with its attributes leaves this one behind as `None`; the class gets
/// a new one where it is used.
#[entry]
pub(crate) unsafe extern "C" fn reduce(_: Pointer, _: Pointer) -> Pointer {
    // SAFETY: the type of a live object, and an empty tuple.
    unsafe { ffi::Py_BuildValue(c"O()".as_ptr(), ffi::Py_TYPE(ffi::Py_None())) }
}

#[entry]
pub(crate) unsafe extern "C" fn traverse(object: Pointer, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a complete object of ours, and the collector's own function.
    unsafe {
        let record = content::<Record>(object);
        let answer = heap::visit_fields(&[&record.rebuild, &record.check, &record.beside], visit, arg);
        if answer != 0 { answer } else { heap::visit_type(object, visit, arg) }
    }
}

#[entry]
pub(crate) unsafe extern "C" fn clear(object: Pointer) -> c_int {
    // SAFETY: only the collector has the object.
    let record = unsafe { content::<Record>(object) };
    drop((record.rebuild.take(), record.check.take(), record.beside.take()));
    0
}
