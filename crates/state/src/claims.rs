//! Claims on parts of a state: how a transaction that was refused too often gets its turn.
//!
//! Transactions are optimistic: one that has read what another has changed since runs again. A long one could run again
//! for ever. After some attempts it *claims* the parts that it touches, and runs once more: no other transaction may
//! commit to these parts before it has ended.
//!
//! Claims are granted in the order in which they were made: a claim waits for the earlier ones that it meets, and for
//! no other. A transaction makes one claim, for all its parts at once, so claims on one state cannot wait for each
//! other in a circle, and each is granted once the earlier ones have ended. A thread that holds a claim while it waits,
//! because its transaction runs others, waits with a deadline: the layer above gives up then, and claims more at once.

#[cfg(all(test, loom))]
mod loom_tests;

use std::time::Instant;

use ropewalk_os::process::fork_generation;
use ropewalk_sync::{Event, Mutex, MutexGuard};

/// A set of numbered parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    words: Vec<u64>,
    is_all: bool,
}

impl Slots {
    /// The set of all parts.
    #[must_use]
    pub const fn all() -> Self {
        Self { words: Vec::new(), is_all: true }
    }

    /// The parts whose bits are set, the lowest first.
    #[must_use]
    pub const fn of(words: Vec<u64>) -> Self {
        Self { words, is_all: false }
    }

    /// Whether a part is in both sets.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        match (self.is_all, other.is_all) {
            (true, true) => true,
            (true, false) => other.words.iter().any(|word| *word != 0),
            (false, true) => self.words.iter().any(|word| *word != 0),
            (false, false) => self.words.iter().zip(&other.words).any(|(one, two)| one & two != 0),
        }
    }
}

#[derive(Debug)]
struct Table {
    /// The claims that have not ended, in the order in which they were made.
    claims: Vec<(u64, Slots)>,
    next: u64,
    is_closed: bool,
    /// The process whose threads have made the claims.
    process: u64,
}

impl Table {
    fn is_granted(&self, number: u64) -> bool {
        let Some(place) = self.claims.iter().position(|(other, _)| *other == number) else { return false };
        !self.claims[..place].iter().any(|(_, slots)| slots.meets(&self.claims[place].1))
    }
}

/// The claims on one state.
#[derive(Debug)]
pub struct Claims {
    table: Mutex<Table>,
    /// A claim has ended.
    changed: Event,
}

impl Default for Claims {
    fn default() -> Self {
        let table = Table { claims: Vec::new(), next: 1, is_closed: false, process: fork_generation() };
        Self { table: Mutex::new(table), changed: Event::new() }
    }
}

