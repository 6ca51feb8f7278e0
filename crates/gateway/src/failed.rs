//! Why a call has no result: the codes of gRPC, and what HTTP says for each.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use ropewalk_pool::{Failure, Limit, Phase, Refused};

/// The codes of gRPC that a call can end with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The caller has left, or has cancelled the call.
    Cancelled,
    /// The tool raised.
    Unknown,
    /// The arguments do not fit the tool.
    InvalidArgument,
    /// The caller's time is up.
    DeadlineExceeded,
    /// There is no such tool.
    NotFound,
    /// What the tool was to make is there already. Only tools say so.
    AlreadyExists,
    /// The caller may not call the tool.
    PermissionDenied,
    /// The queue is full, or the caller has called too often.
    ResourceExhausted,
    /// The tool is called in another way.
    FailedPrecondition,
    /// Another caller was faster: the work is worth a new try from its begin. Only tools say so.
    Aborted,
    /// The arguments fit, but there is nothing so far. Only tools say so.
    OutOfRange,
    /// The tool does not do that. Only tools say so.
    Unimplemented,
    /// A fault of the server.
    Internal,
    /// The tool's worker died, or the server leaves: the call may be tried again.
    Unavailable,
    /// Data are lost for good. Only tools say so.
    DataLoss,
    /// The caller did not say who it is.
    Unauthenticated,
}

impl Code {
    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Self; 16] = [
        Self::Cancelled,
        Self::Unknown,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::NotFound,
        Self::AlreadyExists,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Aborted,
        Self::OutOfRange,
        Self::Unimplemented,
        Self::Internal,
        Self::Unavailable,
        Self::DataLoss,
        Self::Unauthenticated,
    ];

    /// Its name, in capitals.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cancelled => "CANCELLED",
            Self::Unknown => "UNKNOWN",
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::NotFound => "NOT_FOUND",
            Self::AlreadyExists => "ALREADY_EXISTS",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Self::FailedPrecondition => "FAILED_PRECONDITION",
            Self::Aborted => "ABORTED",
            Self::OutOfRange => "OUT_OF_RANGE",
            Self::Unimplemented => "UNIMPLEMENTED",
            Self::Internal => "INTERNAL",
            Self::Unavailable => "UNAVAILABLE",
            Self::DataLoss => "DATA_LOSS",
            Self::Unauthenticated => "UNAUTHENTICATED",
        }
    }

    /// The code of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.name() == name)
    }

    /// The status of HTTP that says the same, as Google's API guide maps them.
    pub fn status(self) -> http::StatusCode {
        use http::StatusCode as Status;
        match self {
            // Nginx's number for a client that has closed its request.
            Self::Cancelled => Status::from_u16(499).unwrap_or(Status::BAD_REQUEST),
            Self::Unknown | Self::Internal | Self::DataLoss => Status::INTERNAL_SERVER_ERROR,
            Self::InvalidArgument => Status::UNPROCESSABLE_ENTITY,
            Self::FailedPrecondition | Self::OutOfRange => Status::BAD_REQUEST,
            Self::AlreadyExists | Self::Aborted => Status::CONFLICT,
            Self::Unimplemented => Status::NOT_IMPLEMENTED,
            Self::DeadlineExceeded => Status::GATEWAY_TIMEOUT,
            Self::NotFound => Status::NOT_FOUND,
            Self::PermissionDenied => Status::FORBIDDEN,
            Self::ResourceExhausted => Status::TOO_MANY_REQUESTS,
            Self::Unavailable => Status::SERVICE_UNAVAILABLE,
            Self::Unauthenticated => Status::UNAUTHORIZED,
        }
    }
}

/// What is wrong with an argument.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
pub struct Violation {
    /// Such as `items[2].name`; empty for the whole.
    pub field: String,
    /// What is wrong with it.
    pub description: String,
}

/// Violations of a call that its caller reads.
const MOST_VIOLATIONS: usize = 100;
/// Characters of a field, and of what is wrong with it.
const LONGEST_TEXT: usize = 200;

impl Violation {
    /// As many of these as a caller reads, and as much of each. What is wrong may be as much as a worker can send: a
    /// list has a violation for each item, and a field has a key that the caller chose. A last one counts the others.
    pub fn bounded(found: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let cut = |Self { field, description }| Self { field: cut(field), description: cut(description) };
        let mut found = found.into_iter();
        let mut kept: Vec<Self> = found.by_ref().take(MOST_VIOLATIONS).map(cut).collect();
        let more = found.fold(0_usize, |more, one| more.saturating_add(one.count()));
        if more > 0 {
            kept.push(Self { field: String::new(), description: format!("and {more} more") });
        }
        kept
    }

