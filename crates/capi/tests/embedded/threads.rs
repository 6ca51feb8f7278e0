//! Threads that release the interpreter, that Python ends, and that run a loop.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ropewalk_capi::object::detached;
use ropewalk_capi::{forced_unwind, running_loop};

use crate::interpreter::{attached, eval, fresh, is_raised, shown};

#[test]
fn a_detached_thread_lets_others_in() {
    attached(|| {
        let seen = detached(|| thread::spawn(|| attached(|| shown(&eval("6 * 7", &[])))).join());
        assert_eq!(seen.expect("it was let in"), "42");
        assert_eq!(shown(&fresh()), "bytearray(b'')", "attached again");
    });
}

#[test]
fn a_panic_in_a_detached_thread_attaches_it_again() {
    attached(|| {
        let panicked = catch_unwind(|| detached(|| panic!("asked to")));
        assert!(panicked.is_err());
        assert_eq!(shown(&fresh()), "bytearray(b'')");
        assert!(!is_raised());
    });
}

#[test]
fn a_thread_that_is_ended_in_our_frames_stays_there() {
    unsafe extern "C" {
        fn pthread_exit(value: *mut std::ffi::c_void) -> !;
    }
    struct Frame;
    impl Drop for Frame {
        fn drop(&mut self) {
            UNWOUND.store(true, Ordering::SeqCst);
        }
    }
    static UNWOUND: AtomicBool = AtomicBool::new(false);
    static STAYS: AtomicBool = AtomicBool::new(false);

    attached(|| forced_unwind::check().expect("this binary is linked with the routine"));
    #[expect(clippy::disallowed_methods, reason = "a test's own thread")]
    let (sender, receiver) = mpsc::channel::<()>();
    thread::spawn(move || {
        let (_frame, _sender) = (Frame, sender);
        STAYS.store(true, Ordering::SeqCst);
        // SAFETY: the C library's function; this thread holds nothing that other threads wait for.
        unsafe { pthread_exit(std::ptr::null_mut()) };
    });
    // The sender is dropped if the thread is unwound or ends.
    let left = receiver.recv_timeout(Duration::from_millis(300));
    assert_eq!(left, Err(mpsc::RecvTimeoutError::Timeout));
    assert!(STAYS.load(Ordering::SeqCst) && !UNWOUND.load(Ordering::SeqCst));
}

#[test]
fn a_thread_runs_the_loop_that_it_has_entered_and_no_other_thread_does() {
    attached(|| {
        let (one, other) = (fresh(), fresh());
        let (first, second) = (one.as_ptr() as usize, other.as_ptr() as usize);
        let is_here = |event_loop: usize| running_loop::is_here(event_loop as *mut _);
        assert!(!is_here(first));
        running_loop::enter(one.as_ptr(), None);
        assert!(is_here(first) && !is_here(second));
        let elsewhere = thread::spawn(move || running_loop::is_here(first as *mut _)).join();
        assert!(!elsewhere.expect("it looks"));
        running_loop::leave(other.as_ptr());
        assert!(is_here(first), "another loop was left");
        running_loop::leave(one.as_ptr());
        assert!(!is_here(first));
    });
}
