//! Who may call: clients by their tokens and certificates, what each may do, and how often.

mod rate;
mod roster;
mod shares;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use http::Extensions;
use ring::digest::{SHA256, digest};

pub use self::rate::Rate;
use self::rate::{Addresses, Bucket, network};
pub(crate) use self::roster::{Roster, Shown};
pub(crate) use self::shares::{Share, Shares};
use crate::failed::{Code, Failed};

/// A token's SHA-256. A token has so many bits that its digest says nothing of it.
pub type Digest = [u8; 32];

/// The digest of a token.
pub fn digest_of(token: &[u8]) -> Digest {
    let mut made = Digest::default();
    made.copy_from_slice(digest(&SHA256, token).as_ref());
    made
}

/// A client, as the settings describe it.
#[derive(Clone, Default)]
pub struct Known {
    /// Its name in logs; a token of a plain list has none.
    pub name: Option<Arc<str>>,
    /// The digest of the token that it shows.
    pub token: Option<Digest>,
    /// A name of the certificate that it shows. With a token beside it, it shows both.
    pub certificate: Option<Box<str>>,
    /// The names of the tools that it may call, where `*` is any text; `None` is all.
    pub tools: Option<Vec<Box<str>>>,
    /// When it is no client any more.
    pub expires: Option<SystemTime>,
    /// How often it may call, if that is not as often as others.
    pub rate: Option<Rate>,
    /// Whether it may control the server.
    pub is_admin: bool,
    /// Whether it may read the server's numbers; by default one may that may call every tool.
    pub metrics: Option<bool>,
}

/// A client that is known.
struct Client {
    known: Known,
    bucket: Option<Arc<Bucket>>,
}

/// All clients. Their tokens are in no text that this crate makes.
#[derive(Default)]
pub struct Clients {
    by_token: HashMap<Digest, Arc<Client>>,
    by_certificate: HashMap<Box<str>, Arc<Client>>,
    /// The rate of clients that have none of their own, and of addresses where there are no clients.
    rate: Option<Rate>,
    addresses: Option<Arc<Addresses>>,
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clients({})", self.by_token.len() + self.by_certificate.len())
    }
}

/// Where a request came from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peer {
    /// The address; none at the unix socket.
    pub(crate) address: Option<IpAddr>,
    /// The names of the certificate that the connection has shown.
    pub(crate) names: Arc<[Box<str>]>,
    /// Whether a proxy seems to have passed the request on: then it may come from anywhere. `guard.rs` says it.
    pub(crate) is_relayed: bool,
}

/// Why a caller is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// It shows nothing.
    Unproven,
    /// What it shows is unknown.
    Unknown,
    /// It was a client.
    Expired,
}

impl Clients {
    /// Admits these, or all callers if there are none. `rate` is for clients and addresses without one of their own.
    pub fn new(clients: impl IntoIterator<Item = Known>, rate: Option<Rate>) -> Self {
        let mut made = Self { rate, ..Self::default() };
        for known in clients {
            let bucket = known.rate.or(rate).map(|rate| Arc::new(Bucket::new(rate)));
            let client = Arc::new(Client { known, bucket });
            // A name of a certificate admits one client alone: one that shows a token, too, is found by that.
            if let Some(token) = client.known.token {
                made.by_token.insert(token, client);
            } else if let Some(name) = client.known.certificate.clone() {
                made.by_certificate.insert(name, client);
            }
        }
        made.addresses = rate.filter(|_| made.is_empty()).map(|rate| Arc::new(Addresses::new(rate)));
        made
    }

