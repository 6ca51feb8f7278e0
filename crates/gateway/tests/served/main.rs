//! What the gateway serves, with a runner in place of workers.

mod authority;
mod callers;
mod floods;
mod http;
mod leaving;
mod mcp;
mod metrics;
mod otlp;
mod rpc;
mod tls;
mod unix;
mod unread;
mod zmq;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{StreamExt as _, stream};
use ropewalk_gateway::{
    Answer, Code, Failed, Items, Now, Progress, Readiness, Request, Runner, Server, Settings, Shed, Tool,
    Tools, Violation,
};

/// What a test sees of the calls that came.
#[derive(Default)]
struct Seen {
    /// Calls that have begun.
    begun: AtomicUsize,
    /// Calls whose caller has left before they ended.
    left: AtomicUsize,
    /// Calls may end.
    open: AtomicBool,
}

/// Counts when a call's future is dropped early.
struct Leaving(Arc<Seen>, bool);

impl Leaving {
    /// The call has ended by itself.
    fn ended(&mut self) {
        self.1 = true;
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if !self.1 {
            self.0.left.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// `echo` gives its arguments; `wait` ends when the test says so; `fail` fails in the way that its arguments name;
/// `count` streams, and `broken` does not get to its first item.
struct Stub(Arc<Seen>);

impl Runner for Stub {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Answer, Failed>> {
        let seen = Arc::clone(&self.0);
        Box::pin(async move {
            seen.begun.fetch_add(1, Ordering::SeqCst);
            let echo = Answer { form: request.form, bytes: request.arguments.clone() };
            match &*request.tool.name {
                "wait" => {
                    let mut leaving = Leaving(Arc::clone(&seen), false);
                    while !seen.open.load(Ordering::SeqCst) {
                        if request.deadline.is_some_and(|deadline| deadline.at <= Instant::now()) {
                            leaving.ended();
                            return Err(Failed::new(
                                Code::DeadlineExceeded,
                                "the caller's deadline has passed",
                            ));
                        }
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    leaving.ended();
                    Ok(echo)
                }
                "meta" => Ok(Answer { form: request.form, bytes: request.metadata }),
                "steps" => {
                    for done in 1..=3_u8 {
                        let progress =
                            Progress::new(f64::from(done), Some(3.0), Some(&format!("step {done}")));
                        request.reports.as_ref().map(|reports| reports.send_replace(Some(progress)));
                        tokio::task::yield_now().await;
                    }
                    Ok(echo)
                }
                "fail" => Err(failure(&request.arguments)),
                _ => Ok(echo),
            }
        })
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<Items, Failed>> {
        let leaving = Leaving(Arc::clone(&self.0), false);
        Box::pin(async move {
            self.0.begun.fetch_add(1, Ordering::SeqCst);
            let most: u64 =
                std::str::from_utf8(&request.arguments).ok().and_then(|text| text.parse().ok()).unwrap_or(3);
            let form = request.form;
            let first = if &*request.tool.name == "broken" { 1000_u64 } else { 0 };
            let items = stream::unfold((first, leaving), move |(number, mut leaving)| async move {
                if number == most {
                    leaving.ended();
                    return None;
                }
                let item = if number == 1000 {
                    Err(Failed::new(Code::Unknown, "ValueError: enough"))
                } else {
                    Ok(Answer { form, bytes: Bytes::from(number.to_string()) })
                };
                Some((item, (number + 1, leaving)))
            });
            let items: Items = items.boxed();
            Ok(items)
        })
    }

    fn now(&self) -> Now {
        Now {
            pools: Vec::new(),
            shared_bytes: 5,
            ready: self.0.open.load(Ordering::SeqCst),
            ..Now::default()
        }
    }

    fn readiness(&self) -> Readiness {
        if self.0.open.load(Ordering::SeqCst) {
            Readiness::Ready
        } else {
            Readiness::NotReady(String::from("the workers are coming up"))
        }
    }
}

fn failure(arguments: &[u8]) -> Failed {
    match arguments {
        b"\"full\"" => Failed {
            retry_after: Some(Duration::from_millis(1500)),
            shed: Some(Shed::QueueFull),
            ..Failed::new(Code::ResourceExhausted, "the server is full")
        },
        b"\"fields\"" => Failed {
            violations: vec![Violation {
                field: String::from("a[1]"),
                description: String::from("is no number"),
            }],
            ..Failed::new(Code::InvalidArgument, "the arguments do not fit")
        },
        b"\"many\"" => {
            let one = Violation { field: "k".repeat(200), description: "is no number".repeat(16) };
            Failed { violations: vec![one; 100], ..Failed::new(Code::InvalidArgument, "nothing fits") }
        }
        _ => Failed::new(Code::Unknown, "ZeroDivisionError: division by zero"),
    }
}

fn tool(name: &str, streams: bool) -> Tool {
    Tool {
        name: name.into(),
        description: format!("{name}s."),
        input_schema: String::from(r#"{"type":"object"}"#),
        output_schema: String::from("true"),
        streams,
        read_only: name == "echo",
        idempotent: name == "echo",
        timeout: None,
        deadline: None,
        hang: None,
        retries: 0,
        grace: None,
        batch: None,
        cache_ttl: None,
        generation: 0,
        engine: 0,
        function: None,
    }
}

/// A server on a port of the system's choice, and what it sees.
fn server(change: impl FnOnce(&mut Settings)) -> (Server, Arc<Seen>) {
    let plain = ["echo", "wait", "meta", "fail", "steps"].map(|name| tool(name, false));
    let streams = ["broken", "count"].map(|name| tool(name, true));
    server_of(plain.into_iter().chain(streams).collect(), change)
}

/// The same with these tools.
fn server_of(tools: Tools, change: impl FnOnce(&mut Settings)) -> (Server, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let address = "127.0.0.1:0".parse().expect("an address");
    let mut settings = Settings { http: Some(address), grpc: Some(address), ..Settings::default() };
    change(&mut settings);
    let server = Server::start(&settings, tools, Arc::new(Stub(Arc::clone(&seen)))).expect("a server");
    (server, seen)
}

/// Waits until something holds.
async fn until(what: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !what() {
        assert!(Instant::now() < end, "it does not come");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
