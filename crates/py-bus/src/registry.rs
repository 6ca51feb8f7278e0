//! Who listens to what on a bus of Python's: the table that every bus has, under the interpreter's lock.
//!
//! Publishers do not look here. They use a `Route`, the entries of one topic, found by its name in a dictionary and
//! good for as long as the registry's version is the one that it was made from. Every change of the table makes all
//! routes out of date. (The Rust bus has lists that hazard pointers protect instead: its publishers have no lock of an
//! interpreter, which keeps a route whole at no cost.)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pyo3_ffi as ffi;
use ropewalk_bus::{Listener, Overflow, Pattern, Table};

use super::queue::Queue;
use super::recent::Recent;
use ropewalk_capi::guarded::{Guard, Guarded};
use ropewalk_capi::heap::Field;
use ropewalk_capi::object::Object;

/// Who gets a message.
#[derive(Clone)]
pub(super) enum Target {
    /// Is called in the publisher's thread; with the topic too, if so marked.
    Handler(Field, bool),
    Queue(Arc<Queue>),
}

/// What is served for one who listens.
#[derive(Clone)]
pub(super) struct Entry {
    /// Called with the message; a false answer keeps it away. Empty for none.
    pub(super) filter: Field,
    pub(super) target: Target,
    /// False once it listens no more, also for deliveries under way. Written under the guard, read without: late by a
    /// moment for other threads, never for the thread that wrote it; hence relaxed.
    pub(super) active: Arc<AtomicBool>,
    /// Of a link: the policy for when it is full.
    pub(super) link: Option<Overflow>,
}

/// A list of plain handlers that a publisher may be walking through, by which entry each of them is.
struct Live {
    list: *mut ffi::PyObject,
    ids: Arc<[u64]>,
}

#[derive(Default)]
struct Listeners {
    table: Table<Entry>,
    live: Vec<Live>,
}

// SAFETY: what is in it are references into the interpreter, which any attached thread may use; see `Guarded`.
unsafe impl Send for Listeners {}

/// See the module.
pub(super) struct Registry {
    state: Guarded<Listeners>,
    /// Changes with the entries. Written under the guard; a publisher that reads the old number a moment later has
    /// published before the change.
    version: AtomicU64,
    closed: AtomicBool,
    /// Takes the place of a handler that listens no more in a list that is being walked through.
    nothing: Field,
    /// The routes that were made, by topic: a dictionary.
    routes: Field,
    /// Some of them again.
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
            nothing: Field::new(nothing),
        }
    }

    fn lock(&self) -> Guard<'_, Listeners> {
        // SAFETY: the functions of this file are attached, and run nothing of the interpreter under the guard.
        unsafe { self.state.lock() }
    }

    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Adds an entry, unless the bus is closed; its number.
    pub(super) fn add(&self, pattern: Pattern, priority: i64, entry: Entry) -> Option<u64> {
        let mut state = self.lock();
        let added = state.table.add(pattern, priority, entry);
        self.version.fetch_add(1, Ordering::Release);
        drop(state);
        added.ok() // One that was refused goes here, without the guard.
    }

    /// Takes an entry away; false if it was gone already. When this returns, no delivery that this thread is in the
    /// middle of calls it any more.
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
                // SAFETY: a live list, a place inside it; SetItem takes the reference over.
                unsafe { ffi::PyList_SetItem(list.as_ptr(), at, nothing.into_ptr()) };
            }
        }
        // Last, and without the guard: what goes may run anything.
        drop(gone);
        self.forget_routes();
        true
    }

    /// A number for a link, which listens to nothing yet.
    pub(super) fn reserve(&self) -> u64 {
        self.lock().table.reserve()
    }

    /// Has a link listen to these patterns in place of those that it listened to, after everybody else.
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

    /// The routes by topic, borrowed; null when the collector has taken them.
    #[inline]
    pub(super) fn routes(&self) -> *mut ffi::PyObject {
        self.routes.get()
    }

    /// Routes that are out of date keep alive who listens no more.
    pub(super) fn forget_routes(&self) {
        let recent = self.recent.forget();
        if let Some(routes) = self.routes.share() {
            // SAFETY: a live dictionary.
            unsafe { ffi::PyDict_Clear(routes.as_ptr()) };
        }
        drop(recent);
    }

    /// The entries for a topic by their numbers, in the order of service, and the version that they belong to.
    pub(super) fn matching(&self, topic: &str) -> (Vec<(u64, Entry)>, u64) {
        let state = self.lock();
        let entries = state.table.matching(topic);
        (entries.map(|listener| (listener.id, listener.target.clone())).collect(), self.version())
    }

    /// Remembers a list of plain handlers for as long as it may be walked through.
    pub(super) fn watch(&self, list: *mut ffi::PyObject, ids: Arc<[u64]>) {
        self.lock().live.push(Live { list, ids });
    }

    /// Forgets it, before its last reference goes.
    pub(super) fn unwatch(&self, list: *mut ffi::PyObject) {
        let mut state = self.lock();
        if let Some(at) = state.live.iter().position(|live| live.list == list) {
            state.live.swap_remove(at);
        }
    }

    /// The patterns that are listened to in this process, each with what happens to a message without room. Handlers
    /// have no queue, and are to miss nothing.
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

    /// Everybody who listens, as it is now.
    pub(super) fn listeners(&self) -> Vec<Listener<Entry>> {
        self.lock().table.listeners().to_vec()
    }

    /// Ends it: no entry is added any more, and every queue is closed.
    pub(super) fn close(&self) {
        let gone = {
            let mut state = self.lock();
            self.closed.store(true, Ordering::Release);
            self.version.fetch_add(1, Ordering::Release);
            state.table.close()
        };
        for Listener { target: entry, .. } in gone {
            entry.active.store(false, Ordering::Relaxed);
            if let Target::Queue(queue) = &entry.target {
                queue.close();
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
        // SAFETY: the caller's; the table is dropped once nothing refers to the state.
        let table = std::mem::take(unsafe { &mut (*self.state.in_collection()).table });
        drop((table, self.routes.take(), self.recent.forget()));
    }
}

impl Entry {
    /// The objects that it holds.
    pub(super) fn fields(&self) -> impl Iterator<Item = &Field> {
        let handler = match &self.target {
            Target::Handler(handler, _) => Some(handler),
            Target::Queue(_) => None,
        };
        handler.into_iter().chain([&self.filter])
    }

    /// Whether reports come to it by a feed of its own.
    pub(super) fn has_feed(&self) -> bool {
        matches!(&self.target, Target::Queue(queue) if queue.feed.is_some())
    }

    /// A handler that is called with the message, whatever it is.
    pub(super) fn plain(&self) -> Option<&Field> {
        match &self.target {
            Target::Handler(handler, false) if self.filter.get().is_null() => Some(handler),
            _ => None,
        }
    }
}
