//! The one background thread of the process: it watches workers and zygotes and supervises resting pools.
//!
//! It never touches the interpreter. Zygotes are started on it, because a zygote's parent-death signal is tied to the
//! thread that started it and this one ends with the process.

use std::collections::HashMap;
use std::fmt::Debug;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Instant;

use ropewalk_base::{Code, Error, Result, ResultExt, error};
use ropewalk_executor::{Executor, Job, background};
use ropewalk_os::epoll::{Epoll, Interest};
use ropewalk_os::eventfd::EventFd;
use ropewalk_os::process;
use ropewalk_shm::memory::Arena;
use ropewalk_sync::{Mutex, PerProcess};

use crate::control::Control;
use crate::zygote::{Message, Zygote, ZygoteCommand};

const WAKE: u64 = 0;

/// A pool that the supervisor looks after.
pub(crate) trait Supervised: Debug + Send + Sync {
    /// Looks after itself; gives the time of the next look.
    fn look_after(&self, now: Instant) -> Option<Instant>;

    /// Whether there is nothing left to look after.
    fn has_ended(&self) -> bool;

    /// The descriptor that wakes it.
    fn control(&self) -> &Control;
}

/// A requester of workers, which learns the result of its requests.
pub(crate) trait Employer: Debug + Send + Sync {
    fn learn(&self, worker: u64, event: WorkerEvent);

    /// A zygote is gone, and its workers with it; `restart` starts another one.
    fn zygote_gone(
        &self,
        zygote: &Arc<Zygote>,
        reason: &str,
        restart: &dyn Fn(&ZygoteCommand) -> Result<Arc<Zygote>>,
    );
}

/// The result of a request for a worker.
#[derive(Debug)]
pub(crate) enum WorkerEvent {
    /// It was forked: its process id and, unless this process is out of descriptors, its pidfd.
    Spawned(i32, Option<Arc<OwnedFd>>),
    /// A thread of this process has taken its seat.
    Seated,
    /// It could not be forked: why.
    Failed(String),
    /// Its process has ended, with this status if that is known.
    Gone(Option<i32>),
    /// Its end of its socket is closed.
    HungUp,
}

/// What a descriptor in the supervisor's set belongs to.
#[derive(Debug)]
enum Source {
    Pool(Weak<dyn Supervised>),
    Zygote(Arc<Zygote>),
    Worker {
        id: u64,
        pidfd: Arc<OwnedFd>,
    },
    /// The socket to this worker.
    Socket(u64),
}

/// A requested worker.
#[derive(Debug)]
struct Followed {
    employer: Weak<dyn Employer>,
    /// Which sources its pidfd and its socket are.
    pidfd: Option<u64>,
    socket: Option<u64>,
}

#[derive(Debug, Default)]
struct Watched {
    sources: HashMap<u64, Source>,
    /// Pools that have not ended, even if the program has dropped them, each with the time of its next check.
    pools: HashMap<u64, (Arc<dyn Supervised>, Option<Instant>)>,
    /// The pools that may have workers of a zygote.
    employers: Vec<Weak<dyn Employer>>,
    zygotes: HashMap<ZygoteCommand, Arc<Zygote>>,
    workers: HashMap<u64, Followed>,
    /// Zygotes to be started, with where to answer.
    wanted: Vec<(ZygoteCommand, Sender<Result<Arc<Zygote>>>)>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Supervisor {
    epoll: Epoll,
    wake: EventFd,
    watched: Mutex<Watched>,
    next: AtomicU64,
}

static CURRENT: PerProcess<&'static Supervisor> = PerProcess::new();
/// Held while a supervisor is made, so that one is.
static MAKING: PerProcess<Mutex<()>> = PerProcess::new();

impl Supervisor {
    /// This process's: the thread of a parent's does not exist in a forked child.
    fn existing() -> Option<&'static Self> {
        CURRENT.existing().copied()
    }

