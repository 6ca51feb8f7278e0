//! A loop's mailbox.

use std::sync::{Arc, Weak};

use pyo3_ffi as ffi;
use ropewalk_capi::mailbox::{Mailbox, Post, Wakes};
use ropewalk_capi::object::Object;
use ropewalk_sync::Mutex;

use crate::interpreter::{attached, collect, eval, fresh, is_raised, references, run, shown};

/// What a mailbox needs of a loop: `scheduled` has what it was asked to call, and by which function.
const LOOP: &str = "
class Loop:
    def __init__(self):
        self.scheduled, self.raises, self.closed = [], None, False
    def call_soon_threadsafe(self, callback, name='threadsafe'):
        if self.raises is not None:
            raise self.raises
        self.scheduled.append((name, callback))
    def call_soon(self, callback):
        self.call_soon_threadsafe(callback, 'soon')
    def is_closed(self):
        return self.closed
    def turn(self):
        due, self.scheduled = self.scheduled, []
        for _, callback in due:
            callback()
        return [name for name, _ in due]
";

fn a_loop() -> Object {
    let space = run(LOOP, &[]);
    eval("space['Loop']()", &[(c"space", &space)])
}

fn ask(event_loop: &Object, expression: &str) -> String {
    shown(&eval(expression, &[(c"loop", event_loop)]))
}

/// Records its calls.
#[derive(Default)]
struct Noted {
    woken: Mutex<Vec<usize>>,
    not_woken: Mutex<Vec<usize>>,
}

impl Wakes for Noted {
    fn wake(&self, place: usize, _: *mut ffi::PyObject) {
        self.woken.lock().push(place);
    }

    fn not_woken(&self, place: usize, _: *mut ffi::PyObject) {
        self.not_woken.lock().push(place);
    }
}

fn taken(noted: &Mutex<Vec<usize>>) -> Vec<usize> {
    std::mem::take(&mut noted.lock())
}

fn wake(noted: &Arc<Noted>, place: usize) -> Post {
    let whom: Weak<Noted> = Arc::downgrade(noted);
    Post::Wake(whom, place)
}

#[test]
fn a_loop_has_one_and_a_burst_schedules_it_once() {
    attached(|| {
        let (event_loop, noted) = (a_loop(), Arc::new(Noted::default()));
        let mailbox = Mailbox::of(&event_loop).expect("a mailbox");
        assert_eq!(
            mailbox.object().as_ptr(),
            Mailbox::of(&event_loop).expect("the same").into_object().as_ptr()
        );
        for round in 0..2 {
            for place in 0..3 {
                mailbox.post(wake(&noted, place));
            }
            mailbox.post_here(wake(&noted, 3));
            assert_eq!(taken(&noted.woken), []);
            assert_eq!(ask(&event_loop, "loop.turn()"), "['threadsafe']", "{round}");
            assert_eq!(taken(&noted.woken), [0, 1, 2, 3]);
        }
        mailbox.post_here(wake(&noted, 4));
        assert_eq!(ask(&event_loop, "loop.turn()"), "['soon']");
        // Whoever is gone is not woken.
        mailbox.post(wake(&noted, 5));
        drop(noted);
        assert_eq!(ask(&event_loop, "loop.turn()"), "['threadsafe']");
        assert!(!is_raised());
    });
}

#[test]
fn what_cannot_be_scheduled_is_said_and_tried_again() {
    attached(|| {
        let (event_loop, noted) = (a_loop(), Arc::new(Noted::default()));
        let mailbox = Mailbox::of(&event_loop).expect("a mailbox");
        run("loop.raises = MemoryError()", &[(c"loop", &event_loop)]);
        mailbox.post(wake(&noted, 7));
        mailbox.post(Post::Call(eval("loop.is_closed", &[(c"loop", &event_loop)]), None));
        assert_eq!(
            (taken(&noted.not_woken), ask(&event_loop, "len(loop._ropewalk_mailbox)")),
            (vec![7], "1".into())
        );
        run("loop.raises = None", &[(c"loop", &event_loop)]);
        mailbox.post(wake(&noted, 8));
        assert_eq!(ask(&event_loop, "loop.turn()"), "['threadsafe']");
        assert_eq!(taken(&noted.woken), [8]);
        // A closed loop takes nothing any more.
        run("loop.raises = RuntimeError()", &[(c"loop", &event_loop)]);
        mailbox.post(wake(&noted, 9));
        assert_eq!(ask(&event_loop, "len(loop._ropewalk_mailbox)"), "0");
        assert!(!mailbox.is_dead().expect("an answer"));
        run("loop.closed = True", &[(c"loop", &event_loop)]);
        assert!(mailbox.is_dead().expect("an answer"));
        assert!(!is_raised());
    });
}

#[test]
fn a_post_that_raises_ends_its_delivery_and_not_the_others() {
    attached(|| {
        let (event_loop, noted) = (a_loop(), Arc::new(Noted::default()));
        let mailbox = Mailbox::of(&event_loop).expect("a mailbox");
        mailbox.post(wake(&noted, 1));
        mailbox.post(Post::Call(eval("lambda: 1 / 0", &[]), None));
        mailbox.post(wake(&noted, 2));
        run(
            "try: loop.turn()\nexcept ZeroDivisionError: pass\nelse: raise AssertionError",
            &[(c"loop", &event_loop)],
        );
        assert_eq!(taken(&noted.woken), [1]);
        assert_eq!(ask(&event_loop, "loop.turn()"), "['soon']");
        assert_eq!(taken(&noted.woken), [2]);
    });
}

#[test]
fn it_goes_with_its_loop_and_what_waits_in_it() {
    attached(|| {
        let (event_loop, held) = (a_loop(), fresh());
        let mailbox = Mailbox::of(&event_loop).expect("a mailbox");
        let call = eval("lambda a, b: None", &[]);
        mailbox.post(Post::Call(call, Some((held.clone(), event_loop.clone()))));
        mailbox.post(Post::Resolve(held.clone()));
        assert_eq!(references(held.as_ptr()), 3);
        drop((event_loop, mailbox));
        collect();
        assert_eq!(references(held.as_ptr()), 1);
    });
}

#[test]
fn a_thread_is_in_a_loop_while_asyncio_says_so() {
    attached(|| {
        let event_loop = a_loop();
        let mailbox = Mailbox::of(&event_loop).expect("a mailbox");
        let set = eval("__import__('asyncio')._set_running_loop", &[]);
        mailbox.enter();
        assert!(!mailbox.is_here());
        set.call(&[event_loop.as_ptr()]).expect("it runs");
        assert!(mailbox.is_here());
        let other = mailbox.clone();
        let there = ropewalk_capi::object::detached(move || {
            let other = SendThere(other);
            std::thread::spawn(move || {
                let moved = other;
                attached(|| moved.0.is_here())
            })
            .join()
        });
        assert!(!there.expect("a thread"));
        set.call(&[Object::none().as_ptr()]).expect("it runs no more");
        assert!(!mailbox.is_here());
    });
}

/// Used and dropped by attached threads only.
struct SendThere(Mailbox);

// SAFETY: as above.
unsafe impl Send for SendThere {}
