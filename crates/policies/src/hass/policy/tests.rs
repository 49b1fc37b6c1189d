//! Tests of the speed that a thread expects on a partition, and of the exchanges that are agreed on.

use countersteer_model::engine::{Forecast, ThreadEvent, ThreadForecast};
use countersteer_model::metric::MetricBank;
use countersteer_model::testing::{SMT, topology};
use countersteer_model::units::{CpuId, Nanos, ProgramId};
use rand::SeedableRng as _;

use super::*;

/// Policy with threads on two partitions, with their ratings there and weights; the fast partition has `cores` cores.
fn hass(cores: f64, threads: &[(usize, [f64; 2], f64)]) -> Hass {
    let topology = topology(SMT);
    let params = Params::parse(&super::super::DEF, "priorities=on").unwrap();
    let mut hass = Hass::new(&params, &topology).unwrap();
    hass.margin = 0.05;
    hass.partitions[0].cores = cores;
    for (row, (home, ratings, weight)) in threads.iter().enumerate() {
        let id = ThreadId::from_index(row);
        let member = RatedThread {
            home: usize::MAX,
            signature: None,
            ratings: ratings.to_vec(),
            slowest_s: 1e-9,
            weight: *weight,
            looked_s: 0.0,
            active: true,
            placed: false,
        };
        hass.members.insert(id, member);
        hass.relocate(id, *home);
    }
    hass
}

fn agree(hass: &Hass, one: u32, other: u32) -> bool {
    let id = ThreadId(one);
    hass.agree(id, &hass.members[&id], ThreadId(other))
}

#[test]
fn what_a_thread_expects_is_its_rating_times_its_share_of_a_core() {
    let threads = [
        (0, [2.0, 1.0], 1.0),
        (0, [2.0, 1.0], 3.0),
        (1, [3.0, 1.0], 1.0),
    ];
    let mut hass = hass(2.0, &threads);
    let expected = |hass: &Hass, row: u32| hass.expected(&hass.members[&ThreadId(row)], 0);
    assert_eq!(expected(&hass, 0), 2.0 * 2.0 * 1.0 / 4.0);
    assert_eq!(expected(&hass, 1), 2.0, "no more than a core");
    assert_eq!(expected(&hass, 2), 3.0 * (2.0 / 5.0), "itself counted");
    hass.relocate(ThreadId(2), 0);
    assert_eq!(expected(&hass, 2), 3.0 * (2.0 / 5.0), "once");
    hass.relocate(ThreadId(1), 1);
    assert_eq!(expected(&hass, 0), 2.0);
}

#[test]
fn equals_change_places_where_the_sum_gains_more_than_the_margin() {
    // An exchange gains the difference of the ratings: .2 of a present sum of 3.0, and .1.
    let gains = hass(1.0, &[(1, [2.2, 1.0], 1.0), (0, [2.0, 1.0], 1.0)]);
    assert!(agree(&gains, 0, 1));
    let small = hass(1.0, &[(1, [2.1, 1.0], 1.0), (0, [2.0, 1.0], 1.0)]);
    assert!(!agree(&small, 0, 1));
    let loses = hass(1.0, &[(1, [1.5, 1.0], 1.0), (0, [2.0, 1.0], 1.0)]);
    assert!(!agree(&loses, 0, 1));
    assert!(!agree(&gains, 0, 7), "there is no such thread");
}

#[test]
fn the_heavier_takes_a_place_and_the_lighter_may_not_push_it_out() {
    let threads = [(1, [1.5, 1.0], 3.0), (0, [2.0, 1.0], 1.0)];
    assert!(agree(&hass(1.0, &threads), 0, 1), "it gains itself");
    let threads = [(1, [9.0, 1.0], 1.0), (0, [1.5, 1.0], 3.0)];
    assert!(!agree(&hass(1.0, &threads), 0, 1), "the heavier would lose");
    let threads = [(1, [9.0, 1.0], 1.0), (0, [1.0, 1.2], 3.0)];
    assert!(agree(&hass(1.0, &threads), 0, 1), "the heavier gains too");
}

