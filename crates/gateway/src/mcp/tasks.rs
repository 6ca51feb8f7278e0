//! Tasks: calls that outlive their request, for clients that declare the extension `io.modelcontextprotocol/tasks`.
//!
//! A call that is not over soon is answered with the name of a task, and goes on. The client asks how far it is, takes
//! the result, or cancels it, in requests of their own. What is kept is bounded: in time since a client has asked, in
//! number, and in bytes, for all clients and for each of several. rmcp's own `TaskManager` bounds only the first, from
//! a task's beginning. A server that leaves waits for the tasks that run, and makes no further ones: no server would
//! have the result.
//!
//! Source: SEP-2663, <https://modelcontextprotocol.io/specification/2026-07-28>.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use rmcp::model::{CreateTaskResult, DetailedTask, ErrorData, JsonObject, Task, TaskPayload, TaskStatus};
use rmcp::task_manager::current_timestamp;
use rmcp::transport::common::server_side_http::session_id;
use ropewalk_sync::Mutex;
use tokio::sync::watch;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::answers::Said;
use crate::call::Progress;
use crate::failed::{Code, Failed};
use crate::sessions::Owner;

/// How long a call may take until it becomes a task. Most are over by then, and need no second request.
pub(super) const AFTER: Duration = Duration::from_secs(1);
/// How long a task is kept after a client has asked for it; one that still runs is given up then.
const KEPT_FOR: Duration = Duration::from_secs(300);
/// How often clients may ask, in milliseconds.
const ASK_EVERY: u64 = 500;
/// Tasks that are kept at a time.
const MOST: usize = 1024;
/// Bytes of results that are kept at a time.
const MOST_BYTES: usize = 64 << 20;

/// A call that runs.
pub(super) type Running = BoxFuture<'static, Said>;

/// See the module.
#[derive(Debug)]
pub(super) struct Tasks {
    kept: Mutex<Kept>,
    kept_for: Duration,
    /// Tasks that run.
    running: watch::Sender<usize>,
}

impl Default for Tasks {
    fn default() -> Self {
        Self::bounded(MOST, MOST_BYTES, KEPT_FOR)
    }
}

#[derive(Debug)]
struct Kept {
    most: usize,
    most_bytes: usize,
    tasks: HashMap<Arc<str>, Entry>,
    /// What each client has of it. One that has nothing has no entry.
    parts: HashMap<Party, Part>,
    /// Bytes of results.
    bytes: usize,
    /// Whether the server leaves.
    leaving: bool,
}

/// What tells a client from others that have a share each, as `Owner::party` does.
type Party = Option<Arc<str>>;

/// What one client has.
#[derive(Debug, Default)]
struct Part {
    tasks: usize,
    /// Those that are over, the oldest first.
    over: VecDeque<Arc<str>>,
    /// Bytes of their results.
    bytes: usize,
}

/// One of the tasks that run, until this is dropped.
struct Runs(Arc<Tasks>);

impl Runs {
    fn begin(tasks: &Arc<Tasks>) -> Self {
        tasks.running.send_modify(|running| *running += 1);
        Self(Arc::clone(tasks))
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| *running -= 1);
    }
}

#[derive(Debug)]
struct Entry {
    owner: Owner,
    began: Instant,
    created_at: String,
    updated_at: String,
    /// When it is forgotten, unless a client asks before.
    until: Instant,
    reports: watch::Receiver<Option<Progress>>,
    cancel: CancellationToken,
    end: Option<End>,
}

#[derive(Debug)]
enum End {
    /// The JSON of the call's result.
    Result(Arc<[u8]>),
    Cancelled,
}

impl Kept {
    /// How many tasks and bytes a client may have: of several each has a half.
    fn share(&self, party: &Party) -> (usize, usize) {
        match party {
            Some(_) => (self.most.div_ceil(2), self.most_bytes.div_ceil(2)),
            None => (self.most, self.most_bytes),
        }
    }

    /// Whether there is no room for so many more of all clients.
    fn is_full(&self, tasks: usize, bytes: usize) -> bool {
        self.tasks.len() + tasks > self.most || self.bytes + bytes > self.most_bytes
    }

