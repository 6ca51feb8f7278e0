//! The laws of the queue.

use ropewalk_sync::Mutex;

use super::*;
use crate::client::Client;
use crate::outcome::{Outcome, Record};
use crate::task::{Call, Options, Rare};

fn task(id: u64, priority: i32) -> Arc<Task> {
    let options = Options { priority, ..Options::default() };
    Arc::new(Task::new(id, Call::Local(Mutex::new(None)), 0, options, 0))
}

#[test]
fn priority_then_arrival() {
    let mut queue = Queue::default();
    for (id, priority) in [(1, 0), (2, -1), (3, 5), (4, 0), (5, 5), (6, 1)] {
        queue.push(task(id, priority));
    }
    let order: Vec<u64> = queue.drain().iter().map(|t| t.id).collect();
    assert_eq!(order, [3, 5, 6, 1, 4, 2]);
}

#[test]
fn what_is_given_back_goes_before_its_equals() {
    let mut queue = Queue::default();
    assert!(queue.is_empty() && queue.pop().is_none());
    for (id, priority) in [(1, 0), (2, 3), (3, -2)] {
        queue.push(task(id, priority));
    }
    for (id, priority) in [(4, 0), (5, 3), (6, -2)] {
        queue.push_front(task(id, priority));
    }
    assert_eq!(queue.len(), 6);
    assert_eq!(queue.pop().map(|task| task.id), Some(5));
    assert_eq!((queue.len(), queue.is_empty()), (5, false));
    let rest: Vec<u64> = queue.drain().iter().map(|task| task.id).collect();
    assert_eq!(rest, [2, 4, 1, 6, 3]);
    assert!(queue.is_empty() && queue.others.is_empty(), "no level is left behind");
}

#[test]
fn the_last_that_ends_empties_the_queue() {
    let mut queue = Queue::default();
    let ends = [task(1, 0), task(2, 4)];
    for task in &ends {
        queue.push(Arc::clone(task));
    }
    for task in &ends {
        task.finish(Outcome::Cancelled, Record::default());
        queue.forget_one(task);
    }
    assert!(queue.usual.is_spent() && queue.others.is_empty(), "they keep nothing alive");
    queue.forget_one(&ends[0]);
    assert_eq!(queue.len(), 0);
}

#[test]
fn ended_tasks_are_skipped_and_not_counted() {
    let mut queue = Queue::default();
    let first = task(1, 0);
    queue.push(Arc::clone(&first));
    queue.push(task(2, 0));
    first.finish(Outcome::Cancelled, Record::default());
    queue.forget_one(&first);
    assert_eq!(queue.len(), 1);
    assert_eq!(queue.pop().map(|t| t.id), Some(2));
    assert!(queue.pop().is_none() && queue.is_empty());
}

/// A task of a client, with a number of its own.
fn of(id: u64, priority: i32, client: Option<(&str, u32)>) -> Arc<Task> {
    let client = client.map(|(name, share)| Client { name: name.into(), share });
    let options = Options { priority, ..Rare { client, ..Rare::default() }.into() };
    Arc::new(Task::new(id, Call::Local(Mutex::new(None)), 0, options, 0))
}

fn ids(tasks: &[Arc<Task>]) -> Vec<u64> {
    tasks.iter().map(|task| task.id).collect()
}

#[test]
fn clients_take_turns_by_their_shares() {
    let mut queue = Queue::default();
    for id in 0..6 {
        queue.push(of(id, 0, Some(("flood", 1))));
    }
    for id in 10..14 {
        queue.push(of(id, 0, Some(("double", 2))));
    }
    // And those without a client are one.
    queue.push(of(20, 0, None));
    queue.push(of(21, 0, None));
    assert_eq!(ids(&queue.drain()), [0, 10, 11, 20, 1, 12, 13, 21, 2, 3, 4, 5]);
    assert!(matches!(queue.usual, Level::Plain(_)), "no client is left");
}

#[test]
fn those_that_came_before_the_first_client_keep_their_order() {
    let mut queue = Queue::default();
    for id in 0..4 {
        queue.push(of(id, 0, None));
    }
    queue.push(of(10, 0, Some(("late", 1))));
    assert_eq!(queue.depths().into_iter().collect::<Vec<_>>(), [(Arc::from("late"), 1)]);
    assert_eq!(ids(&queue.drain()), [0, 10, 1, 2, 3]);
}

