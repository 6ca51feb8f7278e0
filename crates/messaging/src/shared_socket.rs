//! A socket as its threads share it: the state behind its lock, and the wait.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ropewalk_os::epoll::{Event, Woken as Slept};
use ropewalk_sync::spin::SpinScore;
use ropewalk_sync::{Mutex, MutexGuard};
use ropewalk_zmtp::SocketType;

use crate::background::{Served, Unwritten};
use crate::error::Result;
use crate::events::{Events, Woken};
use crate::mailbox::Doze;
use crate::notifier::Notifier;
use crate::options::Options;
use crate::registry::Registry;
use crate::shm_link::has_bytes;
use crate::state::SocketState;

/// A waiter looks this long without sleeping, if that has paid off.
const SPIN: Duration = Duration::from_micros(50);

/// One of so many looks begins with the kernel.
const OFTEN: u64 = 64;

/// A socket that left nothing unwritten so often in a row is no longer looked after.
const CALM_TICKS: u32 = 20;

/// See the module.
pub(crate) struct SharedSocket {
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) registry: Arc<Registry>,
    state: Mutex<SocketState>,
    may_spin: bool,
    /// Whether it pays to look for a while.
    spin: SpinScore,
}

impl SharedSocket {
    /// A new one.
    pub(crate) fn create(
        id: u64,
        kind: SocketType,
        registry: &Arc<Registry>,
        options: Options,
    ) -> io::Result<Self> {
        let notifier = Arc::new(Notifier::new(id, kind, &options)?);
        let state = SocketState::new(Arc::clone(&notifier), registry, options, registry.random());
        Ok(Self {
            notifier,
            registry: Arc::clone(registry),
            state: Mutex::new(state),
            may_spin: registry.may_spin(),
            spin: SpinScore::new(),
        })
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, SocketState> {
        self.state.lock()
    }

    /// Sleeps until `what` may be had. Unless others may call it meanwhile, they are kept out.
    pub(crate) fn wait(&self, what: Events, deadline: Option<Instant>, is_shared: bool) -> Result<Woken> {
        let mut state = self.lock();
        state.check_call()?;
        state.settle();
        if state.may(what) {
            state.rouse();
            return Ok(Woken::Ready);
        }
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            let looked = state.look(what);
            state.rouse();
            looked?;
            return Ok(if state.may(what) { Woken::Ready } else { Woken::TimedOut });
        }
        state.is_waited_on = !is_shared;
        let mut events = std::mem::take(&mut state.events);
        let mut may_spin = self.may_spin && self.spin.is_worth_it();
        let ended = loop {
            self.notifier.looks.fetch_add(1, Ordering::Relaxed);
            if may_spin {
                let found;
                (state, found) = self.look_for_a_while(state, &mut events, what, deadline);
                if found {
                    state.handle(&events, what);
                    state.rouse();
                }
                // If nothing was found, it was without the lock: the background may have read what was looked for.
                if let Err(error) = state.check_open() {
                    break Err(error);
                }
                if state.may(what) {
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
            if !state.hot().is_empty() {
                let is_hot = state.cool(what);
                if let Err(error) = state.check_open() {
                    break Err(error);
                }
                if state.may(what) {
                    break Ok(Woken::Ready);
                }
                if is_hot {
                    if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                        break Ok(Woken::TimedOut);
                    }
                    continue;
                }
            }
            if self.notifier.mailbox.doze(what) == Doze::Mail {
                self.notifier.mailbox.rise(what);
                state.take_mail();
                state.rouse();
                if let Err(error) = state.check_open() {
                    break Err(error);
                }
                if state.may(what) {
                    break Ok(Woken::Ready);
                }
                continue;
            }
            drop(state);
            let limit = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let slept = self.notifier.set.wait(&mut events, limit);
            state = self.lock();
            self.notifier.mailbox.rise(what);
            match slept {
                Err(error) => break Err(error.into()),
                Ok(Slept::BySignal) => break Ok(Woken::Interrupted),
                Ok(Slept::InTime) => {}
            }
            state.handle(&events, what);
            state.rouse();
            if let Err(error) = state.check_open() {
                break Err(error);
            }
            if state.may(what) {
                break Ok(Woken::Ready);
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                break Ok(Woken::TimedOut);
            }
        };
        state.is_waited_on = false;
        state.rouse();
        events.clear();
        state.events = events;
        ended
    }

    /// Looks again and again, for a while, and says whether there is anything. The lock is let go between looks. An
    /// only connection is asked itself; the set, which has everything else, then has its turn now and then. What
    /// happens inside the process is in the mail, and what hot connections have is in their memory; the kernel is
    /// asked less often if there are no others.
    fn look_for_a_while<'a>(
        &'a self,
        mut state: MutexGuard<'a, SocketState>,
        events: &mut Vec<Event>,
        what: Events,
        deadline: Option<Instant>,
    ) -> (MutexGuard<'a, SocketState>, bool) {
        let began = Instant::now();
        let until = deadline.map_or(began + SPIN, |deadline| deadline.min(began + SPIN));
        let only = state.begin_glances(what, self.notifier.is_watched());
        let (is_near, hot) = (state.is_near(), Arc::clone(state.hot()));
        // Where there is always something to be found nearby, the set would never be asked.
        let mut is_due = self.notifier.looks.load(Ordering::Relaxed).is_multiple_of(OFTEN);
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
                        drop(state);
                        std::hint::spin_loop();
                        state = self.lock();
                        found = self.notifier.has_mail() || state.glance(index);
                        if found {
                            break;
                        }
                    }
                    found
                }
                None => {
                    drop(state);
                    let looks = if is_near { 500 } else { 16 };
                    let found = (0..looks).any(|_| {
                        std::hint::spin_loop();
                        self.notifier.has_mail() || has_bytes(&hot)
                    });
                    state = self.lock();
                    found
                }
            };
            if !found && (std::mem::take(&mut is_due) || state.is_turn_of_set(only)) {
                drop(state);
                found = self.notifier.set.wait(events, Some(Duration::ZERO)).is_ok() && !events.is_empty();
                state = self.lock();
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
            state.end_glances(index);
        }
        (state, found)
    }
}

impl Served for SharedSocket {
    fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    fn attend(&self) {
        self.lock().attend();
    }

    fn meet_deadlines(&self, now: Instant) {
        let mut state = self.lock();
        state.run_deadlines(now);
        state.nudge();
    }

    fn write_left(&self, seen: &mut Unwritten) -> bool {
        let Some(mut state) = self.state.try_lock() else { return true };
        if state.has_unsent() {
            seen.calm = 0;
            state.settle_left();
            if state.flushes() != seen.flushes {
                state.nudge();
            }
        } else if state.leavings() == seen.leavings {
            // A program that writes all by itself, as for each answer, is not to be looked after.
            seen.calm += 1;
        } else {
            seen.calm = 0;
        }
        (seen.flushes, seen.leavings) = (state.flushes(), state.leavings());
        if seen.calm > CALM_TICKS {
            seen.calm = 0;
            // Under the lock: who leaves something from now on says so.
            self.notifier.mailbox.calm();
            return false;
        }
        true
    }

    fn cool(&self, looks: &mut u64) -> bool {
        let Some(mut state) = self.state.try_lock() else { return true };
        let now = self.notifier.looks.load(Ordering::Relaxed);
        let has_looked = std::mem::replace(looks, now) != now;
        state.is_warm_yet(has_looked && !self.notifier.is_closed.load(Ordering::Relaxed))
    }
}
