//! The protocol on every schedule that loom finds. A socket is modelled: its lock, what was read into memory, and the
//! kernel, whose descriptors are level-triggered. The steps are those of `SharedSocket::wait`, `SocketState::look`,
//! `SocketState::attend`, `SocketState::rouse` and `poll`, in their order. A thread that is never woken is a deadlock,
//! which loom reports.

use ropewalk_sync::loom::model::Builder;
use ropewalk_sync::loom::thread;
use ropewalk_sync::{Arc, Condvar, Mutex, MutexGuard};

use super::*;

/// The kernel's state: the wake-ups, and the bytes that peers have sent.
#[derive(Default)]
struct Descriptors {
    inner: bool,
    outer: bool,
    /// The outer wake-up was signalled since it was waited for.
    edge: bool,
    wire: usize,
}

impl Descriptors {
    fn signal_watchers(&mut self) {
        (self.outer, self.edge) = (true, true);
    }
}

struct Kernel {
    state: Mutex<Descriptors>,
    changed: Condvar,
}

impl Kernel {
    fn lock(&self) -> MutexGuard<'_, Descriptors> {
        self.state.lock()
    }

    fn change<R>(&self, act: impl FnOnce(&mut Descriptors) -> R) -> R {
        let mut state = self.lock();
        let result = act(&mut state);
        drop(state);
        self.changed.notify_all();
        result
    }

    /// Sleeps on the set.
    fn wait(&self, ready: impl Fn(&Descriptors) -> bool) {
        let mut state = self.lock();
        while !ready(&state) {
            state = self.changed.wait(state);
        }
    }
}

/// Behind the lock.
#[derive(Default)]
struct State {
    /// Received and not taken; all that the mail says is that there is one more.
    messages: usize,
    /// Put in and not written.
    unsent: usize,
    sent: usize,
    is_closed: bool,
}

struct Socket {
    mailbox: Mailbox<usize>,
    state: Mutex<State>,
    kernel: Kernel,
}

fn is_ready(state: &Descriptors) -> bool {
    state.inner || state.wire > 0
}

