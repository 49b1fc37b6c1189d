//! Tests of frequencies, power limit, idle states and way masks, by closed forms on a synthetic machine.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::sync::Arc;

use countersteer_model::driver::{DriverConfig, drive};
use countersteer_model::engine::{Engine, Watch};
use countersteer_model::machine::{Governor, Machine};
use countersteer_model::placement::{
    CacheShare, Clamp, ClockLimit, Members, Placement, Reason, Target, ThreadPlacement, WayClass,
    Ways,
};
use countersteer_model::policy::PolicyRng;
use countersteer_model::score::Outcome;
use countersteer_model::topology::{GroupBy, Topology};
use countersteer_model::units::{CpuId, Nanos, ProgramId, ThreadId};
use countersteer_sim::engine::{Plan, PlannedProgram, SimConfig, Simulation};
use countersteer_sim::linux::LinuxConfig;
use countersteer_sim::progress::synthetic::{self, SyntheticKind};
use countersteer_sim::progress::{ProgressConfig, synthetic::profile};
use rand::SeedableRng;

const ACTIVE_W: f64 = 2.0;
const INSTRUCTION_NJ: f64 = 0.5;
const IDLE_W: f64 = 0.1;
const CORES: u32 = 4;
const INSTRUCTIONS: u64 = 4_000_000_000;

/// Machine of four cores with points at 1, 1.5, 2 and 3 GHz and a nominal frequency of 2 GHz. `extra` goes into the core type,
/// `top` before it.
fn machine(top: &str, extra: &str, turbo: &str) -> Arc<Topology> {
    let text = format!(
        "schema = \"countersteer.machine/1\"\nname = \"four\"\ntitle = \"four cores\"\nsource = \"made up\"\nlinux = \"symmetric\"\n{top}
        [[core_type]]\nname = \"core\"\ndispatch_width = 4\nwindow = 128\nfreq_ghz = 2.0\ncapacity = 1024
        branch_penalty_cycles = 12\n{extra}
        frequency = {{ points = [{{ ghz = 1.0, volts = 0.8 }}, {{ ghz = 1.5, volts = 0.9 }}, {{ ghz = 2.0, volts = 1.0 }}, {{ ghz = 3.0, volts = 1.25 }}], turbo_ghz = [{turbo}] }}
        l1d = {{ size_kib = 32, ways = 8, latency_cycles = 4 }}
        power = {{ idle_w = {IDLE_W}, active_w = {ACTIVE_W}, instruction_nj = {INSTRUCTION_NJ} }}
        [[cores]]\ntype = \"core\"\ncpus = \"0-3\"
        [[cache]]\nlevel = 3\ncpus = \"0-3\"\nsize_kib = 8192\nways = 16\nlatency_ns = 10
        [[memory]]\ncpus = \"0-3\"\nlatency_ns = 80\nbandwidth_gb_s = 50\n"
    );
    Arc::new(Topology::new(&Machine::parse("four.toml", &text).unwrap()))
}

fn program(name: &str, kind: SyntheticKind) -> PlannedProgram {
    PlannedProgram {
        name: name.into(),
        profile: Arc::new(profile(name, &[(kind, INSTRUCTIONS)])),
        threads: 1,
        serial_share: 0.0,
        control: Default::default(),
        nice: 0,
        start: Nanos::ZERO,
        bursts: None,
        barriers: 1,
        chunk: None,
        launch_on: None,
        scale: 1.0,
    }
}

/// A program that never misses, so that its cycles do not depend on the frequency.
fn computing(nth: u32) -> PlannedProgram {
    let mut kind = synthetic::compute();
    kind.cold_pki = 0.0;
    program(&format!("p{nth}"), kind)
}

fn config(governor: Option<Governor>) -> SimConfig {
    SimConfig {
        seed: 1,
        linux: LinuxConfig::default(),
        progress: ProgressConfig {
            costs: false,
            ..ProgressConfig::default()
        },
        counter_noise: 0.0,
        sample_cost: Nanos::ZERO,
        rounds: 1,
        trace: false,
        governor,
    }
}

