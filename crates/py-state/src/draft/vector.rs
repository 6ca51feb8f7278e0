//! The draft of a vector: a mutable sequence.
//!
//! Items that are read, assigned or appended cost themselves only; what moves items makes the draft a list of all.
//! `collections.abc.MutableSequence` gives it what is not here; see `ropewalk.state`.

use std::cell::{Cell as Plain, UnsafeCell};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::heap::{self, Field, content};
use ropewalk_capi::object::{Object, Raised};

use super::cell::{CHILD, Cell, READ, WRITTEN};
use super::parts::{At, Item, Parts};
use super::savepoint::{self, Undo};
use super::scope::{self, Head};
use super::{check_write, enter, stored};
use crate::form::Form;
use crate::node::Pointer;
use crate::rule::Zone;
use crate::types::State;
use crate::vector;

/// The content of a `VectorDraft`.
pub(crate) struct Draft {
    pub(super) head: Head,
    /// Only the transaction's thread touches them, and no reference to one is held while the interpreter may run code
    /// of the program.
    parts: UnsafeCell<Parts>,
    /// Drafts of items that were assigned to or removed since: what was read through them still counts.
    replaced: UnsafeCell<Vec<(usize, Field)>>,
    /// How many items the base has was read.
    pub(super) is_counted: Plain<bool>,
    /// All items of the base were read.
    pub(super) is_whole: Plain<bool>,
}

impl Draft {
    /// # Safety
    ///
    /// No reference into the parts lives, and the interpreter runs no code while this one does.
    #[allow(clippy::mut_from_ref, reason = "one thread touches the parts, and holds one reference at a time")]
    pub(super) unsafe fn parts(&self) -> &mut Parts {
        // SAFETY: the caller's.
        unsafe { &mut *self.parts.get() }
    }

    /// # Safety
    ///
    /// As [`parts`](Self::parts).
    #[allow(clippy::mut_from_ref, reason = "as for the parts")]
    pub(super) unsafe fn replaced(&self) -> &mut Vec<(usize, Field)> {
        // SAFETY: the caller's.
        unsafe { &mut *self.replaced.get() }
    }

    /// Items of the base that are still there.
    unsafe fn rest(&self) -> usize {
        // SAFETY: the base is a vector.
        unsafe { vector::len(self.head.base.get()).saturating_sub(self.parts().dropped) }
    }

    /// How many items there are now. Unless the list knows, that reads how many the base has.
    unsafe fn count(&self, types: &State, own: Pointer) -> Result<usize, Raised> {
        // SAFETY: a live draft.
        unsafe {
            if let Some(list) = &self.parts().list {
                return Ok(list.len());
            }
            if !self.head.rule().reads {
                return Err(scope::violated(types, &self.head, own, ptr::null_mut(), "read"));
            }
            self.is_counted.set(true);
            Ok(self.rest() + self.parts().appended.len())
        }
    }

    /// Where the item of an index is; `None` if there is none.
    unsafe fn find(&self, types: &State, own: Pointer, index: isize) -> Result<Option<At>, Raised> {
        // SAFETY: a live draft.
        unsafe {
            if self.parts().list.is_none()
                && let Ok(index) = usize::try_from(index)
                && index < self.rest()
            {
                return Ok(Some(At::Base(index)));
            }
            let count = self.count(types, own)?;
            let index = if index < 0 { index + count.cast_signed() } else { index };
            let Some(index) = usize::try_from(index).ok().filter(|index| *index < count) else {
                return Ok(None);
            };
            Ok(Some(match self.parts().list {
                Some(_) => At::List(index),
                None if index < self.rest() => At::Base(index),
                None => At::Appended(index - self.rest()),
            }))
        }
    }

    /// The cell of an item, and what the base has there.
    #[allow(clippy::mut_from_ref, reason = "as for the parts")]
    unsafe fn cell(&self, at: At) -> Option<(&mut Cell, Pointer)> {
        // SAFETY: the caller holds no other reference into the parts, and runs nothing while it has this one.
        unsafe {
            match at {
                At::Base(index) => {
                    let base = vector::get(self.head.base.get(), index)?;
                    let item =
                        self.parts().touched.entry(index).or_insert(Item { base, cell: Cell::default() });
                    Some((&mut item.cell, base))
                }
                At::Appended(index) => Some((self.parts().appended.get_mut(index)?, ptr::null_mut())),
                At::List(index) => {
                    let item = self.parts().list.as_mut()?.get_mut(index)?;
                    Some((&mut item.cell, item.base))
                }
            }
        }
    }

