//! What it costs to publish, and what two publishers cost each other.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use crate::clock::{per_call, percentile};
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
pub fn scaling(bus: &mut impl Publish, subscribers: usize, events: usize) -> f64 {
    const TURNS: usize = 5;
    fill(bus, subscribers);
    let bus = &*bus;
    let publish = || {
        for index in 0..events {
            bus.publish(black_box(&Event { number: index as u64, value: 7 }));
        }
    };
    // One, two, one, two: a slow moment of the machine falls on both.
    let mut gains: Vec<f64> = (0..TURNS)
        .map(|_| {
            let alone = slowest_of(1, publish);
            let together = slowest_of(2, publish);
            2.0 * alone / together
        })
        .collect();
    percentile(&mut gains, 0.5)
}

/// Starts so many publishers at once; seconds until the last is done, after each has warmed up.
fn slowest_of(publishers: usize, publish: impl Fn() + Sync) -> f64 {
    let start = Barrier::new(publishers);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..publishers)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    let begin = Instant::now();
                    publish();
                    begin.elapsed().as_secs_f64()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("publishing does not panic"))
            .fold(0.0, f64::max)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::topics::{Alone, Mutexed, SwappedHandle, SwappedName, WindlassHandle, WindlassName};

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
        delivers_to_all(&mut WindlassHandle::default());
        delivers_to_all(&mut WindlassName::default());
    }

    #[test]
    fn figures_are_positive() {
        assert!(cost(&mut SwappedHandle::default(), 2, 10) > 0.0);
        assert!(scaling(&mut SwappedHandle::default(), 1, 1_000) > 0.0);
    }
}
