//! The waiting tasks of one priority while named clients have some: each client's in a queue of its own, served by
//! deficit round-robin.
//!
//! A client whose turn begins is credited with its share; each task that goes costs one. A client that has used its
//! credit up goes behind the others, and one that has no tasks left is forgotten with what is left of its credit. So
//! the first task of a client waits for at most one turn of each other client, however many tasks those have.
//!
//! Source: Shreedhar, Varghese, "Efficient fair queueing using deficit round-robin" (SIGCOMM 1995), with tasks in the
//! place of bytes: what a task will cost is known when it has ended.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use super::level::{oldest_of, pop_live};
use crate::client::Client;
use crate::task::Task;

/// The tasks of a client, in their order.
#[derive(Debug)]
struct Flow {
    /// `None` for the tasks without a client.
    name: Option<Arc<str>>,
    share: u32,
    /// Tasks that may go before the turn is the next client's; never 0.
    credit: u32,
    tasks: VecDeque<Arc<Task>>,
    /// Those of them that have not ended.
    live: usize,
}

/// See the module. It has at least one client with a name.
#[derive(Debug)]
pub(super) struct Fair {
    flows: Vec<Flow>,
    /// Places in `flows` without a client.
    free: Vec<usize>,
    by_name: HashMap<Arc<str>, usize>,
    /// The place of the tasks without a client, if there are any.
    unnamed: Option<usize>,
    /// The places of all clients; the first has its turn.
    ring: VecDeque<usize>,
}

impl Fair {
    /// Takes over the tasks without a client that wait already.
    pub(super) fn new(tasks: VecDeque<Arc<Task>>) -> Self {
        let mut fair = Self {
            flows: Vec::new(),
            free: Vec::new(),
            by_name: HashMap::new(),
            unnamed: None,
            ring: VecDeque::new(),
        };
        let live = tasks.iter().filter(|task| !task.is_done()).count();
        if live > 0 {
            let at = fair.place(None);
            fair.flows[at].tasks = tasks;
            fair.flows[at].live = live;
            fair.ring.push_back(at);
        }
        fair
    }

    fn find(&self, client: Option<&Client>) -> Option<usize> {
        match client {
            Some(client) => self.by_name.get(&client.name).copied(),
            None => self.unnamed,
        }
    }

    /// A new flow, in no ring yet.
    fn place(&mut self, client: Option<&Client>) -> usize {
        let share = client.map_or(1, |client| client.share.max(1));
        let name = client.map(|client| Arc::clone(&client.name));
        let flow = Flow { name: name.clone(), share, credit: share, tasks: VecDeque::new(), live: 0 };
        let at = match self.free.pop() {
            Some(at) => {
                self.flows[at] = flow;
                at
            }
            None => {
                self.flows.push(flow);
                self.flows.len() - 1
            }
        };
        match name {
            Some(name) => drop(self.by_name.insert(name, at)),
            None => self.unnamed = Some(at),
        }
        at
    }

    /// Forgets a client, which is in no ring any more.
    fn forget(&mut self, at: usize) {
        let flow = &mut self.flows[at];
        flow.tasks = VecDeque::new();
        match flow.name.take() {
            Some(name) => drop(self.by_name.remove(&name)),
            None => self.unnamed = None,
        }
        self.free.push(at);
    }

    /// The flow of a task's client; a new one is the last in the ring.
    fn flow(&mut self, task: &Task) -> &mut Flow {
        let client = task.options.client();
        let at = self.find(client).unwrap_or_else(|| {
            let at = self.place(client);
            self.ring.push_back(at);
            at
        });
        let flow = &mut self.flows[at];
        if let Some(client) = client {
            flow.share = client.share.max(1);
        }
        flow
    }

    pub(super) fn push(&mut self, task: Arc<Task>) {
        let flow = self.flow(&task);
        flow.live += 1;
        flow.tasks.push_back(task);
    }

    /// A task goes before the others of its client. If it was taken out and has not been run, its client gets back what
    /// it has cost: no more than a share, for the turn of the others must come.
    pub(super) fn push_front(&mut self, task: Arc<Task>, was_run: bool) {
        let flow = self.flow(&task);
        flow.live += 1;
        if !was_run {
            flow.credit = (flow.credit + 1).min(flow.share);
        }
        flow.tasks.push_front(task);
    }

    pub(super) fn pop(&mut self) -> Option<Arc<Task>> {
        let at = *self.ring.front()?;
        let flow = &mut self.flows[at];
        let task = pop_live(&mut flow.tasks)?;
        flow.live -= 1;
        flow.credit -= 1;
        if flow.live == 0 {
            self.ring.pop_front();
            self.forget(at);
        } else if flow.credit == 0 {
            flow.credit = flow.share;
            self.ring.rotate_left(1);
        }
        Some(task)
    }

    /// A task that waits here has ended.
    pub(super) fn forget_one(&mut self, task: &Task) {
        let Some(at) = self.find(task.options.client()) else { return };
        let flow = &mut self.flows[at];
        flow.live = flow.live.saturating_sub(1);
        if flow.live == 0 {
            self.ring.retain(|other| *other != at);
            self.forget(at);
        }
    }

    /// Takes the oldest task of a client out of its turn.
    pub(super) fn pop_of(&mut self, client: Option<&str>) -> Option<Arc<Task>> {
        let at = match client {
            Some(name) => self.by_name.get(name).copied()?,
            None => self.unnamed?,
        };
        let task = pop_live(&mut self.flows[at].tasks)?;
        self.flows[at].live -= 1;
        if self.flows[at].live == 0 {
            self.ring.retain(|other| *other != at);
            self.forget(at);
        }
        Some(task)
    }

    /// The client that has the most tasks here for its share.
    pub(super) fn largest(&self) -> Option<Option<&Arc<str>>> {
        let flows = self.ring.iter().map(|at| &self.flows[*at]);
        // Without a division: a/b > c/d is ad > cb.
        let more = |a: &&Flow, b: &&Flow| {
            (a.live as u128 * u128::from(b.share)).cmp(&(b.live as u128 * u128::from(a.share)))
        };
        flows.max_by(more).map(|flow| flow.name.as_ref())
    }

    /// How many tasks of this one's client wait here.
    pub(super) fn waiting_beside(&self, task: &Task) -> usize {
        self.find(task.options.client()).map_or(0, |at| self.flows[at].live)
    }

    /// Whether no client with a name is left.
    pub(super) fn is_plain(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The tasks without a client.
    pub(super) fn into_plain(mut self) -> VecDeque<Arc<Task>> {
        self.unnamed.map(|at| std::mem::take(&mut self.flows[at].tasks)).unwrap_or_default()
    }

    /// The oldest of the clients' first tasks, by this measure.
    pub(super) fn oldest(&self, measure: impl Fn(&Task) -> Instant) -> Option<Instant> {
        self.ring.iter().filter_map(|at| oldest_of(&self.flows[*at].tasks, &measure)).min()
    }

    /// Each client with a name and the number of its tasks.
    pub(super) fn depths(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        self.by_name.iter().map(|(name, at)| (name, self.flows[*at].live))
    }

    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.flows.len()
    }
}
