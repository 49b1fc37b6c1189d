//! Tests of threads followed inside the running kernel; skipped, with the reason, if programs may not be loaded.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use countersteer_bpf::follow::load;
use countersteer_counters::{
    BpfLoader, BpfRequest, CountRequest, CountTarget, CounterError, CountingSummary, Follow,
    Session, TaskReport,
};
use countersteer_model::counters::Owner;
use countersteer_model::units::Nanos;
use countersteer_sysfs::launch::ExitEnding;

fn request(target: CountTarget, events: &str, interval: Option<Nanos>) -> CountRequest {
    CountRequest::of_events(target, &[events], interval).unwrap()
}

/// By thread: its name, its counts, and true if its exit was reported.
type Counted = BTreeMap<u32, (String, Vec<u64>, bool)>;

/// Opens a session; `None` if not permitted.
fn open(request: CountRequest) -> Option<Session> {
    match Session::open(
        request,
        Some(BpfLoader {
            load: std::sync::Arc::new(load),
            must: true,
        }),
    ) {
        Err(CounterError::NoBpf { reason }) => {
            eprintln!("skipped: {reason}");
            None
        }
        session => Some(session.unwrap()),
    }
}

/// Counts of a session; `None` if not permitted.
fn count(request: CountRequest) -> Option<(Counted, CountingSummary)> {
    open(request).map(run)
}

fn run(session: Session) -> (Counted, CountingSummary) {
    let mut counted = Counted::new();
    let summary = session.run(|tick| {
        for (i, row) in tick.readings.rows().iter().enumerate() {
            let Owner::Thread { tid, .. } = row.owner else {
                continue;
            };
            let values = tick.readings.values(i);
            let (name, sums, last) = counted
                .entry(tid)
                .or_insert_with(|| (String::new(), vec![0; values.len()], false));
            sums.iter_mut()
                .zip(values)
                .for_each(|(sum, value)| *sum += *value as u64);
            *last |= row.last;
            tick.name(tid).clone_into(name);
        }
        ControlFlow::Continue(())
    });
    (counted, summary.unwrap())
}

fn shell(script: &str) -> CountTarget {
    CountTarget::Launch(["sh", "-c", script].map(str::to_owned).to_vec())
}

const BUSY: &str = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";

#[test]
fn every_process_of_a_program_is_counted_from_fork_to_exit() {
    let busy = format!("(sleep 0.01; {BUSY}; true)");
    let script = format!("{busy} & {busy} & wait; {busy}; exit 3");
    for interval in [None, Some(Nanos::from_millis(5))] {
        let request = request(
            shell(&script),
            "task_clock,context_switches,page_faults",
            interval,
        );
        let Some((counted, summary)) = count(request) else {
            return;
        };
        assert_eq!(
            (summary.ending, summary.forked, summary.lost),
            (Some(ExitEnding::Exited(3)), 6, 0)
        );
        assert_eq!(counted.len(), 7, "{counted:?}");
        let whole = |(_, values, ended): &(_, Vec<u64>, bool)| values[0] > 0 && *ended;
        assert!(counted.values().all(whole), "{counted:?}");
        assert_eq!(
            counted
                .values()
                .filter(|(name, _, _)| name == "sleep")
                .count(),
            3,
            "{counted:?}"
        );
        let sum = |event: usize| {
            counted
                .values()
                .map(|(_, values, _)| values[event])
                .sum::<u64>()
        };
        assert!(
            sum(0) > 1_000_000 && sum(1) > 7 && sum(2) > 100,
            "{counted:?}"
        );
    }
}

#[test]
fn programs_that_are_started_by_a_program_have_their_names() {
    let Some((counted, _)) = count(request(shell("sleep 0.01; true"), "task_clock", None)) else {
        return;
    };
    let mut names: Vec<&str> = counted.values().map(|(name, _, _)| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["sh", "sleep"]);
}

