//! gRPC, gRPC-Web and Connect: one definition (`proto/`) serves all three. Beside it stand gRPC's own services for
//! health and for reflection.

mod session;

use std::sync::Arc;
use std::time::Instant;

use axum::response::IntoResponse as _;
use buffa::Message as _;
use bytes::Bytes;
use connectrpc::{
    CompressionPolicy, ConnectError, ConnectRpcService, ErrorCode, ErrorDetail, InboundStream, Limits,
    Protocol as Wire, RequestContext, Response, Router, ServiceRequest, ServiceResult, ServiceStream,
};
use connectrpc_health::{Checker, HealthService, Status};
use connectrpc_reflection::{ReflectionError, Reflector};
use futures::StreamExt as _;
use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::arrays::{Array, Dtype, Given, Item, Kind, Named, Results, lengths};
use crate::call::{Answer, Beside, Form, Readiness, Request};
use crate::clients::Caller;
use crate::deadline::Deadline;
use crate::envelope::invalid;
use crate::failed::{Code, Failed, Violation, shortened};
use crate::generated::{DESCRIPTORS, inference, ropewalk::v1 as proto};
use crate::http::{CACHE, Shared, whole_seconds};
use crate::kserve;
use crate::telemetry::{Protocol, Watched};
use crate::tool::Tool;

/// After how many milliseconds a client may try again.
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// The services; `leaving` becomes true when the server leaves.
pub(crate) fn service(
    shared: Arc<Shared>,
    leaving: watch::Receiver<bool>,
) -> Result<ConnectRpcService, ReflectionError> {
    let limits =
        Limits::default().with_max_request_body_size(shared.largest).with_max_message_size(shared.largest);
    let health = Arc::new(HealthService::new(Health(Arc::clone(&shared))));
    let models = Arc::new(kserve::Models::new(Arc::clone(&shared)));
    let models = kserve::Service { models, leaving };
    let router = Router::new()
        .add_service(Arc::new(Service(shared)))
        .add_service(Arc::new(models))
        .add_service(health);
    let router = connectrpc_health::apply_request_limits(router, connectrpc_health::request_limits());
    let reflector = Reflector::from_descriptor_set_bytes(DESCRIPTORS)?;
    // Numbers hardly shrink, and gzip takes ten milliseconds for each megabyte of an answer: on a machine and within a
    // data centre it is slower than the network. Requests may be compressed.
    let plain = CompressionPolicy::disabled();
    let service = connectrpc_reflection::install(router, reflector).into_axum_service();
    Ok(service.with_limits(limits).with_compression_policy(plain))
}

/// Whether a request is a call of a service, whose client reads the errors of these protocols.
pub(crate) fn is_call<B>(request: &http::Request<B>) -> bool {
    let path = request.uri().path();
    let media_type = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    ["/ropewalk.", "/grpc.", "/inference."].iter().any(|start| path.starts_with(start))
        || media_type.starts_with(b"application/grpc")
}

/// Refuses a call, with these headers, in its own protocol.
pub(crate) fn refuse(failed: Failed, headers: &HeaderMap) -> axum::response::Response {
    ConnectError::from(failed).into_http_response(headers).into_response()
}

/// `grpc.health.v1.Health`, for the whole server and for each of its services.
struct Health(Arc<Shared>);

impl Checker for Health {
    async fn check(&self, service: &str) -> Result<Status, ConnectError> {
        if !matches!(service, "" | proto::TOOLS_SERVICE_NAME | inference::GRPC_INFERENCE_SERVICE_SERVICE_NAME)
        {
            return Err(ConnectError::not_found("there is no such service"));
        }
        Ok(match self.0.runner.readiness() {
            Readiness::Ready => Status::Serving,
            Readiness::Starting(..) | Readiness::NotReady(_) => Status::NotServing,
        })
    }
}

/// The service of `tools.proto`.
struct Service(Arc<Shared>);