#[test]
fn a_task_that_was_given_back_costs_its_client_nothing() {
    let mut queue = Queue::default();
    for id in [0, 1, 2] {
        queue.push(of(id, 0, Some(("a", 1))));
    }
    queue.push(of(10, 0, Some(("b", 1))));
    let given = queue.pop().expect("a's");
    assert_eq!(given.id, 0);
    queue.push_front(given);
    // It is b's turn: what a has got back counts when its own comes, and is no more than a share.
    assert_eq!(ids(&queue.drain()), [10, 0, 1, 2]);
    // In its own turn it goes on as if nothing had been taken.
    for id in [0, 1] {
        queue.push(of(id, 0, Some(("a", 2))));
    }
    queue.push(of(10, 0, Some(("b", 1))));
    let given = queue.pop().expect("a's");
    queue.push_front(given);
    assert_eq!(ids(&queue.drain()), [0, 1, 10]);
    // A run costs.
    for id in [0, 1] {
        queue.push(of(id, 0, Some(("a", 2))));
    }
    queue.push(of(10, 0, Some(("b", 1))));
    let run = queue.pop().expect("a's");
    queue.push_again(run);
    assert_eq!(ids(&queue.drain()), [0, 10, 1]);
}

#[test]
fn clients_that_come_and_go_take_no_memory() {
    let mut queue = Queue::default();
    queue.push(of(0, 0, Some(("stays", 1))));
    for id in 1..10_000 {
        let name = format!("client {id}");
        let (ended, taken) = (of(id, 0, Some((&name, 1))), of(id, 0, Some(("taken", 1))));
        queue.push(Arc::clone(&ended));
        queue.push(taken);
        queue.forget_one(&ended);
        ended.finish(Outcome::Cancelled, Record::default());
        assert!(queue.pop_of(0, Some("taken")).is_some());
        let fair = queue.usual.fair().expect("one stays");
        assert!(fair.places() <= 3 && fair.depths().count() == 1);
    }
    assert_eq!(ids(&queue.drain()), [0]);
}

#[test]
fn the_largest_client_of_the_lowest_priority_is_found() {
    let mut queue = Queue::default();
    assert_eq!(queue.least(), None);
    for id in 0..4 {
        queue.push(of(id, 1, Some(("much", 1))));
    }
    assert_eq!(queue.least(), Some((1, Some("much".into()))));
    queue.push(of(10, 0, Some(("a", 1))));
    for id in 20..25 {
        queue.push(of(id, 0, Some(("b", 3))));
    }
    // Five with a share of three are more than one with a share of one; three are not more than two.
    assert_eq!(queue.least(), Some((0, Some("b".into()))));
    for id in 30..34 {
        queue.push(of(id, 0, None));
    }
    assert_eq!(queue.least(), Some((0, None)));
    assert_eq!(queue.pop_of(0, None).map(|task| task.id), Some(30));
    assert!(queue.pop_of(0, Some("unknown")).is_none() && queue.pop_of(7, None).is_none());
    queue.push(of(40, -3, None));
    assert_eq!(queue.least(), Some((-3, None)));
    assert_eq!(queue.len(), 4 + 1 + 5 + 3 + 1);
}

#[test]
fn the_age_of_the_oldest_is_that_of_a_live_one() {
    let begin = Instant::now();
    clock::set(begin);
    let mut queue = Queue::new(None);
    assert_eq!(queue.oldest(), None);
    let mut tasks = Vec::new();
    for (id, client) in [(0, None), (1, Some(("a", 1))), (2, Some(("a", 1))), (3, None)] {
        clock::set(begin + Duration::from_secs(id));
        tasks.push(of(id, 0, client));
        queue.push(Arc::clone(&tasks[tasks.len() - 1]));
    }
    for (at, task) in tasks.iter().enumerate() {
        assert_eq!(queue.oldest(), Some(begin + Duration::from_secs(at as u64)));
        queue.forget_one(task);
        task.finish(Outcome::Cancelled, Record::default());
    }
    assert_eq!(queue.oldest(), None);
    // One that is run again waits anew, in front of one that has waited for longer.
    let (run, waits) = (task(1, 0), task(2, 0));
    queue.push(Arc::clone(&waits));
    clock::set(begin + Duration::from_secs(60));
    run.count_attempt();
    run.waits_again();
    queue.push_again(Arc::clone(&run));
    assert_eq!(queue.oldest(), Some(waits.submitted));
    assert_eq!(run.waits_since(), begin + Duration::from_secs(60));
    clock::unset();
}

