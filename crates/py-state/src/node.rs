//! The nodes of maps and vectors: objects of the collector's, because many maps share one node, and the collector must
//! see each reference exactly once.
//!
//! A node's references lie behind its head: first those to child nodes (or a vector's items), then the entries, a key
//! and a value each, and at last the entries' hashes. A node is never changed once a second map or vector may have it.
//! Until then it belongs to the edit whose number it carries, and only that edit changes it.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU16, AtomicU64, Ordering};

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::heap::{self, Layout, Type};
use ropewalk_capi::object::{Object, Raised};

/// The repr of a collection with more parts than this shows the first ones, and says how many there are more.
pub(crate) const MOST_SHOWN: usize = 1000;
/// So many are shown then.
pub(crate) const SHOWN: usize = 10;

/// An object of the interpreter.
pub(crate) type Pointer = *mut ffi::PyObject;

/// It holds objects of types that the collector knows: it may be nested deep, and the collector knows it unless it is
/// hidden.
const DEEP: u16 = 1;
/// All content was found to be immutable.
const FROZEN: u16 = 2;
/// It is deep and never changes, and the collector knows nothing that it holds. So no cycle goes through it.
const HIDDEN: u16 = 4;

/// A node of a map or a vector.
#[repr(C)]
pub(crate) struct Node {
    head: ffi::PyVarObject,
    /// The content's encoded text as `bytes`, or null. Any thread sets it once, from null.
    text: AtomicPtr<ffi::PyObject>,
    /// The number of the edit that made the node and may change it; no other edit has the same. Written before any
    /// other thread has the node.
    owner: u64,
    /// `DEEP`, `FROZEN` and `HIDDEN`. Any thread adds `FROZEN`.
    flags: AtomicU16,
    children: u16,
    /// A node of collisions may have many.
    entries: u32,
    /// For a map's node: which parts of a hash lead to an entry. Zero in a node of collisions.
    pub(crate) datamap: u32,
    /// For a map's node: which parts of a hash lead to a child.
    pub(crate) nodemap: u32,
    slots: [Pointer; 0],
}

/// The content type for `heap::make_type`, beside the object's head.
type Content = [usize; (size_of::<Node>() - size_of::<ffi::PyObject>()) / size_of::<usize>()];

const _: () = assert!(size_of::<Layout<Content>>() == size_of::<Node>());

/// The number of a new edit, which no other has.
pub(crate) fn new_owner() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Whether the collector may know objects of this one's type.
///
/// # Safety
///
/// `object` is alive.
#[inline]
pub(crate) unsafe fn is_collected(object: Pointer) -> bool {
    // SAFETY: the caller's.
    unsafe { ffi::PyType_IS_GC(ffi::Py_TYPE(object)) != 0 }
}

/// Whether the collector does not know an object that never changes. It will not know it later either: but for a
/// `dict`, which does change, objects are shown to the collector when they are made.
///
/// # Safety
///
/// `object` is alive.
#[inline]
pub(crate) unsafe fn is_hidden(object: Pointer) -> bool {
    // SAFETY: the caller's, and the address of a static type.
    unsafe {
        !is_collected(object)
            || ffi::PyObject_GC_IsTracked(object) == 0 && ffi::Py_TYPE(object) != &raw mut ffi::PyDict_Type
    }
}

/// Asks the processor to fetch the head of an object that is read soon. A walk over a map otherwise waits for each key
/// and value in turn, because they lie in memory in the order in which they were made.
#[inline]
pub(crate) fn fetch(object: Pointer) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, for which any address is right.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(object.cast());
        // A short text ends behind its head.
        _mm_prefetch::<_MM_HINT_T0>(object.cast::<i8>().wrapping_add(48));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = object;
}

/// As [`fetch`], of an object whose counts alone are touched.
#[inline]
fn fetch_head(object: Pointer) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, for which any address is right.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(object.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = object;
}

/// A new reference to the same object.
///
/// # Safety
///
/// `object` is alive.
#[inline]
pub(crate) unsafe fn same(object: Pointer) -> Pointer {
    // SAFETY: the caller's.
    unsafe { ffi::Py_INCREF(object) };
    object
}

impl Node {
    /// So many entries a node has at most.
    pub(crate) const MOST_ENTRIES: usize = u32::MAX as usize;