impl Service {
    /// The call that a message asks for.
    fn request(
        &self,
        context: &RequestContext,
        message: proto::ExecuteRequest,
        streams: bool,
    ) -> Result<Request, Failed> {
        let proto::ExecuteRequest { tool: name, arguments, metadata, .. } = message;
        let (caller, catalog) = (Caller::of(context.extensions()), self.0.catalog.get());
        let found = catalog.tool_for(&caller, &name);
        let tool = found.as_ref().ok().copied();
        let watched = self.0.telemetry.begin(protocol(context), tool, context.headers());
        watched.by(&caller);
        let refused = match found.and_then(|tool| caller.take().map(|()| tool)) {
            Err(_) if catalog.session_for(&caller, &name).is_ok() => {
                Failed::new(Code::FailedPrecondition, "the tool is a session: open it by Session")
            }
            Err(failed) => failed,
            Ok(tool) if tool.streams == streams => {
                let (tool, deadline) = (Arc::clone(tool), context.deadline());
                match given(arguments.into_option()) {
                    Ok(given) => return Ok(request(tool, given, metadata, deadline, watched)),
                    Err(wrong) => wrong,
                }
            }
            Ok(tool) if tool.streams => {
                Failed::new(Code::FailedPrecondition, "the tool streams: call it by ExecuteStream")
            }
            Ok(_) => Failed::new(Code::FailedPrecondition, "the tool does not stream: call it by Execute"),
        };
        watched.failed(&refused);
        Err(refused)
    }
}

/// The protocol of a call.
fn protocol(context: &RequestContext) -> Protocol {
    match context.protocol() {
        Some(Wire::Grpc) => Protocol::Grpc,
        Some(Wire::GrpcWeb) => Protocol::GrpcWeb,
        _ => Protocol::Connect,
    }
}

/// What a message gives to the tool.
pub(crate) fn given(value: Option<proto::Value>) -> Result<Given, Failed> {
    let plain = |form, arguments| Ok(Given { form, arguments, beside: Beside::default() });
    let Some(kind) = value.and_then(|value| value.kind) else {
        return plain(Form::Json, Bytes::from_static(b"{}"));
    };
    match kind {
        proto::value::Kind::Json(bytes) => plain(Form::Json, bytes),
        proto::value::Kind::Msgpack(bytes) => plain(Form::Msgpack, bytes),
        proto::value::Kind::Raw(bytes) => plain(Form::Raw, bytes),
        proto::value::Kind::Array(array) => {
            let wrong = |description| invalid(vec![Violation { field: String::new(), description }]);
            Ok(Given::one(array_of(*array).map_err(wrong)?))
        }
        proto::value::Kind::Values(values) => named(*values),
        proto::value::Kind::List(_) => {
            Err(Failed::new(Code::InvalidArgument, "arguments have names: send values"))
        }
    }
}

/// Arguments by their names.
fn named(values: proto::Values) -> Result<Given, Failed> {
    let mut named = Named::default();
    for (name, value) in values.values {
        match value.kind {
            Some(proto::value::Kind::Json(text)) => named.add_json(&name, &text),
            Some(proto::value::Kind::Array(array)) => match array_of(*array) {
                Ok(array) => named.add_array(&name, array),
                Err(wrong) => named.refuse(&name, wrong),
            },
            _ => named.refuse(&name, String::from("among values there are JSON and arrays")),
        }
    }
    if named.wrong.is_empty() { Ok(named.given()) } else { Err(invalid(named.wrong)) }
}

fn array_of(message: proto::Array) -> Result<Array, String> {
    let dtype = Dtype::of_name(&message.dtype)
        .ok_or_else(|| format!("there is no type of items named {:?}", shortened(&message.dtype)))?;
    Array::new(dtype, lengths(&message.shape)?, message.data)
}

/// A call as its message says it: the tool's name, what the tool is given, its metadata.
pub(crate) struct Said {
    pub(crate) tool: String,
    /// Or what is wrong with it.
    pub(crate) given: Result<Given, Failed>,
    pub(crate) metadata: Map<String, Value>,
}

impl Said {
    /// The call of these bytes of an `ExecuteRequest`.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let message = proto::ExecuteRequest::decode_from_slice(bytes).ok()?;
        let proto::ExecuteRequest { tool, arguments, metadata, .. } = message;
        let metadata = metadata.into_iter().map(|(key, text)| (key, Value::String(text))).collect();
        Some(Self { tool, given: given(arguments.into_option()), metadata })
    }
}

