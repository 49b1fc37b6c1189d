//! Policies that fail, or are exchanged, tuned and paused.

use countersteer_model::engine::ThreadInfo;
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::{AdmissionTable, Reason, Target};
use countersteer_model::trial::TrialPlan;
use countersteer_model::units::ProgramId;
use rand::SeedableRng;

use super::super::ab_trial::{AbTrial, AlternatingPolicies};
use super::*;

/// Policy that panics at its third decision, or is slow.
struct Bad {
    decisions: u32,
    slow: bool,
}

impl Policy for Bad {
    #[allow(clippy::panic, reason = "this is what is tested")]
    fn decide(&mut self, _: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        self.decisions += 1;
        if self.slow {
            std::thread::sleep(Duration::from_millis(3));
        } else if self.decisions == 3 {
            panic!("on purpose");
        }
        Placement::default()
    }
}

/// Policy that places the thread and sets admission only once.
struct SaysOnce(bool);

impl SaysOnce {
    fn placement() -> Placement {
        let target = Target::Group(GroupId(1));
        Placement {
            threads: vec![ThreadPlacement::new(
                ThreadId(7),
                target,
                Reason::rule("once"),
            )],
            admission: Some(AdmissionTable {
                metric: "sf".into(),
                rows: vec![(1.0, GroupId(1))],
            }),
            ..Placement::default()
        }
    }
}

impl Policy for SaysOnce {
    fn decide(&mut self, _: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        if std::mem::replace(&mut self.0, true) {
            return Placement::default();
        }
        Self::placement()
    }
}

fn topology() -> Arc<Topology> {
    let machine = countersteer_lab::library::machine("i9-12900k-8p8e").map(|(m, _)| m);
    let machine = machine.unwrap_or_else(|e| unreachable!("{e}"));
    Arc::new(Topology::new(&machine))
}

fn decide_once(policy: &mut dyn Policy) -> Placement {
    decide_at(policy, Nanos::ZERO)
}

fn decide_at(policy: &mut dyn Policy, now: Nanos) -> Placement {
    let topology = topology();
    let info = ThreadInfo {
        id: ThreadId(7),
        program: ProgramId(0),
        name: "p".into(),
        cpu: Default::default(),
        runnable: true,
        nice: 0,
        allowed: Arc::clone(&topology.groups[0].cpus),
        hint: None,
    };
    let metrics = MetricBank::new(&topology, &[]);
    let mut view = View {
        now,
        topology: &topology,
        group: None,
        threads: &[info],
        programs: &[],
        events: &[],
        metrics: &metrics,
        forecast: None,
    };
    policy.decide(&mut view, &mut PolicyRng::seed_from_u64(1))
}

fn supervisor(slow: bool) -> (Supervisor, RunControl) {
    supervising(Box::new(Bad { decisions: 0, slow }))
}

fn supervising(policy: Box<dyn Policy>) -> (Supervisor, RunControl) {
    let control = RunControl::default();
    let period = Duration::from_millis(1);
    let policy = ("test", policy);
    let supervisor = Supervisor::new(
        policy,
        &topology(),
        &control,
        period,
        PolicyCalls::default(),
    );
    (supervisor, control)
}

#[test]
fn a_policy_that_panics_is_dropped_and_threads_are_let_go() {
    let (mut supervisor, control) = supervisor(false);
    assert_eq!(decide_once(&mut supervisor), Placement::default());
    assert_eq!(decide_once(&mut supervisor), Placement::default());
    let last = decide_once(&mut supervisor);
    assert_eq!(last.threads[0].target, Target::Anywhere);
    assert_eq!(control.lock().policy, "linux");
    assert_eq!(
        decide_once(&mut supervisor),
        Placement::default(),
        "Linux decides"
    );
}

#[test]
fn a_policy_that_is_late_again_and_again_is_dropped() {
    let (mut supervisor, control) = supervisor(true);
    for _ in 1..MOST_LATE {
        assert_eq!(decide_once(&mut supervisor), Placement::default());
    }
    assert_eq!(decide_once(&mut supervisor).threads.len(), 1);
    assert!(control.lock().dropped.is_some());
}

#[test]
fn a_parameter_changes_and_the_policy_keeps_what_it_remembers() {
    let (mut supervisor, control) = supervisor(false);
    control.lock().exchange("rr", None);
    assert_eq!(decide_once(&mut supervisor).threads.len(), 1);
    control.lock().tuned = Some("rr:turn_ms=7".into());
    decide_once(&mut supervisor);
    assert_eq!(control.lock().policy, "rr:turn_ms=7");
    control.lock().tuned = Some("rr:turn_ms=never".into());
    decide_once(&mut supervisor);
    assert_eq!(control.lock().policy, "rr:turn_ms=7");
}