fn run(
    topology: &Arc<Topology>,
    programs: Vec<PlannedProgram>,
    governor: Option<Governor>,
) -> Outcome {
    let plan = Plan {
        programs,
        ..Plan::default()
    };
    let mut simulation = Simulation::new(Arc::clone(topology), &plan, config(governor)).unwrap();
    let mut policy = countersteer_policies::parse("linux", topology).unwrap();
    let driver = DriverConfig {
        period: Nanos::from_millis(100),
        until: Nanos::NEVER,
    };
    let mut rng = PolicyRng::seed_from_u64(1);
    drive(&mut simulation, policy.as_mut(), &mut [], driver, &mut rng).unwrap();
    simulation.outcome()
}

fn seconds(outcome: &Outcome) -> f64 {
    outcome.programs[0].completions_s[0]
}

#[track_caller]
fn close(value: f64, expected: f64, part: f64) {
    assert!(
        (value / expected - 1.0).abs() < part,
        "{value} for {expected}"
    );
}

#[test]
fn time_and_energy_of_a_run_follow_frequency_and_voltage() {
    let at = |ghz: &str| run(&machine("", "", ghz), vec![computing(0)], None);
    let (slow, nominal, fast) = (at("1.0"), at("2.0"), at("3.0"));
    close(seconds(&slow), 2.0 * seconds(&nominal), 1e-6);
    close(seconds(&fast), seconds(&nominal) / 1.5, 1e-6);
    let n = INSTRUCTIONS as f64;
    for (outcome, ghz, volts) in [
        (&slow, 1.0, 0.8f64),
        (&nominal, 2.0, 1.0),
        (&fast, 3.0, 1.25),
    ] {
        let s = seconds(outcome);
        let busy =
            ACTIVE_W * volts * volts * ghz / 2.0 * s + n * INSTRUCTION_NJ * 1e-9 * volts * volts;
        let idle = f64::from(CORES - 1) * IDLE_W * s;
        close(outcome.energy_j, busy + idle, 1e-3);
    }
}

#[test]
fn turbo_is_for_few_active_cores() {
    let topology = machine("", "", "3.0, 2.0, 2.0, 1.5");
    let alone = run(&topology, vec![computing(0)], None);
    let all = run(&topology, (0..CORES).map(computing).collect(), None);
    close(seconds(&all), seconds(&alone) * 3.0 / 1.5, 1e-3);
    close(all.programs[0].alone_fast_s, seconds(&alone), 1e-6);
}

#[test]
fn a_power_limit_lets_bursts_go_and_holds_in_the_long_run() {
    let free = machine("", "", "3.0");
    let plan = || (0..CORES).map(computing).collect::<Vec<_>>();
    let outcome = run(&free, plan(), None);
    let unlimited_w = outcome.energy_j / seconds(&outcome);
    let watts = 0.6 * unlimited_w;
    let limited = machine(
        &format!("power_limit = {{ watts = {watts}, seconds = 0.05 }}"),
        "",
        "3.0",
    );
    let outcome = run(&limited, plan(), None);
    close(outcome.energy_j / seconds(&outcome), watts, 0.06);
    let roomy = format!(
        "power_limit = {{ watts = {}, seconds = 0.05 }}",
        1.01 * unlimited_w
    );
    let outcome = run(&machine(&roomy, "", "3.0"), plan(), None);
    close(outcome.energy_j / seconds(&outcome), unlimited_w, 1e-3);
}

#[test]
fn idle_cores_are_gated_after_a_while() {
    let extra = "idle = { clock_gated_w = 0.5, power_gated_after_us = 100000 }";
    let plain = run(&machine("", "", "2.0"), vec![computing(0)], None);
    let gated = run(&machine("", extra, "2.0"), vec![computing(0)], None);
    let more = f64::from(CORES - 1) * (0.5 - IDLE_W) * 0.1;
    close(gated.energy_j - plain.energy_j, more, 1e-6);
}

