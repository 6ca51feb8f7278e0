//! Many changes to one map, in nodes that the edit makes once and then changes in place.

use std::ffi::{c_int, c_void};

use pyo3_ffi as ffi;
use ropewalk_capi::object::{Object, Raised};

use super::change::{Cut, Effects, Put, cut, put};
use super::entry::Entry;
use super::find::find;
use super::key::{folded, hash_of};
use super::object;
use crate::node::{Node, Pointer, new_owner};

/// An edit of a map. Comparisons of keys run Python code, which must not reach the same edit: the exclusive reference
/// stands for that, and an owner that Python code can reach checks it.
#[derive(Debug)]
pub(crate) struct Edit {
    /// The map that the edit began with, or that it has made last.
    base: Object,
    root: Object,
    count: usize,
    owner: u64,
}

impl Edit {
    /// Begins with the entries of a map.
    ///
    /// # Safety
    ///
    /// A live map.
    pub(crate) unsafe fn new(map: Pointer) -> Self {
        // SAFETY: the caller's; a live object is not null.
        unsafe {
            let share = |pointer| Object::share(pointer).unwrap_or_else(|Raised| Object::none());
            let root = share(object::root(map).cast());
            Self { base: share(map), root, count: object::count(map), owner: new_owner() }
        }
    }

    fn root(&self) -> *mut Node {
        self.root.as_ptr().cast()
    }

    /// The type of the maps that it makes.
    pub(super) fn kind(&self) -> *mut ffi::PyTypeObject {
        // SAFETY: a live object.
        unsafe { ffi::Py_TYPE(self.base.as_ptr()) }
    }

    /// How many entries it has now.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The value of a key, borrowed until the edit's next change.
    ///
    /// # Safety
    ///
    /// A live key, which the caller keeps alive. Python code may run.
    pub(crate) unsafe fn get(&self, key: Pointer) -> Result<Option<Pointer>, Raised> {
        // SAFETY: the caller's.
        unsafe { find(self.root(), key, folded(hash_of(key)?)) }
    }

    /// Sets an entry.
    ///
    /// # Safety
    ///
    /// Live objects, which the caller keeps alive. Python code may run.
    pub(crate) unsafe fn set(&mut self, key: Pointer, value: Pointer) -> Result<(), Raised> {
        // SAFETY: the caller's; what falls out is dropped here, with the edit complete.
        unsafe { self.put(key, value).map(drop) }
    }

    /// Sets an entry, and returns what fell out of the nodes: to drop it may run any code.
    ///
    /// # Safety
    ///
    /// As for [`set`](Self::set).
    pub(super) unsafe fn put(&mut self, key: Pointer, value: Pointer) -> Result<Fallen, Raised> {
        // SAFETY: the caller's; nothing but this call changes the nodes.
        unsafe {
            let new = Entry { hash: folded(hash_of(key)?), key, value };
            let mut effects = Effects::default();
            let made = put(self.root(), 0, new, self.owner, &mut effects)?;
            let root =
                if let Put::Node(root) = made { Some(std::mem::replace(&mut self.root, root)) } else { None };
            self.count += usize::from(effects.counted);
            Ok(Fallen { _effects: effects, _root: root })
        }
    }

    /// Deletes an entry; returns whether there was one.
    ///
    /// # Safety
    ///
    /// A live key, which the caller keeps alive. Python code may run.
    pub(crate) unsafe fn delete(&mut self, key: Pointer) -> Result<bool, Raised> {
        // SAFETY: the caller's; what falls out is dropped here, with the edit complete.
        unsafe { Ok(self.cut(key)?.is_some()) }
    }

    /// Deletes an entry; returns what fell out of the nodes if there was one.
    ///
    /// # Safety
    ///
    /// As for [`delete`](Self::delete).
    pub(super) unsafe fn cut(&mut self, key: Pointer) -> Result<Option<Fallen>, Raised> {
        // SAFETY: the caller's; nothing but this call changes the nodes.
        unsafe {
            let mut effects = Effects::default();
            let hash = folded(hash_of(key)?);
            let root = match cut(self.root(), 0, key, hash, self.owner, &mut effects)? {
                Cut::Missing => return Ok(None),
                Cut::Node(root) => Some(std::mem::replace(&mut self.root, root)),
                Cut::Same => None,
                Cut::One(_) => unreachable!("the top of a trie keeps its last entry"),
            };
            self.count -= 1;
            Ok(Some(Fallen { _effects: effects, _root: root }))
        }
    }

    /// The map with the entries of now. The edit can go on.
    pub(crate) fn finish(&mut self) -> Result<Object, Raised> {
        // SAFETY: a live map, whose type is the module's; with a new number the edit changes none of the map's nodes.
        unsafe {
            if self.root() != object::root(self.base.as_ptr()) {
                let map = object::make(self.kind(), self.root.clone(), self.count)?;
                self.owner = new_owner();
                self.base = map;
            }
        }
        Ok(self.base.clone())
    }

    /// As [`finish`](Self::finish), of keys and values that were all found to be immutable: the map is marked so.
    pub(crate) fn finish_frozen(&mut self) -> Result<Object, Raised> {
        // SAFETY: the edit holds its root, whose nodes it changes no more.
        unsafe {
            Node::hide(self.root(), self.owner);
            (*self.root()).set_frozen();
        }
        self.finish()
    }

    /// Shows what the edit holds to the collector.
    ///
    /// # Safety
    ///
    /// Called from `tp_traverse` of the edit's owner with its arguments.
    pub(crate) unsafe fn visit(&self, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
        // SAFETY: the caller's; live objects.
        unsafe {
            let answer = visit(self.base.as_ptr(), arg);
            if answer != 0 { answer } else { visit(self.root.as_ptr(), arg) }
        }
    }
}

/// What fell out of the nodes of an edit. To drop it may run any code.
pub(super) struct Fallen {
    _effects: Effects,
    _root: Option<Object>,
}
