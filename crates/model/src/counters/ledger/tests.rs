use proptest::prelude::*;

use super::*;

const CPU: CpuId = CpuId(0);

const fn thread(tid: u32) -> Owner {
    Owner::Thread { pid: 1, tid }
}

fn counts_at(at: u64, values: &[u64]) -> Cumulative<'_> {
    Cumulative {
        at: Nanos(at),
        seen_on: CPU,
        enabled: Nanos(at),
        running: Nanos(at),
        values,
    }
}

fn rows(ledger: &mut Ledger) -> Vec<(Owner, u64, bool)> {
    rows_of(ledger, Which::All)
}

fn rows_of(ledger: &mut Ledger, which: Which) -> Vec<(Owner, u64, bool)> {
    let mut samples = Samples::default();
    ledger.flush(which, &mut samples);
    samples
        .iter()
        .map(|row| (row.owner, row.counts.values()[0] as u64, row.last))
        .collect()
}

#[test]
fn a_thread_is_reported_from_fork_to_exit() {
    let mut ledger = Ledger::new(vec![0]);
    let tree = ledger.root(1, 1, Nanos::ZERO);
    ledger.forked(thread(2), Nanos(5));
    ledger.tell(thread(2), tree, CPU, 0, &counts_at(10, &[7]));
    ledger.tell(thread(2), tree, CPU, 0, &counts_at(20, &[9]));
    let two = thread(2);
    assert_eq!(rows(&mut ledger), [(two, 9, false)]);
    assert_eq!(rows(&mut ledger), [], "no news");
    ledger.tell(thread(2), tree, CPU, 0, &counts_at(30, &[12]));
    ledger.exit(2);
    assert_eq!(rows(&mut ledger), [(two, 3, true)]);
    assert_eq!(ledger.alive(), 0);
    assert_eq!(
        ledger.total(tree, CPU, 0, &counts_at(40, &[20]), true),
        None
    );
    assert_eq!(rows(&mut ledger), [(thread(1), 8, false)]);
}

#[test]
fn an_exit_is_reported_even_if_nothing_was_counted_since_the_last_sample() {
    let mut ledger = Ledger::new(vec![0]);
    let tree = ledger.root(1, 1, Nanos::ZERO);
    for tid in [1, 2] {
        ledger.tell(thread(tid), tree, CPU, 0, &counts_at(10, &[7]));
    }
    assert_eq!(
        rows(&mut ledger),
        [(thread(1), 7, false), (thread(2), 7, false)]
    );
    ledger.exit(2);
    ledger.exit(1);
    assert_eq!(rows(&mut ledger), [(thread(2), 0, true)]);
    let mut roots = Samples::default();
    (0..2).for_each(|_| ledger.final_counts(&mut roots));
    let ends: Vec<(Owner, bool)> = roots.rows().iter().map(|r| (r.owner, r.last)).collect();
    assert_eq!(
        ends,
        [(thread(1), true)],
        "once, and when nothing more can come"
    );
}

#[test]
fn final_counts_wait_for_the_end_but_not_for_long() {
    let mut ledger = Ledger::new(vec![0]);
    let tree = ledger.root(1, 1, Nanos::ZERO);
    for ends in [true, false] {
        ledger.forked(thread(2), Nanos::ZERO);
        ledger.tell(thread(2), tree, CPU, 0, &counts_at(10, &[7]));
        ledger.leaves(2);
        assert_eq!(rows(&mut ledger), []);
        if ends {
            ledger.exit(2);
        }
        assert_eq!(rows(&mut ledger), [(thread(2), 7, ends)]);
    }
    ledger.tell(thread(2), tree, CPU, 0, &counts_at(20, &[9]));
    ledger.leaves(2);
    assert_eq!(rows(&mut ledger), []);
    assert_eq!(rows(&mut ledger), [(thread(2), 2, false)]);
}

#[test]
fn no_thread_counts_for_longer_than_it_ran() {
    let mut ledger = Ledger::new(vec![0]);
    let tree = ledger.root(1, 1, Nanos::ZERO);
    let part = |enabled, running| Cumulative {
        at: Nanos(9),
        seen_on: CPU,
        enabled: Nanos(enabled),
        running: Nanos(running),
        values: &[1],
    };
    let mut times = |cumulative: Cumulative<'_>| {
        let mut samples = Samples::default();
        ledger.tell(thread(2), tree, CPU, 0, &cumulative);
        ledger.flush(Which::All, &mut samples);
        samples.rows().first().map(|r| (r.enabled.0, r.running.0))
    };
    let reported = [part(5, 0), part(0, 8), part(7, 0), part(10, 0)].map(&mut times);
    assert_eq!(reported, [Some((5, 0)), Some((3, 8)), None, Some((2, 0))]);
    ledger.exit(2);
    let rest = ledger
        .total(
            tree,
            CPU,
            0,
            &Cumulative {
                values: &[1],
                ..part(12, 9)
            },
            false,
        )
        .unwrap();
    assert_eq!(rest[..2], [2, 1]);
}

