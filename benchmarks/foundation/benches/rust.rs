//! The Rust rows measured by criterion, for its statistics. No goal is judged by them.
//!
//! `cargo bench` runs one contender after the other. `make bench-foundation` runs them in turn, each in a process of
//! its own, together with the C++ peers; criterion cannot do that.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use ropewalk_foundation_bench::countdown::Countdown;
use ropewalk_foundation_bench::frames::{Bottom, ByHand, Made, through_ten};
use ropewalk_foundation_bench::pools::{Pool, Rayon, Ropewalk};
use ropewalk_foundation_bench::publish::fill;
use ropewalk_foundation_bench::topics::{
    Alone, Event, Mutexed, Publish, SwappedHandle, SwappedName, RopewalkHandle, RopewalkName,
};

/// Tasks of a batch: enough that its one wake-up does not show.
const TASKS: usize = 10_000;

fn submit(criterion: &mut Criterion) {
    fn contender(criterion: &mut Criterion, name: &str, pool: &impl Pool) {
        let mut group = criterion.benchmark_group("submit");
        group.throughput(Throughput::Elements(TASKS as u64));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let countdown = Countdown::new(TASKS);
                (0..TASKS).for_each(|_| pool.spawn(|| countdown.ran()));
                countdown.wait();
            });
        });
        group.finish();
    }
    contender(criterion, "ropewalk, fixed", &Ropewalk::fixed());
    contender(criterion, "ropewalk, dynamic", &Ropewalk::dynamic());
    contender(criterion, "rayon", &Rayon::new());
}

fn publish(criterion: &mut Criterion) {
    fn contender<B: Publish + Default>(criterion: &mut Criterion, name: &str) {
        let mut group = criterion.benchmark_group("publish");
        for subscribers in [1, 10, 100] {
            let mut bus = B::default();
            fill(&mut bus, subscribers);
            group.bench_function(BenchmarkId::new(name, subscribers), |bencher| {
                bencher.iter(|| bus.publish(black_box(&Event { number: 1, value: 7 })));
            });
        }
        group.finish();
    }
    contender::<RopewalkHandle>(criterion, "ropewalk, handle");
    contender::<RopewalkName>(criterion, "ropewalk, name");
    contender::<Alone>(criterion, "handlers alone");
    contender::<SwappedHandle>(criterion, "arc-swap, handle");
    contender::<SwappedName>(criterion, "arc-swap, name");
    contender::<Mutexed>(criterion, "mutexed");
}

fn frames(criterion: &mut Criterion) {
    fn contender<B: Bottom>(criterion: &mut Criterion, name: &str, mut bottom: B) {
        let mut group = criterion.benchmark_group("frames");
        for (what, number) in [("value", 2), ("error", 3)] {
            group.bench_function(BenchmarkId::new(name, what), |bencher| {
                bencher.iter(|| through_ten(&mut bottom, black_box(number)));
            });
        }
        group.finish();
    }
    contender(criterion, "ropewalk", Made);
    contender(criterion, "two fields by hand", ByHand);
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    submit(&mut criterion);
    publish(&mut criterion);
    frames(&mut criterion);
    criterion.final_summary();
}
