//! Monocoque, on a runtime of one thread for each end. PUSH coalesces, and the contest flushes it at the end.
//!
//! Its sockets have one connection each (PUB has many), so that it plays no contest with a ROUTER.

use std::io;
use std::time::Duration;

use compio_io::{AsyncRead, AsyncWrite};
use monocoque::rt::{self, LocalRuntime, TcpListener, TcpStream, UnixStream};
use monocoque::zmq::{PubSocket, PullSocket, PushSocket, RepSocket, ReqSocket, SubSocket, ipc};
use monocoque::{Bytes, SocketOptions};
use ropewalk_messaging_bench::{
    CLIENT_KEYS, End, HIGH_WATER, Kind, Link, Outcome, Peer, SERVER_KEYS, Transport, give_way,
};

struct Monocoque;

/// A socket over either kind of stream.
enum Typed {
    Tcp(Over<TcpStream>),
    Ipc(Over<UnixStream>),
    Pub(PubSocket),
}

enum Over<S: AsyncRead + AsyncWrite + Unpin> {
    Req(ReqSocket<S>),
    Rep(RepSocket<S>),
    Push(PushSocket<S>),
    Pull(PullSocket<S>),
    Sub(SubSocket<S>),
}

struct MonocoqueEnd {
    typed: Typed,
    parts: Vec<Bytes>,
}

/// The bytes of a key in Z85.
fn key(text: &str) -> [u8; 32] {
    const DIGITS: &str =
        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
    let mut key = [0; 32];
    for (digits, bytes) in text.as_bytes().chunks(5).zip(key.chunks_mut(4)) {
        let value = digits.iter().fold(0, |value: u32, &digit| {
            let digit = DIGITS.find(char::from(digit)).expect("a digit of Z85");
            value.wrapping_mul(85).wrapping_add(u32::try_from(digit).expect("below 85"))
        });
        bytes.copy_from_slice(&value.to_be_bytes());
    }
    key
}

fn options(kind: Kind, link: &Link) -> SocketOptions {
    let mut options = SocketOptions::default().with_write_coalescing(matches!(kind, Kind::Push | Kind::Pub));
    if matches!(kind, Kind::Pub | Kind::Sub) {
        let mark = usize::try_from(HIGH_WATER).expect("it is positive");
        options = options.with_send_hwm(mark).with_recv_hwm(mark);
    }
    if link.curve {
        let (public, secret) = if link.bind { SERVER_KEYS } else { CLIENT_KEYS };
        options = options.with_curve_keypair(key(public), key(secret));
        options = match link.bind {
            true => options.with_curve_server(true),
            false => options.with_curve_serverkey(key(SERVER_KEYS.0)),
        };
    }
    options
}

async fn retried<T>(mut connect: impl AsyncFnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..1000 {
        if let Ok(stream) = connect().await {
            return Ok(stream);
        }
        rt::sleep(Duration::from_millis(2)).await;
    }
    connect().await
}

async fn tcp(link: &Link) -> io::Result<TcpStream> {
    if link.bind {
        Ok(TcpListener::bind(&*link.address).await?.accept().await?.0)
    } else {
        retried(async || TcpStream::connect(&*link.address).await).await
    }
}

async fn unix(link: &Link) -> io::Result<UnixStream> {
    if link.bind {
        ipc::accept(ipc::bind(&link.address).await?.listener()).await
    } else {
        retried(async || ipc::connect(&link.address).await).await
    }
}

impl Peer for Monocoque {
    type Hub = ();
    type End = MonocoqueEnd;

    fn hub() {}

    fn drive<T>(work: impl Future<Output = T>) -> T {
        LocalRuntime::new().expect("a runtime of one thread").block_on(work)
    }

    async fn open((): &(), kind: Kind, link: &Link) -> Outcome<MonocoqueEnd> {
        let options = options(kind, link);
        macro_rules! over {
            ($stream:expr, $make:ident) => {
                match kind {
                    Kind::Req => Over::Req(ReqSocket::$make($stream, options).await?),
                    Kind::Rep => Over::Rep(RepSocket::$make($stream, options).await?),
                    Kind::Push => Over::Push(PushSocket::$make($stream, options).await?),
                    Kind::Pull => Over::Pull(PullSocket::$make($stream, options).await?),
                    Kind::Sub => {
                        let mut socket = SubSocket::$make($stream, options).await?;
                        socket.subscribe(b"").await?;
                        Over::Sub(socket)
                    }
                    other => return Err(format!("no {other:?} of many connections").into()),
                }
            };
        }
        let typed = match (kind, link.transport) {
            (Kind::Pub, Transport::Tcp) => {
                // One worker, as every other contender has one thread for an end.
                let mut socket = PubSocket::bind_with_workers_opts(&*link.address, 1, options).await?;
                for _ in 0..link.ends {
                    socket.accept_subscriber().await?;
                }
                Typed::Pub(socket)
            }
            (_, Transport::Tcp) => Typed::Tcp(over!(tcp(link).await?, from_tcp_with_options)),
            (_, Transport::Ipc) => Typed::Ipc(over!(unix(link).await?, from_unix_stream_with_options)),
            (_, other) => return Err(format!("not over {other:?}").into()),
        };
        Ok(MonocoqueEnd { typed, parts: Vec::new() })
    }

    async fn pause() {
        give_way().await;
    }
}

/// Does the same with either stream's socket.
macro_rules! either {
    ($typed:expr, $($kind:ident($socket:ident) => $work:expr),+) => {
        match $typed {
            $(Typed::Tcp(Over::$kind($socket)) => $work,)+
            $(Typed::Ipc(Over::$kind($socket)) => $work,)+
            _ => return Err("not this way".into()),
        }
    };
}

impl End for MonocoqueEnd {
    async fn send(&mut self, body: &'static [u8]) -> Outcome<()> {
        let body = Bytes::from_static(body);
        if let Typed::Pub(socket) = &mut self.typed {
            return Ok(socket.send_frames(&[body]).await?);
        }
        either!(&mut self.typed,
            Req(socket) => socket.send_one(body).await?,
            Rep(socket) => socket.send(vec![body]).await?,
            Push(socket) => socket.send_one(body).await?);
        Ok(())
    }

    async fn take(&mut self, size: usize, most: usize) -> Outcome<usize> {
        let (parts, mut taken) = (&mut self.parts, 0);
        let right = |parts: &Vec<Bytes>| usize::from(parts.len() == 1 && parts[0].len() == size);
        let open = either!(&mut self.typed,
            Req(socket) => socket.recv_into(parts).await?,
            Rep(socket) => socket.recv_into(parts).await?,
            Pull(socket) => socket.recv_into(parts).await?,
            Sub(socket) => socket.recv_into(parts).await?);
        if !open {
            return Err("the connection is closed".into());
        }
        taken += right(parts);
        for _ in 1..most {
            let more = either!(&mut self.typed,
                Pull(socket) => socket.try_recv_into(parts)?,
                Sub(socket) => socket.try_recv_into(parts)?);
            if !more {
                break;
            }
            taken += right(parts);
        }
        Ok(taken)
    }

    async fn flush(&mut self) -> Outcome<()> {
        match &mut self.typed {
            Typed::Tcp(Over::Push(socket)) => socket.flush().await?,
            Typed::Ipc(Over::Push(socket)) => socket.flush().await?,
            _ => {}
        }
        Ok(())
    }
}

fn main() {
    ropewalk_messaging_bench::main::<Monocoque>()
}
