//! Table at the bottom of a terminal, redrawn in place. It shows the last interval, and at the end the whole run.
//!
//! Input: lines of text, and the size of the terminal. Output: text with escape sequences that restrict scrolling to the lines
//! above the table. The counted program prints there, so its output stays intact.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};

use ratatui::crossterm::terminal;

/// Table that is currently drawn on the terminal. Dropping the value clears the table's lines.
#[derive(Debug, Default)]
pub struct LiveTable {
    /// Number of lines of the table, and number of lines of the terminal when it was drawn; `None` if nothing is drawn.
    drawn: Option<(usize, usize)>,
}

/// Columns and rows that are assumed if the terminal reports no size.
const SIZE: (usize, usize) = (80, 24);
/// Escape sequence that saves the cursor position.
const SAVE: &str = "\x1b7";
/// Escape sequence that restores the saved cursor position.
const RESTORE: &str = "\x1b8";

impl LiveTable {
    /// Returns true if the terminal supports escape sequences for cursor movement.
    pub fn possible() -> bool {
        std::env::var_os("TERM").is_some_and(|term| term != "dumb")
    }

    /// Returns text that replaces the last frame with the header and as many rows of `text` as fit.
    pub fn frame(&mut self, text: &str) -> String {
        let size = terminal::size()
            .ok()
            .filter(|(columns, rows)| *columns > 0 && *rows > 0);
        self.fit(
            text,
            size.map_or(SIZE, |(columns, rows)| {
                (usize::from(columns), usize::from(rows))
            }),
        )
    }

    /// Returns text that removes the live table and then shows all of `text`, without omitted rows or shortened lines.
    pub fn last(&mut self, text: &str) -> String {
        self.back() + text
    }

    /// Returns text that removes the table from the terminal and resets the scroll region; empty if nothing is drawn.
    fn back(&mut self) -> String {
        let wipe = |(lines, rows): (usize, usize)| {
            format!("{SAVE}\x1b[{};1H\x1b[J\x1b[r{RESTORE}", rows - lines + 1)
        };
        self.drawn.take().map_or_else(String::new, wipe)
    }

    fn fit(&mut self, text: &str, (columns, rows): (usize, usize)) -> String {
        // The counted program's output keeps the remaining lines.
        let most = (rows * 2 / 3).max(2);
        let count = text.lines().count();
        let shown = if count > most { most - 1 } else { count };
        let lines = (shown + usize::from(count > shown)).min(rows - 1);
        let mut out = String::new();
        if self.drawn != Some((lines, rows)) {
            out = self.back();
            // Scrolls the screen up by the table's height, then sets the scroll region to the lines above the table.
            let _ = write!(
                out,
                "{}\x1b[{lines}A{SAVE}\x1b[1;{}r{RESTORE}",
                "\n".repeat(lines),
                rows - lines
            );
        }
        // Terminals treat newlines below the scroll region differently, so the cursor moves to each line explicitly.
        let first = rows - lines + 1;
        let _ = write!(out, "{SAVE}\x1b[{first};1H\x1b[J");
        for (nth, line) in text.lines().take(shown).enumerate() {
            // The line is cut to the width, because a wrapped line would take two lines.
            let end = line
                .char_indices()
                .nth(columns.saturating_sub(1))
                .map_or(line.len(), |(at, _)| at);
            let _ = write!(out, "\x1b[{};1H{}", first + nth, &line[..end]);
        }
        if count > shown {
            let _ = write!(
                out,
                "\x1b[{rows};1H  ... {} more rows (--no-live prints all)",
                count - shown
            );
        }
        self.drawn = Some((lines, rows));
        out + RESTORE
    }
}

impl Drop for LiveTable {
    fn drop(&mut self) {
        let back = self.back();
        if !back.is_empty() {
            // A write error is ignored, because there is no other output to report it on.
            let _ = if std::io::stdout().is_terminal() {
                std::io::stdout().write_all(back.as_bytes())
            } else {
                std::io::stderr().write_all(back.as_bytes())
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_above_the_table_scroll_and_a_frame_takes_the_place_of_the_one_before() {
        let mut table = LiveTable::default();
        let first = table.fit("head\nrow\n", (80, 24));
        assert_eq!(
            first,
            "\n\n\x1b[2A\x1b7\x1b[1;22r\x1b8\x1b7\x1b[23;1H\x1b[J\x1b[23;1Hhead\x1b[24;1Hrow\x1b8"
        );
        assert_eq!(
            table.fit("head\nnew\n", (80, 24)),
            "\x1b7\x1b[23;1H\x1b[J\x1b[23;1Hhead\x1b[24;1Hnew\x1b8"
        );
        assert_eq!(
            table.last("head\nall\n"),
            "\x1b7\x1b[23;1H\x1b[J\x1b[r\x1b8head\nall\n"
        );
        assert_eq!(table.last("end\n"), "end\n");
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_counted() {
        let mut table = LiveTable::default();
        let text = "0123456789\n".repeat(30);
        let frame = table.fit(&text, (6, 12));
        assert!(
            frame.contains("\x1b[5;1H\x1b[J\x1b[5;1H01234\x1b[6;1H01234\x1b[7")
                && frame.contains("23 more rows"),
            "{frame:?}"
        );
        assert!(table.back().contains("\x1b[5;1H"));
    }
}
