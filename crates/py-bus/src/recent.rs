//! The routes that publishers found last, by the identity of the object that named the topic.
//!
//! Most programs publish to few topics, each named by one string, and the look-up in the dictionary of routes would be
//! a third of the time that a message takes from its publisher to its receiver. There are so few places that they keep
//! nothing alive for long. They are used only where the interpreter lock orders the threads; a free-threaded build
//! always looks up.

use pyo3_ffi as ffi;

use ropewalk_capi::heap::Field;
use ropewalk_capi::object::Object;

/// A power of two.
const PLACES: usize = 8;

/// One topic and its route, or two nulls. Both are changed together, and no Python code runs between.
struct Place {
    topic: Field,
    route: Field,
}

/// See the module.
pub(super) struct Recent([Place; PLACES]);

impl Default for Recent {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Place { topic: Field::empty(), route: Field::empty() }))
    }
}

impl Recent {
    /// The only place in which this topic may be. Objects are at least 16 bytes apart.
    #[inline]
    fn place(&self, topic: *mut ffi::PyObject) -> &Place {
        let number = topic.addr() >> 4;
        &self.0[(number ^ (number >> 3)) % PLACES]
    }

    /// The route that is cached for this object, borrowed, perhaps out of date; null for none.
    #[inline]
    pub(super) fn recall(&self, topic: *mut ffi::PyObject) -> *mut ffi::PyObject {
        if cfg!(Py_GIL_DISABLED) {
            return std::ptr::null_mut();
        }
        let place = self.place(topic);
        if place.topic.get() == topic { place.route.get() } else { std::ptr::null_mut() }
    }

    /// Caches the route of a topic that is a plain string; other objects could refer to the bus.
    ///
    /// # Safety
    ///
    /// Both are live objects, and the thread is attached.
    pub(super) unsafe fn remember(&self, topic: *mut ffi::PyObject, route: *mut ffi::PyObject) {
        // SAFETY: the caller's.
        unsafe {
            if cfg!(Py_GIL_DISABLED) || ffi::PyUnicode_CheckExact(topic) == 0 {
                return;
            }
            let (Ok(named), Ok(route)) = (Object::share(topic), Object::share(route)) else { return };
            let place = self.place(topic);
            let before = (place.topic.take(), place.route.take());
            place.topic.set(named);
            place.route.set(route);
            // Last: the drop may run any code.
            drop(before);
        }
    }

    /// Takes everything out. The caller drops it where destructors can do no harm.
    #[must_use]
    pub(super) fn forget(&self) -> Vec<Object> {
        if cfg!(Py_GIL_DISABLED) {
            return Vec::new();
        }
        self.0.iter().flat_map(|place| [place.topic.take(), place.route.take()]).flatten().collect()
    }

    /// The objects held, for the garbage collector.
    pub(super) fn fields(&self) -> impl Iterator<Item = &Field> {
        self.0.iter().flat_map(|place| [&place.topic, &place.route])
    }
}