/// Forecast in which these threads execute a program with a signature: nearly as fast on a small core as on a big one.
struct Carrying(Vec<ThreadId>);

impl Forecast for Carrying {
    fn predicts(&self) -> bool {
        false
    }

    fn steady_state(&mut self, _: &[ThreadId], _: &[CpuId]) -> Vec<ThreadForecast> {
        Vec::new()
    }

    fn signature(&mut self, thread: ThreadId) -> Option<Signature> {
        let waits = || Signature::of_counts([[60; 4]; 11]);
        self.0.contains(&thread).then(waits)
    }
}

/// Decision on busy threads 0 to `count` with these events. Returns the partition of each placed thread, with its rating there.
fn decided(
    hass: &mut Hass,
    carrying: &mut Carrying,
    count: u32,
    events: &[(u32, ThreadEventKind)],
) -> Vec<(u32, usize, f64)> {
    let topology = topology(SMT);
    let thread = |id| ThreadInfo {
        id: ThreadId(id),
        program: ProgramId(0),
        name: "waits".into(),
        cpu: CpuId(0),
        runnable: true,
        nice: 0,
        allowed: Arc::clone(&topology.groups[0].cpus),
        hint: None,
    };
    let threads: Vec<ThreadInfo> = (0..count).map(thread).collect();
    let event = |(id, kind): &(u32, ThreadEventKind)| ThreadEvent {
        at: Nanos::ZERO,
        thread: ThreadId(*id),
        kind: *kind,
    };
    let events: Vec<ThreadEvent> = events.iter().map(event).collect();
    let metrics = MetricBank::new(&topology, &[]);
    let mut view = View {
        now: Nanos::ZERO,
        topology: &topology,
        group: None,
        threads: &threads,
        programs: &[],
        events: &events,
        metrics: &metrics,
        forecast: Some(carrying),
    };
    let mut rng = PolicyRng::seed_from_u64(1);
    let placed = hass.decide(&mut view, &mut rng).threads;
    let row = |placed: &ThreadPlacement| {
        let is_home = |p: &CorePartition| p.target == placed.target;
        let home = hass.partitions.iter().position(is_home).unwrap();
        (placed.thread.0, home, placed.reason.seen[0].1)
    };
    placed.iter().map(row).collect()
}

#[test]
fn a_thread_that_executes_another_program_is_placed_by_its_signature_as_a_newcomer_is() {
    use ThreadEventKind::{Exec, New};
    let topology = topology(SMT);
    let params = Params::parse(&super::super::DEF, "").unwrap();
    let mut hass = Hass::new(&params, &topology).unwrap();
    let mut carrying = Carrying((0..4).map(ThreadId).collect());
    let first = decided(&mut hass, &mut carrying, 4, &[]);
    let homes: Vec<usize> = first.iter().map(|(_, home, _)| *home).collect();
    assert_eq!(homes, [0, 0, 1, 1], "each takes a free core");
    assert!(first.iter().all(|(.., rating)| *rating < 1.2), "{first:?}");
    // Two shells, which are expected to run at the speed of their cores, go to the fastest.
    let shells = decided(&mut hass, &mut carrying, 6, &[(4, New), (5, New)]);
    assert!(
        matches!(shells[..], [(4, 0, four), (5, 0, five)] if four > 1.4 && five > 1.4),
        "{shells:?}"
    );
    // One gets more of a core on the other partition. The other stays, and its reason has the new rating.
    carrying.0.extend([ThreadId(4), ThreadId(5)]);
    let executed = decided(&mut hass, &mut carrying, 6, &[(4, Exec), (5, Exec)]);
    assert!(
        matches!(executed[..], [(4, 0, four), (5, 1, five)] if four < 1.2 && five == 1.0),
        "{executed:?}"
    );
    // Executing the same program again changes nothing.
    assert_eq!(decided(&mut hass, &mut carrying, 6, &[(4, Exec)]), []);
}
