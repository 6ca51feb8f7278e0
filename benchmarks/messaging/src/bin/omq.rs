//! OMQ, on a Tokio runtime of one thread for each end.

use std::time::Duration;

use bytes::Bytes;
use omq_tokio::{
    CurveKeypair, CurvePublicKey, CurveSecretKey, Endpoint, Message, Options, Socket, SocketType,
};
use ropewalk_messaging_bench::{
    CLIENT_KEYS, End, HIGH_WATER, Kind, Link, Outcome, Peer, SERVER_KEYS, give_way,
};

struct Omq;

struct OmqEnd {
    socket: Socket,
    messages: Vec<Message>,
}

fn pair((public, secret): (&str, &str)) -> Outcome<CurveKeypair> {
    Ok(CurveKeypair { public: CurvePublicKey::from_z85(public)?, secret: CurveSecretKey::from_z85(secret)? })
}

impl Peer for Omq {
    type Hub = ();
    type End = OmqEnd;

    fn hub() {}

    fn drive<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime of one thread").block_on(work)
    }

    async fn open((): &(), kind: Kind, link: &Link) -> Outcome<OmqEnd> {
        let mut options = Options::default();
        if matches!(kind, Kind::Pub | Kind::Sub) {
            let mark = u32::try_from(HIGH_WATER)?;
            options = options.send_hwm(mark).recv_hwm(mark);
            // Its marks are not exact caps: of bodies that are not inlined, some are dropped below them.
            options.xpub_nodrop = true;
        }
        if link.curve {
            options = match link.bind {
                true => options.curve_server(pair(SERVER_KEYS)?),
                false => options.curve_client(pair(CLIENT_KEYS)?, pair(SERVER_KEYS)?.public),
            };
        }
        let socket = Socket::new(
            match kind {
                Kind::Req => SocketType::Req,
                Kind::Rep => SocketType::Rep,
                Kind::Push => SocketType::Push,
                Kind::Pull => SocketType::Pull,
                Kind::Pub => SocketType::Pub,
                Kind::Sub => SocketType::Sub,
                Kind::Router => SocketType::Router,
                Kind::Dealer => SocketType::Dealer,
            },
            options,
        );
        let endpoint: Endpoint = link.endpoint().parse()?;
        if link.bind {
            socket.bind(endpoint).await?;
        } else {
            socket.connect(endpoint).await?;
            socket.wait_connected(1, Duration::from_secs(10)).await?;
        }
        if kind == Kind::Sub {
            socket.subscribe(Bytes::new()).await?;
        }
        Ok(OmqEnd { socket, messages: Vec::new() })
    }

    async fn pause() {
        give_way().await;
    }
}

impl End for OmqEnd {
    async fn send(&mut self, body: &'static [u8]) -> Outcome<()> {
        let message = match body.len() <= omq_tokio::message::MAX_INLINE_MESSAGE {
            true => Message::from_slice(body),
            false => Message::single(Bytes::from_static(body)),
        };
        Ok(self.socket.send(message).await?)
    }

    async fn take(&mut self, size: usize, most: usize) -> Outcome<usize> {
        self.messages.clear();
        if most == 1 {
            return Ok(usize::from(self.socket.recv().await?.byte_len() == size));
        }
        self.socket.recv_many_into(most, &mut self.messages).await?;
        Ok(self.messages.iter().filter(|message| message.byte_len() == size).count())
    }

    async fn echo(&mut self) -> Outcome<()> {
        let message = self.socket.recv().await?;
        Ok(self.socket.send(message).await?)
    }
}

fn main() {
    ropewalk_messaging_bench::main::<Omq>()
}
