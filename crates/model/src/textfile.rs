//! Errors in text files, each with path, line and description.
//!
//! Input: the text of a TOML or JSON file. Output: the typed value, or a [`TextError`] that contains the path, the line's
//! number and the line.

use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};

use crate::missing::missing;

/// Error in a text file, with its path and line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}{}: {message}{}", line.map(|l| format!(":{l}")).unwrap_or_default(), shown.as_ref().map(|s| format!("\n    {s}")).unwrap_or_default())]
pub struct TextError {
    /// Path of the file as the user wrote it.
    pub path: String,
    /// Line of the error, from 1; `None` if it is unknown.
    pub line: Option<usize>,
    /// Description of the error and of its remedy.
    pub message: String,
    pub shown: Option<String>,
}

impl TextError {
    /// Creates an error about an invalid value at an unknown line of the file.
    #[must_use]
    pub fn value(path: &str, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            line: None,
            message: message.into(),
            shown: None,
        }
    }

    /// Creates an error at a byte offset of `text`.
    #[must_use]
    pub fn at_offset(path: &str, text: &str, offset: usize, message: impl Into<String>) -> Self {
        let line = text
            .get(..offset.min(text.len()))
            .map_or(1, |head| head.matches('\n').count() + 1);
        Self::at_line(path, text, line, message)
    }

    /// Creates an error at a line of `text`, from 1.
    #[must_use]
    pub fn at_line(path: &str, text: &str, line: usize, message: impl Into<String>) -> Self {
        let shown = text
            .lines()
            .nth(line.saturating_sub(1))
            .map(|l| l.chars().take(120).collect());
        Self {
            path: path.into(),
            line: Some(line),
            message: message.into(),
            shown,
        }
    }
}

/// True if a name is valid for a machine or a core type: lower-case letters, digits, dots and dashes.
pub(crate) fn is_name(name: &str) -> bool {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(fine)
}

/// Limit on the bytes of TOML. The parser needs up to 400 times the memory of a text. Shipped files have up to 30 kB, and a
/// workload of 3,000 programs fits.
pub const MOST_TOML: usize = 400_000;

/// Parses TOML into `T`.
///
/// # Errors
/// Fails on a syntax error, an unknown field or a wrong type; the error contains the line. Fails if the text has more than
/// [`MOST_TOML`] bytes.
pub fn parse_toml<T: DeserializeOwned>(path: &str, text: &str) -> Result<T, TextError> {
    if text.len() > MOST_TOML {
        let length = text.len();
        let why = format!("it has {length} bytes, and TOML is read up to {MOST_TOML}: shorten it");
        return Err(TextError::value(path, why));
    }
    toml::from_str(text).map_err(|e| {
        let message = e.message().to_owned();
        match e.span() {
            Some(span) => TextError::at_offset(path, text, span.start, message),
            None => TextError::value(path, message),
        }
    })
}

/// Parses TOML into `T`. An error about a missing field lists all missing fields, each with its meaning.
pub(crate) fn parse_described<T: DeserializeOwned + JsonSchema>(
    path: &str,
    text: &str,
) -> Result<T, TextError> {
    parse_toml(path, text).map_err(|error| {
        let list = error
            .message
            .starts_with("missing field")
            .then(|| missing::<T>(text));
        match list.flatten() {
            Some(list) => TextError::value(path, list),
            None => error,
        }
    })
}

/// Parses JSON into `T`.
///
/// # Errors
/// Fails on a syntax error, truncation, an unknown field or a wrong type; the error contains the line.
pub fn parse_json<T: DeserializeOwned>(path: &str, text: &str) -> Result<T, TextError> {
    serde_json::from_str(text).map_err(|e| {
        let message = if e.is_eof() {
            format!("the file ends too early ({e})")
        } else {
            e.to_string()
        };
        TextError::at_line(path, text, e.line().max(1), message)
    })
}

/// Deserializes a value and fails if `fault` returns a description. For use with `deserialize_with`, so that the parser adds
/// the line to the error.
pub(crate) fn checked<'de, D, T>(
    from: D,
    fault: impl FnOnce(&T) -> Option<String>,
) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let value = T::deserialize(from)?;
    fault(&value).map_or(Ok(value), |why| Err(D::Error::custom(why)))
}