#[test]
fn what_living_threads_counted_last_is_reported_apart() {
    let mut ledger = Ledger::new(vec![0]);
    let tree = ledger.root(1, 1, Nanos::ZERO);
    ledger.tell(thread(1), tree, CPU, 0, &counts_at(10, &[5]));
    ledger.tell(thread(2), tree, CPU, 0, &counts_at(10, &[4]));
    let rest = ledger
        .total(tree, CPU, 0, &counts_at(40, &[20]), false)
        .unwrap();
    assert_eq!(rest[2], 11);
}

#[test]
fn a_number_taken_before_its_former_owner_was_reported_loses_nothing() {
    let mut ledger = Ledger::new(vec![0]);
    let tree = ledger.root(1, 1, Nanos::ZERO);
    for round in 0..3 {
        ledger.forked(thread(2), Nanos(round));
        ledger.tell(thread(2), tree, CPU, 0, &counts_at(round + 1, &[5 + round]));
        ledger.exit(2);
    }
    let mut samples = Samples::default();
    ledger.flush(Which::Ended, &mut samples);
    let values: Vec<f64> = samples.iter().map(|row| row.counts.values()[0]).collect();
    assert_eq!(values, [5.0, 6.0, 7.0]);
}

#[test]
fn counts_that_were_reported_before_the_fork_are_kept() {
    let mut ledger = Ledger::new(vec![0]);
    let tree = ledger.root(1, 1, Nanos::ZERO);
    ledger.tell(thread(2), tree, CPU, 0, &counts_at(10, &[7]));
    ledger.forked(thread(2), Nanos(9));
    ledger.tell(thread(2), tree, CPU, 0, &counts_at(20, &[8]));
    assert_eq!(rows(&mut ledger), [(thread(2), 8, false)]);
}

#[test]
fn who_gets_another_number_goes_on_counting() {
    let mut ledger = Ledger::new(vec![0]);
    let tree = ledger.root(1, 1, Nanos::ZERO);
    ledger.forked(thread(2), Nanos(1));
    ledger.forked(thread(3), Nanos(1));
    ledger.tell(thread(1), tree, CPU, 0, &counts_at(10, &[4]));
    ledger.tell(thread(2), tree, CPU, 0, &counts_at(10, &[7]));
    assert_eq!(ledger.survivor(1), None, "two of them live");
    assert_eq!(
        rows(&mut ledger),
        [(thread(1), 4, false), (thread(2), 7, false)]
    );
    ledger.exit(3);
    ledger.exit(1);
    assert_eq!(ledger.survivor(1), Some(2));
    ledger.tell(thread(2), tree, CPU, 0, &counts_at(20, &[9]));
    ledger.renumber(2, thread(1), Nanos(20));
    assert!(ledger.is_alive(1) && !ledger.is_alive(2));
    ledger.tell(thread(1), tree, CPU, 0, &counts_at(30, &[12]));
    let seen = rows(&mut ledger);
    assert_eq!(
        seen,
        [
            (thread(1), 0, true),
            (thread(1), 3, false),
            (thread(2), 2, true)
        ]
    );
    // The first thread's last 9 of the tree's 25 were in no report.
    assert_eq!(
        ledger
            .total(tree, CPU, 0, &counts_at(40, &[25]), false)
            .unwrap()[2],
        9
    );
    assert_eq!(
        ledger.total(tree, CPU, 0, &counts_at(40, &[25]), true),
        None
    );
    assert_eq!(rows(&mut ledger), [(thread(1), 9, false)]);
    // Also for a thread that existed before.
    let other = ledger.root(1, 7, Nanos(50));
    let second = ledger.root(1, 8, Nanos(50));
    ledger.tell(thread(7), other, CPU, 0, &counts_at(60, &[3]));
    ledger.tell(thread(8), second, CPU, 0, &counts_at(60, &[5]));
    ledger.exit(7);
    rows(&mut ledger);
    ledger.renumber(8, thread(7), Nanos(60));
    ledger.tell(thread(7), second, CPU, 0, &counts_at(70, &[6]));
    assert_eq!(
        rows(&mut ledger),
        [(thread(8), 0, true), (thread(7), 1, false)]
    );
    assert_eq!(
        ledger.total(second, CPU, 0, &counts_at(80, &[8]), true),
        None
    );
    assert_eq!(
        ledger.total(other, CPU, 0, &counts_at(80, &[4]), true),
        None
    );
    assert_eq!(
        rows(&mut ledger),
        [(thread(7), 2, false), (thread(7), 1, false)]
    );
}

