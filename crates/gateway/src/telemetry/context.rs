//! W3C's trace context: what a client's headers say, and what the tool's worker is given.
//!
//! With an exporter a call has two spans, whose numbers are made at its beginning: the server's, and the run's, which
//! the worker is given as the parent of its own. Without one the client's context is passed on as it came.
//!
//! Source: [Trace Context](https://www.w3.org/TR/trace-context/).

use std::fmt::Write as _;

use http::{HeaderMap, HeaderName};
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{IdGenerator as _, RandomIdGenerator, SamplingDecision, ShouldSample};

/// The header with the trace and the caller's span; a tool finds it under the same name.
pub(crate) const PARENT: HeaderName = HeaderName::from_static("traceparent");
/// The header with what systems on the way have added; a tool finds it under the same name.
pub(crate) const STATE: HeaderName = HeaderName::from_static("tracestate");
/// Characters that a client's context may have: the specification asks for 512 of the state.
const LONGEST: usize = 512;

/// The trace of a call.
#[derive(Debug)]
pub(super) enum Trace {
    /// What the client says, unread: the texts of the two headers.
    Passed(Box<str>, Box<str>),
    /// A trace that is exported, or was not sampled.
    Own(Box<Own>),
}

/// The numbers of a call's spans.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) trace: TraceId,
    /// The caller's span, if it is known.
    pub(super) parent: Option<SpanId>,
    pub(super) request: SpanId,
    pub(super) run: SpanId,
    pub(super) sampled: bool,
    pub(super) state: TraceState,
    /// What the sampler adds to the span.
    pub(super) attributes: Vec<KeyValue>,
}

impl Trace {
    /// The client's context, to be passed on.
    pub(super) fn passed(headers: &HeaderMap) -> Option<Self> {
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let parent = text(PARENT).filter(|text| text.len() <= LONGEST)?;
        let state = text(STATE).filter(|text| text.len() <= LONGEST).unwrap_or_default();
        Some(Self::Passed(parent.into(), state.into()))
    }

    /// A trace that begins here, or goes on.
    pub(super) fn own(headers: &HeaderMap, sampler: &dyn ShouldSample, name: &str) -> Self {
        let around = Context::new();
        let around = match headers.contains_key(PARENT) {
            true => TraceContextPropagator::new().extract_with_context(&around, &HeaderExtractor(headers)),
            false => around,
        };
        let caller: SpanContext = around.span().span_context().clone();
        let ids = RandomIdGenerator::default();
        let known = caller.is_valid();
        let trace = if known { caller.trace_id() } else { ids.new_trace_id() };
        let kind = opentelemetry::trace::SpanKind::Server;
        let sampled = sampler.should_sample(Some(&around), trace, name, &kind, &[], &[]);
        Self::Own(Box::new(Own {
            trace,
            parent: known.then(|| caller.span_id()),
            request: ids.new_span_id(),
            run: ids.new_span_id(),
            sampled: sampled.decision == SamplingDecision::RecordAndSample,
            state: sampled.trace_state,
            attributes: sampled.attributes,
        }))
    }

    /// The texts of the trace and of the call's span, for a log.
    pub(super) fn numbers(&self) -> Option<(String, String)> {
        match self {
            // As the specification writes it: a version, the trace, the caller's span.
            Self::Passed(parent, _) => {
                let mut parts = parent.split('-').skip(1);
                let (trace, span) = (parts.next()?, parts.next()?);
                let is_number = |text: &str, length| {
                    text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit())
                };
                (is_number(trace, 32) && is_number(span, 16)).then(|| (trace.to_owned(), span.to_owned()))
            }
            Self::Own(own) => Some((own.trace.to_string(), own.request.to_string())),
        }
    }

    /// What the tool is given: the two headers' texts.
    pub(super) fn headers(&self) -> (String, String) {
        match self {
            Self::Passed(parent, state) => (parent.to_string(), state.to_string()),
            Self::Own(own) => (own.header(), own.state.header()),
        }
    }
}

impl Own {
    /// The run as a parent.
    fn header(&self) -> String {
        let mut text = String::with_capacity(55);
        // Writing into a string does not fail.
        let _ = write!(text, "00-{}-{}-0{}", self.trace, self.run, u8::from(self.sampled));
        text
    }

    /// The context of one of the two spans.
    pub(super) fn context(&self, span: SpanId) -> SpanContext {
        let flags = TraceFlags::default().with_sampled(self.sampled);
        SpanContext::new(self.trace, span, flags, false, self.state.clone())
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_sdk::trace::Sampler;

    use super::*;

    const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(parent: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(PARENT, parent.parse().expect("a header"));
        headers.insert(STATE, "vendor=x".parse().expect("a header"));
        headers
    }

    fn own(headers: &HeaderMap, sampler: Sampler) -> Box<Own> {
        let sampler = Sampler::ParentBased(Box::new(sampler));
        let Trace::Own(own) = Trace::own(headers, &sampler, "it") else { panic!("no trace") };
        own
    }

    #[test]
    fn a_caller_s_trace_goes_on_to_the_worker() {
        let own = own(&headers(CALLER), Sampler::AlwaysOff);
        assert_eq!(own.trace.to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(own.parent.map(|span| span.to_string()).as_deref(), Some("b7ad6b7169203331"));
        assert!(own.sampled && own.request != own.run);
        let (parent, state) = Trace::Own(own).headers();
        assert!(parent.starts_with("00-0af7651916cd43dd8448eb211c80319c-") && parent.ends_with("-01"));
        assert!(!parent.contains("b7ad6b7169203331"), "the run is the parent, not the client");
        assert_eq!(state, "vendor=x");
    }

    #[test]
    fn nonsense_begins_a_trace_of_its_own() {
        for wrong in ["", "00", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", "ff-x-y-z"] {
            let own = own(&headers(wrong), Sampler::AlwaysOn);
            assert!(own.parent.is_none() && own.sampled && own.trace != TraceId::INVALID, "{wrong}");
        }
        assert!(!own(&HeaderMap::new(), Sampler::AlwaysOff).sampled);
    }

    #[test]
    fn without_an_exporter_the_client_s_words_are_passed_on() {
        let passed = Trace::passed(&headers(CALLER)).expect("a context").headers();
        assert_eq!(passed, (String::from(CALLER), String::from("vendor=x")));
        assert!(Trace::passed(&HeaderMap::new()).is_none());
        assert!(Trace::passed(&headers(&"0".repeat(600))).is_none());
    }
}
