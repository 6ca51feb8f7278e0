//! The table of sessions, with a runner in place of workers.

use std::sync::atomic::AtomicBool;

use futures::future::{BoxFuture, FutureExt as _};
use futures::{StreamExt as _, stream};

use super::*;
use crate::call::Readiness;
use crate::clients::{Clients, Known, Peer, Roster, Shown, digest_of};
use crate::telemetry::{Lines, Logging, Now};
use crate::tool::Tools;

/// What the seats of a runner have seen.
#[derive(Default)]
struct Seen {
    lost: AtomicBool,
    /// Seats that are gone.
    freed: AtomicUsize,
    /// Calls that were given up.
    left: AtomicUsize,
    closed: AtomicUsize,
}

struct Stub(Arc<Seen>);

/// `wait` never ends, `fail` fails; all others give their arguments.
struct Chair(Arc<Seen>);

struct Leaving(Arc<Seen>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.left.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for Chair {
    fn drop(&mut self) {
        self.0.freed.fetch_add(1, Ordering::SeqCst);
    }
}

impl Seat for Chair {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Answer, Failed>> {
        async move {
            match &*request.tool.name {
                "S.wait" => {
                    let _leaving = Leaving(Arc::clone(&self.0));
                    std::future::pending().await
                }
                "S.close" => {
                    self.0.closed.fetch_add(1, Ordering::SeqCst);
                }
                _ => {}
            }
            match self.lost() {
                Some(failed) => Err(failed),
                None if request.arguments == "fail" => Err(Failed::new(Code::Unknown, "no")),
                None => Ok(Answer { form: request.form, bytes: request.arguments }),
            }
        }
        .boxed()
    }

    fn stream(&self, _request: Request) -> BoxFuture<'_, Result<Items, Failed>> {
        let leaving = Leaving(Arc::clone(&self.0));
        let items: Items = stream::unfold(leaving, |leaving| async move {
            let bytes = Bytes::from_static(b"1");
            Some((Ok(Answer { form: Form::Json, bytes }), leaving))
        })
        .boxed();
        async move { Ok(items) }.boxed()
    }

    fn lost(&self) -> Option<Failed> {
        let lost = self.0.lost.load(Ordering::SeqCst);
        lost.then(|| Failed::new(Code::Unavailable, "the worker is gone"))
    }
}

impl Runner for Stub {
    fn call(&self, _request: Request) -> BoxFuture<'_, Result<Answer, Failed>> {
        unreachable!("calls of sessions have seats")
    }

    fn stream(&self, _request: Request) -> BoxFuture<'_, Result<Items, Failed>> {
        unreachable!("calls of sessions have seats")
    }

    fn seat(&self, _of: &SessionTool) -> Result<Arc<dyn Seat>, Failed> {
        Ok(Arc::new(Chair(Arc::clone(&self.0))))
    }

    fn readiness(&self) -> Readiness {
        Readiness::Ready
    }

    fn now(&self) -> Now {
        Now::default()
    }
}

struct Scene {
    sessions: Arc<Sessions>,
    of: Arc<SessionTool>,
    seen: Arc<Seen>,
}

impl Scene {
    fn new(most: usize) -> Self {
        let tool = |name: &str, streams| Tool {
            name: name.into(),
            description: String::new(),
            input_schema: String::new(),
            output_schema: String::new(),
            streams,
            read_only: false,
            idempotent: false,
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
        };
        let methods = [tool("S.echo", false), tool("S.wait", false), tool("S.count", true)];
        let (open, close) = (tool("S", false), Some(tool("S.close", false)));
        let of = SessionTool::new(open, methods, close, Duration::from_secs(60));
        let tools = Tools::default().with_sessions([of]);
        let of = Arc::clone(tools.session("S").expect("it is there"));
        let seen = Arc::new(Seen::default());
        let telemetry = Telemetry::new(&tools, Arc::new(Lines::new(Logging::Nothing)), Now::default);
        let sessions = Sessions::new(most, Arc::new(Stub(Arc::clone(&seen))), telemetry);
        Self { sessions, of, seen }
    }

