//! The seats that threads of this process have taken, by number: what passes from the main interpreter, where `_core`
//! takes a seat, to the one in which `_worker` fills it.

use std::collections::BTreeMap;

use ropewalk_pool::Seat;
use ropewalk_sync::{Mutex, PerProcess};

static TAKEN: PerProcess<Mutex<BTreeMap<u64, Seat>>> = PerProcess::new();

fn taken() -> &'static Mutex<BTreeMap<u64, Seat>> {
    TAKEN.get(Mutex::default)
}

/// Keeps a seat; gives its number.
pub(crate) fn put(seat: Seat) -> u64 {
    let number = seat.id();
    let before = taken().lock().insert(number, seat);
    debug_assert!(before.is_none(), "numbers are given once");
    number
}

/// Uses the seat of this number, if it is taken and not given up.
pub(crate) fn with<T>(number: u64, work: impl FnOnce(&mut Seat) -> T) -> Option<T> {
    taken().lock().get_mut(&number).map(work)
}

/// The seat of this number, to be given up.
pub(crate) fn remove(number: u64) -> Option<Seat> {
    taken().lock().remove(&number)
}
