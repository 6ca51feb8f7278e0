//! The families of numbers: their names, units and meaning, which Prometheus and OpenTelemetry share.
//!
//! Names and units are OpenTelemetry's, from its semantic conventions where those have the thing
//! ([HTTP](https://opentelemetry.io/docs/specs/semconv/http/http-metrics/),
//! [processes](https://opentelemetry.io/docs/specs/semconv/system/process-metrics/)). Prometheus writes underscores for
//! dots, the unit behind the name, and `_total` behind that of a counter.

use std::sync::Arc;

/// What a family counts or measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It only grows.
    Counter,
    /// A number of things that there are; those of several servers can be added.
    Count,
    /// A measure, which cannot be added.
    Gauge,
    /// Times by their length, or batches by their size.
    Spread,
}

/// One family.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) name: &'static str,
    /// As in UCUM: `s`, `By`, `1`, or a word in braces for things that are counted.
    pub(crate) unit: &'static str,
    pub(crate) kind: Kind,
    pub(crate) help: &'static str,
}

/// The upper bounds of the buckets of times, in seconds: from a tenth of what a call through a warm worker takes to
/// what no client waits for.
pub(crate) const BOUNDS: [f64; 20] = [
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0, 30.0, 60.0, 300.0,
];

/// The same for the sizes of batches.
pub(crate) const SIZES: [f64; BOUNDS.len()] = [
    1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0, 192.0, 256.0, 384.0,
    512.0, 768.0, 1024.0,
];

/// Makes the families' numbers and their table.
macro_rules! families {
    ($($family:ident: $kind:ident $name:literal $unit:literal, $help:literal;)+) => {
        /// The families, by number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Name {
            $($family,)+
        }

        /// All of them, in the order of their numbers.
        pub(crate) const TABLE: &[Definition] =
            &[$(Definition { name: $name, unit: $unit, kind: Kind::$kind, help: $help },)+];
    };
}

families! {
    Calls: Counter "ropewalk.tool.calls" "{call}",
        "Calls of tools that have ended, by protocol and by status";
    CallTimes: Spread "ropewalk.tool.call.duration" "s",
        "From the head of a call to its end, and for a stream to its last item";
    QueueTimes: Spread "ropewalk.tool.queue.duration" "s",
        "From when a call was queued until its worker began it, by the record of its task";
    RunTimes: Spread "ropewalk.tool.run.duration" "s",
        "How long workers ran calls that they have answered, by the records of their tasks";
    Active: Count "ropewalk.tool.calls.active" "{call}",
        "Calls of tools that have begun and have not ended";
    Shed: Counter "ropewalk.tool.calls.shed" "{call}",
        "Calls that no worker began, because the server had no room or no time for them";
    Items: Counter "ropewalk.tool.stream.items" "{item}",
        "Items of streams that tools have made and clients were sent";
    Sessions: Count "ropewalk.sessions.active" "{session}",
        "Sessions that are open";
    SessionsOpened: Counter "ropewalk.sessions.opened" "{session}",
        "Sessions that were opened";
    SessionsEnded: Counter "ropewalk.sessions.ended" "{session}",
        "Sessions that have ended, by cause";
    Batches: Spread "ropewalk.tool.batch.size" "{call}",
        "Calls that workers were given together, of tools with `batch`";
    Cached: Counter "ropewalk.tool.cache.lookups" "{call}",
        "Calls of tools with `cache_ttl`: answered from memory, by another call's run, or by one of their own";
    CacheBytes: Count "ropewalk.cache.usage" "By",
        "Results of tools with `cache_ttl` that the server keeps, with their arguments";
    CacheEntries: Count "ropewalk.cache.entries" "{result}",
        "How many results it keeps";
    Requests: Spread "http.server.request.duration" "s",
        "Requests of all protocols, as HTTP sees them, until the head of their answer";
    Dropped: Counter "ropewalk.clients.dropped" "{client}",
        "Clients whose connections the server ended, because they did not take what it sent them";
    ActiveRequests: Count "http.server.active_requests" "{request}",
        "Requests whose answer has not begun";
    Queued: Count "ropewalk.pool.tasks.queued" "{task}",
        "The backlog: tasks that wait for a worker";
    Running: Count "ropewalk.pool.tasks.running" "{task}",
        "Tasks that workers run";
    Delayed: Count "ropewalk.pool.tasks.delayed" "{task}",
        "Tasks that have failed and are run again later";
    Tasks: Counter "ropewalk.pool.tasks" "{task}",
        "Tasks that have ended, by outcome";
    Retried: Counter "ropewalk.pool.tasks.retried" "{task}",
        "Runs of tasks beyond their first";
    Oldest: Gauge "ropewalk.pool.queue.age" "s",
        "How long the task has waited that has waited longest";
    Busy: Counter "ropewalk.pool.busy.time" "s",
        "Time inside tasks, by the workers' own clocks";
    Workers: Count "ropewalk.pool.workers" "{worker}",
        "Workers, by what they do";
    Size: Count "ropewalk.pool.workers.desired" "{worker}",
        "Workers that the pool is meant to have";
    Saturation: Gauge "ropewalk.pool.saturation" "1",
        "Busy workers as a part of those that the pool is meant to have";
    Restarts: Counter "ropewalk.pool.worker.restarts" "{worker}",
        "Workers that have ended, by cause";
    Memory: Count "process.memory.usage" "By",
        "Resident memory of a worker, what it shares included; workers are numbered from 0 in each pool";
    SharedBytes: Count "ropewalk.shared_memory.usage" "By",
        "Shared memory for large arguments and results that this process has";
    Ready: Gauge "ropewalk.server.ready" "",
        "1 when the server takes calls, else 0";
    Lost: Counter "ropewalk.log.records.dropped" "{record}",
        "Records of the log that came faster than they were written";
}

impl Name {
    /// What the table says of it.
    pub(crate) fn definition(self) -> &'static Definition {
        &TABLE[self as usize]
    }
}

/// Values by their size: how many lie in each bucket, the one without an upper bound last, and their sum.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Counts {
    /// The upper bounds of the buckets: seconds, or how many.
    pub(crate) bounds: &'static [f64; BOUNDS.len()],
    pub(crate) buckets: [u64; BOUNDS.len() + 1],
    pub(crate) sum: f64,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// How many.
    Whole(u64),
    /// How much.
    Real(f64),
    /// Times, or sizes.
    Spread(Box<Counts>),
}

/// What sets a value apart from the others of its family.
pub(crate) type Labels = Vec<(&'static str, Arc<str>)>;

/// A family with its values.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    pub(crate) name: Name,
    pub(crate) points: Vec<(Labels, Value)>,
}

impl Family {
    /// One without values.
    pub(crate) fn new(name: Name) -> Self {
        Self { name, points: Vec::new() }
    }

    /// Adds a value.
    pub(crate) fn add(&mut self, labels: &[(&'static str, &Arc<str>)], value: Value) {
        self.points.push((labels.iter().map(|(key, text)| (*key, Arc::clone(text))).collect(), value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_numbers() {
        assert_eq!(Name::Calls.definition().name, "ropewalk.tool.calls");
        assert_eq!(Name::Lost.definition().name, "ropewalk.log.records.dropped");
        assert_eq!(Name::Lost as usize + 1, TABLE.len());
    }

    #[test]
    fn names_are_unique_and_bounds_grow() {
        for (number, one) in TABLE.iter().enumerate() {
            assert!(TABLE.iter().skip(number + 1).all(|other| other.name != one.name), "{}", one.name);
        }
        assert!(BOUNDS.is_sorted() && SIZES.is_sorted());
    }
}
