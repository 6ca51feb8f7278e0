//! Many large blocks take few descriptors.

#![cfg(not(loom))]

use std::collections::HashSet;
use std::sync::Arc;

use ropewalk_shm::memory::Block;

fn first_and_last(block: &Block, length: usize) -> (u8, u8) {
    let data = block.segment().data().expect("mapped");
    // SAFETY: the range lies in the segment, and no thread writes to it.
    unsafe {
        let start = data.add(block.offset() as usize);
        (*start, *start.add(length - 1))
    }
}

#[test]
fn many_large_blocks_share_segments() {
    let size = (1 << 20) + 1;
    let mut blocks: Vec<Arc<Block>> =
        (0..150).map(|n| Block::copied(&vec![n as u8; size]).expect("room")).collect();
    let segments: HashSet<u64> = blocks.iter().map(|block| block.segment().id()).collect();
    assert!(segments.len() <= 66, "{} segments", segments.len());
    for (n, block) in blocks.iter().enumerate() {
        assert_eq!(first_and_last(block, size), (n as u8, n as u8));
    }
    // What is lent for good keeps its bytes when its block is gone; other memory is used again.
    let (lent, free) = (blocks.remove(140), blocks.remove(140));
    assert_eq!(lent.segment().id(), free.segment().id());
    let (segment, offset, other) = (Arc::clone(lent.segment()), lent.offset() as usize, free.offset());
    lent.lend_for_good();
    drop((lent, free));
    let again: Vec<_> = (0..3).map(|_| Block::copied(&vec![255; size]).expect("room")).collect();
    assert!(again.iter().any(|block| block.segment().id() == segment.id() && block.offset() == other));
    let data = segment.data().expect("mapped");
    // SAFETY: the range lies in the segment, and no thread writes to it.
    assert!(unsafe { std::slice::from_raw_parts(data.add(offset), size) }.iter().all(|byte| *byte == 140));
}
