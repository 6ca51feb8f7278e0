//! What a commit makes of the drafts: it checks what they have read, and makes the new state.
//!
//! The walk compares each draft's base with the container that is at the same place now. If both are the same object,
//! nothing below has changed, because containers never change. If not, what was read is compared place by place, by
//! identity: an equal value that is another object counts as a change, which costs a retry and never a wrong result.
//! Written places replace those of the container that is there now, so two transactions that write different places of
//! one container both succeed.
//!
//! The walk may be repeated against a newer state: it changes no draft.

use std::ptr;

use pyo3_ffi as ffi;
use ropewalk_capi::heap::{Field, content};
use ropewalk_capi::object::{Object, Raised};

use super::cell::{CHILD, Cell, DELETED, READ, SEEN, WRITTEN};
use super::change::{self, Change};
use super::checks::Unchecked;
use super::parts::Item;
use super::{array, counter, freeze, map as maps, path, record, scope, vector as vectors, zones};
use crate::node::Pointer;
use crate::rule::{Below, Zone};
use crate::types::State;
use crate::{map, vector};

/// Why there is no new state.
pub(crate) enum Stop {
    /// An exception is set.
    Raised,
    /// What the transaction has read at a path has changed. The steps are in reverse.
    Conflict(Vec<Object>),
}

impl From<Raised> for Stop {
    fn from(_: Raised) -> Self {
        Self::Raised
    }
}

/// A step of the way to a draft.
#[derive(Clone, Copy)]
enum Step {
    Key(Pointer),
    Index(usize),
}

impl Step {
    /// # Safety
    ///
    /// A key is live.
    unsafe fn object(self) -> Result<Object, Raised> {
        // SAFETY: the caller's.
        unsafe {
            match self {
                Self::Key(key) => Object::share(key),
                Self::Index(index) => Object::own(ffi::PyLong_FromSize_t(index)),
            }
        }
    }
}

/// What a walk makes beside the new state.
pub(crate) struct Out<'a> {
    types: &'a State,
    /// The way to the draft at hand; its objects are held by the drafts.
    steps: Vec<Step>,
    /// The state that is there now.
    top: Pointer,
    /// The list of changes, if it is wanted.
    changes: Option<Object>,
    /// Changes below are part of one that is noted already, or are not to be noted.
    quiet: u32,
    /// What replaces a value is compared with it, where the value's rule asks for that: by a commit.
    guards: bool,
    /// Whether there is a change that is not in a transient place.
    pub(crate) is_lasting: bool,
    /// How many drafts are being built within each other.
    depth: u32,
    /// The new values of the fields of the records that are being built: those of the innermost one are the last.
    fields: Vec<Option<Object>>,
    /// New records that their classes check.
    pub(crate) unchecked: Vec<Unchecked>,
    /// A record could not be made: its class refuses the values of its fields.
    pub(crate) is_unfit: bool,
}

impl<'a> Out<'a> {
    pub(crate) fn new(types: &'a State, wants_changes: bool) -> Result<Self, Raised> {
        // SAFETY: the thread is attached.
        let changes = if wants_changes { Some(unsafe { Object::own(ffi::PyList_New(0)) }?) } else { None };
        Ok(Self {
            types,
            steps: Vec::new(),
            top: ptr::null_mut(),
            changes,
            quiet: 0,
            guards: false,
            is_lasting: false,
            depth: 0,
            fields: Vec::new(),
            unchecked: Vec::new(),
            is_unfit: false,
        })
    }

    /// Compares what replaces a value with it, as a commit does.
    pub(crate) fn guarding(mut self) -> Self {
        self.guards = true;
        self
    }

    /// The new records to check, and the list of changes: tuples of a number, a path and a value.
    pub(crate) fn into_parts(self) -> (Vec<Unchecked>, Option<Object>) {
        (self.unchecked, self.changes)
    }

    /// The way to the draft at hand, if changes of it are noted.
    ///
    /// # Safety
    ///
    /// The keys of the way are live.
    unsafe fn way(&self) -> Result<Option<Vec<Object>>, Raised> {
        if self.changes.is_none() || self.quiet > 0 {
            return Ok(None);
        }
        // SAFETY: the caller's.
        self.steps.iter().map(|step| unsafe { step.object() }).collect::<Result<_, _>>().map(Some)
    }

