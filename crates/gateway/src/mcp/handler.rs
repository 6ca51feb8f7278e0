//! The server as rmcp calls it: what it can do, the list of tools, and their calls.

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, CustomRequest, CustomResult,
    ErrorCode, ErrorData, GetTaskParams, GetTaskResult, Implementation, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, ProgressToken, ProtocolVersion, ServerCapabilities,
    ServerConfig, Tool as Listed, UpdateTaskParams,
};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer, ServerHandler};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use super::answers::{Said, collected};
use super::cancels::Entered;
use super::listing::{Kind, Listing, Shown};
use super::message::{Arguments, INVALID_PARAMS};
use super::sessions::apart;
use super::tasks::{AFTER, Running, Tasks};
use crate::call::{Answer, Beside, Form, Progress, Request};
use crate::clients::Caller;
use crate::failed::{Code, Failed};
use crate::http::Shared;
use crate::sessions::Owner;
use crate::swap::Swap;
use crate::telemetry::{Ended, PARENT, Protocol, STATE, Watched};
use crate::tool::Tool;

/// The revisions that are served: the one without sessions, and those before it that know structured content.
const REVISIONS: &[ProtocolVersion] =
    &[ProtocolVersion::V_2025_06_18, ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2026_07_28];
/// Keys of `_meta` that are the protocol's own, and those with its prefix.
const PROGRESS_TOKEN: &str = "progressToken";
const OWN_PREFIX: &str = "io.modelcontextprotocol/";

/// See the module.
#[derive(Clone)]
pub(super) struct Handler {
    pub(super) shared: Arc<Shared>,
    pub(super) listing: Arc<Swap<Listing>>,
    pub(super) tasks: Arc<Tasks>,
}

impl Handler {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let listing = Arc::new(Swap::new(Listing::new(&shared.catalog.get().tools)));
        Self { shared, listing, tasks: Arc::default() }
    }

    /// Runs a call to its end. Dropping the future gives it up.
    pub(super) async fn run(&self, shown: &Shown, owner: &Owner, request: Request) -> Said {
        let watched = request.watched.clone();
        match self.answered(shown, owner, request).await {
            Ok(answer) => {
                watched.ended();
                Said::result(shown, &answer)
            }
            Err(failed) => {
                watched.failed(&failed);
                Said::failed(&failed)
            }
        }
    }

    /// A call has come. A client says its trace in the request's `_meta`, or in the headers of HTTP.
    pub(super) fn begin<'a>(
        &self,
        tool: Option<&Arc<Tool>>,
        headers: Option<&HeaderMap>,
        meta: impl Iterator<Item = (&'a str, Cow<'a, str>)>,
    ) -> Watched {
        let mut found = HeaderMap::new();
        for (key, text) in meta {
            let name = [PARENT, STATE].into_iter().find(|name| name.as_str() == key);
            if let (Some(name), Ok(value)) = (name, HeaderValue::from_str(&text)) {
                found.insert(name, value);
            }
        }
        let headers = headers.filter(|_| found.is_empty()).unwrap_or(&found);
        self.shared.telemetry.begin(Protocol::Mcp, tool, headers)
    }

    async fn answered(&self, shown: &Shown, owner: &Owner, mut request: Request) -> Result<Answer, Failed> {
        let sessions = &self.shared.sessions;
        let watched = request.watched.clone();
        let items = match &shown.kind {
            Kind::Tool if shown.tool.streams => self.shared.runner.stream(request).await?,
            Kind::Tool => return self.shared.runner.call(request).await,
            Kind::Open(of) => {
                let session = sessions.open(of, owner.clone(), Protocol::Mcp, request).await?;
                return Ok(json_of(&json!({"session": **session.id()})));
            }
            Kind::Method(of) | Kind::Close(of) => {
                let (id, arguments) = apart(&request.arguments)?;
                let session = sessions.find(&id, owner)?;
                if session.of().name() != of.name() {
                    let text = format!("it is a session of {}", session.of().name());
                    return Err(Failed::new(Code::InvalidArgument, text));
                }
                if matches!(shown.kind, Kind::Close(_)) {
                    sessions.end(&session, Ended::Closed).await?;
                    return Ok(json_of(&Value::Null));
                }
                // A session that was opened before the tools were loaded again has the methods of its own class.
                let known =
                    shown.tool.name.strip_prefix(&**of.name()).and_then(|name| name.strip_prefix('.'));
                let method = known.and_then(|name| session.of().methods.get(name));
                request.tool = Arc::clone(method.ok_or_else(|| Failed::no_tool(&shown.tool.name))?);
                request.arguments = arguments;
                let entered = sessions.enter(&session)?;
                if !request.tool.streams {
                    return sessions.call(entered, request).await;
                }
                sessions.stream(entered, request).await?
            }
        };
        let bytes = collected(Box::pin(watched.over(items)), self.shared.largest).await?;
        Ok(Answer { form: Form::Json, bytes })
    }
}

fn json_of(value: &Value) -> Answer {
    Answer { form: Form::Json, bytes: Bytes::from(value.to_string()) }
}

/// What a client says in `_meta` to the tool: its texts, as a JSON object.
pub(super) fn metadata<'a>(meta: impl Iterator<Item = (&'a str, Cow<'a, str>)>, watched: &Watched) -> Bytes {
    let mut found: Map<String, Value> = meta
        .filter(|(key, _)| *key != PROGRESS_TOKEN && !key.starts_with(OWN_PREFIX))
        .map(|(key, text)| (key.to_owned(), json!(text)))
        .collect();
    watched.add_context(&mut found);
    if found.is_empty() { Bytes::new() } else { Bytes::from(Value::Object(found).to_string()) }
}

