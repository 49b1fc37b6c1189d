//! Display of untrusted text. The name of a process may come from another user and must not control this user's terminal.
//!
//! Input: a name or a text. Output: the text with `?` in place of characters that control a terminal or reorder text, as
//! `ps` prints it. These are control characters (ISO 6429), and Unicode's direction marks and line separators. JSON output
//! is unchanged, because JSON escapes such characters. A letter that stands for a byte of a name that is no UTF-8 becomes the
//! replacement character.

use std::borrow::Cow;

/// True if a character controls the terminal, or changes the order or lines of the text around it.
const fn steers(c: char) -> bool {
    matches!(c,
        '\0'..='\x1f' | '\x7f'..='\u{9f}'
        | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// True if a letter stands for a byte, as `name` of the crate `files` has it.
const fn is_byte(c: char) -> bool {
    matches!(c, '\u{10ff80}'..='\u{10ffff}')
}

/// Returns a name for display on one line, with `?` in place of control characters.
#[must_use]
pub fn printable(name: &str) -> Cow<'_, str> {
    shown(name, |_| false)
}

/// Returns a text that may contain names, for display. Line feeds and tabs are kept; other control characters become `?`.
#[must_use]
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    shown(text, |c| c == '\n' || c == '\t')
}

fn shown(text: &str, keeps: impl Fn(char) -> bool) -> Cow<'_, str> {
    let shown = |c: char| match c {
        c if is_byte(c) => char::REPLACEMENT_CHARACTER,
        c if steers(c) && !keeps(c) => '?',
        c => c,
    };
    if text.chars().any(|c| shown(c) != c) {
        text.chars().map(shown).collect()
    } else {
        Cow::Borrowed(text)
    }
}

/// Returns a text of up to `most` characters; the beginning of a longer one, with `…` as its last character.
#[must_use]
pub fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    if text.char_indices().nth(most).is_none() {
        return Cow::Borrowed(text);
    }
    let kept = text.chars().take(most.saturating_sub(1));
    kept.chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_long_ends_with_an_ellipsis() {
        assert_eq!(shortened("größe", 5), "größe");
        assert_eq!(shortened("größen", 5), "größ…");
    }

    #[test]
    fn what_steers_a_terminal_is_shown_as_ps_shows_it() {
        assert_eq!(
            printable("aud\x1b[31mX\x07\u{9b}2J\x7f\r\n\t"),
            "aud?[31mX??2J????"
        );
        assert_eq!(printable("a\u{202e}b\u{2066}c\u{2028}d"), "a?b?c?d");
        assert_eq!(printable("grün 漢字 (x)<&>"), "grün 漢字 (x)<&>");
        assert_eq!(printable("gz\u{10ff80}"), "gz\u{fffd}");
        assert!(matches!(printable("plain"), Cow::Borrowed(_)));
        assert_eq!(
            printable_lines("a\tb\nc\x1b]0;d\x07\r\n"),
            "a\tb\nc?]0;d??\n"
        );
        assert!(matches!(printable_lines("two\nlines\n"), Cow::Borrowed(_)));
    }
}
