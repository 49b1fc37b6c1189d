//! Suggestions for mistyped names: known names that resemble a mistyped one.
//!
//! Input: a name, and the known names. Output: a question that is appended to the error message. Distance is the number of
//! characters that are inserted, deleted, replaced, or swapped with the adjacent one (Damerau 1964, "optimal string alignment").

/// Returns ` (did you mean ...?)` with up to three known names; empty if no name resembles the written one.
#[must_use]
pub fn suggestion<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let written = plain(written);
    let mut near: Vec<(usize, &str)> = known
        .into_iter()
        .filter_map(|name| Some((rank(&written, &plain(name))?, name)))
        .collect();
    near.sort_unstable();
    near.dedup();
    let names: Vec<String> = near.iter().take(3).map(|(_, n)| format!("`{n}`")).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => format!(" (did you mean {one}?)"),
        [first @ .., last] => format!(" (did you mean {} or {last}?)", first.join(", ")),
    }
}

fn plain(name: &str) -> Vec<char> {
    let lower = name.to_lowercase();
    lower
        .chars()
        .map(|c| if c == '_' { '-' } else { c })
        .collect()
}

/// Returns the rank of a name as a suggestion: mistyped names come first, then names that begin with the written one, then names
/// that contain it. `None` if the name does not resemble it.
fn rank(written: &[char], name: &[char]) -> Option<usize> {
    let changes = distance(written, name);
    let contains = |whole: &[char], part: &[char]| {
        part.len() > 2 && whole.windows(part.len()).any(|window| window == part)
    };
    if changes <= (written.len().min(name.len()) / 3).max(1) && written.len() > 1 {
        Some(changes)
    } else if written.len() > 1 && name.starts_with(written) {
        Some(100)
    } else if contains(name, written) || contains(written, name) {
        Some(200)
    } else {
        None
    }
}

fn distance(from: &[char], to: &[char]) -> usize {
    let mut rows = [Vec::new(), (0..=to.len()).collect::<Vec<usize>>()];
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let replaced = rows[1][j] + usize::from(a != b);
            let mut least = replaced.min(rows[1][j + 1] + 1).min(row[j] + 1);
            let swapped = i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b;
            if swapped {
                least = least.min(rows[0][j - 1] + 1);
            }
            row.push(least);
        }
        rows.swap(0, 1);
        rows[1] = row;
    }
    rows[1].last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 6] = [
        "hsf",
        "hass",
        "shared-caches",
        "core2-quad",
        "i9-12900k",
        "i9-12900k-8p8e",
    ];

    #[test]
    fn mistyped_names_find_what_was_meant() {
        let cases = [
            ("hfs", " (did you mean `hsf`?)"),
            ("core2-qad", " (did you mean `core2-quad`?)"),
            ("Shared_Cache", " (did you mean `shared-caches`?)"),
            ("i9", " (did you mean `i9-12900k` or `i9-12900k-8p8e`?)"),
            ("quad", " (did you mean `core2-quad`?)"),
            ("nonesuch", ""),
            ("x", ""),
            ("", ""),
        ];
        for (written, expected) in cases {
            assert_eq!(suggestion(written, KNOWN), expected, "{written}");
        }
    }

    #[test]
    fn distances_count_each_change_once() {
        let count = |a: &str, b: &str| {
            let chars = |s: &str| s.chars().collect::<Vec<_>>();
            distance(&chars(a), &chars(b))
        };
        let cases = [
            ("", "", 0),
            ("", "ab", 2),
            ("ab", "ba", 1),
            ("abc", "axc", 1),
            ("abcd", "bd", 2),
        ];
        for (a, b, expected) in cases {
            assert_eq!(count(a, b), expected, "{a} {b}");
            assert_eq!(count(b, a), expected, "{b} {a}");
        }
    }
}
