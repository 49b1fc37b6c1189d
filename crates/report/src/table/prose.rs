//! Text for a terminal: paragraphs are wrapped to its width, tables are left as they are.

use comfy_table::Table;

/// Columns of what is no terminal, or does not know its width.
pub(super) const USUAL: u16 = 80;
/// A terminal that is narrower does not know its width, as serial lines do not.
pub(super) const NARROWEST: u16 = 40;

/// Returns the value of `COLUMNS`, for output that is read later.
pub(super) fn asked_columns() -> Option<u16> {
    std::env::var("COLUMNS").ok()?.parse().ok()
}

/// Text with its paragraphs and list items wrapped to the terminal, or to 80 columns where there is none.
#[must_use]
pub fn prose(text: &str) -> String {
    wrapped(text, known_columns())
}

/// Wraps a line that begins with a label; further lines are aligned with the text.
#[must_use]
pub fn labelled(label: &str, text: &str) -> String {
    filled(
        &format!("{label}{text}"),
        known_columns(),
        label.chars().count(),
    ) + "\n"
}

fn known_columns() -> usize {
    let columns = asked_columns().or_else(|| Table::new().width());
    let wide_enough = columns.filter(|columns| *columns >= NARROWEST);
    wide_enough.unwrap_or(USUAL).into()
}

fn wrapped(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut paragraph = String::new();
    for line in text.lines() {
        let is_item = line.trim_start().starts_with("- ");
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

/// Writes a complete paragraph; lines of a list item are aligned with its text.
fn end(paragraph: &mut String, out: &mut String, width: usize) {
    if paragraph.is_empty() {
        return;
    }
    let indent = if paragraph.starts_with("- ") { 2 } else { 0 };
    *out += &filled(paragraph, width, indent);
    out.push('\n');
    paragraph.clear();
}

/// Fills a paragraph; all lines but the first are indented.
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
        assert_eq!(wrapped("no end of line", 80), "no end of line");
        assert_eq!(wrapped("https://long.example", 8), "https://long.example");
    }
}
