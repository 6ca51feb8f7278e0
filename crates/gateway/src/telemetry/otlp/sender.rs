//! The way to the collector.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{HttpClient, HttpError};
use tokio::runtime::Handle;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::{Export, refused, variable};
use crate::listener::authorities;

/// Bytes that a collector's answer may have.
const MOST_ANSWER: usize = 1 << 20;

/// Sends a request of an exporter on the server's runtime, whichever thread asks.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    runtime: Handle,
    timeout: Duration,
}

impl Sender {
    /// One that sends on this runtime, also to a collector that wants an encrypted way.
    ///
    /// # Errors
    ///
    /// When the authorities of such a collector cannot be read.
    pub(super) fn new(export: &Export, runtime: &Handle, is_encrypted: bool) -> io::Result<Self> {
        let roots = if is_encrypted { roots(export)? } else { RootCertStore::empty() };
        let config = ClientConfig::builder_with_provider(default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1();
        let millis = variable("OTEL_EXPORTER_OTLP_TIMEOUT").and_then(|text| text.parse().ok());
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector.build()),
            runtime: runtime.clone(),
            timeout: Duration::from_millis(millis.unwrap_or(10_000)),
        })
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

/// The authorities of the file of the settings, or of the environment, or those that the system knows.
fn roots(export: &Export) -> io::Result<RootCertStore> {
    const VARIABLE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";
    if let Some(path) = &export.ca {
        return authorities("otlp_ca", path);
    }
    if let Some(path) = variable(VARIABLE) {
        return authorities(VARIABLE, &PathBuf::from(path));
    }
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if added == 0 {
        return Err(refused(
            "the system knows no authorities of certificates: name a file of them (otlp_ca)",
        ));
    }
    Ok(roots)
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
