//! Measured values of a case, one per row, arm and measure.

use std::collections::{BTreeMap, BTreeSet};

/// Key of a value: row, arm and measure.
type ValueKey = (String, String, &'static str);
/// Sum and number of the values of each draw.
type Draws = BTreeMap<u64, (f64, u32)>;

/// Measured values of a case. Rows are mixes, programs or pairs; arms are policies, core groups or cache sizes.
///
/// A draw is one repetition: a seed, with values of published profiles that are drawn within their errors.
#[derive(Clone, Debug, Default)]
pub(crate) struct CaseValues {
    sums: BTreeMap<ValueKey, Draws>,
    /// Rows in the order of the case.
    rows: Vec<String>,
    /// Draw to which values are added.
    draw: u64,
}

impl CaseValues {
    /// Begins a draw, to which values added later belong.
    pub const fn begin(&mut self, draw: u64) {
        self.draw = draw;
    }

    /// Adds a value. Several values with the same draw, row, arm and measure are averaged.
    pub fn add(&mut self, row: &str, arm: &str, measure: &'static str, value: f64) {
        let key = (row.to_owned(), arm.to_owned(), measure);
        let draws = self.sums.entry(key).or_default();
        let (sum, count) = draws.entry(self.draw).or_insert((0.0, 0));
        *sum += value;
        *count += 1;
    }

    /// Adds a row to those that findings about all rows use.
    pub fn add_row(&mut self, row: &str) {
        self.rows.push(row.to_owned());
    }

    pub fn rows(&self) -> &[String] {
        &self.rows
    }

    /// Returns the mean of a value over draws; `None` if it was not measured or is not finite.
    pub fn get(&self, row: &str, arm: &str, measure: &str) -> Option<f64> {
        let measure = MEASURES.iter().find(|m| m.name == measure)?.name;
        let key = (row.to_owned(), arm.to_owned(), measure);
        let draws = self.sums.get(&key)?;
        let sum: f64 = draws.values().map(|(sum, n)| sum / f64::from(*n)).sum();
        Some(sum / draws.len() as f64).filter(|v| v.is_finite())
    }

    /// Returns the values of each draw separately; empty if there is only one draw.
    pub fn draws(&self) -> Vec<Self> {
        let all = self.sums.values().flat_map(BTreeMap::keys);
        let all: BTreeSet<u64> = all.copied().collect();
        let of = |draw: &u64| {
            let sums = self.sums.iter().filter_map(|(key, draws)| {
                let own = BTreeMap::from([(*draw, *draws.get(draw)?)]);
                Some((key.clone(), own))
            });
            Self {
                sums: sums.collect(),
                rows: self.rows.clone(),
                draw: *draw,
            }
        };
        if all.len() > 1 {
            all.iter().map(of).collect()
        } else {
            Vec::new()
        }
    }
}

/// Row of the table of measures: a name and its description.
pub(crate) struct MeasureRow {
    pub name: &'static str,
    pub prose: &'static str,
}

/// All measures that findings can use.
pub const MEASURES: &[MeasureRow] = &[
    measure(
        "asp",
        "aggregate speed-up: sum over programs of time alone on the slow cores over time in the mix, minus one",
    ),
    measure(
        "stp",
        "system throughput: sum over programs of time alone over time in the mix",
    ),
    measure("unfairness", "largest over smallest slow-down"),
    measure(
        "energy_per_instruction_nj",
        "energy of the machine over the instructions of all programs",
    ),
    measure("power_w", "energy over time"),
    measure(
        "time_s",
        "time until the slowest program has finished its rounds",
    ),
    measure(
        "edp",
        "energy per 1e9 instructions times time per 1e9 instructions",
    ),
    measure(
        "edp_net",
        "the same without what the board draws whatever runs",
    ),
    measure("utilisation", "share of CPUs' time in use, in per cent"),
    measure(
        "balanced_slices",
        "slices in which the mean utilisation of CPUs is at least .9 of the largest, in per cent",
    ),
    measure(
        "balance_r",
        "rank correlation over slices of mean utilisation and balance (mean over largest)",
    ),
    measure(
        "early_gap",
        "utilisation of the less used half of the CPUs over that of the others, first 400 slices",
    ),
    measure("late_gap", "the same in the last tenth of the slices"),
    measure(
        "fp_balance",
        "floating-point instructions of all CPUs over those of the one with most, per CPU, mean over slices, in per cent",
    ),
    measure(
        "fp_spikes",
        "times that floating-point instructions of CPU 0 rise above twice their mean",
    ),
    measure(
        "fp_early",
        "share of the floating-point instructions in the first half of the run, in per cent",
    ),
    measure(
        "llc_swing",
        "standard deviation over mean of a CPU's misses of the last-level cache per slice, mean over CPUs",
    ),
    measure(
        "ef_phases",
        "runs of windows whose efficiency factors are within 10 % of their mean",
    ),
    measure(
        "ef_range",
        "largest over smallest efficiency factor of windows",
    ),
    measure(
        "r",
        "correlation of predicted and true factors on families of programs left out of training",
    ),
    measure(
        "completion_s",
        "geometric mean over programs of the mean completion time of their copies",
    ),
    measure("migrations", "moves of threads between CPUs"),
    measure(
        "ipc",
        "instructions per cycle; of a mix, the mean over its programs",
    ),
    measure("cpi", "cycles per instruction"),
    measure(
        "mpki",
        "misses of the last-level cache per 1,000 instructions",
    ),
    measure(
        "fast_share",
        "share of CPU time on the fastest core type, in per cent",
    ),
    measure(
        "share_1",
        "share of CPU time on the slowest core type, in per cent",
    ),
    measure("share_2", "likewise on the next faster one"),
    measure("share_3", "likewise on the one after that"),
    measure("share_4", "likewise on the fastest of four"),
    measure(
        "type_moves_per_minute",
        "moves of threads between core types per thread and minute of CPU time",
    ),
    measure(
        "most_type_moves_per_minute",
        "the same of the thread that moves most",
    ),
    measure(
        "cache_moves",
        "moves of a program's threads between last-level caches",
    ),
    measure(
        "misses_per_4096",
        "misses per 4,096 instructions, as a signature has them",
    ),
    measure("ips", "instructions per second"),
    measure(
        "sf",
        "speed-up factor: instructions per second on the fast core over those on the slow core",
    ),
    measure(
        "ef",
        "efficiency factor: EDP on the slow core over EDP on the fast core",
    ),
    measure(
        "power_ratio",
        "power on the fast core over power on the slow core, the idle machine's subtracted",
    ),
    measure(
        "sf_error",
        "distance of the predicted from the true speed-up factor, mean over samples on both core types, in per cent of the true one",
    ),
    measure(
        "sf_off",
        "distance of the predicted factor from what the same model says where all events are counted at once, likewise",
    ),
    measure("sets", "event sets that are multiplexed"),
    measure(
        "ipc_range",
        "IPC that a twentieth of the periods exceed over the one that a twentieth do not reach",
    ),
    measure(
        "ipc_high",
        "part of the time with an IPC above the middle between these two, in per cent; 0 where they are within 10 %",
    ),
    measure(
        "llc_share",
        "part of the last-level cache that a program holds, mean over time, in per cent",
    ),
    measure(
        "llc_share_swing",
        "standard deviation over mean of that part over time",
    ),
    measure(
        "mips",
        "million instructions simulated per second of the host",
    ),
    measure("slowdown", "time in a pair over time alone"),
    measure(
        "spread",
        "standard deviation of completion times over runs with other seeds, in per cent of their mean",
    ),
    measure(
        "rating",
        "speed on the fast core over that on the slow core, as a signature promises",
    ),
    measure(
        "rating_range",
        "largest over smallest rating of a program's inputs, less one, in per cent",
    ),
];

const fn measure(name: &'static str, prose: &'static str) -> MeasureRow {
    MeasureRow { name, prose }
}
