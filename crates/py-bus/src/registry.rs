//! The listeners of a Python bus: the table that every bus has, under the interpreter's lock.
//!
//! Publishers do not use the table. They use a `Route`, the entries of one topic, found by its name in a dictionary and
//! valid while the registry has the version that the route was made from. Every change of the table invalidates all
//! routes. (The Rust bus has lists that hazard pointers protect instead: its publishers hold no interpreter lock, which
//! protects a route at no cost.)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pyo3_ffi as ffi;
use ropewalk_bus::{Listener, Overflow, Pattern, Table};

use super::queue::Queue;
use super::recent::Recent;
use ropewalk_capi::guarded::{Guard, Guarded};
use ropewalk_capi::heap::Field;
use ropewalk_capi::object::Object;

/// The receiver of a message.
#[derive(Clone)]
pub(super) enum Target {
    /// A handler, called in the publisher's thread; also with the topic, if the flag is set.
    Handler(Field, bool),
    Queue(Arc<Queue>),
}

/// One listener's entry.
#[derive(Clone)]
pub(super) struct Entry {
    /// Called with the message; a false result rejects it. Empty for none.
    pub(super) filter: Field,
    pub(super) target: Target,
    /// False once the entry is removed, also for deliveries under way. Written under the guard, read without it: other
    /// threads may see it a moment late, the thread that wrote it never; hence relaxed.
    pub(super) active: Arc<AtomicBool>,
    /// For a link: its policy when it is full.
    pub(super) link: Option<Overflow>,
}

/// A list of plain handlers that a publisher may be walking through, and the entry of each.
struct Live {
    list: *mut ffi::PyObject,
    ids: Arc<[u64]>,
}

#[derive(Default)]
struct Listeners {
    table: Table<Entry>,
    live: Vec<Live>,
}

// SAFETY: it holds references into the interpreter, which any attached thread may use; see `Guarded`.
unsafe impl Send for Listeners {}

/// See the module.
pub(super) struct Registry {
    state: Guarded<Listeners>,
    /// Changes with the entries. Written under the guard; a publisher that still reads the old number counts as
    /// publishing before the change.
    version: AtomicU64,
    closed: AtomicBool,
    /// See `orphan`.
    orphaned: AtomicBool,
    /// Replaces a removed handler in a list that is being walked through.
    nothing: Field,
    /// The routes that were made, by topic: a dictionary.
    routes: Field,
    /// A cache of some of them.
    pub(super) recent: Recent,
}

impl Registry {
    pub(super) fn new(nothing: Object, routes: Object) -> Self {
        Self {
            routes: Field::new(routes),
            recent: Recent::default(),
            state: Guarded::new(Listeners::default()),
            version: AtomicU64::new(1),
            closed: AtomicBool::new(false),
            orphaned: AtomicBool::new(false),
            nothing: Field::new(nothing),
        }
    }

