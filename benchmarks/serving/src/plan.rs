//! What the command line asks for: `name=value` words.

use std::collections::BTreeMap;
use std::time::Duration;

/// A load.
#[derive(Clone, Debug)]
pub struct Plan(BTreeMap<String, String>);

impl Plan {
    /// Reads words such as `port=8080`.
    ///
    /// # Panics
    ///
    /// On a word without `=`.
    #[must_use]
    pub fn new(words: impl Iterator<Item = String>) -> Self {
        Self(
            words
                .map(|word| {
                    let (name, value) = word.split_once('=').expect("words are name=value");
                    (name.to_owned(), value.to_owned())
                })
                .collect(),
        )
    }

    /// A word's text, or this.
    #[must_use]
    pub fn text<'a>(&'a self, name: &str, otherwise: &'a str) -> &'a str {
        self.0.get(name).map_or(otherwise, String::as_str)
    }

    /// A word's number, or this.
    ///
    /// # Panics
    ///
    /// When it is no number.
    #[must_use]
    pub fn number(&self, name: &str, otherwise: f64) -> f64 {
        self.0.get(name).map_or(otherwise, |text| text.parse().expect("a number"))
    }

    /// A word's number of seconds, or this.
    #[must_use]
    pub fn seconds(&self, name: &str, otherwise: f64) -> Duration {
        Duration::from_secs_f64(self.number(name, otherwise))
    }

    /// A word's count, or this.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small counts")]
    pub fn count(&self, name: &str, otherwise: usize) -> usize {
        self.0.get(name).map_or(otherwise, |text| text.parse::<f64>().expect("a number") as usize)
    }
}
