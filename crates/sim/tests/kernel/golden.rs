//! Measurements of a real kernel's runs, and the list of known deviations.
//!
//! `COUNTERSTEER_KERNEL_RUNS` names a folder with the output of `vm/sets.c`: `SMT-on.tsv` and `SMT-off.tsv` for 1 and 2 CPUs per
//! core. `kernel.tsv` is created from these files.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::{Path, PathBuf};

use crate::sets::{Emulated, Figures, emulated as added, figures, printed, sets};

/// A set under a configuration of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub smt: u32,
    /// `on` or `off`.
    pub llc_balancing: String,
    pub set: String,
}

impl Display for Key {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}\t{}\t{}", self.smt, self.llc_balancing, self.set)
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
pub fn rows() -> Vec<Row> {
    let text = fs::read_to_string(file("kernel.tsv")).unwrap();
    let row = |line: &str| {
        let f: Vec<&str> = line.split('\t').collect();
        let number = |at: usize| -> f64 { f[at].parse().unwrap() };
        Row {
            key: Key {
                smt: f[0].parse().unwrap(),
                llc_balancing: f[1].into(),
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
pub fn emulated(rows: &[&Row]) -> BTreeMap<String, Emulated> {
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

/// Creates `kernel.tsv` again.
pub fn renew() {
    let folder = std::env::var_os("COUNTERSTEER_KERNEL_RUNS").unwrap();
    let sets = sets();
    let mut text = String::from(
        "# What a kernel did with the tasks of sets.tsv, per role and run. Made by `make test-kernel` of:\n",
    );
    let mut table = String::from(
        "# smt\tllc_balancing\tset\trole\trun\tshare\tgathered\tmigrations\tpicked\twait_ms\tcalls_us\tlate_us\n",
    );
    for (smt, llc_balancing) in [(1, "on"), (1, "off"), (2, "on"), (2, "off")] {
        let printed_by =
            fs::read_to_string(Path::new(&folder).join(format!("{smt}-{llc_balancing}.tsv")))
                .unwrap();
        for line in printed_by.lines().take_while(|l| l.starts_with('#')) {
            text += line;
            text.push('\n');
        }
        for (set, runs) in printed(&printed_by, &sets) {
            for (run, outcomes) in runs.iter().enumerate() {
                let added = added(outcomes, &sets[&set]);
                for (role, f) in figures(outcomes) {
                    let e = added[&role];
                    table += &format!(
                        "{smt}\t{llc_balancing}\t{set}\t{role}\t{}\t{:.4}\t{:.3}\t{:.2}\t{:.1}\t{:.3}\t{:.0}\t{:.0}\n",
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
    }
    fs::write(file("kernel.tsv"), text + &table).unwrap();
}

/// Known deviations, by measure.
pub fn listed() -> BTreeMap<String, f64> {
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
        "# Figures of the model that are further from the kernel's runs than the tolerance, and by how much.\n# smt\tllc_balancing\tset\trole\tmeasure\tdistance\n",
    );
    for (what, distance) in distances {
        text += &format!("{what}\t{distance:.4}\n");
    }
    fs::write(file("deviations.tsv"), text).unwrap();
}
