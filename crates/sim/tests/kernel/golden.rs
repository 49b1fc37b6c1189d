//! Measurements of a real kernel's runs, and the list of known deviations.
//!
//! `COUNTERSTEER_KERNEL_RUNS` names a folder with the output of `vm/sets.c`: a file `MACHINE_KERNEL.tsv` for each machine of
//! `world.rs` and each kernel. `kernel.tsv` is created from these files.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::{Path, PathBuf};

use crate::sets::{Emulated, Figures, emulated as added, figures, printed, sets};
use crate::world::groups;

/// A set under a configuration of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Name of a machine of `world.rs`.
    pub machine: String,
    /// A kernel as `--kernel` names it; the name of a scheduler if that schedules all tasks.
    pub kernel: String,
    pub set: String,
}

impl Display for Key {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}\t{}\t{}", self.machine, self.kernel, self.set)
    }
}

/// Tasks of a role in one run.
#[derive(Clone, Debug)]
pub struct Row {
    pub key: Key,
    pub role: String,
    pub figures: Figures,
    pub emulated: Emulated,
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/kernel")
        .join(name)
}

/// Rows of `kernel.tsv`.
fn rows() -> Vec<Row> {
    let text = fs::read_to_string(file("kernel.tsv")).unwrap();
    let row = |line: &str| {
        let f: Vec<&str> = line.split('\t').collect();
        let number = |at: usize| -> f64 { f[at].parse().unwrap() };
        Row {
            key: Key {
                machine: f[0].into(),
                kernel: f[1].into(),
                set: f[2].into(),
            },
            role: f[3].into(),
            figures: Figures {
                share: number(5),
                gathered: number(6),
                migrations: number(7),
                picked: number(8),
                wait_ms: number(9),
            },
            emulated: Emulated {
                calls_us: number(10),
                late_us: number(11),
            },
        }
    };
    text.lines()
        .filter(|l| !l.starts_with('#'))
        .map(row)
        .collect()
}

/// Mean overhead of the emulated machine per job, by role, over all runs.
fn emulated(rows: &[&Row]) -> BTreeMap<String, Emulated> {
    let mut means: BTreeMap<String, (Emulated, f64)> = BTreeMap::new();
    for row in rows {
        let (sum, n) = means.entry(row.role.clone()).or_default();
        sum.calls_us += row.emulated.calls_us;
        sum.late_us += row.emulated.late_us;
        *n += 1.0;
    }
    let mean = |(sum, n): (Emulated, f64)| Emulated {
        calls_us: sum.calls_us / n,
        late_us: sum.late_us / n,
    };
    means.into_iter().map(|(role, m)| (role, mean(m))).collect()
}

const TITLE: &str = "# What a kernel did with the tasks of sets.tsv";

/// Creates `kernel.tsv` again, from the output under each configuration. Rows of a configuration without output are kept.
pub fn renew(configurations: &[(&str, &str)]) {
    let folder = std::env::var_os("COUNTERSTEER_KERNEL_RUNS").unwrap();
    let before = fs::read_to_string(file("kernel.tsv")).unwrap();
    let mut text = format!(
        "{TITLE}, per role and run. Made by `make test-kernel`.\n\
         # machine\tkernel\tset\trole\trun\tshare\tgathered\tmigrations\tpicked\twait_ms\tcalls_us\tlate_us\n",
    );
    for (machine, kernel) in configurations {
        let output = Path::new(&folder).join(format!("{machine}_{kernel}.tsv"));
        text += &match fs::read_to_string(output) {
            Ok(printed_by) => measured(machine, kernel, &printed_by),
            Err(_) => kept(&format!("{machine}\t{kernel}\t"), &before),
        };
    }
    fs::write(file("kernel.tsv"), text).unwrap();
}

/// Rows of one configuration, from the output of its runs, below the comments of the output.
fn measured(machine: &str, kernel: &str, printed_by: &str) -> String {
    let sets = sets();
    let comments = printed_by.lines().take_while(|l| l.starts_with('#'));
    let mut text: String = comments.map(|line| format!("{line}\n")).collect();
    for (set, runs) in printed(printed_by, &sets) {
        for (run, outcomes) in runs.iter().enumerate() {
            let added = added(outcomes, &sets[&set]);
            for (role, f) in figures(outcomes, groups(machine)) {
                let e = added[&role];
                text += &format!(
                    "{machine}\t{kernel}\t{set}\t{role}\t{}\t{:.4}\t{:.3}\t{:.2}\t{:.1}\t{:.3}\t{:.0}\t{:.0}\n",
                    run + 1,
                    f.share,
                    f.gathered,
                    f.migrations,
                    f.picked,
                    f.wait_ms,
                    e.calls_us,
                    e.late_us
                );
            }
        }
    }
    text
}

