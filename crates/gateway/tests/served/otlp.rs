//! What a collector is sent: a stub takes the place of one.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use ropewalk_gateway::{Export, Server};
use ropewalk_sync::Mutex;

use crate::authority::Authority;
use crate::http::ask;
use crate::server;

#[derive(Default)]
struct Came {
    spans: Mutex<Vec<Span>>,
    services: Mutex<Vec<String>>,
    metrics: Mutex<Vec<(String, Data)>>,
}

fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|one| one.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        any_value::Value::StringValue(text) => Some(text.clone()),
        any_value::Value::IntValue(number) => Some(number.to_string()),
        _ => None,
    }
}

async fn traces(State(came): State<Arc<Came>>, body: Bytes) {
    let request = ExportTraceServiceRequest::decode(body).expect("a message");
    for resource in request.resource_spans {
        let service = resource.resource.and_then(|one| text(&one.attributes, "service.name"));
        came.services.lock().extend(service);
        let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
        came.spans.lock().extend(spans);
    }
}

async fn metrics(State(came): State<Arc<Came>>, body: Bytes) {
    let request = ExportMetricsServiceRequest::decode(body).expect("a message");
    let scopes = request.resource_metrics.into_iter().flat_map(|resource| resource.scope_metrics);
    let metrics = scopes.flat_map(|scope| scope.metrics);
    let named = metrics.filter_map(|metric| Some((metric.name, metric.data?)));
    came.metrics.lock().extend(named);
}

/// A collector, and its address.
async fn collector() -> (Arc<Came>, String) {
    let came = Arc::new(Came::default());
    let routes = Router::new()
        .route("/v1/traces", post(traces))
        .route("/v1/metrics", post(metrics))
        .with_state(Arc::clone(&came));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (came, address)
}

fn exporting(address: &str) -> Server {
    let (server, _) =
        server(|settings| settings.export = Export { endpoint: Some(address.to_owned()), ca: None });
    server
}

/// Ends the server, which exports what is left.
async fn stopped(server: Server) {
    tokio::task::spawn_blocking(move || server.stop()).await.expect("stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_a_span_in_its_client_s_trace() {
    let (came, address) = collector().await;
    let server = exporting(&address);
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let said = ask(&server, "POST", "/v1/tools/meta", &[("traceparent", parent)], b"{}").await;
    // What the tool is given continues the trace, with another parent: the run.
    let given = said.json()["traceparent"].as_str().expect("a context").to_owned();
    assert!(given.starts_with("00-0af7651916cd43dd8448eb211c80319c-") && given.ends_with("-01"), "{given}");
    assert!(!given.contains("b7ad6b7169203331"));
    ask(&server, "POST", "/v1/tools/fail", &[], b"{}").await;
    stopped(server).await;
    let spans = came.spans.lock();
    let of = |tool: &str| {
        spans.iter().find(|span| text(&span.attributes, "ropewalk.tool").as_deref() == Some(tool))
    };
    let meta = of("meta").expect("its span");
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(&meta.trace_id), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(hex(&meta.parent_span_id), "b7ad6b7169203331");
    assert_eq!(meta.name, "POST /v1/tools/{name}");
    assert_eq!(text(&meta.attributes, "http.response.status_code").as_deref(), Some("200"));
    assert!(meta.end_time_unix_nano >= meta.start_time_unix_nano);
    let fail = of("fail").expect("its span");
    assert!(fail.parent_span_id.is_empty() && fail.trace_id != meta.trace_id);
    assert_eq!(text(&fail.attributes, "error.type").as_deref(), Some("UNKNOWN"));
    let message = fail.status.as_ref().map(|status| status.message.as_str());
    assert_eq!(message, Some("ZeroDivisionError: division by zero"));
    assert_eq!(came.services.lock().first().map(String::as_str), Some("ropewalk"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_that_its_client_does_not_sample_is_not_exported() {
    let (came, address) = collector().await;
    let server = exporting(&address);
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
    let said = ask(&server, "POST", "/v1/tools/meta", &[("traceparent", parent)], b"{}").await;
    assert!(said.json()["traceparent"].as_str().expect("a context").ends_with("-00"));
    stopped(server).await;
    assert!(came.spans.lock().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_collector_has_the_numbers_of_the_metrics_page() {
    let (came, address) = collector().await;
    let server = exporting(&address);
    for _ in 0..4 {
        ask(&server, "POST", "/v1/tools/echo", &[], b"{}").await;
    }
    stopped(server).await;
    let metrics = came.metrics.lock();
    let data = |name: &str| metrics.iter().find(|(one, _)| one == name).map(|(_, data)| data);
    let Some(Data::Sum(calls)) = data("ropewalk.tool.calls") else { panic!("no calls: {metrics:?}") };
    assert!(calls.is_monotonic);
    let point = calls.data_points.first().expect("a point");
    assert_eq!(text(&point.attributes, "tool").as_deref(), Some("echo"));
    assert_eq!(text(&point.attributes, "rpc.response.status_code").as_deref(), Some("OK"));
    assert_eq!(format!("{:?}", point.value), "Some(AsInt(4))");
    let Some(Data::Histogram(times)) = data("ropewalk.tool.call.duration") else { panic!("no times") };
    assert_eq!(times.data_points.first().map(|point| point.count), Some(4));
    let Some(Data::Histogram(times)) = data("http.server.request.duration") else { panic!("no times") };
    assert_eq!(times.data_points.first().map(|point| point.count), Some(4));
    let Some(Data::Sum(shared)) = data("ropewalk.shared_memory.usage") else { panic!("no bytes") };
    assert!(!shared.is_monotonic);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_not_there_holds_nothing_up() {
    let server = exporting("http://127.0.0.1:9");
    assert_eq!(ask(&server, "POST", "/v1/tools/echo", &[], b"{}").await.status, 200);
    stopped(server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encrypted_collector_is_one_of_the_authority_that_is_named() {
    let (came, address) = collector().await;
    let authority = Authority::new("authority of collectors");
    let files = authority.server_files();
    // A server of ours before the collector takes the encryption away.
    let plain = address.trim_start_matches("http://").to_owned();
    let acceptor = files.acceptor();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let encrypted = format!("https://localhost:{}", listener.local_addr().expect("an address").port());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, plain) = (acceptor.clone(), plain.clone());
            tokio::spawn(async move {
                let Ok(mut outer) = acceptor.accept(stream).await else { return };
                let mut inner = tokio::net::TcpStream::connect(plain).await.expect("the collector");
                let _ = tokio::io::copy_bidirectional(&mut outer, &mut inner).await;
            });
        }
    });
    for (ca, wanted) in [(Authority::new("another").file(), 0), (authority.file(), 1)] {
        let export = Export { endpoint: Some(encrypted.clone()), ca: Some(ca) };
        let (server, _) = server(|settings| settings.export = export);
        ask(&server, "POST", "/v1/tools/echo", &[], b"{}").await;
        stopped(server).await;
        assert_eq!(came.spans.lock().len(), wanted);
    }
}

#[test]
fn an_address_that_is_none_is_refused() {
    let settings = ropewalk_gateway::Settings {
        http: Some("127.0.0.1:0".parse().expect("an address")),
        export: Export { endpoint: Some(String::from("ftp://collector")), ca: None },
        ..Default::default()
    };
    let runner = Arc::new(crate::Stub(Arc::default()));
    let error = Server::start(&settings, Default::default(), runner).expect_err("refused");
    assert!(error.to_string().contains("http://HOST:PORT"), "{error}");
}
