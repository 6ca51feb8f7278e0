//! The numbers of the families, as instruments.
//!
//! Times are recorded as they come, because no instrument can be given a histogram; all other numbers are read when
//! they are exported.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Histogram, Meter, MeterProvider as _};
use opentelemetry_otlp::{MetricExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use ropewalk_sync::Mutex;

use super::super::call::Watching;
use super::super::families::{BOUNDS, Family, Kind, Name, SIZES, TABLE, Value};
use super::sender::Sender;
use super::{Export, endpoint, refused, scope};

/// Families that were read so lately are read again: the instruments of one export ask one after the other.
const FRESH: Duration = Duration::from_millis(200);

/// The instruments.
#[derive(Debug)]
pub(super) struct Numbers {
    provider: SdkMeterProvider,
    calls: Histogram<f64>,
    queue: Histogram<f64>,
    run: Histogram<f64>,
    requests: Histogram<f64>,
    batches: Histogram<f64>,
}

/// What gives the families of all numbers.
pub(in super::super) type Source = Arc<dyn Fn() -> Vec<Family> + Send + Sync>;

impl Numbers {
    /// Starts the thread that exports them.
    pub(super) fn start(
        export: &Export,
        sender: &Sender,
        resource: Resource,
        source: &Source,
    ) -> io::Result<Self> {
        let mut builder = MetricExporter::builder().with_http().with_http_client(sender.clone());
        if let Some(endpoint) = endpoint(export, "metrics")? {
            builder = builder.with_endpoint(endpoint);
        }
        let exporter = builder.build().map_err(refused)?;
        let provider =
            SdkMeterProvider::builder().with_resource(resource).with_periodic_exporter(exporter).build();
        let meter = provider.meter_with_scope(scope());
        let latest = Arc::new(Latest { source: Arc::clone(source), last: Mutex::new(None) });
        for (place, definition) in TABLE.iter().enumerate() {
            if definition.kind != Kind::Spread {
                observe(&meter, place, &latest);
            }
        }
        let spread = |name: Name| {
            let definition = name.definition();
            let bounds = if name == Name::Batches { SIZES } else { BOUNDS };
            let builder = meter.f64_histogram(definition.name).with_unit(definition.unit);
            builder.with_description(definition.help).with_boundaries(bounds.to_vec()).build()
        };
        let [calls, queue, run, requests, batches] =
            [Name::CallTimes, Name::QueueTimes, Name::RunTimes, Name::Requests, Name::Batches].map(spread);
        Ok(Self { provider, calls, queue, run, requests, batches })
    }

    /// A request has the head of its answer.
    pub(super) fn request(&self, took: Duration, attributes: &[KeyValue]) {
        self.requests.record(took.as_secs_f64(), attributes);
    }

    /// A batch goes to a worker.
    pub(super) fn batched(&self, tool: &str, size: usize) {
        self.batches.record(size as f64, &[KeyValue::new("tool", tool.to_owned())]);
    }

    /// Exports what is left, and ends.
    pub(super) fn shutdown(&self, within: Duration) {
        // A collector that cannot be reached is no reason for the server to fail.
        let _ = self.provider.shutdown_with_timeout(within);
    }

    /// A call is over.
    pub(super) fn over(&self, call: &Watching) {
        let tool = KeyValue::new("tool", call.tool.name.to_string());
        if let Some(ran) = call.ran.get() {
            if let Some(queued) = ran.queued {
                self.queue.record(queued.as_secs_f64(), std::slice::from_ref(&tool));
            }
            if ran.answered {
                self.run.record(ran.record.busy_ns as f64 / 1e9, std::slice::from_ref(&tool));
            }
        }
        self.calls
            .record(call.took().as_secs_f64(), &[tool, KeyValue::new("protocol", call.protocol.name())]);
    }
}

/// The families as they were read last.
struct Latest {
    source: Source,
    last: Mutex<Option<(Instant, Arc<Vec<Family>>)>>,
}

impl Latest {
    fn families(&self) -> Arc<Vec<Family>> {
        if let Some((at, families)) = &*self.last.lock()
            && at.elapsed() < FRESH
        {
            return Arc::clone(families);
        }
        // Read without the lock: it asks the pools.
        let families = Arc::new((self.source)());
        *self.last.lock() = Some((Instant::now(), Arc::clone(&families)));
        families
    }

    /// The values of a family, with their labels.
    fn each(&self, place: usize, take: &mut dyn FnMut(&Value, &[KeyValue])) {
        for family in self.families().iter().filter(|family| family.name as usize == place) {
            for (labels, value) in &family.points {
                let labels: Vec<KeyValue> =
                    labels.iter().map(|(key, text)| KeyValue::new(*key, text.to_string())).collect();
                take(value, &labels);
            }
        }
    }
}

/// Makes the instrument of a family, which is read when numbers are exported.
fn observe(meter: &Meter, place: usize, latest: &Arc<Latest>) {
    let Some(definition) = TABLE.get(place) else { return };
    let latest = Arc::clone(latest);
    let (name, unit, help) = (definition.name, definition.unit, definition.help);
    match definition.kind {
        // The one counter of a measure.
        Kind::Counter if unit == "s" => {
            let builder = meter.f64_observable_counter(name).with_unit(unit).with_description(help);
            let _ = builder
                .with_callback(move |to| {
                    latest.each(place, &mut |value, labels| to.observe(real(value), labels));
                })
                .build();
        }
        Kind::Counter => {
            let builder = meter.u64_observable_counter(name).with_unit(unit).with_description(help);
            let _ = builder
                .with_callback(move |to| {
                    latest.each(place, &mut |value, labels| {
                        if let Value::Whole(number) = value {
                            to.observe(*number, labels);
                        }
                    });
                })
                .build();
        }
        Kind::Count => {
            let builder = meter.i64_observable_up_down_counter(name).with_unit(unit).with_description(help);
            let _ = builder
                .with_callback(move |to| {
                    latest.each(place, &mut |value, labels| {
                        if let Value::Whole(number) = value {
                            to.observe(i64::try_from(*number).unwrap_or(i64::MAX), labels);
                        }
                    });
                })
                .build();
        }
        Kind::Gauge => {
            let builder = meter.f64_observable_gauge(name).with_unit(unit).with_description(help);
            let _ = builder
                .with_callback(move |to| {
                    latest.each(place, &mut |value, labels| to.observe(real(value), labels));
                })
                .build();
        }
        Kind::Spread => {}
    }
}

fn real(value: &Value) -> f64 {
    match value {
        Value::Whole(number) => *number as f64,
        Value::Real(number) => *number,
        Value::Spread(_) => 0.0,
    }
}
