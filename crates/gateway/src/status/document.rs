//! The document of what goes on. All of it is bounded: by the number of pools, workers and tools, and by the limits of
//! [`history`](super::history), of the telemetry's seconds and of its failures.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ropewalk_os::memory::resident_bytes;
use ropewalk_os::process::current_pid;
use ropewalk_pool::{Cause, Doing, Engine, Statistics, WorkerState, WorkerStatistics};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::Status;
use crate::failed::{Code, Failed};
use crate::telemetry::{Counted, Failure, KEPT, Second, Totals};
use crate::tool::Tool;

/// The seconds over which the numbers of a tool are reckoned.
const RECENT: u64 = 60;
/// Closed seconds that an update has again: a reader that has missed one gets the whole.
const AGAIN: u64 = 3;
/// How long the program may take to say what goes on beside the tools.
const BESIDE_PATIENCE: Duration = Duration::from_millis(500);
/// Bytes of what it says.
const BESIDE_LARGEST: usize = 256 << 10;

/// What a document has of what was before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since {
    /// The first second.
    second: u64,
    /// The last failure that it leaves out.
    failure: u64,
}

impl Since {
    /// All that is kept.
    pub(super) const ALL: Self = Self { second: 0, failure: 0 };

    /// What comes from now on.
    pub(super) fn now(status: &Status) -> Self {
        let second = status.telemetry.second().saturating_sub(AGAIN).max(1);
        Self { second, failure: status.telemetry.failures().after(u64::MAX).1 }
    }
}

/// The document as it is, with all that is kept.
pub(super) async fn whole(status: &Arc<Status>) -> Result<String, Failed> {
    made(status, Since::ALL, false).await.map(|(text, _)| text)
}

/// The document with what came since; and what the next one is to have. `note` adds to the histories of the workers.
pub(super) async fn made(status: &Arc<Status>, since: Since, note: bool) -> Result<(String, Since), Failed> {
    let beside = timeout(BESIDE_PATIENCE, status.wishes.ask()).await;
    let beside = beside.ok().and_then(Result::ok).filter(|text| text.len() <= BESIDE_LARGEST);
    let status = Arc::clone(status);
    // It takes the pools' locks, which are held for moments, and reads a file for each worker.
    let made = tokio::task::spawn_blocking(move || {
        let (mut document, next) = document(&status, since, note);
        if let Some(beside) = beside.and_then(|text| serde_json::from_str::<Map<String, Value>>(&text).ok()) {
            document.extend(beside);
        }
        (Value::Object(document).to_string(), next)
    });
    made.await.map_err(|_| Failed::new(Code::Internal, "the server's state cannot be read"))
}

/// The document, with what the reader may do.
pub(super) fn with_rights(text: &str, may_administer: bool) -> String {
    // Its last character is the brace of the object.
    let body = text.strip_suffix('}').unwrap_or(text);
    format!("{body},\"may_administer\":{may_administer}}}")
}

fn document(status: &Status, since: Since, note: bool) -> (Map<String, Value>, Since) {
    let telemetry = &status.telemetry;
    let second = telemetry.second();
    let (failures, last, unkept) = telemetry.failures().after(since.failure);
    let counted = telemetry.counted(since.second.min(second.saturating_sub(RECENT)));
    let engines = status.runner.engines();
    let why_not = status.runner.readiness().why_not();
    let leaving = *status.leaving.borrow();
    let document = json!({
        "version": 1,
        "time": unix(SystemTime::now()),
        "second": second,
        "whole": since.second == 0,
        "server": {
            "version": env!("CARGO_PKG_VERSION"),
            "pid": current_pid(),
            "uptime": telemetry.age().as_secs_f64(),
            "ready": why_not.is_none() && !leaving,
            "why_not": if leaving { Some(String::from("the server is leaving")) } else { why_not },
            "leaving": leaving,
            "memory": resident_bytes(current_pid()),
            "shared_memory": engines.first().map_or(0, |engine| engine.arena().shared_bytes()),
            "kept_seconds": KEPT,
        },
        "pools": pools(status, &engines, note),
        "tools": counted.iter().map(|tool| described(tool, second, since.second)).collect::<Vec<_>>(),
        "calls": calls(&counted, since.second),
        "failures": failures.iter().map(failure).collect::<Vec<_>>(),
        "failures_unkept": unkept,
    });
    let Value::Object(document) = document else { return (Map::new(), since) };
    (document, Since { second: second.saturating_sub(AGAIN).max(1), failure: last })
}

