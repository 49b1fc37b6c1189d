//! Miss curves of running programs, with software events instead of hardware events. Everything started and changed is undone.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const STAND_INS: [&str; 3] = ["--online", "--counting", "task_clock,cpu_clock,page_faults"];
/// Causes page faults, which replace misses.
const BUSY: [&str; 3] = [
    "sh",
    "-c",
    "i=0; while [ $i -lt 4000 ]; do i=$((i+1)); /bin/true; done",
];

fn steer(args: &[&str], dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steer"));
    // Keeps sentences on one line.
    command.env("COLUMNS", "1000");
    command
        .args(args)
        .current_dir(dir)
        .env("HOME", dir)
        .env("RUNTIME_DIRECTORY", dir.join("runtime"));
    command
}

/// Processes of this program with these words on their command line, which a test in this folder has started.
fn running(words: &str, dir: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    let line = |pid: &u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let is_here = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(dir.to_str().unwrap())
    };
    pids.filter(|pid| {
        String::from_utf8_lossy(&line(pid))
            .replace('\0', " ")
            .contains(words)
            && is_here(pid)
    })
    .collect()
}

fn until(mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "waited in vain");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn counts(dir: &Path) -> bool {
    let tried = steer(&["stat", "--", "true"], dir).output().unwrap();
    let permitted = tried.status.success()
        && !String::from_utf8_lossy(&tried.stderr).contains("perf_event_paranoid");
    if !permitted {
        countersteer_fuzz::skipped("counting is not permitted here");
    }
    permitted
}

/// One test for both, because each looks for co-runners by their command line.
#[test]
fn a_curve_is_measured_and_nothing_is_left_behind_not_even_by_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    if !counts(dir.path()) {
        return;
    }
    let own = format!("{} internal", env!("CARGO_BIN_EXE_steer"));
    let args = [
        "profile",
        "--by",
        "co-runners",
        "--dwell",
        "60ms",
        "--rounds",
        "2",
        "-o",
        "p.toml",
    ];
    let args = [&args[..], &STAND_INS, &["--"], &BUSY].concat();
    let output = steer(&args, dir.path()).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let shown = steer(&["profile", "show", "p.toml"], dir.path())
        .output()
        .unwrap();
    assert!(
        shown.status.success(),
        "{}",
        String::from_utf8_lossy(&shown.stderr)
    );
    let text = std::fs::read_to_string(dir.path().join("p.toml")).unwrap();
    assert!(
        text.matches("cache_kib").count() >= 1 && text.contains("name = \"sh\""),
        "{text}"
    );
    assert_eq!(running(&own, dir.path()), Vec::<u32>::new());
    let journals = || std::fs::read_dir(dir.path().join("runtime")).map_or(0, Iterator::count);
    assert_eq!(journals(), 0);

    let mut killed = steer(&args, dir.path())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until(|| !running(&own, dir.path()).is_empty() && journals() > 0);
    std::thread::sleep(Duration::from_millis(300));
    killed.kill().unwrap();
    killed.wait().unwrap();
    until(|| running(&own, dir.path()).is_empty() && journals() == 0);
}

/// Co-running programs, killed when dropped.
struct Mix(Vec<Child>);

impl Mix {
    fn start(number: usize) -> Self {
        let start = |_| {
            let endless = ["-c", "while :; do /bin/true; done"];
            Command::new("sh").args(endless).spawn().unwrap()
        };
        Self((0..number).map(start).collect())
    }

    fn are_stopped(&self) -> bool {
        self.0.iter().any(|child| {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
            stat.rsplit(") ").next().unwrap().starts_with('T')
        })
    }
}

