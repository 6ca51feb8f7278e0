//! Publish and subscribe: topics, patterns, and the bus.

mod pattern;

pub use pattern::{Pattern, PatternError, TopicError, check_topic};
