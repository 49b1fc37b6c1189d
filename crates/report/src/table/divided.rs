//! Tables that are divided by columns, so that they fit a terminal.
//!
//! Input: head and rows. Output: one or several tables, which share their first columns.

use super::prose::known_columns;
use super::render::plain;

/// Returns a table without a frame that fits the terminal, or 80 columns without a terminal. A wider table is divided: each part
/// begins with the first `fixed` columns, and parts are separated by empty lines.
#[must_use]
pub fn divided(head: &[&str], rows: &[Vec<String>], fixed: usize) -> String {
    let parts = parts(head, rows, fixed, known_columns());
    let tables = parts.into_iter().map(|columns| {
        let of = |row: &[String]| {
            columns
                .iter()
                .filter_map(|at| row.get(*at).cloned())
                .collect()
        };
        let head: Vec<&str> = columns
            .iter()
            .filter_map(|at| head.get(*at).copied())
            .collect();
        plain(&head, rows.iter().map(|row| of(row)))
    });
    tables.collect::<Vec<_>>().join("\n\n")
}

/// Returns the indices of the columns of each part of a table. A part has at least one column beside the fixed ones.
fn parts(head: &[&str], rows: &[Vec<String>], fixed: usize, width: usize) -> Vec<Vec<usize>> {
    const GAP: usize = 2;
    let of = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at));
        let cells = cells.map(|cell| cell.chars().count());
        GAP + cells.chain([head[at].chars().count()]).max().unwrap_or(0)
    };
    let begin: Vec<usize> = (0..fixed.min(head.len())).collect();
    let begins_at: usize = begin.iter().map(|at| of(*at)).sum();
    let mut parts = vec![begin.clone()];
    let mut used = begins_at;
    for at in begin.len()..head.len() {
        let is_empty = parts.last().is_some_and(|part| part.len() == begin.len());
        if !is_empty && used + of(at) > width + GAP {
            parts.push(begin.clone());
            used = begins_at;
        }
        used += of(at);
        if let Some(part) = parts.last_mut() {
            part.push(at);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_table_is_divided_and_each_part_has_the_fixed_columns() {
        let head = ["name", "one", "two", "three"];
        let rows = [vec![
            "a".to_owned(),
            "1234567".into(),
            "2".into(),
            "3".into(),
        ]];
        let of = |width| parts(&head, &rows, 1, width);
        assert_eq!(of(80), [[0, 1, 2, 3]]);
        assert_eq!(of(25), [[0, 1, 2, 3]], "25 columns are just enough");
        assert_eq!(of(24), [vec![0, 1, 2], vec![0, 3]]);
        assert_eq!(of(1), [[0, 1], [0, 2], [0, 3]]);
        assert_eq!(parts(&head[..1], &[], 1, 80), [[0]]);
    }
}
