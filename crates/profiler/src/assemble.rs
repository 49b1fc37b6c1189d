//! Behaviours and timeline of a profile, computed from the windows.
//!
//! Input: the threads' windows. Output: behaviours, segments and thread shape of a [`Recorded`]. The windows of all threads are
//! sorted by their end and clustered by behaviour. The metrics of a behaviour are computed from all its windows together. They
//! are rounded to four digits, which keeps files small, and equal for equal measurements.

use std::collections::BTreeMap;

use countersteer_model::profile::{
    Behaviour, IlpPoint, Locality, LogHistogram, Mix, MlpPoint, SampledFigure, Segment, ThreadShape,
};

use super::branches::mispredictions;
use super::cluster::{WindowPoint, cluster};
use super::figures::{beyond, round};
use super::layout::{
    ENDED_EXEC, ILP_WINDOWS, MLP_LINES, NEAR_BUCKETS, NEAR_LINES, REUSE_BUCKETS, RUNNABLE_LEVELS,
    STACK_BUCKETS, add_record, record,
};
use super::raw::ThreadLog;
use super::{pipeline, reach, sampling, sharing};

/// Largest number of windows for clustering; beyond it, neighbours are merged.
const MOST_WINDOWS: u64 = 2000;
/// Largest number of segments in a timeline.
const MOST_SEGMENTS: usize = 200;
/// A segment shorter than this share of the run joins a neighbour.
const LEAST_SHARE: u64 = 500;
/// Long misses in the samples below which their overlap is taken from the next smaller cache.
const ENOUGH_MISSES: u64 = 16;
/// Cache sizes whose misses are clustering features, in lines.
const FEATURE_LINES: [u64; 5] = [128, 512, 1 << 12, 1 << 15, 1 << 18];

/// Parts of a profile that come from the windows.
#[derive(Debug)]
pub(crate) struct Assembled {
    /// Behaviours in order of appearance.
    pub behaviours: Vec<Behaviour>,
    pub timeline: Vec<Segment>,
    pub shape: ThreadShape,
    pub instructions: u64,
    /// Sampled figures of the whole run.
    pub sampling: Vec<SampledFigure>,
}

/// Assembles the windows; `None` if nothing was executed.
pub(crate) fn assemble(threads: &[ThreadLog]) -> Option<Assembled> {
    let windows = in_order(threads);
    let whole = sum(windows.iter())?;
    let labels = cluster(&points(&windows, &whole));
    let runs = runs(&windows, &labels);
    let mut order: Vec<usize> = Vec::new();
    for run in &runs {
        if !order.contains(&run.label) {
            order.push(run.label);
        }
    }
    let behaviours = order.iter().filter_map(|label| {
        let parts = runs
            .iter()
            .filter(|r| r.label == *label)
            .flat_map(|r| &windows[r.from..r.to]);
        sum(parts).map(|total| behaviour(&total, &whole))
    });
    let position = |label| order.iter().position(|l| *l == label).unwrap_or(0) as u32;
    Some(Assembled {
        behaviours: behaviours.collect(),
        timeline: runs
            .iter()
            .map(|r| Segment {
                behaviour: position(r.label),
                instructions: r.instructions,
            })
            .collect(),
        shape: shape(threads, &whole),
        instructions: whole[record::INSTRUCTIONS],
        sampling: sampling::figures(&whole),
    })
}

fn shape(threads: &[ThreadLog], whole: &[u64]) -> ThreadShape {
    let serial_by = serial_by(threads);
    let count = serial_by.len().max(1);
    let levels = &whole[record::RUNNABLE..record::RUNNABLE + RUNNABLE_LEVELS];
    // While n threads run, n instructions execute in the time of one.
    let times = levels
        .iter()
        .zip(1..)
        .map(|(n, at_once)| *n as f64 / f64::from(at_once));
    let total: f64 = times.clone().sum();
    let share = levels[0] as f64 / whole[record::INSTRUCTIONS] as f64;
    let alone = levels[0].max(1) as f64;
    ThreadShape {
        threads: count as u32,
        serial_share: if count > 1 {
            round(share.min(1.0))
        } else {
            1.0
        },
        runnable: trimmed(times.map(|time| time / total)),
        serial_by: trimmed(serial_by.iter().map(|n| *n as f64 / alone)),
    }
}

/// Returns rounded shares without the zeros at the end.
fn trimmed(shares: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut shares: Vec<f64> = shares.map(|share| round(share.min(1.0))).collect();
    let some = shares.iter().rposition(|share| *share > 0.0);
    shares.truncate(some.map_or(0, |last| last + 1));
    shares
}

