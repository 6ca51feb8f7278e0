//! The draft of a map: a mutable mapping.
//!
//! `collections.abc.MutableMapping` gives it what is not here; see `ropewalk.state`.

use std::cell::{Cell as Plain, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::ptr;

use pyo3_ffi as ffi;
use ropewalk_base::Code;
use ropewalk_capi::entry;
use ropewalk_capi::errors;
use ropewalk_capi::heap::{self, Field, content};
use ropewalk_capi::object::{Object, Raised};

use super::cell::{CHILD, Cell, DELETED, READ, SEEN, WRITTEN};
use super::scope::{self, Head};
use super::{check_write, enter, freeze, savepoint, stored};
use crate::form::Form;
use crate::node::Pointer;
use crate::rule::{Below, Zone};
use crate::types::State;
use crate::{map, vector};

/// So many entries are searched one by one; more have a table.
const FEW: usize = 8;
/// So many keys of a map a transaction touches at most: their places are numbers of 32 bits.
const MOST: usize = 1 << 31;

/// An entry that was touched.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) key: Field,
    hash: isize,
    /// What the base map has under the key, or null. The base keeps it alive.
    pub(super) base: Pointer,
    pub(super) cell: Cell,
}

impl Entry {
    /// Whether the key has a value now.
    ///
    /// # Safety
    ///
    /// The cell's child is live.
    unsafe fn is_there(&self) -> bool {
        if self.cell.has(WRITTEN) {
            return true;
        }
        if self.base.is_null() || self.cell.has(DELETED) {
            // SAFETY: the caller's; a child without a value below it is a counter's draft.
            return self.cell.has(CHILD) && unsafe { super::counter::is_counted(self.cell.get()) };
        }
        true
    }
}

/// The places of a table where a key with a hash may be, in the order in which they are searched: as those of a `dict`.
struct Probe {
    at: usize,
    rest: usize,
    mask: usize,
}

impl Probe {
    /// `size` is a power of two.
    fn new(hash: isize, size: usize) -> Self {
        let (rest, mask) = (hash.cast_unsigned(), size - 1);
        Self { at: rest & mask, rest, mask }
    }

    fn go_on(&mut self) {
        self.rest >>= 5;
        self.at = self.at.wrapping_mul(5).wrapping_add(self.rest).wrapping_add(1) & self.mask;
    }
}

/// The entries of a map that were touched, in that order.
#[derive(Clone, Default)]
pub(crate) struct Entries {
    pub(super) list: Vec<Entry>,
    /// Once there are more than a few: by their hashes, the places in the list, counted from 1. Zero is a free place,
    /// of which there are at least as many as others.
    table: Vec<u32>,
}

impl Entries {
    /// Every reference.
    pub(super) fn fields(&self) -> impl Iterator<Item = &Field> {
        self.list.iter().flat_map(|entry| [Some(&entry.key), entry.cell.field()]).flatten()
    }

    /// Adds an entry, and its place to the table.
    fn push(&mut self, entry: Entry) {
        let hash = entry.hash;
        self.list.push(entry);
        let count = self.list.len();
        if count <= FEW {
            return;
        }
        if 2 * count > self.table.len() {
            self.table.clear();
            self.table.resize((4 * count).next_power_of_two(), 0);
            for index in 0..count {
                self.enter(index, self.list[index].hash);
            }
        } else {
            self.enter(count - 1, hash);
        }
    }

    fn enter(&mut self, index: usize, hash: isize) {
        let mut probe = Probe::new(hash, self.table.len());
        while self.table[probe.at] != 0 {
            probe.go_on();
        }
        self.table[probe.at] = index as u32 + 1;
    }
}

/// The content of a `MapDraft`.
pub(crate) struct Draft {
    pub(super) head: Head,
    /// Only the transaction's thread touches them, and no reference to one is held while the interpreter may run code
    /// of the program.
    entries: UnsafeCell<Entries>,
    /// Drafts of entries that were assigned to or deleted since: what was read through them still counts.
    replaced: UnsafeCell<Vec<(Field, Field)>>,
    /// Which keys the base has was read.
    pub(super) is_whole: Plain<bool>,
}

