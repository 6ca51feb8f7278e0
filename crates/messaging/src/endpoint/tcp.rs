//! `tcp://`: hosts, ports and sources.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};

use ropewalk_os::net;

use super::malformed;
use crate::error::{Error, Result, errno};

/// A host and a port, and perhaps where to connect from. It displays as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TcpEndpoint {
    /// The host.
    pub host: Host,
    /// The port.
    pub port: Port,
    /// Before a semicolon: the address to connect from.
    pub source: Option<TcpSource>,
    text: String,
}

/// The address that a connection is made from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TcpSource {
    /// An interface, its address or any.
    pub host: Host,
    /// The port.
    pub port: Port,
}

/// The part before the port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// `*`.
    Any,
    /// An address, and behind `%` the interface of its link.
    Literal(IpAddr, Option<String>),
    /// A host or an interface.
    Name(String),
}

/// The part behind the last colon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Port {
    /// `*` or 0: a free one.
    Any,
    /// This one.
    Number(u16),
}

/// What a host and a port stand for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// An address.
    Address(SocketAddr),
    /// A name that has to be looked up by [`resolve`], which blocks.
    Name {
        /// The name.
        host: String,
        /// The port.
        port: u16,
    },
}

impl TcpEndpoint {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let (source, destination) = match text.rsplit_once(';') {
            Some((source, destination)) => (Some(source), destination),
            None => (None, text),
        };
        let (host, port) = parse_part(destination).ok_or_else(|| wrong(text))?;
        let source = match source {
            None => None,
            Some(source) => {
                let (host, port) = parse_part(source).ok_or_else(|| wrong(text))?;
                Some(TcpSource { host, port })
            }
        };
        Ok(Self { host, port, source, text: text.to_owned() })
    }

    /// The address to listen on. Of names it knows `localhost` and the host's interfaces: nothing is looked
    /// up.
    ///
    /// # Errors
    ///
    /// `ENODEV` for another name, an unknown interface, and an IPv6 address without `ipv6`; `EINVAL` for an
    /// endpoint with a source.
    pub fn bind_address(&self, ipv6: bool) -> Result<SocketAddr> {
        if self.source.is_some() {
            return Err(malformed(
                &self.text,
                "only a connect has a source; leave out what is before the semicolon",
            ));
        }
        local_address(&self.host, self.port, ipv6)
    }

    /// The address to connect to, or the name to look up.
    ///
    /// # Errors
    ///
    /// `EINVAL` for `*`, and for an IPv6 address without `ipv6`; `ENODEV` for an unknown interface behind
    /// `%`.
    pub fn connect_target(&self, ipv6: bool) -> Result<Target> {
        // Port 0 is a port here: the kernel refuses it, as it does for libzmq.
        let port = match self.port {
            Port::Number(port) => port,
            Port::Any if self.text.ends_with('*') => {
                return Err(malformed(&self.text, "a connect needs a port"));
            }
            Port::Any => 0,
        };
        match &self.host {
            Host::Any => Err(malformed(&self.text, "a connect needs a host")),
            Host::Literal(address, zone) => {
                literal(*address, zone.as_deref(), port, ipv6, errno::EINVAL).map(Target::Address)
            }
            // RFC 6761: the name is always this host. With IPv6 the system says which of the two addresses.
            Host::Name(name) if !ipv6 && is_localhost(name) => {
                Ok(Target::Address(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)))
            }
            Host::Name(name) => Ok(Target::Name { host: name.clone(), port }),
        }
    }

    /// The address to connect from, if it matters.
    ///
    /// # Errors
    ///
    /// As [`bind_address`](Self::bind_address).
    pub fn source_address(&self, ipv6: bool) -> Result<Option<SocketAddr>> {
        self.source.as_ref().map(|source| local_address(&source.host, source.port, ipv6)).transpose()
    }
}

