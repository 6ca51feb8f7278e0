//! What is counted of sessions: those that are open, and how they began and ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::families::{Family, Name, Value};
use crate::tool::Tools;

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Its client has ended it.
    Closed,
    /// The connection to which it belonged has broken.
    Left,
    /// No call came within its idle timeout.
    Idle,
    /// Its worker is gone, and its state with it.
    Lost,
    /// The server leaves.
    Leaving,
}

impl Ended {
    const ALL: [Self; 5] = [Self::Closed, Self::Left, Self::Idle, Self::Lost, Self::Leaving];

    fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Left => "client_left",
            Self::Idle => "idle",
            Self::Lost => "lost",
            Self::Leaving => "leaving",
        }
    }
}

/// What is counted of the sessions of one name. Counts alone, which order nothing: relaxed.
#[derive(Debug)]
pub(crate) struct OfSessions {
    name: Arc<str>,
    opened: AtomicU64,
    ended: [AtomicU64; Ended::ALL.len()],
}

impl OfSessions {
    pub(crate) fn new(name: Arc<str>) -> Self {
        Self { name, opened: AtomicU64::new(0), ended: Default::default() }
    }

    /// One has opened.
    pub(crate) fn opened(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    /// One has ended.
    pub(crate) fn ended(&self, why: Ended) {
        self.ended[why as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// What is counted of sessions so far, and of these tools' from now on.
pub(super) fn counted(
    mut counted: BTreeMap<Arc<str>, Arc<OfSessions>>,
    tools: &Tools,
) -> BTreeMap<Arc<str>, Arc<OfSessions>> {
    for name in tools.sessions().map(|one| one.name()) {
        counted.entry(Arc::clone(name)).or_insert_with(|| Arc::new(OfSessions::new(Arc::clone(name))));
    }
    counted
}

/// The families of these sessions.
pub(super) fn families<'a>(sessions: impl Iterator<Item = &'a Arc<OfSessions>>) -> Vec<Family> {
    let [mut active, mut opened, mut ended] =
        [Name::Sessions, Name::SessionsOpened, Name::SessionsEnded].map(Family::new);
    for one in sessions {
        // Read first: a session that ends meanwhile has been counted as opened.
        let over = Ended::ALL.map(|why| one.ended[why as usize].load(Ordering::Relaxed));
        let begun = one.opened.load(Ordering::Relaxed);
        let name = &one.name;
        active.add(&[("tool", name)], Value::Whole(begun.saturating_sub(over.iter().sum())));
        opened.add(&[("tool", name)], Value::Whole(begun));
        for (why, count) in Ended::ALL.iter().zip(over) {
            ended.add(&[("tool", name), ("cause", &Arc::from(why.name()))], Value::Whole(count));
        }
    }
    vec![active, opened, ended]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_opened_and_not_ended_is_active() {
        let one = Arc::new(OfSessions::new("t".into()));
        for _ in 0..3 {
            one.opened();
        }
        one.ended(Ended::Lost);
        let [active, opened, ended] = &families([&one].into_iter())[..] else { panic!("three families") };
        assert_eq!(active.points[0].1, Value::Whole(2));
        assert_eq!(opened.points[0].1, Value::Whole(3));
        let lost = ended.points.iter().find(|(labels, _)| labels.iter().any(|(_, text)| &**text == "lost"));
        assert_eq!(lost.map(|(_, value)| value), Some(&Value::Whole(1)));
        assert!(Ended::ALL.iter().enumerate().all(|(number, one)| *one as usize == number));
    }
}
