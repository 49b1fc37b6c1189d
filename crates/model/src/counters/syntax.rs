//! Common code of the parsers for command-line strings: a cursor over text, numbers, and errors with a column.

use std::fmt;

use crate::printable::shortened;
use crate::units::Nanos;

/// Largest number of characters of a string that an error shows, and of those before the error's column.
const SHOWN: usize = 400;
const SHOWN_BEFORE: usize = 300;
/// Largest number of characters of a message, which may contain a word of the string.
const LONGEST_MESSAGE: usize = 1000;

/// Error at a position of a string that the user wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    pub text: String,
    /// Byte offset of the error in the string.
    pub offset: usize,
    /// Description of the error and of the valid input.
    pub message: String,
    /// True if the string is valid, and the machine lacks what it names.
    pub is_lacking: bool,
}

impl SpecError {
    /// Creates an error at a byte offset of `text`.
    #[must_use]
    pub fn new(text: &str, offset: usize, message: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            offset: offset.min(text.len()),
            message: message.into(),
            is_lacking: false,
        }
    }

    /// Returns the error as one of `text`, which contains the string from the byte `offset` on.
    #[must_use]
    pub fn within(self, text: &str, offset: usize) -> Self {
        Self {
            is_lacking: self.is_lacking,
            ..Self::new(text, offset + self.offset, self.message)
        }
    }

    /// Returns the column of the error in characters, from 1.
    #[must_use]
    pub fn column(&self) -> usize {
        self.text
            .char_indices()
            .take_while(|(at, _)| *at < self.offset)
            .count()
            + 1
    }
}

impl std::error::Error for SpecError {}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = self.column();
        let hidden = column.saturating_sub(SHOWN_BEFORE);
        let mut text: String = (self.text.chars().skip(hidden).take(SHOWN))
            .map(|c| if matches!(c, '\n' | '\t') { ' ' } else { c })
            .collect();
        if self.text.chars().nth(hidden + SHOWN).is_some() {
            text.push('…');
        }
        let (cut, above) = if hidden > 0 {
            ("…", column - hidden + 1)
        } else {
            ("", column)
        };
        let message = shortened(&self.message, LONGEST_MESSAGE);
        write!(
            f,
            "column {column}: {message}\n    {cut}{text}\n    {:>above$}",
            '^'
        )
    }
}

/// Cursor over a string, from left to right.
pub(super) struct SyntaxCursor<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

impl<'a> SyntaxCursor<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    pub(super) fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    /// Consumes and returns the longest prefix of the rest in which `of` is true for all characters. The prefix may be empty.
    pub(super) fn run(&mut self, of: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let found = &rest[..rest.find(|c| !of(c)).unwrap_or(rest.len())];
        self.at += found.len();
        found
    }

    pub(super) fn error<T>(&self, message: impl Into<String>) -> Result<T, SpecError> {
        Err(SpecError::new(self.text, self.at, message))
    }

    pub(super) fn error_at<T>(
        &self,
        offset: usize,
        message: impl Into<String>,
    ) -> Result<T, SpecError> {
        Err(SpecError::new(self.text, offset, message))
    }
}

/// Parses a decimal number (`46`) or a hexadecimal one (`0x2e`). `None` if the text is neither.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        // Rust's own number parser would accept a sign.
        Some(hex) if hex.starts_with('+') => None,
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if text.starts_with('+') => None,
        None => text.parse().ok(),
    }
}

/// Parses a number of events, such as `100`, `5k`, `100M` or `2G`.
///
/// # Errors
/// Fails if the text is no such number, or if the number is zero or too large.
pub fn parse_count(text: &str) -> Result<u64, SpecError> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" => 1,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        other => {
            return Err(SpecError::new(
                text,
                digits.len(),
                format!("`{other}` is no factor; k, M and G are"),
            ));
        }
    };
    let value = number(digits)
        .and_then(|n| n.checked_mul(factor))
        .filter(|n| *n > 0);
    value.ok_or_else(|| SpecError::new(text, 0, "write a number above zero, as in 100M"))
}

/// Parses a time span, such as `100ms`, `1.5s`, `250us` or `2m`. A number without a unit is refused: some tools read it as
/// milliseconds, others as seconds.
///
/// # Errors
/// Fails if the text is no such time span, or if the span is zero or too long.
pub fn parse_duration(text: &str) -> Result<Nanos, SpecError> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        // Without a unit, tools differ: `perf stat -I 100` means milliseconds, `sleep 100` seconds.
        "" if digits.parse::<f64>().is_ok() => {
            return Err(SpecError::new(
                text,
                digits.len(),
                format!("{text} of what? {text}ms is milliseconds, {text}s is seconds"),
            ));
        }
        "" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        other => {
            return Err(SpecError::new(
                text,
                digits.len(),
                format!("`{other}` is no unit; us, ms, s, m and h are"),
            ));
        }
    };
    let nanos = digits
        .parse::<f64>()
        .map(|n| (n * factor).round())
        .ok()
        .filter(|n| (1.0..1e18).contains(n));
    nanos
        .map(|n| Nanos(n as u64))
        .ok_or_else(|| SpecError::new(text, 0, "write a time above zero, as in 100ms"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_in_a_long_string_shows_its_surroundings() {
        let text = "a".repeat(100_000) + "*" + &"b".repeat(1000);
        let shown = SpecError::new(&text, 100_000, "x".repeat(5000)).to_string();
        let lines: Vec<&str> = shown.lines().collect();
        assert!(shown.len() < 3000, "{shown}");
        assert!(lines[0].starts_with("column 100001: "), "{shown}");
        let at = lines[2].chars().position(|c| c == '^');
        assert_eq!(lines[1].chars().position(|c| c == '*'), at, "{shown}");
    }

    #[test]
    fn counts_and_times_take_their_suffixes_and_refuse_nonsense() {
        assert_eq!(parse_count("100M"), Ok(100_000_000));
        assert_eq!(parse_count("0x10"), Ok(16));
        assert_eq!(parse_duration("100ms"), Ok(Nanos::from_millis(100)));
        assert_eq!(parse_duration("1.5s"), Ok(Nanos(1_500_000_000)));
        let bare = parse_duration("100").unwrap_err();
        assert!(
            bare.message.contains("100ms") && bare.message.contains("100s"),
            "{bare}"
        );
        for bad in [
            "",
            "0",
            "M",
            "5X",
            "-1",
            "+5",
            "0x+5",
            "99999999999999999999",
            "18446744073709551615k",
        ] {
            assert!(parse_count(bad).is_err(), "{bad}");
        }
        for bad in ["", "0ms", "ms", "-1s", "nan", "inf", "1e30s", "5 ms", "ü"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_error_shows_the_column_in_characters() {
        let error = SpecError::new("ü,?", 3, "no");
        assert_eq!(error.column(), 3);
        assert_eq!(error.to_string(), "column 3: no\n    ü,?\n      ^");
    }
}
