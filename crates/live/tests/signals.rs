//! A signal that arrives while the engine is being opened. The test is alone in its process, since all its threads would get it.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use countersteer_live::affinity::AffinityConfig;
use countersteer_live::{LiveConfig, LiveEngine, LiveWorkload, StartingProgram, Stealing};
use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::engine::{Engine, Watch};
use countersteer_model::topology::Topology;
use countersteer_model::units::{Nanos, ProgramId};
use countersteer_sysfs::signals::EndSignals;
use nix::sys::signal::{Signal, raise};

#[test]
fn a_signal_before_the_counters_are_open_ends_the_run() {
    let machine = countersteer_sysfs::topology::detect(Path::new("/")).unwrap();
    let topology = Arc::new(Topology::new(&machine));
    let journals = tempfile::tempdir().unwrap();
    let config = LiveConfig {
        affinity: AffinityConfig {
            numbers: CpuNumbers::new(machine.os_cpu_numbers()),
            topology,
            counters: None,
            period: Nanos::from_millis(100),
            dry: true,
            bpf: None,
        },
        journals: journals.path().to_owned(),
        root: "/".into(),
        recount: None,
        stealing: Stealing::default(),
        signals: EndSignals::listen().unwrap(),
        say: |_| {},
    };
    raise(Signal::SIGTERM).unwrap();
    let program = StartingProgram {
        command: ["sleep", "100"].map(str::to_owned).to_vec(),
        program: ProgramId(0),
        name: "sleep".into(),
        nice: 0,
        launch_on: None,
        start: Nanos::ZERO,
    };
    let workload = LiveWorkload::of(vec![program]).unwrap();
    let mut engine = LiveEngine::open(config, None, workload).unwrap();
    let begun = Instant::now();
    let watch = Watch {
        metrics: &[],
        period: Nanos::from_millis(100),
        events: false,
        switches: false,
        values: None,
    };
    while !engine
        .observe(&watch, Nanos::from_millis(60_000))
        .unwrap()
        .finished
    {
        assert!(begun.elapsed() < Duration::from_secs(50), "it goes on");
    }
    assert!(begun.elapsed() < Duration::from_secs(50), "it goes on");
}