    /// Makes the draft a list of all items. What falls out is for the caller to drop.
    unsafe fn spread(&self, types: &State, own: Pointer) -> Result<HashMap<usize, Item>, Raised> {
        // SAFETY: a live draft; nothing of the program runs while the list is made.
        unsafe {
            if self.parts().list.is_some() {
                return Ok(HashMap::new());
            }
            if !self.head.rule().reads {
                return Err(scope::violated(types, &self.head, own, ptr::null_mut(), "read"));
            }
            self.is_whole.set(true);
            let rest = self.rest();
            savepoint::note(own, &self.head, || {
                let parts = self.parts();
                let beyond = parts.touched.iter().filter(|(index, _)| **index >= rest);
                let beyond = beyond.map(|(index, item)| (*index, item.clone())).collect();
                Undo::Spread { rest, dropped: parts.dropped, beyond }
            })?;
            let parts = self.parts();
            let mut list = Vec::with_capacity(rest + parts.appended.len());
            for index in 0..rest {
                list.push(match parts.touched.remove(&index) {
                    Some(item) => item,
                    None => {
                        let base = vector::get(self.head.base.get(), index).unwrap_or(ptr::null_mut());
                        Item { base, cell: Cell::default() }
                    }
                });
            }
            let appended = std::mem::take(&mut parts.appended);
            list.extend(appended.into_iter().map(|cell| Item { base: ptr::null_mut(), cell }));
            // Those behind the rest were read, and are gone.
            let gone = std::mem::take(&mut parts.touched);
            parts.dropped = 0;
            parts.list = Some(list);
            for (index, item) in &gone {
                if item.cell.has(CHILD)
                    && !item.cell.has(WRITTEN)
                    && let Some(child) = item.cell.field().cloned()
                {
                    self.replaced().push((*index, child));
                }
            }
            Ok(gone)
        }
    }

    /// The value to store for an item; `step` is its index, or null behind the last one.
    ///
    /// # Safety
    ///
    /// Live objects.
    #[inline]
    unsafe fn frozen(
        &self,
        types: &State,
        own: Pointer,
        step: Pointer,
        value: Pointer,
    ) -> Result<Object, Raised> {
        let form = self.head.rule().form().and_then(Form::item);
        // SAFETY: the caller's.
        unsafe { stored(types, &self.head, own, step, form, value) }
    }

    /// Whether items may be moved, removed or put between others.
    unsafe fn check_moves(&self, types: &State, own: Pointer) -> Result<(), Raised> {
        let rule = self.head.rule();
        if rule.writes && rule.zone != Zone::AppendOnly {
            return Ok(());
        }
        // SAFETY: a live draft.
        Err(unsafe { scope::violated(types, &self.head, own, ptr::null_mut(), "write") })
    }
}

/// # Safety
///
/// The head's base is a vector.
pub(super) unsafe fn make(types: &State, head: Head) -> Result<Object, Raised> {
    let draft = Draft {
        head,
        parts: UnsafeCell::default(),
        replaced: UnsafeCell::default(),
        is_counted: Plain::new(false),
        is_whole: Plain::new(false),
    };
    // SAFETY: the module's own type.
    unsafe { heap::make(types.vector_draft.cast(), draft) }
}

/// The item of an index: a draft or a leaf.
///
/// # Safety
///
/// A draft of ours.
unsafe fn get(own: Pointer, index: isize) -> Result<Option<Object>, Raised> {
    // SAFETY: the caller's; the references into the parts end before anything of the program may run.
    unsafe {
        let draft = content::<Draft>(own);
        draft.head.open()?;
        let types = scope::types(own)?;
        // What the cell has may be another thing each time that code of the program has run.
        loop {
            let Some(at) = draft.find(types, own, index)? else { return Ok(None) };
            let Some((state, held, base)) = draft.cell(at).map(|(cell, base)| {
                let held = cell.field().and_then(Field::share);
                (cell.state(), held, base)
            }) else {
                return Ok(None);
            };
            let is_written = state & WRITTEN != 0;
            let (value, there) = match held {
                Some(held) if state & CHILD != 0 => return Ok(Some(held)),
                Some(held) => {
                    let there = held.as_ptr();
                    (held, there)
                }
                None => (Object::share(base)?, ptr::null_mut()),
            };
            let below = draft.head.rule().item(draft.head.rule.get());
            let step = Object::own(ffi::PyLong_FromSsize_t(index))?;
            let is_fresh = is_written || draft.head.is_fresh;
            let child = enter(types, &draft.head, own, step.as_ptr(), &below, value.as_ptr(), is_fresh)?;
            // Items may have moved, too.
            let Some(at) = draft.find(types, own, index)? else { continue };
            match draft.cell(at) {
                Some((cell, now)) if cell.is_still(state, there) && ptr::eq(now, base) => match child {
                    Some(child) => {
                        cell.set_child(child.clone());
                        return Ok(Some(child));
                    }
                    None => {
                        if !is_written {
                            cell.mark(READ);
                        }
                        return Ok(Some(value));
                    }
                },
                _ => {}
            }
        }
    }
}

