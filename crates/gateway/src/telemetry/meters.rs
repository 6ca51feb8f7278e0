//! What is counted while calls go on: atomic numbers for each tool, which no call waits for.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ropewalk_sync::Mutex;

use super::families::{BOUNDS, Counts, Family, Name, SIZES, Value};
use super::seconds::{Second, Seconds, Totals};
use crate::failed::{Code, Shed};

/// The protocol by which a call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `POST /v1/tools/NAME`.
    Http,
    /// gRPC.
    Grpc,
    /// gRPC-Web.
    GrpcWeb,
    /// Connect.
    Connect,
    /// The Model Context Protocol.
    Mcp,
    /// Messages of ZeroMQ.
    Zmq,
}

impl Protocol {
    pub(super) const ALL: [Self; 6] =
        [Self::Http, Self::Grpc, Self::GrpcWeb, Self::Connect, Self::Mcp, Self::Zmq];

    /// Its name in labels and logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Grpc => "grpc",
            Self::GrpcWeb => "grpc-web",
            Self::Connect => "connect",
            Self::Mcp => "mcp",
            Self::Zmq => "zmq",
        }
    }
}

/// The name of a status: gRPC's for a code.
pub(crate) fn status(code: Option<Code>) -> &'static str {
    code.map_or("OK", Code::name)
}

/// Times by their length, or batches by their size. The numbers order nothing, and a reader may see a value in one and
/// not yet in the other: relaxed.
#[derive(Debug)]
pub(super) struct Spread {
    bounds: &'static [f64; BOUNDS.len()],
    buckets: [AtomicU64; BOUNDS.len() + 1],
    /// Nanoseconds, or how many.
    sum: AtomicU64,
    /// A unit of the bounds in those of the sum.
    unit: f64,
}

impl Default for Spread {
    fn default() -> Self {
        Self::new(&BOUNDS, 1e9)
    }
}

impl Spread {
    fn new(bounds: &'static [f64; BOUNDS.len()], unit: f64) -> Self {
        Self { bounds, buckets: std::array::from_fn(|_| AtomicU64::new(0)), sum: AtomicU64::new(0), unit }
    }

    pub(super) fn add(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.put(time.as_secs_f64(), nanos);
    }

    pub(super) fn put(&self, value: f64, summand: u64) {
        let place = self.bounds.partition_point(|bound| *bound < value);
        if let Some(bucket) = self.buckets.get(place) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(summand, Ordering::Relaxed);
    }

    /// What it has counted, if that is anything.
    pub(super) fn value(&self) -> Option<Value> {
        let buckets = std::array::from_fn(|place| self.buckets[place].load(Ordering::Relaxed));
        let sum = self.sum.load(Ordering::Relaxed) as f64 / self.unit;
        let bounds = self.bounds;
        let counts = || Value::Spread(Box::new(Counts { bounds, buckets, sum }));
        buckets.iter().any(|count| *count > 0).then(counts)
    }
}

/// What is counted of a tool.
#[derive(Debug)]
pub(super) struct OfTool {
    pub(super) name: Arc<str>,
    protocols: [OfProtocol; Protocol::ALL.len()],
    pub(super) queue: Spread,
    pub(super) run: Spread,
    pub(super) active: AtomicU64,
    shed: [AtomicU64; Shed::ALL.len()],
    pub(super) items: AtomicU64,
    /// The sizes of its batches.
    pub(super) batches: Spread,
    looked_up: [AtomicU64; Lookup::ALL.len()],
    seconds: Seconds,
}

/// Where a call of a tool with a cache found its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// In memory.
    Hit,
    /// Another call with the same arguments ran.
    Shared,
    /// The call ran itself.
    Miss,
}

impl Lookup {
    const ALL: [Self; 3] = [Self::Hit, Self::Shared, Self::Miss];

    /// Its name, in labels and in the header.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Shared => "shared",
            Self::Miss => "miss",
        }
    }
}

#[derive(Debug, Default)]
struct OfProtocol {
    /// The calls that ended well, and those that ended with each code.
    ended: [AtomicU64; Code::ALL.len() + 1],
    times: Spread,
}

/// Whether a call ended so for a fault of the tool or the server, or for want of time.
pub(super) fn is_fault(code: Option<Code>) -> bool {
    use Code::{DataLoss, DeadlineExceeded, Internal, Unavailable, Unknown};
    matches!(code, Some(Unknown | Internal | Unavailable | DeadlineExceeded | DataLoss))
}

fn place(code: Option<Code>) -> usize {
    code.map_or(0, |code| code as usize + 1)
}

