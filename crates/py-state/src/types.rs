//! The state of the module: its types and shared objects, in the interpreter that has loaded it.

use std::ffi::c_void;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::errors::fail;
use ropewalk_capi::heap::{self, Type};
use ropewalk_capi::module::{self, Module};
use ropewalk_capi::object::{Object, Raised};

use crate::node::Pointer;

/// The module's objects; null before they are made and after they are gone.
#[repr(C)]
pub(crate) struct State {
    /// The type of the nodes of maps and vectors.
    pub(crate) node: Pointer,
    pub(crate) map: Pointer,
    pub(crate) map_builder: Pointer,
    pub(crate) map_iterator: Pointer,
    /// The types of `keys()`, `values()` and `items()`.
    pub(crate) map_views: [Pointer; 3],
    pub(crate) vector: Pointer,
    pub(crate) vector_builder: Pointer,
    pub(crate) vector_iterator: Pointer,
    /// The map without entries, which every empty map is.
    pub(crate) empty_map: Pointer,
    /// The vector without items, which every empty vector is.
    pub(crate) empty_vector: Pointer,
    /// What stands for no value in a difference.
    pub(crate) missing: Pointer,
    pub(crate) record: Pointer,
    pub(crate) form: Pointer,
    pub(crate) rule: Pointer,
    pub(crate) record_draft: Pointer,
    pub(crate) map_draft: Pointer,
    pub(crate) vector_draft: Pointer,
    pub(crate) counter_draft: Pointer,
    pub(crate) array_draft: Pointer,
    pub(crate) transaction: Pointer,
    pub(crate) store: Pointer,
    /// `kind_of(class)`: the `Record` of a class, or `None` for a class whose objects never change; it raises for
    /// others. Set by the package.
    pub(crate) kind_of: Pointer,
    /// `violated(transaction, path, access)`: the exception for an access that the contract does not declare. Set by
    /// the package.
    pub(crate) violated: Pointer,
    /// `plain(result)`: a result with values in the place of drafts. Set by the package.
    pub(crate) plain: Pointer,
    /// `misplaced(transaction, path, value, steps, text, part, is_key, error)`: the exception for a value that cannot
    /// be stored. Set by the package.
    pub(crate) misplaced: Pointer,
    /// `absent(class, name)`: the exception for a field that a record has not. Set by the package.
    pub(crate) absent: Pointer,
    /// `effect(call)`: a function and its arguments as they are kept until the commit; raises for what cannot be called
    /// then. Set by the package.
    pub(crate) effect: Pointer,
    /// The class `Err`. Set by the package.
    pub(crate) err: Pointer,
    /// What makes, checks and settles arrays: an object with methods. Set by the package.
    pub(crate) arrays: Pointer,
    /// NumPy's class of arrays, set by the package once there is an array; null or `None` before.
    pub(crate) array: Pointer,
    /// Classes that are leaves and keep no mark: a `dict` from each to `None`.
    pub(crate) leaves: Pointer,
    /// The name under which a class keeps its `Record`.
    pub(crate) record_name: Pointer,
}

pub(crate) static MODULE: Module<State> =
    Module::new(c"_state", c"Persistent maps and vectors, drafts of them, and transactions.");

impl State {
    /// Every reference of the state.
    pub(crate) fn references(&mut self) -> impl Iterator<Item = &mut Pointer> {
        [
            &mut self.node,
            &mut self.map,
            &mut self.map_builder,
            &mut self.map_iterator,
            &mut self.vector,
            &mut self.vector_builder,
            &mut self.vector_iterator,
            &mut self.empty_map,
            &mut self.empty_vector,
            &mut self.missing,
            &mut self.record,
            &mut self.form,
            &mut self.rule,
            &mut self.record_draft,
            &mut self.map_draft,
            &mut self.vector_draft,
            &mut self.counter_draft,
            &mut self.array_draft,
            &mut self.transaction,
            &mut self.store,
            &mut self.kind_of,
            &mut self.violated,
            &mut self.plain,
            &mut self.misplaced,
            &mut self.absent,
            &mut self.effect,
            &mut self.err,
            &mut self.arrays,
            &mut self.array,
            &mut self.leaves,
            &mut self.record_name,
        ]
        .into_iter()
        .chain(self.map_views.iter_mut())
    }
}

