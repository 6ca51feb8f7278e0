//! A socket as its threads share it: the state behind its lock, the set of its descriptors, its letters, and who
//! sleeps.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ropewalk_os::epoll::{Epoll, Event, Interest, Woken as Slept};
use ropewalk_os::eventfd::EventFd;
use ropewalk_sync::spin::SpinScore;
use ropewalk_sync::{Mutex, MutexGuard};
use ropewalk_zmtp::SocketType;

use crate::context::Inner;
use crate::core::{Core, hears};
use crate::error::Result;
use crate::events::{Events, Woken};
use crate::mailbox::Mail;
use crate::options::Options;
use crate::sleep::{Bells, Doze, Heard, Sleep};

/// The bell's token in a socket's set; no connection has it.
pub(crate) const BELL: u64 = u64::MAX;
/// A waiter looks this long without sleeping, if that has paid off.
const SPIN: Duration = Duration::from_micros(50);

/// One of so many looks begins with the kernel.
const OFTEN: u64 = 64;

/// What other sockets of the context may ask while they hold their own locks.
struct Public {
    sndhwm: usize,
    rcvhwm: usize,
    identity: Vec<u8>,
}

impl Public {
    fn of(options: &Options) -> Self {
        Self { sndhwm: options.sndhwm, rcvhwm: options.rcvhwm, identity: options.routing_id.clone() }
    }
}

/// See the module.
pub(crate) struct Shared {
    pub(crate) id: u64,
    pub(crate) kind: SocketType,
    pub(crate) context: Arc<Inner>,
    core: Mutex<Core>,
    public: Mutex<Public>,
    /// Letters, sleepers, watchers.
    pub(crate) sleep: Sleep<Mail>,
    pub(crate) set: Epoll,
    bell: EventFd,
    /// How often the program has looked at the set. The background leaves a socket alone whose number moves.
    pub(crate) looks: AtomicU64,
    /// Whether it pays to look for a while.
    spin: SpinScore,
    /// For what is in no descriptor, told to who watches from outside; from then on.
    bell_outside: OnceLock<EventFd>,
    /// The set and the bell outside, in one descriptor.
    outer: OnceLock<Epoll>,
    /// Nobody calls it any more.
    pub(crate) is_closed: AtomicBool,
}

impl Shared {
    /// A new one.
    pub(crate) fn create(
        id: u64,
        kind: SocketType,
        context: &Arc<Inner>,
        options: Options,
    ) -> io::Result<Arc<Self>> {
        let (set, bell) = (Epoll::new()?, EventFd::new()?);
        set.add(bell.as_fd(), BELL, Interest::READ)?;
        let public = Mutex::new(Public::of(&options));
        Ok(Arc::new_cyclic(|me| Self {
            id,
            kind,
            context: Arc::clone(context),
            core: Mutex::new(Core::new(kind, context, options, me.clone(), context.random())),
            public,
            sleep: Sleep::new(),
            set,
            bell,
            looks: AtomicU64::new(0),
            spin: SpinScore::new(),
            bell_outside: OnceLock::new(),
            outer: OnceLock::new(),
            is_closed: AtomicBool::new(false),
        }))
    }

    /// The options have changed.
    pub(crate) fn publish(&self, options: &Options) {
        *self.public.lock() = Public::of(options);
    }

    /// The high-water marks, (send, receive), without the socket's lock.
    pub(crate) fn limits(&self) -> (usize, usize) {
        let public = self.public.lock();
        (public.sndhwm, public.rcvhwm)
    }

    /// The name by which peers know it, without the socket's lock.
    pub(crate) fn identity(&self) -> Vec<u8> {
        self.public.lock().identity.clone()
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock()
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Core>> {
        self.core.try_lock()
    }

    /// Puts a letter in, and rings if somebody sleeps, watches, or must act at once.
    pub(crate) fn post(&self, mail: Mail, is_urgent: bool) {
        let bells = self.sleep.post(mail);
        if is_urgent || bells.inner {
            self.bell.signal();
        }
        self.ring_outside(bells);
    }

    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        self.sleep.has_mail()
    }