    /// Whether a client would have more than its share.
    fn exceeds(&self, party: &Party, tasks: usize, bytes: usize) -> bool {
        let (most, most_bytes) = self.share(party);
        let (held, held_bytes) = self.parts.get(party).map_or((0, 0), |part| (part.tasks, part.bytes));
        held + tasks > most || held_bytes + bytes > most_bytes
    }

    /// Forgets tasks of this client that have been over for longest, until there is room for so many more of it. Where
    /// it has none, those of the client that has most make room, if its own share leaves any.
    fn make_room(&mut self, party: &Party, tasks: usize, bytes: usize) -> Vec<Entry> {
        let mut gone = Vec::new();
        loop {
            let (is_full, exceeds) = (self.is_full(tasks, bytes), self.exceeds(party, tasks, bytes));
            if !is_full && !exceeds {
                return gone;
            }
            let own = self.parts.get(party).and_then(|part| part.over.front());
            let of_most = || {
                let parts = self.parts.values().filter(|part| !part.over.is_empty());
                let most = parts.max_by_key(|part| if bytes > 0 { part.bytes } else { part.tasks })?;
                most.over.front()
            };
            let oldest = own.or_else(|| if exceeds { None } else { of_most() }).cloned();
            let Some(oldest) = oldest else { return gone };
            gone.extend(self.take(&oldest));
        }
    }

    fn insert(&mut self, id: &Arc<str>, entry: Entry) {
        self.parts.entry(entry.owner.party()).or_default().tasks += 1;
        self.tasks.insert(Arc::clone(id), entry);
    }

    fn take(&mut self, id: &str) -> Option<Entry> {
        let entry = self.tasks.remove(id)?;
        let bytes = if let Some(End::Result(json)) = &entry.end { json.len() } else { 0 };
        self.bytes -= bytes;
        let party = entry.owner.party();
        if let Some(part) = self.parts.get_mut(&party) {
            part.tasks -= 1;
            part.bytes -= bytes;
            if part.over.front().is_some_and(|oldest| **oldest == *id) {
                part.over.pop_front();
            } else {
                part.over.retain(|over| **over != *id);
            }
            if part.tasks == 0 {
                self.parts.remove(&party);
            }
        }
        Some(entry)
    }
}

impl Tasks {
    /// Keeps so many tasks, and so many bytes of results, for so long after a client has asked.
    fn bounded(most: usize, most_bytes: usize, kept_for: Duration) -> Self {
        let (tasks, parts) = (HashMap::new(), HashMap::new());
        let kept = Kept { most, most_bytes, tasks, parts, bytes: 0, leaving: false };
        Self { kept: Mutex::new(kept), kept_for, running: watch::Sender::new(0) }
    }

    /// Lets a call go on by itself; it comes back if there is no room for another task, or the server leaves.
    pub(super) fn keep(
        self: &Arc<Self>,
        owner: Owner,
        reports: watch::Receiver<Option<Progress>>,
        running: Running,
    ) -> Result<CreateTaskResult, Running> {
        let (id, cancel, now) = (session_id(), CancellationToken::new(), Instant::now());
        let created_at = current_timestamp();
        let entry = Entry {
            owner,
            began: now,
            updated_at: created_at.clone(),
            created_at,
            until: now + self.kept_for,
            reports,
            cancel: cancel.clone(),
            end: None,
        };
        let (seed, party) = (entry.shown(&id), entry.owner.party());
        let mut kept = self.kept.lock();
        if kept.leaving {
            return Err(running);
        }
        let gone = kept.make_room(&party, 1, 0);
        if kept.is_full(1, 0) || kept.exceeds(&party, 1, 0) {
            drop(kept);
            drop(gone);
            return Err(running);
        }
        kept.insert(&id, entry);
        // Within the lock: a server that leaves after this waits for it.
        let runs = Runs::begin(self);
        drop(kept);
        drop(gone);
        tokio::spawn(Arc::clone(self).see_to(id, cancel, running, runs));
        Ok(CreateTaskResult::new(seed))
    }

    /// Runs a task, and forgets it when its time is over.
    async fn see_to(self: Arc<Self>, id: Arc<str>, cancel: CancellationToken, running: Running, runs: Runs) {
        let end = tokio::select! {
            biased;
            () = cancel.cancelled() => Some(End::Cancelled),
            said = running => said.write(true).ok().map(|json| End::Result(json.into())),
            () = self.forgotten(&id) => None,
        };
        if let Some(end) = end {
            self.end(&id, end);
            // Its end is in the table first: a drain that waits for this finds none that runs.
            drop(runs);
            self.forgotten(&id).await;
        }
        let gone = {
            let mut kept = self.kept.lock();
            kept.take(&id)
        };
        drop(gone);
    }

