//! The difference of two maps: what the changes between them have cost, and not what the maps hold.

use ropewalk_capi::object::Raised;
use ropewalk_state::bits::{FANOUT, WIDTH, rank};

use super::cursor::Cursor;
use super::entry::Entry;
use super::find::BOTTOM;
use super::key::same_hashed;
use crate::node::{Node, Pointer};

/// What is called for each key whose value differs: the key, its old and its new value.
pub(crate) type Each<'a> = dyn FnMut(Pointer, Option<Pointer>, Option<Pointer>) -> Result<(), Raised> + 'a;

/// What a node has for one part of a hash.
enum Branch {
    Nothing,
    Entry(Entry),
    Node(*mut Node),
}

/// # Safety
///
/// A live node above the bottom, and one bit.
unsafe fn branch(node: *mut Node, bit: u32) -> Branch {
    // SAFETY: the caller's; bitmaps say which children and entries a node has.
    unsafe {
        if (*node).nodemap & bit != 0 {
            Branch::Node((*Node::child(node, rank((*node).nodemap, bit))).cast())
        } else if (*node).datamap & bit != 0 {
            Branch::Entry(Entry::of(node, rank((*node).datamap, bit)))
        } else {
            Branch::Nothing
        }
    }
}

/// # Safety
///
/// Two live nodes at the same place of their tries, which stay as they are and alive. Python code may run.
pub(super) unsafe fn nodes(
    old: *mut Node,
    new: *mut Node,
    shift: u32,
    each: &mut Each<'_>,
) -> Result<(), Raised> {
    if old == new {
        return Ok(());
    }
    // SAFETY: the caller's, for each child too.
    unsafe {
        if shift >= BOTTOM {
            return collisions(old, new, each);
        }
        let mut used = (*old).datamap | (*old).nodemap | (*new).datamap | (*new).nodemap;
        debug_assert!(used.count_ones() as usize <= FANOUT);
        while used != 0 {
            let bit = used & used.wrapping_neg();
            used ^= bit;
            match (branch(old, bit), branch(new, bit)) {
                (Branch::Nothing, Branch::Nothing) => {}
                (Branch::Node(old), Branch::Node(new)) => nodes(old, new, shift + WIDTH, each)?,
                (Branch::Entry(old), Branch::Entry(new)) => entries(old, new, each)?,
                (Branch::Entry(old), Branch::Nothing) => each(old.key, Some(old.value), None)?,
                (Branch::Nothing, Branch::Entry(new)) => each(new.key, None, Some(new.value))?,
                (Branch::Node(old), Branch::Nothing) => {
                    all(old, &mut |key, value| each(key, Some(value), None))?
                }
                (Branch::Nothing, Branch::Node(new)) => {
                    all(new, &mut |key, value| each(key, None, Some(value)))?
                }
                (Branch::Entry(old), Branch::Node(new)) => {
                    one_and_many(old, new, &mut |key, one, other| each(key, one, other))?;
                }
                (Branch::Node(old), Branch::Entry(new)) => {
                    one_and_many(new, old, &mut |key, one, other| each(key, other, one))?;
                }
            }
        }
    }
    Ok(())
}

/// # Safety
///
/// As for [`nodes`], for two entries.
unsafe fn is_same(a: Entry, b: Entry) -> Result<bool, Raised> {
    // SAFETY: the caller's.
    unsafe { same_hashed(a.key, &raw const a.hash, b.key, b.hash) }
}

/// # Safety
///
/// As for [`nodes`].
unsafe fn entries(old: Entry, new: Entry, each: &mut Each<'_>) -> Result<(), Raised> {
    // SAFETY: the caller's.
    if !unsafe { is_same(old, new)? } {
        each(old.key, Some(old.value), None)?;
        return each(new.key, None, Some(new.value));
    }
    if old.value == new.value { Ok(()) } else { each(new.key, Some(old.value), Some(new.value)) }
}

/// Calls the function for each entry below a node.
///
/// # Safety
///
/// As for [`nodes`].
unsafe fn all(
    node: *mut Node,
    each: &mut dyn FnMut(Pointer, Pointer) -> Result<(), Raised>,
) -> Result<(), Raised> {
    // SAFETY: the caller's.
    unsafe {
        let mut cursor = Cursor::below(node);
        while let Some((key, value)) = cursor.next() {
            each(key, value)?;
        }
    }
    Ok(())
}

/// The difference of one entry and the entries below a node; the one's value comes first.
///
/// # Safety
///
/// As for [`nodes`].
unsafe fn one_and_many(one: Entry, many: *mut Node, each: &mut Each<'_>) -> Result<(), Raised> {
    // SAFETY: the caller's.
    unsafe {
        let mut cursor = Cursor::below(many);
        let mut is_found = false;
        while let Some(entry) = cursor.next_entry() {
            if is_found || !is_same(one, entry)? {
                each(entry.key, None, Some(entry.value))?;
                continue;
            }
            is_found = true;
            if one.value != entry.value {
                each(entry.key, Some(one.value), Some(entry.value))?;
            }
        }
        if is_found { Ok(()) } else { each(one.key, Some(one.value), None) }
    }
}

/// The difference of two nodes of collisions, which have no order.
///
/// # Safety
///
/// As for [`nodes`].
unsafe fn collisions(old: *mut Node, new: *mut Node, each: &mut Each<'_>) -> Result<(), Raised> {
    // SAFETY: the caller's.
    unsafe {
        let of = |node: *mut Node| (0..(*node).entries()).map(move |at| Entry::of(node, at));
        let mut left: Vec<Entry> = of(new).collect();
        for entry in of(old) {
            let mut at = 0;
            while at < left.len() && !is_same(entry, left[at])? {
                at += 1;
            }
            if at == left.len() {
                each(entry.key, Some(entry.value), None)?;
                continue;
            }
            let other = left.swap_remove(at);
            if entry.value != other.value {
                each(other.key, Some(entry.value), Some(other.value))?;
            }
        }
        left.into_iter().try_for_each(|entry| each(entry.key, None, Some(entry.value)))
    }
}
