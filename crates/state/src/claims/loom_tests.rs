//! Claims on every schedule that loom finds. The steps are those of the store: a transaction that has a claim reads the
//! state once the claim is granted, and commits; one without a claim asks under the store's guard whether it may. A
//! wake-up that is lost is a deadlock, which loom reports.

use ropewalk_sync::Arc;
use ropewalk_sync::atomic::{AtomicU32, Ordering::Relaxed};
use ropewalk_sync::loom::model::Builder;
use ropewalk_sync::loom::thread;

use super::*;

const LEFT: u64 = 0b01;
const RIGHT: u64 = 0b10;
const BOTH: u64 = 0b11;

fn of(bits: u64) -> Slots {
    Slots::of(vec![bits])
}

/// A state, whose guard the store takes for each step, and the claims on it.
struct Store {
    version: Mutex<u32>,
    claims: Claims,
    /// Written by the transactions that have a claim, one after the other.
    turns: AtomicU32,
}

impl Store {
    fn new() -> Arc<Self> {
        Arc::new(Self { version: Mutex::new(0), claims: Claims::default(), turns: AtomicU32::new(0) })
    }

    /// A transaction that has claimed what it touches: nothing is committed there while it runs.
    fn commit_claimed(&self, slots: &Slots) {
        let claim = self.claims.claim(slots.clone());
        assert!(self.claims.wait_granted(claim, None));
        let before = *self.version.lock();
        thread::yield_now();
        let mut version = self.version.lock();
        assert!(
            !self.claims.forbids(slots, claim),
            "its own claim does not forbid it, and no other is granted"
        );
        assert_eq!(*version, before, "nothing was committed beside a granted claim");
        *version += 1;
        drop(version);
        self.claims.release(claim);
    }

    /// A transaction without a claim, which waits while one forbids it.
    fn commit(&self, slots: &Slots) {
        loop {
            let mut version = self.version.lock();
            if !self.claims.forbids(slots, 0) {
                *version += 1;
                return;
            }
            drop(version);
            assert!(self.claims.wait_allowed(slots, 0, None));
        }
    }

    /// Waits for a claim, and is alone until it is over; gives how many were before it.
    fn take_turn(&self, claim: u64) -> u32 {
        assert!(self.claims.wait_granted(claim, None));
        let turn = self.turns.load(Relaxed);
        thread::yield_now();
        // Relaxed suffices: the claims order the threads.
        assert_eq!(self.turns.load(Relaxed), turn, "no other has its turn");
        self.turns.store(turn + 1, Relaxed);
        self.claims.release(claim);
        turn
    }
}

fn on_all_schedules(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Runs this in another thread.
fn beside(store: &Arc<Store>, act: impl FnOnce(&Store) + 'static) -> thread::JoinHandle<()> {
    let store = Arc::clone(store);
    thread::spawn(move || act(&store))
}

fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("no panic");
    }
}

#[test]
fn nothing_is_committed_beside_a_granted_claim_and_what_waits_is_woken() {
    on_all_schedules(3, || {
        let store = Store::new();
        let other = beside(&store, |store| store.commit(&of(LEFT)));
        store.commit_claimed(&of(BOTH));
        join([other]);
        assert_eq!(*store.version.lock(), 2);
    });
}

#[test]
fn claimants_and_others_all_commit() {
    on_all_schedules(2, || {
        let store = Store::new();
        let others = [
            beside(&store, |store| store.commit_claimed(&Slots::all())),
            beside(&store, |store| store.commit(&of(LEFT))),
        ];
        store.commit_claimed(&of(LEFT));
        join(others);
        assert_eq!(*store.version.lock(), 3);
        assert!(store.claims.table.lock().claims.is_empty());
    });
}

#[test]
fn claims_that_meet_have_their_turns_in_the_order_in_which_they_were_made() {
    on_all_schedules(2, || {
        let store = Store::new();
        let numbers = [LEFT, BOTH, BOTH].map(|slots| store.claims.claim(of(slots)));
        let others = [(0, numbers[0]), (1, numbers[1])]
            .map(|(turn, number)| beside(&store, move |store| assert_eq!(store.take_turn(number), turn)));
        assert_eq!(store.take_turn(numbers[2]), 2);
        join(others);
    });
}

/// The second claim waits for the first, and the third for the second, which it alone meets: its end must wake the
/// third though the first has not ended.
#[test]
fn a_claimant_that_gives_up_wakes_those_behind_it() {
    on_all_schedules(3, || {
        let store = Store::new();
        let first = store.claims.claim(of(LEFT));
        let [second, third] = [BOTH, RIGHT].map(|slots| store.claims.claim(of(slots)));
        let waiting = beside(&store, move |store| assert_eq!(store.take_turn(third), 0));
        assert!(!store.claims.wait_granted(second, Some(Instant::now())), "the first has not ended");
        store.claims.release(second);
        join([waiting]);
        assert!(store.claims.wait_granted(first, None));
    });
}

/// One release ends all that it forbade: a claim behind it, and a change that needs no claim.
#[test]
fn a_release_wakes_a_claimant_and_a_change() {
    on_all_schedules(2, || {
        let store = Store::new();
        let first = store.claims.claim(of(BOTH));
        let others = [
            beside(&store, |store| store.commit(&of(LEFT))),
            beside(&store, |store| store.commit_claimed(&of(LEFT))),
        ];
        store.claims.release(first);
        join(others);
    });
}
