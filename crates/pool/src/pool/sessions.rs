//! Sessions of a pool: opened and closed by the layer above, entered and left by tasks. What is done with their states
//! is the backend's.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Backend, Pool, PoolState, Refused};
use crate::events::{self, What};
use crate::outcome::{Failure, Outcome, Reply};
use crate::session::{Entry, Loss, Mode, Session, SessionSettings};
use crate::task::Task;

impl<B: Backend> Pool<B> {
    /// See [`Engine::open_session`](crate::Engine::open_session).
    pub(crate) fn open_session(&self, settings: SessionSettings) -> Option<Arc<Session>> {
        let mut state = self.enter()?;
        let id = self.next_session.fetch_add(1, Ordering::Relaxed);
        let session = Arc::new(Session::new(id, settings));
        state.sessions.insert(id, Arc::clone(&session));
        Some(session)
    }

    /// See [`Engine::close_session`](crate::Engine::close_session).
    pub(crate) fn close_session(&self, session: &Arc<Session>) {
        let Some(mut state) = self.enter() else { return };
        if session.close() {
            self.end_session(&mut state, session);
            self.after_outside_change(&mut state);
        }
    }

    /// See [`Engine::made_here`](crate::Engine::made_here).
    pub(crate) fn made_here(&self, session: &Session) -> u32 {
        let (name, generation) = (Arc::clone(&session.name), session.made_here());
        events::tell(&self.config.name, What::SessionMade { worker: 0, session: name, generation });
        generation
    }

    /// A task of this session is about to be accepted.
    pub(super) fn enter_session(
        &self,
        state: &mut PoolState<B>,
        number: u32,
    ) -> Result<Arc<Session>, Refused> {
        let session = Arc::clone(state.sessions.get(&number).ok_or(Refused::SessionClosed)?);
        if session.mode == Mode::Fail && session.takes_tasks() && B::is_busy(state, &session) {
            return Err(Refused::SessionBusy);
        }
        match session.enter() {
            Entry::Entered => Ok(session),
            Entry::Closed => Err(Refused::SessionClosed),
            Entry::Lost(failure) => Err(Refused::Lost(failure)),
        }
    }

    /// A task of a session has ended.
    pub(super) fn left_session(&self, state: &mut PoolState<B>, task: &Arc<Task>) {
        let Some(session) = task.session() else { return };
        B::left(self, state, session, task);
        if session.leave() {
            self.end_session(state, session);
        }
    }

    /// The outcome of a task whose worker reports that it could not make the actor's object.
    pub(crate) fn unmade(&self, task: &Task, reply: Reply) -> Outcome {
        let Some(session) = task.session().filter(|session| session.is_actor) else {
            return Outcome::Replied(reply);
        };
        let reply = Arc::new(reply);
        session.give_up(&Failure::Initializer(Arc::clone(&reply)));
        let (actor, cause) = (Arc::clone(&session.name), Arc::new(Failure::Initializer(reply)));
        Outcome::Failed(Failure::ActorDied { actor, cause })
    }

    /// A session's state is gone with its worker, for this reason.
    ///
    /// The tasks of an actor that is gone for good fail when workers are sought for them.
    pub(crate) fn lose_state(&self, session: &Session, pid: i32, why: &Failure) {
        let for_good = session.lose(why) == Loss::ForGood;
        self.tell_lost(session, pid, for_good);
    }

    /// Reports that a state is gone with its worker.
    pub(crate) fn tell_lost(&self, session: &Session, pid: i32, for_good: bool) {
        events::tell(
            &self.config.name,
            What::SessionLost { session: Arc::clone(&session.name), pid, for_good },
        );
    }

    fn end_session(&self, state: &mut PoolState<B>, session: &Arc<Session>) {
        B::drop_session(self, state, session);
        // What its arguments keep is dropped now: futures may keep the session for long.
        drop(session.opening.lock().take());
        state.sessions.remove(&session.id);
    }
}

impl<B: Backend> PoolState<B> {
    /// How many sessions there are.
    pub(crate) fn sessions(&self) -> usize {
        self.sessions.len()
    }
}