impl Drop for Mix {
    fn drop(&mut self) {
        for child in &mut self.0 {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

#[test]
fn programs_that_run_together_have_a_curve_each_and_run_on_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    if !counts(dir.path()) {
        return;
    }
    let mix = Mix::start(2);
    let pids: Vec<String> = mix.0.iter().map(|child| child.id().to_string()).collect();
    let args = |dwell: &'static str| {
        let of_mix = ["-p", &pids[0], "-p", &pids[1], "-o", "curves", "--json"];
        let how = [
            "profile",
            "--by",
            "co-runners",
            "--dwell",
            dwell,
            "--rounds",
            "2",
        ];
        steer(&[&how[..], &STAND_INS, &of_mix].concat(), dir.path())
    };
    // Long enough for each program to run within every period, also on a busy host.
    let output = args("150ms").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let measured: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for (nth, pid) in pids.iter().enumerate() {
        let own = &measured[nth];
        assert_eq!(own["program"], format!("sh-{pid}"));
        assert!(own["points"].as_u64().unwrap() >= 10, "{measured}");
        assert!(
            own["form"].is_string() && own["error_mpki"].is_f64(),
            "{measured}"
        );
        let file = format!("curves/sh-{pid}.profile.toml");
        let shown = steer(&["profile", "show", &file], dir.path())
            .output()
            .unwrap();
        assert!(
            shown.status.success(),
            "{}",
            String::from_utf8_lossy(&shown.stderr)
        );
    }
    assert!(!mix.are_stopped());

    let log = dir.path().join("log");
    let mut killed = args("400ms")
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    until(|| {
        let ended = killed.try_wait().unwrap();
        let said = || std::fs::read_to_string(&log).unwrap();
        assert!(ended.is_none(), "{ended:?}: {}", said());
        mix.are_stopped()
    });
    killed.kill().unwrap();
    killed.wait().unwrap();
    until(|| (0..50).all(|_| !mix.are_stopped()));
}

#[test]
fn way_masks_of_a_tree_give_a_curve_and_are_restored() {
    let dir = tempfile::tempdir().unwrap();
    if !counts(dir.path()) {
        return;
    }
    let schemata = dir.path().join("tree/sys/fs/resctrl/schemata");
    for (file, text) in [
        ("proc/stat", "cpu0 1 0 0 0\n"),
        ("sys/fs/resctrl/info/L3/cbm_mask", "ff\n"),
        ("sys/fs/resctrl/info/L3/min_cbm_bits", "1\n"),
        ("sys/fs/resctrl/schemata", "L3:0=ff\n"),
    ] {
        let file = dir.path().join("tree").join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    let mix = Mix::start(1);
    let pid = mix.0[0].id().to_string();
    let of_tree = [
        "profile", "--root", "tree", "--by", "ways", "--dwell", "150ms",
    ];
    let rest = ["--rounds", "2", "--json", "-o", "p.toml", "-p", &pid];
    let output = steer(&[&of_tree[..], &STAND_INS, &rest].concat(), dir.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let measured: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // From one way to seven of eight, twice each. On a busy host the program may not run within one of these periods.
    let points = measured[0]["points"].as_u64().unwrap();
    assert!((10..=14).contains(&points), "{measured}");
    let kib = |key: &str| measured[0][key].as_f64().unwrap();
    assert_eq!(kib("to_kib"), 7.0 * kib("from_kib"));
    assert_eq!(std::fs::read_to_string(&schemata).unwrap(), "L3:0=ff\n");
}

#[test]
fn without_the_processors_counters_the_remedy_is_given() {
    let dir = tempfile::tempdir().unwrap();
    let events = steer(&["events", "--json"], dir.path()).output().unwrap();
    let events: serde_json::Value = serde_json::from_slice(&events.stdout).unwrap();
    let instructions = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .find(|e| e["name"] == "instructions")
        .unwrap();
    if instructions["available"] == true {
        countersteer_fuzz::skipped("this machine has the counters");
        return;
    }
    let output = steer(&["profile", "--online", "--", "touch", "ran"], dir.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        [Some(4), Some(5)].contains(&output.status.code()),
        "{errors}"
    );
    assert!(
        errors.contains("cannot be counted") || errors.contains("perf_event_paranoid"),
        "{errors}"
    );
    assert!(
        !dir.path().join("ran").exists(),
        "said before the program ran"
    );
}

#[test]
fn masks_that_a_killed_measurement_has_set_are_restored() {
    let dir = tempfile::tempdir().unwrap();
    let schemata = dir.path().join("schemata");
    std::fs::write(&schemata, "    MB:0=100\n    L3:0=00ff\n").unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let journals = dir.path().join("runtime");
    std::fs::create_dir(&journals).unwrap();
    let text = format!(
        "countersteer-journal/2 {} 1\nline L3:0=ffff L3:0=ff {}\n",
        boot.trim(),
        schemata.display()
    );
    // Beyond the largest PID.
    std::fs::write(journals.join("4194400-0.journal"), text).unwrap();
    let output = steer(&["restore", "--json"], dir.path()).output().unwrap();
    let restored: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&restored["journals"], &restored["hints"]),
        (&1.into(), &1.into())
    );
    assert_eq!(std::fs::read_to_string(&schemata).unwrap(), "L3:0=ffff\n");
    assert_eq!(std::fs::read_dir(&journals).unwrap().count(), 0);
}