impl fmt::Display for TcpEndpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// Looks a name up; this may take long. The addresses are in the system's order of preference, without IPv6
/// unless it is wanted.
///
/// # Errors
///
/// `EINVAL`, as in libzmq, for an unknown name or one without such an address.
pub fn resolve(host: &str, port: u16, ipv6: bool) -> Result<Vec<SocketAddr>> {
    let unknown =
        |why: &str| Error::invalid(format!("the host {host:?} was not found ({why}): check its name"));
    let mut found: Vec<SocketAddr> =
        (host, port).to_socket_addrs().map_err(|error| unknown(&error.to_string()))?.collect();
    found.retain(|address| ipv6 || address.is_ipv4());
    if found.is_empty() {
        return Err(unknown("it has no IPv4 address; set IPV6 to use the other kind"));
    }
    Ok(found)
}

fn parse_part(text: &str) -> Option<(Host, Port)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = match port {
        "*" | "0" => Port::Any,
        // `parse` would take a sign.
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => match digits.parse().ok()? {
            0 => Port::Any,
            number => Port::Number(number),
        },
        _ => return None,
    };
    Some((parse_host(host)?, port))
}

fn parse_host(text: &str) -> Option<Host> {
    let inside = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let bare = inside.unwrap_or(text);
    if bare == "*" {
        return Some(Host::Any);
    }
    let (address, zone) = match bare.split_once('%') {
        Some((_, "")) => return None,
        Some((address, zone)) => (address, Some(zone)),
        None => (bare, None),
    };
    if let Ok(address) = address.parse::<IpAddr>() {
        let fits = address.is_ipv6() || (zone.is_none() && inside.is_none());
        return fits.then(|| Host::Literal(address, zone.map(str::to_owned)));
    }
    let first = bare.as_bytes().first()?;
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_name = inside.is_none() && first.is_ascii_alphanumeric() && bare.bytes().all(sound);
    is_name.then(|| Host::Name(bare.to_owned()))
}

fn is_localhost(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost")
}

/// An address of this host. Only a literal, `localhost` or an interface has one.
fn local_address(host: &Host, port: Port, ipv6: bool) -> Result<SocketAddr> {
    let port = match port {
        Port::Any => 0,
        Port::Number(number) => number,
    };
    match host {
        Host::Any if ipv6 => Ok(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)),
        Host::Any => Ok(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port)),
        Host::Literal(address, zone) => literal(*address, zone.as_deref(), port, ipv6, errno::ENODEV),
        // With IPv6 it is what the system says, as for those who connect to it.
        Host::Name(name) if is_localhost(name) && ipv6 => {
            resolve(name, port, true)?.into_iter().next().ok_or_else(|| no_device(name))
        }
        Host::Name(name) if is_localhost(name) => Ok(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)),
        Host::Name(name) => {
            let mut address = net::interface_address(name, ipv6).map_err(|_| no_device(name))?;
            address.set_port(port);
            Ok(address)
        }
    }
}

/// libzmq has one error number for an address of the wrong family when it binds, and another when it connects.
fn literal(address: IpAddr, zone: Option<&str>, port: u16, ipv6: bool, unfit: i32) -> Result<SocketAddr> {
    match address {
        IpAddr::V4(_) => Ok(SocketAddr::new(address, port)),
        IpAddr::V6(mapped) if !ipv6 && let Some(address) = mapped.to_ipv4_mapped() => {
            Ok(SocketAddr::new(address.into(), port))
        }
        IpAddr::V6(_) if !ipv6 => {
            Err(Error::new(unfit, format!("{address} is an IPv6 address: set the option IPV6 to use it")))
        }
        IpAddr::V6(address) => {
            let scope = match zone {
                None => 0,
                Some(zone) => match zone.parse() {
                    Ok(number) => number,
                    Err(_) => net::interface_index(zone).map_err(|_| no_device(zone))?,
                },
            };
            Ok(SocketAddrV6::new(address, port, 0, scope).into())
        }
    }
}

#[cold]
fn wrong(text: &str) -> Error {
    malformed(text, "after tcp:// come a host, a colon and a port from 0 to 65535, or * for any of them")
}

#[cold]
fn no_device(name: &str) -> Error {
    Error::new(
        errno::ENODEV,
        format!("there is no interface {name:?} with such an address: use its address, or * for all"),
    )
}