    /// Admits callers that show one of these tokens. Each may control the server.
    pub fn of_tokens<'a>(tokens: impl IntoIterator<Item = &'a str>) -> Self {
        let known = |token: &str| Known {
            token: Some(digest_of(token.as_bytes())),
            is_admin: true,
            ..Known::default()
        };
        Self::new(tokens.into_iter().map(known), None)
    }

    /// Whether every caller is admitted.
    pub fn is_empty(&self) -> bool {
        self.by_token.is_empty() && self.by_certificate.is_empty()
    }

    /// The same clients, with the buckets of those before them: what a client has used up stays used up.
    pub(crate) fn after(mut self, before: &Self) -> Self {
        let kept = |client: &mut Arc<Client>, former: Option<&Arc<Client>>| {
            let (own, bucket) = (client.bucket.as_ref(), former.and_then(|former| former.bucket.as_ref()));
            if let (Some(own), Some(bucket)) = (own, bucket)
                && own.rate == bucket.rate
            {
                *client = Arc::new(Client { known: client.known.clone(), bucket: Some(Arc::clone(bucket)) });
            }
        };
        for (token, client) in &mut self.by_token {
            kept(client, before.by_token.get(token));
        }
        for (name, client) in &mut self.by_certificate {
            kept(client, before.by_certificate.get(name));
        }
        if self.rate == before.rate && self.addresses.is_some() && before.addresses.is_some() {
            self.addresses.clone_from(&before.addresses);
        }
        self
    }

    /// The caller that shows this token.
    #[cfg(test)]
    fn admit(&self, token: Option<&[u8]>, peer: &Peer) -> Result<Caller, Stranger> {
        self.find(token.map(digest_of).as_ref(), peer)
    }

    /// The caller that shows a token with this digest, at this end of a connection.
    fn find(&self, token: Option<&Digest>, peer: &Peer) -> Result<Caller, Stranger> {
        if self.is_empty() {
            return Ok(Caller {
                name: peer.names.first().map(|name| (**name).into()),
                address: peer.address,
                addresses: self.addresses.clone(),
                is_relayed: peer.is_relayed,
                ..Caller::default()
            });
        }
        let client = match token {
            // The digests are compared, of which a caller cannot choose the beginning: the time says nothing.
            Some(token) => self.by_token.get(token),
            None => peer.names.iter().find_map(|name| self.by_certificate.get(name)),
        };
        let shows = |client: &&Arc<Client>| {
            client.known.certificate.as_ref().is_none_or(|wanted| peer.names.contains(wanted))
        };
        let client = client.filter(shows).ok_or(match token {
            Some(_) => Stranger::Unknown,
            None => Stranger::Unproven,
        })?;
        if client.known.expires.is_some_and(|at| at <= SystemTime::now()) {
            return Err(Stranger::Expired);
        }
        let is_alone = self.by_token.len() + self.by_certificate.len() == 1;
        let (client, name) = (Some(Arc::clone(client)), client.known.name.clone());
        Ok(Caller { client, name, is_alone, ..Caller::default() })
    }
}

/// A caller that was admitted: `guard.rs` puts it among the extensions of a request.
#[derive(Clone, Default)]
pub struct Caller {
    /// `None` where every caller is admitted.
    client: Option<Arc<Client>>,
    name: Option<Arc<str>>,
    /// Whether there is no other client.
    is_alone: bool,
    /// Where it calls from, if every caller is admitted; none at the unix socket.
    address: Option<IpAddr>,
    addresses: Option<Arc<Addresses>>,
    /// Whether a proxy seems to have passed its request on, if every caller is admitted.
    is_relayed: bool,
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Caller {
    /// The caller of a request. One that has passed no guard is the program's own: the client of standard input.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or_default()
    }

    /// Its name: the client's, or that of its certificate.
    pub fn name(&self) -> Option<&Arc<str>> {
        self.name.as_ref()
    }

    /// What tells it from other callers, in a text that no other can have; `None` if nothing does. A client keeps it
    /// when its token changes.
    pub(crate) fn identity(&self) -> Option<Arc<str>> {
        let token = self.client.as_ref().and_then(|client| client.known.token);
        match (&self.name, token) {
            (Some(name), _) => Some(name.clone()),
            // No name of a client has a space.
            (None, Some(token)) => {
                let digits: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
                Some(format!("token {digits}").into())
            }
            (None, None) => None,
        }
    }

