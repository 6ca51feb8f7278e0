//! The way to the collector.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{HttpClient, HttpError};
use tokio::runtime::Handle;

use super::variable;

/// Bytes that a collector's answer may have.
const MOST_ANSWER: usize = 1 << 20;

/// Sends a request of an exporter on the server's runtime, whichever thread asks.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    client: Client<HttpConnector, Full<Bytes>>,
    runtime: Handle,
    timeout: Duration,
}

impl Sender {
    /// One that sends on this runtime.
    pub(super) fn new(runtime: &Handle) -> Self {
        let millis = variable("OTEL_EXPORTER_OTLP_TIMEOUT").and_then(|text| text.parse().ok());
        Self {
            client: Client::builder(TokioExecutor::new()).build_http(),
            runtime: runtime.clone(),
            timeout: Duration::from_millis(millis.unwrap_or(10_000)),
        }
    }

    async fn sent(self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, HttpError> {
        let sending = async {
            let response = self.client.request(request.map(Full::new)).await?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MOST_ANSWER).collect().await?.to_bytes();
            Ok(http::Response::from_parts(head, body))
        };
        tokio::time::timeout(self.timeout, sending).await?
    }
}

type Answering<'a> = Pin<Box<dyn Future<Output = Result<http::Response<Bytes>, HttpError>> + Send + 'a>>;

impl HttpClient for Sender {
    // The form that `async_trait` gives the method.
    fn send_bytes<'life, 'answer>(&'life self, request: http::Request<Bytes>) -> Answering<'answer>
    where
        'life: 'answer,
        Self: 'answer,
    {
        let sending = self.runtime.spawn(self.clone().sent(request));
        Box::pin(async move { sending.await? })
    }
}
