//! Runs, trials and daemons killed at random times while programs start and exit. No thread stays confined, no journal remains,
//! and the record is readable.
//!
//! `COUNTERSTEER_KILLS` sets the number of kills; the default is small.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use countersteer_report::record::Record;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const STEER: &str = env!("CARGO_BIN_EXE_steer");

/// A process group that ends with the test.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        kill(&format!("-{}", self.0.id()));
        let _ = self.0.wait();
    }
}

fn kill(whom: &str) {
    // It may have ended already.
    let _ = Command::new("kill")
        .args(["-KILL", "--", whom])
        .stderr(Stdio::null())
        .status();
}

/// Kernel data of a process.
struct Seen {
    pid: u32,
    parent: u32,
    session: u32,
    name: String,
    mask: String,
}

/// All processes except zombies.
fn processes() -> Vec<Seen> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse().ok());
    pids.filter_map(seen).collect()
}

fn seen(pid: u32) -> Option<Seen> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let mask = status
        .lines()
        .find_map(|l| l.strip_prefix("Cpus_allowed_list:"))?;
    (fields[0] != "Z").then_some(Seen {
        pid,
        parent: fields[1].parse().ok()?,
        session: fields[3].parse().ok()?,
        name: name.to_owned(),
        mask: mask.trim().to_owned(),
    })
}

/// Waits until `holds` returns true; a minute is more than any machine takes.
fn until(mut holds: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// Starts a program in its own session, with children that live for some milliseconds.
fn churn(name: &str) -> Group {
    let script = "ulimit -t 300; printf %s $0 > /proc/$$/comm; while :; do \
                  (n=0; while [ $n -lt 3000 ]; do n=$((n+1)); done) & sleep 0.01; done";
    let mut command = Command::new("setsid");
    command
        .args(["sh", "-c", script, name])
        .stdin(Stdio::null());
    let child = command.spawn().unwrap();
    let pid = child.id();
    assert!(until(|| seen(pid).is_some_and(|s| s.name == name)));
    Group(child)
}

fn steer(args: &[&str], dir: &Path) -> Command {
    let mut command = Command::new(STEER);
    command
        .args(args)
        .current_dir(dir)
        .env("HOME", dir)
        .env("RUNTIME_DIRECTORY", dir.join("runtime"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    command
}

/// Number of threads confined at the kill, and the time that the record lacks.
struct Outcome {
    confined: usize,
    lost: Option<Duration>,
}

/// Runs one kill.
fn round(number: u64, own: &str) -> Outcome {
    let mut rng = Pcg64::seed_from_u64(number);
    let dir = tempfile::tempdir().unwrap();
    let name = format!("k{}", std::process::id());
    let program = churn(&name);
    let pid = program.0.id().to_string();
    let rules = "schema = \"countersteer.rules/1\"\npolicy = \"static:*=cpu0\"\nperiod_ms = 20\n";
    let rules = format!("{rules}[[steer]]\nname = \"{name}\"\n");
    std::fs::write(dir.path().join("rules.toml"), rules).unwrap();
    let pin = ["-P", "static:*=cpu0", "-i", "20ms", "-o", "rec", "-p", &pid];
    let args = match number % 3 {
        0 => [&["run"], &pin[..]].concat(),
        1 => [&["trial", "--block", "200ms"], &pin[..]].concat(),
        _ => vec!["daemon", "--rules", "rules.toml", "--engine", "affinity"],
    };
    let begun = Instant::now();
    let victim = steer(&args, dir.path()).spawn().unwrap();
    let victim_pid = victim.id();
    let victim = Group(victim);
    let here = || -> Vec<Seen> {
        let all = processes().into_iter();
        all.filter(|p| p.session == program.0.id()).collect()
    };
    let confined = || here().iter().filter(|p| p.mask != own).count();
    // Some kills come before anything was done, most during steering.
    if rng.random::<f64>() < 0.8 {
        assert!(until(|| confined() > 0), "round {number}: never at work");
    }
    let steps = dir.path().join("rec/parts/steps.000000.arrows");
    let recorded = number % 3 < 2 && rng.random::<f64>() < 0.5;
    assert!(!recorded || until(|| steps.exists()), "round {number}");
    std::thread::sleep(Duration::from_secs_f64(rng.random::<f64>() * 0.7));
    let were = confined();
    let lived = begun.elapsed();
    let cleanup = processes()
        .into_iter()
        .find(|p| p.parent == victim_pid && p.name == "steer-cleanup");
    let both = rng.random::<bool>();
    if let Some(cleanup) = cleanup.filter(|_| both) {
        kill(&cleanup.pid.to_string());
    }
    drop(victim);
    if both {
        assert!(steer(&["restore"], dir.path()).status().unwrap().success());
    }
    let free = until(|| confined() == 0);
    assert!(free, "round {number}: {} stay confined", confined());
    let left = || {
        let entries = std::fs::read_dir(dir.path().join("runtime"));
        entries.map_or(Vec::new(), |e| e.flatten().map(|e| e.file_name()).collect())
    };
    assert!(until(|| left().is_empty()), "round {number}: {:?}", left());
    let record = dir.path().join("rec");
    let lost = record.join("manifest.json").exists().then(|| {
        let record = Record::load(&record).unwrap();
        assert!(record.manifest.unfinished, "round {number}");
        assert!(!recorded || !record.steps.is_empty(), "round {number}");
        lived.saturating_sub(Duration::from_nanos(record.end().0))
    });
    assert!(!recorded || lost.is_some(), "round {number}: no record");
    Outcome {
        confined: were,
        lost,
    }
}

#[test]
fn whatever_is_killed_at_whatever_moment_leaves_nothing_behind() {
    if !countersteer_fuzz::cpus::may_use(&[0]) {
        return;
    }
    let own = seen(std::process::id()).unwrap().mask;
    let rounds = std::env::var("COUNTERSTEER_KILLS").map_or(3, |n| n.parse().unwrap());
    let outcomes: Vec<Outcome> = (0..rounds).map(|number| round(number, &own)).collect();
    let confined: usize = outcomes.iter().map(|o| o.confined).sum();
    let mut lost: Vec<Duration> = outcomes.iter().filter_map(|o| o.lost).collect();
    lost.sort();
    println!(
        "{rounds} kills, {confined} threads confined at that moment, {} records; not in them: median {:.1?}, at most {:.1?}",
        lost.len(),
        lost.get(lost.len() / 2),
        lost.last()
    );
}
