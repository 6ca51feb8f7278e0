//! What the server keeps of its clients: the calls of each, and the messages that wait for it.
//!
//! A client is a connection: the socket gives each an id that no other has had. A client's calls and messages end with
//! it, so no other gets them. What one client can make the server keep is bounded by number and by bytes; one that
//! takes nothing of what waits is given up.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ropewalk_messaging::{Frame, Result as Sent, errno};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

use crate::failed::{Code, Failed};

/// Calls of one client that run, or whose last messages wait for it.
pub(super) const MOST_CALLS: usize = 1024;
/// Messages that wait for one client: to those of its calls come what is wrong with further ones, and items.
const MOST_WAITING: usize = 4 * MOST_CALLS;
/// Bytes of answers that wait for one client. One answer may have more, if it waits alone.
const MOST_BYTES: usize = 64 << 20;
/// Items of one client that wait to be sent, before its streams stand still.
const AHEAD: usize = 64;
/// Bytes of these items. One item may have more, if it waits alone.
const ITEM_BYTES: usize = 16 << 20;
/// How long a client that takes nothing is left alone before it is tried again.
const FULL: Duration = Duration::from_millis(5);

/// The id that the socket gives to a connection.
pub(super) type Identity = Bytes;

/// A message for a client.
pub(super) struct Outgoing {
    pub(super) parts: Vec<Frame>,
    /// What it has been counted for: see [`Table::reserve`].
    pub(super) bytes: usize,
    /// What an item of a stream has taken of the client's room.
    pub(super) _room: Option<OwnedSemaphorePermit>,
}

/// See the module.
pub(super) struct Client {
    /// Its calls that run, by their ids. `None` for one that is about to run.
    running: HashMap<Bytes, Option<AbortHandle>>,
    waiting: VecDeque<Outgoing>,
    /// Bytes of the answers among those that wait.
    bytes: usize,
    /// A permit for each byte of items that it may still be sent.
    room: Arc<Semaphore>,
    /// When it is tried again, if it has taken nothing.
    again: Option<Instant>,
    /// When it took the last message, or when the first one that waits came.
    since: Instant,
    /// More has come for it than may wait.
    is_flooded: bool,
}

impl Client {
    fn new(now: Instant) -> Self {
        Self {
            running: HashMap::new(),
            waiting: VecDeque::new(),
            bytes: 0,
            room: Arc::new(Semaphore::new(ITEM_BYTES)),
            again: None,
            since: now,
            is_flooded: false,
        }
    }

    /// It has left, or the server does.
    pub(super) fn give_up(&self) {
        self.room.close();
        self.running.values().flatten().for_each(AbortHandle::abort);
    }
}

/// The permits that an item of so many bytes takes.
pub(super) fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes.clamp(ITEM_BYTES / AHEAD, ITEM_BYTES)).unwrap_or(u32::MAX)
}

/// What a flush has found.
#[derive(Default)]
pub(super) struct Flushed {
    /// When clients that take nothing are to be tried again.
    pub(super) again: Option<Instant>,
    /// Clients whose connections have ended.
    pub(super) gone: Vec<Client>,
    /// Clients that do not take what waits for them, whose connections are to be ended.
    pub(super) idle: Vec<(Identity, Client)>,
}

/// See the module.
pub(super) struct Table {
    clients: HashMap<Identity, Client>,
    /// Clients for which messages wait.
    pending: HashSet<Identity>,
    /// How long a client may take nothing of what waits for it.
    patience: Duration,
}

impl Table {
    pub(super) fn new(patience: Duration) -> Self {
        Self { clients: HashMap::new(), pending: HashSet::new(), patience }
    }

    /// A message has come from this client: it is known until [`forget`](Self::forget).
    pub(super) fn meet(&mut self, identity: &Identity) {
        if !self.clients.contains_key(identity) {
            self.clients.insert(identity.clone(), Client::new(Instant::now()));
        }
    }

    /// The client's connection has ended.
    pub(super) fn forget(&mut self, identity: &Identity) -> Option<Client> {
        self.pending.remove(identity);
        self.clients.remove(identity)
    }

    /// Forgets all of them.
    pub(super) fn clear(&mut self) -> Vec<Client> {
        self.pending.clear();
        self.clients.drain().map(|(_, client)| client).collect()
    }

