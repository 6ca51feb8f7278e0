//! Asking for workers: how many, how fast, and what to do when they are refused.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass_base::{Code, Result, ResultExt, error};
use windlass_os::{limits, memfd, pidfd, socket};

use super::{SIGKILL, Worker};
use crate::clock;
use crate::config::Spawn;
use crate::engine::{Core, Engine, State, lock};
use crate::lane::Lane;
use crate::notes::Notes;
use crate::supervisor::Supervisor;
use crate::task::Failure;
use crate::zygote::{SpawnRequest, Zygote};

const EMFILE: i32 = 24;
/// Workers of a pool that are asked for and not there yet.
const MOST_UNBORN: usize = 16;
/// How long a pool that was refused a worker does with those that it has.
const REFUSED: Duration = Duration::from_secs(1);
/// Smaller pools find out by themselves: a count of what is open costs more than they do.
const WORTH_CHECKING: u64 = 64;
/// Descriptors that are to be left when all workers are there.
const SPARE_DESCRIPTORS: u64 = 16;

/// What every spawn request of a pool has in common.
#[derive(Debug)]
pub(crate) struct Spawning {
    pub(crate) zygote: Arc<Zygote>,
    /// The pool's control page.
    page: Arc<OwnedFd>,
    spec: Arc<OwnedFd>,
    pub(super) notes: Arc<Notes>,
}

impl Engine {
    pub(crate) fn prepare_spawning(
        &self,
        spawn: &Spawn,
        zygote: Arc<Zygote>,
        control: OwnedFd,
    ) -> Result<()> {
        let spec =
            memfd::with_contents(c"windlass-spec", &spawn.spec).context("could not store a worker's spec")?;
        let notes = Arc::new(Notes::create(self.config.workers)?);
        *lock(&self.spawning) =
            Some(Spawning { zygote, page: Arc::new(control), spec: Arc::new(spec), notes });
        Ok(())
    }

    /// Asks the zygote for one more worker. Nothing has changed when it fails.
    fn add_worker(&self, core: &mut Core) -> Result<()> {
        let slot = core.workers.iter().position(Option::is_none).unwrap_or(core.workers.len());
        let (ours, theirs) = socket::seqpacket_pair().context("could not make a worker's socket")?;
        let made = (0..self.config.threads).map(|_| Lane::create(slot)).collect::<Result<(Vec<_>, Vec<_>)>>();
        let (lanes, fds) = made?;
        let id = Supervisor::get()?.new_worker_id(&self.me);
        {
            let guard = lock(&self.spawning);
            let Some(spawning) = guard.as_ref() else { return Ok(()) };
            spawning.notes.clear(slot);
            spawning.zygote.spawn(SpawnRequest {
                worker: id,
                socket: theirs,
                control: Arc::clone(&self.control),
                page: Arc::clone(&spawning.page),
                spec: Arc::clone(&spawning.spec),
                notes: Arc::clone(&spawning.notes),
                slot: u32::try_from(slot).unwrap_or(u32::MAX),
                handed: self.config.spawn.as_ref().map_or_else(Vec::new, |spawn| spawn.handed.all()),
                lanes: fds,
            });
        }
        let mut indices = Vec::new();
        for lane in lanes {
            let free = core.lanes.iter().position(Option::is_none).unwrap_or(core.lanes.len());
            if free == core.lanes.len() {
                core.lanes.push(None);
            }
            core.lanes[free] = Some(lane);
            // The warmest lane is taken from the end, so the first worker's lanes go last.
            core.idle.insert(0, free);
            indices.push(free);
        }
        core.starting += 1;
        let mut worker = Worker::new(id, ours, indices);
        // What the arguments of the initializer refer to, before the worker reads them.
        for segment in self.config.spawn.iter().flat_map(|spawn| &spawn.segments) {
            worker.give_segment(segment);
        }
        if slot == core.workers.len() {
            core.workers.push(Some(worker));
        } else {
            core.workers[slot] = Some(worker);
        }
        Ok(())
    }

