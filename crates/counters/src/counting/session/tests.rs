//! Tests of sessions over a script instead of counters: records come at given times, so no test depends on a clock.
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use countersteer_model::counters::{Ledger, SetPlan};
use countersteer_model::units::CpuId;
use countersteer_sysfs::poll::{Poller, Wake};

use super::super::event_sorter::EventSorter;
use super::super::request::testing::request;
use super::super::request::{LEAST_SAMPLE_NS, sample_ns};
use super::super::run::Tick;
use super::*;
use crate::perf::open::{GroupInfo, GroupOpening, MemberPlaces, Says};
use crate::perf::record::testing as record;

const MS: u64 = 1_000_000;

/// Step at a time: records, or the end.
struct Step {
    at: u64,
    records: Vec<Vec<u8>>,
    ended: bool,
}

struct Fake {
    now: u64,
    steps: VecDeque<Step>,
    heard: Vec<Vec<u8>>,
    infos: Vec<GroupInfo>,
    totals: Vec<Vec<u64>>,
    switched: Switched,
}

/// Times at which sets were switched on or off.
type Switched = Arc<Mutex<Vec<(u64, u32, bool)>>>;

impl TaskCounters for Fake {
    fn now(&self) -> Nanos {
        Nanos(self.now)
    }

    fn wait(&mut self, until: Nanos) -> Result<Wake, CounterError> {
        match self.steps.pop_front_if(|s| s.at <= until.0) {
            Some(step) => {
                self.now = self.now.max(step.at);
                self.heard.extend(step.records);
                Ok(Wake {
                    ended: step.ended,
                    ..Wake::default()
                })
            }
            None => {
                self.now = until.0;
                Ok(Wake::default())
            }
        }
    }

    fn poll(&mut self, sorter: &mut EventSorter, _: &mut Ledger) {
        self.heard.drain(..).for_each(|bytes| sorter.record(&bytes));
    }

    fn groups(&self) -> &[GroupInfo] {
        &self.infos
    }

    fn group_of(&self, id: u64) -> Option<(usize, Says)> {
        (id as usize).checked_sub(1).map(|group| (group, Says::Due))
    }

    fn read(&mut self, group: usize, values: &mut Vec<u64>) -> Result<(u64, u64), CounterError> {
        values.clone_from(&self.totals[group]);
        Ok((values[0], values[0]))
    }

    fn attach(&mut self, _: &GroupOpening<'_>, _: &[(u32, u32)]) -> Result<(), CounterError> {
        unreachable!("no thread is attached")
    }

    fn poller(&mut self) -> &mut Poller {
        unreachable!("nothing else is waited for")
    }

    fn select(&mut self, set: u32, on: bool) -> Result<(), CounterError> {
        let mut switched = self.switched.lock().unwrap();
        switched.push((self.now / MS, set, on));
        Ok(())
    }
}

/// Set of a clock and page faults on CPU 0; identifiers count from 1.
fn info(set: u32) -> GroupInfo {
    GroupInfo {
        tree: 0,
        cpu: CpuId(0),
        set,
        places: MemberPlaces::new(vec![Some(0), Some(1)], 2),
        clock: true,
        counts: true,
        timed: false,
    }
}

fn step(at_ms: u64, records: Vec<Vec<u8>>) -> Step {
    Step {
        at: at_ms * MS,
        records,
        ended: false,
    }
}

/// Rows as (tick, tid or 0, set, values), and the switches.
type Seen = Vec<(u64, u32, u32, Vec<u64>)>;

fn run(
    request: CountRequest,
    steps: Vec<Step>,
    totals: Vec<Vec<u64>>,
) -> (Seen, Switched, Session) {
    let infos: Vec<GroupInfo> = (0..totals.len() as u32).map(info).collect();
    let follower = Follower::new(&[0], &infos, &SetPlan::nothing());
    run_with(follower, request, steps, totals, infos)
}

