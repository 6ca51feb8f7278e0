//! Loads a server, and prints what came of it as JSON.
//!
//! `load closed port=8080 path=/v1/tools/echo body={} callers=100 seconds=5`: each caller sends its next request when
//! it has its answer. `load open … rate=1000`: requests are sent at a rate, whatever comes of them; a time counts from
//! when the request was due. `load stream …`: reads one stream of lines, and counts them. `load idle … connections=N`:
//! opens connections that send nothing, says so, and waits for the end of its standard input.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use ropewalk_serving_bench::{Connection, Outcome, Plan, Protocol, Sent, Tally};
use tokio::io::AsyncReadExt as _;
use tokio::sync::Mutex;
use tokio::time::{sleep, sleep_until};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut words = std::env::args().skip(1);
    let contest = words.next().unwrap_or_default();
    let plan = Plan::new(words);
    let sent = Arc::new(Sent::new(&plan));
    match contest.as_str() {
        "closed" => closed(&plan, sent).await,
        "open" => open(&plan, sent).await,
        "stream" => stream(&sent).await,
        "idle" => idle(&plan).await,
        _ => panic!("closed, open, stream or idle"),
    }
}

/// Connections that HTTP/2's callers share.
const SHARED: usize = 4;

/// The connections of callers.
#[derive(Default)]
struct Shared {
    made: Vec<Connection>,
    next: usize,
}

impl Shared {
    /// A connection of its own, or one of those that are shared.
    async fn next(&mut self, sent: &Sent) -> Connection {
        if sent.protocol == Protocol::Http {
            return sent.connect().await.expect("a server");
        }
        if self.made.len() < SHARED {
            self.made.push(sent.connect().await.expect("a server"));
        }
        self.next += 1;
        self.made[self.next % self.made.len()].shared()
    }
}

async fn closed(plan: &Plan, sent: Arc<Sent>) {
    let (callers, seconds) = (plan.count("callers", 100), plan.seconds("seconds", 5.0));
    let warm = Instant::now() + plan.seconds("warm", 0.5);
    let end = warm + seconds;
    let mut all = Vec::new();
    let mut shared = Shared::default();
    for _ in 0..callers {
        let mut connection = shared.next(&sent).await;
        let sent = Arc::clone(&sent);
        all.push(tokio::spawn(async move {
            let mut tally = Tally::default();
            loop {
                let began = Instant::now();
                if began >= end {
                    return tally;
                }
                let outcome = sent.send(&mut connection).await;
                if began >= warm {
                    tally.add(outcome, began.elapsed());
                }
                if outcome == Outcome::Broken {
                    match sent.connect().await {
                        Ok(fresh) => connection = fresh,
                        Err(_) => sleep(Duration::from_millis(10)).await,
                    }
                }
            }
        }));
    }
    let mut tally = Tally::default();
    for one in all {
        tally.merge(&one.await.expect("a tally"));
    }
    println!("{}", tally.figures(seconds));
}

async fn open(plan: &Plan, sent: Arc<Sent>) {
    let (rate, seconds) = (plan.number("rate", 1000.0), plan.seconds("seconds", 5.0));
    let idle: Arc<Mutex<Vec<Connection>>> = Arc::default();
    let total = Arc::new(Mutex::new(Tally::default()));
    let began = tokio::time::Instant::now();
    let mut all = Vec::new();
    let mut due = began;
    while due < began + seconds {
        sleep_until(due).await;
        let (sent, idle, total) = (Arc::clone(&sent), Arc::clone(&idle), Arc::clone(&total));
        all.push(tokio::spawn(async move {
            let kept = idle.lock().await.pop();
            let outcome = match kept {
                Some(connection) => Ok(connection),
                None => sent.connect().await,
            };
            let outcome = match outcome {
                Ok(mut connection) => {
                    let outcome = sent.send(&mut connection).await;
                    if outcome != Outcome::Broken {
                        idle.lock().await.push(connection);
                    }
                    outcome
                }
                Err(_) => Outcome::Broken,
            };
            total.lock().await.add(outcome, due.elapsed());
        }));
        due += Duration::from_secs_f64(1.0 / rate);
    }
    for one in all {
        let _ = one.await;
    }
    println!("{}", total.lock().await.figures(seconds));
}

async fn stream(sent: &Sent) {
    let began = Instant::now();
    let mut connection = sent.connect().await.expect("a server");
    let response = sent.begin(&mut connection).await.expect("an answer");
    assert_eq!(response.status(), 200, "the stream was refused");
    let mut body = response.into_body();
    let mut lines = 0_usize;
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.expect("the whole stream").into_data() {
            lines += data.iter().filter(|&&byte| byte == b'\n').count();
        }
    }
    println!(r#"{{"lines": {lines}, "rate": {:.1}}}"#, lines as f64 / began.elapsed().as_secs_f64());
}

async fn idle(plan: &Plan) {
    let (port, wanted) = (plan.text("port", "8080").to_owned(), plan.count("connections", 10_000));
    let mut kept = Vec::new();
    for _ in 0..wanted {
        match tokio::net::TcpStream::connect(format!("127.0.0.1:{port}")).await {
            Ok(stream) => kept.push(stream),
            Err(error) => panic!("after {} connections: {error}", kept.len()),
        }
    }
    println!("{}", kept.len());
    let mut rest = Vec::new();
    let _ = tokio::io::stdin().read_to_end(&mut rest).await;
}
