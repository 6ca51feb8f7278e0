//! What it costs to publish, and what two publishers cost each other.

use std::hint::{self, black_box};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use crate::clock::per_call;
use crate::topics::{Event, Publish};

/// Adds `count` handlers that only look at the event.
///
/// Each captures its number, so that the handlers are objects of their own, as in a program.
pub fn fill(bus: &mut impl Publish, count: usize) {
    for index in 0..count {
        bus.subscribe(move |event| {
            black_box((event.value, index));
        });
    }
}

/// Nanoseconds for each event published to `subscribers` handlers.
pub fn cost(bus: &mut impl Publish, subscribers: usize, events: usize) -> f64 {
    fill(bus, subscribers);
    per_call(events, |index| bus.publish(black_box(&Event { number: index as u64, value: 7 })))
}

/// How many times the rate of one publisher two reach together, on one topic with `subscribers` handlers.
///
/// Each way is played ten times, in turn, and the fastest of each counts: whatever else runs on the machine takes a
/// core from the two sooner than from the one, and would be taken for contention.
pub fn scaling(bus: &mut impl Publish, subscribers: usize, events: usize) -> f64 {
    const TURNS: usize = 10;
    fill(bus, subscribers);
    let bus = &*bus;
    let publish = || {
        for index in 0..events {
            bus.publish(black_box(&Event { number: index as u64, value: 7 }));
        }
    };
    let (mut alone, mut together) = (f64::MAX, f64::MAX);
    for _ in 0..TURNS {
        alone = alone.min(side_by_side(1, publish));
        together = together.min(side_by_side(2, publish));
    }
    2.0 * alone / together
}

/// Seconds from the moment that the first of so many publishers begins until the last is done.
fn side_by_side(publishers: usize, publish: impl Fn() + Sync) -> f64 {
    // Publishers that have not arrived. Spun upon: one that slept would begin when the other is half done.
    let missing = AtomicUsize::new(publishers);
    let times: Vec<(Instant, Instant)> = thread::scope(|scope| {
        let publisher = || {
            missing.fetch_sub(1, Ordering::AcqRel);
            while missing.load(Ordering::Acquire) != 0 {
                hint::spin_loop();
            }
            let begin = Instant::now();
            publish();
            (begin, Instant::now())
        };
        let threads: Vec<_> = (0..publishers).map(|_| scope.spawn(publisher)).collect();
        threads.into_iter().map(|thread| thread.join().expect("publishing does not panic")).collect()
    });
    let begin = times.iter().map(|time| time.0).min();
    let end = times.iter().map(|time| time.1).max();
    end.zip(begin).map_or(0.0, |(end, begin)| (end - begin).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::topics::{Alone, Mutexed, SwappedHandle, SwappedName, RopewalkHandle, RopewalkName};

    fn delivers_to_all(bus: &mut impl Publish) {
        let seen = Arc::new(AtomicUsize::new(0));
        for _ in 0..3 {
            let seen = Arc::clone(&seen);
            bus.subscribe(move |event| {
                seen.fetch_add(event.value as usize, Ordering::Relaxed);
            });
        }
        bus.publish(&Event { number: 1, value: 5 });
        assert_eq!(seen.load(Ordering::Relaxed), 15);
    }

    #[test]
    fn every_contender_delivers_to_all() {
        delivers_to_all(&mut Alone::default());
        delivers_to_all(&mut Mutexed::default());
        delivers_to_all(&mut SwappedHandle::default());
        delivers_to_all(&mut SwappedName::default());
        delivers_to_all(&mut RopewalkHandle::default());
        delivers_to_all(&mut RopewalkName::default());
    }

    #[test]
    fn figures_are_positive() {
        assert!(cost(&mut SwappedHandle::default(), 2, 10) > 0.0);
        assert!(scaling(&mut SwappedHandle::default(), 1, 1_000) > 0.0);
    }
}