    pub(crate) fn take_mail(&self, letters: &mut Vec<Mail>) {
        self.sleep.take(letters);
    }

    /// Wakes whoever sleeps, to look again.
    pub(crate) fn wake(&self) {
        let bells = self.sleep.call();
        if bells.inner {
            self.bell.signal();
        }
        self.ring_outside(bells);
    }

    /// Wakes one who sleeps; it wakes the next one, if that may have what it wants.
    pub(crate) fn rouse(&self) {
        self.bell.signal();
    }

    /// Tells who watches from outside.
    pub(crate) fn ring(&self) {
        let bells = self.sleep.call();
        self.ring_outside(bells);
    }

    fn ring_outside(&self, bells: Bells) {
        if bells.outer
            && let Some(bell) = self.bell_outside.get()
        {
            bell.signal();
            self.sleep.was_rung();
        }
    }

    /// Whoever watches is about to look. What happens from now on rings again.
    #[inline]
    pub(crate) fn silence(&self) {
        if self.sleep.heard() == Heard::Bell
            && let Some(bell) = self.bell_outside.get()
        {
            bell.drain();
            self.sleep.hush();
        }
    }

    pub(crate) fn drain_bell(&self) {
        self.bell.drain();
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.sleep.is_watched()
    }

    /// The bell outside, which is rung from now on.
    fn bell_outside(&self) -> io::Result<&EventFd> {
        if let Some(bell) = self.bell_outside.get() {
            return Ok(bell);
        }
        let bell = EventFd::new()?;
        bell.signal();
        let mut is_mine = false;
        let bell = self.bell_outside.get_or_init(|| {
            is_mine = true;
            bell
        });
        if is_mine {
            self.sleep.watch();
        }
        Ok(bell)
    }

    /// A descriptor that can be read when something may have changed.
    pub(crate) fn watch_fd(&self) -> io::Result<RawFd> {
        if self.outer.get().is_none() {
            let outer = Epoll::new()?;
            for (token, fd) in self.watch_fds()?.into_iter().enumerate() {
                outer.add(fd, token as u64, Interest::READ)?;
            }
            // Another thread's is as good.
            let _ = self.outer.set(outer);
        }
        Ok(self.outer.get().map_or(-1, |outer| outer.as_fd().as_raw_fd()))
    }

    /// The two descriptors of which one can be read when something may have changed: the set, and the bell outside.
    pub(crate) fn watch_fds(&self) -> io::Result<[BorrowedFd<'_>; 2]> {
        Ok([self.set.as_fd(), self.bell_outside()?.as_fd()])
    }

