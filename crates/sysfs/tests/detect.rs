//! Detection of machines from files: every folder of `sysfs/` holds a machine's files and the expected machine.
//!
//! `countersteer_fuzz::fake_root` unpacks `tree.txt`. `COUNTERSTEER_BLESS=1` rewrites `expected.toml`. The trees of `i7-1370p`
//! and `gb10` are recordings of the hwloc project on real machines. The others follow the layout of their machines.

#![allow(clippy::unwrap_used, clippy::panic)] // a test helper that fails has failed its test

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use countersteer_model::machine::{LinuxKind, Machine};
use countersteer_model::topology::{GroupBy, Topology};
use countersteer_sysfs::topology::detect;

use countersteer_fuzz::fake_root::{files_below, unpack};

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sysfs")
}

fn tree_of(case: &str) -> String {
    std::fs::read_to_string(cases().join(case).join("tree.txt")).unwrap()
}

/// Machine of every case, detected once: a tree has some hundred small files.
static MACHINES: LazyLock<BTreeMap<String, Machine>> = LazyLock::new(|| {
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.unwrap().file_name().into_string().unwrap()
    };
    std::fs::read_dir(cases())
        .unwrap()
        .map(name)
        .map(|case| (case.clone(), made_out(&case)))
        .collect()
});

fn machine_of(case: &str) -> Machine {
    MACHINES[case].clone()
}

fn made_out(case: &str) -> Machine {
    detect(unpack(&tree_of(case)).path()).unwrap_or_else(|e| panic!("{case}: {e}"))
}

