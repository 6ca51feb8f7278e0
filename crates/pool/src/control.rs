//! The page of hints that a pool shares with all of its workers: how the parent wants to be woken, and how busy the
//! pool is.
//!
//! Nothing here is trusted: a worker that scribbles on the page costs its pool speed, never an answer. Every sleep that
//! a word of this page could prolong is bounded by [`WATCH`], and the parent's own notifications do not use the page.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use ropewalk_base::{Result, ResultExt};
use ropewalk_os::eventfd::EventFd;
use ropewalk_os::memfd;
use ropewalk_os::mmap::{Mapping, Protection};
use ropewalk_shm::channel::attention::{Attention, Wake};
use ropewalk_shm::memory::Words;

/// Bytes of a control page.
pub const SIZE: usize = 4096;
/// The longest time that the parent sleeps without checking the rings of a pool that has tasks, whatever the page
/// contains.
pub const WATCH: Duration = Duration::from_millis(500);

/// One end of a pool's control page.
#[derive(Debug)]
pub struct Control {
    /// How the parent wants to be woken; see [`Attention`] for its writers.
    attention: Words<Attention>,
    /// Lanes that have a task: written by the parent, read by workers that consider to spin.
    load: Words<AtomicU32>,
    /// Cores that this pool may count on: written once by the parent.
    cores: Words<AtomicU32>,
    /// Signalled by workers. It is never read: a worker has the same descriptor, and could make a read block or find
    /// nothing. The parent waits for edges, and each signal makes one.
    event: EventFd,
    /// Rung by the parent for its own supervisor; no worker has it.
    own: Option<EventFd>,
    /// Parent: a thread is in [`sleep`](Self::sleep), whatever a worker has made of the word.
    sleeping: AtomicBool,
}

impl Control {
    /// Makes a fresh page, and gives back the descriptor that workers attach to.
    ///
    /// # Errors
    ///
    /// When the machine is out of memory or descriptors.
    pub fn create(cores: u32) -> Result<(Arc<Self>, OwnedFd)> {
        let fd = memfd::create(c"ropewalk-control", SIZE as u64, true)
            .context("could not make a pool's control page")?;
        let event = EventFd::new().context("could not make an event descriptor")?;
        let own = EventFd::new().context("could not make an event descriptor")?;
        let control = Self::over(fd.as_fd(), event, Some(own))?;
        control.cores.store(cores, Ordering::Relaxed);
        Ok((Arc::new(control), fd))
    }

    /// The worker's end.
    ///
    /// # Errors
    ///
    /// When the descriptor is not that of a control page.
    pub fn attach(control: OwnedFd, event: OwnedFd) -> Result<Arc<Self>> {
        Self::over(control.as_fd(), EventFd::from_owned(event), None).map(Arc::new)
    }

    /// Each word has a cache line to itself.
    fn over(page: BorrowedFd<'_>, event: EventFd, own: Option<EventFd>) -> Result<Self> {
        let map = Mapping::map(page, SIZE, Protection::ReadWrite).context("could not map a control page")?;
        let map = Arc::new(map);
        Ok(Self {
            attention: Words::new(&map, 0)?,
            load: Words::new(&map, 64)?,
            cores: Words::new(&map, 128)?,
            event,
            own,
            sleeping: AtomicBool::new(false),
        })
    }

