//! What the pools' supervisors know, as families: nothing here asks a worker.

use std::sync::Arc;

use ropewalk_os::memory::resident_bytes;
use ropewalk_os::process::current_pid;
use ropewalk_pool::{Cause, Statistics, WorkerState};

use super::families::{Family, Name, Value};

/// What a server's pools do now.
#[derive(Clone, Debug, Default)]
pub struct Now {
    /// Their names and statistics.
    pub pools: Vec<(Arc<str>, Statistics)>,
    /// Bytes of shared memory that this process has.
    pub shared_bytes: u64,
    /// Whether calls can be taken.
    pub ready: bool,
    /// Results that the server keeps, and their bytes, if it has a cache.
    pub cached: Option<(usize, usize)>,
    /// The buses of signals that the program shows.
    pub buses: Vec<BusNow>,
}

/// What a bus of signals has counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusNow {
    /// The name under which the program shows it.
    pub name: Arc<str>,
    /// Messages that were published.
    pub published: u64,
    /// Messages that wait in subscriptions: its lag.
    pub waiting: u64,
    /// Handlers and filters that raised.
    pub failed: u64,
}

const STATES: [(WorkerState, &str); 5] = [
    (WorkerState::Starting, "starting"),
    (WorkerState::Idle, "idle"),
    (WorkerState::Busy, "busy"),
    (WorkerState::Standby, "standby"),
    (WorkerState::Leaving, "leaving"),
];

fn whole(number: usize) -> Value {
    Value::Whole(number as u64)
}