/// The bytes of an `ExecuteResponse`, and, because both have one field with one number, of an `ExecuteStreamResponse`.
pub(crate) fn response(answer: Answer) -> Result<Bytes, Failed> {
    let response = proto::ExecuteResponse { result: Some(value(answer)?).into(), ..Default::default() };
    Ok(Bytes::from(response.encode_to_vec()))
}

/// The call of a tool.
fn request(
    tool: Arc<Tool>,
    given: Given,
    metadata: impl IntoIterator<Item = (String, String)>,
    deadline: Option<Instant>,
    watched: Watched,
) -> Request {
    let Given { form, arguments, beside } = given;
    let mut given: Map<String, Value> =
        metadata.into_iter().map(|(key, text)| (key, Value::String(text))).collect();
    watched.add_context(&mut given);
    let metadata =
        if given.is_empty() { Bytes::new() } else { Bytes::from(Value::Object(given).to_string()) };
    let deadline = deadline.map(Deadline::from);
    Request { tool, form, arguments, beside, metadata, deadline, reports: None, watched }
}

/// What a tool gave, as a message.
pub(crate) fn value(answer: Answer) -> Result<proto::Value, Failed> {
    use proto::value::Kind as Of;
    let kind = match answer.form {
        Form::Json => Of::Json(answer.bytes),
        Form::Msgpack => Of::Msgpack(answer.bytes),
        Form::Raw => Of::Raw(answer.bytes),
        Form::Arrays | Form::Array => {
            let strange = || Failed::new(Code::Internal, "the tool's worker has sent arrays that are none");
            let Results { kind, items } = Results::read(&answer.bytes).ok_or_else(strange)?;
            let mut items = items.into_iter().map(|(name, item)| (name.unwrap_or_default(), part(item)));
            match kind {
                Kind::Array => return items.next().map(|(_, value)| value).ok_or_else(strange),
                Kind::List => {
                    let items = items.map(|(_, value)| value).collect();
                    Of::List(Box::new(proto::List { items, ..Default::default() }))
                }
                Kind::Values => {
                    Of::Values(Box::new(proto::Values { values: items.collect(), ..Default::default() }))
                }
            }
        }
    };
    Ok(proto::Value { kind: Some(kind), ..Default::default() })
}

/// A part of a result, as a message.
fn part(item: Item) -> proto::Value {
    let kind = match item {
        Item::Json(text) => proto::value::Kind::Json(text),
        Item::Array(Array { dtype, shape, data }) => proto::value::Kind::Array(Box::new(proto::Array {
            dtype: dtype.name().to_owned(),
            shape: shape.into_iter().map(|length| i64::try_from(length).unwrap_or(i64::MAX)).collect(),
            data,
            ..Default::default()
        })),
    };
    proto::Value { kind: Some(kind), ..Default::default() }
}

fn described(tool: &Tool) -> proto::Tool {
    proto::Tool {
        name: tool.name.to_string(),
        description: tool.description.clone(),
        input_schema: tool.input_schema.clone(),
        output_schema: tool.output_schema.clone(),
        streams: tool.streams,
        ..Default::default()
    }
}

/// Bytes of violations that stand in the details of a status. Those are a header of gRPC, of which its libraries read 8
/// KiB by default, in base64 and beside the message.
const MOST_DETAILS: usize = 3 << 10;

/// The first ones of these, as many as the details of a status have room for.
fn details(found: Vec<Violation>) -> Vec<Violation> {
    let mut bytes = 0;
    let fits = |one: &Violation| {
        bytes += one.field.len() + one.description.len() + 8;
        bytes <= MOST_DETAILS
    };
    found.into_iter().take_while(fits).collect()
}

fn violations(found: Vec<Violation>) -> Vec<proto::FieldViolation> {
    let made =
        |Violation { field, description }| proto::FieldViolation { field, description, ..Default::default() };
    found.into_iter().map(made).collect()
}

