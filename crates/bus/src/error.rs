//! The errors of publishing and subscribing.

use std::fmt;

use crate::pattern::{PatternError, TopicError};

/// Why an event was not published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishError {
    /// The bus is closed.
    Closed,
    /// Handlers publish to handlers, deeper than the bus allows.
    TooDeep {
        /// The greatest permitted depth.
        most: usize,
    },
    /// The topic is malformed.
    Topic(TopicError),
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the bus is closed"),
            Self::TooDeep { most } => write!(
                f,
                "handlers publish to handlers more than {most} deep; hand the event to another thread instead, or give \
                 the bus a greater `max_depth`"
            ),
            Self::Topic(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PublishError {}

/// Why a handler was not added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubscribeError {
    /// The bus is closed.
    Closed,
    /// The pattern is malformed.
    Pattern(PatternError),
}

impl fmt::Display for SubscribeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the bus is closed"),
            Self::Pattern(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SubscribeError {}
