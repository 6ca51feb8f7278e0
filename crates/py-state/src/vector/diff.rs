//! The difference of two vectors: what the changes between them have cost, and not what the vectors hold.

use ropewalk_capi::object::Raised;
use ropewalk_state::bits::{FANOUT, WIDTH, leaves_end};

use super::parts::View;
use crate::node::{Node, Pointer};

/// What is called for each index whose item differs: the index, its old and its new item.
pub(crate) type Each<'a> = dyn FnMut(usize, Option<Pointer>, Option<Pointer>) -> Result<(), Raised> + 'a;

/// The difference of two vectors, by index.
///
/// # Safety
///
/// The parts stay alive, whatever the function does.
pub(super) unsafe fn parts(old: View, new: View, each: &mut Each<'_>) -> Result<(), Raised> {
    // Items that are in leaves of both tries.
    let end = leaves_end(old.count).min(leaves_end(new.count));
    // SAFETY: the caller's; the first child of a higher trie has the leaves that a lower one has.
    unsafe {
        if end > 0 {
            let shift = old.shift.min(new.shift);
            nodes(lowered(old, shift), lowered(new, shift), shift, 0, end, each)?;
        }
        for index in end..old.count.max(new.count) {
            let (old, new) = (old.get(index), new.get(index));
            if old != new {
                each(index, old, new)?;
            }
        }
    }
    Ok(())
}

/// The node at this height that has a trie's first leaves.
///
/// # Safety
///
/// A trie with leaves, at least as high.
unsafe fn lowered(view: View, shift: u32) -> *mut Node {
    let (mut node, mut height) = (view.root, view.shift);
    while height > shift {
        // SAFETY: the caller's; a node above leaves has a first child.
        node = unsafe { *Node::child(node, 0) }.cast();
        height -= WIDTH;
    }
    node
}

/// The difference of the items below two nodes, from index `start` on and before `end`.
///
/// # Safety
///
/// Nodes at the same place of their tries, with leaves for all these items.
unsafe fn nodes(
    old: *mut Node,
    new: *mut Node,
    shift: u32,
    start: usize,
    end: usize,
    each: &mut Each<'_>,
) -> Result<(), Raised> {
    if old == new {
        return Ok(());
    }
    for at in 0..FANOUT {
        let index = start + (at << shift);
        if index >= end {
            break;
        }
        // SAFETY: the caller's, for the children too.
        unsafe {
            let (old, new) = (*Node::child(old, at), *Node::child(new, at));
            if shift > 0 {
                nodes(old.cast(), new.cast(), shift - WIDTH, index, end, each)?;
            } else if old != new {
                each(index, Some(old), Some(new))?;
            }
        }
    }
    Ok(())
}
