//! Tests of counting on the running kernel, with the kernel's own events; skipped if even that is not permitted.

#![allow(clippy::unwrap_used, clippy::panic)] // a test helper that fails has failed its test

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use countersteer_counters::{
    CountRequest, CountTarget, CounterError, CountingSummary, Session, may_count,
};
use countersteer_model::counters::Owner;
use countersteer_model::units::Nanos;
use countersteer_sysfs::launch::{ExitEnding, LaunchError};

/// Variable set in a child of the test: number of threads to start, four at a time.
const THREADS: &str = "COUNTERSTEER_TEST_THREADS";

fn request(target: CountTarget, events: &[&str], interval: Option<Nanos>) -> Option<CountRequest> {
    if !may_count() {
        countersteer_fuzz::skipped("counting is not permitted here (kernel.perf_event_paranoid)");
        return None;
    }
    Some(CountRequest::of_events(target, events, interval).unwrap())
}

/// Counts by owner, and true if its exit was reported.
type Counted = BTreeMap<Owner, (Vec<u64>, bool)>;

fn count(request: CountRequest) -> Result<(Counted, CountingSummary), CounterError> {
    let mut counted = Counted::new();
    let summary = Session::open(request, None)?.run(|tick| {
        for row in tick.readings.iter() {
            let values = row.counts.values();
            let (sums, last) = counted
                .entry(row.owner)
                .or_insert_with(|| (vec![0; values.len()], false));
            (sums.iter_mut().zip(values)).for_each(|(sum, v)| *sum += *v as u64);
            *last |= row.last;
        }
        ControlFlow::Continue(())
    })?;
    Ok((counted, summary))
}

fn words(command: &[&str]) -> CountTarget {
    CountTarget::Launch(command.iter().map(|w| (*w).to_owned()).collect())
}

#[test]
#[ignore = "no test: what others here count"]
fn many_short_threads() {
    let threads = std::env::var(THREADS)
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    // Forks and exits on all CPUs at once stop rings that are written from other CPUs. Their number is limited to the size of
    // the rings, since the reader may wait for a CPU of a busy machine.
    let pause = std::time::Duration::from_millis(1);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for i in 0..threads / 4 {
                    drop(std::thread::spawn(move || std::hint::black_box(i)).join());
                    std::thread::sleep(pause);
                }
            });
        }
    });
}

/// Variable set in a child of the test, which is to execute another program.
const BECOMES: &str = "COUNTERSTEER_TEST_BECOMES";

/// Helper, not a test of its own: tests run in threads of their own, and this one executes a program, which replaces all of
/// them.
#[test]
fn another_thread_than_the_first_starts_a_program() {
    if std::env::var_os(BECOMES).is_some() {
        let _ = (0..20_000_000u64).map(std::hint::black_box).sum::<u64>();
        panic!("{}", Command::new("sh").args(["-c", BUSY]).exec());
    }
}

/// Runs for a tenth of a second or so.
const BUSY: &str = "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done";

