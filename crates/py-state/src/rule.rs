//! `Rule`: what a transaction may do at one place of the state, and at the places below.
//!
//! A contract compiles to a graph of rules, one for each place of the state's shape. A draft has the rule of its place,
//! so an access costs a test of two flags and no look at a name.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::heap::{self, Field, content};
use ropewalk_capi::object::{Object, Raised};
use ropewalk_state::claims::Slots;

use crate::form::{self, Form};
use crate::map;
use crate::node::Pointer;
use crate::record::Record;
use crate::types;

/// What is special about a place; the numbers of `ropewalk.state._zones.Zone`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Zone {
    Plain,
    Const,
    AppendOnly,
    Counter,
    Transient,
    Array,
}

/// The content of a `Rule`.
pub(crate) struct Rule {
    /// All of the place may be read.
    pub(crate) reads: bool,
    /// All of the place may be written.
    pub(crate) writes: bool,
    pub(crate) zone: Zone,
    /// The class that the fields' rules are for, or `None`. It keeps the class alive, whose address `info` compares.
    class: Field,
    /// The `Record` of that class, or null.
    info: Field,
    /// Keys of a map that have rules of their own: those of `fields`, in the same order.
    keys: Vec<Field>,
    /// The rules of the fields or keys, set once by `link`; null for what is not declared.
    fields: std::cell::UnsafeCell<Vec<Field>>,
    /// The rule of a collection's items, or null.
    items: Field,
    /// The shape of the place, if an array is declared somewhere below it; else null.
    pub(crate) arrays: Field,
    /// The form of the place, or null.
    form: Field,
    /// For the rule of a whole state: the numbered parts that a transaction touches, and those that it may change.
    /// Without them it is all parts.
    slots: OnceLock<(Slots, Slots)>,
    /// Whether the place or one below is in a zone whose values are not replaced. Found when it is first asked for,
    /// when all rules are linked.
    is_guarded: OnceLock<bool>,
}

/// The rule of a place below.
pub(crate) enum Below<'a> {
    Rule(&'a Rule, Pointer),
    Undeclared,
}

impl Zone {
    fn of(number: c_int) -> Option<Self> {
        let all = [Self::Plain, Self::Const, Self::AppendOnly, Self::Counter, Self::Transient, Self::Array];
        usize::try_from(number).ok().and_then(|number| all.get(number).copied())
    }
}

impl Rule {
    /// The parts that a transaction with this rule touches.
    pub(crate) fn touches(&self) -> Slots {
        self.slots.get().map_or(Slots::all(), |(touches, _)| touches.clone())
    }

    /// The parts that a transaction with this rule may change.
    pub(crate) fn changes(&self) -> &Slots {
        const ALL: &Slots = &Slots::all();
        self.slots.get().map_or(ALL, |(_, changes)| changes)
    }

    /// Whether the place or one below is in a zone whose values are not replaced.
    #[inline]
    pub(crate) fn is_guarded(&self) -> bool {
        *self.is_guarded.get_or_init(|| self.find_guarded())
    }

    #[cold]
    fn find_guarded(&self) -> bool {
        let (mut seen, mut waiting) = (Vec::new(), vec![ptr::from_ref(self)]);
        while let Some(next) = waiting.pop() {
            if seen.contains(&next) {
                continue;
            }
            seen.push(next);
            // SAFETY: the graph keeps its rules alive, and they are linked once, before any draft has one.
            unsafe {
                if matches!((*next).zone, Zone::Const | Zone::AppendOnly | Zone::Counter) {
                    return true;
                }
                let below = (*(*next).fields.get()).iter().chain(std::iter::once(&(*next).items));
                let below = below.filter(|field| !field.get().is_null());
                waiting.extend(below.map(|field| ptr::from_ref(content::<Rule>(field.get()))));
            }
        }
        false
    }