/// Rows that begin with a configuration, with the comments above them.
fn kept(configuration: &str, before: &str) -> String {
    let mut comments = String::new();
    let mut text = String::new();
    let is_head = |line: &&str| line.starts_with(TITLE) || line.starts_with("# machine\t");
    for line in before.lines().filter(|line| !is_head(line)) {
        if line.starts_with('#') {
            comments += &format!("{line}\n");
            continue;
        }
        let above = std::mem::take(&mut comments);
        if line.starts_with(configuration) {
            text += &format!("{above}{line}\n");
        }
    }
    text
}

/// A measure: its name, its value, and its tolerance for a kernel's value.
pub type Measure = (&'static str, fn(&Figures) -> f64, fn(f64) -> f64);

/// Number of waits of a task from which its latencies count.
const WAITS: f64 = 20.0;

/// Distances beyond the tolerance from the kernel's runs of the chosen sets. `model` gives a model's measures by role, means over
/// seeds.
pub fn distances(
    measures: &[Measure],
    chosen: impl Fn(&Key) -> bool,
    model: impl Fn(&Key, &BTreeMap<String, Emulated>) -> BTreeMap<String, Figures>,
) -> BTreeMap<(Key, String, &'static str), f64> {
    let rows = rows();
    let mut by_set: BTreeMap<Key, Vec<&Row>> = BTreeMap::new();
    for row in &rows {
        by_set.entry(row.key.clone()).or_default().push(row);
    }
    let mut far = BTreeMap::new();
    for (key, rows) in by_set.into_iter().filter(|(key, _)| chosen(key)) {
        for (role, model) in model(&key, &emulated(&rows)) {
            let runs: Vec<&Figures> = rows
                .iter()
                .filter(|r| r.role == role)
                .map(|r| &r.figures)
                .collect();
            let waits = runs
                .iter()
                .map(|f| f.picked)
                .fold(f64::MAX, f64::min)
                .min(model.picked);
            for (name, of, tolerance) in measures {
                let least = runs.iter().map(|f| of(f)).fold(f64::MAX, f64::min);
                let most = runs.iter().map(|f| of(f)).fold(f64::MIN, f64::max);
                let value = of(&model);
                let (distance, nearest) = if value < least {
                    (least - value, least)
                } else {
                    (value - most, most)
                };
                let counts = *name != "wait_ms" || waits >= WAITS;
                if counts && distance > tolerance(nearest) {
                    far.insert((key.clone(), role.clone(), *name), distance);
                }
            }
        }
    }
    far
}

/// Differences between distances and the list of known deviations; `slack` is a factor on a listed distance.
pub fn unlisted(shown: &BTreeMap<String, f64>, slack: f64) -> Vec<String> {
    let listed = listed();
    let mut wrong = Vec::new();
    for (what, distance) in shown {
        match listed.get(what) {
            None => wrong.push(format!("{what}: off by {distance:.4}, and not listed")),
            Some(was) if *distance > was * slack => {
                wrong.push(format!("{what}: off by {distance:.4}, {was:.4} is listed"))
            }
            Some(_) => {}
        }
    }
    for what in listed.keys().filter(|what| !shown.contains_key(*what)) {
        wrong.push(format!("{what}: listed, and within the tolerance now"));
    }
    wrong
}

/// Known deviations, by measure.
fn listed() -> BTreeMap<String, f64> {
    let text = fs::read_to_string(file("deviations.tsv")).unwrap();
    let row = |line: &str| {
        let (what, distance) = line.rsplit_once('\t').unwrap();
        (what.to_owned(), distance.parse().unwrap())
    };
    text.lines()
        .filter(|l| !l.starts_with('#'))
        .map(row)
        .collect()
}

/// Writes the list.
pub fn list(distances: &BTreeMap<String, f64>) {
    let mut text = String::from(
        "# Figures of the model that are further from the kernel's runs than the tolerance, and by how much.\n# machine\tkernel\tset\trole\tmeasure\tdistance\n",
    );
    for (what, distance) in distances {
        text += &format!("{what}\t{distance:.4}\n");
    }
    fs::write(file("deviations.tsv"), text).unwrap();
}