    /// Makes a node whose slots the caller fills before any other code of the interpreter runs.
    ///
    /// # Safety
    ///
    /// `kind` is the module's type of nodes, and the caller writes every slot.
    #[inline]
    pub(crate) unsafe fn make(
        kind: *mut ffi::PyTypeObject,
        owner: u64,
        children: usize,
        entries: usize,
    ) -> Result<*mut Self, Raised> {
        // Two hashes fit into the room of a pointer.
        let slots = children + 2 * entries + entries.div_ceil(2);
        // SAFETY: a type whose objects have a collector's head and this layout.
        unsafe {
            let node = ffi::PyObject_GC_NewVar::<Self>(kind, slots as ffi::Py_ssize_t);
            if node.is_null() {
                return Err(Raised);
            }
            (*node).text = AtomicPtr::new(null_mut());
            (*node).owner = owner;
            (*node).flags = AtomicU16::new(0);
            (*node).entries = entries as u32;
            (*node).children = children as u16;
            (*node).datamap = 0;
            (*node).nodemap = 0;
            Ok(node)
        }
    }

    /// How many entries it has.
    #[inline]
    pub(crate) fn entries(&self) -> usize {
        self.entries as usize
    }

    /// How many children, or items of a vector, it has.
    #[inline]
    pub(crate) fn children(&self) -> usize {
        self.children.into()
    }

    /// How many slots it has, for children of a vector's node: an edit fills them one by one.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.head.ob_size as usize
    }

    /// Sets how many of a vector's node's slots are children.
    ///
    /// # Safety
    ///
    /// `node` has room for so many, and belongs to the caller's edit; the places that it had before are the caller's.
    #[inline]
    pub(crate) unsafe fn set_children(node: *mut Self, children: usize) {
        // SAFETY: the caller's.
        unsafe { (*node).children = children as u16 };
    }

    /// The place of the child, or the item of a vector.
    ///
    /// # Safety
    ///
    /// `node` is a node with more than `at` children.
    #[inline]
    pub(crate) unsafe fn child(node: *mut Self, at: usize) -> *mut Pointer {
        // SAFETY: the caller's.
        unsafe { (&raw mut (*node).slots).cast::<Pointer>().add(at) }
    }

    /// The place of an entry's key; its value is in the next place.
    ///
    /// # Safety
    ///
    /// `node` is a node with more than `at` entries.
    #[inline]
    pub(crate) unsafe fn entry(node: *mut Self, at: usize) -> *mut Pointer {
        // SAFETY: the caller's; the entries lie behind the children.
        unsafe { (&raw mut (*node).slots).cast::<Pointer>().add((*node).children() + 2 * at) }
    }

    /// The place of an entry's hash.
    ///
    /// # Safety
    ///
    /// `node` is a node with more than `at` entries.
    #[inline]
    pub(crate) unsafe fn hash(node: *mut Self, at: usize) -> *mut u32 {
        // SAFETY: the caller's; the hashes lie behind the entries.
        unsafe {
            let slots = (&raw mut (*node).slots).cast::<Pointer>();
            slots.add((*node).references()).cast::<u32>().add(at)
        }
    }

    /// How many references lie in its slots.
    #[inline]
    fn references(&self) -> usize {
        self.children() + 2 * self.entries()
    }

    /// The references in its slots.
    ///
    /// # Safety
    ///
    /// `node` is a complete node that lives, unchanged, for as long as the slice.
    #[inline]
    pub(crate) unsafe fn held<'a>(node: *mut Self) -> &'a [Pointer] {
        // SAFETY: the caller's.
        unsafe {
            std::slice::from_raw_parts((&raw const (*node).slots).cast::<Pointer>(), (*node).references())
        }
    }

    /// Takes all references out of a node whose edit has moved them into another one.
    ///
    /// # Safety
    ///
    /// The node belongs to the caller's edit, and its references are released elsewhere.
    #[inline]
    pub(crate) unsafe fn forget(node: *mut Self) {
        // SAFETY: the caller's.
        unsafe {
            (*node).children = 0;
            (*node).entries = 0;
            (*node).datamap = 0;
            (*node).nodemap = 0;
        }
    }

    /// Whether the edit with this number may change the node.
    #[inline]
    pub(crate) fn is_of(&self, owner: u64) -> bool {
        owner != 0 && self.owner == owner
    }

    /// Whether it holds objects of types that the collector knows, so that it may be nested deep.
    #[inline]
    pub(crate) fn is_deep(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & DEEP != 0
    }

    /// Whether the collector knows the node.
    #[inline]
    pub(crate) fn is_known(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & (DEEP | HIDDEN) == DEEP
    }

    /// Shows a complete node to the collector, if that does not know it yet.
    ///
    /// # Safety
    ///
    /// `node` is complete, and only the caller's edit has it.
    #[inline]
    pub(crate) unsafe fn track(node: *mut Self) {
        // SAFETY: the caller's.
        unsafe {
            if !(*node).is_deep() {
                (*node).flags.fetch_or(DEEP, Ordering::Relaxed);
                ffi::PyObject_GC_Track(node.cast());
            }
        }
    }

    /// Hides the nodes of an edit that has ended from the collector, if that knows nothing that they hold. A state of
    /// many records would otherwise be walked by each full collection, and by others as its versions come. Returns
    /// whether the collector does not know the node.
    ///
    /// # Safety
    ///
    /// A complete node that no edit will change; what it holds never changes.
    pub(crate) unsafe fn hide(node: *mut Self, owner: u64) -> bool {
        // SAFETY: the caller's; a trie has few levels.
        unsafe {
            if !(*node).is_known() {
                return true;
            }
            // The collector of a free-threaded build stops all threads, and finds objects by itself.
            if cfg!(Py_GIL_DISABLED) || (*node).owner != owner {
                return false;
            }
            let mut hides = true;
            for &held in Self::held(node) {
                hides &= if ffi::Py_TYPE(held) == ffi::Py_TYPE(node.cast()) {
                    // Most are not known, or not of the edit, and need no call.
                    let child = held.cast::<Self>();
                    !(*child).is_known() || (*child).owner == owner && Self::hide(child, owner)
                } else {
                    hides && is_hidden(held)
                };
            }
            if hides {
                (*node).flags.fetch_or(HIDDEN, Ordering::Relaxed);
                ffi::PyObject_GC_UnTrack(node.cast());
            }
            hides
        }
    }

    /// Whether all content was found to be immutable.
    #[inline]
    pub(crate) fn is_frozen(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & FROZEN != 0
    }

    /// Notes that all content was found to be immutable. The node belongs to no edit that goes on.
    #[inline]
    pub(crate) fn set_frozen(&self) {
        self.flags.fetch_or(FROZEN, Ordering::Relaxed);
    }

    /// The encoded text, borrowed, or null.
    #[inline]
    pub(crate) fn text(&self) -> Pointer {
        self.text.load(Ordering::Acquire)
    }

    /// Keeps the encoded text, a `bytes` object, unless there is one already. The node belongs to no edit that goes on.
    pub(crate) fn set_text(&self, text: Object) {
        let raw = text.as_ptr();
        // Release: a thread that finds the text sees its bytes.
        if self.text.compare_exchange(null_mut(), raw, Ordering::Release, Ordering::Relaxed).is_ok() {
            std::mem::forget(text);
        }
    }
}

