//! Topics, and the patterns that match them.
//!
//! A topic is one segment or more, separated by dots: `orders.new.eu`. A pattern may have `*` in place of a segment,
//! for any one, and `**`, for any number of segments, none included.

use std::fmt;

/// The ways in which a topic or a pattern can be malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The text is empty.
    Empty,
    /// Two dots in a row, or a dot at an end.
    EmptySegment,
    /// A wildcard in a topic.
    Wildcard,
    /// A wildcard that is not a whole segment.
    PartialWildcard,
}

impl Fault {
    fn text(self) -> &'static str {
        match self {
            Self::Empty => "it is empty",
            Self::EmptySegment => "a segment is empty",
            Self::Wildcard => "only a pattern may have a wildcard",
            Self::PartialWildcard => "a wildcard must be a whole segment",
        }
    }
}

macro_rules! malformed {
    ($(#[$meta:meta])* $name:ident, $what:literal) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            text: String,
            fault: Fault,
            at: usize,
        }

        impl $name {
            /// The offset of the fault in bytes.
            pub fn offset(&self) -> usize {
                self.at
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($what, " {:?} is malformed at byte {}: {}"), self.text, self.at, self.fault.text())
            }
        }

        impl std::error::Error for $name {}
    };
}

malformed! {
    /// A topic is malformed.
    TopicError, "the topic"
}
malformed! {
    /// A pattern is malformed.
    PatternError, "the pattern"
}

/// The first fault and its offset.
fn find_fault(text: &str, wildcards: bool) -> Option<(Fault, usize)> {
    if text.is_empty() {
        return Some((Fault::Empty, 0));
    }
    let mut at = 0;
    for segment in text.split('.') {
        let star = segment.find('*');
        let fault = match star {
            _ if segment.is_empty() => Some((Fault::EmptySegment, at)),
            Some(star) if !wildcards => Some((Fault::Wildcard, at + star)),
            Some(star) if segment != "*" && segment != "**" => Some((Fault::PartialWildcard, at + star)),
            _ => None,
        };
        if fault.is_some() {
            return fault;
        }
        at += segment.len() + 1;
    }
    None
}

/// Whether messages can be published to a topic.
///
/// # Errors
///
/// When it is empty, has an empty segment or a wildcard.
///
/// ```
/// assert!(ropewalk_bus::check_topic("orders.new").is_ok());
/// assert_eq!(ropewalk_bus::check_topic("orders..new").unwrap_err().offset(), 7);
/// ```
pub fn check_topic(topic: &str) -> Result<(), TopicError> {
    match find_fault(topic, false) {
        None => Ok(()),
        Some((fault, at)) => Err(TopicError { text: topic.to_owned(), fault, at }),
    }
}

/// The topics that a listener wants.
///
/// ```
/// use ropewalk_bus::Pattern;
///
/// let pattern = Pattern::parse("orders.*.eu")?;
/// assert!(pattern.matches("orders.new.eu"));
/// assert!(!pattern.matches("orders.eu"));
/// assert!(Pattern::parse("orders.**")?.matches("orders"));
/// # Ok::<(), ropewalk_bus::PatternError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    text: Box<str>,
    literal: bool,
}