    /// Returns when no client has asked for a task for so long that it is forgotten, or when it made room.
    async fn forgotten(&self, id: &str) {
        loop {
            let until = self.kept.lock().tasks.get(id).map(|entry| entry.until);
            match until {
                Some(until) if until > Instant::now() => sleep_until(until.into()).await,
                _ => return,
            }
        }
    }

    fn end(&self, id: &Arc<str>, mut end: End) {
        let at = current_timestamp();
        let kept = self.kept.lock();
        let Some(party) = kept.tasks.get(id).map(|entry| entry.owner.party()) else { return };
        let (_, most) = kept.share(&party);
        drop(kept);
        let mut bytes = if let End::Result(json) = &end { json.len() } else { 0 };
        if bytes > most {
            let text = format!(
                "the result is larger than the {most} bytes that are kept of your tasks: ask for less"
            );
            let failed = Said::failed(&Failed::new(Code::ResourceExhausted, text));
            let json = failed.write(true).unwrap_or_default();
            bytes = json.len();
            end = End::Result(json.into());
        }
        let mut kept = self.kept.lock();
        let gone = kept.make_room(&party, 0, bytes);
        let is_kept = kept.tasks.get_mut(id).is_some_and(|entry| {
            (entry.end, entry.updated_at) = (Some(end), at);
            true
        });
        if is_kept {
            kept.bytes += bytes;
            let part = kept.parts.entry(party).or_default();
            part.bytes += bytes;
            part.over.push_back(Arc::clone(id));
        }
        drop(kept);
        drop(gone);
    }

    /// Makes no further tasks: the server leaves.
    pub(super) fn leave(&self) {
        self.kept.lock().leaving = true;
    }

    /// Returns when none runs.
    pub(super) async fn at_rest(&self) {
        // The sender is this table's own.
        let _ = self.running.subscribe().wait_for(|running| *running == 0).await;
    }

    /// Gives up those that run; true if there were none.
    pub(super) fn give_up(&self) -> bool {
        let kept = self.kept.lock();
        let running = kept.tasks.values().filter(|entry| entry.end.is_none());
        let cancelled: Vec<CancellationToken> = running.map(|entry| entry.cancel.clone()).collect();
        drop(kept);
        cancelled.iter().for_each(CancellationToken::cancel);
        cancelled.is_empty()
    }

    /// How far a task of this owner is, with its result.
    pub(super) fn get(&self, id: &str, owner: &Owner) -> Result<DetailedTask, ErrorData> {
        self.find(id, owner, |entry| {
            entry.until = Instant::now() + self.kept_for;
            let result = match &entry.end {
                Some(End::Result(json)) => Some(Arc::clone(json)),
                Some(End::Cancelled) | None => None,
            };
            (entry.shown(id), result)
        })
        .map(|(task, json)| {
            let Some(json) = json else {
                let payload = match task.status {
                    TaskStatus::Cancelled => TaskPayload::Cancelled,
                    _ => TaskPayload::Working,
                };
                return DetailedTask::new(task, payload);
            };
            let result: JsonObject = serde_json::from_slice(&json).unwrap_or_default();
            DetailedTask::new(task, TaskPayload::Completed { result })
        })
    }

    /// Gives a task of this owner up, if it runs.
    pub(super) fn cancel(&self, id: &str, owner: &Owner) -> Result<(), ErrorData> {
        self.find(id, owner, |entry| entry.cancel.clone()).map(|cancel| cancel.cancel())
    }

    fn find<R>(&self, id: &str, owner: &Owner, look: impl FnOnce(&mut Entry) -> R) -> Result<R, ErrorData> {
        let mut kept = self.kept.lock();
        let found = kept.tasks.get_mut(id).filter(|entry| entry.owner == *owner).map(look);
        drop(kept);
        found.ok_or_else(|| {
            let text = "there is no such task: it was never begun, or it was forgotten";
            ErrorData::invalid_params(text, None)
        })
    }
}