impl Socket {
    fn new() -> Arc<Self> {
        let kernel = Kernel { state: Mutex::new(Descriptors::default()), changed: Condvar::new() };
        Arc::new(Self { mailbox: Mailbox::new(), state: Mutex::new(State::default()), kernel })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn wake(&self, to_wake: ToWake) {
        if to_wake.sleepers {
            self.kernel.change(|state| state.inner = true);
        }
        if to_wake.watchers {
            self.kernel.change(Descriptors::signal_watchers);
            while self.mailbox.was_signalled() == AfterSignal::Again {
                self.kernel.change(Descriptors::signal_watchers);
            }
        }
    }

    fn post(&self) {
        self.wake(self.mailbox.post(1));
    }

    fn arrive(&self, messages: usize) {
        self.kernel.change(|state| state.wire += messages);
    }

    fn watch(&self) {
        self.kernel.change(|state| state.outer = true);
        self.mailbox.watch();
    }

    fn take_mail(&self, core: &mut State) {
        let mut mail = Vec::new();
        self.mailbox.take(&mut mail);
        core.messages += mail.len();
    }

    fn handle(&self, core: &mut State) {
        if self.mailbox.has_mail() {
            self.take_mail(core);
        }
        let (was_woken, wire) =
            self.kernel.change(|state| (std::mem::take(&mut state.inner), std::mem::take(&mut state.wire)));
        if was_woken {
            self.take_mail(core);
        }
        core.messages += wire;
    }

    fn rouse(&self, core: &State) {
        if let Some(wishes) = self.mailbox.wishes()
            && (core.is_closed || (wishes.has(Events::READ) && core.messages > 0))
        {
            self.kernel.change(|state| state.inner = true);
        }
    }

    /// `Shared::wait` for a message, and the call that takes it. False if the socket was closed.
    fn receive(&self) -> bool {
        let mut core = self.lock();
        loop {
            if core.is_closed {
                return false;
            }
            if core.messages > 0 {
                core.messages -= 1;
                self.rouse(&core);
                return true;
            }
            if self.mailbox.doze(Events::READ) == Doze::Mail {
                self.mailbox.rise(Events::READ);
                self.take_mail(&mut core);
                self.rouse(&core);
                continue;
            }
            drop(core);
            self.kernel.wait(is_ready);
            core = self.lock();
            self.mailbox.rise(Events::READ);
            self.handle(&mut core);
            self.rouse(&core);
        }
    }

    /// `poll`, which checks, is counted without the lock, and checks again.
    fn poll(&self) {
        loop {
            if self.look() > 0 {
                return;
            }
            let mut is_news = self.mailbox.doze(Events::READ) == Doze::Mail;
            is_news |= self.lock().messages > 0;
            if !is_news {
                self.kernel.wait(is_ready);
            }
            self.mailbox.rise(Events::READ);
        }
    }

    /// A call that checks; returns the number of messages.
    fn look(&self) -> usize {
        let mut core = self.lock();
        if self.mailbox.before_check() == BeforeCheck::Drain {
            self.kernel.change(|state| (state.outer, state.edge) = (false, false));
            self.mailbox.hush();
        }
        self.handle(&mut core);
        self.rouse(&core);
        core.messages
    }

    /// `SocketState::attend`, once.
    fn attend(&self) {
        let mut core = self.lock();
        if self.mailbox.has_sleepers() {
            return;
        }
        self.handle(&mut core);
        self.wake(ToWake { sleepers: false, ..self.mailbox.call() });
    }

    fn close(&self) {
        self.lock().is_closed = true;
        self.wake(self.mailbox.call());
    }
}

/// Every schedule with at most this many preemptions.
fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn spawn(socket: &Arc<Socket>, act: impl FnOnce(&Socket) + 'static) -> thread::JoinHandle<()> {
    let socket = Arc::clone(socket);
    thread::spawn(move || act(&socket))
}

#[test]
fn mail_wakes_a_sleeping_thread() {
    check(4, || {
        let socket = Socket::new();
        let poster = spawn(&socket, |socket| {
            socket.post();
            socket.post();
        });
        assert!(socket.receive() && socket.receive());
        poster.join().expect("joined");
        assert_eq!(socket.lock().messages, 0);
    });
}

#[test]
fn messages_that_the_background_receives_wake_a_sleeping_thread() {
    check(4, || {
        let socket = Socket::new();
        let background = spawn(&socket, Socket::attend);
        let peer = spawn(&socket, |socket| socket.arrive(1));
        assert!(socket.receive());
        background.join().expect("joined");
        peer.join().expect("joined");
    });
}

#[test]
fn what_the_background_receives_is_not_hidden_from_a_poller() {
    check(4, || {
        let socket = Socket::new();
        let background = spawn(&socket, |socket| {
            socket.attend();
            socket.attend();
        });
        socket.post();
        socket.arrive(1);
        socket.poll();
        background.join().expect("joined");
    });
    check(3, || {
        let socket = Socket::new();
        let background = spawn(&socket, Socket::attend);
        let peer = spawn(&socket, |socket| socket.arrive(1));
        socket.poll();
        background.join().expect("joined");
        peer.join().expect("joined");
    });
}

#[test]
fn one_sleeping_thread_does_not_take_another_s_wake_up() {
    check(3, || {
        let socket = Socket::new();
        let other = spawn(&socket, |socket| assert!(socket.receive()));
        let peer = spawn(&socket, |socket| socket.arrive(2));
        assert!(socket.receive());
        other.join().expect("joined");
        peer.join().expect("joined");
    });
}

#[test]
fn a_call_that_checks_wakes_a_sleeping_thread_for_the_rest() {
    check(3, || {
        let socket = Socket::new();
        let looker = spawn(&socket, |socket| {
            socket.look();
        });
        let peer = spawn(&socket, |socket| {
            socket.post();
            socket.arrive(1);
        });
        assert!(socket.receive() && socket.receive());
        looker.join().expect("joined");
        peer.join().expect("joined");
    });
}

#[test]
fn a_close_wakes_all_sleeping_threads() {
    check(3, || {
        let socket = Socket::new();
        let others = [0, 1].map(|_| spawn(&socket, |socket| assert!(!socket.receive())));
        socket.close();
        for other in others {
            other.join().expect("joined");
        }
    });
}

/// A watcher sleeps on its own wake-up and on the set. It is woken for everything; after it has checked everything
/// neither is readable, or it would spin.
#[test]
fn a_watcher_misses_nothing_and_does_not_spin_afterwards() {
    for from_background in [false, true] {
        check(3, move || {
            let socket = Socket::new();
            socket.watch();
            let poster = spawn(&socket, Socket::post);
            let other = spawn(&socket, move |socket| {
                if from_background {
                    socket.arrive(1);
                    socket.attend();
                } else {
                    socket.post();
                }
            });
            while socket.look() < 2 {
                socket.kernel.wait(|state| state.outer || is_ready(state));
                // It is woken repeatedly while a thread is between the signal and `was_signalled`.
                thread::yield_now();
            }
            poster.join().expect("joined");
            other.join().expect("joined");
            assert_eq!(socket.look(), 2);
            let state = socket.kernel.lock();
            assert!(!state.outer && !is_ready(&state), "it is silent");
        });
    }
}

/// A watcher that the kernel wakes once for each signal (`EPOLLET`), and that then checks until there is no more.
#[test]
fn a_watcher_of_changes_misses_nothing() {
    check(3, || {
        let socket = Socket::new();
        socket.watch();
        socket.kernel.change(Descriptors::signal_watchers);
        let posters = [0, 1].map(|_| spawn(&socket, Socket::post));
        while socket.look() < 2 {
            socket.kernel.wait(|state| state.edge);
            socket.kernel.change(|state| state.edge = false);
        }
        for poster in posters {
            poster.join().expect("joined");
        }
    });
}

/// The background writes the bytes that the program leaves: it is notified, or comes anyway. What is not overdue it
/// leaves to the program, which may write it by itself, and comes again.
#[test]
fn nothing_that_was_put_in_is_stranded() {
    for writes_itself in [false, true] {
        check(4, move || {
            let socket = Socket::new();
            let notices = Arc::new(Mutex::new(0_usize));
            let counted = Arc::clone(&notices);
            let program = spawn(&socket, move |socket| {
                for turn in 0..2 {
                    let mut core = socket.lock();
                    core.unsent += 1;
                    if socket.mailbox.gather() == Gather::Begins {
                        *counted.lock() += 1;
                    }
                    if writes_itself && turn == 0 {
                        // The connection stays in the list of those that may have something.
                        core.sent += std::mem::take(&mut core.unsent);
                    }
                }
            });
            let (mut is_coming, mut is_overdue) = (false, false);
            let mut turns = |count: usize| {
                for _ in 0..count {
                    is_coming |= std::mem::take(&mut *notices.lock()) > 0;
                    if is_coming {
                        let mut core = socket.lock();
                        if core.unsent == 0 {
                            socket.mailbox.calm();
                            is_coming = false;
                        } else if std::mem::replace(&mut is_overdue, true) {
                            core.sent += std::mem::take(&mut core.unsent);
                            is_overdue = false;
                        }
                    }
                }
            };
            turns(2);
            program.join().expect("joined");
            turns(3);
            assert_eq!(socket.lock().sent, 2);
        });
    }
}
