//! The thread that frees kept memory in a process without a pool, whose supervisor does it else.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_os::process;

use super::arena::{Arena, KEEP_FOR};

impl Arena {
    /// Lets the process's own arena keep memory also where no pool has a caretaker: a thread frees it, and lives as
    /// long as there is any.
    pub fn keep_warm() {
        Self::global().attend(start);
    }
}

fn start() {
    let arena = Arena::global();
    // SeqCst: either this sees that the thread has gone, or the thread sees what was kept.
    if arena.is_tended.swap(true, Ordering::SeqCst) {
        return;
    }
    let thread = thread::Builder::new().name("ropewalk-memory".into());
    if thread.spawn(move || tend(arena, KEEP_FOR)).is_err() {
        arena.is_tended.store(false, Ordering::SeqCst);
        arena.trim();
    }
}

/// Frees what was kept for too long, until nothing is kept.
fn tend(arena: &Arena, interval: Duration) {
    process::block_all_signals();
    loop {
        thread::sleep(interval);
        arena.trim_idle(Instant::now());
        if arena.idle_at().is_some() {
            continue;
        }
        arena.is_tended.store(false, Ordering::SeqCst);
        // What was kept meanwhile has found a thread that runs.
        if arena.idle_at().is_none() || arena.is_tended.swap(true, Ordering::SeqCst) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::ArenaConfig;

    #[test]
    fn the_thread_ends_when_nothing_is_kept() {
        let arena = Arena::new(ArenaConfig { keep: 64 << 20 });
        drop(arena.put_parts(&[&vec![1; 3 << 20]]).expect("room"));
        assert!(arena.idle_at().is_some());
        arena.is_tended.store(true, Ordering::SeqCst);
        let tended = Arc::clone(&arena);
        let thread = thread::spawn(move || tend(&tended, Duration::from_millis(1)));
        while !thread.is_finished() {
            arena.pretend_unused();
            thread::yield_now();
        }
        thread.join().expect("it ends");
        assert!(arena.idle_at().is_none() && !arena.is_tended.load(Ordering::SeqCst));
    }

    #[test]
    fn an_ended_segment_is_kept_and_a_thread_frees_it() {
        Arena::keep_warm();
        let arena = Arena::global();
        // Another test may take the memory.
        let is_taken_again = |_| {
            let first = arena.put_parts(&[&vec![1; 3 << 20]]).expect("room");
            let id = first.segment().id();
            drop(first);
            arena.put_parts(&[&vec![2; 3 << 20]]).expect("room").segment().id() == id
        };
        assert!((0..20).any(is_taken_again));
        assert!(arena.is_tended.load(Ordering::SeqCst));
    }
}