#[test]
fn recorded_machines_are_made_out_as_expected() {
    for (case, machine) in MACHINES.iter() {
        let text = machine.to_toml().unwrap();
        assert_eq!(
            Machine::parse(case, &text).unwrap(),
            *machine,
            "{case} survives a file"
        );
        let golden = cases().join(case).join("expected.toml");
        if std::env::var_os("COUNTERSTEER_BLESS").is_some() {
            std::fs::write(&golden, &text).unwrap();
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        assert!(
            text == expected,
            "{case}: expected\n{expected}\ngot\n{text}"
        );
    }
}

/// Checks the facts that policies need: kernel kind, core types with their CPUs (fastest first), number of last-level caches.
#[test]
fn core_kinds_and_caches_are_right() {
    use LinuxKind::{EnergyAware, SmtHybrid, Symmetric};
    type Types = &'static [(&'static str, &'static str)];
    const EXPECTED: &[(&str, LinuxKind, Types, usize)] = &[
        (
            "8cx-gen3",
            EnergyAware,
            &[("cortex-x1", "4-7"), ("cortex-a78", "0-3")],
            1,
        ),
        ("altra-2p", Symmetric, &[("neoverse-n1", "0-159")], 160),
        (
            "apple-m1",
            EnergyAware,
            &[("firestorm", "4-7"), ("icestorm", "0-3")],
            2,
        ),
        (
            "apple-m2",
            EnergyAware,
            &[("avalanche", "4-7"), ("blizzard", "0-3")],
            2,
        ),
        (
            "arrow-lake",
            LinuxKind::Capacity,
            &[("lion-cove", "0-7"), ("skymont", "8-23")],
            1,
        ),
        (
            "arrow-lake-h",
            SmtHybrid,
            &[
                ("lion-cove", "0-5"),
                ("skymont", "6-13"),
                ("crestmont", "14-15"),
            ],
            2,
        ),
        ("epyc-9354p", Symmetric, &[("zen4", "0-63")], 8),
        ("epyc-9645", Symmetric, &[("zen5c", "0-95")], 8),
        (
            "gb10",
            LinuxKind::Capacity,
            &[("cortex-x925", "5-9,15-19"), ("cortex-a725", "0-4,10-14")],
            2,
        ),
        ("graviton3", Symmetric, &[("neoverse-v1", "0-63")], 1),
        (
            "i5-13600k",
            SmtHybrid,
            &[("raptor-cove", "0-11"), ("gracemont", "12-19")],
            1,
        ),
        (
            "i5-14600k-guest",
            SmtHybrid,
            &[("raptor-cove", "0-11"), ("gracemont", "12-19")],
            1,
        ),
        (
            "i7-1370p",
            SmtHybrid,
            &[("raptor-cove", "0-11"), ("gracemont", "12-19")],
            1,
        ),
        (
            "i9-12900k",
            SmtHybrid,
            &[("golden-cove", "0-15"), ("gracemont", "16-23")],
            1,
        ),
        (
            "i9-12900k-nosmt",
            EnergyAware,
            &[("golden-cove", "0-7"), ("gracemont", "8-15")],
            1,
        ),
        (
            "i9-12900k-offline",
            SmtHybrid,
            &[("golden-cove", "0-14"), ("gracemont", "15-21")],
            1,
        ),
        (
            "juno",
            EnergyAware,
            &[("cortex-a57", "1-2"), ("cortex-a53", "0,3-5")],
            2,
        ),
        (
            "lunar-lake",
            EnergyAware,
            &[("lion-cove", "0-3"), ("skymont", "4-7")],
            2,
        ),
        (
            "lunar-lake-blind",
            SmtHybrid,
            &[("lion-cove", "0-3"), ("skymont", "4-7")],
            2,
        ),
        (
            "meteor-lake",
            SmtHybrid,
            &[
                ("redwood-cove", "0-11"),
                ("crestmont", "12-19"),
                ("crestmont-lp", "20-21"),
            ],
            2,
        ),
        (
            "no-caches",
            LinuxKind::Capacity,
            &[("cortex-a73", "4-7"), ("cortex-a53", "0-3")],
            2,
        ),
        (
            "phone-sm8550",
            EnergyAware,
            &[
                ("cortex-x3", "7"),
                ("cortex-a715", "3-4"),
                ("cortex-a710", "5-6"),
                ("cortex-a510", "0-2"),
            ],
            1,
        ),
        ("plain-vm", Symmetric, &[("golden-cove-server", "0-1")], 1),
        (
            "ryzen-7950x3d",
            SmtHybrid,
            &[("zen4", "8-15,24-31"), ("zen4-x3d", "0-7,16-23")],
            2,
        ),
        (
            "ryzen-7950x3d-one-clock",
            SmtHybrid,
            &[("zen4", "8-15,24-31"), ("zen4-x3d", "0-7,16-23")],
            2,
        ),
        (
            "ryzen-9950x3d",
            SmtHybrid,
            &[("zen5", "8-15,24-31"), ("zen5-x3d", "0-7,16-23")],
            2,
        ),
        ("snapdragon-x", Symmetric, &[("oryon", "0-11")], 3),
        ("strix-halo", Symmetric, &[("zen5", "0-31")], 2),
        (
            "strix-point",
            SmtHybrid,
            &[("zen5", "0-3,12-15"), ("zen5c", "4-11,16-23")],
            2,
        ),
        ("two-sockets", Symmetric, &[("skylake-server", "0-31")], 2),
    ];
    assert_eq!(EXPECTED.len(), MACHINES.len(), "a row per case");
    for (case, linux, types, llcs) in EXPECTED {
        let topology = Topology::new(&machine_of(case));
        let made_out: Vec<(String, String)> = topology
            .groups_by(GroupBy::CoreType)
            .iter()
            .map(|g| (g.name.clone(), g.cpus.to_string()))
            .collect();
        let expected: Vec<(String, String)> = types
            .iter()
            .map(|(n, c)| ((*n).into(), (*c).into()))
            .collect();
        assert_eq!((topology.linux, made_out), (*linux, expected), "{case}");
        assert_eq!(
            topology.groups_by(GroupBy::Llc).len(),
            *llcs,
            "{case}: last-level caches"
        );
    }
}

#[test]
fn offline_cpus_leave_no_holes_and_keep_the_kernels_numbers() {
    let machine = machine_of("i9-12900k-offline");
    let numbers: Vec<u32> = machine.os_cpu_numbers().iter().map(|c| c.0).collect();
    assert_eq!(
        numbers,
        (0..24)
            .filter(|n| ![3, 21].contains(n))
            .collect::<Vec<u32>>()
    );
    let topology = Topology::new(&machine);
    let cores: BTreeMap<u32, usize> =
        topology
            .cpus
            .iter()
            .fold(BTreeMap::new(), |mut sizes, cpu| {
                *sizes.entry(cpu.core).or_default() += 1;
                sizes
            });
    assert_eq!(
        (cores[&0], cores[&1], cores[&2]),
        (2, 1, 2),
        "the core that lost a sibling has one thread"
    );
    assert_eq!(topology.groups_by(GroupBy::Core).len(), 15);
    assert_eq!(
        machine_of("i9-12900k").os_cpus,
        None,
        "nothing to say where all are online"
    );
}

#[test]
fn favoured_cores_set_no_clock_for_the_others() {
    let machine = machine_of("i9-12900k");
    assert_eq!(machine.core_type[0].freq_ghz, 5.1);
}

#[test]
fn sockets_and_memory_domains_follow_interleaved_numbers() {
    let topology = Topology::new(&machine_of("two-sockets"));
    let of = |by| {
        topology
            .groups_by(by)
            .iter()
            .map(|g| g.cpus.len())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (of(GroupBy::Socket), of(GroupBy::Node)),
        (vec![16, 16], vec![16, 16])
    );
    assert!(
        topology
            .groups_by(GroupBy::Core)
            .iter()
            .all(|g| g.cpus.len() == 2)
    );
}

#[test]
fn a_folder_without_any_cpu_is_no_machine() {
    let root = unpack("etc/hostname: x");
    let error = detect(root.path()).unwrap_err().to_string();
    assert_eq!(
        error.replace(&*root.path().to_string_lossy(), "ROOT"),
        "ROOT: neither sys/devices/system/cpu nor proc/stat lists any CPU; \
         is this the root of a running Linux, with sysfs on its /sys?"
    );
}

#[test]
fn the_host_itself_is_made_out() {
    if !Path::new("/sys/devices/system/cpu/online").exists() {
        countersteer_fuzz::skipped("no sysfs on /sys");
        return;
    }
    let machine = detect(Path::new("/")).unwrap();
    assert!(machine.cpu_count() > 0);
}

#[test]
fn no_file_of_a_machine_makes_it_fall() {
    for case in ["lunar-lake", "snapdragon-x", "two-sockets"] {
        let root = unpack(&tree_of(case));
        let mut files = Vec::new();
        files_below(root.path(), &mut files);
        let texts: Vec<Vec<u8>> = files.iter().map(|f| std::fs::read(f).unwrap()).collect();
        let examples: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        let turn = std::cell::Cell::new(0);
        countersteer_fuzz::storm(case, &examples, 0.004, |input| {
            let nth = turn.replace(turn.get() + 1) % files.len();
            std::fs::write(&files[nth], input).unwrap();
            let _ = detect(root.path());
            std::fs::write(&files[nth], &texts[nth]).unwrap();
        });
    }
}
