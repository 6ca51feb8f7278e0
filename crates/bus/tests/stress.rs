//! Subscribing and unsubscribing beside publishers.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use ropewalk_bus::Bus;

/// Subscribers that come and go; `ROPEWALK_ROUNDS` asks for more.
fn rounds() -> u64 {
    let asked = std::env::var("ROPEWALK_ROUNDS").ok();
    let most = if cfg!(miri) { 5 } else { 1000 };
    asked.map_or(most, |asked| asked.parse().expect("ROPEWALK_ROUNDS is a number"))
}

#[test]
fn a_listener_misses_nothing_published_while_it_listens() {
    let bus = Bus::new();
    let over = AtomicBool::new(false);
    // Each publisher's numbers rise by one: the last number that was published, and the next.
    let done = [const { AtomicU64::new(0) }; 2];
    let begun = [const { AtomicU64::new(0) }; 2];
    std::thread::scope(|scope| {
        for which in [0, 1] {
            let (topic, over) = (bus.topic::<(usize, u64)>("t.x").expect("sound"), &over);
            let (begun, done) = (&begun[which], &done[which]);
            scope.spawn(move || {
                let mut number = 0;
                while !over.load(Ordering::Relaxed) {
                    number += 1;
                    begun.store(number, Ordering::SeqCst);
                    topic.publish(&(which, number)).expect("open");
                    done.store(number, Ordering::SeqCst);
                }
            });
        }
        let mut handlers: Vec<Weak<()>> = Vec::new();
        for _ in 0..rounds() {
            let alive = Arc::new(());
            handlers.push(Arc::downgrade(&alive));
            let first = Arc::new([const { AtomicU64::new(0) }; 2]);
            let last = Arc::new([const { AtomicU64::new(0) }; 2]);
            let gaps = Arc::new(AtomicU64::new(0));
            let (ours, ends, wrong) = (Arc::clone(&first), Arc::clone(&last), Arc::clone(&gaps));
            let subscription = bus.subscribe("t.*", move |&(which, number): &(usize, u64)| {
                let _ = &alive;
                // Only this publisher's thread writes these two.
                if ours[which].load(Ordering::Relaxed) == 0 {
                    ours[which].store(number, Ordering::Relaxed);
                } else if ends[which].load(Ordering::Relaxed) + 1 != number {
                    wrong.fetch_add(1, Ordering::Relaxed);
                }
                ends[which].store(number, Ordering::SeqCst);
            });
            let subscription = subscription.expect("open");
            // Every publication that begins after this point is received; every one that ended before is not.
            let from = [0, 1].map(|which| begun[which].load(Ordering::SeqCst) + 1);
            std::thread::yield_now();
            let until = [0, 1].map(|which: usize| done[which].load(Ordering::SeqCst));
            let (firsts, lasts) = (
                [0, 1].map(|n: usize| first[n].load(Ordering::SeqCst)),
                [0, 1].map(|n: usize| last[n].load(Ordering::SeqCst)),
            );
            drop(subscription);
            assert_eq!(gaps.load(Ordering::Relaxed), 0);
            for which in [0, 1] {
                if until[which] >= from[which] {
                    assert!(
                        firsts[which] != 0 && firsts[which] <= from[which],
                        "{firsts:?} {from:?} {until:?}"
                    );
                    assert!(lasts[which] >= until[which], "{lasts:?} {until:?}");
                }
            }
        }
        over.store(true, Ordering::Relaxed);
        // The last reader of each list frees it, and the handlers in it.
        let topic = bus.topic::<(usize, u64)>("t.x").expect("sound");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while handlers.iter().any(|handler| handler.upgrade().is_some()) {
            assert!(std::time::Instant::now() < deadline, "handlers were not freed");
            topic.publish(&(0, 0)).expect("open");
            drop(bus.subscribe("t.*", |_: &(usize, u64)| ()));
        }
    });
    assert_eq!(bus.statistics().subscribers, 0);
}