    /// Notes a change at a place below the draft at hand, or at its own place.
    ///
    /// # Safety
    ///
    /// Live objects.
    unsafe fn note(&mut self, change: Change, step: Option<Step>, value: Pointer) -> Result<(), Raised> {
        if self.quiet > 0 {
            return Ok(());
        }
        self.is_lasting = true;
        let Some(changes) = &self.changes else { return Ok(()) };
        // SAFETY: the caller's.
        unsafe {
            let mut way = Vec::with_capacity(self.steps.len() + 1);
            for step in self.steps.iter().chain(&step) {
                way.push(step.object()?);
            }
            change::note(changes, change, &way, value)
        }
    }
}

/// A conflict at this step of the way.
unsafe fn conflict(step: Step) -> Stop {
    // SAFETY: a live key.
    unsafe { step.object() }.map_or(Stop::Raised, |step| Stop::Conflict(vec![step]))
}

/// Puts the step before the path of a conflict.
unsafe fn at(step: Step, stop: Stop) -> Stop {
    let Stop::Conflict(mut steps) = stop else { return stop };
    // SAFETY: a live key.
    match unsafe { step.object() } {
        Ok(step) => {
            steps.push(step);
            Stop::Conflict(steps)
        }
        Err(Raised) => Stop::Raised,
    }
}

/// The new value of a draft's place, if it has changed; `now` is what is there now.
///
/// # Safety
///
/// A live draft and a live object; the phase of the draft's transaction lets nobody use its drafts meanwhile.
pub(crate) unsafe fn build(out: &mut Out<'_>, own: Pointer, now: Pointer) -> Result<Option<Object>, Stop> {
    // SAFETY: the caller's; the type tells the content.
    unsafe {
        if ffi::Py_EnterRecursiveCall(c" while a transaction commits".as_ptr()) != 0 {
            return Err(Stop::Raised);
        }
        if out.depth == freeze::DEEPEST {
            ffi::Py_LeaveRecursiveCall();
            return Err(freeze::too_deep().into());
        }
        if out.depth == 0 {
            out.top = now;
        }
        out.depth += 1;
        let kind = ffi::Py_TYPE(own).cast();
        let head = super::head(out.types, own);
        let is_transient = head.rule().zone == Zone::Transient;
        out.quiet += u32::from(is_transient);
        let built = if kind == out.types.record_draft {
            of_record(out, content::<record::Draft>(own), now)
        } else if kind == out.types.map_draft {
            of_map(out, content::<maps::Draft>(own), now)
        } else if kind == out.types.vector_draft {
            of_vector(out, content::<vectors::Draft>(own), now)
        } else if kind == out.types.array_draft {
            of_array(out, content::<array::Draft>(own), now)
        } else {
            of_counter(out, content::<counter::Draft>(own), now)
        };
        out.quiet -= u32::from(is_transient);
        out.depth -= 1;
        ffi::Py_LeaveRecursiveCall();
        built
    }
}

/// The new value of a cell whose place has a written value or a draft, if it changes the place; notes the change.
/// `now` is what is at the place now, or null.
///
/// # Safety
///
/// As [`build`].
unsafe fn of_cell(
    out: &mut Out<'_>,
    head: &scope::Head,
    cell: &Cell,
    step: Step,
    below: &Below<'_>,
    now: Pointer,
) -> Result<Option<Object>, Stop> {
    // SAFETY: the caller's.
    unsafe {
        if !cell.has(WRITTEN) {
            out.steps.push(step);
            let built = build(out, cell.get(), now);
            out.steps.pop();
            return built.map_err(|stop| at(step, stop));
        }
        let (value, put) = written(out, cell, step, now.is_null())?;
        if ptr::eq(value.as_ptr(), now) {
            return Ok(None);
        }
        if !now.is_null() {
            guard(out, head, step, below, now, put.as_ptr())?;
        }
        if !matches!(below, Below::Rule(rule, _) if rule.zone == Zone::Transient) {
            out.note(Change::Set, Some(step), value.as_ptr())?;
        }
        Ok(Some(value))
    }
}