    /// The zygote has forked a worker.
    pub(crate) fn worker_spawned(&self, id: u64, pid: i32, fd: Option<&Arc<OwnedFd>>) {
        let mut core = self.lock();
        let worker = Self::find(&core, id).and_then(|index| core.workers.get_mut(index)?.as_mut());
        let Some(worker) = worker else {
            if let Some(fd) = fd {
                let _ = pidfd::send_signal(fd.as_fd(), SIGKILL);
            }
            return;
        };
        worker.pid = pid;
        worker.pidfd = fd.map(Arc::clone);
        if let Some(fd) = fd
            && let Some(signal) = if worker.killed { Some(SIGKILL) } else { worker.signalled }
        {
            let _ = pidfd::send_signal(fd.as_fd(), signal);
        }
        if fd.is_some() {
            Supervisor::watch_socket(id, worker.socket.as_fd());
        }
        if fd.is_none() {
            // It could be neither ended nor watched, so it runs what it has and leaves; the zygote tells of its end.
            let index = Self::find(&core, id);
            core.dismiss(index);
            self.fall_short(&mut core, &no_descriptors());
        }
        self.fill_or_fall_short(&mut core);
    }

    /// The zygote could not fork a worker, or is gone.
    pub(crate) fn worker_failed(&self, id: u64, reason: &str) {
        let mut core = self.lock();
        if let Some(index) = Self::find(&core, id) {
            if let Some(worker) = core.workers.get_mut(index).and_then(Option::as_mut) {
                worker.killed = true;
            }
            core.refused_until = Some(clock::now() + REFUSED);
            self.bury(&mut core, index);
            self.fall_short(&mut core, reason);
        }
    }

    /// Asks for the workers that are wanting, a few at a time: each that is there makes room for the next. What is
    /// asked for and not there yet costs descriptors here, and a zygote forks one after the other anyway.
    pub(crate) fn fill(&self, core: &mut Core) -> Result<()> {
        if matches!(core.state, State::Ended | State::Broken(_)) || core.refused_until.is_some() {
            return Ok(());
        }
        while core.alive() < self.wanted(core) && core.unborn() < MOST_UNBORN {
            self.add_worker(core)?;
        }
        Ok(())
    }

    pub(crate) fn fill_or_fall_short(&self, core: &mut Core) {
        if let Err(error) = self.fill(core) {
            self.fall_short(core, &error.report());
        }
    }

    /// No worker more can be had now. The pool goes on with those that it has and asks again after a while; without any
    /// it is broken.
    fn fall_short(&self, core: &mut Core, reason: &str) {
        core.refused_until = Some(clock::now() + REFUSED);
        let told = format!("the pool has {} of {} workers: {reason}", core.alive(), self.config.workers);
        core.shortage = Some(told.into());
        if core.alive() == 0 {
            self.break_core(core, &Failure::Broken(reason.into()));
            self.check_end(core);
        }
        self.control.kick();
    }

    /// Asks again for workers that were refused, if it is time.
    pub(crate) fn ask_again(&self, core: &mut Core, now: Instant) {
        if core.refused_until.is_some_and(|at| at <= now) {
            core.refused_until = None;
            core.shortage = None;
            self.fill_or_fall_short(core);
        }
    }

    /// Whether so many workers fit into the limits of this process and its cgroup, before any of them is asked for.
    ///
    /// # Errors
    ///
    /// `Code::Files` or `Code::Processes`, naming the limit.
    pub(crate) fn check_limits(&self) -> Result<()> {
        let workers = self.config.workers as u64;
        // Of each, its socket and its pidfd; of those under way, what the zygote is to be sent.
        let under_way = workers.min(MOST_UNBORN as u64) * (1 + self.config.threads as u64);
        let needed = 2 * workers + under_way + SPARE_DESCRIPTORS;
        if workers >= WORTH_CHECKING
            && let (Some(limit), Some(open)) = (limits::open_files(), limits::open_now())
            && open + needed > limit
        {
            return Err(error!(
                Code::Files,
                "a pool of {} workers needs {} file descriptors, and this process has {} open of at most {} \
                 (RLIMIT_NOFILE)",
                workers,
                needed,
                open,
                limit
            ));
        }
        if workers >= WORTH_CHECKING
            && let Some((most, now)) = limits::pids_cgroup()
            && now + workers > most
        {
            return Err(error!(
                Code::Processes,
                "a pool of {} workers does not fit into the cgroup's limit of processes (pids.max): it is {}, and {} \
                 are taken",
                workers,
                most,
                now
            ));
        }
        Ok(())
    }
}

fn no_descriptors() -> String {
    limits::explain_fork(&std::io::Error::from_raw_os_error(EMFILE))
}

impl Core {
    /// Workers that have been asked for and of which the zygote has not told.
    fn unborn(&self) -> usize {
        self.workers.iter().flatten().filter(|worker| worker.pid == 0).count()
    }
}
