//! What worker processes run at the moment, for those who watch a pool.

use std::sync::Arc;
use std::time::Duration;

use super::Crew;
use super::workers::Worker;
use crate::clock;
use crate::statistics::Doing;
use crate::task::Task;

impl Crew {
    /// The tasks that a worker runs, by what its lanes say.
    pub(crate) fn doing_of(&self, worker: &Worker) -> impl Iterator<Item = Doing> {
        let number = worker.tenure.number;
        worker.lanes.iter().filter_map(move |lane| {
            let lane = self.lanes.get(*lane)?.as_ref()?;
            let sent = lane.outstanding.front().filter(|sent| lane.tasks.started(sent.position))?;
            let (now, task) = (clock::now(), &sent.task);
            let seen = sent.begun.or(sent.taken).unwrap_or(sent.at);
            let most = now.saturating_duration_since(sent.at);
            // The worker's word, which cannot be older than the task is with it.
            let said = lane.begun.read(task.id);
            let said = said.map(|at| Duration::from_nanos(clock::nanos().saturating_sub(at)).min(most));
            Some(Doing {
                worker: number,
                task: task.id,
                attempt: task.attempt().saturating_add(1),
                function: name_of(task),
                since: said.unwrap_or_else(|| now.saturating_duration_since(seen)),
            })
        })
    }
}

fn name_of(task: &Task) -> Option<Arc<str>> {
    let called = || task.remote().and_then(|call| Some(Arc::clone(&call.function.as_ref()?.name)));
    task.known_name().or_else(called)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::simulation::scene::Scene;

    #[test]
    fn a_worker_does_what_it_has_taken_until_it_answers() {
        let (mut scene, mut workers) = Scene::ready(Scene::config(2, 1));
        assert!(scene.engine.doing().is_empty());
        let task = scene.task();
        assert!(scene.engine.doing().is_empty(), "it lies with a worker that has not taken it");
        let used = workers.iter_mut().position(|worker| worker.start(0) == Some(task.id)).expect("one");
        scene.pass(Duration::from_secs(3));
        let doing = scene.engine.doing();
        assert_eq!(doing.iter().map(|one| (one.task, one.attempt)).collect::<Vec<_>>(), [(task.id, 1)]);
        assert!(doing[0].since >= Duration::from_secs(2), "{:?}", doing[0].since);
        workers[used].answer(0, task.id);
        scene.tick();
        assert!(scene.engine.doing().is_empty());
    }
}