impl Draft {
    /// # Safety
    ///
    /// No reference into the entries lives, and the interpreter runs no code while this one does.
    #[allow(
        clippy::mut_from_ref,
        reason = "one thread touches the entries, and holds one reference at a time"
    )]
    pub(super) unsafe fn entries(&self) -> &mut Entries {
        // SAFETY: the caller's.
        unsafe { &mut *self.entries.get() }
    }

    /// # Safety
    ///
    /// As [`entries`](Self::entries).
    #[allow(clippy::mut_from_ref, reason = "as for the entries")]
    pub(super) unsafe fn replaced(&self) -> &mut Vec<(Field, Field)> {
        // SAFETY: the caller's.
        unsafe { &mut *self.replaced.get() }
    }

    /// The place of a key in the list, if it was touched.
    ///
    /// # Safety
    ///
    /// `key` is live and hashes to `hash`.
    #[inline]
    unsafe fn find(&self, key: Pointer, hash: isize) -> Result<Option<usize>, Raised> {
        // SAFETY: the references into the entries end before a comparison, which may run anything: the list may be
        // another one afterwards, and only its length is looked at again.
        unsafe {
            if !self.entries().table.is_empty() {
                return self.find_in_table(key, hash);
            }
            let mut index = 0;
            while let Some(entry) = self.entries().list.get(index) {
                if entry.key.get() == key {
                    return Ok(Some(index));
                }
                if entry.hash == hash {
                    let other = entry.key.share().ok_or(Raised)?;
                    if map::same_key(other.as_ptr(), key)? {
                        return Ok(Some(index));
                    }
                }
                index += 1;
            }
            Ok(None)
        }
    }

    /// As [`find`](Self::find), where there is a table.
    ///
    /// # Safety
    ///
    /// As there.
    unsafe fn find_in_table(&self, key: Pointer, hash: isize) -> Result<Option<usize>, Raised> {
        // SAFETY: as there.
        unsafe {
            'again: loop {
                let size = self.entries().table.len();
                if size == 0 {
                    return Ok(None);
                }
                let mut probe = Probe::new(hash, size);
                loop {
                    let entries = self.entries();
                    let Some(index) =
                        entries.table.get(probe.at).and_then(|&place| (place as usize).checked_sub(1))
                    else {
                        return Ok(None);
                    };
                    let Some(entry) = entries.list.get(index) else { return Ok(None) };
                    if entry.key.get() == key {
                        return Ok(Some(index));
                    }
                    if entry.hash == hash {
                        let other = entry.key.share().ok_or(Raised)?;
                        if map::same_key(other.as_ptr(), key)? {
                            return Ok(Some(index));
                        }
                        // The comparison may have come back here and touched so many keys that there is a new table.
                        if self.entries().table.len() != size {
                            continue 'again;
                        }
                    }
                    probe.go_on();
                }
            }
        }
    }

    /// The place of a key in the list; it is touched from here on.
    ///
    /// # Safety
    ///
    /// As [`find`](Self::find).
    #[inline]
    unsafe fn touch(&self, key: Pointer, hash: isize) -> Result<usize, Raised> {
        // SAFETY: as there.
        unsafe {
            let key = Object::share(key)?;
            let base = loop {
                let count = self.entries().list.len();
                if let Some(index) = self.find(key.as_ptr(), hash)? {
                    return Ok(index);
                }
                let base =
                    map::get_hashed(self.head.base.get(), key.as_ptr(), hash)?.unwrap_or(ptr::null_mut());
                // A comparison may have come back here and touched keys, this one perhaps.
                if self.entries().list.len() == count {
                    break base;
                }
            };
            let index = self.entries().list.len();
            if index == MOST {
                return Err(errors::raise_text(
                    Code::StateError,
                    "a transaction touches at most 2^31 keys of a map",
                ));
            }
            let entry = Entry { key: Field::new(key), hash, base, cell: Cell::default() };
            self.entries().push(entry);
            Ok(index)
        }
    }

    /// Checks that the map can have a key.
    ///
    /// # Safety
    ///
    /// A draft of ours, and a live key.
    unsafe fn check_key(&self, types: &State, own: Pointer, key: Pointer) -> Result<(), Raised> {
        let form = self.head.rule().form().and_then(Form::key);
        let whole = freeze::Place { head: &self.head, draft: own, step: ptr::null_mut(), form };
        // SAFETY: the caller's.
        unsafe { freeze::check_key(types, &whole, key) }
    }

    /// Whether the contract lets the map be read whole.
    unsafe fn read_whole(&self, types: &State, own: Pointer) -> Result<(), Raised> {
        if !self.head.rule().reads {
            // SAFETY: a live draft.
            return Err(unsafe { scope::violated(types, &self.head, own, ptr::null_mut(), "read") });
        }
        self.is_whole.set(true);
        Ok(())
    }
}