/// Checks that a value may replace what is at its place now, if the place's rule asks for that.
///
/// # Safety
///
/// As [`build`]; the head is that of the draft above.
#[inline]
unsafe fn guard(
    out: &mut Out<'_>,
    head: &scope::Head,
    step: Step,
    below: &Below<'_>,
    now: Pointer,
    value: Pointer,
) -> Result<(), Stop> {
    if let Below::Rule(rule, own) = *below
        && out.guards
        && rule.is_guarded()
    {
        // SAFETY: the caller's.
        return unsafe { compared(out, head, step, own, now, value) };
    }
    Ok(())
}

/// As [`guard`], of a place whose rule asks for it.
///
/// # Safety
///
/// As there.
#[cold]
unsafe fn compared(
    out: &mut Out<'_>,
    head: &scope::Head,
    step: Step,
    rule: Pointer,
    now: Pointer,
    value: Pointer,
) -> Result<(), Stop> {
    // SAFETY: the caller's; the objects are held by the caller, and what is there now by its container.
    unsafe {
        let now = Object::share(now)?;
        let Some(below) = zones::broken(out.types, rule, now.as_ptr(), value)? else { return Ok(()) };
        let scope = content::<scope::Scope>(head.scope.get());
        let root = scope.root.share().ok_or(Raised)?;
        let is_base = super::head(out.types, root.as_ptr()).base.get() == out.top;
        if !is_base {
            // Another transaction may have appended or counted meanwhile: the next run sees that.
            return Err(conflict(step));
        }
        let mut way = Vec::with_capacity(out.steps.len() + 1 + below.len());
        for step in out.steps.iter().chain(std::iter::once(&step)) {
            way.push(step.object()?);
        }
        way.extend(below.into_iter().rev());
        Err(scope::refused(out.types, head, &path::tuple(&way)?, "replace").into())
    }
}

/// Checks what was read through drafts that are no longer in their cells.
///
/// # Safety
///
/// As [`build`]; `now` is what is at the place now, or null.
unsafe fn check_replaced(out: &mut Out<'_>, child: &Field, step: Step, now: Pointer) -> Result<(), Stop> {
    // SAFETY: the caller's.
    unsafe {
        let child = child.share().ok_or(Raised)?;
        if super::head(out.types, child.as_ptr()).is_fresh {
            return Ok(());
        }
        let zero;
        let now = if now.is_null() && counter::is_one(out.types, child.as_ptr()) {
            zero = Object::own(ffi::PyLong_FromLong(0))?;
            zero.as_ptr()
        } else {
            now
        };
        if now.is_null() {
            return Err(conflict(step));
        }
        out.quiet += 1;
        let (count, steps, guards) = (out.unchecked.len(), out.steps.len(), out.guards);
        // What was written through them counts no more.
        out.guards = false;
        let built = build(out, child.as_ptr(), now);
        out.guards = guards;
        out.quiet -= 1;
        out.unchecked.truncate(count);
        out.steps.truncate(steps);
        built.map(drop).map_err(|stop| at(step, stop))
    }
}

