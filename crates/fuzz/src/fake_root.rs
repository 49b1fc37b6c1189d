//! Fake files of a machine below a temporary folder, for readers of sysfs and /proc.
//!
//! Input: single files, or a text with a line `path: content` per file. Braces in a path list several files
//! (`cpu{0-3,8}/{level,size}`). In the content, `{1}` is the value of the first braces, and `\n` is a line break.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Expands `a,b,0-2` to `a b 0 1 2`.
fn alternatives(list: &str) -> Vec<String> {
    let range = |item: &str| match item
        .split_once('-')
        .map(|(a, b)| (a.parse::<u32>(), b.parse::<u32>()))
    {
        Some((Ok(low), Ok(high))) => (low..=high).map(|n| n.to_string()).collect(),
        _ => vec![item.to_owned()],
    };
    list.split(',').flat_map(range).collect()
}

/// All paths that a path with braces lists, each with the value of its first braces.
fn expand(path: &str) -> Vec<(String, String)> {
    let Some((head, (list, tail))) = path
        .split_once('{')
        .map(|(h, rest)| (h, rest.split_once('}').unwrap()))
    else {
        return vec![(path.to_owned(), String::new())];
    };
    let tails = expand(tail);
    let each = |choice: &String| {
        tails
            .iter()
            .map(|t| (format!("{head}{choice}{}", t.0), choice.clone()))
            .collect::<Vec<_>>()
    };
    alternatives(list).iter().flat_map(each).collect()
}

/// Writes the files below a new folder.
pub fn unpack(tree: &str) -> TempDir {
    // A tree has hundreds of files, which a disk makes and removes slowly.
    let in_memory = TempDir::new_in("/dev/shm");
    let root = in_memory.or_else(|_| TempDir::new()).unwrap();
    let mut folders = BTreeSet::new();
    for line in tree
        .lines()
        .filter(|l| !l.starts_with('#') && !l.is_empty())
    {
        let (paths, content) = line.split_once(':').unwrap();
        for (path, first) in expand(paths) {
            let content = content
                .trim()
                .replace("{1}", &first)
                .replace("\\n", "\n")
                .replace("\\0", "\0");
            let file = root.path().join(path);
            if folders.insert(file.parent().unwrap().to_owned()) {
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            }
            std::fs::write(file, content + "\n").unwrap();
        }
    }
    root
}

/// Writes files below a root: (path, content).
pub fn write(root: &Path, files: &[(&str, &str)]) {
    for (path, content) in files {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

/// Collects all files below a folder, in order.
pub fn files_below(folder: &Path, into: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            files_below(&path, into);
        } else {
            into.push(path);
        }
    }
}