    /// Whether no call runs and no message waits.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.clients.values().all(|client| client.running.is_empty())
    }

    /// A call of a client is about to run.
    ///
    /// # Errors
    ///
    /// Why it may not.
    pub(super) fn enter(&mut self, identity: &Identity, id: &Bytes) -> Result<(), Failed> {
        let client = self.clients.get_mut(identity).ok_or_else(left)?;
        if client.running.len() + client.waiting.len() >= MOST_CALLS {
            let text = format!(
                "the client has {MOST_CALLS} calls that run or whose answers it has not taken, which is the limit"
            );
            return Err(Failed::new(Code::ResourceExhausted, text));
        }
        match client.running.entry(id.clone()) {
            Entry::Occupied(_) => Err(Failed::new(Code::InvalidArgument, "a call with this id runs")),
            Entry::Vacant(place) => {
                place.insert(None);
                Ok(())
            }
        }
    }

    /// A call runs, if it has not ended yet.
    pub(super) fn begun(&mut self, identity: &Identity, id: &Bytes, task: AbortHandle) {
        let client = self.clients.get_mut(identity);
        if let Some(running) = client.and_then(|client| client.running.get_mut(id)) {
            *running = Some(task);
        }
    }

    /// A call that runs.
    pub(super) fn running(&self, identity: &Identity, id: &Bytes) -> Option<AbortHandle> {
        self.clients.get(identity)?.running.get(id)?.clone()
    }

    /// A call has ended. What this returns is dropped without the lock.
    pub(super) fn ended(&mut self, identity: &Identity, id: &Bytes) -> Option<Option<AbortHandle>> {
        self.clients.get_mut(identity)?.running.remove(id)
    }

    /// Counts an answer of so many bytes, which [`say`](Self::say) adds.
    ///
    /// # Errors
    ///
    /// When too many wait already.
    pub(super) fn reserve(&mut self, identity: &Identity, bytes: usize) -> Result<(), Failed> {
        let client = self.clients.get_mut(identity).ok_or_else(left)?;
        if client.bytes > 0 && client.bytes.saturating_add(bytes) > MOST_BYTES {
            let text = format!(
                "the answer is thrown away: with it more than {} MiB would wait for the client to take them, which is \
                 the limit",
                MOST_BYTES >> 20
            );
            return Err(Failed::new(Code::ResourceExhausted, text));
        }
        client.bytes = client.bytes.saturating_add(bytes);
        Ok(())
    }

    /// The room for items of a client, if it is there.
    pub(super) fn room(&self, identity: &Identity) -> Option<Arc<Semaphore>> {
        self.clients.get(identity).map(|client| Arc::clone(&client.room))
    }

    /// Adds a message for a client. One that has gone gets none: it is dropped with what this returns.
    pub(super) fn say(&mut self, identity: &Identity, message: Outgoing, now: Instant) -> Option<Outgoing> {
        let Some(client) = self.clients.get_mut(identity) else { return Some(message) };
        if client.waiting.is_empty() {
            client.since = now;
            self.pending.insert(identity.clone());
        }
        if client.waiting.len() >= MOST_WAITING {
            client.is_flooded = true;
            return Some(message);
        }
        client.waiting.push_back(message);
        None
    }

    /// Sends what waits, as far as clients take it.
    ///
    /// # Errors
    ///
    /// When the socket cannot send at all.
    pub(super) fn flush(
        &mut self,
        now: Instant,
        mut send: impl FnMut(&mut Vec<Frame>) -> Sent<()>,
    ) -> Sent<Flushed> {
        let (mut found, mut done) = (Flushed::default(), Vec::new());
        for identity in &self.pending {
            let Some(client) = self.clients.get_mut(identity) else { continue };
            if client.again.is_none_or(|at| at <= now) {
                client.again = None;
                let mut is_gone = false;
                while let Some(message) = client.waiting.front_mut() {
                    match send(&mut message.parts) {
                        Ok(()) => {
                            client.bytes = client.bytes.saturating_sub(message.bytes);
                            client.since = now;
                            client.waiting.pop_front();
                        }
                        Err(error) if error.errno() == errno::EAGAIN => {
                            client.again = Some(now + FULL);
                            break;
                        }
                        Err(error) if error.errno() == errno::EHOSTUNREACH => {
                            is_gone = true;
                            break;
                        }
                        Err(error) => return Err(error),
                    }
                }
                if client.waiting.is_empty() && !client.is_flooded || is_gone {
                    done.push((identity.clone(), is_gone));
                    continue;
                }
            }
            if client.is_flooded || now.saturating_duration_since(client.since) >= self.patience {
                found.idle.extend(self.clients.remove_entry(identity));
                done.push((identity.clone(), false));
                continue;
            }
            found.again = found.again.into_iter().chain(client.again).min();
        }
        for (identity, is_gone) in done {
            self.pending.remove(&identity);
            if is_gone {
                found.gone.extend(self.clients.remove(&identity));
            }
        }
        Ok(found)
    }
}