    /// The process's supervisor, started at the first call.
    pub(crate) fn get() -> Result<&'static Self> {
        if let Some(supervisor) = Self::existing() {
            return Ok(supervisor);
        }
        let _making = MAKING.get(Mutex::default).lock();
        CURRENT.get_or_try(Self::start).copied()
    }

    fn start() -> Result<&'static Self> {
        let epoll = Epoll::new().context("could not make the supervisor's epoll set")?;
        let wake = EventFd::new().context("could not make the supervisor's event descriptor")?;
        epoll.add(wake.as_fd(), WAKE, Interest::READ).context("could not watch an event descriptor")?;
        let supervisor: &'static Self =
            Box::leak(Box::new(Self { epoll, wake, watched: Mutex::default(), next: AtomicU64::new(1) }));
        Arena::global().attend(Self::remind);
        let executor = background()?;
        let accepted = executor.execute(Job::new(move || supervisor.run()));
        accepted.map_err(|refused| {
            Error::caused(Code::SystemCallFailed, "could not start the supervisor", refused)
        })?;
        Ok(supervisor)
    }

    /// There is something to look after at a later time.
    fn remind() {
        if let Some(supervisor) = Self::existing() {
            supervisor.wake.signal();
        }
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn add_pool(&self, pool: Arc<dyn Supervised>) {
        let token = self.number();
        let (event, own) = (pool.control().event_fd(), pool.control().own_fd());
        let mut watched = self.watched.lock();
        watched.sources.insert(token, Source::Pool(Arc::downgrade(&pool)));
        watched.pools.insert(token, (Arc::clone(&pool), Some(Instant::now())));
        drop(watched);
        let _ = self.epoll.add(event, token, Interest::READ | Interest::EDGE);
        if let Some(own) = own {
            let _ = self.epoll.add(own, token, Interest::READ);
        }
        self.wake.signal();
    }

    /// Registers a listener for the ends of zygotes.
    pub(crate) fn add_employer(&self, employer: Weak<dyn Employer>) {
        let mut watched = self.watched.lock();
        watched.employers.retain(|known| known.strong_count() > 0);
        watched.employers.push(employer);
    }

    /// The zygote of a command, started if there is none. Blocks until its process exists, not until it is ready.
    pub(crate) fn zygote(&self, command: &ZygoteCommand) -> Result<Arc<Zygote>> {
        #[expect(
            clippy::disallowed_methods,
            reason = "one answer for a new zygote, or none if the thread has ended"
        )]
        let (answer, answered) = channel();
        {
            let mut watched = self.watched.lock();
            if let Some(zygote) = watched.zygotes.get(command) {
                return Ok(Arc::clone(zygote));
            }
            watched.wanted.push((command.clone(), answer));
        }
        self.wake.signal();
        answered.recv().map_err(|_| error!(Code::ZygoteFailed, "the supervisor's thread has ended"))?
    }

    /// Ends the zygotes that no pool has. A pool that wants such a one later starts another.
    pub(crate) fn end_idle_zygotes() {
        let Some(supervisor) = Self::existing() else { return };
        let mut idle = Vec::new();
        let mut watched = supervisor.watched.lock();
        let Watched { zygotes, sources, .. } = &mut *watched;
        zygotes.retain(|_, zygote| {
            // The tables here have two references. A pool has a third, and so has what is about to give it to one: it
            // is taken from the table under this lock.
            let is_idle = Arc::strong_count(zygote) <= 2;
            if is_idle {
                idle.extend(sources.remove(&zygote.id));
            }
            !is_idle
        });
        drop(watched);
        for source in idle {
            if let Source::Zygote(zygote) = source {
                let _ = supervisor.epoll.remove(zygote.socket.as_fd());
                let _ = zygote.reap();
            }
        }
    }

    pub(crate) fn new_worker_id(&self, employer: Weak<dyn Employer>) -> u64 {
        let id = self.number();
        let followed = Followed { employer, pidfd: None, socket: None };
        self.watched.lock().workers.insert(id, followed);
        id
    }

    pub(crate) fn forget_worker(id: u64, socket: BorrowedFd<'_>) {
        let Some(supervisor) = Self::existing() else { return };
        let mut watched = supervisor.watched.lock();
        let Some(followed) = watched.workers.remove(&id) else { return };
        if let Some(token) = followed.socket {
            watched.sources.remove(&token);
            let _ = supervisor.epoll.remove(socket);
        }
        if let Some(token) = followed.pidfd
            && let Some(Source::Worker { pidfd, .. }) = watched.sources.remove(&token)
        {
            let _ = supervisor.epoll.remove(pidfd.as_fd());
        }
    }

    /// Notifies a worker's pool when the worker's end of its socket is closed, until the worker is forgotten.
    pub(crate) fn watch_socket(id: u64, socket: BorrowedFd<'_>) {
        let Some(supervisor) = Self::existing() else { return };
        let token = supervisor.number();
        let mut watched = supervisor.watched.lock();
        let Some(followed) = watched.workers.get_mut(&id) else { return };
        followed.socket = Some(token);
        watched.sources.insert(token, Source::Socket(id));
        // Told once: it stays closed.
        let _ = supervisor.epoll.add(socket, token, Interest::END | Interest::EDGE);
    }

    fn run(&self) {
        process::block_all_signals();
        let mut events = Vec::new();
        loop {
            let pools = self.watched.lock().pools.values().filter_map(|(_, at)| *at).min();
            let due = pools.into_iter().chain(Arena::global().idle_at()).min();
            let timeout = due.map(|at| at.saturating_duration_since(Instant::now()));
            if self.epoll.wait(&mut events, timeout).is_err() {
                return;
            }
            self.start_zygotes();
            // Zygotes' messages first: they carry the status of a worker whose pidfd is ready too.
            for token in events.iter().map(|event| event.token) {
                if token == WAKE {
                    self.wake.drain();
                    continue;
                }
                let zygote = match self.watched.lock().sources.get(&token) {
                    Some(Source::Zygote(zygote)) => Some(Arc::clone(zygote)),
                    _ => None,
                };
                if let Some(zygote) = zygote {
                    self.listen(token, &zygote);
                }
            }
            let mut touched = Vec::new();
            for token in events.iter().map(|event| event.token) {
                let mut hung_up = None;
                let worker = match self.watched.lock().sources.get(&token) {
                    Some(Source::Socket(id)) => {
                        hung_up = Some(*id);
                        None
                    }
                    Some(Source::Pool(pool)) => {
                        if let Some(pool) = pool.upgrade() {
                            pool.control().drain();
                        }
                        touched.push(token);
                        None
                    }
                    Some(Source::Worker { id, .. }) => Some(*id),
                    _ => None,
                };
                if let Some(id) = worker {
                    self.worker_ended(token, id);
                }
                if let Some(id) = hung_up {
                    self.tell_employer(id, WorkerEvent::HungUp);
                }
            }
            self.tick(&touched);
            Arena::global().trim_idle(Instant::now());
        }
    }

    fn start_zygotes(&self) {
        let wanted = std::mem::take(&mut self.watched.lock().wanted);
        for (command, answer) in wanted {
            let existing = self.watched.lock().zygotes.get(&command).map(Arc::clone);
            let zygote = match existing {
                Some(zygote) => Ok(zygote),
                None => self.start_zygote(&command),
            };
            let _ = answer.send(zygote);
        }
    }

    fn start_zygote(&self, command: &ZygoteCommand) -> Result<Arc<Zygote>> {
        let token = self.number();
        let zygote = Arc::new(Zygote::launch(token, command)?);
        self.epoll.add(zygote.socket.as_fd(), token, Interest::READ).context("could not watch a zygote")?;
        let mut watched = self.watched.lock();
        watched.sources.insert(token, Source::Zygote(Arc::clone(&zygote)));
        watched.zygotes.insert(command.clone(), Arc::clone(&zygote));
        Ok(zygote)
    }

    fn employer_of(&self, worker: u64) -> Option<Arc<dyn Employer>> {
        self.watched.lock().workers.get(&worker).and_then(|followed| followed.employer.upgrade())
    }

    fn tell_employer(&self, worker: u64, event: WorkerEvent) {
        if let Some(employer) = self.employer_of(worker) {
            employer.learn(worker, event);
        }
    }

    fn listen(&self, token: u64, zygote: &Arc<Zygote>) {
        loop {
            let received = zygote.receive();
            zygote.send_waiting();
            match received {
                Ok(None) => return,
                Ok(Some(Message::Hello)) => {}
                Ok(Some(Message::PreloadFailed(text))) => zygote.complain(text),
                Ok(Some(Message::Spawned { worker, pid, pidfd })) => {
                    let pidfd = pidfd.map(Arc::new);
                    match (self.employer_of(worker), &pidfd) {
                        (Some(employer), _) => {
                            if let Some(pidfd) = &pidfd {
                                self.watch_worker(worker, pidfd);
                            }
                            employer.learn(worker, WorkerEvent::Spawned(pid, pidfd));
                        }
                        (None, Some(pidfd)) => {
                            let _ = ropewalk_os::pidfd::send_signal(pidfd.as_fd(), 9);
                        }
                        (None, None) => {}
                    }
                }
                Ok(Some(Message::Exited { worker, status })) => {
                    self.tell_employer(worker, WorkerEvent::Gone(Some(status)));
                }
                Ok(Some(Message::Failed { worker, reason })) => {
                    self.tell_employer(worker, WorkerEvent::Failed(reason));
                }
                Err(_) => {
                    self.zygote_ended(token, zygote);
                    return;
                }
            }
        }
    }

    fn watch_worker(&self, worker: u64, pidfd: &Arc<OwnedFd>) {
        let source = self.number();
        let mut watched = self.watched.lock();
        if let Some(entry) = watched.workers.get_mut(&worker) {
            entry.pidfd = Some(source);
        }
        watched.sources.insert(source, Source::Worker { id: worker, pidfd: Arc::clone(pidfd) });
        drop(watched);
        let _ = self.epoll.add(pidfd.as_fd(), source, Interest::READ);
    }

    /// A zygote is gone, and its workers with it: each pool that used it starts another.
    fn zygote_ended(&self, token: u64, zygote: &Arc<Zygote>) {
        let _ = self.epoll.remove(zygote.socket.as_fd());
        let reason = zygote.reap();
        let employers = {
            let mut watched = self.watched.lock();
            watched.sources.remove(&token);
            watched.zygotes.retain(|_, other| other.id != zygote.id);
            watched.employers.clone()
        };
        for employer in employers.iter().filter_map(Weak::upgrade) {
            employer.zygote_gone(zygote, &reason, &|command| self.restart(command));
        }
    }

    fn restart(&self, command: &ZygoteCommand) -> Result<Arc<Zygote>> {
        let existing = self.watched.lock().zygotes.get(command).map(Arc::clone);
        existing.map_or_else(|| self.start_zygote(command), Ok)
    }

    fn worker_ended(&self, token: u64, id: u64) {
        if let Some(Source::Worker { pidfd, .. }) = self.watched.lock().sources.remove(&token) {
            let _ = self.epoll.remove(pidfd.as_fd());
        }
        self.tell_employer(id, WorkerEvent::Gone(None));
    }

    /// Runs the pools that were woken, or whose time has come; drops those that have ended.
    fn tick(&self, touched: &[u64]) {
        let now = Instant::now();
        let due: Vec<(u64, Arc<dyn Supervised>)> = self
            .watched
            .lock()
            .pools
            .iter()
            .filter(|(token, (_, at))| touched.contains(token) || at.is_some_and(|at| at <= now))
            .map(|(token, (pool, _))| (*token, Arc::clone(pool)))
            .collect();
        for (token, pool) in due {
            let next = pool.look_after(now);
            if pool.has_ended() {
                let _ = self.epoll.remove(pool.control().event_fd());
                if let Some(own) = pool.control().own_fd() {
                    let _ = self.epoll.remove(own);
                }
                let mut watched = self.watched.lock();
                watched.pools.remove(&token);
                watched.sources.remove(&token);
                let last = watched.pools.is_empty();
                drop(watched);
                if last {
                    // No pool is left that would reuse the kept memory.
                    Arena::global().trim();
                }
            } else if let Some(entry) = self.watched.lock().pools.get_mut(&token) {
                entry.1 = next;
            }
        }
    }
}
