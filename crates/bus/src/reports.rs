//! Reports that the crates of this process publish about themselves: one bus, whose handlers fill mailboxes.
//!
//! A crate reports with its locks held, and must not wait, for instance when a worker ends. So a report is kept in the
//! listeners' mailboxes, and no handler of theirs is called. While nothing listens, no report is made.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::bus::{Bus, Subscription, Topic};
use crate::error::SubscribeError;
use crate::mailbox::Mailbox;
use crate::statistics::Statistics;

/// One field of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    /// The report does not use this field.
    Nothing,
    /// A number.
    Number(i64),
    /// A text.
    Text(&'a str),
}

/// Something that happened in a crate. The receiver converts it to what it needs, such as a Python object.
pub trait Report: fmt::Debug + Send + Sync {
    /// The topic that the report is published on.
    fn topic(&self) -> &'static str;

    /// The fields, in an order that the publishing crate and its receivers agree on.
    fn fields(&self) -> Vec<Field<'_>>;
}

/// A published report: all receivers share it.
pub type Shared = Arc<dyn Report>;

static REPORTS: OnceLock<Bus> = OnceLock::new();

/// Puts the reports on the topics that match a pattern into a mailbox, until the subscription is dropped.
///
/// # Errors
///
/// When the pattern is malformed.
pub fn collect(pattern: &str, mailbox: &Arc<Mailbox<Shared>>) -> Result<Subscription, SubscribeError> {
    let mailbox = Arc::clone(mailbox);
    let bus = REPORTS.get_or_init(Bus::new);
    bus.subscribe(pattern, move |report: &Shared| mailbox.push(Arc::clone(report)))
}

/// The counters of the reports' bus.
pub fn statistics() -> Statistics {
    REPORTS.get().map(Bus::statistics).unwrap_or_default()
}

/// A publisher of reports, with its topics.
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

    /// Publishes a report on the topic at this index. The report is made only if something listens.
    ///
    /// # Panics
    ///
    /// If the index is out of range, or a topic is malformed.
    pub fn report(&self, place: usize, make: impl FnOnce() -> Shared) {
        // There is no bus until the first listener. Making one may wait for every core to pass through the scheduler,
        // which takes longer than starting a worker.
        let Some(bus) = REPORTS.get() else { return };
        let topics = self.topics.get_or_init(|| {
            self.names.map(|name| match bus.topic(name) {
                Ok(topic) => topic,
                Err(error) => panic!("{error}"),
            })
        });
        let topic = &topics[place];
        if topic.has_listeners() {
            // The bus is never closed, and its handlers publish nothing, so this cannot fail.
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
    fn reports_without_listeners_are_not_made_and_others_keep_their_order() {
        static REPORTER: Reporter<2> = Reporter::new(["test.a", "test.b"]);
        REPORTER.report(0, || unreachable!("no listener"));
        let mailbox = Arc::new(Mailbox::new(100, Overflow::DropNewest, None));
        let subscription = collect("test.a", &mailbox).expect("sound");
        REPORTER.report(1, || unreachable!("no listener"));
        for number in 0..3 {
            REPORTER.report(0, || Arc::new(Happened("test.a", number)));
        }
        drop(subscription);
        REPORTER.report(0, || unreachable!("no listener any more"));
        for number in 0..3 {
            let Taken::Message(report) = mailbox.take() else { panic!("three were reported") };
            assert_eq!((report.topic(), report.fields()), ("test.a", vec![Field::Number(number)]));
        }
        assert!(statistics().topics.iter().any(|topic| topic.topic == "test.a" && topic.published == 3));
    }
}