    /// What tells it from others that have a share each of what is scarce: its identity, or its address where every
    /// caller is admitted. `None` if there are no others: the only client, and the callers of this machine. What a
    /// proxy of this machine passes on may come from many clients, which have one share together.
    pub(crate) fn party(&self) -> Option<Arc<str>> {
        if self.is_alone {
            return None;
        }
        self.identity().or_else(|| {
            let address = self.address.map(network);
            let is_local = address.is_none_or(|address| address.is_loopback());
            // No name of a client has a space.
            (self.is_relayed || !is_local).then(|| match address {
                Some(address) => format!("address {address}").into(),
                None => "unix socket".into(),
            })
        })
    }

    /// Whether it may control the server: recycle workers, resize pools. Only a client may that is named as such.
    pub fn is_admin(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client.known.is_admin)
    }

    /// Whether it may call every tool.
    pub(crate) fn sees_all(&self) -> bool {
        self.client.as_ref().is_none_or(|client| client.known.tools.is_none())
    }

    /// Whether it is a client: not every caller is admitted.
    pub(crate) fn is_client(&self) -> bool {
        self.client.is_some()
    }

    /// Whether every caller is admitted, and no proxy seems to have passed its request on.
    pub(crate) fn is_direct(&self) -> bool {
        !self.is_client() && !self.is_relayed
    }

    /// Whether it may know of a tool, and call it.
    pub fn may_call(&self, tool: &str) -> bool {
        let tools = self.client.as_ref().and_then(|client| client.known.tools.as_ref());
        tools.is_none_or(|tools| tools.iter().any(|pattern| fits(pattern, tool)))
    }

    /// Whether it may read the server's numbers, which name tools.
    pub(crate) fn may_read_metrics(&self) -> bool {
        let said = self.client.as_ref().and_then(|client| client.known.metrics);
        said.unwrap_or_else(|| self.sees_all() || self.is_admin())
    }

    /// Whether it may read what goes on: failures, too, which have the arguments of other callers in them.
    pub(crate) fn may_read_status(&self) -> bool {
        let known = self.client.as_ref().map(|client| &client.known);
        known.map_or(!self.is_relayed, |known| known.is_admin || known.metrics == Some(true))
    }

    /// Counts a call of it.
    ///
    /// # Errors
    ///
    /// When it calls more often than it may: RESOURCE_EXHAUSTED, with the time after which to try again.
    pub fn take(&self) -> Result<(), Failed> {
        if let Some(addresses) = &self.addresses {
            return addresses.take(self.address);
        }
        self.client.as_ref().and_then(|client| client.bucket.as_ref()).map_or(Ok(()), |bucket| bucket.take())
    }

    /// What a call of a tool that it may not call ends with. It is the same whether there is such a tool.
    pub(crate) fn denied(tool: &str) -> Failed {
        Failed::new(Code::PermissionDenied, Failed::named("the caller may not call a tool named", tool))
    }
}

