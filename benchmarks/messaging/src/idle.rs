//! What a server's idle connection weighs.
//!
//! The connections are made by another process, by plain sockets that speak just enough ZMTP, so that the
//! server's memory is the server's alone, and every contender has the same clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{End, Kind, Outcome, Peer, Plan};

/// Bytes of resident memory for one connection that has sent a message and is silent since. Kernel memory is
/// not in it.
pub(crate) fn play<P: Peer>(plan: &Plan) -> Outcome<(&'static str, f64)> {
    P::drive(async {
        let hub = P::hub();
        let mut end = P::open(&hub, Kind::Pull, &plan.bound()).await?;
        let mut clients = Command::new(std::env::current_exe()?)
            .arg("idle-clients")
            .arg(format!("address={}", plan.link.address))
            .arg(format!("ends={}", plan.link.ends))
            .arg(format!("size={}", plan.size))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        // One is there before the first reading, so that what is made once is not in the difference.
        let mut taken = end.take(plan.size, 1).await?;
        let before = resident()?;
        clients.stdin.as_ref().expect("it is a pipe").write_all(b"!")?;
        while taken < plan.link.ends {
            taken += end.take(plan.size, plan.link.ends - taken).await?;
        }
        let after = resident()?;
        drop(clients.stdin.take());
        clients.wait()?;
        std::mem::forget((end, hub));
        Outcome::Ok(("bytes", (after as f64 - before as f64) / (plan.link.ends - 1) as f64))
    })
}

/// Makes the connections, each of which sends one message; holds them until standard input ends.
pub(crate) fn clients(plan: &Plan) -> Outcome<(&'static str, f64)> {
    let mut held = vec![connect(plan)?];
    std::io::stdin().read_exact(&mut [0])?;
    for _ in 1..plan.link.ends {
        held.push(connect(plan)?);
    }
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(("ends", held.len() as f64))
}

/// One PUSH connection, greeted by NULL and open for messages, that has sent its first.
fn connect(plan: &Plan) -> Outcome<TcpStream> {
    let until = Instant::now() + Duration::from_secs(10);
    let mut stream = loop {
        match TcpStream::connect(&plan.link.address) {
            Ok(stream) => break stream,
            Err(error) if Instant::now() > until => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    stream.set_nodelay(true)?;
    let mut greeting = [0; 64];
    greeting[0] = 0xff;
    greeting[9] = 0x7f;
    greeting[10] = 3;
    greeting[12..16].copy_from_slice(b"NULL");
    stream.write_all(&greeting)?;
    stream.read_exact(&mut greeting)?;
    stream.write_all(b"\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x04PUSH")?;
    let mut head = [0; 2];
    stream.read_exact(&mut head)?;
    stream.read_exact(&mut vec![0; usize::from(head[1])])?;
    let size = u8::try_from(plan.size).map_err(|_| "a short message, please")?;
    let mut message = vec![0, size];
    message.resize(2 + plan.size, b'x');
    stream.write_all(&message)?;
    Ok(stream)
}

/// The process's resident bytes.
fn resident() -> Outcome<usize> {
    let status = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = status.lines().find(|line| line.starts_with("Rss:")).ok_or("no Rss")?;
    Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse::<usize>()? * 1024)
}
