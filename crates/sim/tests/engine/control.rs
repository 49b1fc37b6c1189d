//! Control groups, utilisation clamps and hotplug, from the plan to the running times.

use countersteer_model::control::{Control, ControlGroup};
use countersteer_model::cpuset::CpuSet;
use countersteer_model::observation::Observation;
use countersteer_model::units::CpuId;
use countersteer_sim::engine::PlannedHotplug;

use super::*;

/// Observations of a plan at whole seconds, from one second on.
fn observed(topology: &Arc<Topology>, plan: &Plan, seconds: u64) -> Vec<Observation> {
    let config = config(true, 1);
    let mut simulation = Simulation::new(Arc::clone(topology), plan, config).unwrap();
    let at = |second| Nanos::from_millis(1_000 * second);
    (1..=seconds)
        .map(|second| simulation.observe(&Watch::default(), at(second)).unwrap())
        .collect()
}

/// Running time of each thread in seconds.
fn ran(observations: &[Observation], threads: usize) -> Vec<f64> {
    let mut ran = vec![0.0; threads];
    for observation in observations {
        for (thread, sample) in observation.samples.of_threads() {
            ran[thread.index()] += sample.running.as_secs_f64();
        }
    }
    ran
}

fn grouped(name: &str, group: &ControlGroup) -> PlannedProgram {
    PlannedProgram {
        control: Control {
            group: Some(Arc::new(group.clone())),
            ..Control::default()
        },
        ..program(name, &recorded("gzip"), 1, 400.0)
    }
}

#[test]
fn programs_share_by_the_weight_and_limit_of_their_groups() {
    let topology = machine("core2-quad");
    let group = |name: &str, weight, max: Option<&str>| ControlGroup {
        name: name.into(),
        weight,
        max: max.map(str::to_owned),
    };
    let (low, high) = (group("low", 100, None), group("high", 300, None));
    let limited = group("limited", 10_000, Some("50000 100000"));
    // Four programs of each group on four CPUs: a quarter of the time for the group of weight 100.
    let programs = (0..8)
        .map(|n| grouped(&format!("p{n}"), if n < 4 { &low } else { &high }))
        .collect();
    let plan = Plan {
        programs,
        ..Plan::default()
    };
    let of = ran(&observed(&topology, &plan, 4), 8);
    let part = of[..4].iter().sum::<f64>() / of.iter().sum::<f64>();
    assert!((part - 0.25).abs() < 0.02, "{of:?}");
    // All copies of a program share the limit.
    let programs = (0..3)
        .map(|n| grouped(&format!("p{n}"), &limited))
        .collect();
    let plan = Plan {
        programs,
        ..Plan::default()
    };
    let of = ran(&observed(&topology, &plan, 4), 3);
    let total = of.iter().sum::<f64>() / 4.0;
    assert!((total - 0.5).abs() < 0.02, "{of:?}");
}

#[test]
fn an_offline_cpu_runs_nothing() {
    let topology = machine("core2-quad");
    let event = |at_ms, online| PlannedHotplug {
        at: Nanos::from_millis(at_ms),
        cpus: Arc::new(CpuSet::from_iter([CpuId(2)])),
        online,
    };
    let programs = (0..4).map(|n| program(&format!("p{n}"), &recorded("gzip"), 1, 400.0));
    let plan = Plan {
        programs: programs.collect(),
        hotplug: vec![event(1_000, false), event(3_000, true)],
    };
    let seen = observed(&topology, &plan, 4);
    let on_two = |second: usize| {
        let threads = seen[second - 1].threads.iter();
        threads.filter(|t| t.cpu == CpuId(2)).count()
    };
    assert_eq!([on_two(2), on_two(4)], [0, 1]);
    // Three CPUs work in the second and third second, and four in the others, after a moment.
    let work = |second: usize| ran(&seen[second - 1..second], 4).iter().sum::<f64>();
    let works = [work(1), work(2), work(3), work(4)];
    for (got, wanted) in works.iter().zip([4.0, 3.0, 3.0, 4.0]) {
        assert!((got - wanted).abs() < 0.05, "{works:?}");
    }
}
