//! Work on a large range by several threads: one core takes longer to allocate fresh memory than to fill it, and one
//! core cannot read two arrays at the memory's full speed.

use std::ops::Range;
use std::thread::Builder;

use ropewalk_os::cpu::usable_cores;

/// Below this size starting a thread costs more than it saves.
pub(crate) const WORTH: usize = 16 << 20;
/// The least bytes for each thread.
const LEAST: usize = 8 << 20;
/// More threads than this only wait for the memory.
const MOST: usize = 4;

/// Calls `work` for parts that make up `0..length`, in this thread and in others; returns whether it was true for all.
pub(crate) fn all(length: usize, work: impl Fn(Range<usize>) -> bool + Sync) -> bool {
    let threads = if length < WORTH { 1 } else { usable_cores().min(MOST).min(length / LEAST) };
    let step = length.div_ceil(threads.max(1)).next_multiple_of(LEAST);
    let part = |number: usize| number * step..((number + 1) * step).min(length);
    let work = &work;
    std::thread::scope(|scope| {
        let count = length.div_ceil(step.max(1));
        let others: Vec<_> = (1..count)
            .map(|number| {
                let name = format!("ropewalk-copy-{number}");
                let helper = Builder::new().name(name).spawn_scoped(scope, move || work(part(number)));
                (number, helper)
            })
            .collect();
        let mut good = length == 0 || work(part(0));
        for (number, helper) in others {
            good &= match helper {
                Ok(helper) => helper.join().unwrap_or(false),
                // The system refuses a thread.
                Err(_) => work(part(number)),
            };
        }
        good
    })
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use ropewalk_sync::Mutex;

    use super::*;

    #[test]
    fn the_parts_make_up_the_whole() {
        for length in [0, 1, LEAST, WORTH - 1, WORTH, WORTH + 1, 5 * LEAST + 7, 100 << 20] {
            let seen = Mutex::new(Vec::new());
            assert!(all(length, |part| {
                seen.lock().push(part);
                true
            }));
            let mut seen = seen.into_inner();
            seen.sort_by_key(|part| part.start);
            let end = seen.iter().fold(0, |end, part| {
                assert!(part.start == end && part.end > end, "{length}: {seen:?}");
                part.end
            });
            assert_eq!(end, length);
        }
    }

    #[test]
    fn one_that_fails_fails_the_whole() {
        for bad in [0, WORTH * 2 - 1] {
            assert!(!all(WORTH * 2, |part| !part.contains(&bad)));
        }
    }
}
