//! An allocator that counts.
//!
//! Only the program `allocations` installs it: the counter is shared by all threads and would be in the times.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, counted.
pub struct Counting {
    /// Blocks asked for since the start, by any thread; a block that grew counts again. Relaxed: it is read when the
    /// threads that count have told, by other means, that they are done.
    blocks: AtomicUsize,
}

impl Counting {
    /// Nothing was asked for yet.
    #[allow(clippy::new_without_default)] // A static needs a const constructor, and `default` is not one.
    pub const fn new() -> Self {
        Self { blocks: AtomicUsize::new(0) }
    }

    /// Blocks asked for while something was done.
    pub fn during(&self, work: impl FnOnce()) -> usize {
        let before = self.blocks.load(Ordering::Relaxed);
        work();
        self.blocks.load(Ordering::Relaxed) - before
    }
}

// SAFETY: every call goes to `System` unchanged, which keeps the contract; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.blocks.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.blocks.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.blocks.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's; `block` came from `System`, as all blocks did.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's; `block` came from `System`, as all blocks did.
        unsafe { System.dealloc(block, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_are_made_or_grow_are_counted() {
        let counting = Counting::new();
        let layout = Layout::from_size_align(16, 8).expect("a plain layout");
        let blocks = counting.during(|| {
            // SAFETY: the layout has a size; the block is grown once and freed once, with the layout it then has.
            unsafe {
                let block = counting.alloc(layout);
                assert!(!block.is_null());
                let block = counting.realloc(block, layout, 32);
                assert!(!block.is_null());
                counting.dealloc(block, Layout::from_size_align(32, 8).expect("a plain layout"));
            }
        });
        assert_eq!(blocks, 2);
    }
}