/// # Safety
///
/// As [`build`].
unsafe fn of_record(out: &mut Out<'_>, draft: &record::Draft, now: Pointer) -> Result<Option<Object>, Stop> {
    // SAFETY: the caller's; nobody changes the cells meanwhile.
    unsafe {
        let (head, info) = (&draft.head, draft.info());
        let base = head.base.get();
        let moved = !ptr::eq(now, base) && !head.is_fresh;
        if moved && (draft.is_whole.get() || !info.is_of(ffi::Py_TYPE(now))) {
            return Err(Stop::Conflict(Vec::new()));
        }
        let first = out.fields.len();
        out.fields.resize_with(first + info.count(), || None);
        let mut is_new = false;
        for index in 0..info.count() {
            let cell = &draft.cells()[index];
            if cell.state() == 0 {
                continue;
            }
            let step = Step::Key(info.name(index));
            let there = if moved || cell.has(WRITTEN) || cell.has(CHILD) {
                Some(info.read(now, index)?)
            } else {
                None
            };
            if moved
                && cell.has(READ)
                && there.as_ref().map(Object::as_ptr) != Some(info.read(base, index)?.as_ptr())
            {
                return Err(conflict(step));
            }
            if cell.has(WRITTEN | CHILD) {
                let below = head.rule().field(head.rule.get(), draft.info_pointer(), index);
                let there = there.as_ref().map_or(ptr::null_mut(), Object::as_ptr);
                if let Some(value) = of_cell(out, head, cell, step, &below, there)? {
                    out.fields[first + index] = Some(value);
                    is_new = true;
                }
            }
        }
        if moved {
            for (index, child) in draft.replaced().iter() {
                let there = info.read(now, *index)?;
                check_replaced(out, child, Step::Key(info.name(*index)), there.as_ptr())?;
            }
        }
        if !is_new {
            out.fields.truncate(first);
            return Ok(None);
        }
        let made = info.copy(now, &out.fields[first..]);
        let Ok(made) = made else {
            out.is_unfit = true;
            return Err(Stop::Raised);
        };
        if info.is_watched() {
            let mut given = Vec::new();
            if info.is_rebuilt() {
                for (index, value) in out.fields[first..].iter().enumerate() {
                    given.push(value.clone().map_or_else(|| info.read(now, index), Ok)?);
                }
            }
            let is_transient = |index| {
                let below = head.rule().field(head.rule.get(), draft.info_pointer(), index);
                matches!(below, Below::Rule(rule, _) if rule.zone == Zone::Transient)
            };
            out.unchecked.push(Unchecked {
                made: made.clone(),
                info: Object::share(draft.info_pointer())?,
                before: Object::share(now)?,
                given,
                way: out.way()?,
                transient: (0..info.count()).map(is_transient).collect(),
            });
        }
        out.fields.truncate(first);
        Ok(Some(made))
    }
}

/// # Safety
///
/// As [`build`].
unsafe fn of_map(out: &mut Out<'_>, draft: &maps::Draft, now: Pointer) -> Result<Option<Object>, Stop> {
    // SAFETY: the caller's; nobody changes the entries meanwhile, and the drafts hold them.
    unsafe {
        let head = &draft.head;
        let moved = !ptr::eq(now, head.base.get()) && !head.is_fresh;
        if moved && (draft.is_whole.get() || !map::is_map(now)) {
            return Err(Stop::Conflict(Vec::new()));
        }
        let mut edit: Option<map::Edit> = None;
        for index in 0..draft.entries().list.len() {
            let entry = &draft.entries().list[index];
            let (key, cell) = (entry.key.get(), &entry.cell);
            let step = Step::Key(key);
            let below = head.rule().key(head.rule.get(), key)?;
            let there = if moved { map::get(now, key)?.unwrap_or(ptr::null_mut()) } else { entry.base };
            if moved {
                let changed = !ptr::eq(there, entry.base);
                let is_read = cell.has(READ) && changed;
                let is_seen = cell.has(SEEN) && there.is_null() != entry.base.is_null();
                let is_gone = cell.has(CHILD)
                    && !cell.has(WRITTEN | DELETED)
                    && there.is_null()
                    && !entry.base.is_null()
                    && !counter::is_one(out.types, cell.get());
                if is_read || is_seen || is_gone {
                    return Err(conflict(step));
                }
            }
            let is_deleted = cell.has(DELETED) && !there.is_null();
            if is_deleted {
                if !matches!(below, Below::Rule(rule, _) if rule.zone == Zone::Transient) {
                    out.note(Change::Delete, Some(step), ffi::Py_None())?;
                }
                if edit.is_none() {
                    edit = Some(map::Edit::new(now));
                }
                if let Some(edit) = &mut edit {
                    edit.delete(key)?;
                }
            }
            if cell.has(WRITTEN | CHILD) {
                let zero;
                let there = if (there.is_null() || is_deleted) && !cell.has(WRITTEN) {
                    // A counter that was not there, or is no longer.
                    zero = Object::own(ffi::PyLong_FromLong(0))?;
                    zero.as_ptr()
                } else {
                    there
                };
                if let Some(value) = of_cell(out, head, cell, step, &below, there)? {
                    if edit.is_none() {
                        edit = Some(map::Edit::new(now));
                    }
                    if let Some(edit) = &mut edit {
                        edit.set(key, value.as_ptr())?;
                    }
                }
            }
        }
        if moved {
            for (key, child) in draft.replaced().iter() {
                let there = map::get(now, key.get())?.unwrap_or(ptr::null_mut());
                check_replaced(out, child, Step::Key(key.get()), there)?;
            }
        }
        let Some(mut edit) = edit else { return Ok(None) };
        Ok(Some(edit.finish_frozen()?))
    }
}

