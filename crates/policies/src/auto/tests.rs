use std::collections::BTreeSet;
use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::driver::{DriverConfig, Recorder, drive};
use countersteer_model::engine::{
    Applied, Engine, Forecast, Observation, ThreadForecast, ThreadInfo, Watch,
};
use countersteer_model::machine::Machine;
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer_model::policy::{
    MakePolicy, Needs, Params, Policy, PolicyDef, PolicyError, PolicyRng, View, policy_rng,
};
use countersteer_model::sample::{Event, Sample, Samples};
use countersteer_model::signature::Signature;
use countersteer_model::topology::{GroupBy, Topology};
use countersteer_model::units::{CoreTypeId, CpuId, GroupId, Nanos, ProgramId, ThreadId};

use super::curves::CacheTimePart;
use super::ground::MachineGround;
use super::policy::{AutoPolicy, DEF};

#[allow(dead_code, reason = "other tests look at more of it")]
#[path = "../../tests/toy/mod.rs"]
mod toy;

use toy::{Life, Toy};

const PERIOD: Nanos = Nanos::from_millis(100);
const TWO_TYPES: &str = include_str!("../../tests/toy/two-big-two-small.toml");

/// Policy that confines all threads to the core type of one row, and insists that its clock moves by periods.
struct Confine {
    needs: Needs,
    row: usize,
    last: Option<Nanos>,
}

impl Policy for Confine {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        if let Some(last) = self.last.replace(view.now) {
            assert_eq!(view.now.since(last), PERIOD, "a block under Linux shows");
        }
        let group = view.topology.groups_by(GroupBy::CoreType)[self.row].id;
        let confine = |t: &ThreadInfo| {
            ThreadPlacement::new(t.id, Target::Group(group), Reason::rule("confined"))
        };
        Placement {
            threads: view.threads.iter().map(confine).collect(),
            ..Placement::default()
        }
    }
}

type Made = Result<Box<dyn Policy>, PolicyError>;

fn made(row: usize) -> Made {
    Ok(Box::new(Confine {
        needs: Needs::metrics(&["ips"]),
        row,
        last: None,
    }))
}

const fn confining(name: &'static str, make: MakePolicy) -> PolicyDef {
    PolicyDef {
        name,
        summary: "",
        source: "",
        params: &[],
        make,
    }
}

static BIG: PolicyDef = confining("big", |_, _| made(0));
static SMALL: PolicyDef = confining("small", |_, _| made(1));
static GROUND: MachineGround = MachineGround {
    candidates: &[&SMALL, &BIG],
    why: "this is a test",
};

/// Reasons by time, and the targets of a thread.
#[derive(Default)]
struct Log {
    rules: Vec<(Nanos, String)>,
    target: Option<Target>,
}

impl Recorder for Log {
    fn observation(&mut self, _: &Topology, _: &Observation, _: &MetricBank) {}

    fn decision(&mut self, _: &Topology, at: Nanos, placement: &Placement, _: Applied) {
        for placed in placement.threads.iter().filter(|t| t.thread == ThreadId(0)) {
            self.rules.push((at, placed.reason.rule.to_string()));
            self.target = Some(placed.target.clone());
        }
    }
}

impl Log {
    /// Time of the first reason with these words.
    fn first(&self, words: &str) -> Option<Nanos> {
        let found = self.rules.iter().find(|(_, rule)| rule.contains(words));
        found.map(|(at, _)| *at)
    }
}

fn topology(text: &str) -> Arc<Topology> {
    Arc::new(Topology::new(&Machine::parse("m", text).unwrap()))
}

/// Runs a ground with a thread that Linux has on this CPU.
fn run(ground: &'static MachineGround, cpu: u32, seconds: u64) -> Log {
    run_while(ground, cpu, seconds, Happens::default())
}

/// Events of a run.
#[derive(Clone, Copy)]
struct Happens {
    /// Number of threads at the start.
    threads: usize,
    /// Time at which all but the first thread exit.
    leaves: Option<Nanos>,
    /// Time at which another program sets the first thread's mask, and gives it back 5 s later.
    pinned: Option<Nanos>,
}

impl Default for Happens {
    fn default() -> Self {
        Self {
            threads: 1,
            leaves: None,
            pinned: None,
        }
    }
}