/// The families of these pools.
pub(super) fn families(now: &Now) -> Vec<Family> {
    let mut made: Vec<Family> = Vec::new();
    let mut add = |name: Name, labels: &[(&'static str, &Arc<str>)], value: Value| match made
        .iter_mut()
        .find(|family| family.name == name)
    {
        Some(family) => family.add(labels, value),
        None => {
            let mut family = Family::new(name);
            family.add(labels, value);
            made.push(family);
        }
    };
    for (pool, statistics) in &now.pools {
        let pool = &[("pool", pool)][..];
        let with = |key: &'static str, text: &str| {
            let text: Arc<str> = text.into();
            (key, text)
        };
        add(Name::Queued, pool, whole(statistics.queued));
        add(Name::Running, pool, whole(statistics.running));
        add(Name::Delayed, pool, whole(statistics.delayed));
        let oldest = statistics.oldest.map_or(0.0, |age| age.as_secs_f64());
        add(Name::Oldest, pool, Value::Real(oldest));
        let counters = &statistics.counters;
        let named = counters.timed_out + counters.dropped + counters.poisoned;
        for (outcome, count) in [
            ("returned", counters.completed),
            ("failed", counters.failed.saturating_sub(named)),
            ("timed_out", counters.timed_out),
            ("dropped", counters.dropped),
            ("poisoned", counters.poisoned),
            ("cancelled", counters.cancelled),
        ] {
            let (key, text) = with("outcome", outcome);
            add(Name::Tasks, &[pool, &[(key, &text)]].concat(), Value::Whole(count));
        }
        add(Name::Retried, pool, Value::Whole(counters.retried));
        add(Name::Busy, pool, Value::Real(counters.busy_ns as f64 / 1e9));
        add(Name::Size, pool, whole(statistics.size));
        let mut busy = 0;
        for (state, text) in STATES {
            let count = statistics.workers.iter().filter(|worker| worker.state == state).count();
            if state == WorkerState::Busy {
                busy = count;
            }
            let (key, text) = with("state", text);
            add(Name::Workers, &[pool, &[(key, &text)]].concat(), whole(count));
        }
        add(Name::Saturation, pool, Value::Real(busy as f64 / statistics.size.max(1) as f64));
        let causes = Cause::ALL.iter().zip(counters.recycled).map(|(cause, count)| (cause.name(), count));
        for (cause, count) in causes.chain([("crashed", counters.crashed)]) {
            let (key, text) = with("cause", cause);
            add(Name::Restarts, &[pool, &[(key, &text)]].concat(), Value::Whole(count));
        }
        // By its place and not by its number, which no other worker gets: labels would be without bound.
        for (place, worker) in statistics.workers.iter().enumerate() {
            let bytes =
                if worker.pid > 0 && worker.pid != current_pid() { resident_bytes(worker.pid) } else { 0 };
            if bytes > 0 {
                let (key, text) = with("worker", &place.to_string());
                add(Name::Memory, &[pool, &[(key, &text)]].concat(), Value::Whole(bytes));
            }
        }
    }
    for bus in &now.buses {
        let name = &[("bus", &bus.name)][..];
        add(Name::BusWaiting, name, Value::Whole(bus.waiting));
        add(Name::BusPublished, name, Value::Whole(bus.published));
        add(Name::BusFailed, name, Value::Whole(bus.failed));
    }
    add(Name::SharedBytes, &[], Value::Whole(now.shared_bytes));
    if let Some((entries, bytes)) = now.cached {
        add(Name::CacheEntries, &[], whole(entries));
        add(Name::CacheBytes, &[], whole(bytes));
    }
    add(Name::Ready, &[], Value::Real(f64::from(u8::from(now.ready))));
    made
}

#[cfg(test)]
mod tests {
    use ropewalk_pool::{Counters, Histograms, WorkerStatistics};

    use super::*;

    fn statistics() -> Statistics {
        let worker =
            |number, pid, state| WorkerStatistics { number, pid, state, completed: 0, busy_ns: 0, age: None };
        Statistics {
            counters: Counters {
                completed: 5,
                failed: 6,
                timed_out: 1,
                dropped: 2,
                crashed: 3,
                recycled: [0, 0, 7, 0, 0, 0],
                ..Counters::default()
            },
            queued: 4,
            running: 1,
            delayed: 0,
            oldest: None,
            clients: Vec::new(),
            size: 4,
            ready: 2,
            sessions: 0,
            // The first is this process's parent, or init: it has memory.
            workers: vec![worker(901, 1, WorkerState::Busy), worker(902, 0, WorkerState::Starting)],
            histograms: Histograms::default(),
        }
    }

    #[test]
    fn a_pool_s_numbers_have_its_name_and_their_sort() {
        let now = Now {
            pools: vec![("p".into(), statistics())],
            shared_bytes: 11,
            ready: true,
            cached: Some((2, 9)),
            buses: vec![BusNow { name: "b".into(), published: 5, waiting: 3, failed: 0 }],
        };
        let families = families(&now);
        let value = |name: Name, wanted: &[(&str, &str)]| {
            let family = families.iter().find(|family| family.name == name).expect("the family");
            let fits = |labels: &super::super::families::Labels| {
                wanted.iter().all(|(key, text)| labels.iter().any(|(k, t)| k == key && &**t == *text))
            };
            family.points.iter().find(|(labels, _)| fits(labels)).map(|(_, value)| value.clone())
        };
        assert_eq!(value(Name::Queued, &[("pool", "p")]), Some(Value::Whole(4)));
        assert_eq!(value(Name::Tasks, &[("outcome", "failed")]), Some(Value::Whole(3)));
        assert_eq!(value(Name::Restarts, &[("cause", "max_rss")]), Some(Value::Whole(7)));
        assert_eq!(value(Name::Restarts, &[("cause", "crashed")]), Some(Value::Whole(3)));
        assert_eq!(value(Name::Saturation, &[("pool", "p")]), Some(Value::Real(0.25)));
        assert_eq!(value(Name::Workers, &[("state", "starting")]), Some(Value::Whole(1)));
        assert!(matches!(value(Name::Memory, &[("worker", "0")]), Some(Value::Whole(1..))));
        assert_eq!(value(Name::Memory, &[("worker", "1")]), None, "it is being forked");
        assert_eq!(value(Name::SharedBytes, &[]), Some(Value::Whole(11)));
        assert_eq!(value(Name::CacheEntries, &[]), Some(Value::Whole(2)));
        assert_eq!(value(Name::BusWaiting, &[("bus", "b")]), Some(Value::Whole(3)));
    }
}