/// # Safety
///
/// The head's base is a map.
pub(super) unsafe fn make(types: &State, head: Head) -> Result<Object, Raised> {
    let draft = Draft {
        head,
        entries: UnsafeCell::default(),
        replaced: UnsafeCell::default(),
        is_whole: Plain::new(false),
    };
    // SAFETY: the module's own type.
    unsafe { heap::make(types.map_draft.cast(), draft) }
}

/// The value under a key: a draft, a leaf, or nothing.
///
/// # Safety
///
/// A draft of ours and a live key.
#[inline]
unsafe fn get(own: Pointer, key: Pointer) -> Result<Option<Object>, Raised> {
    // SAFETY: the caller's; the references into the entries end before anything of the program may run.
    unsafe {
        let draft = content::<Draft>(own);
        draft.head.open()?;
        let types = scope::types(own)?;
        let hash = map::hash_of(key)?;
        let index = draft.touch(key, hash)?;
        let (state, held, base) = {
            let Some(entry) = draft.entries().list.get(index) else { return Ok(None) };
            (entry.cell.state(), entry.cell.get(), entry.base)
        };
        if state & CHILD != 0 {
            return Object::share(held).map(Some);
        }
        let below = draft.head.rule().key(draft.head.rule.get(), key)?;
        let is_fresh = state & (WRITTEN | DELETED) != 0 || draft.head.is_fresh;
        let value = if state & WRITTEN != 0 {
            held
        } else if state & DELETED != 0 {
            ptr::null_mut()
        } else {
            base
        };
        if value.is_null() {
            if let Below::Rule(rule, _) = below
                && rule.zone == Zone::Counter
            {
                // A counter that no transaction has counted yet, or that this one has deleted, is 0.
                // It is a key from here on, if it is counted.
                draft.check_key(types, own, key)?;
                let zero = Object::own(ffi::PyLong_FromLong(0))?;
                let child = enter(types, &draft.head, own, key, &below, zero.as_ptr(), is_fresh)?;
                let Some(entry) = draft.entries().list.get_mut(index) else { return Ok(None) };
                if entry.cell.has(CHILD) {
                    // The check has come back here.
                    return Object::share(entry.cell.get()).map(Some);
                }
                if let Some(child) = &child {
                    entry.cell.set_child(child.clone());
                }
                return Ok(child);
            }
            if state & DELETED == 0 && !matches!(below, Below::Rule(..)) && !draft.head.rule().reads {
                return Err(scope::violated(types, &draft.head, own, key, "read"));
            }
            if state & DELETED == 0
                && let Some(entry) = draft.entries().list.get(index)
            {
                entry.cell.mark(SEEN);
            }
            return Ok(None);
        }
        let value = Object::share(value)?;
        let child = enter(types, &draft.head, own, key, &below, value.as_ptr(), is_fresh)?;
        let Some(entry) = draft.entries().list.get_mut(index) else { return Ok(None) };
        match child {
            None => {
                if state & WRITTEN == 0 {
                    entry.cell.mark(READ);
                }
                Ok(Some(value))
            }
            Some(_) if entry.cell.has(CHILD) => Object::share(entry.cell.get()).map(Some),
            Some(child) => {
                entry.cell.set_child(child.clone());
                Ok(Some(child))
            }
        }
    }
}

/// `draft[key]`.
#[entry]
pub(crate) unsafe extern "C" fn subscript(own: Pointer, key: Pointer) -> Pointer {
    // SAFETY: the interpreter's arguments.
    match unsafe { get(own, key) } {
        Ok(Some(value)) => value.into_ptr(),
        // SAFETY: live objects; SetObject takes its own references.
        Ok(None) => unsafe {
            ffi::PyErr_SetObject(ffi::PyExc_KeyError, key);
            ptr::null_mut()
        },
        Err(Raised) => ptr::null_mut(),
    }
}