struct Eventful {
    toy: Toy,
    happens: Happens,
    all: Arc<CpuSet>,
}

impl Engine for Eventful {
    type Error = std::convert::Infallible;

    fn topology(&self) -> &Arc<Topology> {
        self.toy.topology()
    }

    fn observe(&mut self, watch: &Watch<'_>, until: Nanos) -> Result<Observation, Self::Error> {
        if self.happens.leaves.is_some_and(|at| until >= at) {
            self.toy.threads.truncate(1);
        }
        let info = &mut self.toy.threads[0].info;
        if let Some(at) = self.happens.pinned {
            let given_back = at + Nanos::from_millis(5_000);
            if until >= at && until < given_back {
                info.allowed = Arc::new("2".parse().unwrap());
            } else if until == given_back {
                info.allowed = Arc::clone(&self.all);
            }
        }
        self.toy.observe(watch, until)
    }

    fn apply(&mut self, placement: &Placement) -> Result<Applied, Self::Error> {
        self.toy.apply(placement)
    }
}

/// Runs it with events.
fn run_while(ground: &'static MachineGround, cpu: u32, seconds: u64, happens: Happens) -> Log {
    let topology = topology(TWO_TYPES);
    let life = Life {
        threads: happens.threads,
        changes: false,
    };
    let mut engine = Toy::new(&topology, life, 1);
    engine.threads[0].info.cpu = CpuId(cpu);
    let mut engine = Eventful {
        toy: engine,
        happens,
        all: Arc::clone(&topology.groups[0].cpus),
    };
    let params = Params::parse(&DEF, "").unwrap();
    let mut auto = AutoPolicy::new(&params, &topology, ground).unwrap();
    let mut log = Log::default();
    let config = DriverConfig {
        period: PERIOD,
        until: Nanos::from_millis(seconds * 1000),
    };
    drive(
        &mut engine,
        &mut auto,
        &mut [&mut log],
        config,
        &mut policy_rng(1),
    )
    .unwrap();
    log
}

#[test]
fn a_policy_that_slows_threads_down_is_dropped_with_the_figure_and_the_next_one_is_tried() {
    let log = run(&GROUND, 0, 30);
    let dropped = log.first("under `small` threads were").unwrap();
    assert!(dropped < Nanos::from_millis(23_000), "{dropped}");
    let next = log.first("`big`, since this is a test: confined").unwrap();
    assert!(next > dropped);
    assert_eq!(log.first("faster than under Linux"), None);
}

#[test]
fn threads_are_left_to_linux_once_every_policy_was_dropped() {
    static HARM: MachineGround = MachineGround {
        candidates: &[&SMALL],
        why: "this is a test",
    };
    let log = run(&HARM, 0, 30);
    assert!(log.rules.last().unwrap().1.contains("left to Linux"));
    assert_eq!(log.target, Some(Target::Anywhere));
    // After a minute it is tried again.
    let log = run(&HARM, 0, 95);
    assert!(log.rules.last().unwrap().1.contains("`small`"));
}

#[test]
fn a_policy_that_helps_is_adopted_and_blocks_under_linux_become_rare() {
    static HELP: MachineGround = MachineGround {
        candidates: &[&BIG, &SMALL],
        why: "this is a test",
    };
    let log = run(&HELP, 2, 300);
    let adopted = log.first("`big`: threads are faster than under Linux");
    assert!(adopted.is_some());
    let blocks = |from: u64, until: u64| {
        let inside = log.rules.iter().filter(|(at, rule)| {
            rule.contains("to compare")
                && at.0 / 1_000_000_000 >= from
                && at.0 / 1_000_000_000 < until
        });
        inside
            .map(|(at, _)| at.0 / 1_000_000_000)
            .collect::<BTreeSet<_>>()
            .len()
    };
    assert!(blocks(0, 120) >= 3, "{}", blocks(0, 120));
    assert!((1..=2).contains(&blocks(200, 300)), "{}", blocks(200, 300));
    assert_eq!(log.first("left to Linux"), None);
}