#[test]
fn schedutil_follows_utilisation() {
    let topology = machine("", "", "2.0");
    let busy = run(&topology, vec![computing(0)], Some(Governor::Schedutil));
    let nominal = run(&topology, vec![computing(0)], Some(Governor::Performance));
    assert!(
        seconds(&busy) < 1.2 * seconds(&nominal),
        "a busy CPU ends up at full speed"
    );
    // A fifth of the time at 2 GHz, two fifths at 1 GHz: 1.25 x 0.2 of the capacity requires only the slowest point.
    let nominal_ips = INSTRUCTIONS as f64 / seconds(&nominal);
    let sleeper = || {
        let mut sleeper = computing(0);
        sleeper.bursts = Some((nominal_ips * 2e-3, Nanos::from_millis(8)));
        vec![sleeper]
    };
    let fast = run(&topology, sleeper(), Some(Governor::Performance));
    let slow = run(&topology, sleeper(), Some(Governor::Schedutil));
    close(
        fast.programs[0].instructions / fast.programs[0].cycles,
        slow.programs[0].instructions / slow.programs[0].cycles,
        1e-6,
    );
    close(seconds(&slow), seconds(&fast) * 12.0 / 10.0, 0.05);
    assert!(
        slow.energy_j < 0.95 * fast.energy_j,
        "{} {}",
        slow.energy_j,
        fast.energy_j
    );
}

/// Completion time and energy of a program under a placement, and number of unsupported requests.
fn under(placement: &Placement, governor: Option<Governor>) -> (f64, f64, u32) {
    let topology = machine("", "", "3.0");
    let plan = Plan {
        programs: vec![computing(0)],
        ..Plan::default()
    };
    let mut simulation = Simulation::new(topology, &plan, config(governor)).unwrap();
    let watch = Watch::default();
    simulation.observe(&watch, Nanos::from_millis(1)).unwrap();
    let applied = simulation.apply(placement).unwrap();
    simulation.observe(&watch, Nanos::NEVER).unwrap();
    let outcome = simulation.outcome();
    (seconds(&outcome), outcome.energy_j, applied.unsupported)
}

fn clamped(most: u32, governor: Governor) -> (f64, u32) {
    let mut entry = ThreadPlacement::new(ThreadId(0), Target::Anywhere, Reason::default());
    entry.clamp = Some(Clamp::at_most(most));
    let placement = Placement {
        threads: vec![entry],
        ..Placement::default()
    };
    let (seconds, _, unsupported) = under(&placement, Some(governor));
    (seconds, unsupported)
}

#[test]
fn a_limit_holds_whatever_the_governor_and_ends_when_it_is_removed() {
    let limits = |most_mhz: u32| Placement {
        clocks: Some((0..CORES).map(|cpu| limit(cpu, most_mhz)).collect()),
        ..Placement::default()
    };
    for governor in [None, Some(Governor::Performance), Some(Governor::Schedutil)] {
        let at = |most_mhz| under(&limits(most_mhz), governor);
        let (free, full_j, unsupported) = under(&Placement::default(), governor);
        assert_eq!(unsupported, 0);
        // A millisecond is over when the limit comes, and schedutil needs more until it is fast.
        let near = if governor == Some(Governor::Schedutil) {
            0.05
        } else {
            2e-3
        };
        let (half, half_j, unsupported) = at(1500);
        assert_eq!(unsupported, 0);
        close(half, 2.0 * free, near);
        assert!(half_j < full_j, "{half_j} {full_j}");
        // Between two points, the slower one; below all, the slowest.
        assert_eq!(at(1999).0, half);
        close(at(1).0, 3.0 * free, near);
        let none = Placement {
            clocks: Some(Vec::new()),
            ..Placement::default()
        };
        assert_eq!(under(&none, governor).0, free);
    }
}

#[test]
fn a_machine_without_operating_points_says_that_it_has_no_limits() {
    let text = include_str!("../../../machines/core2-quad.toml");
    let topology = Arc::new(Topology::new(&Machine::parse("m", text).unwrap()));
    let plan = Plan {
        programs: vec![computing(0)],
        ..Plan::default()
    };
    let mut simulation = Simulation::new(topology, &plan, config(None)).unwrap();
    for (limits, expected) in [(vec![limit(0, 1000)], 1), (Vec::new(), 0)] {
        let placement = Placement {
            clocks: Some(limits),
            ..Placement::default()
        };
        assert_eq!(simulation.apply(&placement).unwrap().unsupported, expected);
    }
}