    fn lock(&self) -> Guard<'_, Listeners> {
        // SAFETY: the functions of this file are attached, and run no Python code under the guard.
        unsafe { self.state.lock() }
    }

    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn is_orphaned(&self) -> bool {
        self.orphaned.load(Ordering::Acquire)
    }

    /// Adds an entry, unless the bus is closed; returns its number.
    pub(super) fn add(&self, pattern: Pattern, priority: i64, entry: Entry) -> Option<u64> {
        let mut state = self.lock();
        let added = state.table.add(pattern, priority, entry);
        self.version.fetch_add(1, Ordering::Release);
        drop(state);
        added.ok() // A refused entry is dropped here, without the guard.
    }

    /// Removes an entry; false if it was removed before. When this returns, no delivery under way in this thread calls
    /// it any more.
    pub(super) fn remove(&self, id: u64) -> bool {
        let mut state = self.lock();
        let gone = state.table.remove(id);
        if gone.is_empty() {
            return false;
        }
        for listener in &gone {
            listener.target.active.store(false, Ordering::Relaxed);
        }
        self.version.fetch_add(1, Ordering::Release);
        let lists: Vec<(Object, usize)> = state
            .live
            .iter()
            .filter_map(|live| {
                let at = live.ids.iter().position(|&known| known == id)?;
                // SAFETY: a list is taken out of `live` before its last reference goes.
                unsafe { Object::share(live.list) }.ok().map(|list| (list, at))
            })
            .collect();
        drop(state);
        for (list, at) in lists {
            if let (Some(nothing), Ok(at)) = (self.nothing.share(), ffi::Py_ssize_t::try_from(at)) {
                // SAFETY: a live list, an index inside it; SetItem takes the reference over.
                unsafe { ffi::PyList_SetItem(list.as_ptr(), at, nothing.into_ptr()) };
            }
        }
        // Last, and without the guard: the drop may run any code.
        drop(gone);
        self.forget_routes();
        true
    }

    /// Reserves a number for a link, which listens to nothing yet.
    pub(super) fn reserve(&self) -> u64 {
        self.lock().table.reserve()
    }

    /// Makes a link listen to these patterns instead of its last ones, after all other listeners.
    pub(super) fn set_patterns(&self, id: u64, queue: &Arc<Queue>, patterns: Vec<(Pattern, Overflow)>) {
        let entries = patterns.into_iter().map(|(pattern, overflow)| {
            let entry = Entry {
                filter: Field::empty(),
                target: Target::Queue(Arc::clone(queue)),
                active: Arc::new(AtomicBool::new(true)),
                link: Some(overflow),
            };
            (pattern, entry)
        });
        let entries: Vec<_> = entries.collect();
        let gone = self.lock().table.set_alternatives(id, entries);
        self.version.fetch_add(1, Ordering::Release);
        drop(gone);
        self.forget_routes();
    }

    /// The routes by topic, borrowed; null once the collector has cleared them.
    #[inline]
    pub(super) fn routes(&self) -> *mut ffi::PyObject {
        self.routes.get()
    }

    /// Drops all routes: outdated ones keep removed listeners alive.
    pub(super) fn forget_routes(&self) {
        let recent = self.recent.forget();
        if let Some(routes) = self.routes.share() {
            // SAFETY: a live dictionary.
            unsafe { ffi::PyDict_Clear(routes.as_ptr()) };
        }
        drop(recent);
    }

    /// The entries for a topic with their numbers, in the order of service, and the version that they belong to.
    pub(super) fn matching(&self, topic: &str) -> (Vec<(u64, Entry)>, u64) {
        let state = self.lock();
        let entries = state.table.matching(topic);
        (entries.map(|listener| (listener.id, listener.target.clone())).collect(), self.version())
    }

    /// Registers a list of plain handlers for as long as it may be walked through.
    pub(super) fn watch(&self, list: *mut ffi::PyObject, ids: Arc<[u64]>) {
        self.lock().live.push(Live { list, ids });
    }

    /// Unregisters a list, before its last reference is dropped.
    pub(super) fn unwatch(&self, list: *mut ffi::PyObject) {
        let mut state = self.lock();
        if let Some(at) = state.live.iter().position(|live| live.list == list) {
            state.live.swap_remove(at);
        }
    }

    /// The patterns that this process listens to, each with its overflow policy. Handlers have no queue and must miss
    /// nothing.
    pub(super) fn local_patterns(&self) -> Vec<(Pattern, Overflow)> {
        let state = self.lock();
        let local = state.table.listeners().iter().filter(|listener| listener.target.link.is_none());
        local
            .map(|listener| {
                let overflow = match &listener.target.target {
                    Target::Handler(..) => Overflow::Block,
                    Target::Queue(queue) => queue.overflow,
                };
                (listener.pattern.clone(), overflow)
            })
            .collect()
    }

    /// All current listeners.
    pub(super) fn listeners(&self) -> Vec<Listener<Entry>> {
        self.lock().table.listeners().to_vec()
    }

    /// Closes the registry: no entry is added any more, and every queue is closed.
    pub(super) fn close(&self) {
        self.end(Queue::close);
    }

    /// Gives the bus up in a forked child, where its queues and its publishers get an error that says so.
    pub(super) fn orphan(&self) {
        self.orphaned.store(true, Ordering::Release);
        self.end(Queue::orphan);
    }

    fn end(&self, end_queue: fn(&Queue)) {
        let gone = {
            let mut state = self.lock();
            self.closed.store(true, Ordering::Release);
            self.version.fetch_add(1, Ordering::Release);
            state.table.close()
        };
        for Listener { target: entry, .. } in gone {
            entry.active.store(false, Ordering::Relaxed);
            if let Target::Queue(queue) = &entry.target {
                end_queue(queue);
            }
        }
        self.forget_routes();
    }

    /// The objects that the entries hold, for the garbage collector.
    ///
    /// # Safety
    ///
    /// Called from `tp_traverse`.
    pub(super) unsafe fn fields(&self) -> impl Iterator<Item = &Field> {
        // SAFETY: the caller's.
        let state = unsafe { &*self.state.in_collection() };
        let entries = state.table.listeners().iter().flat_map(|listener| listener.target.fields());
        entries.chain([&self.nothing, &self.routes]).chain(self.recent.fields())
    }

    /// Takes the entries away, to break a cycle.
    ///
    /// # Safety
    ///
    /// Called from `tp_clear`.
    pub(super) unsafe fn clear(&self) {
        // SAFETY: called from `tp_clear`; the table is dropped once nothing refers to the state.
        let table = std::mem::take(unsafe { &mut (*self.state.in_collection()).table });
        drop((table, self.routes.take(), self.recent.forget()));
    }
}

impl Entry {
    /// The objects that the entry holds.
    pub(super) fn fields(&self) -> impl Iterator<Item = &Field> {
        let handler = match &self.target {
            Target::Handler(handler, _) => Some(handler),
            Target::Queue(_) => None,
        };
        handler.into_iter().chain([&self.filter])
    }

    /// Whether the entry gets reports by a feed of its own.
    pub(super) fn has_feed(&self) -> bool {
        matches!(&self.target, Target::Queue(queue) if queue.feed.is_some())
    }

    /// The handler, if it takes every message and only the message.
    pub(super) fn plain(&self) -> Option<&Field> {
        match &self.target {
            Target::Handler(handler, false) if self.filter.get().is_null() => Some(handler),
            _ => None,
        }
    }
}
