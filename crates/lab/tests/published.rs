//! Tables of counters become profiles, with the figures of the tables and what was left out.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

use std::fmt::Write;
use std::path::Path;

use countersteer_lab::published::{DownloadedTables, ImportedProfiles, import};
use countersteer_model::profile::{Profile, ReachKind};

/// 429.mcf by ways: IPC, misses of the last-level cache per 1,000 instructions, bandwidths, stalls on its misses
/// (pbbcache/cachesim, `simulator/input/metrics.csv`).
const BY_WAYS: [(u32, f64, f64, f64, f64); 6] = [
    (1, 0.3666, 53.59, 2553.0, 0.5756),
    (2, 0.4308, 39.42, 2184.0, 0.5278),
    (4, 0.5158, 26.62, 1759.0, 0.4268),
    (6, 0.5636, 21.26, 1500.0, 0.3191),
    (8, 0.5809, 19.82, 1506.0, 0.2617),
    (11, 0.5864, 19.24, 1436.0, 0.2434),
];

/// 429.mcf on a Core i7 980 (anlongfei/spec2006-perf, `980/output/intfile.xls`).
const EVENTS: &str = "\
429.mcf
L2_RQSTS.MISS\trAA24\t37336197773
L2_RQSTS.REFERENCES\trFF24\t55372959524
L3_LAT_CACHE.REFERENCE\tr4F2E\t29742181887
CPU_CLK_UNHALTED.THREAD_P\tr003C\t1247473468975
L1D_ALL_REF.ANY\tr0143\t272623029719
L1I.MISSES\tr0280\t250515615
DTLB_LOAD_MISSES.ANY\tr0108\t9664787768
DTLB_LOAD_MISSES.STLB_HIT\tr1008\t1971958719
DTLB_MISSES.ANY\tr0149\t10717646872
ITLB_MISSES.ANY\tr0185\t864484
BR_MISP_RETIRED.ALL_BRANCHES\tr00C5\t4620794408
INST_RETIRED.ANY_P\tr00C0\t315276581557
BR_INST_RETIRED.ALL_BRANCHES\tr00C4\t68429608861
998.specrand
INST_RETIRED.ANY_P\tr00C0\t2000000
";

/// Files of 429.mcf by cache size (the Skylake-SP characterization, `2K6`).
const BY_SIZE: [(&str, &str); 4] = [
    (
        "General_Info.csv",
        "429.mcf.1,316,31%,10%,123.18,50.33,17.48,2.20",
    ),
    (
        "Associativity_Prefetch.csv",
        "429.mcf.1,3.81,3.81,2.59,2.27,2.22,41.17,41.10,24.96,18.53,17.55",
    ),
    (
        "Associativity_NoPrefetch.csv",
        "429.mcf.1,5.08,5.11,3.07,2.81,2.75,58.95,59.23,33.91,28.25,27.69",
    ),
    (
        "MPKI_APKI_CPI_Prefetch.csv",
        "429.mcf.1,27.69,24.75,19.01,27.32,25.14,17.55,75.79,59.82,67.44,73.76,58.61,50.97,2.75,2.52,2.59,2.69,2.37,2.22",
    ),
];

fn imported(dir: &Path) -> ImportedProfiles {
    let mut ways =
        "BENCH,NR_WAYS,ipc,llcrpki,llcmpki,bandwidth_mbps,llcm_bandwidth,stalls_l3_miss\n"
            .to_owned();
    for (count, ipc, misses, mb_s, stalled) in BY_WAYS {
        writeln!(
            ways,
            "mcf06,{count},{ipc},69.4,{misses},{mb_s},{mb_s},{stalled}"
        )
        .unwrap();
    }
    ways += "art00,1,NA,1,1,1,1,1\n";
    let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
    write("metrics.csv", &ways);
    write("intfile.xls", EVENTS);
    for (file, row) in BY_SIZE {
        write(&format!("2K6-{file}"), row);
        write(&format!("2K17Rate-{file}"), "");
    }
    let files = DownloadedTables {
        ways: dir.join("metrics.csv"),
        sizes: dir.to_owned(),
        events: vec![dir.join("intfile.xls")],
    };
    import(&files).unwrap()
}

#[test]
fn tables_of_a_program_become_its_profile() {
    let dir = tempfile::tempdir().unwrap();
    let found = imported(dir.path());
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
