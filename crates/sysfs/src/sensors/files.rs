//! Small files of sysfs and /proc.
//!
//! Input: a path. Output: its trimmed text or number, `None` where there is none: sensors vanish, and some refuse to be read.

use std::path::{Path, PathBuf};

/// The trimmed text of a file.
pub(super) fn text(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The number in a file.
pub(super) fn number(path: &Path) -> Option<f64> {
    text(path)?.parse::<f64>().ok().filter(|n| n.is_finite())
}

/// The folders and links to folders in a folder, by name; numbers in names count as numbers.
pub(super) fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|e| e.path()).filter(|p| p.is_dir()).collect();
    found.sort_by_cached_key(|p| name_key(p));
    found
}

/// The files in a folder.
pub(super) fn files(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|e| e.path()).filter(|p| p.is_file()).collect();
    found.sort_by_cached_key(|p| name_key(p));
    found
}

/// The last part of a path.
pub(super) fn name(path: &Path) -> &str {
    path.file_name()
        .and_then(|n| n.to_str())
        .unwrap_or_default()
}

/// `cpu10` comes after `cpu9`.
fn name_key(path: &Path) -> (String, u64, String) {
    let name = name(path);
    let digits = name
        .find(|c: char| c.is_ascii_digit())
        .unwrap_or(name.len());
    let (prefix, rest) = name.split_at(digits);
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    (
        prefix.to_owned(),
        rest[..end].parse().unwrap_or(0),
        name.to_owned(),
    )
}