/// `sq_item`, which iteration uses.
#[entry]
pub(crate) unsafe extern "C" fn item(own: Pointer, index: isize) -> Pointer {
    // SAFETY: a draft of ours.
    match unsafe { get(own, index) } {
        Ok(Some(value)) => value.into_ptr(),
        // SAFETY: the thread is attached.
        Ok(None) => unsafe {
            ffi::PyErr_Format(ffi::PyExc_IndexError, c"the vector has no item %zd".as_ptr(), index);
            ptr::null_mut()
        },
        Err(Raised) => ptr::null_mut(),
    }
}

/// `draft[index]` and `draft[start:stop:step]`; a slice is a list.
#[entry]
pub(crate) unsafe extern "C" fn subscript(own: Pointer, key: Pointer) -> Pointer {
    // SAFETY: the interpreter's arguments.
    unsafe {
        if ffi::Py_TYPE(key) != &raw mut ffi::PySlice_Type {
            let index = ffi::PyNumber_AsSsize_t(key, ffi::PyExc_IndexError);
            return if index == -1 && !ffi::PyErr_Occurred().is_null() {
                ptr::null_mut()
            } else {
                item(own, index)
            };
        }
        let sliced = (|| {
            let draft = content::<Draft>(own);
            draft.head.open()?;
            let count = draft.count(scope::types(own)?, own)?.cast_signed();
            let (mut start, mut stop, mut step) = (0, 0, 0);
            if ffi::PySlice_Unpack(key, &raw mut start, &raw mut stop, &raw mut step) < 0 {
                return Err(Raised);
            }
            let size = ffi::PySlice_AdjustIndices(count, &raw mut start, &raw mut stop, step);
            let made = Object::own(ffi::PyList_New(0))?;
            for place in 0..size {
                if let Some(value) = get(own, start + place * step)?
                    && ffi::PyList_Append(made.as_ptr(), value.as_ptr()) < 0
                {
                    return Err(Raised);
                }
            }
            Ok(made)
        })();
        sliced.map_or(ptr::null_mut(), Object::into_ptr)
    }
}

/// `draft[index] = value`, and `del draft[index]`.
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
    // SAFETY: the caller's; the references into the parts end before anything of the program may run.
    unsafe {
        let draft = content::<Draft>(own);
        draft.head.open()?;
        let types = scope::types(own)?;
        if ffi::Py_TYPE(key) == &raw mut ffi::PySlice_Type {
            ffi::PyErr_SetString(
                ffi::PyExc_TypeError,
                c"a slice of a vector cannot be assigned to or deleted; change its items, or assign a whole list"
                    .as_ptr(),
            );
            return Err(Raised);
        }
        let index = ffi::PyNumber_AsSsize_t(key, ffi::PyExc_IndexError);
        if index == -1 && !ffi::PyErr_Occurred().is_null() {
            return Err(Raised);
        }
        if value.is_null() {
            return removed(own, index).map(drop);
        }
        if let Some(at) = draft.find(types, own, index)?
            && let Some((cell, _)) = draft.cell(at)
            && cell.has(CHILD)
            && cell.get() == value
        {
            return Ok(());
        }
        let below = draft.head.rule().item(draft.head.rule.get());
        check_write(types, &draft.head, own, key, &below)?;
        let value = draft.frozen(types, own, key, value)?;
        let Some(at) = draft.find(types, own, index)? else {
            ffi::PyErr_Format(ffi::PyExc_IndexError, c"the vector has no item %zd".as_ptr(), index);
            return Err(Raised);
        };
        if let Some((cell, _)) = draft.cell(at) {
            savepoint::note_cell(own, &draft.head, cell, |cell| Undo::Item(at, cell))?;
        }
        let old = draft.cell(at).map(|(cell, _)| {
            let was_child = cell.has(CHILD) && !cell.has(WRITTEN);
            (cell.write(Some(value)), was_child)
        });
        match (old, at) {
            (Some((Some(old), true)), At::Base(index)) => draft.replaced().push((index, old)),
            (old, _) => drop(old),
        }
        Ok(())
    }
}

