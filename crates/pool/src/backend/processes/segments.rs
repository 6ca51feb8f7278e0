//! The segments that a worker keeps mapped although none of its tasks uses them.
//!
//! A segment stays with the worker after its task, so that the next one that names it maps nothing. Each costs the
//! worker a descriptor, so only the latest of those that no outstanding task names stay. The worker's own objects hold
//! the segments that they use.

use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};

use ropewalk_shm::memory::Segment;

use super::Crew;
use super::workers::Worker;
use crate::lane::send_plain;
use crate::passing::{self, Sent};
use crate::wire::kind;

/// Segments that a worker may hold before the oldest are taken from it, and how many are left then.
const MOST_HELD: usize = 64;
const LEFT: usize = 48;

/// The segments whose descriptors a worker has: one entry for each that was passed and not forgotten since.
#[derive(Debug, Default)]
pub(crate) struct PassedSegments {
    known: HashMap<u64, Known>,
    /// Counts uses.
    clock: u64,
}

#[derive(Debug)]
struct Known {
    /// The last use that the segment's memory was put to.
    segment: Weak<Segment>,
    /// The clock when a task named it last.
    used: u64,
}

impl PassedSegments {
    /// Notes that a task names a segment; false if the worker does not have it.
    pub(crate) fn touch(&mut self, segment: &Arc<Segment>) -> bool {
        self.clock += 1;
        let Some(known) = self.known.get_mut(&segment.id()) else { return false };
        // The same memory, perhaps in another use than when it was passed: this use must end before the parent
        // tells the worker to forget it.
        known.segment = Arc::downgrade(segment);
        known.used = self.clock;
        true
    }

    /// The worker has been passed this segment.
    pub(crate) fn insert(&mut self, segment: &Arc<Segment>) {
        let known = Known { segment: Arc::downgrade(segment), used: self.clock };
        self.known.insert(segment.id(), known);
    }

    /// The worker does not have this segment after all.
    pub(crate) fn remove(&mut self, id: u64) {
        self.known.remove(&id);
    }

    /// Tells the worker of segments that are in use no more; whether there were any, and whether any are left.
    pub(crate) fn forget_unused(&mut self, socket: BorrowedFd<'_>) -> (bool, bool) {
        let (mut forgotten, mut left) = (false, false);
        self.known.retain(|id, known| {
            // No task that names it is outstanding: each holds a reference. And what is passed after this arrives after
            // it, by the same socket.
            let keep = known.segment.strong_count() > 0 || passing::try_forget(socket, *id) == Sent::No;
            forgotten |= !keep;
            left |= keep;
            keep
        });
        (forgotten, left)
    }

    fn is_over(&self) -> bool {
        self.known.len() > MOST_HELD
    }

    /// Tells the worker to forget the oldest of those that are not `named`; whether there were any.
    fn forget_oldest(&mut self, socket: BorrowedFd<'_>, named: &HashSet<u64>) -> bool {
        let mut ages: Vec<(u64, u64)> = self
            .known
            .iter()
            .filter(|(id, _)| !named.contains(id))
            .map(|(id, known)| (known.used, *id))
            .collect();
        ages.sort_unstable();
        let surplus = self.known.len().saturating_sub(LEFT);
        let mut forgotten = false;
        for (_, id) in ages.into_iter().take(surplus) {
            if passing::try_forget(socket, id) == Sent::No {
                break;
            }
            self.known.remove(&id);
            forgotten = true;
        }
        forgotten
    }
}

impl Crew {
    /// Takes the oldest segments from a worker that has too many, after it was fed.
    pub(super) fn limit_segments(&mut self, index: usize) {
        let Some(worker) = self.workers.get(index).and_then(Option::as_ref) else { return };
        // The initializer may not have read what it was given.
        if !worker.segments.is_over() || worker.ready < worker.lanes.len() {
            return;
        }
        let mut named = HashSet::new();
        let lanes = worker.lanes.iter().filter_map(|lane| self.lanes.get(*lane)?.as_ref());
        for sent in lanes.flat_map(|lane| &lane.outstanding) {
            let Some(call) = sent.task.remote() else { continue };
            let of_function = call.function.iter().flat_map(|function| function.payload.segments());
            named.extend(call.payload.segments().iter().chain(of_function).map(|segment| segment.id()));
        }
        let Some(worker) = self.workers.get_mut(index).and_then(Option::as_mut) else { return };
        if !worker.forget_oldest(&named) {
            return;
        }
        let first = worker.lanes.first().copied();
        if let Some(lane) = first.and_then(|lane| self.lanes.get_mut(lane)?.as_mut()) {
            send_plain(&mut lane.tasks, kind::LOOK, 0);
        }
    }
}