    /// The rule of a field of a record that lies at this place.
    ///
    /// A record of a subclass has the rules of the declared class for the fields that it inherits. For its own fields
    /// holds what holds for all of the place.
    ///
    /// # Safety
    ///
    /// `info` is the `Record` of a class that is live, and has a field of this index.
    #[inline]
    pub(crate) unsafe fn field<'a>(&'a self, own: Pointer, info: Pointer, index: usize) -> Below<'a> {
        let known = if self.info.get() == info {
            Some(index)
        } else {
            // SAFETY: the caller's; the rule keeps its own class alive, and `make` lets in a `Record` only.
            unsafe { form::inherited(&self.class, &self.info, info, index) }
        };
        if let Some(known) = known {
            // SAFETY: the vector is set once, before any draft has the rule.
            let found = unsafe { &*self.fields.get() }.get(known);
            if let Some(field) = found {
                return Self::at(field.get());
            }
        }
        self.blanket(own)
    }

    /// The rule of the item under a key of a map at this place.
    ///
    /// # Errors
    ///
    /// Those of a comparison of keys.
    ///
    /// # Safety
    ///
    /// Live objects.
    #[inline]
    pub(crate) unsafe fn key<'a>(&'a self, own: Pointer, key: Pointer) -> Result<Below<'a>, Raised> {
        for (index, known) in self.keys.iter().enumerate() {
            // SAFETY: the caller's; the rule, which the draft has, keeps its keys.
            if known.get() == key || unsafe { map::same_key(known.get(), key)? } {
                // SAFETY: the vector is set once, before any draft has the rule.
                let found = unsafe { &*self.fields.get() }.get(index);
                return Ok(found.map_or(Below::Undeclared, |field| Self::at(field.get())));
            }
        }
        Ok(self.item(own))
    }

    /// The rule of the items of a collection at this place.
    #[inline]
    pub(crate) fn item<'a>(&'a self, own: Pointer) -> Below<'a> {
        if self.items.get().is_null() { self.blanket(own) } else { Self::at(self.items.get()) }
    }

    /// The form of the place: what the values below are declared to be.
    #[inline]
    pub(crate) fn form(&self) -> Option<&Form> {
        // SAFETY: `set_form` lets in objects of that type only; the rule keeps it.
        unsafe { Form::of(self.form.get()) }
    }

    /// The `Record` of a value's class, if this is the class that the place is declared to have.
    ///
    /// # Safety
    ///
    /// `value` is live.
    #[inline]
    pub(crate) unsafe fn info_of(&self, value: Pointer) -> Option<Object> {
        let info = self.info.share()?;
        // SAFETY: the caller's; `make` lets in a `Record` only.
        let is_of = unsafe { content::<Record>(info.as_ptr()).is_of(ffi::Py_TYPE(value)) };
        is_of.then_some(info)
    }

    /// The value is of another shape than the annotation says: what holds for all of the place holds below.
    ///
    /// But for a place to which a task appends without reading: nothing of what is there is declared.
    #[inline]
    fn blanket<'a>(&'a self, own: Pointer) -> Below<'a> {
        if self.reads || self.writes && self.zone != Zone::AppendOnly {
            Below::Rule(self, own)
        } else {
            Below::Undeclared
        }
    }

    #[inline]
    fn at<'a>(rule: Pointer) -> Below<'a> {
        if rule.is_null() {
            return Below::Undeclared;
        }
        // SAFETY: `link` lets in objects of our type only; the graph keeps its rules alive.
        Below::Rule(unsafe { content::<Rule>(rule) }, rule)
    }
}

/// `Rule(reads, writes, zone, record, names)`; without a record `names` are keys of a map that have rules of their own.
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
    let (mut reads, mut writes, mut zone): (c_int, c_int, c_int) = (0, 0, 0);
    let (mut class, mut names): (Pointer, Pointer) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the caller's; the parsed objects are borrowed from the tuple.
    unsafe {
        let parameters = [
            c"reads".as_ptr(),
            c"writes".as_ptr(),
            c"zone".as_ptr(),
            c"record".as_ptr(),
            c"names".as_ptr(),
            ptr::null(),
        ];
        let parsed = ffi::PyArg_ParseTupleAndKeywords(
            arguments,
            named,
            c"ppiOO!".as_ptr(),
            parameters.as_ptr().cast_mut().cast(),
            &raw mut reads,
            &raw mut writes,
            &raw mut zone,
            &raw mut class,
            &raw mut ffi::PyTuple_Type,
            &raw mut names,
        );
        if parsed == 0 {
            return Err(Raised);
        }
        let Some(zone) = Zone::of(zone) else {
            ffi::PyErr_SetString(ffi::PyExc_ValueError, c"there is no such zone".as_ptr());
            return Err(Raised);
        };
        let info = if class == ffi::Py_None() {
            Field::empty()
        } else {
            Field::new(form::info_for(types::of(kind)?, class, names)?)
        };
        let mut keys = Vec::new();
        if class == ffi::Py_None() {
            for index in 0..ffi::PyTuple_Size(names) {
                keys.push(Field::new(Object::share(ffi::PyTuple_GetItem(names, index))?));
            }
        }
        heap::make(
            kind,
            Rule {
                reads: reads != 0,
                writes: writes != 0,
                zone,
                class: Field::new(Object::share(class)?),
                info,
                keys,
                fields: std::cell::UnsafeCell::new(Vec::new()),
                items: Field::empty(),
                arrays: Field::empty(),
                form: Field::empty(),
                slots: OnceLock::new(),
                is_guarded: OnceLock::new(),
            },
        )
    }
}