/// `draft.get(key, default=None)`.
#[entry]
pub(crate) unsafe extern "C" fn get_or(own: Pointer, arguments: *mut Pointer, count: isize) -> Pointer {
    // SAFETY: a draft, and as many live arguments as `count` says.
    unsafe {
        if !(1..=2).contains(&count) {
            ffi::PyErr_SetString(ffi::PyExc_TypeError, c"get takes a key and a default".as_ptr());
            return ptr::null_mut();
        }
        match get(own, *arguments) {
            Ok(Some(value)) => value.into_ptr(),
            Ok(None) if count == 2 => {
                ffi::Py_INCREF(*arguments.add(1));
                *arguments.add(1)
            }
            Ok(None) => Object::none().into_ptr(),
            Err(Raised) => ptr::null_mut(),
        }
    }
}

/// `draft[key] = value`, and `del draft[key]`.
#[entry]
pub(crate) unsafe extern "C" fn assign(own: Pointer, key: Pointer, value: Pointer) -> c_int {
    // SAFETY: the interpreter's arguments; null is a deletion.
    match unsafe { set(own, key, value) } {
        Ok(()) => 0,
        Err(Raised) => -1,
    }
}

/// # Safety
///
/// As [`assign`].
unsafe fn set(own: Pointer, key: Pointer, value: Pointer) -> Result<(), Raised> {
    // SAFETY: the caller's; the references into the entries end before anything of the program may run.
    unsafe {
        let draft = content::<Draft>(own);
        draft.head.open()?;
        let types = scope::types(own)?;
        let below = draft.head.rule().key(draft.head.rule.get(), key)?;
        let hash = map::hash_of(key)?;
        let is_zone = |zone| matches!(below, Below::Rule(rule, _) if rule.writes && rule.zone == zone);
        let new = if value.is_null() {
            if !is_zone(Zone::Counter) {
                check_write(types, &draft.head, own, key, &below)?;
            }
            None
        } else {
            if let Some(index) = draft.find(key, hash)?
                && let Some(entry) = draft.entries().list.get(index)
                && entry.cell.has(CHILD)
                && entry.cell.get() == value
            {
                // `draft[key] += ...` assigns the draft that it has changed.
                return Ok(());
            }
            let is_new = is_zone(Zone::AppendOnly) && {
                // To add a vector under a new key changes nothing that is there.
                let index = draft.touch(key, hash)?;
                draft.entries().list.get(index).is_some_and(|entry| !entry.is_there())
            };
            if !is_new {
                check_write(types, &draft.head, own, key, &below)?;
            }
            draft.check_key(types, own, key)?;
            let form = match draft.head.rule().form() {
                Some(form) => form.at_key(key)?,
                None => None,
            };
            let value = stored(types, &draft.head, own, key, form, value)?;
            if is_new && !vector::is_vector(value.as_ptr()) {
                ffi::PyErr_Format(
                    ffi::PyExc_TypeError,
                    c"an append-only place has a vector, and not a value of class %.200s".as_ptr(),
                    (*ffi::Py_TYPE(value.as_ptr())).tp_name,
                );
                return Err(Raised);
            }
            Some(value)
        };
        savepoint::save(types, own, &draft.head)?;
        let index = draft.touch(key, hash)?;
        let gone = {
            let entries = draft.entries();
            let Some(entry) = entries.list.get_mut(index) else { return Ok(()) };
            if new.is_none() || is_zone(Zone::AppendOnly) {
                // Whether the key was there was read.
                entry.cell.mark(SEEN);
            }
            if new.is_none() && !entry.is_there() {
                None
            } else {
                let was_child = entry.cell.has(CHILD) && !entry.cell.has(WRITTEN);
                Some((entry.cell.write(new), was_child))
            }
        };
        let Some((old, was_child)) = gone else {
            ffi::PyErr_SetObject(ffi::PyExc_KeyError, key);
            return Err(Raised);
        };
        match old {
            Some(old) if was_child => {
                let key = Field::new(Object::share(key)?);
                draft.replaced().push((key, old));
            }
            old => drop(old),
        }
        Ok(())
    }
}

/// `key in draft`.
#[entry]
pub(crate) unsafe extern "C" fn contains(own: Pointer, key: Pointer) -> c_int {
    // SAFETY: the interpreter's arguments.
    match unsafe { has(own, key) } {
        Ok(is_there) => is_there.into(),
        Err(Raised) => -1,
    }
}

