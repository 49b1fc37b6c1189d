//! `hsf:sf=history` sends threads with an unknown phase to a big core and states it in the reason. Without success it does so
//! less and less often.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

use std::sync::Arc;

use countersteer_model::engine::{Observation, ThreadInfo};
use countersteer_model::machine::Machine;
use countersteer_model::metric::MetricBank;
use countersteer_model::policy::{PolicyRng, View};
use countersteer_model::sample::{Event, Sample, Samples};
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ProgramId, ThreadId};
use rand_pcg::rand_core::SeedableRng;

const PERIOD: Nanos = Nanos::from_millis(100);

/// Times in ms at which each of four threads was sent to a big core for its table. The second result is the final two threads
/// on big cores. The machine has two big and two small cores. `phase` gives branches per 1,000 instructions at a decision,
/// `classes` Thread Director's classes.
fn sent(seconds: u64, phase: impl Fn(u64) -> f64, classes: [f64; 4]) -> (Vec<Vec<u64>>, Vec<u32>) {
    let machine = include_str!("toy/two-big-two-small.toml");
    let topology = Arc::new(Topology::new(&Machine::parse("m", machine).unwrap()));
    let thread = |id: u32| ThreadInfo {
        id: ThreadId(id),
        program: ProgramId(id),
        name: "p".into(),
        cpu: CpuId(id),
        runnable: true,
        nice: 0,
        allowed: Arc::clone(&topology.groups[0].cpus),
        hint: None,
    };
    let mut threads: Vec<ThreadInfo> = (0..4).map(thread).collect();
    let spec = "hsf:sf=history,history=td";
    let mut policy = countersteer_policies::parse(spec, &topology).unwrap();
    let mut metrics = MetricBank::new(&topology, &policy.needs().metrics);
    let mut rng = PolicyRng::seed_from_u64(1);
    let mut sent = vec![Vec::new(); 4];
    let big = |t: &ThreadInfo| topology.core_type_of(t.cpu).index() == 0;
    for decision in 0..seconds * 10 {
        let now = Nanos(PERIOD.0 * decision);
        let samples = threads.iter().zip(classes).map(|(info, class)| {
            let mut counts = vec![
                (Event::Instructions, 1e6),
                (Event::Branches, 1e3 * phase(decision)),
            ];
            if big(info) {
                counts.push((Event::TdClass, class));
            }
            Samples::of(
                Sample::of_thread(
                    info.id,
                    info.cpu,
                    topology.core_type_of(info.cpu),
                    now,
                    PERIOD,
                ),
                1,
                &counts,
            )
        });
        metrics.update(&Observation {
            samples: samples.collect(),
            ..Observation::default()
        });
        let mut view = View {
            group: None,
            programs: &[],
            now,
            topology: &topology,
            threads: &threads,
            events: &[],
            metrics: &metrics,
            forecast: None,
        };
        for placed in policy.decide(&mut view, &mut rng).threads {
            let info = &mut threads[placed.thread.index()];
            info.allowed = placed.target.cpus(&topology);
            info.cpu = info.allowed.lowest().unwrap();
            if placed.reason.rule.contains("history table") && big(info) {
                sent[info.id.index()].push(now.0 / 1_000_000);
            }
        }
    }
    let on_big = threads.iter().filter(|t| big(t)).map(|t| t.id.0);
    (sent, on_big.collect())
}

#[test]
fn one_phase_needs_one_visit_and_the_best_stay() {
    // One constant phase; classes 2 and 1 have the highest ratios, and these threads begin on small cores.
    let (sent, on_big) = sent(20, |_| 100.0, [3.0, 0.0, 2.0, 1.0]);
    let times: Vec<usize> = sent.iter().map(Vec::len).collect();
    // One of them comes to a big core by itself, since without a factor it counts as average.
    assert!(times == [0, 0, 0, 1] || times == [0, 0, 1, 0], "{sent:?}");
    assert_eq!(on_big, [2, 3]);
}

#[test]
fn visits_that_change_nothing_become_rare() {
    // A new phase every half second: each time both threads on small cores lose their factors.
    let new = |decision: u64| 20.0 * 1.5f64.powi((decision / 5 % 60) as i32);
    let (sent, on_big) = sent(120, new, [2.0, 2.0, 3.0, 3.0]);
    assert_eq!(on_big, [0, 1]);
    for times in &sent[2..] {
        assert!((4..=10).contains(&times.len()), "{sent:?}");
        let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|gap| *gap >= 2_000), "{gaps:?}");
        assert!(gaps.last() >= Some(&16_000), "{gaps:?}");
    }
}
