//! MCP, the Model Context Protocol: the tools for agents, over HTTP and over standard input and output.
//!
//! rmcp, the Rust SDK of the protocol's authors, speaks it: versions, lifecycles, errors. What stands here is what rmcp
//! leaves to a server, and the short way of a plain call (`direct.rs`).
//!
//! Source: <https://modelcontextprotocol.io/specification/2026-07-28>, and 2025-11-25.

mod answers;
mod cancels;
mod direct;
mod handler;
mod http;
mod listing;
mod message;
mod sessions;
mod stdio;
mod tasks;

use std::sync::Arc;

use axum::Router;

use crate::http::Shared;
use crate::tool::Tools;

#[cfg(any(test, fuzzing))]
pub(crate) use message::look;
pub(crate) use stdio::attend;

/// The tools, as MCP has them.
#[derive(Clone)]
pub(crate) struct Mcp(handler::Handler);

impl Mcp {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self(handler::Handler::new(shared))
    }

    /// From now on these are the tools.
    pub(crate) fn replace(&self, tools: &Tools) {
        drop(self.0.listing.replace(listing::Listing::new(tools)));
    }

    /// Lets no further call outlive its request: the server leaves.
    pub(crate) fn leave(&self) {
        self.0.tasks.leave();
    }

    /// Returns when no call runs that has outlived its request.
    pub(crate) async fn at_rest(&self) {
        self.0.tasks.at_rest().await;
    }

    /// Gives up the calls that have outlived their requests; true if there were none.
    pub(crate) fn give_up(&self) -> bool {
        self.0.tasks.give_up()
    }

    /// What is served over HTTP.
    pub(crate) fn routes(&self) -> Router {
        http::routes(self.0.clone())
    }
}