    /// For how many it stands: one, or those that its text counts, as the last one of a bounded list does.
    pub(crate) fn count(&self) -> usize {
        let counted = self.description.strip_prefix("and ").and_then(|text| text.strip_suffix(" more"));
        counted.filter(|_| self.field.is_empty()).and_then(|number| number.parse().ok()).unwrap_or(1)
    }
}

/// A text of so many characters at most, whose end says if there was more.
pub(crate) fn cut(mut text: String) -> String {
    // A character has a byte at least.
    if text.len() > LONGEST_TEXT && text.chars().nth(LONGEST_TEXT).is_some() {
        let end = text.char_indices().nth(LONGEST_TEXT - 3).map_or(text.len(), |(at, _)| at);
        text.truncate(end);
        text.push_str("...");
    }
    text
}

/// Why the server let go of a call that no worker had begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shed {
    /// As many calls waited as may.
    QueueFull,
    /// Its deadline passed before a worker was free.
    Deadline,
    /// A full queue dropped it for a newer one.
    Dropped,
    /// The server was leaving.
    Leaving,
    /// Its caller calls more often than it may.
    Rate,
}

impl Shed {
    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Self; 5] =
        [Self::QueueFull, Self::Deadline, Self::Dropped, Self::Leaving, Self::Rate];

    /// Its name in labels.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Deadline => "deadline",
            Self::Dropped => "dropped",
            Self::Leaving => "leaving",
            Self::Rate => "rate",
        }
    }
}

/// Why a call has no result.
#[derive(Clone, Debug)]
pub struct Failed {
    /// Which kind of failure.
    pub code: Code,
    /// What failed, for people.
    pub message: Cow<'static, str>,
    /// What is wrong with the arguments, if that is it.
    pub violations: Vec<Violation>,
    /// When it is worth a new try, if it is.
    pub retry_after: Option<Duration>,
    /// The status of HTTP, if it says more than the code's.
    pub status: Option<http::StatusCode>,
    /// Why no worker began the call, if the server let go of it.
    pub shed: Option<Shed>,
    /// Whether the end of the tool's workers refused the call, or ended it.
    pub at_end: bool,
    /// What the tool raised. For the operator: callers are never shown it.
    pub raised: Option<Arc<Thrown>>,
}

/// An exception of a tool.
#[derive(Clone, Debug)]
pub struct Thrown {
    /// Its class, unless it is an answer of the tool's.
    pub class: Option<Arc<str>>,
    /// Where it was raised, if that is known.
    pub traceback: Option<Arc<str>>,
}

/// How long a client that meets a full queue is asked to stay away.
const FULL_FOR: Duration = Duration::from_secs(1);

impl Failed {
    /// A failure with a text and no more.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        let message = message.into();
        Self {
            code,
            message,
            violations: Vec::new(),
            retry_after: None,
            status: None,
            shed: None,
            at_end: false,
            raised: None,
        }
    }

    /// As many calls wait as may.
    pub(crate) fn full(waiting: usize, most: usize) -> Self {
        let text = format!("the server is full: {waiting} calls wait, and {most} may. Try again later");
        Self::new(Code::ResourceExhausted, text).retry_after(FULL_FOR).shed(Shed::QueueFull)
    }

    /// There is no such tool.
    pub(crate) fn no_tool(name: &str) -> Self {
        Self::new(Code::NotFound, Self::named("there is no tool named", name))
    }

    /// A text that ends with a name of a caller's.
    pub(crate) fn named(text: &str, name: &str) -> String {
        format!("{text} {:?}", shortened(name))
    }

    /// There is no session of this name to open.
    pub(crate) fn no_session(name: &str) -> Self {
        Self::new(Code::NotFound, format!("there is no session named {:?}", shortened(name)))
    }

    /// The server leaves, and its workers with it.
    pub(crate) fn leaving() -> Self {
        Self { at_end: true, ..Self::new(Code::Unavailable, "the server is leaving") }
    }

    /// The same, with a status of HTTP of its own.
    pub(crate) fn with_status(mut self, status: http::StatusCode) -> Self {
        self.status = Some(status);
        self
    }

    /// The same, of a call that the server let go of.
    pub(crate) fn shed(mut self, why: Shed) -> Self {
        self.shed = Some(why);
        self
    }

    /// The same, of a call that may be worth a new try after this time.
    pub(crate) fn retry_after(mut self, time: Duration) -> Self {
        self.retry_after = Some(time);
        self
    }
}