const STEP: Duration = Duration::from_secs(10);

#[test]
fn a_low_priority_goes_first_after_a_step_for_each_level() {
    let begin = Instant::now();
    clock::set(begin);
    let mut queue = Queue::new(Some(STEP));
    let low = task(0, -2);
    queue.push(Arc::clone(&low));
    // An endless flow of two levels higher.
    for second in 1_u64.. {
        clock::set(begin + Duration::from_secs(second));
        let high = task(second, 0);
        assert_eq!(queue.goes_before(&low, &high), second > 20);
        queue.push(high);
        if queue.pop().is_some_and(|task| task.id == 0) {
            assert_eq!(second, 21, "those that came within two steps, and none after them");
            break;
        }
    }
    // Without aging the flow has no end.
    let mut queue = Queue::new(None);
    queue.push(Arc::clone(&low));
    for second in 1..1000 {
        clock::set(begin + Duration::from_secs(1000 + second));
        queue.push(task(second, 0));
        assert_eq!(queue.pop().map(|task| task.id), Some(second));
    }
    clock::unset();
}

mod laws {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push {
            priority: i32,
            client: Option<u8>,
        },
        Pop,
        /// One that was popped comes back: had it been run?
        Return {
            run: bool,
        },
        End(usize),
        Drop,
        Wait(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let client = proptest::option::of(0..4_u8);
        let step = prop_oneof![
            6 => (-2..3, client).prop_map(|(priority, client)| Step::Push { priority, client }),
            4 => Just(Step::Pop),
            1 => any::<bool>().prop_map(|run| Step::Return { run }),
            1 => any::<usize>().prop_map(Step::End),
            1 => Just(Step::Drop),
            1 => any::<u8>().prop_map(Step::Wait),
        ];
        proptest::collection::vec(step, 0..200)
    }

    const SHARES: [u32; 4] = [1, 1, 2, 5];

    fn make(id: u64, priority: i32, client: Option<u8>) -> Arc<Task> {
        let names = ["a", "b", "c", "d"];
        of(id, priority, client.map(|at| (names[usize::from(at)], SHARES[usize::from(at)])))
    }

    fn client(task: &Task) -> Option<Arc<str>> {
        task.options.client().map(|client| Arc::clone(&client.name))
    }

    /// Every task comes out once, or has ended; of one client and priority in the order in which they came; and none
    /// before one of a higher priority.
    fn check_order(steps: Vec<Step>, ages: bool) -> Result<(), TestCaseError> {
        let mut now = Instant::now();
        clock::set(now);
        let mut queue = Queue::new(ages.then_some(STEP));
        let (mut inside, mut outside): (Vec<Arc<Task>>, Vec<Arc<Task>>) = (Vec::new(), Vec::new());
        let mut next = 0;
        for step in steps {
            match step {
                Step::Push { priority, client } => {
                    let task = make(next, priority, client);
                    next += 1;
                    inside.push(Arc::clone(&task));
                    queue.push(task);
                }
                Step::Pop => {
                    let popped = queue.pop();
                    prop_assert_eq!(popped.is_some(), !inside.is_empty());
                    let Some(popped) = popped else { continue };
                    let before = |other: &&Arc<Task>| {
                        other.options.priority == popped.options.priority && client(other) == client(&popped)
                    };
                    let first = inside.iter().find(before).expect("it is there");
                    prop_assert_eq!(first.id, popped.id, "in the order of its client");
                    if !ages {
                        let highest = inside.iter().map(|task| task.options.priority).max();
                        prop_assert_eq!(Some(popped.options.priority), highest);
                    }
                    inside.retain(|task| task.id != popped.id);
                    outside.push(popped);
                }
                Step::Return { run } => {
                    let Some(task) = outside.pop() else { continue };
                    inside.insert(0, Arc::clone(&task));
                    if run { queue.push_again(task) } else { queue.push_front(task) }
                }
                Step::End(at) => {
                    if inside.is_empty() {
                        continue;
                    }
                    let task = inside.remove(at % inside.len());
                    queue.forget_one(&task);
                    task.finish(Outcome::Cancelled, Record::default());
                }
                Step::Drop => {
                    let least = queue.least();
                    let lowest = inside.iter().map(|task| task.options.priority).min();
                    prop_assert_eq!(least.as_ref().map(|least| least.0), lowest);
                    let Some((priority, name)) = least else { continue };
                    let dropped = queue.pop_of(priority, name.as_deref()).expect("it has one");
                    inside.retain(|task| task.id != dropped.id);
                }
                Step::Wait(seconds) => {
                    now += Duration::from_secs(seconds.into());
                    clock::set(now);
                }
            }
            prop_assert_eq!(queue.len(), inside.len());
            let oldest = inside.iter().map(|task| task.submitted).min();
            prop_assert_eq!(queue.oldest().is_some(), oldest.is_some());
            let named = inside.iter().filter(|task| task.options.client().is_some()).count();
            prop_assert_eq!(queue.depths().values().sum::<usize>(), named);
        }
        let mut rest = ids(&queue.drain());
        rest.sort_unstable();
        let mut expected = ids(&inside);
        expected.sort_unstable();
        prop_assert_eq!(rest, expected);
        prop_assert!(queue.is_empty() && matches!(queue.usual, Level::Plain(_)) && queue.others.is_empty());
        clock::unset();
        Ok(())
    }

