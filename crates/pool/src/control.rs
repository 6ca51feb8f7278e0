//! The page of hints that a pool shares with all of its workers, and the bell in it.
//!
//! Nothing here is trusted: a worker that scribbles on the page costs its pool speed, never an answer, for the parent
//! looks at the rings again whenever a worker dies and the supervisor wakes at its own pace.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use windlass_base::{Code, Result, ResultExt, error};
use windlass_os::eventfd::EventFd;
use windlass_os::futex::{self, Scope};
use windlass_os::memfd;
use windlass_os::mmap::{Mapping, Protection};

/// Bytes of a control page.
pub const SIZE: usize = 4096;
const MAGIC: u32 = 0x574C_4331;

/// What the parent wants to be told about, as the bell's word.
///
/// The word is written by the parent (under its engine's lock) to arm the bell, and swapped back to `AWAKE` by the
/// worker that rings it, so that one sleep costs one ring.
pub mod bell {
    /// The parent is looking at the rings by itself.
    pub const AWAKE: u32 = 0;
    /// A thread of the parent sleeps on the word: any result wakes it.
    pub const FUTEX: u32 = 1;
    /// The supervisor sleeps on the event descriptor; a worker that ran out of tasks wakes it.
    pub const HUNGRY: u32 = 2;
    /// The supervisor sleeps on the event descriptor; any result wakes it.
    pub const ANY: u32 = 4;
    /// The supervisor sleeps on the event descriptor and only a result ring that fills up wakes it.
    pub const QUIET: u32 = 8;
}

#[repr(C, align(64))]
struct Line<T>(T);

#[repr(C)]
struct Page {
    magic: Line<AtomicU32>,
    /// One of `bell`; see there for who writes it.
    bell: Line<AtomicU32>,
    /// Lanes that have a task: written by the parent, read by workers that consider to spin.
    load: Line<AtomicU32>,
    /// Cores that this pool may count on: written once by the parent.
    cores: Line<AtomicU32>,
}

/// One end of a pool's control page.
#[derive(Debug)]
pub struct Control {
    map: Mapping,
    event: EventFd,
}

impl Control {
    /// Makes a fresh page, and gives back the descriptor that workers attach to.
    ///
    /// # Errors
    ///
    /// When the machine is out of memory or descriptors.
    pub fn create(cores: u32) -> Result<(Arc<Self>, OwnedFd)> {
        let fd = memfd::create(c"windlass-control", SIZE as u64, true)
            .context("could not make a pool's control page")?;
        let map =
            Mapping::map(fd.as_fd(), SIZE, Protection::ReadWrite).context("could not map a control page")?;
        let event = EventFd::new().context("could not make an event descriptor")?;
        let control = Self { map, event };
        control.page().cores.0.store(cores, Ordering::Relaxed);
        control.page().magic.0.store(MAGIC, Ordering::Release);
        Ok((Arc::new(control), fd))
    }

    /// The worker's end.
    ///
    /// # Errors
    ///
    /// When the descriptor is not that of a control page.
    pub fn attach(control: OwnedFd, event: OwnedFd) -> Result<Arc<Self>> {
        let map = Mapping::map(control.as_fd(), SIZE, Protection::ReadWrite)
            .context("could not map a control page")?;
        let control = Self { map, event: EventFd::from_owned(event) };
        if control.page().magic.0.load(Ordering::Acquire) != MAGIC {
            return Err(error!(Code::ShmCorrupt, "a control page has the wrong magic number"));
        }
        Ok(Arc::new(control))
    }

    fn page(&self) -> &Page {
        // SAFETY: the mapping is SIZE bytes, page-aligned and lives as long as self; Page is smaller, holds nothing but
        // atomics, and any bit pattern is a valid one.
        unsafe { &*self.map.as_ptr().cast::<Page>() }
    }

    /// The event descriptor that the supervisor sleeps on.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Empties the event descriptor.
    pub fn drain(&self) {
        self.event.drain();
    }

    /// Wakes the supervisor, whatever the bell says.
    pub fn kick(&self) {
        self.event.signal();
    }

    /// Parent: says how it wants to be woken. Look at the rings once more after this, before sleeping.
    pub fn arm(&self, mode: u32) {
        let word = &self.page().bell.0;
        if word.load(Ordering::Relaxed) != mode {
            word.store(mode, Ordering::Relaxed);
        }
        if mode != bell::AWAKE {
            // Pairs with the fence in `after_push`: either the worker sees the mode or we see its result.
            fence(Ordering::SeqCst);
        }
    }

    /// The mode as it stands.
    pub fn mode(&self) -> u32 {
        self.page().bell.0.load(Ordering::Relaxed)
    }

    /// Parent: sleeps until the bell, armed with `FUTEX`, is rung; true when a signal handler has to run first.
    pub fn sleep(&self, timeout: Option<Duration>) -> bool {
        matches!(
            futex::wait(&self.page().bell.0, bell::FUTEX, timeout, Scope::Shared),
            futex::Wait::Interrupted
        )
    }

    /// Parent: wakes the thread that sleeps in [`sleep`](Self::sleep), if there is one.
    pub fn wake_sleeper(&self) {
        let word = &self.page().bell.0;
        if word.compare_exchange(bell::FUTEX, bell::AWAKE, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
            futex::wake(word, 1, Scope::Shared);
        }
    }

    /// Worker: tells the parent of a result just pushed, if the parent wants to know.
    ///
    /// `hungry`: this worker has nothing left to run; `crowded`: its result ring is over half full.
    pub fn after_push(&self, hungry: impl FnOnce() -> bool, crowded: bool) {
        fence(Ordering::SeqCst);
        let word = &self.page().bell.0;
        let mode = word.load(Ordering::Relaxed);
        if mode == bell::AWAKE {
            return;
        }
        let wanted =
            mode & (bell::FUTEX | bell::ANY) != 0 || crowded || (mode & bell::HUNGRY != 0 && hungry());
        if wanted {
            self.ring(mode);
        }
    }

    /// Worker: rings whatever is armed.
    pub fn ring(&self, mode: u32) {
        let word = &self.page().bell.0;
        let mut mode = mode;
        while mode != bell::AWAKE {
            match word.compare_exchange(mode, bell::AWAKE, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) if mode & bell::FUTEX != 0 => {
                    futex::wake(word, 1, Scope::Shared);
                    return;
                }
                Ok(_) => {
                    self.event.signal();
                    return;
                }
                Err(now) => mode = now,
            }
        }
    }

    /// Parent: publishes how many lanes have a task.
    pub fn set_load(&self, load: u32) {
        let word = &self.page().load.0;
        if word.load(Ordering::Relaxed) != load {
            word.store(load, Ordering::Relaxed);
        }
    }

    /// Whether a waiting thread may burn a core for a moment: only while there are more cores than lanes at work.
    pub fn may_spin(&self) -> bool {
        self.page().load.0.load(Ordering::Relaxed) < self.page().cores.0.load(Ordering::Relaxed)
    }
}
