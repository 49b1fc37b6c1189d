//! Activity of CPUs in time slices.
//!
//! Input: run intervals, and the samples of each slice. Output: measures of a case: balance of CPU use, and counts. A thread's
//! counts in a slice belong to the CPU on which it ran at the end of the slice.

use countersteer_model::driver::Recorder;
use countersteer_model::engine::Observation;
use countersteer_model::events::Event;
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::Placement;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;

use super::found::rank_correlation;

/// Number of slices at the start that the meta-scheduler's figure 3 shows.
const EARLY: usize = 400;
/// Threshold: minimum ratio of mean to maximum utilisation in a balanced slice.
const BALANCED: f64 = 0.9;

/// Activity of one CPU in one slice.
#[derive(Clone, Copy, Default)]
struct SliceActivity {
    /// Utilisation of the CPU in the slice, 0 to 1.
    used: f64,
    /// Floating-point instructions in the slice.
    fp: f64,
    /// Last-level cache misses in the slice.
    misses: f64,
}

/// Recorder of the activity of all CPUs in each slice.
pub(crate) struct SliceRecorder {
    cpus: usize,
    slice_s: f64,
    lines: Vec<Vec<SliceActivity>>,
}

impl SliceRecorder {
    pub fn new(topology: &Topology, slice_s: f64) -> Self {
        Self {
            cpus: topology.cpus.len(),
            slice_s,
            lines: Vec::new(),
        }
    }

    /// Returns the activity of a CPU in a slice; adds the slice if it is missing.
    fn cell(&mut self, slice: usize, cpu: usize) -> &mut SliceActivity {
        while self.lines.len() <= slice {
            self.lines.push(vec![SliceActivity::default(); self.cpus]);
        }
        &mut self.lines[slice][cpu]
    }

    /// Adds a run interval to the slices that it overlaps.
    fn ran(&mut self, cpu: usize, start_s: f64, end_s: f64) {
        let (mut from, to) = (start_s / self.slice_s, end_s / self.slice_s);
        while from < to {
            let slice = from as usize;
            let end = to.min((slice + 1) as f64);
            self.cell(slice, cpu).used += end - from;
            from = end;
        }
    }

    /// Returns the names and values of all measures of slices.
    pub fn values(&self) -> Vec<(&'static str, f64)> {
        let lines = self.lines.as_slice();
        let early = &lines[..lines.len().min(EARLY)];
        let late = &lines[lines.len() - lines.len().div_ceil(10)..];
        let balance: Vec<f64> = lines
            .iter()
            .map(|line| evenness(line, |c| c.used))
            .collect();
        let mean_use: Vec<f64> = lines.iter().map(|line| mean(line, |c| c.used)).collect();
        let balanced = balance.iter().filter(|b| **b >= BALANCED).count();
        let count = lines.len().max(1) as f64;
        let fp: Vec<f64> = lines.iter().map(|line| mean(line, |c| c.fp)).collect();
        let first_half: f64 = fp[..fp.len() / 2].iter().sum();
        let working = lines.iter().filter(|line| line.iter().any(|c| c.fp > 0.0));
        let fp_balance: Vec<f64> = working.map(|line| evenness(line, |c| c.fp)).collect();
        let mut values = vec![
            ("utilisation", 100.0 * mean_use.iter().sum::<f64>() / count),
            ("balanced_slices", 100.0 * balanced as f64 / count),
            ("early_gap", gap(early, self.cpus)),
            ("late_gap", gap(late, self.cpus)),
            (
                "fp_balance",
                100.0 * fp_balance.iter().sum::<f64>() / fp_balance.len() as f64,
            ),
            ("fp_spikes", spikes(lines) as f64),
            ("fp_early", 100.0 * first_half / fp.iter().sum::<f64>()),
            ("llc_swing", swing(lines, self.cpus)),
        ];
        if let Some(r) = rank_correlation(&mean_use, &balance) {
            values.push(("balance_r", r));
        }
        values
    }
}

impl Recorder for SliceRecorder {
    fn observation(&mut self, _: &Topology, seen: &Observation, _: &MetricBank) {
        for span in &seen.spans {
            let (start, end) = (span.start.as_secs_f64(), span.end.as_secs_f64());
            self.ran(span.cpu.index(), start, end);
        }
        // An observation is made at the end of its slice.
        let slice = (seen.at.as_secs_f64() / self.slice_s - 0.5).max(0.0) as usize;
        for sample in seen.samples.iter() {
            let Some(cpu) = sample.cpu else {
                continue;
            };
            let count = |event| sample.counts.get(event).unwrap_or(0.0);
            let cell = self.cell(slice, cpu.index());
            cell.fp += count(Event::FpOperations) + count(Event::SimdOperations);
            cell.misses += count(Event::LlcMisses);
        }
    }