#[test]
fn a_thread_whose_mask_another_program_set_is_left_alone_until_it_is_free_again() {
    static HELP: MachineGround = MachineGround {
        candidates: &[&BIG],
        why: "this is a test",
    };
    let pinned = Nanos::from_millis(3_000);
    let log = run_while(
        &HELP,
        0,
        12,
        Happens {
            pinned: Some(pinned),
            ..Happens::default()
        },
    );
    let left = log.first("another program set its affinity mask").unwrap();
    assert_eq!(left, pinned);
    let after: Vec<_> = log.rules.iter().filter(|(at, _)| *at > left).collect();
    assert_eq!(after[0].0, Nanos::from_millis(8_000));
    assert!(after.iter().all(|(_, rule)| rule.contains("`big`")));
    let log = run(&HELP, 0, 40);
    assert_eq!(log.first("left alone"), None, "its own masks");
}

#[test]
fn another_number_of_threads_is_another_try_after_all_were_dropped() {
    static HARM: MachineGround = MachineGround {
        candidates: &[&SMALL],
        why: "this is a test",
    };
    let tried = |leaves: Option<u64>| {
        let happens = Happens {
            threads: 2,
            leaves: leaves.map(|s| Nanos::from_millis(s * 1000)),
            ..Happens::default()
        };
        let log = run_while(&HARM, 0, 60, happens);
        let dropped = log.first("under `small` threads were").unwrap();
        let later = log
            .rules
            .iter()
            .find(|(at, rule)| *at > dropped && rule.contains("`small`, since"));
        (dropped, later.map(|(at, _)| *at))
    };
    let (dropped, again) = tried(None);
    assert!(dropped < Nanos::from_millis(30_000) && again.is_none());
    assert_eq!(tried(Some(45)), (dropped, Some(Nanos::from_millis(45_000))));
}