/// Removes an item and gives it: a draft or a leaf.
///
/// # Safety
///
/// A draft of ours.
unsafe fn removed(own: Pointer, index: isize) -> Result<Object, Raised> {
    // SAFETY: the caller's; the references into the parts end before anything of the program may run.
    unsafe {
        let draft = content::<Draft>(own);
        draft.head.open()?;
        let types = scope::types(own)?;
        draft.check_moves(types, own)?;
        let Some(value) = get(own, index)? else {
            ffi::PyErr_Format(ffi::PyExc_IndexError, c"the vector has no item %zd".as_ptr(), index);
            return Err(Raised);
        };
        let Some(at) = draft.find(types, own, index)? else { return Ok(value) };
        let is_last = match at {
            At::Base(index) => draft.parts().appended.is_empty() && index + 1 == draft.rest(),
            At::Appended(index) => index + 1 == draft.parts().appended.len(),
            At::List(_) => false,
        };
        if is_last {
            if let At::Appended(_) = at {
                let gone = draft.parts().appended.pop();
                if let Some(cell) = &gone {
                    savepoint::note(own, &draft.head, || Undo::Unappended(cell.clone()))?;
                }
                drop(gone);
            } else {
                // What was read of it stays in the table.
                savepoint::note(own, &draft.head, || Undo::Dropped)?;
                draft.is_counted.set(true);
                draft.parts().dropped += 1;
            }
            return Ok(value);
        }
        let fallen = draft.spread(types, own)?;
        let mut gone = None;
        if let Some(list) = draft.parts().list.as_mut() {
            let place = if index < 0 { index + list.len().cast_signed() } else { index };
            if let Ok(place) = usize::try_from(place)
                && place < list.len()
            {
                let item = list.remove(place);
                savepoint::note(own, &draft.head, || Undo::Removed(place, item.clone()))?;
                gone = Some(item);
            }
        }
        drop((fallen, gone));
        Ok(value)
    }
}

/// `draft.pop(index=-1)`.
#[entry]
pub(crate) unsafe extern "C" fn pop(own: Pointer, arguments: *mut Pointer, count: isize) -> Pointer {
    // SAFETY: a draft, and as many live arguments as `count` says.
    unsafe {
        let index = match count {
            0 => -1,
            1 => ffi::PyNumber_AsSsize_t(*arguments, ffi::PyExc_IndexError),
            _ => {
                ffi::PyErr_SetString(ffi::PyExc_TypeError, c"pop takes an index at most".as_ptr());
                return ptr::null_mut();
            }
        };
        if count == 1 && index == -1 && !ffi::PyErr_Occurred().is_null() {
            return ptr::null_mut();
        }
        removed(own, index).map_or(ptr::null_mut(), Object::into_ptr)
    }
}

/// `draft.append(value)`.
#[entry]
pub(crate) unsafe extern "C" fn append(own: Pointer, value: Pointer) -> Pointer {
    // SAFETY: a draft, and a live argument.
    match unsafe { appended(own, value) } {
        Ok(()) => Object::none().into_ptr(),
        Err(Raised) => ptr::null_mut(),
    }
}

/// # Safety
///
/// As [`append`].
unsafe fn appended(own: Pointer, value: Pointer) -> Result<(), Raised> {
    // SAFETY: the caller's.
    unsafe {
        let draft = content::<Draft>(own);
        draft.head.open()?;
        let types = scope::types(own)?;
        if !draft.head.rule().writes {
            return Err(scope::violated(types, &draft.head, own, ptr::null_mut(), "append"));
        }
        let value = draft.frozen(types, own, ptr::null_mut(), value)?;
        savepoint::note(own, &draft.head, || Undo::Appended)?;
        let cell = Cell::new(value, draft.head.open()?.savepoint.get());
        let parts = draft.parts();
        match &mut parts.list {
            Some(list) => list.push(Item { base: ptr::null_mut(), cell }),
            None => parts.appended.push(cell),
        }
        Ok(())
    }
}

