//! How often callers may call: a bucket of tokens for each of them.
//!
//! A bucket is one number, the time at which it would be full again (the generic cell rate algorithm).
//!
//! Source: ITU-T I.371, annex A.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ropewalk_sync::Mutex;

use crate::failed::{Code, Failed, Shed};

/// Addresses that have a bucket of their own; further ones share one. An entry has 32 bytes at most, so the table has
/// less than 5 MB.
const MOST: usize = 65_536;
/// How long a table that has no room is not searched for entries that can go: a search looks at all of them.
const SEARCHED_EVERY: u64 = 1_000_000_000;

/// So many calls a second on average, and so many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Nanoseconds that a call is worth.
    interval: u64,
    /// Nanoseconds by which a bucket may be behind: those of all calls of a burst but the first.
    tolerance: u64,
}

impl Rate {
    /// So many calls a second, and so many at once; `None` if either is none, or so many that they are no limit.
    pub fn new(per_second: f64, burst: u32) -> Option<Self> {
        let interval = Duration::try_from_secs_f64(1.0 / per_second).ok()?.as_nanos();
        let interval = u64::try_from(interval).ok().filter(|interval| *interval > 0 && per_second > 0.0)?;
        let tolerance = interval.checked_mul(u64::from(burst.checked_sub(1)?))?;
        Some(Self { interval, tolerance })
    }

    /// The bucket after a call now, or how long until it has room for one.
    fn step(self, full_at: u64, now: u64) -> Result<u64, Duration> {
        let behind = full_at.saturating_sub(now);
        match behind.checked_sub(self.tolerance).filter(|early| *early > 0) {
            Some(early) => Err(Duration::from_nanos(early)),
            None => Ok(full_at.max(now).saturating_add(self.interval)),
        }
    }
}

/// The failure of a call that came so much too early.
fn exceeded(early: Duration) -> Failed {
    let text = format!("the caller calls too often. Try again in {:.3} s", early.as_secs_f64());
    Failed::new(Code::ResourceExhausted, text).retry_after(early).shed(Shed::Rate)
}

/// Nanoseconds since the first call of this.
fn now() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    u64::try_from(BEGAN.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The bucket of a client.
#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) rate: Rate,
    /// When it is full, in nanoseconds of `now`. Any thread changes it, and it orders nothing else: relaxed.
    full_at: AtomicU64,
}

impl Bucket {
    pub(super) fn new(rate: Rate) -> Self {
        Self { rate, full_at: AtomicU64::new(0) }
    }

    pub(super) fn take(&self) -> Result<(), Failed> {
        let now = now();
        let mut early = Duration::ZERO;
        let taken = self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
            self.rate.step(full_at, now).inspect_err(|wait| early = *wait).ok()
        });
        taken.map(drop).map_err(|_| exceeded(early))
    }
}

/// The buckets of addresses.
#[derive(Debug)]
pub(super) struct Addresses {
    rate: Rate,
    most: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// When the bucket of each is full.
    full_at: HashMap<Option<IpAddr>, u64>,
    /// The bucket of all that found no room.
    rest: u64,
    /// When there was a search for room last.
    searched: Option<u64>,
}

impl Addresses {
    pub(super) fn new(rate: Rate) -> Self {
        Self { rate, most: MOST, table: Mutex::default() }
    }

    /// Takes one for an address; `None` is the unix socket, all of whose callers share one.
    pub(super) fn take(&self, address: Option<IpAddr>) -> Result<(), Failed> {
        self.take_at(address.map(network), now()).map_err(exceeded)
    }

    fn take_at(&self, address: Option<IpAddr>, now: u64) -> Result<(), Duration> {
        let mut table = self.table.lock();
        let table = &mut *table;
        if table.full_at.len() >= self.most && !table.full_at.contains_key(&address) {
            // A bucket that is full says nothing that a new one does not.
            if table.searched.is_none_or(|last| now.saturating_sub(last) >= SEARCHED_EVERY) {
                table.searched = Some(now);
                table.full_at.retain(|_, full_at| *full_at > now);
            }
            if table.full_at.len() >= self.most {
                table.rest = self.rate.step(table.rest, now)?;
                return Ok(());
            }
        }
        let full_at = table.full_at.entry(address).or_insert(0);
        *full_at = self.rate.step(*full_at, now)?;
        Ok(())
    }
}