/// Returns the serial instructions by thread, in order of creation. A process that executes another program counts as one thread
/// with two files.
fn serial_by(threads: &[ThreadLog]) -> Vec<u64> {
    let mut sums: Vec<u64> = Vec::new();
    let mut becoming: BTreeMap<u64, u64> = BTreeMap::new();
    for thread in threads {
        let own: u64 = thread.windows.iter().map(|w| w[record::RUNNABLE]).sum();
        if thread.ended == ENDED_EXEC {
            *becoming.entry(thread.pid).or_default() += own;
        } else if !thread.windows.is_empty() {
            sums.push(own + becoming.remove(&thread.pid).unwrap_or(0));
        }
    }
    sums
}

/// Returns all windows in the order of their ends; neighbours are merged until few enough remain.
fn in_order(threads: &[ThreadLog]) -> Vec<Vec<u64>> {
    let mut all: Vec<(u64, u64, &Vec<u64>)> = Vec::new();
    for thread in threads {
        all.extend(
            thread
                .windows
                .iter()
                .map(|w| (w[record::STAMP], thread.ordinal, w)),
        );
    }
    all.sort_by_key(|(stamp, ordinal, _)| (*stamp, *ordinal));
    let total: u64 = all.iter().map(|(_, _, w)| w[record::INSTRUCTIONS]).sum();
    let least = total.div_ceil(MOST_WINDOWS);
    let mut merged: Vec<Vec<u64>> = Vec::new();
    for (_, _, window) in all {
        match merged
            .last_mut()
            .filter(|m| m[record::INSTRUCTIONS] < least)
        {
            Some(last) => add_record(last, window),
            None => merged.push(window.clone()),
        }
    }
    merged
}

fn sum<'a>(mut records: impl Iterator<Item = &'a Vec<u64>>) -> Option<Vec<u64>> {
    let mut total = records.next()?.clone();
    records.for_each(|r| add_record(&mut total, r));
    Some(total)
}

/// Consecutive windows with one label.
#[derive(Clone, Debug)]
struct WindowRun {
    label: usize,
    from: usize,
    to: usize,
    instructions: u64,
}

fn runs(windows: &[Vec<u64>], labels: &[usize]) -> Vec<WindowRun> {
    let mut runs: Vec<WindowRun> = Vec::new();
    for (at, (window, label)) in windows.iter().zip(labels).enumerate() {
        join(
            &mut runs,
            WindowRun {
                label: *label,
                from: at,
                to: at + 1,
                instructions: window[record::INSTRUCTIONS],
            },
        );
    }
    let total: u64 = runs.iter().map(|r| r.instructions).sum();
    while runs.len() > 1 {
        let shortest = runs
            .iter()
            .enumerate()
            .min_by_key(|(at, r)| (r.instructions, *at));
        let Some((at, length)) = shortest.map(|(at, r)| (at, r.instructions)) else {
            break;
        };
        if runs.len() <= MOST_SEGMENTS && length >= total / LEAST_SHARE {
            break;
        }
        runs = absorb(&runs, at);
    }
    runs
}

/// Appends a run; a run with the label of the last one is merged into it.
fn join(runs: &mut Vec<WindowRun>, run: WindowRun) {
    match runs.last_mut().filter(|last| last.label == run.label) {
        Some(last) => {
            last.to = run.to;
            last.instructions += run.instructions;
        }
        None => runs.push(run),
    }
}

/// Gives the run at `at` the label of its longer neighbour.
fn absorb(runs: &[WindowRun], at: usize) -> Vec<WindowRun> {
    let left = at.checked_sub(1).map(|l| &runs[l]);
    let right = runs.get(at + 1);
    let longer = left
        .into_iter()
        .chain(right)
        .max_by_key(|r| (r.instructions, r.from));
    let mut joined = Vec::with_capacity(runs.len());
    for (index, run) in runs.iter().enumerate() {
        let label = if index == at {
            longer.map_or(run.label, |l| l.label)
        } else {
            run.label
        };
        join(
            &mut joined,
            WindowRun {
                label,
                ..run.clone()
            },
        );
    }
    joined
}

/// Returns the features: logarithms of rates, and shares scaled to a similar weight.
fn points(windows: &[Vec<u64>], whole: &[u64]) -> Vec<WindowPoint> {
    let features = |w: &[u64]| {
        let instructions = w[record::INSTRUCTIONS] as f64;
        let pki = |count: u64| count as f64 * 1000.0 / instructions;
        let mut at: Vec<f64> = FEATURE_LINES
            .iter()
            .map(|lines| (1.0 + pki(beyond(w, *lines))).ln())
            .collect();
        at.push((1.0 + mispredictions(w, whole).value * 1000.0 / instructions).ln());
        at.extend(
            [record::LOADS, record::STORES, record::FP, record::SIMD]
                .map(|f| 4.0 * w[f] as f64 / instructions),
        );
        // Windows without a sample are given the values of the average window.
        let sampled = if w[record::SAMPLED] > 0 { w } else { whole };
        at.extend([2, 4].map(|lane| ipc(sampled, lane).unwrap_or(1.0).ln()));
        at
    };
    windows
        .iter()
        .map(|w| WindowPoint {
            at: features(w),
            weight: w[record::INSTRUCTIONS] as f64,
        })
        .collect()
}

