//! The types of sockets, and which may talk to which.

use std::fmt;

macro_rules! socket_types {
    ($($(#[$meta:meta])* $variant:ident = $number:literal $name:literal <- [$($peer:ident)*],)*) => {
        /// The type of a socket. The numbers are libzmq's.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(i32)]
        pub enum SocketType { $($(#[$meta])* $variant = $number,)* }

        impl SocketType {
            /// All types, by their numbers.
            pub const ALL: [Self; 21] = [$(Self::$variant),*];

            /// The name on the wire.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Whether a peer of this type is one that such a socket can talk to.
            pub const fn accepts(self, peer: Self) -> bool {
                match self { $(Self::$variant => matches!(peer, $(Self::$peer)|*),)* }
            }
        }
    };
}

// A peer that no pattern names is refused: `Stream` speaks no ZMTP and has no peer but itself here.
socket_types! {
    /// One to one.
    Pair = 0 "PAIR" <- [Pair],
    /// Sends to all who have subscribed.
    Pub = 1 "PUB" <- [Sub XSub],
    /// Receives what it has subscribed to.
    Sub = 2 "SUB" <- [Pub XPub],
    /// Asks, and waits for the answer.
    Req = 3 "REQ" <- [Rep Router],
    /// Answers.
    Rep = 4 "REP" <- [Req Dealer],
    /// Asks without waiting; balances load.
    Dealer = 5 "DEALER" <- [Rep Dealer Router],
    /// Answers whom it names.
    Router = 6 "ROUTER" <- [Req Dealer Router],
    /// Receives work.
    Pull = 7 "PULL" <- [Push],
    /// Distributes work.
    Push = 8 "PUSH" <- [Pull],
    /// PUB that sees subscriptions.
    XPub = 9 "XPUB" <- [Sub XSub],
    /// SUB that sends subscriptions as messages.
    XSub = 10 "XSUB" <- [Pub XPub],
    /// Plain TCP, without ZMTP.
    Stream = 11 "STREAM" <- [Stream],
    /// Answers clients; safe for threads.
    Server = 12 "SERVER" <- [Client],
    /// Talks to a server; safe for threads.
    Client = 13 "CLIENT" <- [Server],
    /// Sends to groups.
    Radio = 14 "RADIO" <- [Dish],
    /// Receives from the groups that it has joined.
    Dish = 15 "DISH" <- [Radio],
    /// Receives work; safe for threads.
    Gather = 16 "GATHER" <- [Scatter],
    /// Distributes work; safe for threads.
    Scatter = 17 "SCATTER" <- [Gather],
    /// Datagrams.
    Dgram = 18 "DGRAM" <- [Dgram],
    /// Many to many, by numbers.
    Peer = 19 "PEER" <- [Peer],
    /// One to one; safe for threads.
    Channel = 20 "CHANNEL" <- [Channel],
}

impl SocketType {
    /// The type of this name, as it stands on the wire.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name().as_bytes() == name)
    }

    /// Whether this end sends its identity.
    pub(crate) const fn tells_identity(self) -> bool {
        matches!(self, Self::Req | Self::Dealer | Self::Router)
    }
}

impl TryFrom<i32> for SocketType {
    type Error = i32;

    /// The type of this number; the number itself if there is none.
    fn try_from(number: i32) -> Result<Self, i32> {
        usize::try_from(number).ok().and_then(|at| Self::ALL.get(at).copied()).ok_or(number)
    }
}

impl fmt::Display for SocketType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_lead_back() {
        for (number, kind) in (0..).zip(SocketType::ALL) {
            assert_eq!(kind as i32, number);
            assert_eq!(SocketType::try_from(number), Ok(kind));
            assert_eq!(SocketType::from_name(kind.name().as_bytes()), Some(kind));
        }
        assert_eq!(SocketType::try_from(21), Err(21));
        assert_eq!(SocketType::try_from(-1), Err(-1));
        assert_eq!(SocketType::from_name(b"pair"), None);
    }

    #[test]
    fn talking_is_mutual() {
        for ours in SocketType::ALL {
            for theirs in SocketType::ALL {
                assert_eq!(ours.accepts(theirs), theirs.accepts(ours), "{ours} and {theirs}");
            }
            assert!(SocketType::ALL.into_iter().any(|theirs| ours.accepts(theirs)));
        }
        assert!(!SocketType::Req.accepts(SocketType::Dealer));
    }
}