fn limit(cpu: u32, most_mhz: u32) -> ClockLimit {
    ClockLimit {
        cpu: CpuId(cpu),
        most_mhz,
        reason: Reason::default(),
    }
}

#[test]
fn a_clamp_holds_the_frequency_down_where_a_governor_applies_it() {
    let (free, _) = clamped(Clamp::MOST, Governor::Schedutil);
    let (half, unsupported) = clamped(512, Governor::Schedutil);
    assert_eq!(unsupported, 0);
    assert!(half > 1.8 * free, "{half} {free}");
    let (deaf, unsupported) = clamped(512, Governor::Performance);
    assert_eq!(unsupported, 1);
    assert!(deaf < free, "{deaf} {free}");
}

/// Completion time of a program next to streams, and number of unsupported hints.
fn beside_streams(classes: Option<Vec<WayClass>>) -> (f64, u32) {
    let topology = machine("", "", "2.0");
    let streams = (1..4).map(|i| program(&format!("s{i}"), synthetic::streaming()));
    let fragile = program("fragile", synthetic::vulnerable(50_000));
    let plan = Plan {
        programs: [fragile].into_iter().chain(streams).collect(),
        ..Plan::default()
    };
    let mut simulation = Simulation::new(topology, &plan, config(None)).unwrap();
    let watch = Watch::default();
    simulation.observe(&watch, Nanos::from_millis(1)).unwrap();
    let placement = Placement {
        caches: classes,
        ..Placement::default()
    };
    let applied = simulation.apply(&placement).unwrap();
    simulation.observe(&watch, Nanos::NEVER).unwrap();
    (seconds(&simulation.outcome()), applied.unsupported)
}

#[test]
fn ways_of_its_own_keep_a_working_set_from_streams() {
    let llc = machine("", "", "2.0").groups_by(GroupBy::Llc)[0].id;
    let class = |name: &'static str, programs: std::ops::Range<u32>, first, count| WayClass {
        name: name.into(),
        members: Members::Programs(programs.map(ProgramId).collect()),
        shares: vec![CacheShare {
            llc,
            ways: Some(Ways { first, count }),
            bandwidth: None,
        }],
    };
    let (shared, _) = beside_streams(None);
    let (split, unsupported) = beside_streams(Some(vec![
        class("kept", 0..1, Some(0), 14),
        class("streams", 1..4, None, 2),
    ]));
    assert_eq!(unsupported, 0);
    assert!(split < 0.9 * shared, "{split} {shared}");
    let (squeezed, _) = beside_streams(Some(vec![
        class("kept", 0..1, Some(0), 1),
        class("streams", 1..4, None, 15),
    ]));
    assert!(squeezed > shared, "{squeezed} {shared}");
    let (returned, _) = beside_streams(Some(Vec::new()));
    assert_eq!(returned, shared);
}

#[test]
fn a_machine_file_with_impossible_points_is_refused() {
    let parse = |points: &str| {
        let path = format!(
            "{}/../../machines/core2-quad.toml",
            env!("CARGO_MANIFEST_DIR")
        );
        let text = std::fs::read_to_string(path).unwrap();
        let text = text.replacen(
            "capacity = 1024",
            &format!("capacity = 1024\nfrequency = {{ {points} }}"),
            1,
        );
        Machine::parse("m.toml", &text).unwrap_err().to_string()
    };
    assert!(parse("points = [{ ghz = 1.0 }]").contains("must be at `freq_ghz`"));
    assert!(parse("points = [{ ghz = 2.4 }, { ghz = 1.0 }]").contains("slowest first"));
    assert!(parse("points = [{ ghz = 2.4 }], turbo_ghz = [3.0]").contains("no point has"));
    assert!(parse("points = [{ ghz = 1.2, volts = 1.0 }, { ghz = 2.4 }]").contains("or none"));
}