impl Entry {
    /// The task, as the protocol shows it.
    fn shown(&self, id: &str) -> Task {
        let status = match &self.end {
            None => TaskStatus::Working,
            Some(End::Result(_)) => TaskStatus::Completed,
            Some(End::Cancelled) => TaskStatus::Cancelled,
        };
        let ttl = self.until.saturating_duration_since(self.began).as_millis();
        let mut task = Task::new(id, status, self.created_at.clone(), self.updated_at.clone())
            .with_ttl_ms(u64::try_from(ttl).unwrap_or(u64::MAX))
            .with_poll_interval_ms(ASK_EVERY);
        task.status_message = self.reports.borrow().as_ref().map(|progress| {
            let total = progress.total.map_or_else(String::new, |total| format!(" of {total}"));
            let note = progress.note.as_ref().map_or_else(String::new, |note| format!(": {note}"));
            format!("{}{total}{note}", progress.done)
        });
        task
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::sync::oneshot;

    use super::*;

    fn said(text: String) -> Said {
        Said::failed(&Failed::new(Code::Unknown, text))
    }

    fn reports() -> watch::Receiver<Option<Progress>> {
        watch::channel(None).1
    }

    fn keep(tasks: &Arc<Tasks>, running: Running) -> String {
        keep_of(tasks, &Owner::default(), running).expect("there is room")
    }

    /// The name of a task of this owner, if it was made.
    fn keep_of(tasks: &Arc<Tasks>, owner: &Owner, running: Running) -> Option<String> {
        tasks.keep(owner.clone(), reports(), running).ok().map(|made| made.task.task_id)
    }

    async fn over(tasks: &Tasks, id: &str) -> DetailedTask {
        over_of(tasks, &Owner::default(), id).await
    }

    async fn over_of(tasks: &Tasks, owner: &Owner, id: &str) -> DetailedTask {
        loop {
            let task = tasks.get(id, owner).expect("it is known");
            if task.status().is_terminal() {
                return task;
            }
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_task_has_the_result_of_its_call() {
        let tasks = Arc::new(Tasks::default());
        let (sender, receiver) = oneshot::channel::<()>();
        let id = keep(&tasks, receiver.map(|_| said(String::from("done"))).boxed());
        assert_eq!(tasks.get(&id, &Owner::default()).expect("known").status(), TaskStatus::Working);
        drop(sender);
        let TaskPayload::Completed { result } = over(&tasks, &id).await.payload else { panic!("a result") };
        assert_eq!(result["content"][0]["text"], "done");
        assert!(tasks.get("other", &Owner::default()).is_err());
    }

    #[tokio::test]
    async fn a_task_that_is_cancelled_drops_its_call() {
        let tasks = Arc::new(Tasks::default());
        let (held, receiver) = oneshot::channel::<()>();
        let id = keep(&tasks, receiver.map(|_| said(String::new())).boxed());
        tasks.cancel(&id, &Owner::default()).expect("known");
        assert_eq!(over(&tasks, &id).await.status(), TaskStatus::Cancelled);
        assert!(held.is_closed());
    }

    #[tokio::test]
    async fn a_task_for_which_no_client_asks_is_given_up() {
        let tasks = Arc::new(Tasks::bounded(8, 2000, Duration::from_millis(5)));
        let (mut held, receiver) = oneshot::channel::<()>();
        let id = keep(&tasks, receiver.map(|_| said(String::new())).boxed());
        held.closed().await;
        while tasks.get(&id, &Owner::default()).is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let over = keep(&tasks, async { said(String::from("done")) }.boxed());
        while !tasks.kept.lock().tasks.is_empty() {
            tokio::task::yield_now().await;
        }
        assert!(tasks.get(&over, &Owner::default()).is_err());
        let kept = tasks.kept.lock();
        assert_eq!((kept.bytes, kept.parts.len()), (0, 0));
    }

    #[tokio::test]
    async fn results_are_bounded_in_bytes_and_the_oldest_go_first() {
        let tasks = Arc::new(Tasks::bounded(8, 2000, KEPT_FOR));
        let mut ids = Vec::new();
        for _ in 0..3 {
            let id = keep(&tasks, async { said("x".repeat(800)) }.boxed());
            over(&tasks, &id).await;
            ids.push(id);
        }
        assert!(tasks.get(&ids[0], &Owner::default()).is_err());
        assert!(tasks.get(&ids[2], &Owner::default()).is_ok());
        assert!(tasks.kept.lock().bytes <= 2000);
        // One that is larger than all of that is not kept.
        let large = keep(&tasks, async { said("x".repeat(3000)) }.boxed());
        let TaskPayload::Completed { result } = over(&tasks, &large).await.payload else {
            panic!("a result")
        };
        assert!(result["content"][0]["text"].as_str().is_some_and(|text| text.contains("2000 bytes")));
    }

    #[tokio::test]
    async fn a_server_that_leaves_waits_for_tasks_and_makes_no_more() {
        let tasks = Arc::new(Tasks::default());
        let (sender, receiver) = oneshot::channel::<()>();
        keep(&tasks, receiver.map(|_| said(String::from("done"))).boxed());
        tasks.leave();
        let more = tasks.keep(Owner::default(), reports(), futures::future::pending().boxed());
        assert!(more.is_err(), "its client waits for the answer");
        let mut at_rest = std::pin::pin!(tasks.at_rest());
        assert!(futures::poll!(at_rest.as_mut()).is_pending());
        drop(sender);
        at_rest.await;
        assert!(tasks.give_up(), "none runs");
    }

    #[tokio::test]
    async fn tasks_that_do_not_end_are_given_up() {
        let tasks = Arc::new(Tasks::default());
        let (held, receiver) = oneshot::channel::<()>();
        let id = keep(&tasks, receiver.map(|_| said(String::new())).boxed());
        assert!(!tasks.give_up());
        tasks.at_rest().await;
        assert!(held.is_closed());
        assert_eq!(over(&tasks, &id).await.status(), TaskStatus::Cancelled);
    }

    #[tokio::test]
    async fn the_tasks_of_one_client_push_out_its_own_results() {
        let tasks = Arc::new(Tasks::bounded(6, 4000, KEPT_FOR));
        let (ann, bob, eve) = (Owner::named("ann"), Owner::named("bob"), Owner::named("eve"));
        let known = |owner: &Owner| {
            let kept = tasks.kept.lock();
            kept.tasks.values().filter(|entry| entry.owner == *owner && entry.end.is_some()).count()
        };
        // Half of six tasks each, and half of the bytes.
        for (owner, length, of_bob, of_ann) in [
            (&bob, 800, 1, 0),
            (&ann, 10, 1, 1),
            (&ann, 10, 1, 2),
            (&ann, 10, 1, 3),
            (&ann, 10, 1, 3),
            (&ann, 1800, 1, 2),
        ] {
            let id = keep_of(&tasks, owner, async move { said("x".repeat(length)) }.boxed()).expect("room");
            over_of(&tasks, owner, &id).await;
            assert_eq!((known(&bob), known(&ann)), (of_bob, of_ann));
        }
        let large = keep_of(&tasks, &ann, async { said("x".repeat(2500)) }.boxed()).expect("room");
        let TaskPayload::Completed { result } = over_of(&tasks, &ann, &large).await.payload else {
            panic!("a result")
        };
        assert!(result["content"][0]["text"].as_str().is_some_and(|text| text.contains("2000 bytes")));
        // Tasks that run are a share, too.
        let run = |owner: &Owner| keep_of(&tasks, owner, futures::future::pending().boxed());
        for _ in 0..3 {
            run(&ann).expect("its results make room");
        }
        assert!(run(&ann).is_none(), "the call comes back");
        assert_eq!((known(&bob), known(&ann)), (1, 0));
        // Where all have what they may, the results of the client that has most make room for one that has none.
        for _ in 0..2 {
            run(&bob).expect("there is room");
        }
        run(&eve).expect("a result makes room");
        assert_eq!(known(&bob), 0);
        assert!(run(&eve).is_none(), "all run");
    }

    #[tokio::test]
    async fn tasks_that_run_are_not_forgotten_for_others() {
        let tasks = Arc::new(Tasks::bounded(3, 2000, KEPT_FOR));
        let ids: Vec<String> = (0..3).map(|_| keep(&tasks, futures::future::pending().boxed())).collect();
        let more = tasks.keep(Owner::default(), reports(), futures::future::pending().boxed());
        assert!(more.is_err(), "the call comes back");
        assert!(ids.iter().all(|id| tasks.get(id, &Owner::default()).is_ok()));
    }
}