/// What one caller has of addresses: all of IPv4, and of IPv6 the network of 64 bits, of which hosts choose the rest.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(Ipv6Addr::LOCALHOST) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        IpAddr::V6(long) => IpAddr::V6(Ipv6Addr::from_bits(long.to_bits() & !u128::from(u64::MAX))),
        short => short,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(per_second: f64, burst: u32) -> Rate {
        Rate::new(per_second, burst).expect("a rate")
    }

    #[test]
    fn a_burst_is_taken_and_then_one_each_interval() {
        let rate = rate(10.0, 3);
        let (mut full_at, start) = (0, 5_000_000_000);
        for _ in 0..3 {
            full_at = rate.step(full_at, start).expect("room");
        }
        assert_eq!(rate.step(full_at, start), Err(Duration::from_millis(100)));
        assert_eq!(rate.step(full_at, start + 40_000_000), Err(Duration::from_millis(60)));
        full_at = rate.step(full_at, start + 100_000_000).expect("room");
        assert!(rate.step(full_at, start + 100_000_000).is_err());
        // A pause fills the bucket, and no more than that.
        for _ in 0..3 {
            full_at = rate.step(full_at, start + 9_000_000_000).expect("room");
        }
        assert!(rate.step(full_at, start + 9_000_000_000).is_err());
    }

    #[test]
    fn rates_that_are_none_are_refused() {
        for (per_second, burst) in
            [(0.0, 1), (-1.0, 1), (f64::NAN, 1), (f64::INFINITY, 1), (1.0, 0), (1e10, 1)]
        {
            assert_eq!(Rate::new(per_second, burst), None, "{per_second} {burst}");
        }
        assert!(Rate::new(1e-6, 1).is_some());
    }

    #[test]
    fn a_refusal_says_when_to_try_again() {
        let bucket = Bucket::new(rate(0.5, 1));
        bucket.take().expect("room");
        let failed = bucket.take().expect_err("too early");
        assert_eq!((failed.code, failed.shed), (Code::ResourceExhausted, Some(Shed::Rate)));
        let wait = failed.retry_after.expect("a time");
        assert!(wait > Duration::from_secs(1) && wait <= Duration::from_secs(2), "{wait:?}");
        assert!(failed.message.contains("Try again in "), "{}", failed.message);
    }

    #[test]
    fn the_table_of_addresses_is_bounded() {
        let addresses = Addresses { rate: rate(1.0, 1), most: 4, table: Mutex::default() };
        let of = |last: u8| Some(IpAddr::from([10, 0, 0, last]));
        let start = 1_000_000_000_000;
        for last in 0..4 {
            addresses.take_at(of(last), start).expect("room");
            addresses.take_at(of(last), start).expect_err("it has had its one");
        }
        // A fifth and a sixth share what is left, and the four are still known.
        addresses.take_at(of(5), start).expect("room");
        addresses.take_at(of(6), start).expect_err("the fifth has had it");
        addresses.take_at(of(0), start).expect_err("known");
        assert_eq!(addresses.table.lock().full_at.len(), 4);
        // Buckets that are full again make room.
        addresses.take_at(of(7), start + 1_000_000_000).expect("room");
        assert_eq!(addresses.table.lock().full_at.len(), 1);
    }

    #[test]
    fn a_caller_has_one_network() {
        let same = |one: &str, other: &str| {
            network(one.parse().expect("an address")) == network(other.parse().expect("an address"))
        };
        assert!(same("2001:db8::1", "2001:db8::ffff:1"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(same("::ffff:10.0.0.1", "10.0.0.1"));
        assert!(!same("10.0.0.1", "10.0.0.2"));
    }
}
