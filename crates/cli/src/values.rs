//! Values of flags that several commands take, as users write them.

use countersteer_model::counters::parse_duration;
use countersteer_model::units::Nanos;

/// A time: `10ms`.
pub fn time(text: &str) -> Result<Nanos, String> {
    parse_duration(text).map_err(|e| e.message)
}

/// A number.
pub fn number(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

/// The number of a process.
pub fn pid(text: &str) -> Result<u32, String> {
    let wrong = "it is no number of a process; `pgrep NAME` prints those of a program";
    text.parse().map_err(|_| wrong.to_owned())
}
