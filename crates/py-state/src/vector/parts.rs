//! The parts of a vector: a trie of full leaves, and a tail of the last items.
//!
//! Every leaf of the trie has 32 items, and the tail from one to 32, or none in an empty vector. All leaves are at the
//! same depth, and no node above them lies alone below another one. So the shape follows from the number of items.
//!
//! No Python code runs between two steps of a change. What falls out of nodes is kept until the change is complete,
//! because its end may run any code.

use pyo3_ffi as ffi;
use ropewalk_capi::object::{Object, Raised};
use ropewalk_state::bits::{FANOUT, WIDTH, leaves_end, slot};

use super::tree::{first, leaves, path, push, with_item, with_leaf, with_room};
use crate::node::{Node, Pointer};

/// A vector's parts, borrowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub(super) root: *mut Node,
    pub(super) tail: *mut Node,
    pub(super) count: usize,
    /// The lowest bit of an index that selects a child of the root.
    pub(super) shift: u32,
}

impl View {
    /// The leaf or the tail that has an item.
    ///
    /// # Safety
    ///
    /// The parts are alive, and have more than `index` items.
    #[inline]
    pub(super) unsafe fn leaf(self, index: usize) -> *mut Node {
        if index >= leaves_end(self.count) {
            return self.tail;
        }
        let (mut node, mut shift) = (self.root, self.shift);
        // SAFETY: the caller's.
        unsafe {
            while shift > 0 {
                node = (*Node::child(node, slot(index, shift))).cast();
                shift -= WIDTH;
            }
        }
        node
    }

    /// An item, borrowed.
    ///
    /// # Safety
    ///
    /// The parts are alive.
    #[inline]
    pub(super) unsafe fn get(self, index: usize) -> Option<Pointer> {
        // SAFETY: the caller's.
        unsafe { (index < self.count).then(|| *Node::child(self.leaf(index), slot(index, 0))) }
    }
}

/// A vector's parts, owned.
#[derive(Debug, Clone)]
pub(super) struct Parts {
    root: Object,
    tail: Object,
    count: usize,
    shift: u32,
}

/// What fell out of the nodes of an edit. To drop it may run any code.
#[derive(Default)]
pub(super) struct Fallen {
    _objects: [Option<Object>; 2],
}

impl Parts {
    /// New references to the parts of a vector.
    ///
    /// # Safety
    ///
    /// The parts are alive.
    pub(super) unsafe fn share(view: View) -> Result<Self, Raised> {
        // SAFETY: the caller's.
        unsafe {
            Ok(Self {
                root: Object::share(view.root.cast())?,
                tail: Object::share(view.tail.cast())?,
                count: view.count,
                shift: view.shift,
            })
        }
    }

    /// The parts of a vector without items.
    ///
    /// # Safety
    ///
    /// The module's type of nodes.
    pub(super) unsafe fn empty(kind: *mut ffi::PyTypeObject) -> Result<Self, Raised> {
        // SAFETY: the caller's; a node without slots is complete.
        let node = unsafe { Object::own(Node::make(kind, 0, 0, 0)?.cast())? };
        Ok(Self { root: node.clone(), tail: node, count: 0, shift: WIDTH })
    }

    /// The parts, borrowed.
    #[inline]
    pub(super) fn view(&self) -> View {
        View {
            root: self.root.as_ptr().cast(),
            tail: self.tail.as_ptr().cast(),
            count: self.count,
            shift: self.shift,
        }
    }

    /// Passes the root and the tail on.
    pub(super) fn into_nodes(self) -> [Object; 2] {
        [self.root, self.tail]
    }

    /// The root and the tail.
    pub(super) fn nodes(&self) -> [&Object; 2] {
        [&self.root, &self.tail]
    }