impl Pattern {
    /// Parses a pattern.
    ///
    /// # Errors
    ///
    /// When it is empty, has an empty segment, or a wildcard in a segment with something else.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        match find_fault(text, true) {
            None => Ok(Self { text: text.into(), literal: !text.contains('*') }),
            Some((fault, at)) => Err(PatternError { text: text.to_owned(), fault, at }),
        }
    }

    /// The pattern's text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the pattern has no wildcard, and so matches only the topic of the same name.
    pub fn is_literal(&self) -> bool {
        self.literal
    }

    /// Whether a topic matches. The time is at most proportional to the product of both lengths, for any pattern.
    pub fn matches(&self, topic: &str) -> bool {
        if self.literal {
            return *self.text == *topic;
        }
        // The usual algorithm for globs: it backtracks only to the last `**`, because the last one can take any segment
        // that an earlier one could take.
        let (mut pattern, mut rest) = (Segments(Some(&self.text)), Segments(Some(topic)));
        let mut back: Option<(Segments<'_>, Segments<'_>)> = None;
        loop {
            let before = rest;
            match (pattern.next(), rest.next()) {
                (Some("**"), _) => {
                    rest = before;
                    back = Some((pattern, rest));
                    continue;
                }
                (None, None) => return true,
                (Some(wanted), Some(segment)) if wanted == "*" || wanted == segment => continue,
                _ => {}
            }
            // The last `**` takes one segment more.
            let Some((after, mut taken)) = back else { return false };
            if taken.next().is_none() {
                return false;
            }
            (pattern, rest) = (after, taken);
            back = Some((after, taken));
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The remaining segments of a topic or a pattern.
#[derive(Clone, Copy)]
struct Segments<'a>(Option<&'a str>);

impl<'a> Iterator for Segments<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let text = self.0?;
        let (segment, rest) = match text.split_once('.') {
            Some((segment, rest)) => (segment, Some(rest)),
            None => (text, None),
        };
        self.0 = rest;
        Some(segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, topic: &str) -> bool {
        Pattern::parse(pattern).expect("a sound pattern").matches(topic)
    }

    /// The definition of a match, written as plainly as possible.
    fn reference(pattern: &[&str], topic: &[&str]) -> bool {
        match (pattern, topic) {
            ([], []) => true,
            (["**", rest @ ..], _) => (0..=topic.len()).any(|taken| reference(rest, &topic[taken..])),
            (["*", rest @ ..], [_, topic @ ..]) => reference(rest, topic),
            ([wanted, rest @ ..], [segment, topic @ ..]) => wanted == segment && reference(rest, topic),
            _ => false,
        }
    }

    #[test]
    fn every_short_pattern_matches_as_it_is_defined() {
        let words = ["a", "b", "*", "**"];
        let mut patterns: Vec<Vec<&str>> = vec![Vec::new()];
        for length in 0..4 {
            let longer: Vec<Vec<&str>> = patterns
                .iter()
                .filter(|pattern| pattern.len() == length)
                .flat_map(|pattern| words.iter().map(|word| [pattern, &[*word][..]].concat()))
                .collect();
            patterns.extend(longer);
        }
        let topics: Vec<&Vec<&str>> = patterns
            .iter()
            .filter(|topic| !topic.is_empty() && topic.iter().all(|word| !word.contains('*')))
            .collect();
        let mut matched = 0;
        for pattern in patterns.iter().filter(|pattern| !pattern.is_empty()) {
            for topic in &topics {
                let expected = reference(pattern, topic);
                assert_eq!(matches(&pattern.join("."), &topic.join(".")), expected, "{pattern:?} {topic:?}");
                matched += usize::from(expected);
            }
        }
        assert!(matched > 1000);
    }

    #[test]
    fn an_adversary_s_pattern_takes_no_exponential_time() {
        let pattern = ["a", "**"].repeat(200).join(".") + ".b";
        assert!(!matches(&pattern, &["a"; 2000].join(".")));
    }

    #[test]
    fn faults_are_reported_with_their_offsets() {
        let fault = |text: &str| Pattern::parse(text).err().map(|error| (error.fault, error.at));
        assert_eq!(fault(""), Some((Fault::Empty, 0)));
        assert_eq!(fault("."), Some((Fault::EmptySegment, 0)));
        assert_eq!(fault("a."), Some((Fault::EmptySegment, 2)));
        assert_eq!(fault("a.b*"), Some((Fault::PartialWildcard, 3)));
        assert_eq!(fault("***"), Some((Fault::PartialWildcard, 0)));
        assert_eq!(fault("é.*.**"), None);
        let error = check_topic("a.*").expect_err("a wildcard");
        assert_eq!((error.fault, error.offset()), (Fault::Wildcard, 2));
        let text = "the topic \"a.*\" is malformed at byte 2: only a pattern may have a wildcard";
        assert_eq!(error.to_string(), text);
        for (text, advice) in [
            ("", "it is empty"),
            ("a..b", "a segment is empty"),
            ("a*", "a wildcard must be a whole segment"),
        ] {
            let error = Pattern::parse(text).expect_err("malformed");
            let expected = format!("the pattern {text:?} is malformed at byte {}: {advice}", error.offset());
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn a_pattern_is_shown_as_it_was_written() {
        for (text, literal) in [("a.b", true), ("a.*", false), ("**", false)] {
            let pattern = Pattern::parse(text).expect("sound");
            assert_eq!((pattern.as_str(), pattern.to_string().as_str()), (text, text));
            assert_eq!(pattern.is_literal(), literal);
        }
    }
}