/// # Safety
///
/// As [`contains`].
unsafe fn has(own: Pointer, key: Pointer) -> Result<bool, Raised> {
    // SAFETY: the caller's; the references into the entries end before anything of the program may run.
    unsafe {
        let draft = content::<Draft>(own);
        draft.head.open()?;
        let types = scope::types(own)?;
        let below = draft.head.rule().key(draft.head.rule.get(), key)?;
        if !matches!(below, Below::Rule(..)) {
            return Err(scope::violated(types, &draft.head, own, key, "read"));
        }
        let index = draft.touch(key, map::hash_of(key)?)?;
        let Some(entry) = draft.entries().list.get(index) else { return Ok(false) };
        if !entry.cell.has(WRITTEN | DELETED) {
            entry.cell.mark(SEEN);
        }
        Ok(entry.is_there())
    }
}

/// `len(draft)`.
#[entry]
pub(crate) unsafe extern "C" fn length(own: Pointer) -> isize {
    // SAFETY: a draft of ours.
    unsafe { count(own) }.unwrap_or(-1)
}

/// # Safety
///
/// As [`length`].
unsafe fn count(own: Pointer) -> Result<isize, Raised> {
    // SAFETY: the caller's; nothing of the program runs while the entries are counted.
    unsafe {
        let draft = content::<Draft>(own);
        draft.head.open()?;
        draft.read_whole(scope::types(own)?, own)?;
        let mut count = map::len(draft.head.base.get()).cast_signed();
        for entry in &draft.entries().list {
            count += isize::from(entry.is_there()) - isize::from(!entry.base.is_null());
        }
        Ok(count)
    }
}

/// `iter(draft)`: over the keys that there are now.
#[entry]
pub(crate) unsafe extern "C" fn iter(own: Pointer) -> Pointer {
    // SAFETY: a draft of ours.
    unsafe {
        match keys_of(own) {
            Ok(keys) => ffi::PyObject_GetIter(keys.as_ptr()),
            Err(Raised) => ptr::null_mut(),
        }
    }
}

/// The keys that there are now, in a new list.
///
/// # Safety
///
/// A draft of ours.
pub(super) unsafe fn keys_of(own: Pointer) -> Result<Object, Raised> {
    // SAFETY: the caller's; the references into the entries end before anything of the program may run. The base lives
    // as long as the draft, which the caller has.
    unsafe {
        let draft = content::<Draft>(own);
        draft.head.open()?;
        let types = scope::types(own)?;
        draft.read_whole(types, own)?;
        let keys = Object::own(ffi::PyList_New(0))?;
        let base = draft.head.base.share().ok_or(Raised)?;
        let mut cursor = map::Cursor::new(base.as_ptr());
        let untouched = draft.entries().list.is_empty();
        while let Some((key, _)) = cursor.next() {
            if !untouched
                && let Some(index) = draft.find(key, map::hash_of(key)?)?
                && draft.entries().list.get(index).is_some_and(|entry| !entry.is_there())
            {
                continue;
            }
            if ffi::PyList_Append(keys.as_ptr(), key) < 0 {
                return Err(Raised);
            }
        }
        let mut index = 0;
        while let Some(entry) = draft.entries().list.get(index) {
            if entry.base.is_null() && entry.is_there() {
                let key = entry.key.share().ok_or(Raised)?;
                if ffi::PyList_Append(keys.as_ptr(), key.as_ptr()) < 0 {
                    return Err(Raised);
                }
            }
            index += 1;
        }
        Ok(keys)
    }
}

/// `repr`: the map as it is now.
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
        let replaced = (*draft.replaced.get()).iter().flat_map(|(key, child)| [key, child]);
        for field in (*draft.entries.get()).fields().chain(replaced) {
            let answer = field.visit(visit, arg);
            if answer != 0 {
                return answer;
            }
        }
        let answer = heap::visit_fields(&draft.head.fields(), visit, arg);
        if answer != 0 { answer } else { heap::visit_type(own, visit, arg) }
    }
}

#[entry]
pub(crate) unsafe extern "C" fn clear(own: Pointer) -> c_int {
    // SAFETY: only the collector has the object; what is dropped is out of it by then.
    unsafe {
        let draft = content::<Draft>(own);
        let gone = (std::mem::take(draft.entries()), std::mem::take(draft.replaced()));
        drop((draft.head.scope.take(), draft.head.base.take(), gone));
    }
    0
}
