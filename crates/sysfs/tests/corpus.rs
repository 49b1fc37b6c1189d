//! Detection of machines recorded by other projects: hwloc (`tests/hwloc/linux/*.tar.bz2`, `x86+linux`) and util-linux
//! (`tests/ts/lscpu/dumps/*.tar.gz`).
//!
//! These trees are not part of this repository; `corpus.tsv` contains the counts that an independent reader found in them.
//! `COUNTERSTEER_SYSFS_CORPUS` names a folder with an unpacked tree in each subfolder, named `hwloc-` or `ul-` plus the archive
//! name.

#![allow(clippy::unwrap_used, clippy::panic)] // a test helper that fails has failed its test

use std::path::Path;

use countersteer_model::topology::{GroupBy, Topology};
use countersteer_sysfs::topology::detect;

/// Returns the differences from a line of `corpus.tsv`; `-` if the tree does not contain the value.
fn differences(root: &Path, expected: &[&str]) -> Vec<String> {
    let machine = match detect(root) {
        Ok(machine) => machine,
        Err(error) => return vec![format!("refused: {error}")],
    };
    let topology = Topology::new(&machine);
    let count = |by| topology.groups_by(by).len().to_string();
    let counts = [
        ("CPUs", machine.cpu_count().to_string()),
        ("cores", count(GroupBy::Core)),
        ("core types", count(GroupBy::CoreType)),
        ("last-level caches", count(GroupBy::Llc)),
        ("memory nodes", count(GroupBy::Node)),
    ];
    let wrong = |((what, found), right): (&(&str, String), &&str)| {
        (found != right && *right != "-").then(|| format!("{what}: {found}, not {right}"))
    };
    let mut wrongs: Vec<String> = counts
        .iter()
        .zip(&expected[1..])
        .filter_map(wrong)
        .collect();
    let fastest = topology
        .core_types
        .iter()
        .map(|t| t.freq_ghz)
        .fold(0.0, f64::max);
    if let Ok(ghz) = expected[6].parse::<f64>()
        && (fastest / ghz - 1.0).abs() > 0.05
    {
        wrongs.push(format!("clock: {fastest} GHz, not {ghz}"));
    }
    wrongs
}

#[test]
fn machines_that_other_projects_recorded_are_made_out() {
    let Some(corpus) = std::env::var_os("COUNTERSTEER_SYSFS_CORPUS") else {
        countersteer_fuzz::skipped("COUNTERSTEER_SYSFS_CORPUS names no folder of sysfs trees");
        return;
    };
    let mut wrongs = Vec::new();
    let mut seen = 0;
    for line in include_str!("corpus.tsv")
        .lines()
        .filter(|l| !l.starts_with('#'))
    {
        let expected: Vec<&str> = line.split('\t').collect();
        let root = Path::new(&corpus).join(expected[0]);
        if root.is_dir() {
            seen += 1;
            let of_tree = differences(&root, &expected).into_iter();
            wrongs.extend(of_tree.map(|wrong| format!("{}: {wrong}", expected[0])));
        }
    }
    assert!(
        seen > 0,
        "no folder there has the name of a tree in corpus.tsv"
    );
    assert!(wrongs.is_empty(), "{seen} trees:\n{}", wrongs.join("\n"));
}
