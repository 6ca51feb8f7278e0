//! `Form`: which values a place is declared to have, and the forms of the places below.
//!
//! Forms are made of the annotations, once for each class, and know nothing of contracts. A value is compared with the
//! form of its place when it is stored: by its class, and so are the parts of a new value.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ptr;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::heap::{self, Field, content};
use ropewalk_capi::object::{Object, Raised};

use crate::kinds;
use crate::map;
use crate::node::Pointer;
use crate::record::Record;
use crate::types::{self, State};

/// The content of a `Form`.
pub(crate) struct Form {
    /// The values are of these classes, or of subclasses.
    classes: Vec<Field>,
    /// Asked about a value of none of the classes, if it is no null.
    fits: Field,
    /// How the annotation is written.
    text: Field,
    /// What is assigned is checked by the record that it becomes a field of.
    is_loose: bool,
    /// The class that the forms of the fields are for, or `None`.
    class: Field,
    /// The `Record` of that class, or null.
    info: Field,
    /// Keys of a map that have forms of their own.
    names: Vec<Field>,
    /// The forms of the fields or of the keys in `names`, set once by `link`; null where everything fits.
    fields: UnsafeCell<Vec<Field>>,
    /// The form of a collection's items, or null.
    items: Field,
    /// The form of a map's keys, or null.
    key: Field,
}

impl Form {
    /// Whether each value fits.
    fn is_open(&self) -> bool {
        self.classes.is_empty() && self.fits.get().is_null()
    }

    /// Whether values of a class fit, as far as can be seen without a look at them.
    #[inline]
    pub(crate) fn has(&self, class: *mut ffi::PyTypeObject) -> bool {
        self.is_open() || self.classes.iter().any(|known| known.get() == class.cast())
    }

    /// Whether a value fits.
    ///
    /// # Errors
    ///
    /// Those of the program's `__instancecheck__`.
    ///
    /// # Safety
    ///
    /// `value` is live, and the caller holds the form.
    #[inline]
    pub(crate) unsafe fn takes(&self, value: Pointer) -> Result<bool, Raised> {
        // SAFETY: the caller's.
        unsafe { if self.has(ffi::Py_TYPE(value)) { Ok(true) } else { self.takes_other(value) } }
    }

    #[cold]
    unsafe fn takes_other(&self, value: Pointer) -> Result<bool, Raised> {
        // SAFETY: as for `takes`; `make` lets in classes only.
        unsafe {
            let class = ffi::Py_TYPE(value);
            if self.classes.iter().any(|known| ffi::PyType_IsSubtype(class, known.get().cast()) != 0) {
                return Ok(true);
            }
            let Some(fits) = self.fits.share() else { return Ok(false) };
            match ffi::PyObject_IsTrue(fits.call(&[value])?.as_ptr()) {
                -1 => Err(Raised),
                answer => Ok(answer == 1),
            }
        }
    }

    pub(crate) fn is_loose(&self) -> bool {
        self.is_loose
    }

    /// How the annotation is written.
    pub(crate) fn text(&self) -> Option<Object> {
        self.text.share()
    }

    /// The form of a field of a record of this form.
    ///
    /// # Safety
    ///
    /// `info` is the `Record` of a class that is live, and has a field of this index.
    #[inline]
    pub(crate) unsafe fn field(&self, info: Pointer, index: usize) -> Option<&Form> {
        let index = if self.info.get() == info {
            index
        } else {
            // SAFETY: the caller's; the form keeps its class alive.
            unsafe { inherited(&self.class, &self.info, info, index)? }
        };
        self.below(index)
    }

    /// The form of the item under a key of a map of this form.
    ///
    /// # Errors
    ///
    /// Those of a comparison of keys.
    ///
    /// # Safety
    ///
    /// `key` is live, and the caller holds the form.
    #[inline]
    pub(crate) unsafe fn at_key(&self, key: Pointer) -> Result<Option<&Form>, Raised> {
        for (index, known) in self.names.iter().enumerate() {
            // SAFETY: the caller's; the form keeps its names.
            if known.get() == key || unsafe { map::same_key(known.get(), key)? } {
                return Ok(self.below(index));
            }
        }
        Ok(self.item())
    }

