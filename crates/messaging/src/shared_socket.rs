//! A socket as its threads share it: the state behind its lock, and waiting.

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
use crate::slices::Slices;
use crate::state::SocketState;

/// A waiter spins this long before it sleeps, if that has paid off.
const SPIN: Duration = Duration::from_micros(50);

/// One in this many checks begins with the kernel.
const OFTEN: u64 = 64;

/// The background comes again after this time when a socket left nothing, or others hold its lock.
const AGAIN: Duration = Duration::from_micros(100);
/// It comes so many times more for nothing: to be called again costs the program as much as a write.
const CALM: u32 = 5;
/// More messages at once are a flow, whose own writes are frequent.
const FLOW: usize = 32;
/// In a flow the background comes no sooner than this.
const IN_FLOW: Duration = Duration::from_micros(100);

/// See the module.
pub(crate) struct SharedSocket {
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) registry: Arc<Registry>,
    state: Mutex<SocketState>,
    pub(crate) may_spin: bool,
    /// Whether spinning pays.
    pub(crate) spin: SpinScore,
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

    /// Sleeps until `what` may be possible, or a slice is over. Other threads are kept out meanwhile, unless the socket
    /// is thread-safe.
    pub(crate) fn wait(
        &self,
        what: Events,
        deadline: Option<Instant>,
        slices: &mut Slices,
        is_shared: bool,
    ) -> Result<Woken> {
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
        let is_first = slices.is_first();
        let mut may_spin = is_first && self.may_spin && self.spin.is_worth_it();
        let slice_end = slices.end();
        let until = [deadline, slice_end].into_iter().flatten().min();
        let mut is_woken = false;
        let ended = loop {
            // Also for a thread that is woken for nothing again and again.
            if is_woken && slice_end.is_some_and(|end| end <= Instant::now()) {
                break Ok(Woken::Interrupted);
            }
            is_woken = true;
            // A further slice of a sleep is no activity that keeps connections hot.
            if is_first {
                self.notifier.looks.fetch_add(1, Ordering::Relaxed);
            }
            if may_spin {
                let found;
                (state, found) = self.look_for_a_while(state, &mut events, what, deadline);
                if found {
                    state.handle(&events, what);
                    state.rouse();
                }
                // If nothing was found, that was without the lock: the background may have read what this thread waits
                // for.
                if let Err(error) = state.check_open() {
                    break Err(error);
                }
                if state.may(what) {
                    break Ok(Woken::Ready);
                }
                if found {
                    // Unwanted events that come again and again must not prolong the wait beyond the deadline.
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
            let limit = until.map(|until| until.saturating_duration_since(Instant::now()));
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

    /// Spins for a while, and returns whether there is anything. The lock is released between checks. If there is only
    /// one connection, it is checked directly; the set, which covers everything else, is polled now and then. Events
    /// inside the process are in the mail, and the bytes of hot connections are in their memory; the kernel is asked
    /// less often if there are no other connections.
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
        // If there were always something without the kernel, the set would never be polled.
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
                        // In between, other threads may take the lock.
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
                // It was there already, from which nothing can be learnt.
                break true;
            }
            is_first = false;
            if found || now >= until {
                // A late find means that the thread lost its core to another one.
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

    fn write_left(&self, seen: &mut Unwritten) -> Option<Instant> {
        let Some(mut state) = self.state.try_lock() else { return Some(Instant::now() + AGAIN) };
        let now = Instant::now();
        let (written, next) = state.settle_overdue(now);
        if written > 0 {
            state.nudge();
        }
        let has_left = std::mem::replace(&mut seen.leavings, state.leavings()) != state.leavings();
        // What was left before, the program has written, and has left more.
        let sends_on = has_left && written == 0;
        let is_flow = written > FLOW || (sends_on && seen.sent_on);
        seen.sent_on = sends_on;
        if let Some(next) = next {
            seen.calm = 0;
            return Some(if is_flow { next.max(now + IN_FLOW) } else { next });
        }
        seen.calm = if has_left { 0 } else { seen.calm + 1 };
        if seen.calm > CALM {
            seen.calm = 0;
            // Under the lock: a thread that leaves bytes from now on notifies the background.
            self.notifier.mailbox.calm();
            return None;
        }
        Some(now + AGAIN)
    }

    fn cool(&self, looks: &mut u64) -> bool {
        let Some(mut state) = self.state.try_lock() else { return true };
        let now = self.notifier.looks.load(Ordering::Relaxed);
        let has_looked = std::mem::replace(looks, now) != now;
        state.is_warm_yet(has_looked && !self.notifier.is_closed.load(Ordering::Relaxed))
    }
}