    /// Appends an item.
    ///
    /// # Safety
    ///
    /// A live item; `owner` is the number of the edit that has these parts, or 0.
    pub(super) unsafe fn append(&mut self, item: Pointer, owner: u64) -> Result<(), Raised> {
        // SAFETY: the caller's.
        unsafe {
            let tail = self.view().tail;
            let kind = ffi::Py_TYPE(tail.cast());
            if (*tail).children() < FANOUT {
                // In an edit the tail of a vector with leaves will probably be a leaf, too.
                let room = if self.count >= FANOUT { FANOUT } else { 0 };
                if let Some(longer) = with_room(tail, owner, room)? {
                    self.tail = longer;
                }
                push(self.view().tail, item);
                self.count += 1;
                return Ok(());
            }
            let fresh = Node::make(kind, owner, if owner == 0 { 1 } else { FANOUT }, 0)?;
            Node::set_children(fresh, 0);
            let fresh = Object::own(fresh.cast())?;
            // The trie is full if its leaves are as many as a root at this height can have below it.
            if leaves_end(self.count) >> self.shift == FANOUT {
                let path = path(self.tail.clone(), self.shift, owner)?;
                let above = Node::make(kind, owner, if owner == 0 { 2 } else { FANOUT }, 0)?;
                Node::set_children(above, 0);
                push(above, self.root.as_ptr());
                push(above, path.as_ptr());
                self.root = Object::own(above.cast())?;
                self.shift += WIDTH;
            } else if let Some(root) =
                with_leaf(self.view().root, self.shift, leaves_end(self.count), &self.tail, owner)?
            {
                self.root = root;
            }
            push(fresh.as_ptr().cast(), item);
            self.tail = fresh;
            self.count += 1;
            Ok(())
        }
    }

    /// Replaces an item, unless it is this very object. Returns whether that has changed the parts, besides what fell
    /// out of them.
    ///
    /// # Safety
    ///
    /// As for [`append`](Self::append); there are more than `index` items.
    pub(super) unsafe fn set(
        &mut self,
        index: usize,
        item: Pointer,
        owner: u64,
    ) -> Result<(bool, Fallen), Raised> {
        // SAFETY: the caller's.
        unsafe {
            if self.view().get(index) == Some(item) {
                return Ok((false, Fallen::default()));
            }
            let (mut fallen, item) = (None, &Object::share(item)?);
            if index >= leaves_end(self.count) {
                if let Some(tail) = with_item(self.view().tail, 0, index, item, owner, &mut fallen)? {
                    self.tail = tail;
                }
            } else if let Some(root) =
                with_item(self.view().root, self.shift, index, item, owner, &mut fallen)?
            {
                self.root = root;
            }
            Ok((true, Fallen { _objects: [fallen, None] }))
        }
    }

    /// Keeps the first items only.
    ///
    /// # Safety
    ///
    /// As for [`append`](Self::append); there are more than `count` items.
    pub(super) unsafe fn truncate(&mut self, count: usize, owner: u64) -> Result<Fallen, Raised> {
        // SAFETY: the caller's; leaves within a trie are full.
        unsafe {
            let view = self.view();
            let kind = ffi::Py_TYPE(view.root.cast());
            if count == 0 {
                let Self { root, tail, .. } = std::mem::replace(self, Self::empty(kind)?);
                return Ok(Fallen { _objects: [Some(root), Some(tail)] });
            }
            let (end, before) = (leaves_end(count), leaves_end(self.count));
            if end == before && (*view.tail).is_of(owner) && count + 1 == self.count {
                // A pop of an edit.
                let last = Object::own(*Node::child(view.tail, count - end))?;
                Node::set_children(view.tail, count - end);
                self.count = count;
                return Ok(Fallen { _objects: [Some(last), None] });
            }
            let tail = first(view.leaf(count - 1), count - end, owner)?;
            let (mut root, mut shift) = (self.root.clone(), self.shift);
            if end == 0 {
                root = Object::own(Node::make(kind, 0, 0, 0)?.cast())?;
                shift = WIDTH;
            } else if end < before {
                root = leaves(view.root, shift, end, owner)?;
                while shift > WIDTH && (*root.as_ptr().cast::<Node>()).children() == 1 {
                    root = Object::share(*Node::child(root.as_ptr().cast(), 0))?;
                    shift -= WIDTH;
                }
            }
            let old = std::mem::replace(self, Self { root, tail, count, shift });
            Ok(Fallen { _objects: [Some(old.root), Some(old.tail)] })
        }
    }
}
