//! Finds an entry in a trie.

use ropewalk_capi::object::Raised;
use ropewalk_state::bits::{self, WIDTH, rank};

use super::key::same_hashed;
use crate::node::{Node, Pointer};

/// Below this bit of a hash lie nodes of collisions: all bits are used up.
pub(super) const BOTTOM: u32 = 35;

/// The value of a key below a node, borrowed.
///
/// # Safety
///
/// A live node of a map's, at the top of its trie, that stays as it is meanwhile, whatever Python code does; a live
/// key, with its folded hash.
#[inline]
pub(super) unsafe fn find(top: *mut Node, key: Pointer, hash: u32) -> Result<Option<Pointer>, Raised> {
    // SAFETY: the caller's; the processor has the instruction.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("popcnt") {
            return find_counting(top, key, hash);
        }
        find_below(top, key, hash)
    }
}

/// [`find`], compiled for the processors that count bits by an instruction: nearly all.
///
/// # Safety
///
/// As for [`find`], and the processor has the instruction.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "popcnt")]
unsafe fn find_counting(top: *mut Node, key: Pointer, hash: u32) -> Result<Option<Pointer>, Raised> {
    // SAFETY: the caller's.
    unsafe { find_below(top, key, hash) }
}

/// # Safety
///
/// As for [`find`].
#[inline(always)]
unsafe fn find_below(top: *mut Node, key: Pointer, hash: u32) -> Result<Option<Pointer>, Raised> {
    let (mut node, mut shift) = (top, 0);
    // SAFETY: the caller's; a node's bitmaps say which children and entries it has.
    unsafe {
        while shift < BOTTOM {
            let nodemap = (*node).nodemap;
            // The upper nodes of a large map are full. The processor predicts that, and then loads the child without
            // waiting for the bitmap.
            if nodemap == u32::MAX {
                node = (*Node::child(node, bits::slot(hash as usize, shift))).cast();
                shift += WIDTH;
                continue;
            }
            let bit = bits::bit(hash, shift);
            if nodemap & bit != 0 {
                node = (*Node::child(node, rank(nodemap, bit))).cast();
                shift += WIDTH;
                continue;
            }
            if (*node).datamap & bit == 0 {
                return Ok(None);
            }
            let at = rank((*node).datamap, bit);
            let entry = Node::entry(node, at);
            let found = same_hashed(*entry, Node::hash(node, at), key, hash)?;
            return Ok(found.then(|| *entry.add(1)));
        }
        for at in 0..(*node).entries() {
            let entry = Node::entry(node, at);
            if same_hashed(*entry, Node::hash(node, at), key, hash)? {
                return Ok(Some(*entry.add(1)));
            }
        }
        Ok(None)
    }
}
