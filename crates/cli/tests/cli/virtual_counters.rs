//! Virtual counters together with counts.

use super::*;

/// Files of a machine with one package that uses a joule every ten milliseconds; it has no other virtual counter.
struct Spends {
    root: tempfile::TempDir,
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
    meter: Option<std::thread::JoinHandle<()>>,
}

impl Spends {
    fn start() -> Self {
        let root = tempfile::tempdir().unwrap();
        let zone = root.path().join("sys/class/powercap/intel-rapl:0");
        std::fs::create_dir_all(&zone).unwrap();
        std::fs::write(zone.join("name"), "package-0\n").unwrap();
        let write = move |uj: u64| {
            std::fs::write(zone.join("new"), uj.to_string()).unwrap();
            std::fs::rename(zone.join("new"), zone.join("energy_uj")).unwrap();
        };
        write(1);
        let stop = std::sync::Arc::<std::sync::atomic::AtomicBool>::default();
        let stopped = std::sync::Arc::clone(&stop);
        let spend = move || {
            (2..)
                .take_while(|_| !stopped.load(std::sync::atomic::Ordering::Relaxed))
                .for_each(|n| {
                    write(n * 1_000_000);
                    std::thread::sleep(std::time::Duration::from_millis(10));
                });
        };
        Self {
            root,
            stop,
            meter: Some(std::thread::spawn(spend)),
        }
    }
}

impl Drop for Spends {
    fn drop(&mut self) {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let _ = self.meter.take().map(std::thread::JoinHandle::join);
    }
}

#[test]
fn virtual_counters_have_columns_beside_the_counts_and_stand_in_the_record() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Spends::start();
    let root = machine.root.path().to_str().unwrap();
    let busy = [
        "--",
        "sh",
        "-c",
        "n=0; while [ $n -lt 10000000 ]; do n=$((n+1)); done",
    ];
    let top = [
        "top",
        "--root",
        root,
        "--json",
        "-i",
        "200ms",
        "-n",
        "4",
        "-v",
        "energy,thread_energy",
        "--output",
        "r",
    ];
    let output = steer(
        &[&top[..], &["-m", "100*thread_energy/energy"], &busy].concat(),
        dir.path(),
    );
    if text(&output.stderr).contains("perf_event_paranoid") {
        countersteer_fuzz::skipped("counting is not permitted here");
        return;
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines: Vec<serde_json::Value> = text(&output.stdout)
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    // One thread has the whole total.
    let is = |value: &serde_json::Value, wanted: f64| {
        (value.as_f64().unwrap() / wanted - 1.0).abs() < 1e-6
    };
    let columns = lines
        .iter()
        .map(|l| &l["columns"])
        .find(|c| !c["energy%"].is_null())
        .unwrap();
    assert!(
        is(&columns["energy%"], 100.0) && columns["watts"].as_f64() > Some(0.0),
        "{columns}"
    );
    assert!(
        is(&columns["watts"], columns["energy_j/s"].as_f64().unwrap()),
        "{columns}"
    );
    // Sets are multiplexed, so the formula has no value at first.
    let shares: Vec<f64> = lines
        .iter()
        .filter_map(|l| l["columns"]["100*thread_energy/energy"].as_f64())
        .collect();
    assert!(
        !shares.is_empty() && shares.iter().all(|s| (s - 100.0).abs() < 1e-6),
        "{shares:?}"
    );
    let record = countersteer_report::record::Record::load(&dir.path().join("r")).unwrap();
    let kept = |name: &str| {
        record
            .virtuals
            .iter()
            .any(|v| &*v.name == name && v.value > 0.0)
    };
    assert!(kept("energy_j") && kept("thread_energy_j") && kept("energy_share_percent"));
    assert!(
        record.readings.iter().any(|r| r
            .metrics
            .iter()
            .flatten()
            .any(|v| (v - 100.0).abs() < 1e-6))
    );
    let plain = [
        "top",
        "--root",
        root,
        "-i",
        "100ms",
        "-n",
        "5",
        "--columns",
        "energy%,name",
    ];
    let table = text(&steer(&[&plain[..], &busy].concat(), dir.path()).stdout);
    assert!(
        table.starts_with("  time_s energy% name\n") && table.contains("100 sh"),
        "{table}"
    );
    let missing = steer(
        &[
            &["top", "--root", root, "--columns", "temperature"],
            &busy[..],
        ]
        .concat(),
        dir.path(),
    );
    let said = text(&missing.stderr);
    assert!(
        missing.status.code() == Some(4)
            && said.contains("`temperature` has nothing to show here: "),
        "{said}"
    );
}

#[test]
fn virtual_counters_are_read_with_each_window_of_events() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Spends::start();
    let root = machine.root.path().to_str().unwrap();
    let command = [
        "stat",
        "--root",
        root,
        "--json",
        "--every",
        "1:context_switches",
        "-m",
        "energy/context_switches",
        "-v",
        "energy",
        "--",
        "sh",
        "-c",
        "for n in 1 2 3 4 5 6; do sleep 0.1; done",
    ];
    let output = steer(&command, dir.path());
    let log = text(&output.stderr);
    if log.contains("perf_event_paranoid") {
        eprintln!("skipped: counting is not permitted here");
        return;
    }
    assert!(output.status.success(), "{log}");
    let rows: Vec<serde_json::Value> = text(&output.stdout)
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let energies = rows.iter().filter(|r| r["name"] == "energy_j").count();
    // A busy machine may read several windows at once. Without windows there is one value, at the end.
    assert!(energies >= 3, "{energies} of {} rows: {rows:?}", rows.len());
}

#[test]
fn the_sums_of_a_run_have_metrics_with_virtual_counters() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Spends::start();
    let line = format!(
        "'{}' stat --root '{}' -i 100ms -v energy -m 'energy/energy,thread_energy/seconds' -- sh -c '{}'",
        env!("CARGO_BIN_EXE_steer"),
        machine.root.path().display(),
        "n=0; while [ $n -lt 300000 ]; do n=$((n+1)); done"
    );
    let mut script = Command::new("script");
    script
        .args(["-qec", &line, "/dev/null"])
        .current_dir(dir.path())
        .env("TERM", "xterm");
    let Ok(output) = script.stdin(std::process::Stdio::null()).output() else {
        countersteer_fuzz::skipped("there is no `script`");
        return;
    };
    let live = text(&output.stdout);
    if live.contains("perf_event_paranoid") {
        countersteer_fuzz::skipped("counting is not permitted here");
        return;
    }
    let (_, end) = live.rsplit_once("\x1b[r\x1b8").unwrap();
    let row = end.lines().find(|l| l.contains(" sh ")).unwrap_or_default();
    let cells: Vec<&str> = row.split_whitespace().collect();
    let [.., share, watts, _counted] = cells[..] else {
        panic!("{end:?}")
    };
    assert!(share == "1" || share == "1.000", "{end:?}");
    assert!(end.contains("package-0       energy_j "), "{end:?}");
    assert!(
        watts.replace(',', "").parse::<f64>().unwrap() > 0.0,
        "{end:?}"
    );
}