    /// The event descriptor that workers ring: to be watched for edges, and never read.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Parent: the event descriptor that [`kick`](Self::kick) rings.
    pub fn own_fd(&self) -> Option<BorrowedFd<'_>> {
        self.own.as_ref().map(AsFd::as_fd)
    }

    /// Parent: takes note of all kicks so far.
    pub fn drain(&self) {
        if let Some(own) = &self.own {
            own.drain();
        }
    }

    /// Parent: wakes the supervisor, whatever is armed.
    pub fn kick(&self) {
        if let Some(own) = &self.own {
            own.signal();
        }
    }

    /// Parent: says how it wants to be woken, as a mode of [`ropewalk_shm::channel::attention`]. Look at the rings
    /// once more after this, before sleeping.
    pub fn arm(&self, mode: u32) {
        self.attention.arm(mode);
    }

    /// The mode as it stands.
    pub fn mode(&self) -> u32 {
        self.attention.mode()
    }

    /// Parent: sleeps until it is woken, with `SLEEPING` armed; true when a signal handler has to run first.
    pub fn sleep(&self, timeout: Option<Duration>) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        let interrupted = self.attention.sleep(timeout);
        self.sleeping.store(false, Ordering::SeqCst);
        interrupted
    }

    /// Parent: wakes the thread that sleeps in [`sleep`](Self::sleep), if there is one.
    pub fn wake_sleeper(&self) {
        self.attention.wake_sleeper(|| self.sleeping.load(Ordering::SeqCst));
    }

    /// Worker: wakes the parent for a result just pushed, if the parent asked for it.
    ///
    /// `hungry`: this worker has nothing left to run; `crowded`: its result ring is over half full.
    pub fn after_push(&self, hungry: impl FnOnce() -> bool, crowded: bool) {
        if self.attention.after_push(hungry, crowded) == Wake::Event {
            self.event.signal();
        }
    }

    /// Worker: wakes the parent, whichever way it sleeps.
    pub fn wake_parent(&self) {
        if self.attention.wake_owner() == Wake::Event {
            self.event.signal();
        }
    }

    /// Parent: publishes how many lanes have a task.
    pub fn set_load(&self, load: u32) {
        if self.load.load(Ordering::Relaxed) != load {
            self.load.store(load, Ordering::Relaxed);
        }
    }

    /// Whether a waiting thread may burn a core for a moment: only while there are more cores than lanes at work.
    pub fn may_spin(&self) -> bool {
        self.may_spin_beside(0)
    }

    /// The same for a thread beside which this many busy threads have no lane.
    pub fn may_spin_beside(&self, others: u32) -> bool {
        let busy = self.load.load(Ordering::Relaxed).saturating_add(others);
        busy < self.cores.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_os::poll;
    use ropewalk_shm::channel::attention;

    use super::*;

    fn both() -> (Arc<Control>, Arc<Control>) {
        let (parent, fd) = Control::create(2).expect("a page");
        let event = parent.event_fd().try_clone_to_owned().expect("a descriptor");
        let worker = Control::attach(fd, event).expect("a page");
        (parent, worker)
    }

    fn rings(fd: BorrowedFd<'_>) -> bool {
        use std::os::fd::AsRawFd;
        let mut all = [poll::Polled::new(fd.as_raw_fd(), poll::READ)];
        poll::poll(&mut all, Some(Duration::ZERO)).expect("polled") > 0
    }

    #[test]
    fn only_while_there_are_more_cores_than_lanes_at_work_may_one_spin() {
        let (parent, worker) = both();
        for (load, may) in [(0, true), (1, true), (2, false), (3, false), (1, true)] {
            parent.set_load(load);
            assert_eq!((parent.may_spin(), worker.may_spin()), (may, may), "{load}");
        }
    }

    #[test]
    fn a_kick_is_noted_until_it_is_drained() {
        let (parent, worker) = both();
        let own = parent.own_fd().expect("the parent's");
        assert!(worker.own_fd().is_none());
        assert!(!rings(own));
        worker.kick();
        assert!(!rings(own), "a worker has no part in it");
        parent.kick();
        assert!(rings(own));
        parent.drain();
        assert!(!rings(own));
    }

    #[test]
    fn a_worker_rings_when_it_is_asked_to() {
        for (mode, hungry, crowded, told) in [
            (attention::AWAKE, true, true, false),
            (attention::ANY, false, false, true),
            (attention::HUNGRY, false, false, false),
            (attention::HUNGRY, true, false, true),
            (attention::QUIET, true, false, false),
            (attention::QUIET, false, true, true),
            (attention::SLEEPING, false, false, false),
        ] {
            let (parent, worker) = both();
            parent.arm(mode);
            assert_eq!((parent.mode(), worker.mode()), (mode, mode));
            worker.after_push(|| hungry, crowded);
            assert_eq!(rings(parent.event_fd()), told, "{mode} {hungry} {crowded}");
            let woken = told || mode == attention::SLEEPING;
            assert_eq!(parent.mode(), if woken { attention::AWAKE } else { mode });
        }
        let (parent, worker) = both();
        worker.wake_parent();
        assert!(!rings(parent.event_fd()), "it is awake");
        parent.arm(attention::QUIET);
        worker.wake_parent();
        assert!(rings(parent.event_fd()));
    }

    #[test]
    fn a_sleeper_is_woken_whatever_a_worker_has_made_of_the_word() {
        let (parent, worker) = both();
        for scribbled in [false, true] {
            parent.arm(attention::SLEEPING);
            let sleeper = {
                let parent = Arc::clone(&parent);
                std::thread::spawn(move || parent.sleep(Some(Duration::from_secs(60))))
            };
            let deadline = std::time::Instant::now() + Duration::from_secs(20);
            while !parent.sleeping.load(Ordering::SeqCst) && !sleeper.is_finished() {
                assert!(std::time::Instant::now() < deadline, "it never slept");
                std::thread::yield_now();
            }
            if scribbled {
                worker.attention.arm(attention::QUIET);
            }
            while !sleeper.is_finished() {
                assert!(std::time::Instant::now() < deadline, "it was never woken");
                parent.wake_sleeper();
                std::thread::yield_now();
            }
            assert!(!sleeper.join().expect("no panic"));
            assert!(!parent.sleeping.load(Ordering::SeqCst));
        }
    }
}
