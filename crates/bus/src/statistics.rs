//! The counters of a bus.

/// The counters of one topic and one type of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicStatistics {
    /// The topic's name.
    pub topic: String,
    /// Events published.
    pub published: u64,
    /// Handlers that those events reached, before filters.
    pub reached: u64,
    /// Handlers and filters that panicked.
    pub panicked: u64,
    /// Handlers that listen now.
    pub subscribers: usize,
}

/// The counters of a bus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Events published.
    pub published: u64,
    /// Handlers that those events reached, before filters.
    pub reached: u64,
    /// Events that the filters of the current handlers rejected.
    pub filtered: u64,
    /// Handlers and filters that panicked.
    pub panicked: u64,
    /// Handlers that listen now.
    pub subscribers: usize,
    /// Topics that were published to or requested.
    pub topics: Vec<TopicStatistics>,
}