/// Sends what a call reports, until its request is gone.
async fn tell(peer: &Peer<RoleServer>, token: ProgressToken, mut reports: watch::Receiver<Option<Progress>>) {
    let mut last = f64::NEG_INFINITY;
    while reports.changed().await.is_ok() {
        let Some(progress) = reports.borrow_and_update().clone() else { continue };
        // MCP wants numbers that grow.
        if progress.done <= last {
            continue;
        }
        last = progress.done;
        let mut said = ProgressNotificationParam::new(token.clone(), progress.done);
        said.total = progress.total;
        said.message = progress.note.map(String::from);
        // A client that has left hears nothing; its call is cancelled elsewhere.
        let _ = peer.notify_progress(said).await;
    }
}

/// The caller of a request; that of standard input has no head of HTTP.
fn caller(context: &RequestContext<RoleServer>) -> Caller {
    context.extensions.get::<Parts>().map(|parts| Caller::of(&parts.extensions)).unwrap_or_default()
}

async fn cancelled(context: &RequestContext<RoleServer>, entered: Option<&Arc<Entered>>) {
    match entered {
        Some(entered) => tokio::select! {
            () = context.ct.cancelled() => {}
            () = entered.cancelled() => {}
        },
        None => context.ct.cancelled().await,
    }
}

/// Whose a request is.
fn owner(context: &RequestContext<RoleServer>) -> Owner {
    context.extensions.get::<Parts>().map_or_else(Owner::default, |parts| Owner::of(&parts.extensions))
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let mut made = ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_tasks().build());
        made.server_info = Implementation::new("ropewalk", env!("CARGO_PKG_VERSION"));
        made.protocol_version = ProtocolVersion::V_2025_11_25;
        made
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(REVISIONS)
    }

    fn get_tool(&self, name: &str) -> Option<Listed> {
        self.listing.get().described(name).cloned()
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let caller = caller(&context);
        let cursor = request.and_then(|request| request.cursor);
        let wrong = || ErrorData::invalid_params("the cursor is none that this server has given", None);
        self.listing.get().page(&caller, cursor.as_deref()).ok_or_else(wrong)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let headers = context.extensions.get::<Parts>().map(|parts| &parts.headers);
        let texts =
            || context.meta.iter().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?.into())));
        let (caller, listing) = (caller(&context), self.listing.get());
        let shown = listing.shown(&caller, &request.name);
        let watched = self.begin(shown.as_ref().ok().map(|shown| &shown.tool), headers, texts());
        watched.by(&caller);
        let shown = shown.map_err(|failed| {
            watched.failed(&failed);
            ErrorData::invalid_params(failed.message, None)
        })?;
        if let Err(failed) = caller.take() {
            watched.failed(&failed);
            return Ok(CallToolResponse::Complete(CallToolResult::from(Said::failed(&failed))));
        }
        let parts = context.extensions.get::<Parts>().map(|parts| &parts.extensions);
        let raw = parts
            .and_then(|parts| parts.get::<Arguments>())
            .or_else(|| context.extensions.get::<Arguments>());
        let entered = parts.and_then(|parts| parts.get::<Arc<Entered>>());
        let arguments = match raw {
            Some(Arguments(bytes)) => bytes.clone(),
            None => Bytes::from(Value::Object(request.arguments.unwrap_or_default()).to_string()),
        };
        let metadata = metadata(texts(), &watched);
        let (reports, came) = watch::channel(None);
        let token = context.meta.get_progress_token();
        let takes_tasks = context.client_capabilities().is_some_and(|client| client.supports_tasks());
        let request = Request {
            tool: Arc::clone(&shown.tool),
            form: Form::Json,
            arguments,
            beside: Beside::default(),
            metadata,
            deadline: None,
            reports: (token.is_some() || takes_tasks).then_some(reports),
            watched,
        };
        let owner = parts.map_or_else(Owner::default, Owner::of);
        let (handler, shown, of) = (self.clone(), shown.clone(), owner.clone());
        // It owns what it needs: it may outlive the request.
        let mut running: Running = Box::pin(async move { handler.run(&shown, &of, request).await });
        let told = came.clone();
        let telling = async {
            if let Some(token) = token {
                tell(&context.peer, token, told).await;
            }
        };
        let (mut telling, mut soon) = (pin!(telling), pin!(sleep(AFTER)));
        let (mut is_told, mut may_go_on) = (false, takes_tasks);
        let said = loop {
            tokio::select! {
                biased;
                () = cancelled(&context, entered) => {
                    return Err(ErrorData::internal_error("the call was cancelled", None));
                }
                said = &mut running => break said,
                () = &mut telling, if !is_told => is_told = true,
                () = &mut soon, if may_go_on => {
                    may_go_on = false;
                    running = match self.tasks.keep(owner.clone(), came.clone(), running) {
                        Ok(task) => return Ok(CallToolResponse::Task(task)),
                        // With no room for a task, or no server to ask later, the client waits, as others do.
                        Err(running) => running,
                    };
                }
            }
        };
        if !is_told {
            telling.await;
        }
        Ok(CallToolResponse::Complete(CallToolResult::from(said)))
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.tasks.get(&request.task_id, &owner(&context)).map(GetTaskResult::new)
    }

    /// Tools ask their callers nothing, so there is nothing to answer.
    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.get(&request.task_id, &owner(&context)).map(|_| ())
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.cancel(&request.task_id, &owner(&context))
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method;
        // A request that rmcp knows by another shape comes here, too.
        if matches!(
            &*method,
            "initialize"
                | "server/discover"
                | "tools/list"
                | "tools/call"
                | "tasks/get"
                | "tasks/update"
                | "tasks/cancel"
        ) {
            let text = format!("the params do not fit the method {method}");
            return Err(ErrorData::new(ErrorCode(INVALID_PARAMS), text, None));
        }
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None))
    }
}
