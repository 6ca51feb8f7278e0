//! A peer over a plain TCP socket: prints its peer, and sends every message back.
//!
//! `echo listen|connect ADDRESS TYPE null|plain-server|plain-client|curve-server|curve-client [Z85-KEY...]`
//!
//! The keys are the public and secret one; a CURVE client has the server's before them. With `zap` as last argument, a
//! handler admits every peer as "ada".

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use ropewalk_zmtp::{
    Command, Config, Handshake, Mechanism, Peer, Session, SocketType, Status, ZapConfig, frame, z85,
};

fn key(text: Option<&String>) -> Result<[u8; 32], Box<dyn Error>> {
    let bytes = text.and_then(|text| z85::decode(text)).ok_or("a key in Z85 is missing")?;
    bytes.try_into().map_err(|_| "a key has 40 characters".into())
}

fn config(args: &[String]) -> Result<Config, Box<dyn Error>> {
    let [socket_type, mechanism, keys @ ..] = args else {
        return Err("a type and a mechanism are needed".into());
    };
    let mechanism = match mechanism.as_str() {
        "null" => Mechanism::Null,
        "plain-server" => Mechanism::PlainServer,
        "plain-client" => {
            Mechanism::PlainClient { username: b"ada".to_vec(), password: b"lovelace".to_vec() }
        }
        "curve-server" => Mechanism::CurveServer { public: key(keys.first())?, secret: key(keys.get(1))? },
        "curve-client" => Mechanism::CurveClient {
            server: key(keys.first())?,
            public: key(keys.get(1))?,
            secret: key(keys.get(2))?,
        },
        other => return Err(format!("{other} is no mechanism").into()),
    };
    let socket_type = SocketType::from_name(socket_type.as_bytes()).ok_or("no such type of socket")?;
    let mut config = Config::new(socket_type, mechanism);
    config.identity = b"echo".to_vec();
    config.metadata = vec![("X-Echo".into(), b"yes".to_vec())];
    config.zap = args.last().filter(|last| *last == "zap").map(|_| ZapConfig::default());
    Ok(config)
}

/// The peer, and what it has said since.
fn meet(stream: &mut TcpStream, config: Config) -> Result<(Peer, Vec<u8>), Box<dyn Error>> {
    let (mut handshake, mut read, mut out) = (Handshake::new(config), Vec::new(), Vec::new());
    handshake.start(&mut out);
    loop {
        let result = handshake.input(&read, &mut out);
        stream.write_all(&out)?;
        out.clear();
        read.drain(..result?);
        match handshake.status() {
            Status::Done => return Ok((handshake.finish(), read)),
            Status::WantsZap => {
                println!("{:?}", handshake.zap_request());
                let reply = ["", "1.0", "", "200", "OK", "ada", ""].map(|text| text.as_bytes().to_vec());
                handshake.answer_zap(&reply, &mut out)?;
            }
            Status::Going => fill(stream, &mut read)?,
        }
    }
}

fn fill(stream: &mut TcpStream, read: &mut Vec<u8>) -> Result<(), Box<dyn Error>> {
    let mut bytes = [0; 65536];
    match stream.read(&mut bytes)? {
        0 => Err("the peer is gone".into()),
        len => {
            read.extend_from_slice(&bytes[..len]);
            Ok(())
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [how, address, rest @ ..] = args.as_slice() else {
        return Err("listen or connect, and an address".into());
    };
    let mut stream = match how.as_str() {
        "listen" => TcpListener::bind(address)?.accept()?.0,
        _ => TcpStream::connect(address)?,
    };
    let (mut peer, mut read) = meet(&mut stream, config(rest)?)?;
    println!("{peer:?}");
    let (mut plain, mut out) = (Vec::new(), Vec::new());
    loop {
        let Some(header) = frame::parse_header(&read)? else {
            fill(&mut stream, &mut read)?;
            continue;
        };
        let end = header.len + usize::try_from(header.size)?;
        if read.len() < end {
            fill(&mut stream, &mut read)?;
            continue;
        }
        plain.clear();
        let flags = match &mut peer.session {
            Session::Curve(session) => session.decrypt(&read[header.len..end], &mut plain)?,
            Session::Clear => {
                plain.extend_from_slice(&read[header.len..end]);
                header.flags & !frame::LONG
            }
        };
        println!("outer flags {:#x}, inner {flags:#x}, {} bytes", header.flags, plain.len());
        read.drain(..end);
        if flags & frame::COMMAND != 0 {
            let command = Command::parse(&plain)?;
            println!("{command:?}");
            let Command::Ping { context, .. } = command else { continue };
            let mut pong = Vec::new();
            Command::Pong { context }.encode(&mut pong);
            plain = pong;
        }
        out.clear();
        match &mut peer.session {
            Session::Curve(session) => session.encrypt(flags, &plain, &mut out),
            Session::Clear => frame::encode(&mut out, flags, &plain),
        }
        stream.write_all(&out)?;
    }
}
