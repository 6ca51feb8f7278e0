//! The mutex's word, the parker, the event and the sleep flag on every schedule that loom finds. A lost wake-up is a
//! deadlock, which loom reports.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p ropewalk-sync --release --test 'loom*'`

#![cfg(loom)]

use std::sync::Arc;

use ropewalk_sync::atomic::{AtomicU32, Ordering, fence};
use ropewalk_sync::futex::SleepFlag;
use ropewalk_sync::loom::{self, thread};
use ropewalk_sync::{Event, LockWord, Parker, TurnCell};

#[test]
fn a_token_ends_a_sleep_and_carries_what_was_written() {
    loom::model(|| {
        let parker = Arc::new(Parker::new());
        let written = Arc::new(TurnCell::new(0));
        let (waker, cell) = (Arc::clone(&parker), Arc::clone(&written));
        let thread = thread::spawn(move || {
            // SAFETY: the owner reads only after it has taken the token, which this thread leaves after the write.
            unsafe { cell.with(|number| *number = 7) };
            waker.unpark();
        });
        parker.park(None);
        // SAFETY: the token was taken; loom fails the model if it does not order the two.
        assert_eq!(unsafe { written.with(|number| *number) }, 7);
        thread.join().expect("no panic");
    });
}

#[test]
fn two_tokens_end_a_sleep_each_or_are_one() {
    loom::model(|| {
        let parker = Arc::new(Parker::new());
        let wakers = [(); 2].map(|()| {
            let parker = Arc::clone(&parker);
            thread::spawn(move || parker.unpark())
        });
        parker.park(None);
        for waker in wakers {
            waker.join().expect("no panic");
        }
        // Whether or not the second token was merged with the first, the next one is not lost.
        parker.unpark();
        parker.park(None);
    });
}

#[test]
fn an_event_wakes_all_waiting_threads() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let (event, ready) = (Arc::new(Event::new()), Arc::new(AtomicU32::new(0)));
        let waiters = [(); 2].map(|()| {
            let (event, ready) = (Arc::clone(&event), Arc::clone(&ready));
            thread::spawn(move || assert!(event.wait(None, || ready.load(Ordering::Relaxed) == 1)))
        });
        ready.store(1, Ordering::Relaxed);
        event.notify();
        for waiter in waiters {
            waiter.join().expect("no panic");
        }
    });
}

#[test]
fn a_notifier_without_waiters_leaves_nothing_behind() {
    loom::model(|| {
        let (event, ready) = (Arc::new(Event::new()), Arc::new(AtomicU32::new(0)));
        let (notifier, changed) = (Arc::clone(&event), Arc::clone(&ready));
        let thread = thread::spawn(move || {
            for _ in 0..2 {
                changed.fetch_add(1, Ordering::Relaxed);
                notifier.notify();
            }
        });
        assert!(event.wait(None, || ready.load(Ordering::Relaxed) >= 1));
        assert!(event.wait(None, || ready.load(Ordering::Relaxed) == 2));
        thread.join().expect("no panic");
    });
}

#[test]
fn an_announced_sleeper_is_woken_or_has_seen_it() {
    loom::model(|| {
        let (flag, ready) =
            (Arc::new(SleepFlag::<ropewalk_sync::futex::Private>::new()), Arc::new(AtomicU32::new(0)));
        let (sleeper, seen) = (Arc::clone(&flag), Arc::clone(&ready));
        let thread = thread::spawn(move || {
            sleeper.sleep_unless(|| seen.load(Ordering::Relaxed) == 1, None);
        });
        ready.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        flag.wake_if_asleep();
        thread.join().expect("no panic");
    });
}

#[test]
fn one_thread_has_the_lock_and_an_unlock_wakes_the_next() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let (lock, number) = (Arc::new(LockWord::new()), Arc::new(TurnCell::new(0)));
        let add = |lock: &LockWord, number: &TurnCell<u32>| {
            lock.lock();
            // SAFETY: the lock's turn; loom fails the model if it does not order the turns.
            unsafe { number.with(|number| *number += 1) };
            lock.unlock();
        };
        let others = [(); 2].map(|()| {
            let (lock, number) = (Arc::clone(&lock), Arc::clone(&number));
            thread::spawn(move || add(&lock, &number))
        });
        add(&lock, &number);
        for other in others {
            other.join().expect("no panic");
        }
        assert!(lock.try_lock(), "no thread holds it");
        // SAFETY: as above.
        assert_eq!(unsafe { number.with(|number| *number) }, 3);
    });
}
