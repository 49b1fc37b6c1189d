//! Occupancy of programs in a last-level cache.
//!
//! Source: PMCTrack, section 4.3, figures 16 and 17. Input: the occupancy of each thread at the end of each period. Output: each
//! program's mean fraction of the cache, and its variation over time.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::driver::Recorder;
use countersteer_model::engine::{Applied, Observation};
use countersteer_model::events::Event;
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::Placement;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;
use rayon::prelude::*;

use super::programs::{Cast, short};
use super::values::CaseValues;
use crate::error::{FaultKind, failure};
use crate::experiment::{Experiment, LoadedMachine, Onlooker};

/// Time at the start during which the cache fills; samples in it are ignored.
const WARMING: Nanos = Nanos::from_millis(1000);

/// Occupancy of each program in bytes, by sample.
#[derive(Default)]
struct OccupancyShares {
    readings: Vec<(Nanos, BTreeMap<Arc<str>, f64>)>,
}

impl Recorder for OccupancyShares {
    fn observation(&mut self, _: &Topology, seen: &Observation, _: &MetricBank) {
        let mut of_program = BTreeMap::new();
        for (thread, sample) in seen.samples.of_threads() {
            let info = seen.threads.iter().find(|t| t.id == thread);
            let held = sample.counts.get(Event::LlcOccupancyBytes);
            if let (Some(info), Some(held)) = (info, held) {
                *of_program.entry(Arc::clone(&info.name)).or_insert(0.0) += held;
            }
        }
        self.readings.push((seen.at, of_program));
    }

    fn decision(&mut self, _: &Topology, _: Nanos, _: &Placement, _: Applied) {}
}

impl OccupancyShares {
    /// Returns the percentages of a cache of `bytes` bytes that a program occupies, one per sample. Samples while the cache
    /// fills and samples without the program are omitted.
    fn of(&self, program: &str, bytes: f64, reader: &OccupancyReader) -> Vec<f64> {
        let filled = self.readings.iter().filter(|(at, _)| *at > WARMING);
        let read = filled.step_by(reader.each);
        let held = read.filter_map(|(_, held)| held.get(program));
        held.map(|h| 100.0 * h / bytes).collect()
    }
}

/// Reader of occupancy: its arm, and the number of periods between its samples.
pub(crate) struct OccupancyReader {
    pub arm: &'static str,
    each: usize,
}

/// Readers that sample the same run at different intervals.
pub(crate) const READERS: [OccupancyReader; 2] = [
    OccupancyReader {
        arm: "every",
        each: 1,
    },
    OccupancyReader {
        arm: "tenth",
        each: 10,
    },
];

/// Runs every mix on the given CPUs and returns the measures of occupancy.
pub fn measure(
    machine: &Arc<LoadedMachine>,
    mixes: &[String],
    cpus: &str,
    period_ms: f64,
    cast: &Cast,
) -> anyhow::Result<CaseValues> {
    let done: Vec<OccupancyShares> = mixes
        .par_iter()
        .map(|mix| run(machine, mix, cpus, period_ms, cast))
        .collect::<anyhow::Result<_>>()?;
    let bytes = llc_bytes(machine)?;
    let mut values = CaseValues::default();
    mixes.iter().for_each(|mix| values.add_row(mix));
    for (mix, shares) in mixes.iter().zip(done) {
        for (program, _) in &cast.mix(mix)?.members {
            for reader in &READERS {
                let seen = shares.of(short(program), bytes, reader);
                let row = format!("{mix}/{}", short(program));
                let mean = seen.iter().sum::<f64>() / seen.len() as f64;
                let squares = seen.iter().map(|s| (s - mean).powi(2)).sum::<f64>();
                let deviation = (squares / seen.len() as f64).sqrt();
                values.add(&row, reader.arm, "llc_share", mean);
                values.add(&row, reader.arm, "llc_share_swing", deviation / mean);
            }
        }
    }
    Ok(values)
}

/// Returns the size of the last-level cache in bytes. Fails if the machine has no shared cache.
fn llc_bytes(machine: &LoadedMachine) -> anyhow::Result<f64> {
    let caches = &machine.machine.cache;
    let last = caches.iter().max_by_key(|cache| cache.level);
    let last = last.ok_or_else(|| {
        let why = format!("machine {} shares no cache", machine.machine.name);
        failure(FaultKind::BadInput, why)
    })?;
    Ok(last.size_kib * 1024.0)
}

fn run(
    machine: &Arc<LoadedMachine>,
    mix: &str,
    cpus: &str,
    period_ms: f64,
    cast: &Cast,
) -> anyhow::Result<OccupancyShares> {
    let members = cast.single_copies(mix)?;
    let experiment = Experiment {
        machine: Arc::clone(machine),
        workload: cast.workload(mix, &members, 1)?,
        policy: format!("static:*={cpus}"),
        seed: 1,
        options: cast.options(1, period_ms),
        detail: None,
    };
    let mut shares = OccupancyShares::default();
    experiment.run_watched(Onlooker {
        recorder: Some(&mut shares),
        ..Onlooker::default()
    })?;
    Ok(shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_leave_out_the_filling_and_who_is_not_there() {
        let reading = |(second, held): (u64, Option<f64>)| {
            let held = held.map(|h| ("a".into(), h));
            (
                Nanos::from_millis(1000 * second),
                held.into_iter().collect(),
            )
        };
        let held = [(1, Some(0.0)), (2, Some(50.0)), (3, None), (4, Some(150.0))];
        let readings = held.map(reading).into();
        let shares = OccupancyShares { readings };
        let [every, _] = &READERS;
        assert_eq!(shares.of("a", 200.0, every), [25.0, 75.0]);
        assert!(shares.of("b", 200.0, every).is_empty());
        let second = OccupancyReader {
            arm: "second",
            each: 2,
        };
        assert_eq!(shares.of("a", 200.0, &second), [25.0, 75.0], "2 s and 4 s");
    }
}