/// `tp_traverse`. There is no `tp_clear`, as for tuples: a cycle through an immutable object also goes through a
/// mutable one, which can be cleared.
#[entry]
unsafe extern "C" fn traverse(node: Pointer, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a tracked node, which is complete, and the collector's own function.
    unsafe {
        for &held in Node::held(node.cast()) {
            let answer = visit(held, arg);
            if answer != 0 {
                return answer;
            }
        }
        heap::visit_type(node, visit, arg)
    }
}

/// `tp_dealloc`. A trie has few levels, and what nests beyond them comes by `ropewalk_capi::nest`.
#[entry]
unsafe extern "C" fn dealloc(object: Pointer) {
    // SAFETY: the last reference is gone; an object of a heap type holds its type.
    unsafe {
        let node = object.cast::<Node>();
        let kind = ffi::Py_TYPE(object);
        if (*node).is_known() {
            ffi::PyObject_GC_UnTrack(object.cast());
        }
        ffi::Py_XDECREF((*node).text());
        if Node::held(node).len() > 2 {
            // What an old version has is seldom in the processor's caches.
            for &held in Node::held(node) {
                fetch_head(held);
            }
        }
        for &held in Node::held(node) {
            ffi::Py_DECREF(held);
        }
        ffi::PyObject_GC_Del(object.cast());
        ffi::Py_DECREF(kind.cast());
    }
}

/// Makes the type of nodes.
pub(crate) fn make_type(module: &Object) -> Result<Object, Raised> {
    let kind = heap::make_type::<Content>(
        module,
        Type {
            name: c"ropewalk._state._Node",
            doc: c"A part that maps or vectors share.",
            flags: ffi::Py_TPFLAGS_HAVE_GC
                | ffi::Py_TPFLAGS_IMMUTABLETYPE
                | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION,
            methods: Vec::new(),
            getters: Vec::new(),
            slots: &[
                (ffi::Py_tp_traverse, traverse as *mut c_void),
                (ffi::Py_tp_dealloc, dealloc as *mut c_void),
            ],
        },
    )?;
    // SAFETY: a new type that has no objects yet.
    unsafe { (*kind.as_ptr().cast::<ffi::PyTypeObject>()).tp_itemsize = size_of::<Pointer>() as _ };
    Ok(kind)
}
