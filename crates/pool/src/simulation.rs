//! The engine under a seeded simulation: one thread plays the program, the zygote, the workers and the clock.
//!
//! A world is made from a seed. At each step it submits, cancels, lets time pass, or lets one worker do one thing: take
//! a record, answer it, keep a view into its arguments, release one, stall, die, or lie. Nothing else happens in
//! between, so a seed gives the same story each time. At the end the pool is closed and the following is checked:
//!
//! - every task has ended, once, and the counters agree;
//! - a task's answer was made from its own arguments, at every attempt, and a view that a worker kept still shows them;
//! - no task ran more often than its retries allow;
//! - a task that no dying or lying worker had started, that was not cancelled and whose time was not up, returned its
//!   value;
//! - no lease is left.
//!
//! `ROPEWALK_SEED=n` plays one world and prints its story; `ROPEWALK_SEEDS=n` plays n worlds.
//!
//! Source: the method is that of FoundationDB (Zhou et al., "FoundationDB: A distributed unbundled transactional key
//! value store", SIGMOD 2021, section 4).

mod calls;
mod dice;
mod far;
mod running;
pub(crate) mod scene;
mod streams;
mod world;

use world::World;

/// Worlds that a plain run of the tests plays.
const SEEDS: u64 = 500;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn every_task_ends_once_with_its_own_arguments() {
    if let Some(seed) = number("ROPEWALK_SEED") {
        World::new(seed, true).play();
        return;
    }
    let seeds = number("ROPEWALK_SEEDS").unwrap_or(SEEDS);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let play = |first: u64| -> Vec<u64> {
        let plays = |seed: &u64| std::panic::catch_unwind(|| World::new(*seed, false).play()).is_ok();
        (first..seeds).step_by(threads as usize).filter(|seed| !plays(seed)).collect()
    };
    let mut failed: Vec<u64> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|first| scope.spawn(move || play(first))).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("it catches panics")).collect()
    });
    failed.sort_unstable();
    assert!(failed.is_empty(), "seeds {failed:?} failed: ROPEWALK_SEED=n tells the story of one");
}