/// # Safety
///
/// As [`build`].
unsafe fn of_vector(out: &mut Out<'_>, draft: &vectors::Draft, now: Pointer) -> Result<Option<Object>, Stop> {
    // SAFETY: the caller's; nobody changes the parts meanwhile, and the drafts hold them.
    unsafe {
        let head = &draft.head;
        let base = head.base.get();
        let moved = !ptr::eq(now, base) && !head.is_fresh;
        if moved && (draft.is_whole.get() || !vector::is_vector(now)) {
            return Err(Stop::Conflict(Vec::new()));
        }
        if moved && draft.is_counted.get() && vector::len(now) != vector::len(base) {
            return Err(Stop::Conflict(Vec::new()));
        }
        let below = head.rule().item(head.rule.get());
        let parts = draft.parts();
        if let Some(list) = &parts.list {
            return of_list(out, head, list, &below).map(Some);
        }
        let rest = vector::len(now) - parts.dropped.min(vector::len(now));
        let mut edit: Option<vector::Edit> = None;
        let mut indices: Vec<usize> = parts.touched.keys().copied().collect();
        indices.sort_unstable();
        for index in indices {
            let (step, item) = (Step::Index(index), &parts.touched[&index]);
            let there = vector::get(now, index).unwrap_or(ptr::null_mut());
            if moved && item.cell.has(READ) && !ptr::eq(there, item.base) {
                return Err(conflict(step));
            }
            if !item.cell.has(WRITTEN | CHILD) {
                continue;
            }
            if there.is_null() {
                return Err(conflict(step));
            }
            // Of an item that was taken from the end only what was read counts.
            let is_gone = index >= rest;
            out.quiet += u32::from(is_gone);
            let value = of_cell(out, head, &item.cell, step, &below, there);
            out.quiet -= u32::from(is_gone);
            if let Some(value) = value?
                && !is_gone
            {
                if edit.is_none() {
                    edit = Some(vector::Edit::new(now)?);
                }
                if let Some(edit) = &mut edit {
                    edit.set(index, value.as_ptr())?;
                }
            }
        }
        if moved {
            for (index, child) in draft.replaced().iter() {
                let there = vector::get(now, *index).unwrap_or(ptr::null_mut());
                check_replaced(out, child, Step::Index(*index), there)?;
            }
        }
        if parts.dropped == 0 && parts.appended.is_empty() {
            return Ok(edit.map(|mut edit| edit.finish_frozen()).transpose()?);
        }
        let mut edit = match edit {
            Some(edit) => edit,
            None => vector::Edit::new(now)?,
        };
        if parts.dropped > 0 {
            for _ in rest..vector::len(now) {
                edit.pop()?;
            }
            let number = Object::own(ffi::PyLong_FromSize_t(parts.dropped))?;
            out.note(Change::Drop, None, number.as_ptr())?;
        }
        if !parts.appended.is_empty() {
            let mut values = Vec::with_capacity(parts.appended.len());
            for (index, cell) in (rest..).zip(&parts.appended) {
                let (value, _) = written(out, cell, Step::Index(index), true)?;
                edit.append(value.as_ptr())?;
                values.push(value);
            }
            let values = path::tuple(&values)?;
            out.note(Change::Append, None, values.as_ptr())?;
        }
        Ok(Some(edit.finish_frozen()?))
    }
}