#[test]
fn threads_that_run_already_are_followed_with_what_they_fork() {
    let script = "read line; sleep 0.02; sleep 0.01; true";
    let mut shell = std::process::Command::new("sh")
        .args(["-c", script])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = shell.id();
    let request = request(
        CountTarget::Processes(vec![pid]),
        "task_clock,page_faults",
        None,
    );
    let Some(session) = open(request) else {
        shell.wait().unwrap();
        return;
    };
    // It continues when its input ends, which is after it is being followed.
    drop(shell.stdin.take());
    let waiter = std::thread::spawn(move || shell.wait().unwrap());
    let (counted, summary) = run(session);
    waiter.join().unwrap();
    assert_eq!((summary.forked, summary.lost), (2, 0));
    assert!(
        counted.contains_key(&pid) && counted.len() == 3,
        "{counted:?}"
    );
    assert!(
        counted
            .values()
            .all(|(_, values, ended)| values[0] > 0 && *ended),
        "{counted:?}"
    );
}

#[test]
fn what_needs_counters_of_the_threads_own_is_refused_with_the_reason() {
    let whole = CountRequest {
        total: true,
        ..request(shell("true"), "task_clock", None)
    };
    let refused = Session::open(
        whole,
        Some(BpfLoader {
            load: std::sync::Arc::new(load),
            must: true,
        }),
    )
    .err()
    .map(|e| e.to_string());
    let expected = "threads cannot be counted by BPF programs here: that is for threads counted one by one: of a program, of -p or of -t; \
                    without `--bpf always` they have counters of their own";
    assert_eq!(refused.as_deref(), Some(expected));
    // Without a requirement of BPF they are counted by per-thread counters.
    let every = CountRequest {
        every: Some((0, 0, 1_000_000)),
        ..request(shell("true"), "task_clock", None)
    };
    assert!(
        Session::open(
            every,
            Some(BpfLoader {
                load: std::sync::Arc::new(load),
                must: false
            })
        )
        .is_ok()
    );
}

/// Process that has ended and whose parent has not waited for it yet.
fn zombie() -> std::process::Child {
    let child = std::process::Command::new("true").spawn().unwrap();
    let file = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", child.id()));
    // A process is a zombie slightly before it leaves its CPU for the last time.
    while !file("stat").unwrap().contains(") Z ")
        || file("syscall").is_ok_and(|text| text.starts_with("running"))
    {
        std::thread::yield_now();
    }
    child
}

/// Programs that follow single threads by their clock.
fn following() -> Option<Box<dyn Follow>> {
    let request = request(shell("true"), "task_clock", None);
    let loaded = load(&BpfRequest {
        sets: &request.sets,
        cpus: &request.cpus,
        core_types: &request.core_types.by_cpu,
        program: None,
        threads: 1,
        interval: None,
        spacing: Nanos::ZERO,
    });
    loaded.map_err(countersteer_fuzz::skipped).ok()
}

#[test]
fn slots_of_threads_that_were_attached_to_are_used_again() {
    let Some(mut follow) = following() else {
        return;
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    // One after the other, more threads than there are slots.
    for _ in 0..(4096.max(128 * cpus) + 100) {
        let (number, numbers) = std::sync::mpsc::channel();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            number
                .send(nix::unistd::gettid().as_raw().unsigned_abs())
                .unwrap();
            let _ = wait.recv();
        });
        let tid = numbers.recv().unwrap();
        follow.adopt(&[(std::process::id(), tid)]).unwrap();
        drop(go);
        thread.join().unwrap();
        follow.collect(&mut |_, _, _| {});
    }
}

#[test]
fn a_thread_that_never_runs_again_leaves_its_slot_when_it_is_gone() {
    let Some(mut follow) = following() else {
        return;
    };
    let mut child = zombie();
    follow.adopt(&[(child.id(), child.id())]).unwrap();
    let thread = (child.id(), child.id());
    assert!(
        follow.living().contains(&thread),
        "its exit was seen too early"
    );
    child.wait().unwrap();
    // The kernel frees its task a little later. If that were missed, the next thread at its address would be mistaken for it.
    let begun = std::time::Instant::now();
    while follow.living().contains(&thread) && begun.elapsed().as_secs() < 20 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let mut ended = Vec::new();
    follow.collect(&mut |_, tid, report| {
        ended.extend(matches!(report, TaskReport::Exited).then_some(tid))
    });
    assert_eq!(ended, [child.id()]);
}
