//! OpenTelemetry's protocol: spans and numbers go to a collector, by HTTP with protobuf.
//!
//! The spans of a call are made when it is over, from what the parent knows: the call's times in the gateway, and the
//! record of its task. Workers carry no exporter. `opentelemetry_sdk` batches, samples and reads the standard variables
//! of the environment (`OTEL_EXPORTER_OTLP_*`, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`,
//! `OTEL_BSP_*`, `OTEL_METRIC_EXPORT_INTERVAL`); its threads hand requests to the server's runtime.

mod numbers;
mod sender;
mod spans;

use std::time::Duration;
use std::{env, io};

use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::ShouldSample;
use tokio::runtime::Handle;

use self::numbers::Numbers;
pub(super) use self::numbers::Source;
use self::sender::Sender;
use self::spans::Spans;
use super::call::Watching;
use super::context::Trace;

/// How long what is left may take at the end.
const LEAVING: Duration = Duration::from_secs(5);

/// What is exported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Export {
    /// Where the collector is: `http://127.0.0.1:4318`. `None` leaves it to the environment.
    pub endpoint: Option<String>,
}

/// Which signals are wanted: those of a given collector, or those that the environment names.
fn wanted(export: &Export, signal: &str, variable: &dyn Fn(&str) -> Option<String>) -> bool {
    if variable("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true")) {
        return false;
    }
    match variable(&format!("OTEL_{signal}_EXPORTER")).as_deref().map(str::trim) {
        Some("otlp") => return true,
        // Other exporters are none that this server has.
        Some(text) if !text.is_empty() => return false,
        _ => {}
    }
    export.endpoint.is_some()
        || variable("OTEL_EXPORTER_OTLP_ENDPOINT").is_some()
        || variable(&format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")).is_some()
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|text| !text.is_empty())
}

/// Exporters that run.
#[derive(Debug)]
pub(super) struct Otlp {
    spans: Option<Spans>,
    numbers: Option<Numbers>,
}

impl Otlp {
    /// Starts what is wanted; `None` if nothing is.
    ///
    /// # Errors
    ///
    /// When the collector's address is none, or it wants an encryption that is not here.
    pub(super) fn start(export: &Export, runtime: &Handle, source: &Source) -> io::Result<Option<Self>> {
        let (spans, numbers) = (wanted(export, "TRACES", &variable), wanted(export, "METRICS", &variable));
        if !(spans || numbers) {
            return Ok(None);
        }
        let resource = resource();
        let sender = Sender::new(runtime);
        let spans = spans.then(|| Spans::start(export, &sender, &resource)).transpose()?;
        let numbers = numbers.then(|| Numbers::start(export, &sender, resource, source)).transpose()?;
        Ok(Some(Self { spans, numbers }))
    }

    /// What decides which traces are exported, if any are.
    pub(super) fn sampler(&self) -> Option<&dyn ShouldSample> {
        self.spans.as_ref().map(Spans::sampler)
    }

    /// A call is over.
    pub(super) fn over(&self, call: &Watching) {
        if let Some(numbers) = &self.numbers {
            numbers.over(call);
        }
        if let (Some(spans), Some(Trace::Own(own)), Some(since)) = (&self.spans, &call.trace, call.since) {
            spans.over(call, own, since);
        }
    }

    /// A batch goes to a worker.
    pub(super) fn batched(&self, tool: &str, size: usize) {
        if let Some(numbers) = &self.numbers {
            numbers.batched(tool, size);
        }
    }

    /// A request has its answer's head.
    pub(super) fn request(&self, attributes: &dyn Fn() -> Vec<KeyValue>, took: Duration) {
        if let Some(numbers) = &self.numbers {
            numbers.request(took, &attributes());
        }
    }

    /// Exports what is left, and ends.
    pub(super) fn shutdown(&self) {
        if let Some(spans) = &self.spans {
            spans.shutdown(LEAVING);
        }
        if let Some(numbers) = &self.numbers {
            numbers.shutdown(LEAVING);
        }
    }
}

/// What the environment says of this service; its name is `ropewalk` if nothing names it.
fn resource() -> Resource {
    let named = |attributes: String| attributes.split(',').any(|one| one.trim().starts_with("service.name="));
    let is_named =
        variable("OTEL_SERVICE_NAME").is_some() || variable("OTEL_RESOURCE_ATTRIBUTES").is_some_and(named);
    let builder = Resource::builder();
    if is_named { builder.build() } else { builder.with_service_name("ropewalk").build() }
}

/// The library, as readers of spans and numbers see it.
fn scope() -> InstrumentationScope {
    InstrumentationScope::builder("ropewalk").with_version(env!("CARGO_PKG_VERSION")).build()
}

fn refused(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("OTLP: {error}"))
}

/// The collector's address for a signal, if the settings have one; an encrypted one is refused.
fn endpoint(export: &Export, signal: &str) -> io::Result<Option<String>> {
    let of_signal = format!("OTEL_EXPORTER_OTLP_{}_ENDPOINT", signal.to_ascii_uppercase());
    let given = export.endpoint.clone();
    let all = [given.clone(), variable(&of_signal), variable("OTEL_EXPORTER_OTLP_ENDPOINT")];
    if let Some(address) = all.into_iter().flatten().next()
        && !address.starts_with("http://")
    {
        let text = format!("{address:?} is no address of a collector: write http://HOST:PORT. {ENCRYPTED}");
        return Err(refused(text));
    }
    Ok(given.map(|base| format!("{}/v1/{signal}", base.trim_end_matches('/'))))
}

const ENCRYPTED: &str = "A collector on this machine may encrypt what it sends on";

#[cfg(test)]
mod tests {
    use super::*;

    fn wants(endpoint: Option<&str>, environment: &[(&str, &str)]) -> (bool, bool) {
        let export = Export { endpoint: endpoint.map(str::to_owned) };
        let variable =
            |name: &str| environment.iter().find(|(key, _)| *key == name).map(|(_, text)| (*text).to_owned());
        (wanted(&export, "TRACES", &variable), wanted(&export, "METRICS", &variable))
    }

    #[test]
    fn nothing_is_exported_unless_it_is_asked_for() {
        let all = "OTEL_EXPORTER_OTLP_ENDPOINT";
        assert_eq!(wants(None, &[]), (false, false));
        assert_eq!(wants(Some("http://h:1"), &[]), (true, true));
        assert_eq!(wants(None, &[(all, "http://h:1")]), (true, true));
        assert_eq!(wants(None, &[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://h:1")]), (true, false));
        assert_eq!(wants(None, &[("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://h:1")]), (false, true));
        assert_eq!(wants(Some("http://h:1"), &[("OTEL_METRICS_EXPORTER", "none")]), (true, false));
        assert_eq!(wants(None, &[("OTEL_TRACES_EXPORTER", "otlp")]), (true, false));
        assert_eq!(wants(Some("http://h:1"), &[("OTEL_SDK_DISABLED", "true")]), (false, false));
    }

    #[test]
    fn an_address_is_plain_http() {
        let of = |text: &str| endpoint(&Export { endpoint: Some(text.to_owned()) }, "traces");
        assert_eq!(of("http://h:4318/").expect("an address").as_deref(), Some("http://h:4318/v1/traces"));
        for wrong in ["https://h:4318", "h:4318", ""] {
            let error = of(wrong).expect_err("refused").to_string();
            assert!(error.contains("write http://HOST:PORT"), "{error}");
        }
    }
}
