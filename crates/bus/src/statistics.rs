//! What a bus tells about itself.

/// The counters of one topic and one type of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicStatistics {
    /// Its name.
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
    /// Events that filters kept away from the handlers that listen now.
    pub filtered: u64,
    /// Handlers and filters that panicked.
    pub panicked: u64,
    /// Handlers that listen now.
    pub subscribers: usize,
    /// Topics that were published to, or asked for.
    pub topics: Vec<TopicStatistics>,
}
