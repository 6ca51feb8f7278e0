//! What a task that runs in an actor tells the program, and the answers to its calls.
//!
//! The thread of a lane waits for the end of its task. So a further thread of the layer above has a call in each actor
//! that returns when the task has something to say, and hands that to the engine: how far it is
//! ([`News::Said`](crate::News::Said)), or a call ([`News::Called`](crate::News::Called)). Both name the attempt, for
//! they may come when the lane has another task, or another attempt of the same one. The answer to a call is an
//! [`Order`](crate::Order).

use std::sync::Arc;

use super::Ray;
use super::lanes::Fleet;
use crate::calls::{Answered, Calling};
use crate::outcome::Reply;
use crate::payload::{Beside, Payload};
use crate::pool::{Attempt, Errand, Pool, PoolState};
use crate::pulse::Progress;
use crate::task::Task;

impl Fleet {
    /// The task of a lane, if it is this attempt.
    fn runs_in(&self, at: usize, attempt: Attempt) -> Option<&Arc<Task>> {
        let task = &self.lanes.get(at)?.run.as_ref()?.task;
        (task.id == attempt.task && task.attempt() == attempt.number && !task.is_done()).then_some(task)
    }

    /// A lane's task says how far it is.
    pub(super) fn says(&self, at: usize, attempt: Attempt, progress: Progress) {
        if let Some(task) = self.runs_in(at, attempt) {
            task.signals().report(progress);
        }
    }

    /// How many lanes there are, if each has an actor and waits for the answer to a call.
    pub(super) fn all_call(&self) -> Option<usize> {
        let lanes = || self.lanes.iter().filter(|lane| lane.is_in_service());
        lanes().all(|lane| lane.call.is_some()).then(|| lanes().count())
    }
}

impl Pool<Ray> {
    /// A lane's task calls a function of the program.
    pub(super) fn receive_call(
        &self,
        state: &mut PoolState<Ray>,
        at: usize,
        attempt: Attempt,
        number: u64,
        frame: Reply,
    ) {
        let Some(task) = state.members.runs_in(at, attempt).map(Arc::clone) else { return };
        state.members.calls += 1;
        let call = Calling { task, lane: at, number: state.members.calls, frame };
        state.members.lanes[at].call = Some((call.number, number));
        if !state.calls.served {
            let _ = self.send_answer(state, &call, &Payload::refusal());
            return;
        }
        state.calls.add(call);
        Self::bump(&self.calls_word);
    }

    /// Sends the answer to a call, if its task still waits for that.
    pub(super) fn send_answer(
        &self,
        state: &mut PoolState<Ray>,
        call: &Calling,
        answer: &Payload,
    ) -> Answered {
        let Some(lane) = state.members.lanes.get_mut(call.lane) else { return Answered::Gone };
        let has_it = lane.run.as_ref().is_some_and(|run| Arc::ptr_eq(&run.task, &call.task));
        let waits = lane.call.filter(|(ours, _)| has_it && *ours == call.number && !call.task.is_done());
        let Some((_, number)) = waits else { return Answered::Gone };
        lane.call = None;
        let lease = answer.lease().map(Arc::clone);
        let beside = Beside { lease, ..Beside::default() };
        let copy = Payload { flags: answer.flags, bytes: answer.bytes.clone(), ..Payload::from(beside) };
        state.members.order(call.lane, Errand::Answer(call.task.id, number, copy));
        self.backend.ordered.notify_one();
        Answered::Yes
    }
}

#[cfg(test)]
mod tests;
