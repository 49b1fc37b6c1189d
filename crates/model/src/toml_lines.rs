//! Places in TOML text that parsed values no longer know.

/// Returns the line (from 1) of the `nth` (from 0) `[[table]]` or `[table]` header in TOML text. `None` if there are fewer.
#[must_use]
pub(crate) fn table_line(text: &str, table: &str, nth: usize) -> Option<usize> {
    let array = format!("[[{table}]]");
    let single = format!("[{table}]");
    let is_header = |line: &str| line.starts_with(&array) || line.starts_with(&single);
    text.lines()
        .enumerate()
        .filter(|(_, l)| is_header(l.trim_start()))
        .nth(nth)
        .map(|(i, _)| i + 1)
}
