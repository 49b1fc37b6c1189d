//! Tests of machine files: shipped ones are valid, and impossible ones are refused at the right line.
//!
//! `bad_machines/<case>.toml` has the expected error in `<case>.txt`; `COUNTERSTEER_BLESS=1` rewrites the errors.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use countersteer_model::machine::{LinuxKind, Machine};
use countersteer_model::topology::{GroupBy, Topology};

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn toml_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path());
    let mut files: Vec<_> = entries
        .filter(|p| p.extension().is_some_and(|e| e == "toml"))
        .collect();
    files.sort();
    files
}

fn shipped() -> Vec<Machine> {
    let files = toml_files(&here().join("../../machines"));
    let read = |path: &PathBuf| {
        let machine = Machine::parse(
            &path.to_string_lossy(),
            &std::fs::read_to_string(path).unwrap(),
        )
        .unwrap();
        assert_eq!(
            path.file_stem().unwrap().to_str(),
            Some(machine.name.as_str()),
            "the file is named after the machine"
        );
        machine
    };
    files.iter().map(read).collect()
}

#[test]
fn shipped_machines_survive_a_round_trip() {
    for machine in shipped() {
        let text = machine.to_toml().unwrap();
        assert_eq!(Machine::parse("again", &text).unwrap(), machine);
    }
}

/// Numbers of CPUs and cores, core types (fastest first), numbers of last-level caches and memory domains.
type Shape = (usize, usize, &'static [&'static str], usize, usize);

#[test]
fn shipped_machines_have_the_core_groups_they_are_known_for() {
    const EXPECTED: &[(&str, Shape)] = &[
        ("apple-m1", (8, 8, &["firestorm", "icestorm"], 1, 1)),
        ("core2-quad", (4, 4, &["conroe"], 2, 1)),
        ("i9-12900k", (24, 16, &["golden-cove", "gracemont"], 1, 1)),
        (
            "i9-12900k-8p8e",
            (16, 16, &["golden-cove", "gracemont"], 1, 1),
        ),
        ("juno-2-4", (6, 6, &["cortex-a57", "cortex-a53"], 2, 1)),
        (
            "opteron-2425-2b-10s",
            (12, 12, &["istanbul-2100mhz", "istanbul-800mhz"], 2, 2),
        ),
        (
            "opteron-8356-12-4",
            (16, 16, &["barcelona-2300mhz", "barcelona-1150mhz"], 4, 4),
        ),
        (
            "opteron-8356-2-2",
            (4, 4, &["barcelona-2300mhz", "barcelona-1150mhz"], 4, 4),
        ),
        (
            "opteron-8356-4-4-2-2",
            (
                12,
                12,
                &[
                    "barcelona-2300mhz",
                    "barcelona-2000mhz",
                    "barcelona-1400mhz",
                    "barcelona-1150mhz",
                ],
                4,
                4,
            ),
        ),
        (
            "phone-1-3-4",
            (8, 8, &["cortex-x3", "cortex-a715", "cortex-a510"], 1, 1),
        ),
        ("quickia-2b-2s", (4, 4, &["penryn", "bonnell"], 4, 1)),
        ("ryzen-7950x3d", (32, 16, &["zen4", "zen4-x3d"], 2, 1)),
        ("server-12llc", (192, 96, &["zen4"], 12, 1)),
        ("xeon-gold-6138", (20, 20, &["skylake-sp"], 1, 1)),
        (
            "xeon-x5365-2-2",
            (4, 4, &["conroe-3000mhz", "conroe-2000mhz"], 4, 1),
        ),
    ];
    let expected: BTreeMap<&str, Shape> = EXPECTED.iter().copied().collect();
    let machines = shipped();
    let mut names: Vec<&str> = machines.iter().map(|m| m.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, expected.keys().copied().collect::<Vec<_>>());
    for machine in &machines {
        let t = Topology::new(machine);
        let types: Vec<&str> = t.core_types.iter().map(|c| c.name.as_str()).collect();
        let count = |by| t.groups_by(by).len();
        let shape = (
            t.cpus.len(),
            count(GroupBy::Core),
            &types[..],
            count(GroupBy::Llc),
            count(GroupBy::Node),
        );
        assert_eq!(shape, expected[machine.name.as_str()], "{}", machine.name);
        assert_eq!(
            count(GroupBy::CoreType),
            types.len(),
            "{}: every core type has CPUs",
            machine.name
        );
    }
}

#[test]
fn capacities_are_what_the_kernel_would_say() {
    for machine in shipped() {
        let distinguished = machine.core_type.iter().any(|t| t.capacity < 1024);
        let tells = matches!(machine.linux, LinuxKind::Capacity | LinuxKind::EnergyAware);
        assert_eq!(
            distinguished, tells,
            "{}: only kernels that know capacities have other ones than 1024",
            machine.name
        );
    }
}

#[test]
fn impossible_machines_are_refused_at_the_offending_line() {
    let folder = here().join("tests/bad_machines");
    let files = toml_files(&folder);
    assert!(files.len() >= 20, "the cases are there");
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let refused = Machine::parse(name, &text).expect_err(name).to_string() + "\n";
        let golden = path.with_extension("txt");
        if std::env::var_os("COUNTERSTEER_BLESS").is_some() {
            std::fs::write(&golden, &refused).unwrap();
        }
        assert_eq!(
            refused,
            std::fs::read_to_string(&golden).unwrap_or_default(),
            "{name}"
        );
    }
}
