//! Which calls have finished, and how often each was begun.
//!
//! The calls lie in the order of their records, and a table has their places by their keys. A table of a million places
//! is in no cache of the processor. But a map that goes on begins its calls in about the order in which they have
//! finished; so a second, small table has the places around the call that was found last, and is asked first.

use std::num::NonZeroU64;

use crate::digests::{self, Digest, SIZE};

/// So far behind the call that was found last the small table has places: more than the tasks of a map that are under
/// way at a time, by which the order of their ends differs from that of their inputs.
const AHEAD: usize = 512;
/// So many places are put into the small table at once, so that inputs in any other order cost little.
const STEP: usize = 4;
/// The size of the small table; a power of two.
const NEAR: usize = 4096;
/// After so many calls in a row that lie elsewhere the small table follows.
const STRAYS: u32 = 8;

/// A call that has finished, or that was begun.
#[derive(Clone, Copy)]
struct Call {
    key: Digest,
    /// Where the record of its result begins; a header comes before all records.
    offset: Option<NonZeroU64>,
    /// How often a call with this digest was begun since the journal was opened.
    begun: u32,
}

/// What a journal had when it was opened, and how often each call was begun since.
pub(crate) struct Index {
    calls: Vec<Call>,
    places: Places,
    /// The places of some of the calls before `noted`; where two keys have one slot, the later one has it.
    near: Box<[usize]>,
    noted: usize,
    /// How many calls in a row lay elsewhere.
    strays: u32,
    finished: usize,
}

/// Collects the finished calls of a journal, in the order of their records.
#[derive(Default)]
pub(crate) struct Finished(Vec<Call>);

impl Finished {
    /// Adds the call whose record begins at this offset.
    pub(crate) fn push(&mut self, key: Digest, offset: u64) {
        self.0.push(Call { key, offset: NonZeroU64::new(offset), begun: 0 });
    }

    /// Makes the table, once, when its size is known.
    pub(crate) fn into_index(self) -> Index {
        let mut calls = self.0;
        let mut places = Places::with_room(calls.len());
        let mut kept = 0;
        for at in 0..calls.len() {
            let Call { key, offset, .. } = calls[at];
            match places.find(&key, &calls) {
                // Of several records of one call, which no map writes, the last one counts.
                Some(place) => calls[place].offset = offset,
                None => {
                    calls.swap(kept, at);
                    places.add(kept, &calls);
                    kept += 1;
                }
            }
        }
        calls.truncate(kept);
        let near = vec![0; NEAR].into_boxed_slice();
        Index { calls, places, near, noted: 0, strays: 0, finished: kept }
    }
}

impl Index {
    /// How many calls had finished when the journal was opened.
    pub(crate) fn finished(&self) -> usize {
        self.finished
    }

    /// Counts a call with this digest. Returns its key, and where the record of its result begins if it has finished.
    pub(crate) fn begin(&mut self, digest: Digest) -> (Digest, Option<NonZeroU64>) {
        let place = self.find(&digest).unwrap_or_else(|| self.add(digest));
        let call = &mut self.calls[place];
        let number = call.begun;
        call.begun = number.saturating_add(1);
        if number == 0 {
            return (digest, call.offset);
        }
        let key = digests::again(digest, number);
        (key, self.find(&key).and_then(|place| self.calls[place].offset))
    }

    fn find(&mut self, key: &Digest) -> Option<usize> {
        let near = self.near[slot(key)];
        let place = match self.calls.get(near) {
            Some(call) if call.key == *key => near,
            _ => self.places.find(key, &self.calls)?,
        };
        self.note(place);
        Some(place)
    }

    /// Lets the small table go on behind the call at this place.
    fn note(&mut self, place: usize) {
        let around = self.noted.saturating_sub(NEAR)..=self.noted + AHEAD;
        if around.contains(&place) {
            self.strays = 0;
        } else {
            self.strays += 1;
            if self.strays < STRAYS {
                return;
            }
            (self.noted, self.strays) = (place, 0);
        }
        let end = self.calls.len().min(place + AHEAD).min(self.noted + STEP);
        for at in self.noted..end {
            self.near[slot(&self.calls[at].key)] = at;
        }
        self.noted = self.noted.max(end);
    }

    fn add(&mut self, key: Digest) -> usize {
        let place = self.calls.len();
        self.calls.push(Call { key, offset: None, begun: 0 });
        self.places.add(place, &self.calls);
        place
    }
}

/// The places of calls by their keys: a table with open addressing, which is half full at most.
///
/// Its entries have a third of the size that they would have with their keys, and it finds the keys in the calls.
struct Places {
    /// 0, or a place and 1, and above the lowest 40 bits a part of the key. A power of two of them.
    slots: Vec<u64>,
    count: usize,
}

/// The bits of a place; so many calls do not fit into any memory.
const PLACE: u64 = (1 << 40) - 1;

impl Places {
    fn with_room(count: usize) -> Self {
        Self { slots: vec![0; (2 * count).next_power_of_two().max(16)], count: 0 }
    }

    fn find(&self, key: &Digest, calls: &[Call]) -> Option<usize> {
        let hash = hash(key);
        let mut at = hash as usize;
        loop {
            at &= self.slots.len() - 1;
            let entry = self.slots[at];
            if entry == 0 {
                return None;
            }
            let place = ((entry & PLACE) - 1) as usize;
            if (entry ^ hash) & !PLACE == 0 && calls[place].key == *key {
                return Some(place);
            }
            at += 1;
        }
    }

    /// Adds the place of a call whose key is not there.
    fn add(&mut self, place: usize, calls: &[Call]) {
        if 2 * (self.count + 1) > self.slots.len() {
            let mut larger = Self::with_room(2 * (self.count + 1));
            (0..self.count).for_each(|place| larger.add(place, calls));
            *self = larger;
        }
        let hash = hash(&calls[place].key);
        let last = self.slots.len() - 1;
        let mut at = hash as usize & last;
        while self.slots[at] != 0 {
            at = (at + 1) & last;
        }
        self.slots[at] = (hash & !PLACE) | (place as u64 + 1);
        self.count += 1;
    }
}

/// Digests are evenly spread as they are.
fn hash(key: &Digest) -> u64 {
    let mut word = [0; size_of::<u64>()];
    word.copy_from_slice(&key[..size_of::<u64>()]);
    u64::from_le_bytes(word)
}

/// Of other bits than those that the large table begins with.
fn slot(key: &Digest) -> usize {
    usize::from(u16::from_le_bytes([key[SIZE - 2], key[SIZE - 1]])) % NEAR
}