impl Worker {
    fn forget_oldest(&mut self, named: &HashSet<u64>) -> bool {
        use std::os::fd::AsFd;
        self.segments.forget_oldest(self.socket.as_fd(), named)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use ropewalk_os::socket;

    use super::*;
    use crate::backend::processes::spawn::Spawn;
    use crate::passing::Passed;
    use crate::simulation::scene::{Actor, Scene};

    fn segment() -> Arc<Segment> {
        Segment::create(64, true).expect("a segment").publish(None)
    }

    fn forgotten(socket: &OwnedFd) -> Vec<u64> {
        let next = || match passing::receive(socket, None).expect("sound") {
            Some(Passed::Forget(id)) => Some(id),
            Some(other) => panic!("{other:?}"),
            None => None,
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn a_segment_is_passed_once_and_again_when_it_was_forgotten() {
        let (mut held, one) = (PassedSegments::default(), segment());
        assert!(!held.touch(&one));
        held.insert(&one);
        assert!(held.touch(&one));
        held.remove(one.id());
        assert!(!held.touch(&one));
    }

    #[test]
    fn what_is_in_use_no_more_is_forgotten() {
        let (ours, theirs) = socket::seqpacket_pair().expect("a pair");
        let (mut held, one, other) = (PassedSegments::default(), segment(), segment());
        assert_eq!(held.forget_unused(ours.as_fd()), (false, false));
        held.insert(&one);
        held.insert(&other);
        assert_eq!(held.forget_unused(ours.as_fd()), (false, true));
        let gone = one.id();
        drop(one);
        assert_eq!(held.forget_unused(ours.as_fd()), (true, true));
        assert_eq!(forgotten(&theirs), [gone]);
        drop(other);
        assert_eq!(held.forget_unused(ours.as_fd()), (true, false));
        assert!(held.known.is_empty());
    }

    #[test]
    fn of_too_many_the_oldest_that_no_task_names_are_forgotten() {
        let (ours, theirs) = socket::seqpacket_pair().expect("a pair");
        let mut held = PassedSegments::default();
        let segments: Vec<_> = (0..=MOST_HELD).map(|_| segment()).collect();
        for (at, segment) in segments.iter().enumerate() {
            assert!(!held.is_over(), "{at}");
            assert!(!held.touch(segment));
            held.insert(segment);
        }
        assert!(held.is_over());
        // The first is named by a task, and the second was used again.
        assert!(held.touch(&segments[1]));
        let named = HashSet::from([segments[0].id()]);
        assert!(held.forget_oldest(ours.as_fd(), &named));
        assert_eq!((held.known.len(), held.is_over()), (LEFT, false));
        let surplus = MOST_HELD + 1 - LEFT;
        let expected: Vec<_> = segments[2..2 + surplus].iter().map(|segment| segment.id()).collect();
        assert_eq!(forgotten(&theirs), expected);
        assert!(!held.forget_oldest(ours.as_fd(), &named), "there are not too many");
        drop(theirs);
        held.insert(&segments[3]);
        assert!(!held.forget_oldest(ours.as_fd(), &named), "nobody is there");
    }

    /// Numbers of the segments that a worker got, and of those that the parent told it to forget.
    fn messages(worker: &Actor) -> (Vec<u64>, Vec<u64>) {
        let (mut passed, mut forgotten) = (Vec::new(), Vec::new());
        while let Some(message) = worker.receive() {
            match message {
                Passed::Segment(segment) => passed.push(segment.id()),
                Passed::Forget(id) => forgotten.push(id),
                Passed::Lost(id, error) => panic!("segment {id}: {error}"),
            }
        }
        (passed, forgotten)
    }

    #[test]
    fn the_oldest_are_taken_from_a_worker_that_holds_too_many() {
        let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
        let worker = &mut workers[0];
        let mut segments = Vec::new();
        for at in 0..=MOST_HELD {
            let (task, segment) = scene.with_segment();
            let (passed, forgotten) = messages(worker);
            assert_eq!(passed, [segment.id()]);
            let too_many = at == MOST_HELD;
            assert_eq!(forgotten.len(), if too_many { MOST_HELD + 1 - LEFT } else { 0 }, "after {at}");
            let oldest = segments.iter().map(|segment: &Arc<Segment>| segment.id()).take(forgotten.len());
            assert!(oldest.eq(forgotten));
            assert_eq!(worker.start(0), Some(task.id));
            let looks = std::iter::from_fn(|| worker.take(0)).filter(|record| record.kind == kind::LOOK);
            assert_eq!(looks.count(), usize::from(too_many), "it must look");
            worker.answer(0, task.id);
            scene.tick();
            segments.push(segment);
        }
    }

    #[test]
    fn a_worker_that_starts_up_keeps_what_its_initializer_was_given() {
        let given: Vec<_> = (0..=MOST_HELD).map(|_| segment()).collect();
        let config = Scene::config(1, 1);
        let spawn = Spawn { segments: given.clone(), ..Scene::spawn() };
        let mut scene = Scene::with(config, spawn);
        let mut worker = scene.asked().pop_front().expect("one");
        scene.fork(&worker);
        let (first, _first) = scene.with_segment();
        let (passed, forgotten) = messages(&worker);
        assert_eq!((passed.len(), forgotten.len()), (given.len() + 1, 0));
        worker.ready();
        scene.tick();
        assert_eq!(worker.start(0), Some(first.id));
        worker.answer(0, first.id);
        scene.tick();
        // The oldest go with the next task, now that the initializer has run.
        let (_second, _segment) = scene.with_segment();
        let (_, forgotten) = messages(&worker);
        assert_eq!(forgotten.len(), given.len() + 2 - LEFT);
        assert!(forgotten.iter().all(|id| given.iter().any(|segment| segment.id() == *id)));
    }
}