fn ipc(record: &[u64], lane: usize) -> Option<f64> {
    let cycles = record[record::ILP_CYCLES + lane];
    (cycles > 0).then(|| record[record::SAMPLED] as f64 / cycles as f64)
}

fn behaviour(own: &[u64], whole: &[u64]) -> Behaviour {
    let instructions = own[record::INSTRUCTIONS] as f64;
    let share = |field: usize| round(own[field] as f64 / instructions);
    let sampled = if own[record::SAMPLED] > 0 { own } else { whole };
    Behaviour {
        mix: Mix {
            loads: share(record::LOADS),
            stores: share(record::STORES),
            branches: share(record::BRANCHES),
            fp: share(record::FP),
            simd: share(record::SIMD),
        },
        branch_mpki: round(mispredictions(own, whole).value * 1000.0 / instructions),
        locality: locality(own, whole),
        ilp: ilp(sampled),
        mlp: mlp(sampled, whole),
        pipeline: pipeline::pipeline(own, sampled, whole),
        reach: reach::reach(own, whole),
        sharing: sharing::sharing(own),
    }
}

fn locality(own: &[u64], whole: &[u64]) -> Locality {
    let per_ki = 1000.0 / own[record::INSTRUCTIONS] as f64;
    let near_sample = |r: &[u64]| {
        r[record::NEAR_STACK..record::NEAR_STACK + NEAR_BUCKETS]
            .iter()
            .sum::<u64>()
    };
    let sampled = if near_sample(own) > 0 { own } else { whole };
    let near = own[record::NEAR] as f64 * per_ki / near_sample(sampled).max(1) as f64;
    let rates = |far: usize, near_from: usize, buckets: usize, near_buckets: usize| {
        let rate = |b: usize| {
            let near_part = if b < near_buckets {
                sampled[near_from + b] as f64 * near
            } else {
                0.0
            };
            round(own[far + b] as f64 * per_ki + near_part)
        };
        let mut rates: Vec<f64> = (0..buckets).map(rate).collect();
        rates.truncate(
            rates
                .iter()
                .rposition(|r| *r > 0.0)
                .map_or(0, |last| last + 1),
        );
        LogHistogram { rates }
    };
    let mut stack = rates(
        record::STACK,
        record::NEAR_STACK,
        STACK_BUCKETS,
        NEAR_BUCKETS,
    );
    let mut reuse = rates(
        record::REUSE,
        record::NEAR_REUSE,
        REUSE_BUCKETS,
        REUSE_BUCKETS,
    );
    if near_sample(sampled) == 0 {
        // The run is too short for a sample; repeated accesses to the same line are the best estimate.
        stack.add(0, round(own[record::NEAR] as f64 * per_ki));
        reuse.add(1, round(own[record::NEAR] as f64 * per_ki));
    }
    debug_assert!(LogHistogram::lower(NEAR_BUCKETS) == NEAR_LINES);
    Locality {
        stack_distance_pki: stack,
        cold_pki: round(own[record::COLD] as f64 * per_ki),
        reuse_time_pki: reuse,
    }
}

fn ilp(sampled: &[u64]) -> Vec<IlpPoint> {
    let point = |(lane, window): (usize, &usize)| {
        // Without a sample, no dependencies are known, so no parallelism is assumed.
        IlpPoint {
            window: *window as u32,
            ipc: round(ipc(sampled, lane).unwrap_or(1.0)),
        }
    };
    ILP_WINDOWS.iter().enumerate().map(point).collect()
}