    #[test]
    fn the_end_of_the_only_task_of_a_priority_leaves_the_others() {
        let clients = [None, Some(0), Some(1), Some(2), Some(3)];
        for number in 0..125 {
            let client = |place: u32| clients[number / 5_usize.pow(place) % 5];
            let push = |priority, place| Step::Push { priority, client: client(place) };
            for end in [0, 1, 2, 339_995_713_525_388_598] {
                let steps = [push(-1, 0), push(0, 1), push(-2, 2), Step::End(end), Step::Pop, Step::Drop];
                for ages in [false, true] {
                    check_order(steps.to_vec(), ages).expect("in order");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_the_order_is_kept(steps in steps(), ages in any::<bool>()) {
            check_order(steps, ages)?;
        }

        /// While the first task of a client waits, each other client has no more than its share.
        #[test]
        fn no_client_delays_another_by_more_than_its_share(steps in steps()) {
            let mut queue = Queue::default();
            // For each client whose first task waits: its number, and how many of each other one went before it.
            type Passed = HashMap<Option<Arc<str>>, u32>;
            let mut firsts: HashMap<Option<Arc<str>>, (u64, Passed)> = HashMap::new();
            let mut waiting: Vec<Arc<Task>> = Vec::new();
            let mut next = 0;
            for step in steps {
                match step {
                    Step::Push { client: whose, .. } => {
                        let task = make(next, 0, whose);
                        next += 1;
                        if !waiting.iter().any(|other| client(other) == client(&task)) {
                            firsts.insert(client(&task), (task.id, HashMap::new()));
                        }
                        waiting.push(Arc::clone(&task));
                        queue.push(task);
                    }
                    Step::Pop => {
                        let Some(popped) = queue.pop() else { continue };
                        waiting.retain(|task| task.id != popped.id);
                        firsts.retain(|_, (id, _)| *id != popped.id);
                        let share = popped.options.client().map_or(1, |client| client.share);
                        for (_, passed) in firsts.values_mut() {
                            let count = passed.entry(client(&popped)).or_default();
                            *count += 1;
                            prop_assert!(*count <= share, "{:?} went {} times", client(&popped), count);
                        }
                    }
                    _ => {}
                }
            }
        }

        /// With aging, and without clients, the order is the time of submission less a step for each priority: so none
        /// is overtaken by a newer one of `n` levels more after `n` steps.
        #[test]
        fn none_is_overtaken_for_longer_than_a_step_for_each_level(steps in steps()) {
            let mut now = Instant::now();
            clock::set(now);
            let mut queue = Queue::new(Some(STEP));
            let mut waiting: Vec<Arc<Task>> = Vec::new();
            let mut next = 0;
            for step in steps {
                match step {
                    Step::Push { priority, .. } => {
                        let task = make(next, priority, None);
                        next += 1;
                        waiting.push(Arc::clone(&task));
                        queue.push(task);
                    }
                    Step::Pop => {
                        let Some(popped) = queue.pop() else { continue };
                        waiting.retain(|task| task.id != popped.id);
                        for other in &waiting {
                            let levels = popped.options.priority - other.options.priority;
                            let after = popped.submitted.saturating_duration_since(other.submitted);
                            let allowed = STEP * u32::try_from(levels.max(0)).expect("few");
                            prop_assert!(after <= allowed, "{after:?} after it, {levels} levels above it");
                        }
                    }
                    Step::Wait(seconds) => {
                        now += Duration::from_secs(seconds.into());
                        clock::set(now);
                    }
                    _ => {}
                }
            }
            clock::unset();
        }
    }
}
