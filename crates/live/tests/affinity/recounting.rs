//! Tests of counting sessions that are exchanged while threads run, and of multiplexed event sets.

use super::*;

/// Counts other events when it is called.
struct Other(Option<CounterPlan>);

impl Recount for Other {
    fn counters(&mut self, metrics: &[&'static str], _: Nanos) -> Option<CounterPlan> {
        self.0.take_if(|_| metrics == ["ipc"])
    }

    #[allow(clippy::panic, reason = "a test whose helper fails has failed")]
    fn failed(&mut self, why: &str) {
        panic!("{why}");
    }
}

#[test]
fn other_counters_are_opened_while_threads_run_on() {
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("go");
    let busy =
        format!("({SPIN}) & child=$!; trap \"kill $child\" EXIT; while :; do sleep 0.1; done");
    let program = Program::start(&format!("{}; {busy}", wait_for(&gate)));
    let first = counters(&["task_clock"], PERIOD);
    let other = counters(&["task_clock,page_faults"], Nanos::from_millis(10));
    let other = Box::new(Other(Some(other)));
    let mut engine = engine_that(Some(first), folder.path(), false, Some(other));
    if engine.blindness().is_some() {
        countersteer_fuzz::skipped("counting is not permitted here");
        return;
    }
    engine.attach(&root(&program)).unwrap();
    std::fs::write(&gate, "").unwrap();
    let mut threads = std::collections::BTreeMap::new();
    until(&mut engine, |seen| {
        seen.samples
            .of_threads()
            .for_each(|(thread, _)| *threads.entry(thread.0).or_insert(0) += 1);
        // The thread that spins.
        threads.values().any(|samples| *samples > 5)
    });
    threads.retain(|_, samples| *samples > 5);
    let watch = Watch {
        metrics: &["ipc"],
        period: Nanos::from_millis(10),
        events: false,
        switches: false,
        values: None,
    };
    let before = engine.observe(&watch, Nanos::ZERO).unwrap();
    let mut forks = 0;
    let mut sampled = std::collections::BTreeSet::new();
    let mut last = before.at;
    until(&mut engine, |seen| {
        assert!(seen.at >= last, "time goes on: {} {last}", seen.at);
        last = seen.at;
        forks += seen
            .events
            .iter()
            .filter(|e| e.kind == ThreadEventKind::New)
            .count();
        sampled.extend(seen.samples.of_threads().map(|(thread, _)| thread.0));
        forks > 3 && sampled.iter().any(|tid| threads.contains_key(tid))
    });
    let children: Vec<u32> = engine
        .observe(&WATCH, Nanos::ZERO)
        .unwrap()
        .threads
        .iter()
        .map(|t| t.id.0)
        .collect();
    drop(engine);
    end(&children);
}

#[test]
fn counters_that_take_turns_tell_of_all_that_ran() {
    // A long interval, so that a wait of this thread for a CPU between two sets weighs little.
    const LONG: Nanos = Nanos::from_millis(100);
    let folder = tempfile::tempdir().unwrap();
    let program = Program::start(SPIN);
    let counters = counters(&["task_clock", "page_faults,task_clock"], LONG);
    let affinity = AffinityConfig {
        period: LONG,
        ..config(Some(counters))
    };
    let watch = Watch {
        period: LONG,
        ..WATCH
    };
    let mut engine = engine_of(affinity, folder.path(), None);
    if engine.blindness().is_some() {
        countersteer_fuzz::skipped("counting is not permitted here");
        return;
    }
    let begun = std::time::Instant::now();
    engine.attach(&root(&program)).unwrap();
    let ran = || {
        let stat = std::fs::read_to_string(format!("/proc/{0}/task/{0}/schedstat", program.pid()))
            .unwrap();
        stat.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let since = ran();
    let mut counted = 0;
    let mut turns = [0; 2];
    let mut until = engine.observe(&watch, Nanos::ZERO).unwrap().at;
    for period in 1..=25 {
        if period == 21 {
            // Its running time is reported in the periods that are left.
            let stop = ["-STOP", &program.pid().to_string()];
            assert!(Command::new("kill").args(stop).status().unwrap().success());
        }
        let seen = engine.observe(&watch, until + LONG).unwrap();
        until = seen.at;
        for sample in seen.samples.iter() {
            assert_eq!(sample.sets(), 2);
            counted += sample.running.0;
            turns[sample.set as usize] += 1;
        }
    }
    let passed = begun.elapsed().as_nanos() as u64;
    // No thread runs for longer than the time that passes. The lower bound is the kernel's own sum. That sum omits the time
    // that a hypervisor takes, and so is no upper bound. Between two sets nothing is counted.
    assert!(counted <= passed, "{counted} ns of {passed}");
    let share = counted as f64 / (ran() - since) as f64;
    assert!(share > 0.7, "{share}");
    assert!(turns.iter().all(|samples| *samples >= 5), "{turns:?}");
}

#[test]
fn forks_are_reported_while_any_set_counts() {
    const CHILDREN: usize = 60;
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("go");
    let forks = format!("i=0; while [ $i -lt {CHILDREN} ]; do sleep 0.005; i=$((i+1)); done");
    let program = Program::start(&format!(
        "{}; sleep 0.1; {forks}; sleep 60",
        wait_for(&gate)
    ));
    let sets = counters(&["task_clock", "page_faults,task_clock"], PERIOD);
    let mut engine = engine_that(Some(sets), folder.path(), false, None);
    if engine.blindness().is_some() {
        countersteer_fuzz::skipped("counting is not permitted here");
        return;
    }
    engine.attach(&root(&program)).unwrap();
    std::fs::write(&gate, "").unwrap();
    let mut seen_forks = 0;
    until(&mut engine, |seen| {
        let kinds = seen.events.iter().map(|event| event.kind);
        seen_forks += kinds.filter(|kind| *kind == ThreadEventKind::New).count();
        // Between two sets none is counted: for some microseconds, or longer on a busy machine. If only one set reported forks,
        // half would be missing.
        seen_forks >= CHILDREN * 3 / 5
    });
}
