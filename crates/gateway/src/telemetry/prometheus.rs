//! Families as Prometheus reads them: its text format, and OpenMetrics for those that ask for it.
//!
//! The texts are written by `prometheus-client`, the library of the Prometheus project, because names, escapes and
//! suffixes differ between the two formats. Its own counters are not used: the numbers are kept once, for OpenTelemetry
//! too.

use std::fmt;

use http::HeaderMap;
use http::header::{ACCEPT, HeaderValue};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::families::{Counts, Family, Kind, Value};

/// The form of a text of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Prometheus's own, version 0.0.4.
    Prometheus,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

impl Format {
    /// The one that a client asks for: OpenMetrics, if it prefers nothing else that there is.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let (mut best, mut found) = (0.0, Self::Prometheus);
        for one in accepted.flat_map(|value| value.split(',')) {
            let mut parts = one.split(';').map(str::trim);
            let format = match parts.next().unwrap_or_default().to_ascii_lowercase().as_str() {
                "application/openmetrics-text" => Self::OpenMetrics,
                "text/plain" | "text/*" | "*/*" => Self::Prometheus,
                _ => continue,
            };
            let weight = parts.find_map(|part| part.strip_prefix("q=")).map_or(Some(1.0), |q| q.parse().ok());
            let weight: f64 = weight.unwrap_or(0.0);
            if weight > best {
                (best, found) = (weight, format);
            }
        }
        found
    }

    /// Its media type.
    pub(crate) fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Prometheus => prometheus_text::CONTENT_TYPE,
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        })
    }
}

/// The text of these families.
///
/// # Errors
///
/// When a value has no text in the format.
pub(crate) fn text(families: Vec<Family>, format: Format) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Collected(families)));
    let mut text = String::with_capacity(16 << 10);
    match format {
        Format::Prometheus => prometheus_text::encode(&mut text, &registry)?,
        Format::OpenMetrics => text::encode(&mut text, &registry)?,
    }
    Ok(text)
}

#[derive(Debug)]
struct Collected(Vec<Family>);

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for family in self.0.iter().filter(|family| !family.points.is_empty()) {
            let definition = family.name.definition();
            let kind = match definition.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Count | Kind::Gauge => MetricType::Gauge,
                Kind::Spread => MetricType::Histogram,
            };
            let unit = match definition.unit {
                "s" => Some(Unit::Seconds),
                "By" => Some(Unit::Bytes),
                "1" => Some(Unit::Other(String::from("ratio"))),
                _ => None,
            };
            let name = definition.name.replace('.', "_");
            let mut metric = encoder.encode_descriptor(&name, definition.help, unit.as_ref(), kind)?;
            for (labels, value) in &family.points {
                let labels: Vec<(String, &str)> =
                    labels.iter().map(|(key, text)| (key.replace('.', "_"), &**text)).collect();
                if labels.is_empty() {
                    put(&mut metric, definition.kind, value)?;
                } else {
                    put(&mut metric.encode_family(&labels)?, definition.kind, value)?;
                }
            }
        }
        Ok(())
    }
}

fn put(metric: &mut MetricEncoder<'_>, kind: Kind, value: &Value) -> Result<(), fmt::Error> {
    match (kind, value) {
        (Kind::Counter, Value::Whole(number)) => metric.encode_counter::<NoLabelSet, _, f64>(number, None),
        (Kind::Counter, Value::Real(number)) => metric.encode_counter::<NoLabelSet, _, f64>(number, None),
        (_, Value::Whole(number)) => metric.encode_gauge(number),
        (_, Value::Real(number)) => metric.encode_gauge(number),
        (_, Value::Spread(counts)) => {
            let Counts { bounds, buckets, sum } = &**counts;
            let bounds = bounds.iter().copied().chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(buckets.iter().copied()).collect();
            let count = buckets.iter().map(|(_, count)| count).sum();
            metric.encode_histogram::<NoLabelSet>(*sum, count, &buckets, None)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::families::{BOUNDS, Name};
    use super::*;

    fn family(name: Name, labels: &[(&'static str, &str)], value: Value) -> Family {
        let mut family = Family::new(name);
        let labels: Vec<(&'static str, Arc<str>)> =
            labels.iter().map(|(key, text)| (*key, Arc::from(*text))).collect();
        family.points.push((labels, value));
        family
    }

    #[test]
    fn both_formats_write_units_and_totals() {
        let families = || {
            let mut buckets = [0; BOUNDS.len() + 1];
            (buckets[0], buckets[1], buckets[BOUNDS.len()]) = (1, 2, 3);
            vec![
                family(Name::Calls, &[("tool", "a\"b")], Value::Whole(7)),
                family(
                    Name::RunTimes,
                    &[("tool", "t")],
                    Value::Spread(Box::new(Counts { bounds: &BOUNDS, buckets, sum: 0.5 })),
                ),
                family(Name::SharedBytes, &[], Value::Whole(9)),
                family(Name::Saturation, &[("pool", "p")], Value::Real(0.5)),
                Family::new(Name::Items),
            ]
        };
        let open = text(families(), Format::OpenMetrics).expect("a text");
        for line in [
            "# TYPE ropewalk_tool_calls counter",
            "ropewalk_tool_calls_total{tool=\"a\\\"b\"} 7",
            "# UNIT ropewalk_tool_run_duration_seconds seconds",
            "ropewalk_tool_run_duration_seconds_count{tool=\"t\"} 6",
            "ropewalk_shared_memory_usage_bytes 9",
            "ropewalk_pool_saturation_ratio{pool=\"p\"} 0.5",
            "# EOF",
        ] {
            assert!(open.lines().any(|one| one == line), "{line}\n{open}");
        }
        let plain = text(families(), Format::Prometheus).expect("a text");
        for line in [
            "# TYPE ropewalk_tool_calls_total counter",
            "ropewalk_tool_calls_total{tool=\"a\\\"b\"} 7",
            "ropewalk_tool_run_duration_seconds_sum{tool=\"t\"} 0.5",
            "ropewalk_tool_run_duration_seconds_bucket{tool=\"t\",le=\"0.0001\"} 3",
            "ropewalk_tool_run_duration_seconds_bucket{tool=\"t\",le=\"+Inf\"} 6",
        ] {
            assert!(plain.lines().any(|one| one == line), "{line}\n{plain}");
        }
        assert!(!plain.contains("# EOF") && !plain.contains("stream_items"), "{plain}");
    }

    #[test]
    fn open_metrics_is_for_those_who_ask_for_it() {
        let of = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().expect("a header"));
            Format::of(&headers)
        };
        // What Prometheus 2 and 3 send, and curl.
        let asks =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        assert_eq!(of(asks), Format::OpenMetrics);
        assert_eq!(of("text/plain;version=0.0.4;q=1,application/openmetrics-text;q=0.5"), Format::Prometheus);
        assert_eq!((of("*/*"), of("text/html")), (Format::Prometheus, Format::Prometheus));
        assert_eq!(Format::of(&HeaderMap::new()), Format::Prometheus);
    }
}