impl Claims {
    /// The table. A forked child has not the threads that hold its parent's claims: nothing would ever end them.
    fn table(&self) -> MutexGuard<'_, Table> {
        let mut table = self.table.lock();
        let process = fork_generation();
        if table.process != process {
            table.process = process;
            table.claims.clear();
        }
        table
    }

    /// Makes a claim, and gives its number, which is not 0.
    pub fn claim(&self, slots: Slots) -> u64 {
        let mut table = self.table();
        let number = table.next;
        table.next += 1;
        table.claims.push((number, slots));
        number
    }

    /// Waits until a claim is granted or the claims are closed, or until the deadline; tells whether one of these is
    /// so.
    pub fn wait_granted(&self, number: u64, deadline: Option<Instant>) -> bool {
        self.changed.wait(deadline, || self.is_granted(number))
    }

    /// Whether a claim is granted or the claims are closed.
    #[must_use]
    pub fn is_granted(&self, number: u64) -> bool {
        let table = self.table();
        table.is_closed || table.is_granted(number)
    }

    /// Ends a claim.
    pub fn release(&self, number: u64) {
        self.table().claims.retain(|(other, _)| *other != number);
        self.changed.notify();
    }

    /// Lets nothing wait any more.
    pub fn close(&self) {
        self.table().is_closed = true;
        self.changed.notify();
    }

    /// Whether there is no claim, granted or not.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table().claims.is_empty()
    }

    /// Whether a granted claim, other than the own one, forbids a change of these parts.
    #[must_use]
    pub fn forbids(&self, slots: &Slots, own: u64) -> bool {
        let table = self.table();
        let mut claims = table.claims.iter();
        claims.any(|(number, claimed)| *number != own && claimed.meets(slots) && table.is_granted(*number))
    }

    /// Waits until no granted claim forbids a change of these parts or the claims are closed, or until the deadline;
    /// tells whether one of these is so.
    pub fn wait_allowed(&self, slots: &Slots, own: u64, deadline: Option<Instant>) -> bool {
        self.changed.wait(deadline, || self.is_allowed(slots, own))
    }

    /// Whether no granted claim forbids a change of these parts, or the claims are closed.
    #[must_use]
    pub fn is_allowed(&self, slots: &Slots, own: u64) -> bool {
        self.table().is_closed || !self.forbids(slots, own)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn of(bits: u64) -> Slots {
        Slots::of(vec![bits])
    }

    #[test]
    fn sets_meet_where_a_part_is_in_both() {
        assert!(of(0b11).meets(&of(0b10)));
        assert!(!of(0b11).meets(&of(0b100)));
        assert!(!Slots::of(vec![0, 1]).meets(&of(1)));
        assert!(Slots::all().meets(&of(1)));
        assert!(!Slots::all().meets(&of(0)));
        assert!(Slots::all().meets(&Slots::all()));
    }

    #[test]
    fn claims_are_granted_in_their_order() {
        let claims = Claims::default();
        let past = Some(Instant::now());
        let first = claims.claim(of(0b01));
        let second = claims.claim(of(0b11));
        let third = claims.claim(of(0b10));
        assert!(claims.wait_granted(first, past) && claims.is_granted(first));
        assert!(!claims.wait_granted(second, past) && !claims.is_granted(second));
        // The third waits for the second, which is not granted: else the second might wait for ever.
        assert!(!claims.wait_granted(third, past));
        claims.release(first);
        assert!(claims.wait_granted(second, past));
        assert!(!claims.wait_granted(third, past));
        claims.release(second);
        assert!(claims.wait_granted(third, past));
        assert!(!claims.wait_granted(first, past));
    }

    #[test]
    fn a_granted_claim_forbids_the_changes_of_others() {
        let claims = Claims::default();
        let past = Some(Instant::now());
        assert!(claims.is_empty());
        let first = claims.claim(of(0b01));
        assert!(!claims.is_empty());
        let second = claims.claim(of(0b11));
        assert!(claims.forbids(&of(0b01), 0));
        assert!(!claims.forbids(&of(0b01), first));
        assert!(!claims.forbids(&of(0b10), 0), "a claim that waits forbids nothing yet");
        assert!(!claims.wait_allowed(&of(0b01), 0, past));
        claims.release(first);
        assert!(claims.forbids(&of(0b10), 0));
        assert!(!claims.forbids(&of(0b11), second));
        claims.release(second);
        assert!(claims.wait_allowed(&Slots::all(), 0, past));
    }

    #[test]
    fn closing_wakes_whatever_waits() {
        let claims = std::sync::Arc::new(Claims::default());
        let first = claims.claim(Slots::all());
        let second = claims.claim(of(1));
        let waiting = {
            let claims = std::sync::Arc::clone(&claims);
            std::thread::spawn(move || {
                claims.wait_granted(second, None) && claims.wait_allowed(&of(1), second, None)
            })
        };
        assert!(!claims.is_granted(second) && !claims.is_allowed(&of(1), second));
        claims.close();
        assert!(waiting.join().unwrap_or(false));
        assert!(claims.is_granted(second) && claims.is_allowed(&of(1), second));
        assert!(claims.forbids(&of(1), second), "it ends no claim");
        claims.release(first);
    }

    #[test]
    fn a_release_wakes_whatever_waits() {
        let claims = std::sync::Arc::new(Claims::default());
        let first = claims.claim(Slots::all());
        let waiting = {
            let claims = std::sync::Arc::clone(&claims);
            std::thread::spawn(move || {
                let second = claims.claim(of(1));
                assert!(claims.wait_granted(second, None));
                claims.release(second);
                assert!(claims.wait_allowed(&of(1), 0, None));
            })
        };
        claims.release(first);
        waiting.join().ok();
        assert!(!claims.forbids(&Slots::all(), 0));
    }
}
