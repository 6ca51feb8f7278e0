//! Messaging and its peers, in the same contests.
//!
//! Every contender is a program of its own (`src/bin/`), which says how it sends and receives; the contests
//! are written once, over the traits of this file, and monomorphised. They are asynchronous because most
//! peers are: a contender that blocks gives futures that are ready at once, and the compiler makes plain
//! calls of them.

mod idle;
mod link;
mod onethread;
mod paced;
mod pipeline;
mod place;
mod plan;
mod publish;
mod roundtrip;
mod router;

use std::error::Error;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub use link::{CLIENT_KEYS, Link, SERVER_KEYS, Transport};
pub use place::{Side, allow_many_files, settle};
pub use plan::{Place, Plan};
pub use publish::HIGH_WATER;

/// What a contest or a contender gives.
pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What a contest has measured, by name.
pub(crate) type Figures = Vec<(&'static str, f64)>;

/// The socket types that the contests use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are ZeroMQ's names")]
pub enum Kind {
    Req,
    Rep,
    Push,
    Pull,
    Pub,
    Sub,
    Router,
    Dealer,
}

/// A contender.
pub trait Peer: 'static {
    /// What its sockets are made from; the two ends of a contest share one only in-process.
    type Hub: Clone + Send + 'static;
    /// A socket.
    type End: End;

    /// Makes a context. Called in the thread that uses it, so that its threads inherit the placement.
    fn hub() -> Self::Hub;

    /// Runs one end's work in this thread.
    fn drive<T>(work: impl Future<Output = T>) -> T;

    /// Makes a socket, and binds or connects it. The other end may not be there yet.
    fn open(hub: &Self::Hub, kind: Kind, link: &Link) -> impl Future<Output = Outcome<Self::End>>;

    /// Lets the other end run for a moment.
    fn pause() -> impl Future<Output = ()> {
        async { std::thread::sleep(Duration::from_micros(20)) }
    }
}

/// A socket of a contender.
pub trait End {
    /// Sends a message of one part, and waits while there is no room. Bodies last for the program, and
    /// whoever can send them without a copy may.
    fn send(&mut self, body: &'static [u8]) -> impl Future<Output = Outcome<()>>;

    /// Waits for a message; takes it, and at most so many in all if more are there. Gives the number of those
    /// that have the size.
    fn take(&mut self, size: usize, most: usize) -> impl Future<Output = Outcome<usize>>;

    /// Waits for a message and sends it back to where it came from.
    fn echo(&mut self) -> impl Future<Output = Outcome<()>> {
        async { Err("this contender has no ROUTER".into()) }
    }

    /// Puts what was sent on the wire, for contenders that need a flush.
    fn flush(&mut self) -> impl Future<Output = Outcome<()>> {
        async { Ok(()) }
    }
}

/// Plays the contest on the command line, and prints its figures as JSON.
pub fn main<P: Peer>() -> ! {
    let outcome = Plan::from_arguments(std::env::args().skip(1)).and_then(|plan| {
        place::allow_many_files()?;
        match plan.contest.as_str() {
            "roundtrip" => roundtrip::play::<P>(&plan).map(|figure| vec![figure]),
            "onethread" => onethread::play::<P>(&plan).map(|figure| vec![figure]),
            "push" => pipeline::play::<P>(&plan).map(|figure| vec![figure]),
            "paced" => paced::play::<P>(&plan),
            "publish" => publish::play::<P>(&plan).map(|figure| vec![figure]),
            "router" => router::play::<P>(&plan).map(|figure| vec![figure]),
            "idle" => idle::play::<P>(&plan).map(|figure| vec![figure]),
            "idle-clients" => idle::clients(&plan).map(|figure| vec![figure]),
            other => Err(format!("no such contest: {other}").into()),
        }
    });
    // Without the contenders' own endings: some wait for a peer that is gone, and none of it is measured.
    match outcome {
        Ok(figures) => {
            let said: Vec<_> = figures.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
            println!("{{{}}}", said.join(", "));
        }
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }
    std::process::exit(0)
}

/// Runs a future that never waits, as those of contenders that block are.
pub fn block<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = work.as_mut().poll(&mut context) {
            return value;
        }
    }
}

/// Gives way once to other tasks of the runtime and to other threads of the core.
pub async fn give_way() {
    let mut gave = false;
    std::thread::yield_now();
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut gave, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
