//! At most one allocation a job: counted.

// Under Miri the jobs would have to be so few that the bounds would mean nothing; other tests run the same code.
#![cfg(not(any(loom, miri)))]

mod waiting;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use ropewalk_executor::{Executor, Job, Priority, Submit};
use waiting::{fixed, soon};

struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: forwards every call to the system's allocator, and counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the allocator's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the allocator's contract.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const JOBS: usize = 10_000;
/// A block of the shared queue holds 63 jobs; deques double, and their old buffers are freed later.
const QUEUES: usize = JOBS / 63 + 200;

fn allocations(act: impl FnOnce()) -> usize {
    let before = COUNT.load(Ordering::Relaxed);
    act();
    COUNT.load(Ordering::Relaxed) - before
}

/// One test, because the count is of the whole process.
#[test]
fn a_small_job_takes_no_allocation_and_any_other_one() {
    let pool = fixed(1);
    pool.submit(|| ()).expect("open").join().expect("ran");
    let drained = || pool.submit_with(Priority::Low, || ()).expect("open").join().expect("ran");

    for priority in [Priority::High, Priority::Normal, Priority::Low] {
        let small = allocations(|| {
            for number in 0..JOBS {
                let run = move || {
                    std::hint::black_box((number, number));
                };
                pool.execute(Job::new(run).priority(priority)).expect("open");
            }
            drained();
        });
        assert!(small <= QUEUES, "{priority:?}: {small}");

        let large = allocations(|| {
            for number in 0..JOBS {
                let captured = [number; 3];
                let run = move || {
                    std::hint::black_box(captured);
                };
                pool.execute(Job::new(run).priority(priority)).expect("open");
            }
            drained();
        });
        assert!((JOBS..=JOBS + QUEUES).contains(&large), "{priority:?}: {large}");
    }

    let joined = allocations(|| {
        for number in 0..JOBS {
            assert_eq!(pool.submit(move || number).expect("open").join().expect("ran"), number);
        }
    });
    assert!((JOBS..=JOBS + QUEUES).contains(&joined), "{joined}");
    assert!(pool.join(soon()).is_complete());
}
