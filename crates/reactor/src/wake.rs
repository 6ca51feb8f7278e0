//! How a sleeping loop is woken: one write to an eventfd for a burst of calls, none while the loop is awake.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use ropewalk_os::eventfd::EventFd;
use ropewalk_sync::atomic::{AtomicU32, Ordering, fence};

/// The loop runs, and checks for new work before it sleeps.
const AWAKE: u32 = 0;
/// The loop sleeps, or is about to.
const PARKED: u32 = 1;
/// The loop sleeps, and a caller has written to its eventfd.
const CALLED: u32 = 2;

/// Whether a loop's thread sleeps, for threads that have work for it.
///
/// The loop announces its sleep and then checks for work; a caller leaves work and then checks for a sleeping loop.
/// With a sequentially consistent fence between the two steps on both sides, at least one sees the other.
#[derive(Debug)]
pub struct Wake {
    /// `AWAKE`, `PARKED` or `CALLED`. The loop writes the first two, a caller turns `PARKED` into `CALLED`.
    state: AtomicU32,
    /// Edge-triggered, so it is never read: each write is an edge.
    event: EventFd,
}

impl Wake {
    /// The state of a loop that is awake.
    ///
    /// # Errors
    ///
    /// When the process is out of descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Self { state: AtomicU32::new(AWAKE), event: EventFd::new()? })
    }

    /// Wakes the loop if it sleeps. The caller has left its work where the loop finds it.
    pub fn call(&self) {
        if self.claim() {
            self.event.signal();
        }
    }

    /// As [`call`](Self::call), where a lock orders it and [`Reactor::park`](crate::Reactor::park): a caller holds the
    /// lock while it leaves its work and calls, and the loop while it parks.
    pub fn call_in_order(&self) {
        if self.claim_in_order() {
            self.event.signal();
        }
    }

    /// Whether this caller must write.
    pub(crate) fn claim(&self) -> bool {
        // Between leaving the work and reading the state: see the type.
        fence(Ordering::SeqCst);
        self.claim_in_order()
    }

    fn claim_in_order(&self) -> bool {
        self.state.load(Ordering::Relaxed) == PARKED
            && self.state.compare_exchange(PARKED, CALLED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Announces a sleep; false, and no sleep, if there is work after all.
    pub(crate) fn park(&self, has_work: impl FnOnce() -> bool) -> bool {
        self.state.store(PARKED, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if has_work() {
            self.unpark();
            return false;
        }
        true
    }

    /// Ends a sleep.
    pub(crate) fn unpark(&self) {
        self.state.store(AWAKE, Ordering::Release);
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(all(test, loom))]
#[expect(unsafe_code, reason = "a queue of nodes that the test owns")]
mod loom_tests {
    use std::ptr::NonNull;

    use ropewalk_sync::Arc;
    use ropewalk_sync::atomic::{AtomicU32 as Count, Ordering::Relaxed};
    use ropewalk_sync::loom;

    use super::*;
    use crate::{Injector, Link, Linked};

    struct Node(Link<Node>, u32);

    // SAFETY: always the same field of the node.
    unsafe impl Linked for Node {
        unsafe fn link<'a>(node: NonNull<Self>) -> &'a Link<Self> {
            // SAFETY: the caller guarantees that the node is live.
            unsafe { &node.as_ref().0 }
        }
    }

    fn node(number: u32) -> NonNull<Node> {
        NonNull::from(Box::leak(Box::new(Node(Link::new(), number))))
    }

    struct Shared {
        queue: Injector<Node>,
        wake: Wake,
        /// Writes to the eventfd, in place of the kernel.
        writes: Count,
    }

    fn shared() -> Arc<Shared> {
        Arc::new(Shared { queue: Injector::new(), wake: Wake::new().expect("made"), writes: Count::new(0) })
    }

    fn send(shared: &Shared, number: u32) {
        // SAFETY: a fresh node, which the taker frees.
        unsafe { shared.queue.push(node(number)) };
        if shared.wake.claim() {
            shared.writes.fetch_add(1, Relaxed);
        }
    }

    fn taken(shared: &Shared) -> Vec<u32> {
        // SAFETY: each node comes out of the queue once.
        shared.queue.take().map(|node| unsafe { Box::from_raw(node.as_ptr()).1 }).collect()
    }

    /// A loop that goes to sleep sees the work before that, or a caller writes to its eventfd.
    #[test]
    fn no_sleeper_is_forgotten() {
        loom::model(|| {
            let shared = shared();
            let other = Arc::clone(&shared);
            let sender = loom::thread::spawn(move || send(&other, 1));
            let sleeps = shared.wake.park(|| !shared.queue.is_empty());
            if !sleeps {
                assert_eq!(taken(&shared), [1]);
            }
            sender.join().expect("joined");
            if sleeps {
                assert_eq!(shared.writes.load(Relaxed), 1, "it sleeps, so a caller must write");
                shared.wake.unpark();
                assert_eq!(taken(&shared), [1]);
            }
        });
    }

    /// A burst writes once for each sleep, and every node arrives, each sender's in its order.
    #[test]
    fn a_burst_writes_once() {
        loom::model(|| {
            let shared = shared();
            assert!(shared.wake.park(|| !shared.queue.is_empty()));
            let senders: Vec<_> = [10, 20]
                .map(|base| {
                    let shared = Arc::clone(&shared);
                    loom::thread::spawn(move || {
                        send(&shared, base);
                        send(&shared, base + 1);
                    })
                })
                .into();
            for sender in senders {
                sender.join().expect("joined");
            }
            assert_eq!(shared.writes.load(Relaxed), 1);
            let all = taken(&shared);
            assert_eq!(all.len(), 4);
            for base in [10, 20] {
                let own: Vec<_> = all.iter().filter(|number| **number / 10 == base / 10).collect();
                assert_eq!(own, [&base, &(base + 1)]);
            }
        });
    }

    /// Taking beside a push loses nothing and takes nothing twice.
    #[test]
    fn taking_beside_pushing_loses_nothing() {
        loom::model(|| {
            let shared = shared();
            let other = Arc::clone(&shared);
            let sender = loom::thread::spawn(move || {
                send(&other, 1);
                send(&other, 2);
            });
            let mut all = taken(&shared);
            sender.join().expect("joined");
            all.extend(taken(&shared));
            assert_eq!(all, [1, 2]);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_a_sleeper_is_written_to_and_once() {
        let wake = Wake::new().expect("made");
        assert!(!wake.claim());
        assert!(!wake.park(|| true) && !wake.claim());
        assert!(wake.park(|| false) && wake.claim() && !wake.claim());
        wake.unpark();
        assert!(!wake.claim());
    }
}