/// `rule.number(touches, changes)`: the numbered parts that a transaction with this rule touches, and those that it may
/// change, an `int` with a bit for each; called once, before the rule is used.
#[entry]
pub(crate) unsafe extern "C" fn number(own: Pointer, arguments: *mut Pointer, count: isize) -> Pointer {
    // SAFETY: a rule, and as many live arguments as `count` says.
    unsafe {
        let done = (|| {
            if count != 2 {
                ffi::PyErr_SetString(ffi::PyExc_TypeError, c"number takes two numbers".as_ptr());
                return Err(Raised);
            }
            let slots = (slots_of(*arguments)?, slots_of(*arguments.add(1))?);
            // A second call changes nothing: a transaction may have the first ones.
            drop(content::<Rule>(own).slots.set(slots));
            Ok(Object::none())
        })();
        done.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

/// # Safety
///
/// A live object.
unsafe fn slots_of(given: Pointer) -> Result<Slots, Raised> {
    // SAFETY: the caller's; a fresh object of bytes.
    unsafe {
        let bits = Object::share(given)?.attribute(c"bit_length")?.call(&[])?;
        let size = ffi::PyLong_AsSsize_t(bits.as_ptr());
        if size < 0 {
            return Err(Raised);
        }
        let words = size.unsigned_abs().div_ceil(64);
        let count = Object::own(ffi::PyLong_FromSize_t(words * 8))?;
        let order = ropewalk_capi::object::text("little")?;
        let bytes = Object::share(given)?.attribute(c"to_bytes")?.call(&[count.as_ptr(), order.as_ptr()])?;
        let bytes = bytes.as_bytes().unwrap_or_default();
        let word = |chunk: &[u8]| chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        Ok(Slots::of(bytes.chunks(8).map(word).collect()))
    }
}

/// `rule.form(form)`: what the values of the place and of those below are declared to be; called once, before the rule
/// is used.
#[entry]
pub(crate) unsafe extern "C" fn set_form(own: Pointer, form: Pointer) -> Pointer {
    // SAFETY: a rule, and a live argument, whose type is checked.
    unsafe {
        let done = (|| {
            let rule = content::<Rule>(own);
            let kind = types::of(ffi::Py_TYPE(own))?.form;
            if ffi::Py_TYPE(form) != kind.cast() || !rule.form.get().is_null() {
                ffi::PyErr_SetString(ffi::PyExc_TypeError, c"form takes a Form, once".as_ptr());
                return Err(Raised);
            }
            rule.form.set(Object::share(form)?);
            Ok(Object::none())
        })();
        done.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

/// `rule.link(fields, items, arrays)`: the rules below, each a rule or `None`, and the shape of the place if arrays are
/// declared below, or `None`; called once, before the rule is used.
#[entry]
pub(crate) unsafe extern "C" fn link(own: Pointer, arguments: *mut Pointer, count: isize) -> Pointer {
    // SAFETY: a rule, and as many live arguments as `count` says.
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
                c"link takes a tuple of rules and None, or None, a rule or None, and a shape or None, once"
                    .as_ptr(),
            );
            Err(Raised)
        };
        let rule = content::<Rule>(own);
        let fields = rule.fields.get();
        if count != 3 || !(*fields).is_empty() || !rule.items.get().is_null() {
            return wrong();
        }
        let (given, items) = (*arguments, *arguments.add(1));
        let below = |object: Pointer| {
            if object == ffi::Py_None() {
                Ok(Field::empty())
            } else if ffi::Py_TYPE(object) == kind {
                Object::share(object).map(Field::new)
            } else {
                Err(Raised)
            }
        };
        let mut linked = Vec::new();
        if given != ffi::Py_None() {
            if ffi::PyTuple_CheckExact(given) == 0 {
                return wrong();
            }
            for index in 0..ffi::PyTuple_Size(given) {
                let Ok(field) = below(ffi::PyTuple_GetItem(given, index)) else { return wrong() };
                linked.push(field);
            }
        }
        let Ok(items) = below(items) else { return wrong() };
        if let Some(items) = items.take() {
            rule.items.set(items);
        }
        if *arguments.add(2) != ffi::Py_None() {
            rule.arrays.set(Object::share(*arguments.add(2))?);
        }
        *fields = linked;
        Ok(())
    }
}

#[entry]
pub(crate) unsafe extern "C" fn traverse(object: Pointer, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a complete object of ours, and the collector's own function.
    unsafe {
        let rule = content::<Rule>(object);
        for field in rule.keys.iter().chain(&*rule.fields.get()) {
            let answer = field.visit(visit, arg);
            if answer != 0 {
                return answer;
            }
        }
        let own = [&rule.class, &rule.info, &rule.items, &rule.arrays, &rule.form];
        let answer = heap::visit_fields(&own, visit, arg);
        if answer != 0 { answer } else { heap::visit_type(object, visit, arg) }
    }
}

#[entry]
pub(crate) unsafe extern "C" fn clear(object: Pointer) -> c_int {
    // SAFETY: only the collector has the object; its fields are empty before their old content is dropped.
    unsafe {
        let rule = content::<Rule>(object);
        let fields = std::mem::take(&mut *rule.fields.get());
        drop((fields, rule.items.take(), rule.info.take(), rule.arrays.take(), rule.form.take()));
    }
    0
}
