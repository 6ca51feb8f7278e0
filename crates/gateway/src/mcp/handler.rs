//! The server as rmcp calls it: what it can do, the list of tools, and their calls.

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::join;
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CustomRequest, CustomResult, ErrorCode,
    ErrorData, Implementation, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam,
    ProgressToken, ProtocolVersion, ServerCapabilities, ServerConfig, Tool as Listed,
};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer, ServerHandler};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::answers::{Said, collected};
use super::cancels::Entered;
use super::listing::{Listing, Shown};
use super::message::{Arguments, INVALID_PARAMS};
use crate::call::{Answer, Beside, Form, Progress, Request};
use crate::clients::Caller;
use crate::failed::Failed;
use crate::http::Shared;
use crate::swap::Swap;
use crate::telemetry::{PARENT, Protocol, STATE, Watched};
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
}

impl Handler {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let listing = Arc::new(Swap::new(Listing::new(&shared.catalog.get().tools)));
        Self { shared, listing }
    }

    /// Runs a call to its end. Dropping the future gives it up.
    pub(super) async fn run(&self, shown: &Shown, request: Request) -> Said {
        let watched = request.watched.clone();
        match self.answered(shown, request).await {
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

    async fn answered(&self, shown: &Shown, request: Request) -> Result<Answer, Failed> {
        if !shown.tool.streams {
            return self.shared.runner.call(request).await;
        }
        let watched = request.watched.clone();
        let items = self.shared.runner.stream(request).await?;
        let bytes = collected(Box::pin(watched.over(items)), self.shared.largest).await?;
        Ok(Answer { form: Form::Json, bytes })
    }
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

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let mut made = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
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
        let request = Request {
            tool: Arc::clone(&shown.tool),
            form: Form::Json,
            arguments,
            beside: Beside::default(),
            metadata,
            deadline: None,
            reports: token.is_some().then_some(reports),
            watched,
        };
        let telling = async {
            if let Some(token) = token {
                tell(&context.peer, token, came).await;
            }
        };
        let mut running = pin!(join(self.run(shown, request), telling));
        tokio::select! {
            biased;
            () = cancelled(&context, entered) => Err(ErrorData::internal_error("the call was cancelled", None)),
            (said, ()) = &mut running => Ok(CallToolResponse::Complete(CallToolResult::from(said))),
        }
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method;
        // A request that rmcp knows by another shape comes here, too.
        if matches!(&*method, "initialize" | "server/discover" | "tools/list" | "tools/call") {
            let text = format!("the params do not fit the method {method}");
            return Err(ErrorData::new(ErrorCode(INVALID_PARAMS), text, None));
        }
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None))
    }
}
