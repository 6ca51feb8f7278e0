//! A proxy: it passes messages between two sockets (zmq_proxy(3), zmq_proxy_steerable(3)).

use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::events::{Events, Woken};
use crate::frame::Frame;
use crate::poll::{PollItem, PollWoken, Target, poll};
use crate::slices::Slices;
use crate::socket::Socket;

/// This many messages go one way before the other way has its turn.
const BURST: usize = 1000;

/// Passes messages between `front` and `back` until the context ends, `control` says TERMINATE, or `interrupted`,
/// which is asked after each signal and after each slice of a wait, says so. What passes is sent to `capture`, too.
/// `control` may also say PAUSE, RESUME, and STATISTICS, which is answered with eight numbers of eight bytes.
///
/// # Errors
///
/// ETERM and ENOTSOCK; EINTR if `interrupted` says so.
pub fn proxy(
    front: &Socket,
    back: &Socket,
    capture: Option<&Socket>,
    control: Option<&Socket>,
    slice: Option<Duration>,
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<()> {
    let mut is_paused = false;
    // Messages and bytes: received and sent in front, received and sent at the back.
    let mut counts = [0_u64; 8];
    let is_same = front.id() == back.id();
    loop {
        let mut items = Vec::with_capacity(5);
        let mut wait = |socket, events| {
            items.push(PollItem { target: Target::Socket(socket), events, revents: Events::NONE });
            items.len() - 1
        };
        let control_at = control.map(|control| wait(control, Events::READ));
        let (mut front_at, mut back_at) = (None, None);
        if !is_paused {
            front_at = Some(wait(front, Events::READ));
            back_at = (!is_same).then(|| wait(back, Events::READ));
        }
        match poll(&mut items, slice.map(|slice| Instant::now() + slice))? {
            PollWoken::Interrupted | PollWoken::TimedOut if interrupted() => return Err(Error::interrupted()),
            PollWoken::Interrupted | PollWoken::TimedOut => continue,
            PollWoken::Ready(_) => {}
        }
        let is_ready = |at: Option<usize>| at.is_some_and(|at| items[at].revents.has(Events::READ));
        let (is_asked, from_front, from_back) = (is_ready(control_at), is_ready(front_at), is_ready(back_at));
        drop(items);
        if let Some(control) = control.filter(|_| is_asked) {
            match control.try_recv().map(|frame| frame.bytes().to_vec()) {
                Ok(command) => match command.as_slice() {
                    b"TERMINATE" => return reply(control),
                    b"PAUSE" => {
                        is_paused = true;
                        reply(control)?;
                    }
                    b"RESUME" => {
                        is_paused = false;
                        reply(control)?;
                    }
                    b"STATISTICS" => report(control, &counts)?,
                    _ => reply(control)?,
                },
                Err(error) if error == Error::again() => {}
                Err(error) => return Err(error),
            }
        }
        let (forth, rest) = counts.split_at_mut(4);
        if from_front {
            // Received in front, sent at the back.
            pass(front, back, capture, slice, interrupted, &mut forth[..2], &mut rest[2..])?;
        }
        if from_back {
            pass(back, front, capture, slice, interrupted, &mut rest[..2], &mut forth[2..])?;
        }
    }
}

fn pass(
    from: &Socket,
    to: &Socket,
    capture: Option<&Socket>,
    slice: Option<Duration>,
    interrupted: &mut dyn FnMut() -> bool,
    received: &mut [u64],
    sent: &mut [u64],
) -> Result<()> {
    for _ in 0..BURST {
        let mut parts = Vec::new();
        loop {
            match from.try_recv() {
                Ok(frame) => {
                    let more = frame.more();
                    parts.push(frame);
                    if !more {
                        break;
                    }
                }
                Err(error) if error == Error::again() && parts.is_empty() => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        let bytes: u64 = parts.iter().map(|part| part.bytes().len() as u64).sum();
        received[0] += 1;
        received[1] += bytes;
        if let Some(capture) = capture {
            let mut copy: Vec<Frame> = parts.clone();
            send(capture, &mut copy, slice, interrupted)?;
        }
        send(to, &mut parts, slice, interrupted)?;
        sent[0] += 1;
        sent[1] += bytes;
    }
    Ok(())
}

/// Sends, and waits for room.
fn send(
    to: &Socket,
    parts: &mut Vec<Frame>,
    slice: Option<Duration>,
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<()> {
    let mut slices = Slices::of(slice);
    loop {
        match to.try_send_all(parts) {
            Err(error) if error == Error::again() => {
                if to.wait(Events::WRITE, None, &mut slices)? == Woken::Interrupted && interrupted() {
                    return Err(Error::interrupted());
                }
            }
            // The peer is gone, so the message has no receiver.
            Err(error) if error == Error::unroutable() => return Ok(()),
            other => return other,
        }
    }
}

/// A REP socket must answer; others need not.
fn reply(control: &Socket) -> Result<()> {
    if control.kind() == ropewalk_zmtp::SocketType::Rep {
        control.try_send_bytes(b"", false)?;
    }
    Ok(())
}

fn report(control: &Socket, counts: &[u64; 8]) -> Result<()> {
    let mut parts: Vec<Frame> = counts.iter().map(|count| Frame::copy_of(&count.to_ne_bytes())).collect();
    match control.try_send_all(&mut parts) {
        Err(error) if error != Error::again() => Err(error),
        _ => Ok(()),
    }
}
