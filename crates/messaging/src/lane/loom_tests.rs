//! A lane whose receiver polls it for a while and then sleeps, on every schedule that loom finds. The steps are those
//! of `End::send`, `SocketState::begin_glances`, `SocketState::glance`, `SocketState::end_glances` and `End::first`, in
//! their order. A message without a notification is a deadlock, which loom reports.

use ropewalk_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use ropewalk_sync::loom::model::Builder;
use ropewalk_sync::loom::thread;
use ropewalk_sync::{Arc, Condvar, Mutex};

#[derive(Default)]
struct Lane {
    frames: Mutex<usize>,
    messages: AtomicUsize,
    is_polled: AtomicBool,
    /// `Readable` is in the receiver's mail.
    mail: Mutex<bool>,
    posted: Condvar,
}

impl Lane {
    fn send(&self) {
        let mut frames = self.frames.lock();
        let was_empty = *frames == 0;
        *frames += 1;
        self.messages.fetch_add(1, Ordering::SeqCst);
        drop(frames);
        if was_empty && !self.is_polled.load(Ordering::Acquire) {
            *self.mail.lock() = true;
            self.posted.notify_one();
        }
    }

    fn take(&self) -> usize {
        let taken = std::mem::take(&mut *self.frames.lock());
        self.messages.fetch_sub(taken, Ordering::SeqCst);
        taken
    }

    /// Polls once, checks, and sleeps until mail comes.
    fn receive(&self, wanted: usize) {
        let mut received = 0;
        while received < wanted {
            self.is_polled.store(true, Ordering::Release);
            if self.messages.load(Ordering::Acquire) > 0 {
                received += self.take();
            }
            self.is_polled.store(false, Ordering::Release);
            received += self.take();
            if received < wanted {
                let mut mail = self.mail.lock();
                while !*mail {
                    mail = self.posted.wait(mail);
                }
                *mail = false;
                drop(mail);
                received += self.take();
            }
        }
    }
}

#[test]
fn no_message_lies_in_a_lane_whose_receiver_sleeps() {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(4);
    builder.check(|| {
        let lane = Arc::new(Lane::default());
        let sender = {
            let lane = Arc::clone(&lane);
            thread::spawn(move || (0..2).for_each(|_| lane.send()))
        };
        lane.receive(2);
        sender.join().expect("joined");
    });
}