    /// The form of the items of a collection of this form.
    #[inline]
    pub(crate) fn item(&self) -> Option<&Form> {
        // SAFETY: `link` lets in objects of our type only; the graph keeps its forms alive.
        unsafe { Self::of(self.items.get()) }
    }

    /// The form of the keys of a map of this form.
    #[inline]
    pub(crate) fn key(&self) -> Option<&Form> {
        // SAFETY: as for `item`.
        unsafe { Self::of(self.key.get()) }
    }

    fn below(&self, index: usize) -> Option<&Form> {
        // SAFETY: the vector is set once, before the form is used; the rest as for `item`.
        unsafe { (&*self.fields.get()).get(index).and_then(|field| Self::of(field.get())) }
    }

    /// # Safety
    ///
    /// A `Form` that outlives the reference, or null.
    #[inline]
    pub(crate) unsafe fn of<'a>(form: Pointer) -> Option<&'a Self> {
        // SAFETY: the caller's.
        if form.is_null() { None } else { Some(unsafe { content::<Self>(form) }) }
    }
}

/// The index that a field of a subclass has in the declared class, if it inherits the field.
///
/// # Safety
///
/// `class` is a live class and `info` its `Record`, or null; `other` is the `Record` of a class that is live, and has a
/// field of this index.
#[cold]
pub(crate) unsafe fn inherited(class: &Field, info: &Field, other: Pointer, index: usize) -> Option<usize> {
    if info.get().is_null() {
        return None;
    }
    // SAFETY: the caller's.
    unsafe {
        let (own, other) = (content::<Record>(info.get()), content::<Record>(other));
        if ffi::PyType_IsSubtype(other.class(), class.get().cast()) == 0 {
            return None;
        }
        own.index(other.name(index))
    }
}

/// `Form(classes, fits, text, is_loose, record, names)`
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
    let [mut classes, mut fits, mut text, mut class, mut names]: [Pointer; 5] = [ptr::null_mut(); 5];
    let mut is_loose: c_int = 0;
    // SAFETY: the caller's; the parsed objects are borrowed from the tuple.
    unsafe {
        if !named.is_null() && ffi::PyDict_Size(named) != 0 {
            ffi::PyErr_SetString(ffi::PyExc_TypeError, c"Form takes no argument by name".as_ptr());
            return Err(Raised);
        }
        if ffi::PyArg_ParseTuple(
            arguments,
            c"O!OUpOO!".as_ptr(),
            &raw mut ffi::PyTuple_Type,
            &raw mut classes,
            &raw mut fits,
            &raw mut text,
            &raw mut is_loose,
            &raw mut class,
            &raw mut ffi::PyTuple_Type,
            &raw mut names,
        ) == 0
        {
            return Err(Raised);
        }
        let mut known = Vec::new();
        for index in 0..ffi::PyTuple_Size(classes) {
            let one = ffi::PyTuple_GetItem(classes, index);
            if ffi::PyType_Check(one) == 0 {
                ffi::PyErr_SetString(ffi::PyExc_TypeError, c"classes must be a tuple of classes".as_ptr());
                return Err(Raised);
            }
            known.push(Field::new(Object::share(one)?));
        }
        let (info, keys) = if class == ffi::Py_None() {
            let mut keys = Vec::new();
            for index in 0..ffi::PyTuple_Size(names) {
                keys.push(Field::new(Object::share(ffi::PyTuple_GetItem(names, index))?));
            }
            (Field::empty(), keys)
        } else {
            (Field::new(info_for(types::of(kind)?, class, names)?), Vec::new())
        };
        heap::make(
            kind,
            Form {
                classes: known,
                fits: if fits == ffi::Py_None() { Field::empty() } else { Field::new(Object::share(fits)?) },
                text: Field::new(Object::share(text)?),
                is_loose: is_loose != 0,
                class: Field::new(Object::share(class)?),
                info,
                names: keys,
                fields: UnsafeCell::new(Vec::new()),
                items: Field::empty(),
                key: Field::empty(),
            },
        )
    }
}

