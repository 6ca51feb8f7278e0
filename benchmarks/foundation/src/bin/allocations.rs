//! `allocations CONTENDER` counts the blocks that one task, or one published event, asks for.

use std::process::ExitCode;

use ropewalk_foundation_bench::countdown::Countdown;
use ropewalk_foundation_bench::counting::Counting;
use ropewalk_foundation_bench::pools::{Pool, Rayon, Ropewalk};
use ropewalk_foundation_bench::publish::fill;
use ropewalk_foundation_bench::topics::{
    Event, Publish, SwappedHandle, SwappedName, RopewalkHandle, RopewalkName,
};

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

/// Tasks, or events, over which the blocks are counted, after as many to warm up.
const TIMES: usize = 100_000;

fn main() -> ExitCode {
    let contender = std::env::args().nth(1).unwrap_or_default();
    let blocks = match contender.as_str() {
        "ropewalk, fixed" => tasks(&Ropewalk::fixed()),
        "rayon" => tasks(&Rayon::new()),
        "ropewalk, handle" => events(RopewalkHandle::default()),
        "ropewalk, name" => events(RopewalkName::default()),
        "arc-swap, handle" => events(SwappedHandle::default()),
        "arc-swap, name" => events(SwappedName::default()),
        _ => {
            eprintln!("allocations: there is no contender {contender:?}");
            return ExitCode::from(2);
        }
    };
    println!("{{\"blocks\": {}}}", blocks as f64 / TIMES as f64);
    ExitCode::SUCCESS
}

fn tasks(pool: &impl Pool) -> usize {
    let batch = || {
        let countdown = Countdown::new(TIMES);
        for _ in 0..TIMES {
            pool.spawn(|| countdown.ran());
        }
        countdown.wait();
    };
    batch();
    // One block is the countdown's.
    ALLOCATOR.during(batch) - 1
}

fn events(mut bus: impl Publish) -> usize {
    fill(&mut bus, 10);
    let batch = || (0..TIMES as u64).for_each(|number| bus.publish(&Event { number, value: 7 }));
    batch();
    ALLOCATOR.during(batch)
}
