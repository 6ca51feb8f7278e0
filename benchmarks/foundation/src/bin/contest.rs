//! `contest CONTEST CONTENDER [--quick]` plays one round and prints its figures as JSON.

use std::process::ExitCode;

use ropewalk_base::{Error, Result};
use ropewalk_foundation_bench::latency::{self, Around};
use ropewalk_foundation_bench::pools::{Pool, Rayon, Ropewalk};
use ropewalk_foundation_bench::topics::{
    Alone, Mutexed, Publish, SwappedHandle, SwappedName, RopewalkHandle, RopewalkName,
};
use ropewalk_foundation_bench::{frames, publish, submit};

/// The figures of one round, by name.
type Figures = Vec<(&'static str, f64)>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).filter(|word| *word != "--quick").collect();
    let quick = words.len() < arguments.len();
    let [contest, contender] = words[..] else {
        eprintln!("usage: contest CONTEST CONTENDER [--quick]");
        return ExitCode::from(2);
    };
    let Some(figures) = play(contest, contender, if quick { 100 } else { 1 }) else {
        eprintln!("contest: {contender} takes no part in {contest}");
        return ExitCode::from(2);
    };
    let fields: Vec<String> = figures.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
    println!("{{{}}}", fields.join(", "));
    ExitCode::SUCCESS
}

/// One round; nothing if there is no such contest, or no such contender in it. `less` divides the work.
fn play(contest: &str, contender: &str, less: usize) -> Option<Figures> {
    match contender {
        "ropewalk, fixed" => tasks(contest, Ropewalk::fixed(), less),
        "ropewalk, dynamic" => tasks(contest, Ropewalk::dynamic(), less),
        "rayon" => tasks(contest, Rayon::new(), less),
        "ropewalk, handle" => events(contest, &mut RopewalkHandle::default(), less),
        "ropewalk, name" => events(contest, &mut RopewalkName::default(), less),
        "handlers alone" => events(contest, &mut Alone::default(), less),
        "mutexed" => events(contest, &mut Mutexed::default(), less),
        "arc-swap, handle" => events(contest, &mut SwappedHandle::default(), less),
        "arc-swap, name" => events(contest, &mut SwappedName::default(), less),
        "ropewalk" if contest == "sizes" => Some(vec![
            ("error", size_of::<Error>() as f64),
            ("beside", (size_of::<Result<[u64; 4]>>() - size_of::<[u64; 4]>()) as f64),
        ]),
        "ropewalk" => ways(contest, frames::Made, less),
        "ropewalk, error at hand" if contest == "frames" => {
            Some(vec![("error", frames::error_at_hand(1_000_000 / less))])
        }
        "two fields by hand" => ways(contest, frames::ByHand, less),
        _ => None,
    }
}

/// The contests of pools.
fn tasks<P: Pool + Send + 'static>(contest: &str, pool: P, less: usize) -> Option<Figures> {
    let around = match contest {
        "submit" => return Some(vec![("task", submit::from_outside(&pool, 50_000 / less))]),
        "submit-inside" => return Some(vec![("task", submit::from_inside(pool, 50_000 / less))]),
        "submit-join" => return Some(vec![("task", submit::and_join(&pool, 5_000 / less))]),
        "latency-idle" => Around::Idle,
        "latency-asleep" => Around::Asleep,
        "latency-loaded" => Around::Loaded,
        _ => return None,
    };
    let (p50, p99) = latency::of(&pool, around, 20_000 / less);
    Some(vec![("p50", p50), ("p99", p99)])
}

/// The contests of buses.
fn events(contest: &str, bus: &mut impl Publish, less: usize) -> Option<Figures> {
    let (name, subscribers) = contest.rsplit_once('-')?;
    let subscribers: usize = subscribers.parse().ok()?;
    match name {
        "publish" => Some(vec![("event", publish::cost(bus, subscribers, 1_000_000 / subscribers / less))]),
        "publishers" => {
            Some(vec![("gain", publish::scaling(bus, subscribers, 1_000_000 / subscribers / less))])
        }
        _ => None,
    }
}

/// The contest of the ten frames.
fn ways<B: frames::Bottom>(contest: &str, mut bottom: B, less: usize) -> Option<Figures> {
    (contest == "frames").then(|| {
        let value = frames::value(&mut bottom, 1_000_000 / less);
        vec![("value", value), ("error", frames::error(&mut bottom, 1_000_000 / less))]
    })
}