/// The `Record` of a class, whose fields have these names in this order.
///
/// # Safety
///
/// Live objects; `names` is a tuple.
pub(crate) unsafe fn info_for(types: &State, class: Pointer, names: Pointer) -> Result<Object, Raised> {
    // SAFETY: the caller's; a `Record` has our content.
    unsafe {
        let wrong = || {
            ffi::PyErr_SetString(
                ffi::PyExc_TypeError,
                c"record must be a class of records, and names those of its fields".as_ptr(),
            );
            Raised
        };
        if ffi::PyType_Check(class) == 0 {
            return Err(wrong());
        }
        let kinds::Kind::Record(info) = kinds::of_class(types, class.cast())? else { return Err(wrong()) };
        let record = content::<Record>(info.as_ptr());
        if record.count().cast_signed() != ffi::PyTuple_Size(names) {
            return Err(wrong());
        }
        for index in 0..record.count() {
            let name = ffi::PyTuple_GetItem(names, index.cast_signed());
            if ffi::PyUnicode_CheckExact(name) == 0 || record.index(name) != Some(index) {
                return Err(wrong());
            }
        }
        Ok(info)
    }
}

/// `form.link(fields, items, key)`: the forms below, each a form or `None`; called once, before the form is used.
#[entry]
pub(crate) unsafe extern "C" fn link(own: Pointer, arguments: *mut Pointer, count: isize) -> Pointer {
    // SAFETY: a form, and as many live arguments as `count` says.
    match unsafe { linked(own, arguments, count) } {
        Ok(()) => Object::none().into_ptr(),
        Err(Raised) => ptr::null_mut(),
    }
}

/// # Safety
///
/// As [`link`].
unsafe fn linked(own: Pointer, arguments: *mut Pointer, count: isize) -> Result<(), Raised> {
    // SAFETY: the caller's; types are checked before objects are read as such.
    unsafe {
        let kind = ffi::Py_TYPE(own);
        let wrong = || {
            ffi::PyErr_SetString(
                ffi::PyExc_TypeError,
                c"link takes a tuple of forms and None, and two forms or None, once".as_ptr(),
            );
            Raised
        };
        let form = content::<Form>(own);
        let fields = form.fields.get();
        let is_linked = !(*fields).is_empty() || !form.items.get().is_null() || !form.key.get().is_null();
        if count != 3 || is_linked || ffi::PyTuple_CheckExact(*arguments) == 0 {
            return Err(wrong());
        }
        let below = |object: Pointer| {
            if object == ffi::Py_None() {
                Ok(None)
            } else if ffi::Py_TYPE(object) == kind {
                Object::share(object).map(Some)
            } else {
                Err(wrong())
            }
        };
        let mut linked = Vec::new();
        for index in 0..ffi::PyTuple_Size(*arguments) {
            let one = below(ffi::PyTuple_GetItem(*arguments, index))?;
            linked.push(one.map_or_else(Field::empty, Field::new));
        }
        let (items, key) = (below(*arguments.add(1))?, below(*arguments.add(2))?);
        if let Some(items) = items {
            form.items.set(items);
        }
        if let Some(key) = key {
            form.key.set(key);
        }
        *fields = linked;
        Ok(())
    }
}

#[entry]
pub(crate) unsafe extern "C" fn traverse(object: Pointer, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a complete object of ours, and the collector's own function.
    unsafe {
        let form = content::<Form>(object);
        for field in form.classes.iter().chain(&form.names).chain(&*form.fields.get()) {
            let answer = field.visit(visit, arg);
            if answer != 0 {
                return answer;
            }
        }
        let own = [&form.fits, &form.text, &form.class, &form.info, &form.items, &form.key];
        let answer = heap::visit_fields(&own, visit, arg);
        if answer != 0 { answer } else { heap::visit_type(object, visit, arg) }
    }
}

#[entry]
pub(crate) unsafe extern "C" fn clear(object: Pointer) -> c_int {
    // SAFETY: only the collector has the object; its fields are empty before their old content is dropped.
    unsafe {
        let form = content::<Form>(object);
        let fields = std::mem::take(&mut *form.fields.get());
        drop((fields, form.items.take(), form.key.take(), form.info.take(), form.fits.take()));
    }
    0
}
