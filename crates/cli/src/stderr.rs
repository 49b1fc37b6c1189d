//! Messages on stderr, each of them one write.
//!
//! `eprintln!` writes each part of a message by itself. Where a program shares a terminal or a log, the lines of other processes
//! would end up inside the message. If stderr cannot be written to, the command and its exit code do not change.

use std::fmt;
use std::io::Write;

/// Writes text to stderr.
pub fn write(text: fmt::Arguments<'_>) {
    let _ = std::io::stderr().write_all(text.to_string().as_bytes());
}

/// Writes a line to stderr; takes what `format!` takes.
macro_rules! stderr_line {
    ($($part:tt)*) => {
        $crate::stderr::write(format_args!("{}\n", format_args!($($part)*)))
    };
}

/// Writes text to stderr; takes what `format!` takes.
macro_rules! stderr_text {
    ($($part:tt)*) => {
        $crate::stderr::write(format_args!($($part)*))
    };
}
