//! The state of each type of socket.

use std::collections::{BTreeSet, HashMap, VecDeque};

use crate::conn_ref::ConnRef;
use crate::frame::Frame;
use crate::trie::{Filter, Trie};

/// The state of a REQ socket.
#[derive(Default)]
pub(super) struct Asking {
    /// A request is out, and its reply has not come.
    pub(super) is_out: bool,
    /// The peer that it went to; `None` if that one is gone.
    pub(super) to: Option<ConnRef>,
    /// Counts requests; in front of each with REQ_CORRELATE.
    pub(super) number: u32,
}

/// The state of a REP socket.
#[derive(Default)]
pub(super) struct Answering {
    /// A request was taken whole, and is to be answered.
    pub(super) is_due: bool,
    /// The peer that gets the answer, and the frames in front of it.
    pub(super) to: Option<ConnRef>,
    pub(super) envelope: Vec<Frame>,
}

/// See the module. A socket uses what its type needs.
pub(super) struct Pattern {
    /// ROUTER, STREAM: peers by the name in front of a message.
    pub(super) ids: HashMap<Vec<u8>, u32>,
    /// SERVER, PEER: peers by number.
    pub(super) numbers: HashMap<u32, u32>,
    pub(super) next_number: u32,
    pub(super) asking: Asking,
    pub(super) answering: Answering,
    /// PUB, XPUB: the peers' subscriptions.
    pub(super) subscribers: Trie,
    /// XPUB_MANUAL: the one whose subscription was taken last.
    pub(super) last_subscriber: Option<ConnRef>,
    /// SUB, XSUB: the own subscriptions.
    pub(super) wanted: Filter,
    /// XPUB_MANUAL: requests in the order in which the program receives them.
    pub(super) asked: VecDeque<(Option<ConnRef>, Vec<u8>, bool)>,
    /// XPUB_MANUAL: what peers have asked for and not taken back.
    pub(super) requested: Trie,
    /// RADIO: the peers in each group.
    pub(super) groups: HashMap<Vec<u8>, Vec<u32>>,
    /// DISH: the groups that it is in, and that of the message that is being taken.
    pub(super) joined: BTreeSet<String>,
    pub(super) group: String,
    /// PAIR, CHANNEL: the one peer.
    pub(super) sole: Option<u32>,
    /// ROUTER, PAIR, CHANNEL: connections whose name or place another one has, in the order in which they get it.
    pub(super) aside: VecDeque<ConnRef>,
    /// For publishing.
    pub(super) matching: Vec<u32>,
    pub(super) encoded: Vec<u8>,
}

impl Pattern {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            ids: HashMap::new(),
            numbers: HashMap::new(),
            // libzmq begins at a random number, so that an old name is not mistaken for a new one.
            next_number: (seed as u32) | 1,
            asking: Asking { number: (seed >> 32) as u32, ..Asking::default() },
            answering: Answering::default(),
            subscribers: Trie::new(),
            last_subscriber: None,
            wanted: Filter::new(),
            asked: VecDeque::new(),
            requested: Trie::new(),
            groups: HashMap::new(),
            joined: BTreeSet::new(),
            group: String::new(),
            sole: None,
            aside: VecDeque::new(),
            matching: Vec::new(),
            encoded: Vec::new(),
        }
    }
}
