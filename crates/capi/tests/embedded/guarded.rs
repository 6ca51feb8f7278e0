//! Guards: one at a time, in attached threads.

use std::sync::Arc;
use std::thread;

use ropewalk_capi::guarded::Guarded;

use crate::interpreter::attached;

#[test]
fn attached_threads_take_turns() {
    const EACH: u64 = 20_000;
    let state = Arc::new(Guarded::new((0u64, 0u64)));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let state = Arc::clone(&state);
            thread::spawn(move || {
                for _ in 0..EACH / 100 {
                    attached(|| {
                        for _ in 0..100 {
                            // SAFETY: attached, and nothing runs while the guard lives.
                            let mut both = unsafe { state.lock() };
                            both.0 += 1;
                            both.1 = both.1.max(both.0);
                            assert_eq!(both.0, both.1);
                        }
                    });
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no turn was lost");
    }
    // SAFETY: no other thread has the state any more, and the pointer is to it.
    assert_eq!(unsafe { (*state.in_collection()).0 }, 4 * EACH);
}