#[test]
fn another_policy_and_a_pause_let_threads_go_first() {
    let (mut supervisor, control) = supervisor(false);
    control.lock().exchange("aarr", None);
    let placed = decide_once(&mut supervisor);
    assert_eq!(
        placed.threads.len(),
        1,
        "the new policy's word comes before the release"
    );
    assert_ne!(placed.threads[0].target, Target::Anywhere);
    let nowhere = Some(AdmissionTable::default());
    assert_eq!(placed.admission, nowhere, "the former policy's table");
    assert_eq!(supervisor.needs().period, Some(Nanos::from_millis(1)));
    control.lock().period = Duration::from_millis(250);
    decide_once(&mut supervisor);
    assert_eq!(supervisor.needs().period, Some(Nanos::from_millis(250)));
    control.lock().paused = true;
    let let_go = decide_once(&mut supervisor);
    assert_eq!(let_go.threads[0].target, Target::Anywhere);
    assert_eq!(let_go.admission, nowhere);
    assert_eq!(decide_once(&mut supervisor), Placement::default());
}

#[test]
fn after_a_pause_all_is_said_again() {
    let (mut supervisor, control) = supervising(Box::new(SaysOnce(false)));
    assert_eq!(decide_once(&mut supervisor), SaysOnce::placement());
    assert_eq!(decide_once(&mut supervisor), Placement::default());
    control.lock().paused = true;
    assert_ne!(decide_once(&mut supervisor), Placement::default());
    control.lock().paused = false;
    assert_eq!(decide_once(&mut supervisor), SaysOnce::placement());
    assert_eq!(decide_once(&mut supervisor), Placement::default());
}

#[test]
fn threads_that_another_scheduler_has_are_left_to_it_with_the_reason() {
    let (mut supervisor, control) = supervising(Box::new(SaysOnce(false)));
    assert_eq!(decide_once(&mut supervisor), SaysOnce::placement());
    {
        let mut shared = control.lock();
        shared.stand_back = true;
        shared.blocked = Some("the sched_ext scheduler `lavd` runs".into());
    }
    let left = decide_once(&mut supervisor);
    assert_eq!(left.threads[0].target, Target::Anywhere);
    let rule = &left.threads[0].reason.rule;
    assert_eq!(rule, "left to Linux: the sched_ext scheduler `lavd` runs");
    assert_eq!(left.admission, Some(AdmissionTable::default()));
    assert_eq!(decide_once(&mut supervisor), Placement::default());
    control.lock().blocked = None;
    assert_eq!(decide_once(&mut supervisor), SaysOnce::placement());
}

#[test]
fn in_each_block_of_a_trial_all_is_said_again() {
    let plan = TrialPlan {
        policy: Nanos::from_millis(10),
        baseline: Nanos::from_millis(10),
        settle: 0.0,
        confidence: 0.95,
        margin: 0.01,
    };
    let trial = AbTrial::new(plan);
    let control = RunControl::default();
    let linux = countersteer_policies::parse("linux", &topology()).unwrap();
    let policy = Box::new(SaysOnce(false));
    let mut both = AlternatingPolicies::new(&trial, policy, linux, None, &control);
    let mut side = None;
    let mut begun = [0, 0];
    for ms in 0..200 {
        let placed = decide_at(&mut both, Nanos::from_millis(ms));
        if side.replace(trial.side()) == Some(trial.side()) {
            assert_eq!(placed, Placement::default());
            continue;
        }
        begun[trial.side()] += 1;
        // Before the policy's first block there is nothing to revoke.
        if trial.side() == 0 {
            assert_eq!(placed.threads[0].target, Target::Group(GroupId(1)));
            assert_eq!(placed.admission, SaysOnce::placement().admission);
        } else if begun[0] > 0 {
            assert_eq!(placed.threads[0].target, Target::Anywhere);
            assert_eq!(placed.admission, Some(AdmissionTable::default()));
        }
    }
    assert!(begun.iter().all(|blocks| *blocks > 2), "{begun:?}");
}

#[test]
fn why_a_policy_was_given_up_is_known_until_another_one_is_asked_for() {
    let (mut supervisor, control) = supervisor(false);
    control.lock().tuned = Some("bad:limit=1".into());
    control
        .lock()
        .exchange("linux", Some("it gains nothing".into()));
    assert!(control.lock().tuned.is_none(), "of the former policy");
    decide_once(&mut supervisor);
    decide_once(&mut supervisor);
    let why = control.lock().dropped.clone();
    assert_eq!(why.as_deref(), Some("it gains nothing"));
    control.lock().exchange("rr", None);
    decide_once(&mut supervisor);
    assert_eq!(control.lock().dropped, None);
}