fn left() -> Failed {
    Failed::new(Code::Cancelled, "the client has left")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages that a peer has taken, or why it takes none.
    fn taken(table: &mut Table, now: Instant, answer: Option<i32>) -> (usize, Flushed) {
        let mut count = 0;
        let flushed = table.flush(now, |_| match answer {
            None => {
                count += 1;
                Ok(())
            }
            Some(errno) => Err(ropewalk_messaging::Error::new(errno, "no")),
        });
        (count, flushed.expect("a socket that can send"))
    }

    fn message(bytes: usize) -> Outgoing {
        Outgoing { parts: Vec::new(), bytes, _room: None }
    }

    fn of(name: &'static str) -> Bytes {
        Bytes::from_static(name.as_bytes())
    }

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn a_client_has_so_many_calls_with_those_whose_answers_wait() {
        let (mut table, client, now) = (Table::new(PATIENCE), of("a"), Instant::now());
        table.meet(&client);
        let number = |number: usize| Bytes::from(number.to_string());
        for id in 0..MOST_CALLS {
            table.enter(&client, &number(id)).expect("room");
        }
        let full = |table: &mut Table, id| table.enter(&client, &number(id)).map_err(|failed| failed.code);
        assert_eq!(full(&mut table, MOST_CALLS), Err(Code::ResourceExhausted));
        // One that has ended counts until the client has taken its answer.
        assert!(table.ended(&client, &number(0)).is_some());
        assert!(table.say(&client, message(0), now).is_none());
        assert_eq!(full(&mut table, MOST_CALLS), Err(Code::ResourceExhausted));
        assert_eq!(taken(&mut table, now, None).0, 1);
        assert_eq!(full(&mut table, 1), Err(Code::InvalidArgument));
        assert_eq!(full(&mut table, MOST_CALLS), Ok(()));
    }

    #[test]
    fn bytes_that_wait_are_bounded_and_one_answer_may_be_large() {
        let (mut table, client, now) = (Table::new(PATIENCE), of("a"), Instant::now());
        table.meet(&client);
        assert!(table.reserve(&client, 2 * MOST_BYTES).is_ok());
        assert!(table.say(&client, message(2 * MOST_BYTES), now).is_none());
        let failed = table.reserve(&client, 1).expect_err("no room");
        assert_eq!(failed.code, Code::ResourceExhausted);
        assert!(failed.message.contains("64 MiB"), "{}", failed.message);
        assert_eq!(taken(&mut table, now, None).0, 1);
        assert!(table.reserve(&client, MOST_BYTES).is_ok());
        assert!(table.reserve(&client, 1).is_err());
    }

    #[test]
    fn a_client_that_takes_nothing_is_given_up_and_one_that_takes_something_is_not() {
        let (mut table, slow, dead, now) = (Table::new(PATIENCE), of("slow"), of("dead"), Instant::now());
        for client in [&slow, &dead] {
            table.meet(client);
            table.enter(client, &of("runs")).expect("room");
            for _ in 0..2 {
                let message = Outgoing { parts: vec![Frame::copy_of(client)], ..message(0) };
                assert!(table.say(client, message, now).is_none());
            }
        }
        let (_, flushed) = taken(&mut table, now, Some(errno::EAGAIN));
        assert!(flushed.idle.is_empty() && flushed.again.is_some_and(|again| again > now));
        // A moment before its time is over, the slow one takes one of its messages.
        let almost = now + PATIENCE - Duration::from_millis(1);
        let mut is_first = true;
        let flushed = table.flush(almost, |parts| {
            if parts[0].bytes() == &*slow && std::mem::take(&mut is_first) {
                return Ok(());
            }
            Err(ropewalk_messaging::Error::new(errno::EAGAIN, "full"))
        });
        assert!(flushed.expect("a socket that can send").idle.is_empty());
        let (_, flushed) = taken(&mut table, now + PATIENCE, Some(errno::EAGAIN));
        let names: Vec<&Bytes> = flushed.idle.iter().map(|(identity, _)| identity).collect();
        assert_eq!(names, [&dead]);
        // It is forgotten, and what its calls say is dropped.
        assert!(table.say(&dead, message(0), now).is_some());
        assert!(table.enter(&dead, &of("new")).is_err() && table.room(&dead).is_none());
        assert!(!table.is_idle());
    }

    #[test]
    fn more_messages_than_may_wait_end_the_client() {
        let (mut table, client, now) = (Table::new(PATIENCE), of("a"), Instant::now());
        table.meet(&client);
        for _ in 0..MOST_WAITING {
            assert!(table.say(&client, message(0), now).is_none());
        }
        assert!(taken(&mut table, now, Some(errno::EAGAIN)).1.idle.is_empty());
        assert!(table.say(&client, message(0), now).is_some());
        assert_eq!(taken(&mut table, now, Some(errno::EAGAIN)).1.idle.len(), 1);
        assert!(table.is_idle() && table.clients.is_empty());
    }

    #[test]
    fn clients_that_are_gone_are_forgotten() {
        let (mut table, client, now) = (Table::new(PATIENCE), of("a"), Instant::now());
        table.meet(&client);
        assert!(table.say(&client, message(0), now).is_none());
        assert_eq!(taken(&mut table, now, Some(errno::EHOSTUNREACH)).1.gone.len(), 1);
        assert!(table.clients.is_empty() && table.pending.is_empty());
        table.meet(&client);
        assert!(table.say(&client, message(0), now).is_none());
        assert!(table.forget(&client).is_some() && table.is_idle());
    }

    #[test]
    fn an_item_takes_as_much_room_as_it_has_bytes() {
        assert_eq!(permits(0) as usize * AHEAD, ITEM_BYTES);
        assert_eq!(permits(1 << 20), 1 << 20);
        assert_eq!(permits(usize::MAX) as usize, ITEM_BYTES);
    }
}