#[test]
fn the_ground_follows_from_core_types_caches_and_smt() {
    let shipped = |name: &str| {
        let path = format!("{}/../../machines/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        topology(&std::fs::read_to_string(path).unwrap())
    };
    let first = |topology: &Topology| {
        MachineGround::of(topology)
            .candidates
            .first()
            .map(|def| def.name)
    };
    for (machine, policy) in [
        ("core2-quad", "joint"),
        ("juno-2-4", "joint"),
        ("i9-12900k-8p8e", "joint"),
        ("i9-12900k", "hsf"),
        ("ryzen-7950x3d", "joint"),
        ("server-12llc", "joint"),
    ] {
        assert_eq!(first(&shipped(machine)), Some(policy), "{machine}");
    }
}

#[test]
fn alike_cores_behind_one_cache_are_left_to_linux_with_the_reason() {
    let small = TWO_TYPES.find("[[core_type]]\nname = \"small\"").unwrap();
    let cores = TWO_TYPES.find("[[cores]]").unwrap();
    let alike = format!("{}{}", &TWO_TYPES[..small], &TWO_TYPES[cores..]);
    let topology = topology(&alike.replace("type = \"small\"", "type = \"big\""));
    assert_eq!(topology.groups_by(GroupBy::CoreType).len(), 1);
    let placed = decide_about_one(&topology, 1e9, None);
    assert_eq!(placed.target, Target::Anywhere);
    assert!(
        placed.reason.rule.contains("all cores are alike"),
        "{placed:?}"
    );
}

#[test]
fn threads_are_left_to_linux_where_instructions_are_not_counted() {
    let topology = topology(TWO_TYPES);
    let placed = decide_about_one(&topology, 0.0, None);
    assert!(placed.reason.rule.contains("not counted"), "{placed:?}");
    let placed = decide_about_one(&topology, 1e9, None);
    assert!(
        placed.reason.rule.contains("core types differ"),
        "{placed:?}"
    );
}

#[test]
fn miss_curves_choose_between_core_types_and_caches_and_the_reason_says_so() {
    let juno = topology(include_str!("../../../../machines/juno-2-4.toml"));
    let quad = topology(include_str!("../../../../machines/core2-quad.toml"));
    let worth = |mean: f64, most: f64, threads: usize| {
        Some(CacheTimePart {
            mean,
            most,
            threads,
        })
    };
    for (machine, worth, first, words) in [
        (&juno, None, Some("joint"), "miss curves are not known"),
        (
            &juno,
            worth(0.001, 0.005, 6),
            Some("hsf"),
            "0.1 % of the time, so core types alone",
        ),
        (
            &juno,
            worth(0.2, 0.5, 6),
            Some("joint"),
            "caches decide 20.0 % of the time",
        ),
        (
            &juno,
            worth(0.001, 0.005, 7),
            Some("joint"),
            "caches decide 0.1 % of the time",
        ),
        (
            &quad,
            worth(0.001, 0.005, 4),
            None,
            "left to Linux: by their miss curves",
        ),
        (
            &quad,
            worth(0.001, 0.005, 5),
            Some("joint"),
            "caches decide 0.1 %",
        ),
        (
            &quad,
            worth(0.001, 0.05, 4),
            Some("joint"),
            "caches decide 0.1 %",
        ),
    ] {
        let choice = MachineGround::of(machine).choice_by(worth, machine.cpus.len());
        assert_eq!(
            choice.candidates.first().map(|def| def.name),
            first,
            "{worth:?}"
        );
        assert!(choice.why.contains(words), "{}", choice.why);
    }
}

/// Programs that all have this many misses per instruction in caches smaller than 1 MiB, and none in larger ones.
struct Known(f64);

impl Forecast for Known {
    fn predicts(&self) -> bool {
        false
    }

    fn steady_state(&mut self, _: &[ThreadId], _: &[CpuId]) -> Vec<ThreadForecast> {
        Vec::new()
    }

    fn signature(&mut self, _: ThreadId) -> Option<Signature> {
        Some(Signature::new(
            |lines, _| if lines < 16_384.0 { self.0 } else { 0.0 },
        ))
    }
}

#[test]
fn signatures_decide_at_the_start() {
    let juno = topology(include_str!("../../../../machines/juno-2-4.toml"));
    let quad = topology(include_str!("../../../../machines/core2-quad.toml"));
    let rule = |topology: &Arc<Topology>, misses: f64| {
        let placed = decide_about_one(topology, 1e9, Some(Known(misses)));
        placed.reason.rule.to_string()
    };
    let flat = rule(&juno, 0.0);
    assert!(
        flat.contains("0.0 % of the time, so core types alone"),
        "{flat}"
    );
    let flat = rule(&quad, 0.0);
    assert!(flat.starts_with("left to Linux"), "{flat}");
}

#[test]
fn curves_alone_do_not_leave_threads_to_linux_where_cores_share_more_than_caches() {
    for (text, asks) in [
        (include_str!("../../../../machines/core2-quad.toml"), true),
        (
            include_str!("../../../../machines/ryzen-7950x3d.toml"),
            false,
        ),
        (
            include_str!("../../../../machines/server-12llc.toml"),
            false,
        ),
    ] {
        let machine = topology(text);
        let ground = MachineGround::of(&machine);
        assert_eq!(ground.asks_curves(), asks, "{}", machine.name);
    }
}

/// Decision about a thread that ran for a second, by engines with and without signatures.
fn decide_about_one(
    topology: &Arc<Topology>,
    instructions: f64,
    mut known: Option<Known>,
) -> ThreadPlacement {
    let info = ThreadInfo {
        id: ThreadId(0),
        program: ProgramId(0),
        name: "p".into(),
        cpu: CpuId(0),
        runnable: true,
        nice: 0,
        allowed: Arc::clone(&topology.group(GroupId(0)).cpus),
        hint: None,
    };
    let second = Nanos::from_millis(1000);
    let ran = Sample::of_thread(info.id, info.cpu, CoreTypeId(0), second, second);
    let counts = [(Event::Instructions, instructions)];
    let seen = Observation {
        at: second,
        threads: vec![info],
        samples: Samples::of(ran, 1, &counts),
        ..Observation::default()
    };
    let mut metrics = MetricBank::new(topology, &["ips"]);
    metrics.update(&seen);
    let mut auto = (DEF.make)(&Params::parse(&DEF, "").unwrap(), topology).unwrap();
    let mut view = View {
        now: seen.at,
        topology,
        group: None,
        threads: &seen.threads,
        programs: &[],
        events: &[],
        metrics: &metrics,
        forecast: known.as_mut().map(|known| known as &mut dyn Forecast),
    };
    auto.decide(&mut view, &mut policy_rng(1)).threads.remove(0)
}
