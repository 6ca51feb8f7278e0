//! Waiting for many sockets and descriptors at once (zmq_poll(3)).

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Instant;

use ropewalk_os::poll::{self, Polled};

use crate::error::Result;
use crate::events::Events;
use crate::mailbox::Doze;
use crate::socket::Socket;

/// What is waited for.
#[derive(Clone, Copy)]
pub enum Target<'a> {
    /// A socket.
    Socket(&'a Socket),
    /// A descriptor of the system.
    Fd(RawFd),
}

/// One target, the awaited events, and the events found.
pub struct PollItem<'a> {
    /// The target.
    pub target: Target<'a>,
    /// What is wanted.
    pub events: Events,
    /// What was found.
    pub revents: Events,
}

/// How a poll ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollWoken {
    /// So many targets have something.
    Ready(usize),
    /// The time was up.
    TimedOut,
    /// A signal came, whose handlers may want to run.
    Interrupted,
}

/// Counts the poller as a sleeping thread of each socket, so that changes wake it.
struct Dozing<'a>(Vec<(&'a Socket, Events)>);

impl Drop for Dozing<'_> {
    fn drop(&mut self) {
        for (socket, wish) in &self.0 {
            socket.0.notifier.mailbox.rise(*wish);
        }
    }
}

/// Waits until a target has an awaited event.
///
/// # Errors
///
/// ETERM or ENOTSOCK of one of the sockets.
pub fn poll(items: &mut [PollItem<'_>], deadline: Option<Instant>) -> Result<PollWoken> {
    loop {
        let found = look(items)?;
        if found > 0 {
            return Ok(PollWoken::Ready(found));
        }
        let mut dozing = Dozing(Vec::new());
        let mut polled = Vec::with_capacity(items.len());
        let mut is_news = false;
        for item in items.iter() {
            polled.push(match item.target {
                Target::Socket(_) if item.events == Events::NONE => Polled::new(-1, 0),
                Target::Socket(socket) => {
                    is_news |= socket.0.notifier.mailbox.doze(item.events) == Doze::Mail;
                    dozing.0.push((socket, item.events));
                    // Messages that the background has received since the check are in no descriptor. From now on it
                    // leaves the socket to this thread; it decides that under the lock. A close, or the mail of a
                    // context that ends, may have passed, too.
                    let mut state = socket.0.lock();
                    is_news |= state.cool(item.events);
                    is_news |= state.check_open().is_err() || state.may(item.events);
                    // The set is readable when anything happens; a check shows whether it is an awaited event.
                    Polled::new(socket.0.notifier.set.as_fd().as_raw_fd(), poll::READ)
                }
                Target::Fd(fd) => Polled::new(fd, to_system(item.events)),
            });
        }
        let timeout = if is_news {
            Some(std::time::Duration::ZERO)
        } else {
            deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
        };
        let ended = poll::poll(&mut polled, timeout);
        drop(dozing);
        match ended {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {
                return Ok(PollWoken::Interrupted);
            }
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        let found = look(items)?;
        if found > 0 {
            return Ok(PollWoken::Ready(found));
        }
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Ok(PollWoken::TimedOut);
        }
    }
}

/// Fills in what is there now.
fn look(items: &mut [PollItem<'_>]) -> Result<usize> {
    let mut found = 0;
    for item in items.iter_mut() {
        item.revents = match item.target {
            Target::Socket(socket) => socket.events_of(item.events)? & item.events,
            Target::Fd(fd) => {
                let mut one = [Polled::new(fd, to_system(item.events))];
                match poll::poll(&mut one, Some(std::time::Duration::ZERO)) {
                    Ok(_) => from_system(one[0].found()),
                    Err(_) => Events::NONE,
                }
            }
        };
        found += usize::from(item.revents != Events::NONE);
    }
    Ok(found)
}

fn to_system(events: Events) -> i16 {
    let mut bits = 0;
    for (ours, theirs) in
        [(Events::READ, poll::READ), (Events::WRITE, poll::WRITE), (Events::PRIORITY, poll::PRIORITY)]
    {
        if events.has(ours) {
            bits |= theirs;
        }
    }
    bits
}

fn from_system(bits: i16) -> Events {
    let mut events = Events::NONE;
    let all = [
        (Events::READ, poll::READ),
        (Events::WRITE, poll::WRITE),
        (Events::PRIORITY, poll::PRIORITY),
        (Events::ERROR, poll::ERROR),
    ];
    for (ours, theirs) in all {
        if bits & theirs != 0 {
            events = events | ours;
        }
    }
    events
}