fn unix(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn pools(status: &Status, engines: &[Engine], note: bool) -> Vec<Value> {
    let now = Instant::now();
    let mut made = Vec::with_capacity(engines.len());
    for (place, engine) in engines.iter().enumerate() {
        let Some(statistics) = engine.statistics() else { continue };
        let doing = engine.doing();
        if note {
            let mut histories = status.histories.lock();
            for worker in &statistics.workers {
                // What it has not answered yet counts for as long as it has run.
                let runs = doing.iter().filter(|one| one.worker == worker.number);
                let runs: f64 = runs.map(|one| one.since.as_secs_f64()).sum();
                histories.note((place, worker.number), worker.busy_ns as f64 / 1e9 + runs, now);
            }
        }
        made.push(pool(status, place, engine, &statistics, &doing));
    }
    if note {
        status.histories.lock().keep(now);
    }
    made
}

fn pool(status: &Status, place: usize, engine: &Engine, statistics: &Statistics, doing: &[Doing]) -> Value {
    let counters = &statistics.counters;
    let causes = Cause::ALL.iter().zip(counters.recycled).map(|(cause, count)| (cause.name(), count));
    let restarts: Map<String, Value> = causes
        .chain([("crashed", counters.crashed)])
        .filter(|(_, count)| *count > 0)
        .map(|(cause, count)| (cause.to_owned(), json!(count)))
        .collect();
    let clients: Vec<Value> =
        statistics.clients.iter().map(|(name, queued)| json!({"name": **name, "queued": queued})).collect();
    json!({
        "name": *engine.name(),
        "size": statistics.size,
        "ready": statistics.ready,
        "queued": statistics.queued,
        "running": statistics.running,
        "delayed": statistics.delayed,
        "oldest": statistics.oldest.map(|age| age.as_secs_f64()),
        "sessions": statistics.sessions,
        "clients": clients,
        "tasks": {
            "submitted": counters.submitted,
            "completed": counters.completed,
            "failed": counters.failed,
            "cancelled": counters.cancelled,
            "timed_out": counters.timed_out,
            "retried": counters.retried,
            "hung": counters.hung,
            "poisoned": counters.poisoned,
        },
        "restarts": restarts,
        "shortage": engine.shortage(),
        "advice": engine.advice(),
        "workers": statistics.workers.iter()
            .map(|one| worker(status, place, one, doing)).collect::<Vec<_>>(),
    })
}

fn state(state: WorkerState) -> &'static str {
    match state {
        WorkerState::Starting => "starting",
        WorkerState::Idle => "idle",
        WorkerState::Busy => "busy",
        WorkerState::Standby => "standby",
        WorkerState::Leaving => "leaving",
    }
}

fn worker(status: &Status, place: usize, worker: &WorkerStatistics, doing: &[Doing]) -> Value {
    let is_process = worker.pid > 0 && worker.pid != current_pid();
    let tasks: Vec<Value> = doing
        .iter()
        .filter(|one| one.worker == worker.number)
        .map(|one| {
            json!({
                "task": one.task,
                "attempt": one.attempt,
                "tool": one.function.as_ref().map(|function| status.tool_named(place, function)),
                "seconds": one.since.as_secs_f64(),
            })
        })
        .collect();
    json!({
        "number": worker.number,
        "pid": worker.pid,
        "state": state(worker.state),
        "memory": if is_process { resident_bytes(worker.pid) } else { 0 },
        "age": worker.age.map(|age| age.as_secs_f64()),
        "completed": worker.completed,
        "busy": worker.busy_ns as f64 / 1e9,
        "tasks": tasks,
        "history": status.histories.lock().of((place, worker.number)),
        "can_be_inspected": status.inspector.knows(worker.pid),
    })
}

impl Status {
    /// The tool of a function; the function's name if several have it.
    fn tool_named(&self, place: usize, function: &Arc<str>) -> Arc<str> {
        let catalog = self.shared.catalog.get();
        let runs = |tool: &&Arc<Tool>| {
            tool.engine == place && tool.function.as_ref().is_some_and(|own| own.name() == function)
        };
        let mut found = catalog.tools.iter().filter(runs);
        match (found.next(), found.next()) {
            (Some(tool), None) => Arc::clone(&tool.name),
            _ => Arc::clone(function),
        }
    }
}

fn sum<'a>(seconds: impl Iterator<Item = &'a Second>) -> Totals {
    seconds.fold(Totals::default(), |mut sum, (_, totals)| {
        sum.add(totals);
        sum
    })
}

fn described(tool: &Counted, second: u64, from: u64) -> Value {
    let recent = sum(tool.seconds.iter().filter(|(at, _)| at + RECENT > second));
    // A server that is younger has had fewer.
    let over = RECENT.min(second) as f64;
    let series: Vec<Value> = tool
        .seconds
        .iter()
        .filter(|(at, _)| *at >= from)
        .map(|(at, totals)| json!([at, totals.ended, totals.failed]))
        .collect();
    json!({
        "name": *tool.name,
        "active": tool.active,
        "calls": tool.totals.ended,
        "failed": tool.totals.failed,
        "shed": tool.shed.iter().map(|(cause, count)| ((*cause).to_owned(), json!(count))).collect::<Map<_, _>>(),
        "recent": {
            "seconds": over,
            "rate": recent.ended as f64 / over,
            "failed": recent.failed,
            "shed": recent.shed,
            "p50": recent.quantile(0.5),
            "p90": recent.quantile(0.9),
            "p99": recent.quantile(0.99),
        },
        "series": series,
    })
}

/// The calls of all tools, by second: ended, failed, shed, and two quantiles of their times.
fn calls(counted: &[Counted], from: u64) -> Vec<Value> {
    let mut seconds: std::collections::BTreeMap<u64, Totals> = std::collections::BTreeMap::new();
    for (at, totals) in counted.iter().flat_map(|tool| &tool.seconds).filter(|(at, _)| *at >= from) {
        seconds.entry(*at).or_default().add(totals);
    }
    let row = |(at, totals): (u64, Totals)| {
        let Totals { ended, failed, shed, .. } = totals;
        json!([at, ended, failed, shed, totals.quantile(0.5), totals.quantile(0.99)])
    };
    seconds.into_iter().map(row).collect()
}

fn failure(failure: &Failure) -> Value {
    json!({
        "number": failure.number,
        "time": unix(failure.at),
        "tool": *failure.tool,
        "protocol": failure.protocol,
        "status": failure.status,
        "message": *failure.message,
        "traceback": failure.traceback.as_deref(),
        "took": failure.took,
        "pid": failure.pid,
        "attempts": failure.attempts,
        "trace": failure.trace,
    })
}
