//! The service: a request becomes a call, as those of other protocols do.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use connectrpc::{
    ConnectError, Encodable, HasMessageView, InboundStream, Protocol as Wire, RequestContext, Response,
    ServiceRequest, ServiceResult, ServiceStream, StreamMessage,
};
use futures::{Stream, StreamExt as _, stream};
use ropewalk_sync::Mutex;
use serde_json::{Map, Value};
use tokio::sync::watch;

use super::model::{Model, Tensor};
use super::{inputs, outputs};
use crate::call::{Answer, Request};
use crate::clients::{Caller, Shown};
use crate::deadline::Deadline;
use crate::failed::{Code, Failed};
use crate::generated::inference as proto;
use crate::http::Shared;
use crate::telemetry::{Protocol, Watched};
use crate::tool::Tool;

use proto::infer_parameter::ParameterChoice;
use proto::model_metadata_response::TensorMetadata;

/// A tool, and the model that it is.
type Known = (Weak<Tool>, Arc<Model>);

/// The tools of a server as models.
pub(crate) struct Models {
    shared: Arc<Shared>,
    /// What is known of them: what a call has read from the tool's schemas.
    known: Mutex<BTreeMap<Arc<str>, Known>>,
}

/// The responses to a request of a stream.
type Responses = Pin<Box<dyn Stream<Item = Result<proto::ModelInferResponse, Failed>> + Send>>;

impl Models {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, known: Mutex::default() }
    }

    fn model(&self, tool: &Arc<Tool>) -> Arc<Model> {
        let found = self.known.lock().get(&tool.name).cloned();
        if let Some((known, model)) = found
            && Weak::as_ptr(&known) == Arc::as_ptr(tool)
        {
            return model;
        }
        let model = Arc::new(Model::of(tool));
        let mut known = self.known.lock();
        // Those of tools that a reload has replaced.
        known.retain(|_, (tool, _)| tool.strong_count() > 0);
        known.insert(Arc::clone(&tool.name), (Arc::downgrade(tool), Arc::clone(&model)));
        drop(known);
        model
    }

    /// The tool of this name, if the caller may call it.
    fn tool(&self, caller: &Caller, name: &str, version: &str) -> Result<Arc<Tool>, Failed> {
        if !matches!(version, "" | "1") {
            return Err(Failed::new(Code::NotFound, "tools have one version, which is 1"));
        }
        self.shared.catalog.get().tool_for(caller, name).cloned()
    }

    /// The call that a request asks for.
    fn request(
        &self,
        context: &RequestContext,
        caller: &Caller,
        message: &mut proto::ModelInferRequest,
    ) -> Result<Request, Failed> {
        let tool = self.tool(caller, &message.model_name, &message.model_version);
        let watched = self.shared.telemetry.begin(protocol(context), tool.as_ref().ok(), context.headers());
        watched.by(caller);
        let made = tool.and_then(|tool| {
            caller.take()?;
            if let Some(refused) = outputs::refused(&message.outputs) {
                return Err(refused);
            }
            let given = inputs::given(&self.model(&tool), message)?;
            let mut metadata = Map::new();
            watched.add_context(&mut metadata);
            let metadata = if metadata.is_empty() {
                Bytes::new()
            } else {
                Bytes::from(Value::Object(metadata).to_string())
            };
            Ok(Request {
                tool,
                form: given.form,
                arguments: given.arguments,
                beside: given.beside,
                metadata,
                deadline: context.deadline().map(Deadline::from),
                reports: None,
                watched: watched.clone(),
            })
        });
        made.inspect_err(|failed| watched.failed(failed))
    }

    async fn infer(
        &self,
        context: &RequestContext,
        mut message: proto::ModelInferRequest,
    ) -> Result<proto::ModelInferResponse, Failed> {
        let request = self.request(context, &Caller::of(context.extensions()), &mut message)?;
        let watched = request.watched.clone();
        let answered = self.called(request, &message).await;
        ended(&watched, &answered);
        answered
    }

    async fn called(
        &self,
        request: Request,
        message: &proto::ModelInferRequest,
    ) -> Result<proto::ModelInferResponse, Failed> {
        if request.tool.streams {
            let text = "the tool streams: call it by ModelStreamInfer";
            return Err(Failed::new(Code::FailedPrecondition, text));
        }
        answer(message, self.shared.runner.call(request).await?)
    }

    /// The responses to a request of a stream: one, or one for each item.
    async fn responses(
        self: Arc<Self>,
        context: Arc<RequestContext>,
        mut message: proto::ModelInferRequest,
    ) -> Responses {
        let once = |answered| -> Responses { Box::pin(stream::once(async { answered })) };
        // Asked again with each request: a stream may last longer than what its caller may do.
        let shown = Shown::of(context.headers(), context.extensions());
        let admitted = self.shared.roster.admit(&shown).map_err(|_| {
            let text = "the caller has begun the stream as a client that it is no more";
            Failed::new(Code::Unauthenticated, text)
        });
        let request = admitted.and_then(|caller| self.request(&context, &caller, &mut message));
        let request = match request {
            Ok(request) => request,
            Err(failed) => return once(Err(failed)),
        };
        let watched = request.watched.clone();
        if !request.tool.streams {
            let answered = self.called(request, &message).await.map(last);
            ended(&watched, &answered);
            return once(answered);
        }
        let items = match self.shared.runner.stream(request).await {
            Ok(items) => items,
            Err(failed) => {
                watched.failed(&failed);
                return once(Err(failed));
            }
        };
        // A client that wants to know the end asks for a response without outputs.
        let asks = message.parameters.get("triton_enable_empty_final_response");
        let asks = asks.and_then(|one| one.parameter_choice.as_ref());
        let end =
            (asks == Some(&ParameterChoice::BoolParam(true))).then(|| Ok(last(named(&message, Vec::new()))));
        let items = watched.over(items).map(move |item| item.and_then(|item| answer(&message, item)));
        Box::pin(items.chain(stream::iter(end)))
    }
}

