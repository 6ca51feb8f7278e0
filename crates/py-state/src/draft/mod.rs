//! Drafts: what a transaction sees of the state, and what it does to it.
//!
//! A draft stands for one container of the state, at one place: a record, a map, a vector, a counter, or an array. It
//! is made when the transaction first touches the place, and once. It keeps the container that was there and a cell for
//! each place below that was touched, and changes nothing else. A commit walks the drafts from the root down (`build`):
//! it compares what was read with what is there now, and makes new containers where something was written.
//!
//! | file | what |
//! |---|---|
//! | `scope` | the transaction, as its drafts know it; what each draft has |
//! | `cell` | what was done at one place |
//! | `record`, `map`, `vector`, `counter`, `array` | the drafts |
//! | `build` | validation, and the new state |
//! | `shown` | what a draft's place has now, for the program |
//! | `path` | where a draft stands, for messages |
//! | `savepoint` | what a transaction goes back to without ending |
//! | `footprint` | what was read and written |
//! | `freeze` | what is stored: values that nobody can change |

pub(crate) mod array;
pub(crate) mod build;
mod cell;
pub(crate) mod counter;
pub(crate) mod footprint;
pub(crate) mod freeze;
pub(crate) mod map;
mod path;
pub(crate) mod record;
pub(crate) mod savepoint;
pub(crate) mod scope;
pub(crate) mod shown;
pub(crate) mod vector;

use ropewalk_capi::heap::{Field, content};
use ropewalk_capi::object::{Object, Raised};

use crate::form::Form;
use crate::kinds::{self, Kind};
use crate::node::Pointer;
use crate::rule::{Below, Rule, Zone};
use crate::types::State;
use cell::Cell;
use scope::Head;

pub(crate) use path::{to as path_to, tuple as path_of};

/// The cells of a draft of any kind, as they were at a savepoint.
pub(crate) enum Cells {
    Record(Vec<Cell>),
    Map(map::Entries),
    Vector(vector::Parts),
    Counter(Field),
    /// The items, as an array that never changes; empty if the transaction had not written.
    Array(Field),
}

impl Cells {
    /// Every reference.
    fn fields(&self) -> Box<dyn Iterator<Item = &Field> + '_> {
        match self {
            Self::Record(cells) => Box::new(cells.iter().filter_map(Cell::field)),
            Self::Map(entries) => Box::new(entries.fields()),
            Self::Vector(parts) => Box::new(parts.fields()),
            Self::Counter(field) | Self::Array(field) => Box::new(std::iter::once(field)),
        }
    }
}

/// What all kinds of draft have.
///
/// # Safety
///
/// `draft` is a live draft of a known kind.
pub(crate) unsafe fn head<'a>(types: &State, draft: Pointer) -> &'a Head {
    // SAFETY: the type tells the content.
    unsafe {
        let kind = pyo3_ffi::Py_TYPE(draft).cast();
        if kind == types.record_draft {
            &content::<record::Draft>(draft).head
        } else if kind == types.map_draft {
            &content::<map::Draft>(draft).head
        } else if kind == types.vector_draft {
            &content::<vector::Draft>(draft).head
        } else if kind == types.array_draft {
            &content::<array::Draft>(draft).head
        } else {
            &content::<counter::Draft>(draft).head
        }
    }
}

/// A draft of a container at a place with this rule; `None` for a leaf.
///
/// # Safety
///
/// Live objects of the kinds that their names say.
pub(crate) unsafe fn make(
    types: &State,
    scope: Pointer,
    value: Pointer,
    rule: Pointer,
    is_fresh: bool,
) -> Result<Option<Object>, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let known = content::<Rule>(rule);
        let head = |base: Pointer| -> Result<Head, Raised> {
            Ok(Head::new(Object::share(scope)?, Object::share(base)?, Object::share(rule)?, is_fresh))
        };
        if known.zone == Zone::Counter {
            return counter::make(types, head(value)?).map(Some);
        }
        let made = match known.info_of(value) {
            Some(info) => record::make(types, head(value)?, info)?,
            None => match kinds::kind_of(types, value)? {
                Kind::Leaf => return Ok(None),
                Kind::Map => map::make(types, head(value)?)?,
                Kind::Vector => vector::make(types, head(value)?)?,
                Kind::Array => array::make(types, head(value)?)?,
                Kind::Record(info) => record::make(types, head(value)?, info)?,
            },
        };
        Ok(Some(made))
    }
}

/// What a reader of a place below a draft gets, if the contract lets it: a draft, or nothing for a leaf.
///
/// # Safety
///
/// Live objects; `step` is the place's name, key or index.
#[inline]
unsafe fn enter(
    types: &State,
    head: &Head,
    draft: Pointer,
    step: Pointer,
    below: &Below<'_>,
    value: Pointer,
    is_fresh: bool,
) -> Result<Option<Object>, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let Below::Rule(rule, own) = *below else {
            return Err(scope::violated(types, head, draft, step, "read"));
        };
        let child = make(types, head.scope.get(), value, own, is_fresh)?;
        if child.is_none() && !rule.reads {
            return Err(scope::violated(types, head, draft, step, "read"));
        }
        Ok(child)
    }
}

/// The value to store at a place below a draft for a value that the program gives; a null step is the end of a vector.
///
/// Where an array is declared there or below, the package puts arrays into shared memory first.
///
/// # Errors
///
/// Those of [`freeze::freeze`]; an array is not as it is declared.
///
/// # Safety
///
/// As [`enter`].
#[inline]
unsafe fn stored(
    types: &State,
    head: &Head,
    draft: Pointer,
    step: Pointer,
    form: Option<&Form>,
    value: Pointer,
) -> Result<Object, Raised> {
    let place = freeze::Place { head, draft, step, form };
    let arrays = head.rule().arrays.get();
    // SAFETY: the caller's.
    unsafe {
        if arrays.is_null() {
            return freeze::freeze(types, &place, value);
        }
        let step = if step.is_null() { Object::none() } else { Object::share(step)? };
        let value = array::ask(types, c"admitted", &[arrays, draft, step.as_ptr(), value])?;
        freeze::freeze(types, &place, value.as_ptr())
    }
}

/// Whether the contract lets a place below a draft be assigned to or deleted.
///
/// # Safety
///
/// As [`enter`].
#[inline]
unsafe fn check_write(
    types: &State,
    head: &Head,
    draft: Pointer,
    step: Pointer,
    below: &Below<'_>,
) -> Result<(), Raised> {
    if let Below::Rule(rule, _) = *below
        && rule.writes
        && !matches!(rule.zone, Zone::AppendOnly | Zone::Counter)
    {
        return Ok(());
    }
    // SAFETY: the caller's.
    Err(unsafe { scope::violated(types, head, draft, step, "write") })
}
