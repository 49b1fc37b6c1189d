//! Messages on stderr, which the recorded program writes to as well.

use std::fmt;
use std::io::Write;

/// Writes a line to stderr at once, so that no line of the program ends up inside it.
pub fn line(text: fmt::Arguments<'_>) {
    let _ = std::io::stderr().write_all(format!("steer: {text}\n").as_bytes());
}
