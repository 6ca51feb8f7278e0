//! Ropewalk.

use ropewalk_messaging::{Context, Events, Frame, Slices, Socket, SocketType};
use ropewalk_messaging_bench::{CLIENT_KEYS, End, HIGH_WATER, Kind, Link, Outcome, Peer, SERVER_KEYS, block};

const EAGAIN: i32 = libc::EAGAIN;
const SUBSCRIBE: i32 = 6;
const SNDHWM: i32 = 23;
const RCVHWM: i32 = 24;
const CURVE_SERVER: i32 = 47;
const CURVE_PUBLICKEY: i32 = 48;
const CURVE_SECRETKEY: i32 = 49;
const CURVE_SERVERKEY: i32 = 50;

/// Bodies from this size on are sent without a copy.
const SHARED: usize = 8 << 10;

struct Ropewalk;

struct RopewalkEnd {
    socket: Socket,
    parts: Vec<Frame>,
}

/// An error of the crate as one of any kind.
fn told(error: impl std::fmt::Display) -> Box<dyn std::error::Error + Send + Sync> {
    error.to_string().into()
}

impl RopewalkEnd {
    fn wait(&self, what: Events) -> Outcome<()> {
        self.socket.wait(what, None, &mut Slices::of(None)).map_err(told)?;
        Ok(())
    }
}

impl Peer for Ropewalk {
    type Hub = Context;
    type End = RopewalkEnd;

    fn hub() -> Context {
        Context::new()
    }

    fn drive<T>(work: impl Future<Output = T>) -> T {
        block(work)
    }

    async fn open(hub: &Context, kind: Kind, link: &Link) -> Outcome<RopewalkEnd> {
        let socket = hub
            .socket(match kind {
                Kind::Req => SocketType::Req,
                Kind::Rep => SocketType::Rep,
                Kind::Push => SocketType::Push,
                Kind::Pull => SocketType::Pull,
                Kind::Pub => SocketType::Pub,
                Kind::Sub => SocketType::Sub,
                Kind::Router => SocketType::Router,
                Kind::Dealer => SocketType::Dealer,
            })
            .map_err(told)?;
        let set = |option: i32, value: &[u8]| socket.set(option, value).map_err(told);
        if matches!(kind, Kind::Pub | Kind::Sub) {
            set(SNDHWM, &HIGH_WATER.to_ne_bytes())?;
            set(RCVHWM, &HIGH_WATER.to_ne_bytes())?;
        }
        if kind == Kind::Sub {
            set(SUBSCRIBE, b"")?;
        }
        if link.curve {
            let (public, secret) = if link.bind { SERVER_KEYS } else { CLIENT_KEYS };
            match link.bind {
                true => set(CURVE_SERVER, &1i32.to_ne_bytes())?,
                false => set(CURVE_SERVERKEY, SERVER_KEYS.0.as_bytes())?,
            }
            set(CURVE_PUBLICKEY, public.as_bytes())?;
            set(CURVE_SECRETKEY, secret.as_bytes())?;
        }
        match link.bind {
            true => socket.bind(&link.endpoint()),
            false => socket.connect(&link.endpoint()),
        }
        .map_err(told)?;
        Ok(RopewalkEnd { socket, parts: Vec::new() })
    }
}

impl End for RopewalkEnd {
    async fn send(&mut self, body: &'static [u8]) -> Outcome<()> {
        if body.len() < SHARED {
            loop {
                match self.socket.try_send_bytes(body, false) {
                    Ok(()) => return Ok(()),
                    Err(error) if error.errno() == EAGAIN => self.wait(Events::WRITE)?,
                    Err(error) => return Err(told(error)),
                }
            }
        }
        let mut frame = Frame::from_owner(body);
        loop {
            match self.socket.try_send(frame, false) {
                Ok(()) => return Ok(()),
                Err(unsent) if unsent.error.errno() == EAGAIN => frame = unsent.frame,
                Err(unsent) => return Err(told(unsent.error)),
            }
            self.wait(Events::WRITE)?;
        }
    }

    async fn take(&mut self, size: usize, most: usize) -> Outcome<usize> {
        loop {
            let mut taken = 0;
            match self
                .socket
                .try_recv_with_hot(most, &mut |body, _more| taken += usize::from(body.len() == size))
            {
                Ok(_) => return Ok(taken),
                Err(error) if error.errno() == EAGAIN => self.wait(Events::READ)?,
                Err(error) => return Err(told(error)),
            }
        }
    }

    async fn echo(&mut self) -> Outcome<()> {
        loop {
            match self.socket.try_recv_hot() {
                Ok(frame) => {
                    let more = frame.more();
                    self.parts.push(frame);
                    if !more {
                        break;
                    }
                }
                Err(error) if error.errno() == EAGAIN => self.wait(Events::READ)?,
                Err(error) => return Err(told(error)),
            }
        }
        loop {
            match self.socket.try_send_all(&mut self.parts) {
                Ok(()) => return Ok(()),
                Err(error) if error.errno() == EAGAIN => self.wait(Events::WRITE)?,
                Err(error) => return Err(told(error)),
            }
        }
    }
}

fn main() {
    ropewalk_messaging_bench::main::<Ropewalk>()
}
