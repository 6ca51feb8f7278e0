//! The spans of calls, made when they are over.

use std::io;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{SpanId, SpanKind, Status};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchSpanProcessor, Config, ShouldSample, SpanData, SpanEvents, SpanLinks, SpanProcessor as _,
};

use super::super::call::{Ran, Watching};
use super::super::context::Own;
use super::super::meters::{Protocol, status};
use super::sender::Sender;
use super::{Export, endpoint, refused, scope};
use crate::failed::Code;

/// What makes them, and hands them to the exporter's thread.
#[derive(Debug)]
pub(super) struct Spans {
    processor: BatchSpanProcessor,
    sampler: Box<dyn ShouldSample>,
    scope: InstrumentationScope,
}

impl Spans {
    /// Starts the thread that exports them.
    pub(super) fn start(export: &Export, sender: &Sender, resource: &Resource) -> io::Result<Self> {
        let mut builder = SpanExporter::builder().with_http().with_http_client(sender.clone());
        if let Some(endpoint) = endpoint(export, "traces")? {
            builder = builder.with_endpoint(endpoint);
        }
        let mut processor = BatchSpanProcessor::builder(builder.build().map_err(refused)?).build();
        processor.set_resource(resource);
        Ok(Self { processor, sampler: Config::default().sampler, scope: scope() })
    }

    /// What decides which traces are exported.
    pub(super) fn sampler(&self) -> &dyn ShouldSample {
        &*self.sampler
    }

    /// Exports what is left, and ends.
    pub(super) fn shutdown(&self, within: Duration) {
        // A collector that cannot be reached is no reason for the server to fail.
        let _ = self.processor.shutdown_with_timeout(within);
    }

    /// A call of this trace is over, which began then.
    pub(super) fn over(&self, call: &Watching, own: &Own, since: SystemTime) {
        if let Some(ran) = call.ran.get() {
            self.processor.on_end(self.run(call, own, ran));
        }
        self.processor.on_end(self.request(call, own, since));
    }

    /// The span of the call in the gateway.
    fn request(&self, call: &Watching, own: &Own, since: SystemTime) -> SpanData {
        let (code, shed, message) = call.end();
        let tool = call.tool.name.to_string();
        let mut attributes = vec![
            KeyValue::new("ropewalk.tool", tool.clone()),
            KeyValue::new("rpc.response.status_code", status(code)),
        ];
        let name = match call.protocol {
            Protocol::Http => {
                let status = code.map_or(200, |code| code.status().as_u16());
                attributes.extend([
                    KeyValue::new("http.request.method", "POST"),
                    KeyValue::new("http.route", "/v1/tools/{name}"),
                    KeyValue::new("http.response.status_code", i64::from(status)),
                ]);
                String::from("POST /v1/tools/{name}")
            }
            Protocol::Mcp => {
                attributes.push(KeyValue::new("mcp.method.name", "tools/call"));
                format!("tools/call {tool}")
            }
            Protocol::Zmq => {
                attributes.push(KeyValue::new("messaging.system", "zeromq"));
                format!("process {tool}")
            }
            Protocol::Grpc | Protocol::GrpcWeb | Protocol::Connect => {
                let system = if call.protocol == Protocol::Connect { "connectrpc" } else { "grpc" };
                attributes.push(KeyValue::new("rpc.system.name", system));
                attributes.push(KeyValue::new("rpc.method", "ropewalk.v1.Tools/Execute"));
                String::from("ropewalk.v1.Tools/Execute")
            }
        };
        if let Some(caller) = call.caller.get() {
            attributes.push(KeyValue::new("enduser.id", caller.to_string()));
        }
        if let Some(code) = code {
            attributes.push(KeyValue::new("error.type", code.name()));
        }
        if let Some(shed) = shed {
            attributes.push(KeyValue::new("ropewalk.shed", shed.name()));
        }
        if call.items() > 0 {
            attributes.push(KeyValue::new("ropewalk.stream.items", call.items().cast_signed()));
        }
        attributes.extend(own.attributes.iter().cloned());
        let failed = code.filter(|code| is_of_server(*code));
        let status = failed.map_or(Status::Unset, |_| Status::error(message.unwrap_or_default().to_owned()));
        let end = since.checked_add(call.took()).unwrap_or(since);
        let parent = own.parent.unwrap_or(SpanId::INVALID);
        let times = (since, end);
        SpanData {
            span_kind: SpanKind::Server,
            parent_span_is_remote: own.parent.is_some(),
            ..self.span(own, (own.request, parent), name, times, attributes, status)
        }
    }

    /// The span of the worker's run: its times are those of the task's record.
    fn run(&self, call: &Watching, own: &Own, ran: &Ran) -> SpanData {
        let record = &ran.record;
        let at = |nanos: u64| SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(nanos));
        let queued = record.queued_at;
        let ended = queued.saturating_add(record.total_ns);
        // A task that no worker has begun waited from its beginning to its end.
        let begun = record.begun_ns.map_or(queued, |begun| queued.saturating_add(begun));
        let end =
            if record.begun_ns.is_some() { begun.saturating_add(record.busy_ns).min(ended) } else { ended };
        let mut attributes = vec![
            KeyValue::new("ropewalk.tool", call.tool.name.to_string()),
            KeyValue::new("ropewalk.task.id", ran.task.cast_signed()),
            KeyValue::new("ropewalk.task.outcome", ran.outcome),
            KeyValue::new("ropewalk.task.attempts", i64::from(ran.attempts)),
        ];
        if let Some(queued) = ran.queued {
            attributes.push(KeyValue::new("ropewalk.task.queue.duration", queued.as_secs_f64()));
        }
        if record.pid > 0 {
            attributes.push(KeyValue::new("process.pid", i64::from(record.pid)));
            attributes.push(KeyValue::new("ropewalk.worker.id", record.worker.cast_signed()));
        }
        let status = if ran.outcome == "returned" { Status::Unset } else { Status::error(ran.outcome) };
        let name = match record.begun_ns {
            Some(_) => format!("run {}", call.tool.name),
            None => format!("queue {}", call.tool.name),
        };
        let now = SystemTime::now();
        let times = (at(begun).unwrap_or(now), at(end).unwrap_or(now));
        self.span(own, (own.run, own.request), name, times, attributes, status)
    }

    fn span(
        &self,
        own: &Own,
        (span, parent): (SpanId, SpanId),
        name: String,
        (start_time, end_time): (SystemTime, SystemTime),
        attributes: Vec<KeyValue>,
        status: Status,
    ) -> SpanData {
        SpanData {
            span_context: own.context(span),
            parent_span_id: parent,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: name.into(),
            start_time,
            end_time,
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status,
            instrumentation_scope: self.scope.clone(),
        }
    }
}

/// Whether a code is an error of the server, as the semantic conventions of RPC have it.
fn is_of_server(code: Code) -> bool {
    use Code::{DataLoss, DeadlineExceeded, Internal, Unavailable, Unimplemented, Unknown};
    matches!(code, Unknown | DeadlineExceeded | Unimplemented | Internal | Unavailable | DataLoss)
}