/// The value of a cell that was written, with what was done to it since; and the value that was put there. With
/// `is_new` there is none at the place that it would replace.
///
/// # Safety
///
/// As [`build`].
unsafe fn written(
    out: &mut Out<'_>,
    cell: &Cell,
    step: Step,
    is_new: bool,
) -> Result<(Object, Object), Stop> {
    // SAFETY: the caller's.
    unsafe {
        if !cell.has(CHILD) {
            let value = Object::share(cell.get())?;
            return Ok((value.clone(), value));
        }
        let base = super::head(out.types, cell.get()).base.share().ok_or(Raised)?;
        out.quiet += 1;
        let guards = out.guards;
        out.guards &= !is_new;
        out.steps.push(step);
        let built = build(out, cell.get(), base.as_ptr()).map_err(|stop| at(step, stop));
        out.steps.pop();
        out.guards = guards;
        out.quiet -= 1;
        Ok((built?.unwrap_or_else(|| base.clone()), base))
    }
}

/// # Safety
///
/// As [`build`]; the whole base was read, and has not changed.
unsafe fn of_list(
    out: &mut Out<'_>,
    head: &scope::Head,
    list: &[Item],
    below: &Below<'_>,
) -> Result<Object, Stop> {
    // SAFETY: the caller's.
    unsafe {
        let empty = vector::empty(out.types)?;
        let mut edit = vector::Edit::new(empty.as_ptr())?;
        out.quiet += 1;
        for (index, item) in list.iter().enumerate() {
            let value = if item.cell.has(WRITTEN) {
                let is_new = item.base.is_null();
                written(out, &item.cell, Step::Index(index), is_new).and_then(|(value, put)| {
                    if !is_new {
                        guard(out, head, Step::Index(index), below, item.base, put.as_ptr())?;
                    }
                    Ok(value)
                })
            } else if item.cell.has(CHILD) {
                let built = of_cell(out, head, &item.cell, Step::Index(index), below, item.base);
                built.and_then(|built| Ok(built.map_or_else(|| Object::share(item.base), Ok)?))
            } else {
                Object::share(item.base).map_err(Stop::from)
            };
            match value {
                Ok(value) => edit.append(value.as_ptr())?,
                Err(stop) => {
                    out.quiet -= 1;
                    return Err(stop);
                }
            }
        }
        out.quiet -= 1;
        let made = edit.finish_frozen()?;
        out.note(Change::Set, None, made.as_ptr())?;
        Ok(made)
    }
}

/// # Safety
///
/// As [`build`].
unsafe fn of_counter(
    out: &mut Out<'_>,
    draft: &counter::Draft,
    now: Pointer,
) -> Result<Option<Object>, Stop> {
    // SAFETY: the caller's.
    unsafe {
        let head = &draft.head;
        if !ptr::eq(now, head.base.get())
            && !head.is_fresh
            && (draft.is_read.get() && ffi::PyObject_RichCompareBool(now, head.base.get(), ffi::Py_EQ) != 1
                || ffi::PyLong_CheckExact(now) == 0)
        {
            return Err(Stop::Conflict(Vec::new()));
        }
        let Some(added) = draft.added.share() else { return Ok(None) };
        out.note(Change::Add, None, added.as_ptr())?;
        Ok(Some(draft.now(now)?))
    }
}

/// # Safety
///
/// As [`build`].
unsafe fn of_array(out: &mut Out<'_>, draft: &array::Draft, now: Pointer) -> Result<Option<Object>, Stop> {
    let head = &draft.head;
    if !ptr::eq(now, head.base.get()) && !head.is_fresh && draft.is_read.get() {
        return Err(Stop::Conflict(Vec::new()));
    }
    // SAFETY: the caller's. What was written was made of the base, which is there now.
    unsafe {
        let Some(made) = array::settled(out.types, draft)? else { return Ok(None) };
        let both = path::tuple(&[head.base.share().ok_or(Raised)?, made.clone()])?;
        out.note(Change::Patch, None, both.as_ptr())?;
        Ok(Some(made))
    }
}