impl State {
    /// Whether an object is a draft.
    ///
    /// # Safety
    ///
    /// `object` is live.
    #[inline]
    pub(crate) unsafe fn is_draft(&self, object: Pointer) -> bool {
        // SAFETY: the caller's.
        let kind = unsafe { ffi::Py_TYPE(object) }.cast();
        kind == self.record_draft
            || kind == self.map_draft
            || kind == self.vector_draft
            || kind == self.counter_draft
            || kind == self.array_draft
    }
}

/// The state of the interpreter that a type of the module, or a subtype of one, belongs to.
///
/// # Safety
///
/// `kind` lives for as long as the state is used.
pub(crate) unsafe fn of_subtype<'a>(kind: *mut ffi::PyTypeObject) -> Result<&'a State, Raised> {
    // SAFETY: the caller's; only one thread fills the state, before there are types.
    unsafe { MODULE.state_of_base(kind) }
        .map(|state| &*state)
        .ok_or_else(|| fail(c"the interpreter is ending"))
}

/// The state of the interpreter that a type of the module belongs to.
///
/// # Safety
///
/// `kind` is one of the module's types, which are all final, and lives for as long as the state is used.
#[inline]
pub(crate) unsafe fn of<'a>(kind: *mut ffi::PyTypeObject) -> Result<&'a State, Raised> {
    // SAFETY: the caller's; the pointer is null once the module is gone.
    let state = unsafe { ffi::PyType_GetModuleState(kind).cast::<State>().as_ref() };
    state.filter(|state| !state.missing.is_null()).ok_or_else(|| fail(c"the interpreter is ending"))
}

/// The state of the module that a function of its table was called with.
///
/// # Safety
///
/// `module` is the module, and lives for as long as the state is used.
pub(crate) unsafe fn of_module<'a>(module: Pointer) -> Result<&'a State, Raised> {
    // SAFETY: the caller's; the references are null once the interpreter clears the module.
    let state = unsafe { ffi::PyModule_GetState(module).cast::<State>().as_ref() };
    state.filter(|state| !state.missing.is_null()).ok_or_else(|| fail(c"the interpreter is ending"))
}

#[entry]
unsafe extern "C" fn repr_missing(_: Pointer) -> Pointer {
    // SAFETY: the thread is attached.
    unsafe { ffi::PyUnicode_FromString(c"MISSING".as_ptr()) }
}

/// Makes what is neither a map's nor a vector's. The state is complete afterwards.
pub(crate) fn fill(state: &mut State, module: &Object) -> Result<(), Raised> {
    let kind = heap::make_type::<()>(
        module,
        Type {
            name: c"ropewalk._state.Missing",
            doc: c"The type of `MISSING`, which stands for no value in a difference.",
            flags: ffi::Py_TPFLAGS_IMMUTABLETYPE | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION,
            methods: Vec::new(),
            getters: Vec::new(),
            slots: &[
                (ffi::Py_tp_repr, repr_missing as *mut c_void),
                (ffi::Py_tp_dealloc, heap::dealloc_untracked::<()> as *mut c_void),
            ],
        },
    )?;
    // SAFETY: a type with this content; our fresh module, and live objects.
    unsafe {
        let missing = heap::make(kind.as_ptr().cast(), ())?;
        module::add(module, c"Missing", kind.as_ptr())?;
        module::add(module, c"MISSING", missing.as_ptr())?;
        state.missing = missing.into_ptr();
    }
    Ok(())
}
