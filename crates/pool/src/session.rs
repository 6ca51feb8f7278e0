//! A session: tasks that find the state that was made for them in their worker.
//!
//! The state is made in a worker before the session's first task there, and stays until the session is closed, has been
//! idle for its `ttl`, or loses the worker. Each state has a generation, which no other state of the session has. An
//! actor is a session whose state is an object, and whose tasks are its methods.
//!
//! What changes here is written under the engine's lock, and read by threads that do not hold it: hence the lock of its
//! own, which is taken last.

use std::sync::Arc;
use std::time::Duration;

use ropewalk_sync::Mutex;

use crate::function::Function;
use crate::outcome::Failure;
use crate::payload::Payload;

/// What a task does while its session's worker is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It goes to another worker, where the state is made too.
    #[default]
    Prefer,
    /// It waits for the session's worker.
    Queue,
    /// It is refused.
    Fail,
}

/// The settings of a session, checked by its maker.
#[derive(Debug, Default)]
pub struct SessionSettings {
    /// Its name in records and errors.
    pub name: Arc<str>,
    /// What a task does while its worker is busy.
    pub mode: Mode,
    /// How long a state is kept without a task.
    pub ttl: Option<Duration>,
    /// For an actor, how often its object may be made again after it lost its worker. A session's state always may.
    pub restarts: Option<u32>,
    /// Makes the state; without it the state is empty.
    pub init: Option<Arc<Function>>,
    /// The arguments of `init`.
    pub arguments: Payload,
}

/// What is sent to a worker before the session's first task there.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) init: Option<Arc<Function>>,
    pub(crate) arguments: Payload,
}

/// The place of tasks that any worker may run.
pub(crate) const COMMON: usize = usize::MAX;
/// The place of tasks whose session has no worker at the moment.
pub(crate) const UNBOUND: usize = usize::MAX - 1;

/// One session of a pool.
#[derive(Debug)]
pub struct Session {
    /// Unique in its pool; above 0.
    pub id: u32,
    /// Its name in records and errors.
    pub name: Arc<str>,
    pub(crate) mode: Mode,
    pub(crate) ttl: Option<Duration>,
    /// Whether its state is an actor's object.
    pub is_actor: bool,
    /// Taken away when the session has been closed, because futures keep their session.
    pub(crate) opening: Mutex<Option<Opening>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Where its tasks wait: `COMMON`, `UNBOUND`, or a number of the backend's.
    place: usize,
    /// The task that may run while others of the session wait; 0 for none. Only where tasks run in turns.
    turn: u64,
    /// Where its state is, or is to be made.
    homes: Vec<usize>,
    /// Of the newest state.
    generation: u32,
    /// Tasks that have been accepted and have not ended.
    pending: usize,
    is_closed: bool,
    restarts: u32,
    /// Why its object is gone for good.
    lost: Option<Failure>,
}

/// The fate of a session that has lost a worker with its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Loss {
    /// The state is made again elsewhere.
    Again,
    /// The object is gone, and every call of it fails.
    ForGood,
}

/// The answer to a task that would be the session's.
#[derive(Debug)]
#[must_use]
pub(crate) enum Entry {
    /// It is.
    Entered,
    /// The session was closed.
    Closed,
    /// The actor is gone for good.
    Lost(Failure),
}

impl Session {
    pub(crate) fn new(id: u32, settings: SessionSettings) -> Self {
        let SessionSettings { name, mode, ttl, restarts, init, arguments } = settings;
        let state = State {
            place: if mode == Mode::Prefer { COMMON } else { UNBOUND },
            turn: 0,
            homes: Vec::new(),
            generation: 0,
            pending: 0,
            is_closed: false,
            restarts: restarts.unwrap_or(0),
            lost: None,
        };
        Self {
            id,
            name,
            mode,
            ttl,
            is_actor: restarts.is_some(),
            opening: Mutex::new(Some(Opening { init, arguments })),
            state: Mutex::new(state),
        }
    }

    /// The number of the newest state; 0 before there is any.
    pub fn generation(&self) -> u32 {
        self.state.lock().generation
    }

    /// Shows what makes its state, and the arguments of that, to `look`, which runs under the session's lock. `None`
    /// when the session has been closed.
    pub fn look_at_opening<R>(&self, look: impl FnOnce(Option<&Arc<Function>>, &Payload) -> R) -> Option<R> {
        let opening = self.opening.lock();
        opening.as_ref().map(|opening| look(opening.init.as_ref(), &opening.arguments))
    }

