//! What the rooms of this process report of themselves: one bus, whose handlers are mailboxes.
//!
//! A room reports with its locks held, and a worker's end is no time to wait: so a report is kept for whoever listens,
//! and nobody is called. While nobody listens nothing is made.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::bus::{Bus, Subscription, Topic};
use crate::error::SubscribeError;
use crate::mailbox::Mailbox;
use crate::statistics::Statistics;

/// One field of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    /// The report has no use for it.
    Nothing,
    /// A number.
    Number(i64),
    /// A text.
    Text(&'a str),
}

/// Something that happened in a room. Its receiver makes of it what it needs: an object of Python's, say.
pub trait Report: fmt::Debug + Send + Sync {
    /// The topic that it is published on.
    fn topic(&self) -> &'static str;

    /// What there is to say, in an order that the room and its receivers agree on.
    fn fields(&self) -> Vec<Field<'_>>;
}

/// A report as it is published: every receiver has the same one.
pub type Shared = Arc<dyn Report>;

static REPORTS: OnceLock<Bus> = OnceLock::new();

/// Has what is reported on the topics that match a pattern put into a mailbox, until the subscription is dropped.
///
/// # Errors
///
/// When the pattern is malformed.
pub fn collect(pattern: &str, mailbox: &Arc<Mailbox<Shared>>) -> Result<Subscription, SubscribeError> {
    let mailbox = Arc::clone(mailbox);
    let bus = REPORTS.get_or_init(Bus::new);
    bus.subscribe(pattern, move |report: &Shared| mailbox.push(Arc::clone(report)))
}

/// What was reported so far, to how many mailboxes.
pub fn statistics() -> Statistics {
    REPORTS.get().map(Bus::statistics).unwrap_or_default()
}

/// What a room reports by: its topics.
pub struct Reporter<const N: usize> {
    names: [&'static str; N],
    topics: OnceLock<[Topic<Shared>; N]>,
}

impl<const N: usize> fmt::Debug for Reporter<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reporter").field(&self.names).finish()
    }
}

impl<const N: usize> Reporter<N> {
    /// A reporter for these topics.
    pub const fn new(names: [&'static str; N]) -> Self {
        Self { names, topics: OnceLock::new() }
    }

    /// Reports on the topic with this place, if anybody listens: else nothing is made.
    ///
    /// # Panics
    ///
    /// When there is no such place, or a topic is malformed.
    pub fn report(&self, place: usize, make: impl FnOnce() -> Shared) {
        // As long as nobody has listened there is no bus. Making one may wait for every core to pass through the
        // scheduler, which is longer than a worker takes to start.
        let Some(bus) = REPORTS.get() else { return };
        let topics = self.topics.get_or_init(|| {
            self.names.map(|name| match bus.topic(name) {
                Ok(topic) => topic,
                Err(error) => panic!("{error}"),
            })
        });
        let topic = &topics[place];
        if topic.is_heard() {
            // It is never closed, and its handlers publish nothing.
            let _ = topic.publish(&make());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backlog::{Overflow, Taken};

    #[derive(Debug)]
    struct Happened(&'static str, i64);

    impl Report for Happened {
        fn topic(&self) -> &'static str {
            self.0
        }

        fn fields(&self) -> Vec<Field<'_>> {
            vec![Field::Number(self.1)]
        }
    }

    #[test]
    fn what_nobody_listens_to_is_not_made_and_the_rest_comes_in_order() {
        static REPORTER: Reporter<2> = Reporter::new(["test.a", "test.b"]);
        REPORTER.report(0, || unreachable!("nobody listens"));
        let mailbox = Arc::new(Mailbox::new(100, Overflow::DropNewest, None));
        let subscription = collect("test.a", &mailbox).expect("sound");
        REPORTER.report(1, || unreachable!("nobody listens to this one"));
        for number in 0..3 {
            REPORTER.report(0, || Arc::new(Happened("test.a", number)));
        }
        drop(subscription);
        REPORTER.report(0, || unreachable!("nobody listens any more"));
        for number in 0..3 {
            let Taken::Message(report) = mailbox.take() else { panic!("three were reported") };
            assert_eq!((report.topic(), report.fields()), ("test.a", vec![Field::Number(number)]));
        }
        assert!(statistics().topics.iter().any(|topic| topic.topic == "test.a" && topic.published == 3));
    }
}
