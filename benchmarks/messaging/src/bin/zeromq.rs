//! zmq.rs, on a Tokio runtime of one thread for each end.

use bytes::Bytes;
use ropewalk_messaging_bench::{End, Kind, Link, Outcome, Peer, give_way};
use zeromq::{Socket, SocketRecv, SocketSend, ZmqMessage};

struct Zeromq;

/// One of its socket types.
enum Typed {
    Req(zeromq::ReqSocket),
    Rep(zeromq::RepSocket),
    Push(zeromq::PushSocket),
    Pull(zeromq::PullSocket),
    Pub(zeromq::PubSocket),
    Sub(zeromq::SubSocket),
    Router(zeromq::RouterSocket),
    Dealer(zeromq::DealerSocket),
}

async fn joined<S: Socket>(link: &Link) -> Outcome<S> {
    let mut socket = S::new();
    if link.bind {
        socket.bind(&link.endpoint()).await?;
    } else {
        socket.connect(&link.endpoint()).await?;
    }
    Ok(socket)
}

impl Peer for Zeromq {
    type Hub = ();
    type End = Typed;

    fn hub() {}

    fn drive<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime of one thread").block_on(work)
    }

    async fn open((): &(), kind: Kind, link: &Link) -> Outcome<Typed> {
        if link.curve {
            return Err("zmq.rs has no CURVE".into());
        }
        Ok(match kind {
            Kind::Req => Typed::Req(joined(link).await?),
            Kind::Rep => Typed::Rep(joined(link).await?),
            Kind::Push => Typed::Push(joined(link).await?),
            Kind::Pull => Typed::Pull(joined(link).await?),
            Kind::Pub => Typed::Pub(joined(link).await?),
            Kind::Sub => {
                let mut socket: zeromq::SubSocket = joined(link).await?;
                socket.subscribe("").await?;
                Typed::Sub(socket)
            }
            Kind::Router => Typed::Router(joined(link).await?),
            Kind::Dealer => Typed::Dealer(joined(link).await?),
        })
    }

    async fn pause() {
        give_way().await;
    }
}

impl Typed {
    async fn put(&mut self, message: ZmqMessage) -> Outcome<()> {
        match self {
            Typed::Req(socket) => socket.send(message).await?,
            Typed::Rep(socket) => socket.send(message).await?,
            Typed::Push(socket) => socket.send(message).await?,
            Typed::Pub(socket) => socket.send(message).await?,
            Typed::Router(socket) => socket.send(message).await?,
            Typed::Dealer(socket) => socket.send(message).await?,
            Typed::Pull(_) | Typed::Sub(_) => return Err("it only receives".into()),
        }
        Ok(())
    }

    async fn get(&mut self) -> Outcome<ZmqMessage> {
        Ok(match self {
            Typed::Req(socket) => socket.recv().await?,
            Typed::Rep(socket) => socket.recv().await?,
            Typed::Pull(socket) => socket.recv().await?,
            Typed::Sub(socket) => socket.recv().await?,
            Typed::Router(socket) => socket.recv().await?,
            Typed::Dealer(socket) => socket.recv().await?,
            Typed::Push(_) | Typed::Pub(_) => return Err("it only sends".into()),
        })
    }
}

impl End for Typed {
    async fn send(&mut self, body: &'static [u8]) -> Outcome<()> {
        self.put(Bytes::from_static(body).into()).await
    }

    async fn take(&mut self, size: usize, _most: usize) -> Outcome<usize> {
        Ok(usize::from(self.get().await?.get(0).is_some_and(|body| body.len() == size)))
    }

    async fn echo(&mut self) -> Outcome<()> {
        let message = self.get().await?;
        self.put(message).await
    }
}

fn main() {
    ropewalk_messaging_bench::main::<Zeromq>()
}
