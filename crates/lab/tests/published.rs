//! Tables of counters become profiles, with the figures of the tables and what was left out.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

use std::path::Path;

use countersteer_lab::published::{DownloadedTables, import};
use countersteer_model::profile::{Profile, ReachKind};

#[test]
fn tables_of_a_program_become_its_profile() {
    // Rows of 429.mcf: by ways (pbbcache/cachesim, `simulator/input/metrics.csv`), by events on a Core i7 980
    // (anlongfei/spec2006-perf, `980/output/intfile.xls`), by cache size (the Skylake-SP characterization, `2K6`).
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/published");
    let found = import(&DownloadedTables {
        ways: folder.join("metrics.csv"),
        sizes: folder.join("XEON_SKL"),
        events: vec![folder.join("intfile.xls")],
    })
    .unwrap();
    let [mcf] = found.profiles.as_slice() else {
        unreachable!("{:?}", found.profiles)
    };
    assert_eq!(
        (mcf.name.as_str(), mcf.giga_instructions),
        ("mcf-2006", 315.3)
    );
    assert_eq!(
        (mcf.figures.loads.value, &*mcf.figures.loads.from),
        (0.31, "skylake-sp")
    );
    assert_eq!(&*mcf.figures.fp.from, "assumed");
    let misses: Vec<f64> = mcf.curve.iter().map(|point| point.mpki).collect();
    assert!(misses.is_sorted_by(|a, b| a >= b), "{misses:?}");
    let third = mcf.curve.iter().find(|p| p.cache_kib == 3584.0).unwrap();
    assert_eq!((third.mpki, &*third.from), (53.59, "pbbcache"));
    let reach = |kind, entries: f64| {
        let mut points = mcf.reach.iter();
        let point = points.find(|p| p.kind == kind && p.entries == entries);
        point.map(|p| p.mpki).unwrap()
    };
    // Page walks of loads and stores, and in smaller buffers also the loads that the second level translates.
    assert_eq!(reach(ReachKind::DataPages, 512.0), 33.99);
    assert_eq!(reach(ReachKind::DataPages, 64.0), 40.25);
    assert_eq!(reach(ReachKind::CodeLines, 512.0), 0.7946);
    assert_eq!(reach(ReachKind::CodePages, 640.0), 0.002742);
    let left_out = found.left_out.join("\n");
    assert!(
        left_out.contains("art00,1,NA") && left_out.contains("998.specrand"),
        "{left_out}"
    );

    let text = toml::to_string(mcf).unwrap();
    let profile = Profile::parse("mcf-2006.toml", &text).unwrap();
    assert_eq!(profile.name(), "mcf-2006");
    assert_eq!(profile.instructions(), 315_300_000_000);
}