    /// Sleeps until `what` may be had. Unless others may call it meanwhile, they are kept out.
    pub(crate) fn wait(&self, what: Events, deadline: Option<Instant>, is_shared: bool) -> Result<Woken> {
        let mut core = self.lock();
        core.check_call()?;
        core.settle();
        if core.may(what) {
            core.rouse(self);
            return Ok(Woken::Ready);
        }
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            let looked = core.look(self, what);
            core.rouse(self);
            looked?;
            return Ok(if core.may(what) { Woken::Ready } else { Woken::TimedOut });
        }
        core.is_waited_on = !is_shared;
        let mut events = std::mem::take(&mut core.events);
        let mut may_spin = self.context.may_spin() && self.spin.is_worth_it();
        let ended = loop {
            self.looks.fetch_add(1, Ordering::Relaxed);
            if may_spin {
                let found;
                (core, found) = self.look_for_a_while(core, &mut events, what, deadline);
                if found {
                    core.handle(self, &events, what);
                    core.rouse(self);
                }
                // If nothing was found, it was without the lock: the background may have read what was looked for.
                if let Err(error) = core.check_open() {
                    break Err(error);
                }
                if core.may(what) {
                    break Ok(Woken::Ready);
                }
                if found {
                    // What comes again and again, and is not what is wanted, must not outlast the caller's patience.
                    if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                        break Ok(Woken::TimedOut);
                    }
                    continue;
                }
                may_spin = false;
            }
            if !core.hot().is_empty() {
                let is_hot = core.cool(self, what);
                if let Err(error) = core.check_open() {
                    break Err(error);
                }
                if core.may(what) {
                    break Ok(Woken::Ready);
                }
                if is_hot {
                    if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                        break Ok(Woken::TimedOut);
                    }
                    continue;
                }
            }
            if self.sleep.doze(what) == Doze::Mail {
                self.sleep.rise(what);
                core.take_mail(self);
                core.rouse(self);
                if let Err(error) = core.check_open() {
                    break Err(error);
                }
                if core.may(what) {
                    break Ok(Woken::Ready);
                }
                continue;
            }
            drop(core);
            let limit = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let slept = self.set.wait(&mut events, limit);
            core = self.lock();
            self.sleep.rise(what);
            match slept {
                Err(error) => break Err(error.into()),
                Ok(Slept::BySignal) => break Ok(Woken::Interrupted),
                Ok(Slept::InTime) => {}
            }
            core.handle(self, &events, what);
            core.rouse(self);
            if let Err(error) = core.check_open() {
                break Err(error);
            }
            if core.may(what) {
                break Ok(Woken::Ready);
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                break Ok(Woken::TimedOut);
            }
        };
        core.is_waited_on = false;
        core.rouse(self);
        events.clear();
        core.events = events;
        ended
    }

    /// Looks again and again, for a while, and says whether there is anything. The lock is let go between looks. An
    /// only connection is asked itself; the set, which has everything else, then has its turn now and then. What
    /// happens inside the process is in the letters, and what hot connections have is in their memory; the kernel is
    /// asked less often if there are no others.
    fn look_for_a_while<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core>,
        events: &mut Vec<Event>,
        what: Events,
        deadline: Option<Instant>,
    ) -> (MutexGuard<'a, Core>, bool) {
        let began = Instant::now();
        let until = deadline.map_or(began + SPIN, |deadline| deadline.min(began + SPIN));
        let only = core.begin_glances(what, self.is_watched());
        let (is_near, hot) = (core.is_near(), Arc::clone(core.hot()));
        // Where there is always something to be found nearby, the set would never be asked.
        let mut is_due = self.looks.load(Ordering::Relaxed).is_multiple_of(OFTEN);
        let mut is_first = true;
        let found = loop {
            events.clear();
            let mut found = match only {
                _ if is_due => false,
                Some(index) => {
                    let glances = if is_near { 500 } else { 1 };
                    let mut found = false;
                    for _ in 0..glances {
                        // In between, whoever else wants the lock may have it.
                        drop(core);
                        std::hint::spin_loop();
                        core = self.lock();
                        found = self.has_mail() || core.glance(index);
                        if found {
                            break;
                        }
                    }
                    found
                }
                None => {
                    drop(core);
                    let looks = if is_near { 500 } else { 16 };
                    let found = (0..looks).any(|_| {
                        std::hint::spin_loop();
                        self.has_mail() || hears(&hot)
                    });
                    core = self.lock();
                    found
                }
            };
            if !found && (std::mem::take(&mut is_due) || core.is_turn_of_set(only)) {
                drop(core);
                found = self.set.wait(events, Some(Duration::ZERO)).is_ok() && !events.is_empty();
                core = self.lock();
            }
            let now = Instant::now();
            if found && is_first {
                // It was there already: nothing is learnt from that.
                break true;
            }
            is_first = false;
            if found || now >= until {
                // Whoever finds it late was put aside, for somebody who needed this core.
                self.spin.learn(found && now < until);
                break found;
            }
        };
        if let Some(index) = only {
            core.end_glances(index);
        }
        (core, found)
    }
}
