//! gRPC, gRPC-Web and Connect: one definition (`proto/`) serves all three. Beside it stand gRPC's own services for
//! health and for reflection.

mod session;

use std::sync::Arc;
use std::time::Instant;

use buffa::Message as _;
use bytes::Bytes;
use connectrpc::{
    ConnectError, ConnectRpcService, ErrorCode, ErrorDetail, InboundStream, Limits, Protocol as Wire,
    RequestContext, Response, Router, ServiceRequest, ServiceResult, ServiceStream,
};
use connectrpc_health::{Checker, HealthService, Status};
use connectrpc_reflection::{ReflectionError, Reflector};
use futures::StreamExt as _;
use serde_json::{Map, Value};

use crate::call::{Answer, Form, Readiness, Request};
use crate::failed::{Code, Failed, Violation};
use crate::http::{CACHE, Shared};
use crate::telemetry::{Protocol, Watched};
use crate::tool::Tool;

mod generated {
    #![allow(missing_docs, unreachable_pub, clippy::all)]
    connectrpc::include_generated!();
}

use generated::ropewalk::v1 as proto;

/// What `tools.proto` compiles to.
const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

pub(crate) fn service(shared: Arc<Shared>) -> Result<ConnectRpcService, ReflectionError> {
    let limits =
        Limits::default().with_max_request_body_size(shared.largest).with_max_message_size(shared.largest);
    let health = Arc::new(HealthService::new(Health(Arc::clone(&shared))));
    let router = Router::new().add_service(Arc::new(Service(shared))).add_service(health);
    let router = connectrpc_health::apply_request_limits(router, connectrpc_health::request_limits());
    let reflector = Reflector::from_descriptor_set_bytes(DESCRIPTORS)?;
    Ok(connectrpc_reflection::install(router, reflector).into_axum_service().with_limits(limits))
}

/// `grpc.health.v1.Health`, for the whole server and for its one service.
struct Health(Arc<Shared>);

impl Checker for Health {
    async fn check(&self, service: &str) -> Result<Status, ConnectError> {
        if !matches!(service, "" | proto::TOOLS_SERVICE_NAME) {
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
        let catalog = self.0.catalog.get();
        let tool = catalog.tools.get(&name);
        let watched = self.0.telemetry.begin(protocol(context), tool, context.headers());
        let refused = match tool {
            None if catalog.tools.session(&name).is_some() => {
                Failed::new(Code::FailedPrecondition, "the tool is a session: open it by Session")
            }
            None => Failed::no_tool(&name),
            Some(tool) if tool.streams == streams => {
                let (tool, deadline) = (Arc::clone(tool), context.deadline());
                return Ok(request(tool, arguments.into_option(), metadata, deadline, watched));
            }
            Some(tool) if tool.streams => {
                Failed::new(Code::FailedPrecondition, "the tool streams: call it by ExecuteStream")
            }
            Some(_) => Failed::new(Code::FailedPrecondition, "the tool does not stream: call it by Execute"),
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

/// A call as its message says it: the tool's name, the form and the bytes of its arguments, its metadata.
pub(crate) struct Said {
    pub(crate) tool: String,
    pub(crate) form: Form,
    pub(crate) arguments: Bytes,
    pub(crate) metadata: Map<String, Value>,
}

impl Said {
    /// The call of these bytes of an `ExecuteRequest`.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let message = proto::ExecuteRequest::decode_from_slice(bytes).ok()?;
        let proto::ExecuteRequest { tool, arguments, metadata, .. } = message;
        let (form, arguments) = formed(arguments.into_option());
        let metadata = metadata.into_iter().map(|(key, text)| (key, Value::String(text))).collect();
        Some(Self { tool, form, arguments, metadata })
    }
}

/// The bytes of an `ExecuteResponse`, and, because both have one field with one number, of an `ExecuteStreamResponse`.
pub(crate) fn response(answer: Answer) -> Bytes {
    let response = proto::ExecuteResponse { result: Some(value(answer)).into(), ..Default::default() };
    Bytes::from(response.encode_to_vec())
}

fn formed(arguments: Option<proto::Value>) -> (Form, Bytes) {
    arguments.and_then(|value| value.kind).map_or_else(
        || (Form::Json, Bytes::from_static(b"{}")),
        |kind| match kind {
            proto::value::Kind::Json(bytes) => (Form::Json, Bytes::from(bytes)),
            proto::value::Kind::Msgpack(bytes) => (Form::Msgpack, Bytes::from(bytes)),
            proto::value::Kind::Raw(bytes) => (Form::Raw, Bytes::from(bytes)),
        },
    )
}

/// The call of a tool.
fn request(
    tool: Arc<Tool>,
    arguments: Option<proto::Value>,
    metadata: impl IntoIterator<Item = (String, String)>,
    deadline: Option<Instant>,
    watched: Watched,
) -> Request {
    let (form, arguments) = formed(arguments);
    let mut given: Map<String, Value> =
        metadata.into_iter().map(|(key, text)| (key, Value::String(text))).collect();
    watched.add_context(&mut given);
    let metadata =
        if given.is_empty() { Bytes::new() } else { Bytes::from(Value::Object(given).to_string()) };
    Request { tool, form, arguments, metadata, deadline, reports: None, watched }
}

/// What a tool gave, as a message.
fn value(answer: Answer) -> proto::Value {
    let bytes = Vec::from(answer.bytes);
    let kind = match answer.form {
        Form::Json => proto::value::Kind::Json(bytes),
        Form::Msgpack => proto::value::Kind::Msgpack(bytes),
        Form::Raw => proto::value::Kind::Raw(bytes),
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
            Code::PermissionDenied => ErrorCode::PermissionDenied,
            Code::ResourceExhausted => ErrorCode::ResourceExhausted,
            Code::FailedPrecondition => ErrorCode::FailedPrecondition,
            Code::Internal => ErrorCode::Internal,
            Code::Unavailable => ErrorCode::Unavailable,
            Code::Unauthenticated => ErrorCode::Unauthenticated,
        };
        let error = Self::new(code, failed.message.into_owned());
        if failed.violations.is_empty() {
            return error;
        }
        let violations = violations(failed.violations);
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
        watched.ended();
        let response = proto::ExecuteResponse { result: Some(value(answer)).into(), ..Default::default() };
        let response = Response::new(response);
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
            let item = item.map_err(ConnectError::from)?;
            Ok(proto::ExecuteStreamResponse { item: Some(value(item)).into(), ..Default::default() })
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
        _context: RequestContext,
        _request: ServiceRequest<'_, proto::ListToolsRequest>,
    ) -> ServiceResult<impl connectrpc::Encodable<proto::ListToolsResponse> + Send + use<'a>> {
        let catalog = self.0.catalog.get();
        let tools = catalog.tools.iter().map(|tool| described(tool)).collect();
        let sessions = catalog.tools.sessions().map(|one| session::described(one)).collect();
        Response::ok(proto::ListToolsResponse { tools, sessions, ..Default::default() })
    }
}