/// `draft.extend(values)`.
#[entry]
pub(crate) unsafe extern "C" fn extend(own: Pointer, values: Pointer) -> Pointer {
    // SAFETY: a draft, and a live argument.
    unsafe {
        let extended = (|| {
            // A tuple first: the values may be those of this draft.
            let values = Object::own(ffi::PySequence_Tuple(values))?;
            for index in 0..ffi::PyTuple_Size(values.as_ptr()) {
                appended(own, ffi::PyTuple_GetItem(values.as_ptr(), index))?;
            }
            Ok(Object::none())
        })();
        extended.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

/// `draft += values`.
#[entry]
pub(crate) unsafe extern "C" fn extend_in_place(own: Pointer, values: Pointer) -> Pointer {
    // SAFETY: the interpreter's arguments; what `extend` returns is released.
    unsafe {
        let done = extend(own, values);
        if done.is_null() {
            return done;
        }
        ffi::Py_DECREF(done);
        ffi::Py_INCREF(own);
        own
    }
}

/// `draft.insert(index, value)`.
#[entry]
pub(crate) unsafe extern "C" fn insert(own: Pointer, arguments: *mut Pointer, count: isize) -> Pointer {
    // SAFETY: a draft, and as many live arguments as `count` says.
    unsafe {
        let inserted = (|| {
            if count != 2 {
                ffi::PyErr_SetString(ffi::PyExc_TypeError, c"insert takes an index and a value".as_ptr());
                return Err(Raised);
            }
            let index = ffi::PyNumber_AsSsize_t(*arguments, ffi::PyExc_IndexError);
            if index == -1 && !ffi::PyErr_Occurred().is_null() {
                return Err(Raised);
            }
            let draft = content::<Draft>(own);
            draft.head.open()?;
            let types = scope::types(own)?;
            draft.check_moves(types, own)?;
            let value = draft.frozen(types, own, *arguments, *arguments.add(1))?;
            let cell = Cell::new(value, draft.head.open()?.savepoint.get());
            let fallen = draft.spread(types, own)?;
            if let Some(list) = draft.parts().list.as_mut() {
                let count = list.len().cast_signed();
                let place = if index < 0 { (index + count).max(0) } else { index.min(count) }.unsigned_abs();
                savepoint::note(own, &draft.head, || Undo::Inserted(place))?;
                list.insert(place, Item { base: ptr::null_mut(), cell });
            }
            drop(fallen);
            Ok(Object::none())
        })();
        inserted.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

/// `draft.reverse()`.
#[entry]
pub(crate) unsafe extern "C" fn reverse(own: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a draft of ours.
    unsafe { rearranged(own, Rearranged::Reversed) }
}

/// `draft.clear()`.
#[entry]
pub(crate) unsafe extern "C" fn clear_items(own: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a draft of ours.
    unsafe { rearranged(own, Rearranged::Cleared) }
}

/// What is done with all items at once.
enum Rearranged {
    Reversed,
    Cleared,
}

/// # Safety
///
/// A draft of ours.
unsafe fn rearranged(own: Pointer, what: Rearranged) -> Pointer {
    // SAFETY: the caller's; what falls out is dropped when the list is complete.
    unsafe {
        let done = (|| {
            let draft = content::<Draft>(own);
            draft.head.open()?;
            let types = scope::types(own)?;
            draft.check_moves(types, own)?;
            let fallen = draft.spread(types, own)?;
            let mut gone = Vec::new();
            if let Some(list) = draft.parts().list.as_mut() {
                if let Rearranged::Reversed = what {
                    savepoint::note(own, &draft.head, || Undo::Reversed)?;
                    list.reverse();
                } else {
                    gone = std::mem::take(list);
                    savepoint::note(own, &draft.head, || Undo::Cleared(gone.clone()))?;
                }
            }
            drop((fallen, gone));
            Ok(Object::none())
        })();
        done.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

/// `len(draft)`.
#[entry]
pub(crate) unsafe extern "C" fn length(own: Pointer) -> isize {
    // SAFETY: a draft of ours.
    let counted = unsafe {
        let draft = content::<Draft>(own);
        draft.head.open().and_then(|_| draft.count(scope::types(own)?, own))
    };
    counted.map_or(-1, usize::cast_signed)
}

/// `repr`: the vector as it is now.
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
        let replaced = (*draft.replaced.get()).iter().map(|(_, child)| child);
        for field in (*draft.parts.get()).fields().chain(replaced) {
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
        let gone = (std::mem::take(draft.parts()), std::mem::take(draft.replaced()));
        drop((draft.head.scope.take(), draft.head.base.take(), gone));
    }
    0
}