/// A name of a caller's, for a text.
pub(crate) fn shortened(name: &str) -> &str {
    let end = name.char_indices().nth(64).map_or(name.len(), |(at, _)| at);
    name.get(..end).unwrap_or_default()
}

/// A task that the engine did not take.
impl From<&Refused> for Failed {
    fn from(refused: &Refused) -> Self {
        match refused {
            Refused::Full(waiting, most) | Refused::MustWait(waiting, most) => Self::full(*waiting, *most),
            Refused::Closed | Refused::Forked => Self::leaving().shed(Shed::Leaving),
            Refused::Broken(failure) => {
                Self::new(Code::Unavailable, format!("the tool's workers are gone: {}", failure.cause()))
            }
            Refused::Busy | Refused::SessionBusy => {
                Self::new(Code::ResourceExhausted, "the session is busy").retry_after(FULL_FOR)
            }
            Refused::SessionClosed => Self::new(Code::FailedPrecondition, "the session was closed"),
            Refused::Lost(failure) => {
                Self::new(Code::Unavailable, format!("the session is lost: {}", failure.cause()))
            }
        }
    }
}

/// A task that has no result.
impl From<&Failure> for Failed {
    fn from(failure: &Failure) -> Self {
        let cause: Arc<str> = failure.cause();
        match failure {
            Failure::TimedOut(Limit::Deadline, phase) => {
                let failed = Self::new(Code::DeadlineExceeded, "the deadline of the call has passed");
                if *phase == Phase::Queued { failed.shed(Shed::Deadline) } else { failed }
            }
            Failure::TimedOut(..) => Self::new(Code::DeadlineExceeded, "the tool took longer than it may"),
            Failure::Dropped { .. } => {
                Self::new(Code::ResourceExhausted, format!("the server is full: {cause}"))
                    .retry_after(FULL_FOR)
                    .shed(Shed::Dropped)
            }
            Failure::Limit { .. } => Self::new(Code::ResourceExhausted, cause.to_string()),
            Failure::Terminated => Self::leaving(),
            Failure::Poisoned { .. } => Self::new(Code::Internal, cause.to_string()),
            _ => Self::new(Code::Unavailable, format!("the tool's worker is gone: {cause}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_says_when_to_try_again() {
        let failed = Failed::from(&Refused::Full(8, 8));
        assert_eq!((failed.code, failed.retry_after), (Code::ResourceExhausted, Some(FULL_FOR)));
        assert_eq!(failed.code.status(), http::StatusCode::TOO_MANY_REQUESTS);
        assert!(failed.message.contains("8 calls wait"), "{}", failed.message);
    }

    #[test]
    fn codes_are_found_by_their_names() {
        for code in Code::ALL {
            assert_eq!(Code::of_name(code.name()), Some(code));
        }
        assert_eq!(Code::of_name("OK"), None);
    }

    #[test]
    fn what_was_let_go_says_why() {
        let shed = |failure: Failure| Failed::from(&failure).shed;
        assert_eq!(Failed::from(&Refused::Closed).shed, Some(Shed::Leaving));
        assert_eq!(shed(Failure::TimedOut(Limit::Deadline, Phase::Queued)), Some(Shed::Deadline));
        assert_eq!(shed(Failure::TimedOut(Limit::Deadline, Phase::Running)), None);
        assert_eq!(shed(Failure::Dropped { depth: 1, capacity: 1 }), Some(Shed::Dropped));
    }

    #[test]
    fn violations_are_bounded_in_number_and_in_length() {
        let long = Violation { field: "ü".repeat(300), description: "x".repeat(200) };
        let found = Violation::bounded(std::iter::repeat_n(long, 5000));
        assert_eq!(found.len(), MOST_VIOLATIONS + 1);
        assert_eq!(found.last().map(|one| &*one.description), Some("and 4900 more"));
        assert_eq!(Violation::bounded(found.clone()), found, "what is bounded stays as it is");
        assert_eq!(found[0].field, format!("{}...", "ü".repeat(LONGEST_TEXT - 3)));
        assert_eq!(found[0].description, "x".repeat(200), "what fits stays whole");
        let exact = Violation { field: "ü".repeat(200), description: String::new() };
        assert_eq!(Violation::bounded([exact.clone()]), [exact]);
    }

    #[test]
    fn long_names_of_callers_are_cut_in_texts() {
        for failed in [Failed::no_tool, Failed::no_session].map(|failed| failed(&"ü".repeat(1000))) {
            assert!(failed.message.chars().count() < 100, "{}", failed.message);
        }
    }
}
