//! The program's side of its tasks' calls: a thread that takes them, and the answers.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Backend, Pool};
use crate::calls::{Answered, Calling};
use crate::clock;
use crate::payload::Payload;

impl<B: Backend> Pool<B> {
    /// See [`Engine::serve_calls`](crate::Engine::serve_calls).
    pub(crate) fn serve_calls(&self) {
        if let Some(mut state) = self.enter() {
            state.calls.served = true;
        }
    }

    /// See [`Engine::next_call`](crate::Engine::next_call).
    pub(crate) fn next_call(&self, deadline: Instant) -> Option<Calling> {
        loop {
            let observed = self.calls_word.load(Ordering::Acquire);
            let mut state = self.enter()?;
            if let Some(call) = state.calls.next() {
                return Some(call);
            }
            drop(state);
            let left = deadline.saturating_duration_since(clock::now());
            if left == Duration::ZERO || self.has_ended() {
                return None;
            }
            let _ = self.calls_word.wait_while(observed, Some(left));
        }
    }

    /// See [`Engine::answer_call`](crate::Engine::answer_call).
    pub(crate) fn answer_call(&self, call: &Calling, answer: &Payload) -> Answered {
        let Some(mut state) = self.enter() else { return Answered::Gone };
        B::answer(self, &mut state, call, answer)
    }

    /// See [`Engine::all_call`](crate::Engine::all_call).
    pub(crate) fn all_call(&self) -> Option<usize> {
        self.enter().and_then(|state| B::all_call(&state.members))
    }
}
