//! Endpoints: `tcp://host:port`, `ipc://path`, `shm://path` and `inproc://name`.
//!
//! Text is parsed once, without looking anything up; names are resolved when an endpoint is bound or connected.
//!
//! Source: zmq_tcp(7), zmq_ipc(7), zmq_inproc(7).

mod ipc;
mod tcp;
#[cfg(test)]
mod tests;

use std::fmt;

use ropewalk_os::net::{Address, UnixName};

pub use ipc::{IpcEndpoint, IpcName};
pub use tcp::{Host, Port, Target, TcpEndpoint, TcpSource, resolve};

use crate::error::{Error, Result, errno};

/// How bytes or messages get from one socket to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Between hosts.
    Tcp,
    /// Between the processes of a host.
    Ipc,
    /// Between the processes of a host, through memory that they share.
    Shm,
    /// Within a context.
    Inproc,
}

/// An endpoint as a program names it. It displays as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// Between hosts.
    Tcp(TcpEndpoint),
    /// Between the processes of a host.
    Ipc(IpcEndpoint),
    /// Between the processes of a host, through memory; its names are those of ipc.
    Shm(IpcEndpoint),
    /// Within a context: the name.
    Inproc(String),
}

impl Endpoint {
    /// Parses an endpoint.
    ///
    /// # Errors
    ///
    /// `EINVAL` for malformed text, `EPROTONOSUPPORT` for an unknown transport, `ENAMETOOLONG` for a path or name that
    /// the system has no room for.
    pub fn parse(text: &str) -> Result<Self> {
        let (transport, address) = text
            .split_once("://")
            .filter(|(transport, address)| !transport.is_empty() && !address.is_empty())
            .ok_or_else(|| {
                malformed(
                    text,
                    "it should look like tcp://host:port, ipc://path, shm://path or inproc://name",
                )
            })?;
        match transport {
            "tcp" => Ok(Self::Tcp(TcpEndpoint::parse(address)?)),
            "ipc" => Ok(Self::Ipc(IpcEndpoint::parse(address)?)),
            "shm" => Ok(Self::Shm(IpcEndpoint::parse(address)?)),
            "inproc" => Ok(Self::Inproc(address.to_owned())),
            _ => Err(Error::new(
                errno::EPROTONOSUPPORT,
                format!("there is no transport {transport:?}: use tcp, ipc, shm or inproc"),
            )),
        }
    }

    /// Its transport.
    pub fn transport(&self) -> Transport {
        match self {
            Self::Tcp(_) => Transport::Tcp,
            Self::Ipc(_) => Transport::Ipc,
            Self::Shm(_) => Transport::Shm,
            Self::Inproc(_) => Transport::Inproc,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(tcp) => write!(formatter, "tcp://{tcp}"),
            Self::Ipc(ipc) => write!(formatter, "ipc://{ipc}"),
            Self::Shm(ipc) => write!(formatter, "shm://{ipc}"),
            Self::Inproc(name) => write!(formatter, "inproc://{name}"),
        }
    }
}

/// A descriptor's address as an endpoint, for `LAST_ENDPOINT` after a bind, and for monitors.
///
/// Empty for an end without a name.
pub fn endpoint_of(transport: Transport, address: &Address) -> String {
    let host = if transport == Transport::Shm { "shm" } else { "ipc" };
    match address {
        Address::Inet(address) => format!("tcp://{address}"),
        Address::Unix(UnixName::Path(path)) => format!("{host}://{}", path.display()),
        Address::Unix(UnixName::Abstract(name)) => format!("{host}://@{}", String::from_utf8_lossy(name)),
        Address::Unnamed => String::new(),
    }
}

#[cold]
fn malformed(text: &str, hint: &str) -> Error {
    Error::invalid(format!("{text:?} is no endpoint: {hint}"))
}