impl From<Failed> for ConnectError {
    fn from(failed: Failed) -> Self {
        let code = match failed.code {
            Code::Cancelled => ErrorCode::Canceled,
            Code::Unknown => ErrorCode::Unknown,
            Code::InvalidArgument => ErrorCode::InvalidArgument,
            Code::DeadlineExceeded => ErrorCode::DeadlineExceeded,
            Code::NotFound => ErrorCode::NotFound,
            Code::AlreadyExists => ErrorCode::AlreadyExists,
            Code::PermissionDenied => ErrorCode::PermissionDenied,
            Code::ResourceExhausted => ErrorCode::ResourceExhausted,
            Code::FailedPrecondition => ErrorCode::FailedPrecondition,
            Code::Aborted => ErrorCode::Aborted,
            Code::OutOfRange => ErrorCode::OutOfRange,
            Code::Unimplemented => ErrorCode::Unimplemented,
            Code::Internal => ErrorCode::Internal,
            Code::Unavailable => ErrorCode::Unavailable,
            Code::DataLoss => ErrorCode::DataLoss,
            Code::Unauthenticated => ErrorCode::Unauthenticated,
        };
        let mut error = Self::new(code, failed.message.into_owned());
        if let Some(time) = failed.retry_after {
            error.response_headers_mut().insert(RETRY_AFTER, HeaderValue::from(whole_seconds(time)));
            // What clients of gRPC read (gRFC A6).
            let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
            error.trailers_mut().insert(PUSHBACK, HeaderValue::from(millis));
        }
        if failed.violations.is_empty() {
            return error;
        }
        let violations = violations(details(failed.violations));
        let details = proto::FieldViolations { violations, ..Default::default() };
        error.with_detail(ErrorDetail::from_message("ropewalk.v1.FieldViolations", &details))
    }
}

impl proto::Tools for Service {
    async fn execute<'a>(
        &'a self,
        context: RequestContext,
        request: ServiceRequest<'_, proto::ExecuteRequest>,
    ) -> ServiceResult<impl connectrpc::Encodable<proto::ExecuteResponse> + Send + use<'a>> {
        let request = self.request(&context, request.to_owned_message(), false)?;
        let watched = request.watched.clone();
        let answer = self.0.runner.call(request).await.inspect_err(|failed| watched.failed(failed))?;
        let result = value(answer).inspect_err(|failed| watched.failed(failed))?;
        watched.ended();
        let response =
            Response::new(proto::ExecuteResponse { result: Some(result).into(), ..Default::default() });
        Ok(match watched.lookup() {
            Some(found) => response.with_header(CACHE, found.name()),
            None => response,
        })
    }

    async fn execute_stream(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, proto::ExecuteRequest>,
    ) -> ServiceResult<ServiceStream<impl connectrpc::Encodable<proto::ExecuteStreamResponse> + Send + use<>>>
    {
        let request = self.request(&context, request.to_owned_message(), true)?;
        let watched = request.watched.clone();
        let items = self.0.runner.stream(request).await.inspect_err(|failed| watched.failed(failed))?;
        Ok(Response::stream(watched.over(items).map(|item| {
            let item = item.and_then(value)?;
            Ok(proto::ExecuteStreamResponse { item: Some(item).into(), ..Default::default() })
        })))
    }

    async fn session(
        &self,
        context: RequestContext,
        requests: InboundStream<proto::SessionRequest>,
    ) -> ServiceResult<ServiceStream<impl connectrpc::Encodable<proto::SessionResponse> + Send + use<>>> {
        Ok(Response::stream(session::open(Arc::clone(&self.0), &context, requests).await?))
    }

    async fn list_tools<'a>(
        &'a self,
        context: RequestContext,
        _request: ServiceRequest<'_, proto::ListToolsRequest>,
    ) -> ServiceResult<impl connectrpc::Encodable<proto::ListToolsResponse> + Send + use<'a>> {
        let (caller, catalog) = (Caller::of(context.extensions()), self.0.catalog.get());
        let tools = catalog.tools_of(&caller).map(|tool| described(tool)).collect();
        let sessions = catalog.sessions_of(&caller).map(|one| session::described(one)).collect();
        Response::ok(proto::ListToolsResponse { tools, sessions, ..Default::default() })
    }
}
