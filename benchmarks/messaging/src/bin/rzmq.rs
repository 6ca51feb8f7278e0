//! rzmq, on a Tokio runtime of one thread for each end, without its io_uring sessions.

use rzmq::socket::{
    CURVE_PUBLIC_KEY, CURVE_SECRET_KEY, CURVE_SERVER, CURVE_SERVER_KEY, RCVHWM, SNDHWM, SUBSCRIBE,
};
use rzmq::{Context, Msg, Socket, SocketType};
use ropewalk_messaging_bench::{
    CLIENT_KEYS, End, HIGH_WATER, Kind, Link, Outcome, Peer, SERVER_KEYS, give_way,
};

struct Rzmq;

struct RzmqEnd {
    socket: Socket,
    /// Of this end alone: a context made outside of a runtime has none to run in.
    _context: Context,
}

impl Peer for Rzmq {
    type Hub = ();
    type End = RzmqEnd;

    fn hub() {}

    fn drive<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime of one thread").block_on(work)
    }

    async fn open((): &(), kind: Kind, link: &Link) -> Outcome<RzmqEnd> {
        let context = Context::new()?;
        let socket = context.socket(match kind {
            Kind::Req => SocketType::Req,
            Kind::Rep => SocketType::Rep,
            Kind::Push => SocketType::Push,
            Kind::Pull => SocketType::Pull,
            Kind::Pub => SocketType::Pub,
            Kind::Sub => SocketType::Sub,
            Kind::Router => SocketType::Router,
            Kind::Dealer => SocketType::Dealer,
        })?;
        if matches!(kind, Kind::Pub | Kind::Sub) {
            socket.set_option_raw(SNDHWM, &HIGH_WATER.to_ne_bytes()).await?;
            socket.set_option_raw(RCVHWM, &HIGH_WATER.to_ne_bytes()).await?;
        }
        if kind == Kind::Sub {
            socket.set_option_raw(SUBSCRIBE, b"").await?;
        }
        if link.curve {
            let (public, secret) = if link.bind { SERVER_KEYS } else { CLIENT_KEYS };
            match link.bind {
                true => socket.set_option_raw(CURVE_SERVER, &1i32.to_ne_bytes()).await?,
                false => socket.set_option_raw(CURVE_SERVER_KEY, SERVER_KEYS.0.as_bytes()).await?,
            }
            socket.set_option_raw(CURVE_PUBLIC_KEY, public.as_bytes()).await?;
            socket.set_option_raw(CURVE_SECRET_KEY, secret.as_bytes()).await?;
        }
        if link.bind {
            socket.bind(&link.endpoint()).await?;
        } else {
            socket.connect(&link.endpoint()).await?;
        }
        Ok(RzmqEnd { socket, _context: context })
    }

    async fn pause() {
        give_way().await;
    }
}

impl End for RzmqEnd {
    async fn send(&mut self, body: &'static [u8]) -> Outcome<()> {
        Ok(self.socket.send(Msg::from_static(body)).await?)
    }

    async fn take(&mut self, size: usize, _most: usize) -> Outcome<usize> {
        Ok(usize::from(self.socket.recv().await?.size() == size))
    }

    async fn echo(&mut self) -> Outcome<()> {
        let parts = self.socket.recv_multipart().await?;
        Ok(self.socket.send_multipart(parts).await?)
    }
}

fn main() {
    ropewalk_messaging_bench::main::<Rzmq>()
}