impl OfTool {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self {
            name,
            protocols: Default::default(),
            queue: Spread::default(),
            run: Spread::default(),
            active: AtomicU64::new(0),
            shed: Default::default(),
            items: AtomicU64::new(0),
            batches: Spread::new(&SIZES, 1.0),
            looked_up: Default::default(),
            seconds: Seconds::default(),
        }
    }

    /// A batch goes to a worker.
    pub(super) fn batched(&self, size: usize) {
        self.batches.put(size as f64, size as u64);
    }

    /// A call has looked into the cache.
    pub(super) fn looked_up(&self, found: Lookup) {
        self.looked_up[found as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// What has been counted so far, over all protocols.
    fn totals(&self) -> Totals {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut totals = Totals::default();
        for protocol in &self.protocols {
            for (code, count) in [None].into_iter().chain(Code::ALL.map(Some)).zip(&protocol.ended) {
                totals.ended += read(count);
                if is_fault(code) {
                    totals.failed += read(count);
                }
            }
            for (sum, count) in totals.buckets.iter_mut().zip(&protocol.times.buckets) {
                *sum += read(count);
            }
        }
        totals.shed = self.shed.iter().map(read).sum();
        totals
    }

    /// A call is about to be counted in this second.
    pub(super) fn turn(&self, second: u64) {
        self.seconds.turn(second, || self.totals());
    }

    /// Its calls in each second from `from` on, and all of them.
    pub(super) fn seconds(&self, from: u64, now: u64) -> (Vec<Second>, Totals) {
        (self.seconds.read(from, now, || self.totals()), self.totals())
    }

    /// How many calls were shed, by cause.
    pub(super) fn shed(&self) -> impl Iterator<Item = (Shed, u64)> {
        Shed::ALL.into_iter().zip(self.shed.iter().map(|count| count.load(Ordering::Relaxed)))
    }

    /// A call has ended.
    pub(super) fn ended(&self, protocol: Protocol, code: Option<Code>, shed: Option<Shed>, time: Duration) {
        self.active.fetch_sub(1, Ordering::Relaxed);
        let protocol = &self.protocols[protocol as usize];
        if let Some(count) = protocol.ended.get(place(code)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        protocol.times.add(time);
        if let Some(shed) = shed {
            self.shed[shed as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether it was ever called.
    fn is_known(&self) -> bool {
        self.active.load(Ordering::Relaxed) > 0
            || self
                .protocols
                .iter()
                .any(|protocol| protocol.ended.iter().any(|count| count.load(Ordering::Relaxed) > 0))
    }
}

/// The texts of labels.
pub(super) type Texts = HashMap<&'static str, Arc<str>>;

/// The families of these tools; one that nobody has called has none.
pub(super) fn families<'a>(tools: impl Iterator<Item = &'a Arc<OfTool>>) -> Vec<Family> {
    let mut texts = Texts::new();
    let mut text = |text: &'static str| Arc::clone(texts.entry(text).or_insert_with(|| Arc::from(text)));
    let [mut calls, mut times, mut queue, mut run, mut active, mut shed, mut items, mut batches, mut cached] =
        [
            Name::Calls,
            Name::CallTimes,
            Name::QueueTimes,
            Name::RunTimes,
            Name::Active,
            Name::Shed,
            Name::Items,
            Name::Batches,
            Name::Cached,
        ]
        .map(Family::new);
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    for tool in tools.filter(|tool| tool.is_known()) {
        let name = &tool.name;
        for (protocol, of_protocol) in Protocol::ALL.iter().zip(&tool.protocols) {
            let protocol = text(protocol.name());
            let codes = [None].into_iter().chain(Code::ALL.map(Some));
            for (code, count) in codes.zip(&of_protocol.ended).filter(|(_, count)| read(count) > 0) {
                let code = text(status(code));
                let labels = [("tool", name), ("protocol", &protocol), ("rpc.response.status_code", &code)];
                calls.add(&labels, Value::Whole(read(count)));
            }
            if let Some(value) = of_protocol.times.value() {
                times.add(&[("tool", name), ("protocol", &protocol)], value);
            }
        }
        let spreads = [(&mut queue, &tool.queue), (&mut run, &tool.run), (&mut batches, &tool.batches)];
        for (family, spread) in spreads {
            if let Some(value) = spread.value() {
                family.add(&[("tool", name)], value);
            }
        }
        active.add(&[("tool", name)], Value::Whole(read(&tool.active)));
        for (cause, count) in Shed::ALL.iter().zip(&tool.shed) {
            shed.add(&[("tool", name), ("cause", &text(cause.name()))], Value::Whole(read(count)));
        }
        items.add(&[("tool", name)], Value::Whole(read(&tool.items)));
        for (found, count) in Lookup::ALL.iter().zip(&tool.looked_up).filter(|(_, count)| read(count) > 0) {
            cached.add(&[("tool", name), ("result", &text(found.name()))], Value::Whole(read(count)));
        }
    }
    vec![calls, times, queue, run, active, shed, items, batches, cached]
}

/// The method, the route and the status of a request: each is one of a few.
type Kind = (&'static str, &'static str, u16);

/// What is counted of requests, as HTTP sees them.
#[derive(Debug, Default)]
pub(super) struct Requests {
    times: Mutex<HashMap<Kind, Arc<Spread>>>,
    pub(super) active: AtomicU64,
}

/// The methods that the semantic conventions name; all others are one.
fn known(method: &http::Method) -> &'static str {
    const KNOWN: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    KNOWN.into_iter().find(|known| *known == method.as_str()).unwrap_or("_OTHER")
}

/// The route of a path: one of a few, whatever clients ask for.
pub(super) fn route(path: &str) -> &'static str {
    const FIXED: [&str; 9] = [
        "/v1/tools",
        "/openapi.json",
        "/healthz",
        "/readyz",
        "/metrics",
        "/mcp",
        "/v1/status",
        "/v1/status/events",
        "/",
    ];
    if let Some(fixed) = FIXED.into_iter().find(|fixed| *fixed == path) {
        return fixed;
    }
    match path {
        path if path.starts_with("/v1/tools/") => "/v1/tools/{name}",
        path if path.starts_with("/v1/sessions/") => match path.matches('/').count() {
            3 => "/v1/sessions/{session}",
            _ => "/v1/sessions/{session}/{method}",
        },
        path if path.starts_with("/ropewalk.v1.Tools/") => "/ropewalk.v1.Tools/{method}",
        path if path.starts_with("/grpc.") => "/grpc.*",
        _ => "other",
    }
}

impl Requests {
    /// A request has the head of its answer; gives the method's label.
    pub(super) fn ended(
        &self,
        method: &http::Method,
        path: &'static str,
        status: u16,
        time: Duration,
    ) -> &'static str {
        let method = known(method);
        let key = (method, path, status);
        let spread = Arc::clone(self.times.lock().entry(key).or_default());
        spread.add(time);
        method
    }

    pub(super) fn families(&self) -> Vec<Family> {
        let mut times = Family::new(Name::Requests);
        let mut all: Vec<_> =
            self.times.lock().iter().map(|(key, spread)| (*key, Arc::clone(spread))).collect();
        all.sort_by_key(|(key, _)| *key);
        for ((method, route, status), spread) in all {
            let (method, route) = (Arc::from(method), Arc::from(route));
            let status = Arc::from(status.to_string());
            if let Some(value) = spread.value() {
                let labels = [
                    ("http.request.method", &method),
                    ("http.route", &route),
                    ("http.response.status_code", &status),
                ];
                times.add(&labels, value);
            }
        }
        let mut active = Family::new(Name::ActiveRequests);
        active.add(&[], Value::Whole(self.active.load(Ordering::Relaxed)));
        vec![times, active]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_that_it_does_not_exceed() {
        let spread = Spread::default();
        assert_eq!(spread.value(), None);
        for micros in [50, 51, 100, 400_000_000] {
            spread.add(Duration::from_micros(micros));
        }
        let Some(Value::Spread(counts)) = spread.value() else { panic!("no times") };
        assert_eq!((counts.buckets[0], counts.buckets[1], counts.buckets[BOUNDS.len()]), (1, 2, 1));
        assert!((counts.sum - 400.000_201).abs() < 1e-9, "{}", counts.sum);
    }

    #[test]
    fn labels_are_few_whatever_clients_send() {
        for path in ["/index", "/v1/toolsets", "/../etc/passwd", "/v1"] {
            assert_eq!(route(path), "other");
        }
        assert_eq!((route("/v1/tools/x/y"), route("/metrics")), ("/v1/tools/{name}", "/metrics"));
        assert_eq!(route("/v1/sessions/secret"), "/v1/sessions/{session}");
        assert_eq!(route("/v1/sessions/secret/add"), "/v1/sessions/{session}/{method}");
        let made_up = http::Method::from_bytes(b"MADEUP").expect("a method");
        assert_eq!((known(&made_up), known(&http::Method::PATCH)), ("_OTHER", "PATCH"));
    }

    #[test]
    fn protocols_codes_and_causes_are_numbered_in_the_order_of_their_lists() {
        assert!(Protocol::ALL.iter().enumerate().all(|(number, one)| *one as usize == number));
        assert!(Code::ALL.iter().enumerate().all(|(number, one)| *one as usize == number));
        assert!(Lookup::ALL.iter().enumerate().all(|(number, one)| *one as usize == number));
        assert!(Shed::ALL.iter().enumerate().all(|(number, one)| *one as usize == number));
    }
}
