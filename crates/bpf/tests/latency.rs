//! Tests of run-queue latency measured inside the running kernel; skipped, with the reason, if programs may not be loaded.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use countersteer_bpf::latency::load;
use countersteer_sysfs::waits::{Schedstat, ThreadWaits, WaitSource, Waits, Whose};

fn children() -> Whose {
    Whose {
        children: true,
        ..Whose::default()
    }
}

/// By thread: its name, true if it ended, and its latencies.
type Heard = BTreeMap<u32, (String, bool, Waits)>;

fn read(source: &mut dyn WaitSource, into: &mut Heard) {
    source.read(&mut |ThreadWaits {
                          tid,
                          name,
                          ended,
                          waits,
                          ..
                      }| {
        let of = into.entry(tid).or_default();
        (of.0, of.1) = (name, ended);
        of.2.add(&waits);
    });
}

fn source(whose: &Whose) -> Option<Box<dyn WaitSource>> {
    let why = match load(whose) {
        Ok(source) => return Some(source),
        Err(why) => why,
    };
    assert!(why.contains("not permitted"), "{why}");
    eprintln!("skipped: {why}");
    None
}

/// All are children of this process, all of whose threads are measured: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two programs on one CPU alternate, so the run-queue latency of each is about its running time; the kernel's own sums are the
/// reference.
#[test]
fn programs_on_one_cpu_wait_for_each_other_as_long_as_the_kernel_says() {
    let _alone = alone();
    let Some(mut source) = source(&children()) else {
        return;
    };
    let cpu = countersteer_fuzz::cpus::allowed()[0].to_string();
    let script = "i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done; cat /proc/$$/schedstat";
    let start = || {
        let mut command = Command::new("taskset");
        command.args(["-c", &cpu, "sh", "-c", script]);
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    let [first, second] = [start(), start()];
    let mut heard = Heard::new();
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(20));
        read(&mut *source, &mut heard);
    }
    for child in [first, second] {
        let pid = child.id();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        read(&mut *source, &mut heard);
        let sums: Vec<u64> = text
            .split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect();
        let (name, ended, waits) = &heard[&pid];
        assert_eq!((name.as_str(), *ended), ("sh", true));
        let measured = waits.measured.as_ref().unwrap();
        let all = measured.all();
        assert_eq!(all.count(), waits.times);
        // The sums are printed before the end, and `cat` adds a wait or two.
        let ratio = waits.total_ns as f64 / sums[1] as f64;
        assert!((0.9..1.2).contains(&ratio), "{ratio}: {waits:?} {sums:?}");
        assert!(measured.preempted.count() > 0, "{waits:?}");
        let (p50, p99) = (
            all.quantile_ns(0.5).unwrap(),
            all.quantile_ns(0.99).unwrap(),
        );
        assert!(
            p50 <= p99 && p99 <= measured.longest_ns * 17 / 16 + 128,
            "{p50} {p99}"
        );
    }
    assert!(!source.lost());
}

#[test]
fn descendants_and_threads_that_end_at_once_are_all_heard() {
    let _alone = alone();
    let Some(mut source) = source(&children()) else {
        return;
    };
    let script = "for i in 1 2 3 4 5 6 7 8; do (true); done; sleep 0.01 & wait";
    let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
    child.wait().unwrap();
    let mut heard = Heard::new();
    read(&mut *source, &mut heard);
    let ended = heard.values().filter(|h| h.1).count();
    assert_eq!((heard.len(), ended), (10, 10), "{heard:?}");
    assert!(heard.values().all(|h| h.2.times > 0), "{heard:?}");
    assert!(heard.values().any(|h| h.0 == "sleep"), "{heard:?}");
    // Nothing is reported twice, and no other thread is measured.
    let mut again = Heard::new();
    read(&mut *source, &mut again);
    assert!(again.is_empty(), "{again:?}");
}

/// Process that ends with the test in any case.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_that_runs_already_is_heard_from_then_on() {
    let _alone = alone();
    let mut command = Command::new("sh");
    command.args(["-c", "while :; do sleep 0.002; done"]);
    let child = Ends(command.spawn().unwrap());
    let pid = child.0.id();
    let whose = Whose {
        pids: vec![pid],
        ..Whose::default()
    };
    let Some(mut source) = source(&whose) else {
        return;
    };
    // The kernel's sums for a longer and for a shorter time: reading takes long on a busy machine.
    let mut outer = Schedstat::new(whose.clone());
    // Earlier reports are discarded, so that both begin now.
    read(&mut *source, &mut Heard::new());
    let mut inner = Schedstat::new(whose);
    let (mut heard, mut within, mut around) = (Heard::new(), Heard::new(), Heard::new());
    // A tenth of a second, or longer on a busy machine.
    let begun = Instant::now();
    while heard.len() <= 10 && begun.elapsed().as_secs() < 60 {
        std::thread::sleep(Duration::from_millis(20));
        read(&mut *source, &mut heard);
    }
    read(&mut inner, &mut within);
    read(&mut *source, &mut heard);
    read(&mut outer, &mut around);
    assert!(heard.len() > 10, "its children are heard too: {heard:?}");
    let times = heard[&pid].2.times;
    let (least, most) = (within[&pid].2.times, around[&pid].2.times);
    let (least, most) = (least - least / 10, most + most / 10);
    assert!(
        times > 5 && (least.saturating_sub(2)..=most + 2).contains(&times),
        "{least} {times} {most}"
    );
}