    /// Whether no worker has its state and no task of it is pending.
    pub fn is_cold(&self) -> bool {
        let state = self.state.lock();
        state.homes.is_empty() && state.pending == 0
    }

    /// Whether its tasks go to one worker only.
    pub(crate) fn is_pinned(&self) -> bool {
        self.mode != Mode::Prefer
    }

    /// Where a task of this number waits.
    pub(crate) fn place_of(&self, task: u64) -> usize {
        let state = self.state.lock();
        if state.turn == task { COMMON } else { state.place }
    }

    pub(crate) fn place(&self) -> usize {
        self.state.lock().place
    }

    pub(crate) fn set_place(&self, place: usize) {
        self.state.lock().place = place;
    }

    /// Gives a task the turn, if no other has it; the tasks that come later wait at `place`.
    pub(crate) fn take_turn(&self, task: u64, place: usize) -> bool {
        let mut state = self.state.lock();
        let is_free = state.turn == 0;
        if is_free {
            state.turn = task;
            state.place = place;
        }
        is_free
    }

    /// Ends the turn of a task, if it has it.
    pub(crate) fn end_turn(&self, task: u64) -> bool {
        let mut state = self.state.lock();
        let had = state.turn == task;
        if had {
            state.turn = 0;
        }
        had
    }

    pub(crate) fn homes(&self) -> Vec<usize> {
        self.state.lock().homes.clone()
    }

    /// A worker is to have its state.
    pub(crate) fn add_home(&self, home: usize) {
        self.state.lock().homes.push(home);
    }

    pub(crate) fn remove_home(&self, home: usize) {
        self.state.lock().homes.retain(|known| *known != home);
    }

    /// A new state is about to be made; gives its number.
    pub(crate) fn next_generation(&self) -> u32 {
        let mut state = self.state.lock();
        state.generation = state.generation.wrapping_add(1).max(1);
        state.generation
    }

    /// A thread of this process has made a state, which all threads share. Gives its number.
    pub(crate) fn made_here(&self) -> u32 {
        let mut state = self.state.lock();
        state.generation = state.generation.wrapping_add(1).max(1);
        state.homes = vec![COMMON];
        state.generation
    }

    /// The state of this number was never made.
    pub(crate) fn take_back_generation(&self, generation: u32) {
        let mut state = self.state.lock();
        if state.generation == generation {
            state.generation -= 1;
        }
    }

    pub(crate) fn pending(&self) -> usize {
        self.state.lock().pending
    }

    /// A task is about to be accepted, if the session takes any.
    pub(crate) fn enter(&self) -> Entry {
        let mut state = self.state.lock();
        if state.is_closed {
            return Entry::Closed;
        }
        if let Some(failure) = &state.lost {
            return Entry::Lost(failure.clone());
        }
        state.pending += 1;
        Entry::Entered
    }

    /// Whether it is neither closed nor gone.
    pub(crate) fn takes_tasks(&self) -> bool {
        let state = self.state.lock();
        !state.is_closed && state.lost.is_none()
    }

    /// A task has ended; true if nothing is left to do for a session that has been closed.
    pub(crate) fn leave(&self) -> bool {
        let mut state = self.state.lock();
        state.pending = state.pending.saturating_sub(1);
        state.is_closed && state.pending == 0
    }

    /// Takes no more tasks; true if none is pending, and this is the first call.
    pub(crate) fn close(&self) -> bool {
        let mut state = self.state.lock();
        !std::mem::replace(&mut state.is_closed, true) && state.pending == 0
    }

    /// Why its object is gone for good, if it is.
    pub fn lost(&self) -> Option<Failure> {
        self.state.lock().lost.clone()
    }

    /// Its state is gone with a worker, for this reason.
    pub(crate) fn lose(&self, why: &Failure) -> Loss {
        let mut state = self.state.lock();
        if !self.is_actor {
            return Loss::Again;
        }
        if state.restarts > 0 && state.lost.is_none() {
            state.restarts -= 1;
            return Loss::Again;
        }
        self.end(&mut state, why);
        Loss::ForGood
    }

    /// Its object could not be made.
    pub(crate) fn give_up(&self, why: &Failure) {
        self.end(&mut self.state.lock(), why);
    }

    fn end(&self, state: &mut State, why: &Failure) {
        if state.lost.is_none() {
            let (actor, cause) = (Arc::clone(&self.name), Arc::new(why.clone()));
            state.lost = Some(Failure::ActorDied { actor, cause });
        }
    }
}