fn run_with(
    mut follower: Follower,
    request: CountRequest,
    steps: Vec<Step>,
    totals: Vec<Vec<u64>>,
    infos: Vec<GroupInfo>,
) -> (Seen, Switched, Session) {
    follower.root(1, 1, Nanos::ZERO);
    let switched = Switched::default();
    let fake = Fake {
        now: 0,
        steps: steps.into(),
        heard: Vec::new(),
        infos,
        totals,
        switched: Arc::clone(&switched),
    };
    let mut session = Session::over(request, SPACING_NS, (Box::new(fake), follower, None));
    let mut seen = Seen::new();
    let mut sink = |tick: &Tick<'_>| {
        for row in tick.readings.iter() {
            let tid = row.thread().map_or(0, |thread| thread.0);
            let values = row.counts.values().iter().map(|v| *v as u64);
            seen.push((tick.at.0 / MS, tid, row.set, values.collect()));
        }
        ControlFlow::Continue(())
    };
    session.run_periods(None, &mut sink).unwrap();
    (seen, switched, session)
}

#[test]
fn a_short_life_between_two_readings_is_not_missed() {
    let life = vec![
        record::fork(1, 2, 1, 11 * MS),
        record::exit(1, 2, 12 * MS),
        record::last(1, 2, 1, 12 * MS + 7, 900, &[900, 3]),
    ];
    let root = vec![record::sample(1, 1, 1, 15 * MS, 5_000, &[5_000, 1])];
    let end = Step {
        at: 230 * MS,
        records: Vec::new(),
        ended: true,
    };
    let (seen, _, _) = run(
        request(1, Some(100)),
        vec![step(13, life), step(20, root), end],
        vec![vec![8_900, 6]],
    );
    let expected: Seen = vec![
        (100, 2, 0, vec![900, 3]),
        (100, 1, 0, vec![5_000, 1]),
        (230, 1, 0, vec![3_000, 2]),
    ];
    assert_eq!(
        seen, expected,
        "the root's own is the total less what others counted"
    );
}

#[test]
fn without_a_period_threads_are_reported_when_they_exit() {
    let life = vec![
        record::fork(1, 2, 1, 11 * MS),
        record::exit(1, 2, 12 * MS),
        record::last(1, 2, 1, 12 * MS + 7, 900, &[900, 3]),
    ];
    let end = Step {
        at: 900 * MS,
        records: Vec::new(),
        ended: true,
    };
    let (seen, _, session) = run(
        request(1, None),
        vec![step(13, life), end],
        vec![vec![1_900, 6]],
    );
    assert_eq!(
        seen,
        [(263, 2, 0, vec![900, 3]), (900, 1, 0, vec![1_000, 3])]
    );
    assert_eq!(
        session.follower.name(2),
        "?",
        "names of threads that have exited are forgotten"
    );
}

#[test]
fn lost_records_are_reported_apart_not_given_to_anyone() {
    let end = Step {
        at: 50 * MS,
        records: vec![record::lost(3)],
        ended: true,
    };
    let sample = vec![record::sample(1, 1, 1, 5 * MS, 100, &[100, 1])];
    let (seen, _, session) = run(
        request(1, Some(100)),
        vec![step(10, sample), end],
        vec![vec![400, 9]],
    );
    assert_eq!(seen, [(50, 1, 0, vec![100, 1]), (50, 0, 0, vec![300, 8])]);
    assert_eq!(session.lost(), 3);
}

#[test]
fn sets_take_turns_and_readings_name_theirs() {
    let sample = |set: u64, at: u64| {
        vec![record::sample(
            1,
            1,
            set + 1,
            at * MS,
            10 * at,
            &[10 * at, 1],
        )]
    };
    let end = Step {
        at: 250 * MS,
        records: Vec::new(),
        ended: true,
    };
    let steps = vec![
        step(50, sample(0, 50)),
        step(150, sample(1, 150)),
        step(240, sample(0, 240)),
        end,
    ];
    let (seen, switched, _) = run(
        request(2, Some(100)),
        steps,
        vec![vec![2_400, 1], vec![1_500, 1]],
    );
    let sets: Vec<(u64, u32)> = seen.iter().map(|s| (s.0, s.2)).collect();
    assert_eq!(sets, [(100, 0), (200, 1), (250, 0)]);
    let expected = [
        (100, 0, false),
        (100, 1, true),
        (200, 1, false),
        (200, 0, true),
        (250, 0, false),
    ];
    assert_eq!(*switched.lock().unwrap(), expected);
}