#[test]
fn numbers_may_change_again_and_again() {
    let mut ledger = Ledger::new(vec![0]);
    let tree = ledger.root(1, 1, Nanos::ZERO);
    let mut seen = 0;
    for tid in 2..6 {
        ledger.forked(thread(tid), Nanos(1));
        ledger.exit(1);
        ledger.tell(thread(tid), tree, CPU, 0, &counts_at(10, &[3]));
        ledger.renumber(tid, thread(1), Nanos(20));
        ledger.tell(thread(1), tree, CPU, 0, &counts_at(30, &[10]));
        let reported = rows(&mut ledger);
        // The first thread with that TID has counted nothing yet and has no row.
        assert_eq!(
            reported.iter().filter(|row| row.2).count(),
            1 + usize::from(tid > 2),
            "{reported:?}"
        );
        seen += reported.iter().map(|row| row.1).sum::<u64>();
    }
    assert_eq!(seen, 40);
    assert!(
        ledger.threads[&1].slots.len() < 3,
        "{:?}",
        ledger.threads[&1].slots
    );
}

#[test]
fn a_tree_that_is_over_leaves_nothing() {
    let mut ledger = Ledger::new(vec![0]);
    for round in 0..3 {
        let tree = ledger.root(1, 1, Nanos(round));
        ledger.tell(thread(1), tree, CPU, 0, &counts_at(round + 1, &[5]));
        ledger.tell(thread(2), tree, CPU, 0, &counts_at(round + 1, &[4]));
        ledger.exit(2);
        ledger.exit(1);
        assert_eq!(rows(&mut ledger).iter().map(|r| r.1).sum::<u64>(), 9);
        ledger.forget_tree(tree);
        assert_eq!(
            (ledger.trees(), ledger.threads.len(), ledger.others.len()),
            (0, 0, 0)
        );
    }
    assert_eq!(ledger.spare.len(), 2, "slots are used again");
}

#[test]
fn a_number_used_again_is_another_thread() {
    let mut ledger = Ledger::new(vec![0]);
    let tree = ledger.root(1, 1, Nanos::ZERO);
    for round in 0..3 {
        ledger.forked(thread(2), Nanos(round));
        ledger.tell(thread(2), tree, CPU, 0, &counts_at(round + 1, &[5]));
        ledger.exit(2);
        assert_eq!(rows(&mut ledger), [(thread(2), 5, true)]);
    }
    assert_eq!(ledger.spare.len(), 1, "slots are used again");
}

proptest! {
    /// Threads count, with or without samples, and may exit. In all cases, samples add up to the tree's total.
    #[test]
    fn samples_add_up_to_the_total(steps in prop::collection::vec((1..6u32, 0..100u64, any::<bool>(), any::<bool>(), any::<bool>()), 1..60)) {
        let mut ledger = Ledger::new(vec![0]);
        let tree = ledger.root(1, 1, Nanos::ZERO);
        let mut counts = [0u64; 6];
        let mut total = 0;
        let mut seen = 0;
        for (now, (tid, more, sampled, ends, flush)) in steps.into_iter().enumerate() {
            counts[tid as usize] += more;
            total += more;
            let cumulative = [counts[tid as usize]];
            if sampled || (ends && tid != 1) {
                ledger.tell(thread(tid), tree, CPU, 0, &counts_at(now as u64, &cumulative));
            }
            if ends && tid != 1 {
                ledger.exit(tid);
                // The next thread with that TID is another one and starts from zero.
                seen += rows(&mut ledger).iter().map(|r| r.1).sum::<u64>();
                counts[tid as usize] = 0;
            }
            if flush {
                seen += rows(&mut ledger).iter().map(|r| r.1).sum::<u64>();
            }
        }
        let rest = ledger.total(tree, CPU, 0, &counts_at(1000, &[total]), false).map_or(0, |r| r[2]);
        seen += rows(&mut ledger).iter().map(|r| r.1).sum::<u64>();
        prop_assert_eq!(seen + rest, total);
    }
}
