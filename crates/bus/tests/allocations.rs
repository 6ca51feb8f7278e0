//! Publishing allocates nothing.
#![cfg(not(loom))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

use ropewalk_bus::Bus;

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: forwards every call to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the allocator's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the allocator's contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn publishing_allocates_nothing() {
    let (most, turns) = if cfg!(miri) { (4, 20) } else { (100, 1000) };
    for subscribers in [0, 1, most] {
        let bus = Bus::new();
        for number in 0..subscribers {
            let listen = bus.listen::<u64>("a.*").filter(move |event| *event != number);
            listen
                .call(|event| {
                    black_box(event);
                })
                .expect("open")
                .detach();
            bus.subscribe("**", |event: &u64| {
                black_box(event);
            })
            .expect("open")
            .detach();
        }
        let topic = bus.topic::<u64>("a.b").expect("sound");
        let publish = || {
            topic.publish(&1).expect("open");
            bus.publish("a.b", &2_u64).expect("open");
            COUNT.with(Cell::get)
        };
        let before = publish(); // The thread's own places are made here.
        let after = (0..turns).fold(before, |_, _| publish());
        assert_eq!(after - before, 0, "{subscribers} subscribers");
        drop(black_box(Box::new(1)));
        assert!(COUNT.with(Cell::get) > after, "the counter counts");
    }
}
