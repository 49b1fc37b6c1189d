//! Text for a terminal: paragraphs are wrapped to its width, tables are unchanged.

use comfy_table::Table;

/// Number of columns if the output is no terminal, or if the terminal does not report its width.
pub(super) const USUAL: u16 = 80;
/// Minimum plausible width of a terminal. A terminal that reports less, such as a serial line, does not
/// know its width.
pub(super) const NARROWEST: u16 = 40;

/// Returns the number of columns in the environment variable `COLUMNS`; `None` if it is not set.
pub(super) fn asked_columns() -> Option<u16> {
    std::env::var("COLUMNS").ok()?.parse().ok()
}

/// Returns text with paragraphs and list items wrapped to the terminal's width, or to 80 columns without
/// a terminal.
#[must_use]
pub fn prose(text: &str) -> String {
    wrapped(text, known_columns())
}

/// Wraps a line that begins with a label. Further lines are aligned with the text after the label.
#[must_use]
pub fn labelled(label: &str, text: &str) -> String {
    filled(
        &format!("{label}{text}"),
        known_columns(),
        label.chars().count(),
    ) + "\n"
}

pub(super) fn known_columns() -> usize {
    let columns = asked_columns().or_else(|| Table::new().width());
    let wide_enough = columns.filter(|columns| *columns >= NARROWEST);
    wide_enough.unwrap_or(USUAL).into()
}

fn wrapped(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut paragraph = String::new();
    for line in text.lines() {
        let is_item = marker(line.trim_start()) > 0;
        let is_laid_out = line.is_empty() || line.starts_with('|') || line.starts_with("    ");
        if is_item || is_laid_out {
            end(&mut paragraph, &mut out, width);
        }
        if is_laid_out {
            out += line;
            out.push('\n');
        } else {
            if !paragraph.is_empty() {
                paragraph.push(' ');
            }
            paragraph += line.trim();
        }
    }
    end(&mut paragraph, &mut out, width);
    if !text.ends_with('\n') {
        out.pop();
    }
    out
}

/// Returns the length of the marker that begins a list item, `- ` or `1. `; 0 if the line begins no item.
fn marker(line: &str) -> usize {
    let digits = line.chars().take_while(char::is_ascii_digit).count();
    if line.starts_with("- ") {
        2
    } else if digits > 0 && line[digits..].starts_with(". ") {
        digits + 2
    } else {
        0
    }
}

/// Appends a complete paragraph to `out`. Further lines of a list item are aligned with its text.
fn end(paragraph: &mut String, out: &mut String, width: usize) {
    if paragraph.is_empty() {
        return;
    }
    *out += &filled(paragraph, width, marker(paragraph));
    out.push('\n');
    paragraph.clear();
}

/// Wraps a paragraph to a width. All lines but the first are indented.
fn filled(paragraph: &str, width: usize, indent: usize) -> String {
    let indent = " ".repeat(indent);
    let options = textwrap::Options::new(width)
        .break_words(false)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
        .subsequent_indent(&indent);
    textwrap::fill(paragraph, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_and_items_wrap_and_tables_stay() {
        let text = "one two\nthree four\n\n- five six seven\n- eight\n| a wide table |\n    code that is wide\n";
        let expected = "one two\nthree\nfour\n\n- five\n  six\n  seven\n- eight\n| a wide table |\n    code that is wide\n";
        assert_eq!(wrapped(text, 8), expected);
        let numbered = "1. five six\n2. seven 3.5 eight\n";
        assert_eq!(
            wrapped(numbered, 8),
            "1. five\n   six\n2. seven\n   3.5\n   eight\n"
        );
        assert_eq!(wrapped("no end of line", 80), "no end of line");
        assert_eq!(wrapped("https://long.example", 8), "https://long.example");
    }
}