/// Whether a name fits a pattern, in which `*` is any text.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some((_, after)) = name.split_once(part) else { return false };
        name = after;
    }
    name.ends_with(last)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn peer(names: &[&str]) -> Peer {
        Peer { names: names.iter().map(|name| (*name).into()).collect(), ..Peer::default() }
    }

    fn client(name: &str) -> Known {
        Known { name: Some(name.into()), ..Known::default() }
    }

    fn with_token(name: &str) -> Known {
        Known { token: Some(digest_of(name.as_bytes())), ..client(name) }
    }

    #[test]
    fn a_digest_is_sha_256() {
        let text: String = digest_of(b"abc").iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn callers_need_a_token_that_is_known() {
        let clients = Clients::of_tokens(["ab", "cd"]);
        for shown in [Some(""), Some("a"), Some("aa"), Some("abc")] {
            let refused = clients.admit(shown.map(str::as_bytes), &Peer::default()).err();
            assert_eq!(refused, Some(Stranger::Unknown), "{shown:?}");
        }
        assert_eq!(clients.admit(None, &Peer::default()).err(), Some(Stranger::Unproven));
        for shown in ["ab", "cd"] {
            let caller = clients.admit(Some(shown.as_bytes()), &Peer::default()).expect("admitted");
            assert!(caller.sees_all() && caller.is_admin() && caller.name().is_none());
        }
        for shown in [None, Some(&b"x"[..])] {
            assert!(Clients::default().admit(shown, &Peer::default()).is_ok());
        }
    }

    #[test]
    fn tokens_are_not_shown() {
        let clients = Clients::of_tokens(["secret"]);
        let caller = clients.admit(Some(b"secret"), &Peer::default()).expect("admitted");
        assert_eq!(format!("{clients:?} {caller:?}"), "Clients(1) Caller { name: None, .. }");
    }

    #[test]
    fn a_certificate_is_as_good_as_a_token_and_a_client_with_both_shows_both() {
        let clients = Clients::new(
            [
                Known { certificate: Some("ann".into()), ..client("ann") },
                Known { certificate: Some("bob".into()), ..with_token("bob") },
            ],
            None,
        );
        let name = |token: Option<&str>, names: &[&str]| {
            let caller = clients.admit(token.map(str::as_bytes), &peer(names)).ok()?;
            caller.name().map(|name| name.to_string())
        };
        assert_eq!(name(None, &["other", "ann"]).as_deref(), Some("ann"));
        assert_eq!(name(None, &["bob"]), None);
        assert_eq!(name(Some("bob"), &["ann"]), None);
        assert_eq!(name(Some("bob"), &["bob"]).as_deref(), Some("bob"));
        // A token that is wrong is not made up for by a certificate.
        assert_eq!(name(Some("x"), &["ann"]), None);
        // Without clients, the authority of certificates has said who may call.
        let caller = Clients::default().admit(None, &peer(&["eve"])).expect("admitted");
        assert_eq!(caller.name().map(|name| &**name), Some("eve"));
    }

    #[test]
    fn callers_have_a_share_each_where_there_are_several() {
        let party = |clients: &Clients, token: Option<&[u8]>, address: Option<&str>| {
            let address = address.map(|address| address.parse().expect("an address"));
            let caller = clients.admit(token, &Peer { address, ..Peer::default() }).expect("admitted");
            caller.party().map(|party| party.to_string())
        };
        let two = Clients::new([with_token("ann"), with_token("bob")], None);
        assert_eq!(party(&two, Some(b"ann"), Some("127.0.0.1")).as_deref(), Some("ann"));
        let one = Clients::new([with_token("ann")], None);
        assert_eq!(party(&one, Some(b"ann"), Some("10.0.0.1")), None);
        let open = Clients::default();
        assert_eq!(party(&open, None, Some("10.0.0.1")).as_deref(), Some("address 10.0.0.1"));
        assert_eq!(party(&open, None, Some("2001:db8::1")).as_deref(), Some("address 2001:db8::"));
        for local in [Some("127.0.0.1"), Some("127.1.2.3"), Some("::ffff:127.0.0.1"), Some("::1"), None] {
            assert_eq!(party(&open, None, local), None, "{local:?}");
        }
    }

    #[test]
    fn what_a_proxy_passes_on_is_of_no_operator_and_has_a_share() {
        let admit = |address: Option<&str>, is_relayed| {
            let address = address.map(|address| address.parse().expect("an address"));
            let peer = Peer { address, is_relayed, ..Peer::default() };
            let caller = Clients::default().admit(None, &peer).expect("admitted");
            assert_eq!((caller.is_direct(), caller.may_read_status()), (!is_relayed, !is_relayed));
            caller.party().map(|party| party.to_string())
        };
        for local in [Some("127.0.0.1"), None] {
            assert_eq!(admit(local, false), None);
        }
        assert_eq!(admit(Some("127.0.0.1"), true).as_deref(), Some("address 127.0.0.1"));
        assert_eq!(admit(None, true).as_deref(), Some("unix socket"));
        // A client is known by its token, whatever has passed its request on.
        let two = Clients::new([Known { is_admin: true, ..with_token("ann") }, with_token("bob")], None);
        let relayed = Peer { is_relayed: true, ..Peer::default() };
        let caller = two.admit(Some(b"ann"), &relayed).expect("admitted");
        assert!(caller.is_admin() && caller.may_read_status() && !caller.is_direct());
    }

    #[test]
    fn a_client_whose_time_is_over_is_refused() {
        let now = SystemTime::now();
        let expires = |at| Clients::new([Known { expires: Some(at), ..with_token("a") }], None);
        let admit = |clients: Clients| clients.admit(Some(b"a"), &Peer::default()).err();
        assert_eq!(admit(expires(now - Duration::from_secs(1))), Some(Stranger::Expired));
        assert_eq!(admit(expires(now + Duration::from_secs(1000))), None);
    }

    #[test]
    fn patterns_name_tools() {
        for (pattern, name, wanted) in [
            ("add", "add", true),
            ("add", "adds", false),
            ("*", "", true),
            ("math.*", "math.sin", true),
            ("math.*", "maths", false),
            ("*.sin", "math.sin", true),
            ("a*b*c", "axbxc", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("*a*", "bab", true),
            ("ab*b", "ab", false),
        ] {
            assert_eq!(fits(pattern, name), wanted, "{pattern} {name}");
        }
    }

    #[test]
    fn what_a_client_may_do() {
        let tools = Some(vec!["add".into(), "math.*".into()]);
        let made = |known: Known| {
            let clients = Clients::new([Known { token: Some(digest_of(b"t")), ..known }], None);
            clients.admit(Some(b"t"), &Peer::default()).expect("admitted")
        };
        let some = made(Known { tools: tools.clone(), ..Known::default() });
        assert!(some.may_call("math.sin") && !some.may_call("sub") && !some.may_read_metrics());
        let admin = made(Known { tools, is_admin: true, ..Known::default() });
        assert!(admin.is_admin() && admin.may_read_metrics() && !admin.may_call("sub"));
        let reader = made(Known { tools: Some(Vec::new()), metrics: Some(true), ..Known::default() });
        assert!(reader.may_read_metrics() && !reader.may_call("add"));
        assert!(Caller::default().may_call("add") && !Caller::default().is_admin());
    }

    #[test]
    fn rates_are_of_clients_and_survive_a_change() {
        let rate = Rate::new(0.001, 1);
        let made = || {
            let own = Known { rate: Rate::new(0.001, 2), ..with_token("b") };
            Clients::new([with_token("a"), own], rate)
        };
        let first = made();
        let take = |clients: &Clients, token: &[u8]| {
            clients.admit(Some(token), &Peer::default()).expect("admitted").take().is_ok()
        };
        assert_eq!([take(&first, b"a"), take(&first, b"a")], [true, false]);
        assert_eq!([take(&first, b"b"), take(&first, b"b"), take(&first, b"b")], [true, true, false]);
        let second = made().after(&first);
        assert!(!take(&second, b"a"));
        let other = Clients::new([with_token("a")], Rate::new(0.002, 1)).after(&first);
        assert!(take(&other, b"a"));
    }

    #[test]
    fn without_clients_rates_are_of_addresses() {
        let clients = Clients::new([], Rate::new(0.001, 1));
        let take = |last: u8| {
            let peer = Peer { address: Some(IpAddr::from([10, 0, 0, last])), ..Peer::default() };
            clients.admit(None, &peer).expect("admitted").take().is_ok()
        };
        assert_eq!([take(1), take(2), take(1)], [true, true, false]);
    }
}