fn ended(watched: &Watched, answered: &Result<proto::ModelInferResponse, Failed>) {
    match answered {
        Ok(_) => watched.ended(),
        Err(failed) => watched.failed(failed),
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

/// The response to a request, with what it asks for of an answer.
fn answer(message: &proto::ModelInferRequest, answer: Answer) -> Result<proto::ModelInferResponse, Failed> {
    Ok(named(message, outputs::wanted(outputs::outputs(answer)?, &message.outputs)?))
}

fn named(message: &proto::ModelInferRequest, made: Vec<outputs::Output>) -> proto::ModelInferResponse {
    let (model_name, id) = (message.model_name.clone(), message.id.clone());
    proto::ModelInferResponse { model_name, id, ..outputs::response(made) }
}

/// The same, of which its client knows that it is the last.
fn last(mut response: proto::ModelInferResponse) -> proto::ModelInferResponse {
    let parameter_choice = Some(ParameterChoice::BoolParam(true));
    let is_last = proto::InferParameter { parameter_choice, ..Default::default() };
    response.parameters.insert(String::from("triton_final_response"), is_last);
    response
}

fn metadata(tensors: &[Tensor]) -> Vec<TensorMetadata> {
    let of = |tensor: &Tensor| TensorMetadata {
        name: tensor.name.clone(),
        datatype: tensor.datatype().to_owned(),
        shape: tensor.shape(),
        ..Default::default()
    };
    tensors.iter().map(of).collect()
}

/// The service of the definition.
pub(crate) struct Service {
    pub(crate) models: Arc<Models>,
    /// Becomes true when the server leaves.
    pub(crate) leaving: watch::Receiver<bool>,
}

/// The requests of a stream. When the server leaves, an error comes in place of the next one: a client that keeps the
/// stream for later asks another server then.
fn until_leaving<M: HasMessageView + Send + 'static>(
    requests: InboundStream<M>,
    leaving: watch::Receiver<bool>,
) -> impl Stream<Item = Result<StreamMessage<M>, ConnectError>> + Send {
    stream::unfold(Some((requests, leaving)), |left| async move {
        let (mut requests, mut leaving) = left?;
        let request = tokio::select! {
            biased;
            _ = leaving.wait_for(|leaving| *leaving) => {
                return Some((Err(Failed::leaving().into()), None));
            }
            request = requests.next() => request?,
        };
        Some((request, Some((requests, leaving))))
    })
}

impl proto::GrpcInferenceService for Service {
    async fn server_live<'a>(
        &'a self,
        _context: RequestContext,
        _request: ServiceRequest<'_, proto::ServerLiveRequest>,
    ) -> ServiceResult<impl Encodable<proto::ServerLiveResponse> + Send + use<'a>> {
        Response::ok(proto::ServerLiveResponse { live: true, ..Default::default() })
    }

    async fn server_ready<'a>(
        &'a self,
        _context: RequestContext,
        _request: ServiceRequest<'_, proto::ServerReadyRequest>,
    ) -> ServiceResult<impl Encodable<proto::ServerReadyResponse> + Send + use<'a>> {
        let ready = self.models.shared.runner.readiness().why_not().is_none();
        Response::ok(proto::ServerReadyResponse { ready, ..Default::default() })
    }

    async fn model_ready<'a>(
        &'a self,
        context: RequestContext,
        request: ServiceRequest<'_, proto::ModelReadyRequest>,
    ) -> ServiceResult<impl Encodable<proto::ModelReadyResponse> + Send + use<'a>> {
        self.models.tool(&Caller::of(context.extensions()), request.name, request.version)?;
        let ready = self.models.shared.runner.readiness().why_not().is_none();
        Response::ok(proto::ModelReadyResponse { ready, ..Default::default() })
    }

    async fn server_metadata<'a>(
        &'a self,
        _context: RequestContext,
        _request: ServiceRequest<'_, proto::ServerMetadataRequest>,
    ) -> ServiceResult<impl Encodable<proto::ServerMetadataResponse> + Send + use<'a>> {
        Response::ok(proto::ServerMetadataResponse {
            name: String::from("ropewalk"),
            version: String::from(env!("CARGO_PKG_VERSION")),
            ..Default::default()
        })
    }

    async fn model_metadata<'a>(
        &'a self,
        context: RequestContext,
        request: ServiceRequest<'_, proto::ModelMetadataRequest>,
    ) -> ServiceResult<impl Encodable<proto::ModelMetadataResponse> + Send + use<'a>> {
        let tool = self.models.tool(&Caller::of(context.extensions()), request.name, request.version)?;
        let model = self.models.model(&tool);
        Response::ok(proto::ModelMetadataResponse {
            name: tool.name.to_string(),
            versions: vec![String::from("1")],
            platform: String::from("ropewalk"),
            inputs: metadata(&model.inputs),
            outputs: metadata(&model.outputs),
            ..Default::default()
        })
    }

    async fn model_infer<'a>(
        &'a self,
        context: RequestContext,
        request: ServiceRequest<'_, proto::ModelInferRequest>,
    ) -> ServiceResult<impl Encodable<proto::ModelInferResponse> + Send + use<'a>> {
        Response::ok(self.models.infer(&context, request.to_owned_message()).await?)
    }

    async fn model_stream_infer(
        &self,
        context: RequestContext,
        requests: InboundStream<proto::ModelInferRequest>,
    ) -> ServiceResult<ServiceStream<impl Encodable<proto::ModelStreamInferResponse> + Send + use<>>> {
        let (models, context) = (Arc::clone(&self.models), Arc::new(context));
        let answers = until_leaving(requests, self.leaving.clone()).then(move |request| {
            let (models, context) = (Arc::clone(&models), Arc::clone(&context));
            async move {
                match request {
                    Ok(request) => {
                        let responses = models.responses(context, request.to_owned_message()).await;
                        responses.map(|answered| Ok(streamed(answered))).left_stream()
                    }
                    Err(error) => stream::once(async { Err(error) }).right_stream(),
                }
            }
        });
        Ok(Response::stream(answers.flatten()))
    }
}

/// A response, or why there is none: a failed request does not end the stream.
fn streamed(answered: Result<proto::ModelInferResponse, Failed>) -> proto::ModelStreamInferResponse {
    match answered {
        Ok(response) => {
            proto::ModelStreamInferResponse { infer_response: Some(response).into(), ..Default::default() }
        }
        Err(failed) => {
            let error_message = format!("{}: {}", failed.code.name(), failed.message);
            proto::ModelStreamInferResponse { error_message, ..Default::default() }
        }
    }
}