#[test]
fn counting_ends_after_the_readings_that_were_asked_for() {
    let request = CountRequest {
        samples: Some(2),
        ..request(1, Some(100))
    };
    let sample = |at: u64| vec![record::sample(1, 1, 1, at * MS, at, &[at, 1])];
    let (seen, _, session) = run(
        request,
        vec![step(50, sample(50)), step(150, sample(150))],
        vec![vec![170, 1]],
    );
    assert_eq!(seen, [(100, 1, 0, vec![50, 1]), (200, 1, 0, vec![120, 0])]);
    assert_eq!(session.now().0, 200 * MS);
}

#[test]
fn every_sample_is_a_reading_of_its_own_where_events_decide() {
    let request = CountRequest {
        every: Some((0, 1, 10)),
        ..request(1, None)
    };
    let sample = |at: u64, faults: u64| record::sample(1, 1, 1, at * MS, at, &[at, faults]);
    let end = Step {
        at: 300 * MS,
        records: Vec::new(),
        ended: true,
    };
    let steps = vec![
        step(50, vec![sample(10, 10), sample(20, 20), sample(45, 30)]),
        end,
    ];
    let infos = vec![info(0)];
    let mut follower = Follower::new(&[0], &infos, &SetPlan::nothing());
    follower.each_sample = true;
    let (seen, ..) = run_with(follower, request, steps, vec![vec![47, 31]], infos);
    let faults: Vec<u64> = seen.iter().map(|s| s.3[1]).collect();
    assert_eq!(faults, [10, 10, 10, 1], "{seen:?}");
}

#[test]
fn samples_of_short_periods_are_fewer_but_never_less_than_two() {
    let ms = |period| sample_ns(period * MS, SPACING_NS);
    assert_eq!(
        [1, 4, 10, 20, 50, 100, 1000].map(ms),
        [MS / 2, 2 * MS, 5 * MS, 5 * MS, 5 * MS, 10 * MS, 100 * MS]
    );
    assert_eq!(
        [10, 100].map(|period| sample_ns(period * MS, LEAST_SAMPLE_NS)),
        [MS, 10 * MS]
    );
    assert_eq!(sample_ns(MS / 10, SPACING_NS), MS / 2);
}

#[test]
fn a_cpu_that_kept_its_counters_over_a_sleep_is_counted_once() {
    let whole = CountRequest::of_events(CountTarget::Cpus, &["task_clock"], None).unwrap();
    let online = whole.cpus.to_string();
    let request = CountRequest {
        cpus: whole.cpus.iter().take(1).collect(),
        ..whole
    };
    let begun = std::time::Instant::now();
    let mut session = match Session::open(request, None) {
        Ok(session) => session,
        Err(why) => return countersteer_fuzz::skipped(format_args!("CPUs are not counted: {why}")),
    };
    // From an empty list to this one, all CPUs come back.
    let root = tempfile::tempdir().unwrap();
    session.of_cpus = Some((HotplugWatch::new(root.path()), None));
    let folder = root.path().join("sys/devices/system/cpu");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("online"), &online).unwrap();
    let groups = session.counters.groups().len();
    session.counters.select(0, true).unwrap();
    for _ in 0..3 {
        std::thread::sleep(std::time::Duration::from_millis(60));
        session.renew().unwrap();
        assert_eq!(session.counters.groups().len(), groups);
        std::fs::write(folder.join("online"), "").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(60));
        session.renew().unwrap();
        std::fs::write(folder.join("online"), &online).unwrap();
    }
    let mut counted_ns = 0.0;
    let count = |samples: &Samples| {
        let values = samples.iter().flat_map(|row| row.counts.values().to_vec());
        counted_ns += values.sum::<f64>();
    };
    session.turn(count).unwrap();
    let passed_ns = begun.elapsed().as_nanos() as f64;
    assert!(
        counted_ns > 0.3e9 && counted_ns <= passed_ns,
        "{counted_ns} of {passed_ns}"
    );
}