    fn decision(
        &mut self,
        _: &Topology,
        _: Nanos,
        _: &Placement,
        _: countersteer_model::engine::Applied,
    ) {
    }
}

fn mean(line: &[SliceActivity], of: impl Fn(&SliceActivity) -> f64) -> f64 {
    line.iter().map(of).sum::<f64>() / line.len().max(1) as f64
}

/// Returns the ratio of the mean to the maximum over CPUs; 1 if all values are 0.
fn evenness(line: &[SliceActivity], of: impl Fn(&SliceActivity) -> f64) -> f64 {
    let most = line.iter().map(&of).fold(0.0, f64::max);
    if most > 0.0 {
        mean(line, of) / most
    } else {
        1.0
    }
}

/// Returns the ratio of the time used by the less used half of the CPUs to that used by the other half.
fn gap(lines: &[Vec<SliceActivity>], cpus: usize) -> f64 {
    let mut used: Vec<f64> = (0..cpus)
        .map(|cpu| lines.iter().map(|line| line[cpu].used).sum())
        .collect();
    used.sort_by(f64::total_cmp);
    let (less, more) = used.split_at(cpus / 2);
    less.iter().sum::<f64>() / more.iter().sum::<f64>()
}

/// Returns the number of slices in which the floating-point work on CPU 0 rises above twice its mean.
fn spikes(lines: &[Vec<SliceActivity>]) -> usize {
    let work: Vec<f64> = lines
        .iter()
        .filter_map(|line| Some(line.first()?.fp))
        .collect();
    let limit = 2.0 * work.iter().sum::<f64>() / work.len().max(1) as f64;
    let rises = |pair: &&[f64]| pair[0] <= limit && pair[1] > limit;
    work.windows(2).filter(rises).count()
}

/// Returns the ratio of standard deviation to mean of misses over slices, averaged over CPUs with misses.
fn swing(lines: &[Vec<SliceActivity>], cpus: usize) -> f64 {
    let n = lines.len().max(1) as f64;
    let of = |cpu: usize| {
        let mean = lines.iter().map(|line| line[cpu].misses).sum::<f64>() / n;
        let squares = lines.iter().map(|line| (line[cpu].misses - mean).powi(2));
        (mean > 0.0).then(|| (squares.sum::<f64>() / n).sqrt() / mean)
    };
    let known: Vec<f64> = (0..cpus).filter_map(of).collect();
    known.iter().sum::<f64>() / known.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slices(rows: &[[f64; 2]]) -> SliceRecorder {
        let cell = |used: &f64| SliceActivity {
            used: *used,
            fp: *used,
            misses: *used,
        };
        let lines = rows.iter().map(|row| row.iter().map(cell).collect());
        SliceRecorder {
            cpus: 2,
            slice_s: 0.1,
            lines: lines.collect(),
        }
    }

    fn value(slices: &SliceRecorder, name: &str) -> f64 {
        let all = slices.values();
        all.iter()
            .find(|(n, _)| *n == name)
            .map_or(f64::NAN, |v| v.1)
    }

    #[test]
    fn use_and_balance_are_those_of_the_cpus() {
        let two = slices(&[[1.0, 1.0], [1.0, 0.5], [0.2, 0.0], [1.0, 0.9]]);
        assert!((value(&two, "utilisation") - 70.0).abs() < 1e-9);
        // Evenness of the slices: 1, .75, .5, .95.
        assert_eq!(value(&two, "balanced_slices"), 50.0);
        assert!((value(&two, "early_gap") - 2.4 / 3.2).abs() < 1e-9);
        assert!((value(&two, "balance_r") - 1.0).abs() < 1e-9);
        assert!((value(&two, "fp_early") - 100.0 * 3.5 / 5.6).abs() < 1e-9);
    }

    #[test]
    fn a_run_interval_is_divided_among_slices() {
        let mut two = slices(&[]);
        two.ran(1, 0.05, 0.22);
        let used: Vec<f64> = two.lines.iter().map(|line| line[1].used).collect();
        let expected = [0.5, 1.0, 0.2];
        assert!(
            used.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9),
            "{used:?}"
        );
    }

    #[test]
    fn a_spike_counts_once_however_long_it_lasts() {
        let rows = [0.0, 0.0, 9.0, 9.0, 0.0, 0.0, 0.0, 9.0, 0.0, 0.0].map(|v| [v, 1.0]);
        assert_eq!(value(&slices(&rows), "fp_spikes"), 2.0);
        let steady = [[1.0, 1.0]; 8];
        assert_eq!(value(&slices(&steady), "fp_spikes"), 0.0);
        assert_eq!(value(&slices(&steady), "llc_swing"), 0.0);
    }
}
