//! Dialect of rt-app's task files beyond JSON: a byte-order mark, and keys without a value, to which its workgen adds
//! one.
//!
//! Input: the text of a file. Output: the text with `true` as the value of such keys; line numbers stay the same.

/// Kind of the innermost bracket, and of the token that may follow in it.
#[derive(Clone, Copy, PartialEq)]
enum Within {
    ObjectAtKey,
    ObjectAtValue,
    Array,
}

/// Returns the text in which keys without a value have the value `true`.
pub(super) fn completed(text: &str) -> String {
    let text = text.trim_start_matches('\u{feff}');
    let mut completed = String::with_capacity(text.len());
    let mut within = Vec::new();
    let mut rest = text;
    // True between a key and its colon.
    let mut key_is_bare = false;
    while let Some(first) = rest.chars().next() {
        let length = token(rest);
        let is_space = first.is_whitespace() || rest.starts_with("//") || rest.starts_with("/*");
        if key_is_bare && matches!(first, ',' | '}') {
            completed.push_str(": true");
        }
        if key_is_bare && !is_space {
            key_is_bare = false;
        }
        match first {
            '{' => within.push(Within::ObjectAtKey),
            '[' => within.push(Within::Array),
            '}' | ']' => drop(within.pop()),
            ',' | ':' => {
                let next = if first == ',' {
                    Within::ObjectAtKey
                } else {
                    Within::ObjectAtValue
                };
                if let Some(innermost) = within.last_mut().filter(|w| **w != Within::Array) {
                    *innermost = next;
                }
            }
            _ if !is_space => key_is_bare = within.last() == Some(&Within::ObjectAtKey),
            _ => {}
        }
        // The value of a key at the end of a line is inserted before the comma, so that comments stay intact.
        completed.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    completed
}

/// Returns the length in bytes of a text's first token: a string, a comment, a word, or one character.
fn token(text: &str) -> usize {
    let end = |found: Option<usize>| found.unwrap_or(text.len());
    let first = text.chars().next().unwrap_or(' ');
    if text.starts_with("//") {
        return end(text.find('\n'));
    }
    if text.starts_with("/*") {
        return end(text.find("*/").map(|at| at + 2));
    }
    if first == '"' || first == '\'' {
        let mut escaped = false;
        let closing = text.char_indices().skip(1).find(|(_, c)| {
            let closes = *c == first && !escaped;
            escaped = *c == '\\' && !escaped;
            closes
        });
        return end(closing.map(|(at, _)| at + 1));
    }
    let of_word = |c: char| c.is_alphanumeric() || "_-+.".contains(c);
    if of_word(first) {
        return end(text.find(|c: char| !of_word(c)));
    }
    first.len_utf8()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_without_a_value_get_one() {
        let of = completed;
        assert_eq!(
            of(r#"{"suspend", "run": 5}"#),
            r#"{"suspend": true, "run": 5}"#
        );
        assert_eq!(of("{suspend}"), "{suspend: true}");
        assert_eq!(
            of("{\"yield\" // why, so\n}"),
            "{\"yield\" // why, so\n: true}"
        );
        assert_eq!(of("\u{feff}{}"), "{}");
        for sound in [
            r#"{"a": ["b", "c"], "d": {"e": "f,}", "g": 'h'}, /* "i", */ }"#,
            r#"{"a\"": "b", c: -1.5}"#,
            "{\"unfinished",
        ] {
            assert_eq!(of(sound), sound);
        }
    }
}