    fn request(&self, tool: &Arc<Tool>, arguments: &'static str) -> Request {
        Request {
            tool: Arc::clone(tool),
            form: Form::Json,
            arguments: Bytes::from_static(arguments.as_bytes()),
            beside: Beside::default(),
            metadata: Bytes::new(),
            deadline: None,
            reports: None,
            watched: self.sessions.telemetry.begin(Protocol::Http, Some(tool), &HeaderMap::new()),
        }
    }

    async fn open(&self, owner: &Owner) -> Result<Arc<Session>, Failed> {
        let request = self.request(&self.of.open, "");
        self.sessions.open(&self.of, owner.clone(), Protocol::Http, request).await
    }

    async fn call(&self, session: &Arc<Session>, name: &str) -> Result<Answer, Failed> {
        let request = self.request(method(&self.of, name)?, "7");
        self.sessions.call(self.sessions.enter(session)?, request).await
    }

    fn active(&self) -> usize {
        self.sessions.places.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn a_session_is_its_owner_s_alone() {
    let scene = Scene::new(8);
    let session = scene.open(&Owner::named("ann")).await.expect("it opens");
    let find = |who: &Owner| scene.sessions.find(session.id(), who).map(|_| ()).map_err(|failed| failed.code);
    assert_eq!(find(&Owner::named("ann")), Ok(()));
    assert_eq!(find(&Owner::named("bob")), Err(Code::NotFound));
    assert_eq!(find(&Owner::default()), Err(Code::NotFound));
    let mut extensions = Extensions::new();
    assert_eq!(Owner::of(&extensions), Owner::default());
    let ann = Known { name: Some("ann".into()), token: Some(digest_of(b"1")), ..Known::default() };
    let list = Known { token: Some(digest_of(b"2")), ..Known::default() };
    let roster = Roster::new(Arc::new(Clients::new([ann, list], None)));
    let mut of = |token: &[u8]| {
        let shown = Shown::new(Some(&[b"Bearer ", token].concat()), Peer::default());
        extensions.insert(roster.admit(&shown).expect("a client"));
        Owner::of(&extensions)
    };
    assert_eq!(of(b"1"), Owner::named("ann"));
    // A token of a list has no name, and is no other caller's.
    assert!(of(b"2").identity.is_some_and(|name| name.starts_with("token ")));
    assert!(!format!("{session:?}").contains(&**session.id()));
}

#[tokio::test]
async fn only_so_many_are_open_and_each_gives_its_place_back() {
    let scene = Scene::new(2);
    let first = scene.open(&Owner::default()).await.expect("it opens");
    let second = scene.open(&Owner::default()).await.expect("it opens");
    let refused = scene.open(&Owner::default()).await.expect_err("there is no place");
    assert_eq!((refused.code, refused.shed), (Code::ResourceExhausted, Some(Shed::QueueFull)));
    scene.sessions.end(&first, Ended::Closed).await.expect("it ends");
    assert_eq!(scene.seen.closed.load(Ordering::SeqCst), 1);
    // Its end comes once.
    scene.sessions.end(&first, Ended::Idle).await.expect("it has ended");
    assert_eq!((scene.seen.closed.load(Ordering::SeqCst), scene.active()), (1, 1));
    scene.open(&Owner::default()).await.expect("there is a place");
    drop((first, second));
    assert_eq!(scene.seen.freed.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn one_client_may_open_half_of_them() {
    let scene = Scene::new(4);
    let first = scene.open(&Owner::named("ann")).await.expect("it opens");
    let _second = scene.open(&Owner::named("ann")).await.expect("it opens");
    let refused = scene.open(&Owner::named("ann")).await.expect_err("it has its share");
    assert_eq!((refused.code, refused.shed), (Code::ResourceExhausted, Some(Shed::QueueFull)));
    assert!(refused.message.contains("half of max_sessions"), "{}", refused.message);
    assert_eq!(scene.active(), 2);
    scene.open(&Owner::named("bob")).await.expect("another has its own");
    scene.sessions.end(&first, Ended::Closed).await.expect("it ends");
    scene.open(&Owner::named("ann")).await.expect("its share is free again");
}

#[tokio::test]
async fn what_does_not_open_leaves_nothing() {
    let scene = Scene::new(1);
    let request = scene.request(&scene.of.open, "fail");
    let failed = scene.sessions.open(&scene.of, Owner::default(), Protocol::Http, request).await;
    assert_eq!(failed.expect_err("it fails").code, Code::Unknown);
    assert_eq!((scene.active(), scene.seen.freed.load(Ordering::SeqCst)), (0, 1));
    assert!(scene.sessions.is_empty());
}

#[tokio::test]
async fn a_session_that_is_lost_says_so_once() {
    let scene = Scene::new(1);
    let session = scene.open(&Owner::default()).await.expect("it opens");
    scene.seen.lost.store(true, Ordering::SeqCst);
    scene.sessions.look(Instant::now());
    // Its place is free, and its name is known until a caller has heard of the loss.
    assert_eq!(scene.active(), 0);
    let found = scene.sessions.find(session.id(), &Owner::default()).expect("it is known");
    assert_eq!(scene.call(&found, "echo").await.expect_err("it is lost").code, Code::Unavailable);
    let gone = scene.sessions.find(session.id(), &Owner::default()).expect_err("it is gone");
    assert_eq!(gone.code, Code::NotFound);
    // Nothing is left whose end could be called.
    let failed = scene.sessions.end(&session, Ended::Closed).await.expect_err("its object has not ended");
    assert_eq!(failed.code, Code::Unavailable);
    assert_eq!(scene.seen.closed.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_end_that_cannot_run_is_no_end_that_went_well() {
    let scene = Scene::new(1);
    let session = scene.open(&Owner::default()).await.expect("it opens");
    // The worker is gone, and the table has not noticed.
    scene.seen.lost.store(true, Ordering::SeqCst);
    let failed = scene.sessions.end(&session, Ended::Closed).await.expect_err("its object has not ended");
    let text = "the session is over, but the end of its object did not run: the worker is gone";
    assert_eq!((failed.code, &*failed.message), (Code::Unavailable, text));
    assert_eq!((scene.active(), scene.seen.closed.load(Ordering::SeqCst)), (0, 0));
}

#[tokio::test]
async fn sessions_that_are_lost_and_never_asked_for_make_room() {
    let scene = Scene::new(2);
    for _ in 0..9 {
        scene.seen.lost.store(false, Ordering::SeqCst);
        scene.open(&Owner::default()).await.expect("there is a place");
        scene.seen.lost.store(true, Ordering::SeqCst);
        scene.sessions.look(Instant::now());
    }
    assert!(scene.sessions.table.lock().known.len() <= 4);
}

#[tokio::test]
async fn the_end_of_a_session_gives_up_its_calls() {
    let scene = Arc::new(Scene::new(1));
    let session = scene.open(&Owner::default()).await.expect("it opens");
    let waiting = tokio::spawn({
        let (scene, session) = (Arc::clone(&scene), Arc::clone(&session));
        async move { scene.call(&session, "wait").await }
    });
    while session.turns.idle_since().is_some() {
        tokio::task::yield_now().await;
    }
    scene.sessions.end(&session, Ended::Closed).await.expect("it ends");
    let failed = waiting.await.expect("no panic").expect_err("it was given up");
    assert_eq!(failed.code, Code::Cancelled);
    assert_eq!(scene.seen.left.load(Ordering::SeqCst), 1);
    assert_eq!(scene.seen.closed.load(Ordering::SeqCst), 1);
    assert_eq!(scene.call(&session, "echo").await.expect_err("it has ended").code, Code::Cancelled);
}

#[tokio::test]
async fn a_stream_keeps_the_turn_and_ends_with_its_session() {
    let scene = Scene::new(1);
    let session = scene.open(&Owner::default()).await.expect("it opens");
    let request = scene.request(method(&scene.of, "count").expect("a method"), "");
    let entered = scene.sessions.enter(&session).expect("a place");
    let mut items = scene.sessions.stream(entered, request).await.expect("it begins");
    assert!(items.next().await.is_some_and(|item| item.is_ok()));
    assert!(session.turns.idle_since().is_none());
    drop(items);
    assert!(session.turns.idle_since().is_some());
    assert_eq!(scene.seen.left.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_stream_that_nobody_reads_ends_with_its_session() {
    let scene = Scene::new(1);
    let session = scene.open(&Owner::default()).await.expect("it opens");
    let request = scene.request(method(&scene.of, "count").expect("a method"), "");
    let entered = scene.sessions.enter(&session).expect("a place");
    let mut items = scene.sessions.stream(entered, request).await.expect("it begins");
    assert!(items.next().await.is_some_and(|item| item.is_ok()));
    scene.sessions.end(&session, Ended::Closed).await.expect("it ends");
    let seen = [&scene.seen.left, &scene.seen.closed].map(|count| count.load(Ordering::SeqCst));
    assert_eq!(seen, [1, 1], "the stream is gone, and the object behind it");
    // A reader that comes later hears of it.
    let failed = items.next().await.expect("an item").expect_err("it has ended");
    assert_eq!(failed.code, Code::Cancelled);
    assert!(items.next().await.is_none());
}

#[tokio::test]
async fn a_stream_that_nobody_reads_ends_with_the_worker_and_the_server() {
    let scene = Scene::new(2);
    let mut streams = Vec::new();
    for _ in 0..2 {
        let session = scene.open(&Owner::default()).await.expect("it opens");
        let request = scene.request(method(&scene.of, "count").expect("a method"), "");
        let entered = scene.sessions.enter(&session).expect("a place");
        streams.push((scene.sessions.stream(entered, request).await.expect("it begins"), session));
    }
    scene.seen.lost.store(true, Ordering::SeqCst);
    let (_, session) = &streams[0];
    session.lose();
    assert_eq!(scene.seen.left.load(Ordering::SeqCst), 1);
    scene.seen.lost.store(false, Ordering::SeqCst);
    scene.sessions.leave();
    assert!(!scene.sessions.end_all().await, "a call was given up");
    assert_eq!(scene.seen.left.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn what_nothing_calls_ends_and_what_runs_does_not() {
    let scene = Scene::new(2);
    let session = scene.open(&Owner::default()).await.expect("it opens");
    let busy = scene.open(&Owner::default()).await.expect("it opens");
    let entered = scene.sessions.enter(&busy).expect("a place");
    scene.sessions.look(Instant::now() + Duration::from_secs(59));
    assert_eq!(scene.active(), 2);
    scene.sessions.look(Instant::now() + Duration::from_secs(61));
    assert_eq!(scene.active(), 1);
    assert!(scene.sessions.find(session.id(), &Owner::default()).is_err());
    assert!(scene.sessions.find(busy.id(), &Owner::default()).is_ok());
    drop(entered);
}

#[tokio::test]
async fn a_server_that_leaves_opens_none_and_ends_all() {
    let scene = Scene::new(2);
    let session = scene.open(&Owner::default()).await.expect("it opens");
    scene.sessions.leave();
    let refused = scene.open(&Owner::default()).await.expect_err("it leaves");
    assert_eq!((refused.code, refused.shed), (Code::Unavailable, Some(Shed::Leaving)));
    assert!(scene.sessions.end_all().await);
    assert_eq!(scene.seen.closed.load(Ordering::SeqCst), 1);
    assert_eq!(scene.call(&session, "echo").await.expect_err("it has ended").code, Code::Unavailable);
}
