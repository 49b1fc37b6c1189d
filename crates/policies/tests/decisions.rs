//! Decisions of every policy on a small engine, compared with `decisions/<policy>.txt`; `COUNTERSTEER_BLESS=1` rewrites the
//! files.
//!
//! Each file has three machines. The first decisions are listed in full, with the values seen. For the rest, the file counts
//! how often each thread was placed, with target and reason. A change of a policy's decisions changes its file.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

#[allow(dead_code, reason = "other tests look at more of it")]
mod toy;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use countersteer_model::driver::{DriverConfig, Recorder, drive};
use countersteer_model::engine::{Applied, Observation};
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::{Placement, Target, ThreadPlacement};
use countersteer_model::policy::PolicyRng;
use countersteer_model::topology::Topology;
use countersteer_model::units::{Nanos, ProgramId, ThreadId};
use countersteer_policies::{POLICIES, parse};
use rand_pcg::rand_core::SeedableRng;

use toy::{Life, Toy};

const PERIOD: Nanos = Nanos::from_millis(100);
const IN_FULL: Nanos = Nanos::from_millis(500);
const UNTIL: Nanos = Nanos::from_millis(10_000);

/// Parameters that decide by other rules than the default ones.
const VARIANTS: [&str; 10] = [
    "best-static:objective=edp",
    "hsf:sf=sampled,phases=on",
    "hsf:sf=history",
    "hsf:sf=oracle,tlp=camp",
    "ef:ef=oracle",
    "hass:shared-cache=on",
    "joint:objective=fairness",
    "joint:objective=energy",
    "contention:ways=split",
    "aarr:turn_ms=300",
];

/// Recorder that writes decisions to a text.
#[derive(Default)]
struct Log {
    text: String,
    /// By thread, target and rule: number of placements after the first decisions.
    later: BTreeMap<(ThreadId, String, String), u32>,
}

impl Recorder for Log {
    fn observation(&mut self, _: &Topology, _: &Observation, _: &MetricBank) {}

    fn decision(&mut self, topology: &Topology, at: Nanos, placement: &Placement, _: Applied) {
        for entry in &placement.threads {
            let target = target(topology, &entry.target);
            if at <= IN_FULL {
                let line = in_full(topology, entry);
                writeln!(self.text, "{at} {} to {target}{line}", entry.thread).unwrap();
            } else {
                let key = (entry.thread, target, entry.reason.rule.to_string());
                *self.later.entry(key).or_default() += 1;
            }
        }
        let caches = placement.caches.iter().flatten();
        for class in caches.filter(|_| at <= IN_FULL) {
            let shares: Vec<String> = class.shares.iter().map(|s| format!("{s:?}")).collect();
            writeln!(self.text, "{at} {}: {}", class.members, shares.join(", ")).unwrap();
        }
        if let Some(table) = placement.admission.as_ref().filter(|_| at <= IN_FULL) {
            let rows: Vec<String> = table
                .rows
                .iter()
                .map(|(least, group)| format!("{least:.3} {}", topology.group(*group).name))
                .collect();
            let rows = rows.join(", ");
            writeln!(self.text, "{at} new threads by {}: {rows}", table.metric).unwrap();
        }
    }
}

fn target(topology: &Topology, target: &Target) -> String {
    match target {
        Target::Group(group) => topology.group(*group).name.clone(),
        Target::Cpus(cpus) => format!("CPUs {cpus}"),
        Target::Anywhere => "anywhere".into(),
    }
}

fn in_full(topology: &Topology, entry: &ThreadPlacement) -> String {
    let mut line = String::new();
    if let Some(weight) = entry.weight {
        write!(line, ", weight {weight}").unwrap();
    }
    if let Some(clamp) = entry.clamp {
        write!(line, ", clamp {}-{}", clamp.least, clamp.most).unwrap();
    }
    let reason = &entry.reason;
    write!(line, ": {}", reason.rule).unwrap();
    for (metric, value) in &reason.seen {
        write!(line, "; {metric} {value:.4}").unwrap();
    }
    for (group, value) in &reason.alternatives {
        write!(line, "; {} {value:.4}", topology.group(*group).name).unwrap();
    }
    line
}

fn decided(spec: &str) -> String {
    let mut all = String::new();
    for topology in toy::machines().iter().take(3) {
        let lives = [
            (topology.cpus.len(), false),
            (topology.cpus.len() + 2, true),
        ];
        for (threads, changes) in lives {
            writeln!(all, "# {}, {threads} threads", topology.name).unwrap();
            all.push_str(&on(spec, topology, Life { threads, changes }));
        }
    }
    all
}

fn on(spec: &str, topology: &Arc<Topology>, life: Life) -> String {
    let mut engine = Toy::new(topology, life, 7);
    // Programs have two threads each at the start; each later thread is a program of its own.
    for thread in &mut engine.threads {
        thread.info.program = ProgramId(thread.info.id.0 / 2);
    }
    let mut policy = parse(spec, topology).unwrap();
    let mut log = Log::default();
    let config = DriverConfig {
        period: PERIOD,
        until: UNTIL,
    };
    let mut rng = PolicyRng::seed_from_u64(7);
    drive(
        &mut engine,
        policy.as_mut(),
        &mut [&mut log],
        config,
        &mut rng,
    )
    .unwrap();
    let mut text = log.text;
    writeln!(text, "after {IN_FULL}, times:").unwrap();
    for ((thread, target, rule), times) in log.later {
        writeln!(text, "{thread} to {target} {times}: {rule}").unwrap();
    }
    text
}

#[test]
fn policies_decide_what_they_decided_when_somebody_last_looked() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/decisions");
    let bless = std::env::var_os("COUNTERSTEER_BLESS").is_some();
    let named = POLICIES.iter().map(|p| match p.name {
        "static" => "static:*=machine",
        name => name,
    });
    let mut changed = Vec::new();
    for spec in named.chain(VARIANTS) {
        let file = folder.join(format!("{}.txt", spec.replace(['*', ':', '='], "-")));
        let got = decided(spec);
        if bless {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&file, &got).unwrap();
        }
        let expected = std::fs::read_to_string(&file).unwrap_or_default();
        if got != expected {
            let pairs = got
                .lines()
                .zip(expected.lines().chain(std::iter::repeat("")));
            let first = pairs
                .enumerate()
                .find(|(_, (got, expected))| got != expected);
            changed.push(format!("{}: {first:?}", file.display()));
        }
    }
    assert!(
        changed.is_empty(),
        "decisions differ (line, now, before); COUNTERSTEER_BLESS=1 accepts them:\n{}",
        changed.join("\n")
    );
}