#[test]
fn who_starts_a_program_in_the_place_of_all_has_the_number_of_the_first() {
    let exe = std::env::current_exe().unwrap();
    let becomes = format!("{BECOMES}=1");
    let command = [
        "env",
        &becomes,
        exe.to_str().unwrap(),
        "another_thread_than_the_first_starts_a_program",
        "--exact",
    ];
    for interval in [None, Some(Nanos::from_millis(5))] {
        let Some(request) = request(words(&command), &["task_clock"], interval) else {
            return;
        };
        let (counted, summary) = count(request).unwrap();
        assert_eq!(
            (summary.lost, summary.ending),
            (0, Some(ExitEnding::Exited(0)))
        );
        let threads = || {
            counted
                .iter()
                .filter(|(owner, _)| matches!(owner, Owner::Thread { .. }))
        };
        let of = |first: bool| {
            threads().filter(
                move |(o, _)| matches!(o, Owner::Thread { pid, tid } if (pid == tid) == first),
            )
        };
        let sum = |first| of(first).map(|(_, c)| c.0[0]).sum::<u64>();
        // Each thread has its counts under its TID, and nothing is counted twice. Without an interval threads are read only as
        // they leave a CPU. A thread that does not before it changes its TID is unknown until then.
        assert_eq!(of(true).count(), 1, "{counted:?}");
        assert!(
            sum(true) > 10_000_000 && (interval.is_none() || sum(false) > 1_000_000),
            "{counted:?}"
        );
        assert!(sum(true) + sum(false) > 100_000_000, "{counted:?}");
        assert!(
            threads().all(|(_, c)| c.1),
            "every exit is reported: {counted:?}"
        );
        assert!(
            sum(true) + sum(false) < summary.elapsed.0 * 5 / 4,
            "{summary:?} {counted:?}"
        );
    }
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// True if at most `most` files are open, or will be within a minute: a leak stays, sessions of other tests end.
fn few_stay_open(most: usize) -> bool {
    let begun = std::time::Instant::now();
    while open_files() > most && begun.elapsed().as_secs() < 60 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    open_files() <= most
}

#[test]
fn no_thread_is_missed_and_no_file_left_open() {
    let exe = std::env::current_exe().unwrap();
    let threads = format!("{THREADS}=3000");
    let command = [
        "env",
        &threads,
        exe.to_str().unwrap(),
        "many_short_threads",
        "--exact",
        "--ignored",
    ];
    for interval in [None, Some(Nanos::from_millis(20))] {
        let Some(request) = request(words(&command), &["task_clock,page_faults"], interval) else {
            return;
        };
        let files = open_files();
        let (counted, summary) = count(request).unwrap();
        assert_eq!(
            (summary.lost, summary.partial, summary.ending),
            (0, 0, Some(ExitEnding::Exited(0)))
        );
        assert!(summary.forked >= 3000, "{summary:?}");
        let ended = counted
            .iter()
            .filter(|(owner, c)| matches!(owner, Owner::Thread { .. }) && c.0[0] > 0)
            .count();
        assert_eq!(
            ended as u64,
            summary.forked + 1,
            "every fork has its counts, and so has the first thread"
        );
        assert!(
            counted
                .iter()
                .all(|(owner, c)| !matches!(owner, Owner::Thread { .. }) || c.1),
            "every exit is reported"
        );
        // Counts of a thread after its last report are known only together. They are few, and no page faults.
        let rest = counted
            .get(&Owner::Rest)
            .map_or([0, 0], |c| [c.0[0], c.0[1]]);
        let all: u64 = counted.values().map(|c| c.0[0]).sum();
        assert!(rest[0] * 3 < all && rest[1] == 0, "{rest:?} of {all}");
        assert!(few_stay_open(files + 30), "{} of {files}", open_files());
    }
}

#[test]
fn counters_of_who_has_ended_are_closed() {
    let period = Nanos::from_millis(20);
    let Some(request) = request(words(&["true"]), &["task_clock"], Some(period)) else {
        return;
    };
    let mut session = Session::without_threads(
        (request.sets, request.plan),
        period,
        request.cpus,
        request.core_types,
        None,
    )
    .unwrap();
    let mut open = Vec::new();
    let mut read = 0;
    for _ in 0..10 {
        // It continues when its input ends, and starts another program.
        let mut child = Command::new("sh")
            .args(["-c", "read line; sleep 0.01"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        session.attach(child.id()).unwrap();
        assert!(
            open.last()
                .is_none_or(|before| session.open_groups() > *before)
        );
        child.wait().unwrap();
        let until = session.now() + period;
        while session.now() < until {
            session.wait(until).unwrap();
        }
        session.listen();
        session
            .turn(|readings| read += readings.rows().len())
            .unwrap();
        open.push(session.open_groups());
    }
    // Those of the first one stay: rings are theirs.
    assert_eq!(
        (open[0], read >= 20),
        (open[9], true),
        "{open:?}, {read} rows"
    );
}

#[test]
fn totals_are_read_while_threads_come_and_go() {
    let exe = std::env::current_exe().unwrap();
    let threads = format!("{THREADS}=3000");
    let command = [
        "env",
        &threads,
        exe.to_str().unwrap(),
        "many_short_threads",
        "--exact",
        "--ignored",
    ];
    let often = Some(Nanos::from_millis(1));
    let Some(request) = request(words(&command), &["task_clock,page_faults"], often) else {
        return;
    };
    let (counted, _) = count(CountRequest {
        total: true,
        ..request
    })
    .unwrap();
    assert!(counted[&Owner::Total].0[0] > 0);
}

#[test]
fn exit_codes_signals_and_children_are_passed_on() {
    let command = ["sh", "-c", "true & wait; sh -c 'exit 3' || exit 7"];
    let Some(request) = request(words(&command), &["task_clock"], None) else {
        return;
    };
    let (counted, summary) = count(request.clone()).unwrap();
    assert_eq!(summary.ending, Some(ExitEnding::Exited(7)));
    let processes: std::collections::BTreeSet<u32> = counted
        .keys()
        .filter_map(|o| {
            if let Owner::Thread { pid, .. } = o {
                Some(*pid)
            } else {
                None
            }
        })
        .collect();
    assert!(processes.len() >= 2, "{processes:?}");
    let killed = CountRequest {
        target: words(&["sh", "-c", "kill -9 $$"]),
        ..request.clone()
    };
    assert_eq!(
        count(killed).unwrap().1.ending,
        Some(ExitEnding::Signaled(9))
    );
    let missing = CountRequest {
        target: words(&["nonesuch-program"]),
        ..request
    };
    assert!(matches!(
        count(missing),
        Err(CounterError::Launch(LaunchError::NotFound { .. }))
    ));
}

#[test]
fn what_runs_already_is_looked_at_thread_by_thread() {
    let mut child = std::process::Command::new("sh")
        .args(["-c", "while :; do :; done"])
        .spawn()
        .unwrap();
    let target = CountTarget::Processes(vec![child.id()]);
    let request = request(target, &["task_clock"], Some(Nanos::from_millis(5)));
    let counted = request.map(|r| {
        count(CountRequest {
            // Half a second: on a busy machine the program may wait that long for a CPU.
            samples: Some(100),
            ..r
        })
        .unwrap()
        .0
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let Some(counted) = counted else { return };
    let owner = Owner::Thread {
        pid: child.id(),
        tid: child.id(),
    };
    assert!(counted[&owner].0[0] > 0, "{counted:?}");
}

#[test]
fn the_total_of_a_program_is_at_least_that_of_its_threads() {
    let command = words(&["sh", "-c", "for i in 1 2 3; do true | true; done"]);
    let Some(request) = request(command, &["task_clock,page_faults"], None) else {
        return;
    };
    let (threads, _) = count(request.clone()).unwrap();
    let (total, _) = count(CountRequest {
        total: true,
        ..request
    })
    .unwrap();
    let faults: u64 = threads.values().map(|c| c.0[1]).sum();
    let together = total[&Owner::Total].0[1];
    // This program runs twice and behaves alike, except for the placement of its pages by the kernel.
    assert!(
        together.abs_diff(faults) * 4 < faults,
        "{together} {faults}"
    );
}

#[test]
fn events_decide_when_a_reading_is_due() {
    let command = words(&["sh", "-c", "true"]);
    let Some(request) = request(command, &["task_clock,page_faults"], None) else {
        return;
    };
    let mut faults = Vec::new();
    let session = Session::open(
        CountRequest {
            every: Some((0, 1, 20)),
            ..request
        },
        None,
    )
    .unwrap();
    let _ = session.run(|tick| {
        faults.extend(
            tick.readings
                .iter()
                .map(|row| row.counts.values()[1] as u64),
        );
        ControlFlow::Continue(())
    });
    let (last, others) = faults.split_last().unwrap();
    assert!(
        others.len() >= 2 && *last < 20,
        "a shell takes more than 40 page faults to start: {faults:?}"
    );
    // Samples are due on each CPU on its own: a thread that moves also has a sample of its counts there.
    assert!(
        others.iter().filter(|n| **n == 20).count() + 2 >= others.len(),
        "{faults:?}"
    );
}
