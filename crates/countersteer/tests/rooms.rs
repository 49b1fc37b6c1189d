//! The rooms of `docs/architecture.md` hold every crate once, and no crate uses a room that its own room may not use.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::collections::BTreeMap;
use std::path::Path;

const PAGE: &str = include_str!("../../../docs/architecture.md");

/// Rooms of the table: number, crates, and numbers of the rooms that they may use.
fn rooms() -> Vec<(u32, Vec<&'static str>, Vec<u32>)> {
    let cells = |line: &'static str| line.split('|').map(str::trim).collect::<Vec<_>>();
    let numbers = |cell: &str| cell.split(", ").filter_map(|n| n.parse().ok()).collect();
    let rows = PAGE.lines().filter(|l| l.starts_with("| ")).map(cells);
    rows.filter_map(|row| {
        let number = row[1].split(' ').next()?.parse().ok()?;
        let crates = row[2].split(", ").map(|name| name.trim_matches('`'));
        Some((number, crates.collect(), numbers(row[3])))
    })
    .collect()
}

#[test]
fn crates_use_only_the_rooms_that_the_architecture_names() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let rooms = rooms();
    assert_eq!(rooms.len(), 6);
    let mut room_of: BTreeMap<String, u32> = BTreeMap::new();
    for (number, names, _) in &rooms {
        for name in names {
            assert!(room_of.insert((*name).into(), *number).is_none(), "{name}");
        }
    }
    for entry in std::fs::read_dir(&crates).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(name == "fuzz" || room_of.contains_key(&name), "{name}");
    }
    for (number, names, uses) in &rooms {
        for name in names {
            let manifest = std::fs::read_to_string(crates.join(name).join("Cargo.toml")).unwrap();
            let listed = manifest
                .split_once("\n[dependencies]\n")
                .unwrap_or_default()
                .1;
            let listed = listed.split("\n[").next().unwrap();
            for used in listed
                .lines()
                .filter_map(|l| l.strip_prefix("countersteer-"))
            {
                let used = used.split(['.', ' ', '=']).next().unwrap();
                let to = room_of[used];
                assert!(to == *number || uses.contains(&to), "{name} uses {used}");
            }
        }
    }
}