fn mlp(own: &[u64], whole: &[u64]) -> Vec<MlpPoint> {
    let mut points = Vec::new();
    for (lane, window) in ILP_WINDOWS.iter().enumerate() {
        let mut overlap = 1.0;
        for (size, lines) in MLP_LINES.iter().enumerate() {
            // Few misses give no reliable overlap: the whole run is used, or else the next smaller cache.
            let known = [own, whole]
                .into_iter()
                .find(|r| r[record::MLP_MISSES + size] >= ENOUGH_MISSES);
            if let Some(known) = known {
                let rounds = known[record::MLP_ROUNDS + size * ILP_WINDOWS.len() + lane].max(1);
                overlap = (known[record::MLP_MISSES + size] as f64 / rounds as f64).max(1.0);
            }
            points.push(MlpPoint {
                window: *window as u32,
                cache_lines: *lines,
                overlap: round(overlap),
            });
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(instructions: u64, far: u64, stamp: u64) -> Vec<u64> {
        let mut window = vec![0; record::WORDS];
        window[record::INSTRUCTIONS] = instructions;
        window[record::RUNNABLE] = instructions;
        window[record::STAMP] = stamp;
        window[record::LOADS] = instructions / 4;
        window[record::STACK + LogHistogram::bucket(5000)] = far;
        window[record::NEAR] = instructions / 4 - far;
        window[record::NEAR_STACK] = 3;
        window[record::NEAR_STACK + 5] = 1;
        window[record::NEAR_REUSE + 1] = 4;
        window[record::SAMPLED] = 4096;
        window[record::ILP_CYCLES..record::ILP_CYCLES + 6].fill(1024);
        window
    }

    fn thread(ordinal: u64, windows: Vec<Vec<u64>>) -> ThreadLog {
        ThreadLog {
            ordinal,
            pid: 1,
            ended: 1,
            windows,
        }
    }

    #[test]
    fn phases_become_segments_and_rates_are_per_kilo_instruction() {
        let windows = (0..40)
            .map(|i| window(1_000_000, if i < 20 { 100_000 } else { 0 }, i + 1))
            .collect();
        let all = assemble(&[thread(1, windows)]).unwrap();
        assert_eq!(all.behaviours.len(), 2);
        let expected = [(0, 20_000_000), (1, 20_000_000)];
        assert_eq!(
            all.timeline
                .iter()
                .map(|s| (s.behaviour, s.instructions))
                .collect::<Vec<_>>(),
            expected
        );
        let first = &all.behaviours[0];
        assert_eq!(first.locality.stack_distance_pki.at_least(4000.0), 100.0);
        assert_eq!(first.locality.stack_distance_pki.total(), 250.0);
        assert_eq!(first.locality.stack_distance_pki.rates[5], 37.5);
        assert_eq!(first.locality.reuse_time_pki.rates[1], 150.0);
        assert_eq!(first.ilp[0].ipc, 4.0);
        assert_eq!(
            all.shape,
            ThreadShape {
                threads: 1,
                serial_share: 1.0,
                runnable: vec![1.0],
                serial_by: vec![1.0],
            }
        );
    }

    #[test]
    fn flickering_windows_make_no_more_segments_than_allowed() {
        let windows = (0..3000)
            .map(|i| window(1_000_000, if i % 3 == 0 { 100_000 } else { 0 }, i + 1))
            .collect();
        let all = assemble(&[thread(1, windows)]).unwrap();
        assert!(all.timeline.len() <= MOST_SEGMENTS);
        assert_eq!(
            all.timeline.iter().map(|s| s.instructions).sum::<u64>(),
            3_000_000_000
        );
        assert_eq!(all.instructions, 3_000_000_000);
    }

    #[test]
    fn threads_and_exec_chains_are_counted() {
        let mut before_exec = thread(1, vec![window(1000, 0, 1)]);
        before_exec.ended = ENDED_EXEC;
        let parallel = |instructions, stamp| {
            let mut window = window(instructions, 0, stamp);
            window[record::RUNNABLE] = 0;
            window[record::RUNNABLE + 1] = instructions;
            window
        };
        let second = ThreadLog {
            pid: 2,
            ..thread(3, vec![parallel(1_000_000, 4)])
        };
        let windows = vec![window(999_000, 0, 2), parallel(1_000_000, 3)];
        let all = assemble(&[before_exec, thread(2, windows), second]).unwrap();
        assert_eq!(all.shape.threads, 2);
        assert_eq!(all.shape.serial_share, 0.3333);
        // One million instructions alone, then one million on each of two threads at once: equal times.
        assert_eq!(all.shape.runnable, [0.5, 0.5]);
        assert_eq!(all.shape.serial_by, [1.0]);
    }

    #[test]
    fn nothing_executed_is_nothing_assembled() {
        assert!(assemble(&[]).is_none());
    }

    #[test]
    fn overlap_of_rare_misses_is_borrowed() {
        let mut whole = window(1_000_000, 0, 1);
        whole[record::MLP_MISSES] = 100;
        whole[record::MLP_ROUNDS..record::MLP_ROUNDS + 6]
            .copy_from_slice(&[100, 50, 25, 25, 25, 20]);
        let points = mlp(&window(1000, 0, 1), &whole);
        let at_512: Vec<f64> = points
            .iter()
            .filter(|p| p.window == 512)
            .map(|p| p.overlap)
            .collect();
        assert_eq!(at_512, [5.0; 7]);
    }
}
