//! Accuracy and overhead of counter readers.
//!
//! Source: PMCTrack, figure 4. There, two tools read the IPC and the miss rate of the same programs. Here, the readers are
//! counts of the whole run, samples of one event set, and samples of multiplexed event sets, each of which counts a part of the
//! run.

use std::sync::Arc;

use countersteer_model::driver::Recorder;
use countersteer_model::engine::{Applied, Observation};
use countersteer_model::events::Event;
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::Placement;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;
use rayon::prelude::*;

use super::programs::Cast;
use super::values::CaseValues;
use super::watch::RunWatch;
use crate::experiment::LoadedMachine;

/// Reader of counters: its arm, sampling interval in ms, and events.
pub(crate) struct CounterReader {
    pub arm: &'static str,
    period_ms: f64,
    events: &'static [Event],
}

/// Interval in ms that is longer than any program's run, so that counters are read only at the end.
const NEVER_MS: f64 = 1e7;

pub(crate) const READERS: [CounterReader; 4] = [
    CounterReader {
        arm: "counted",
        period_ms: NEVER_MS,
        events: &[Event::LlcMisses],
    },
    CounterReader {
        arm: "sampled",
        period_ms: 100.0,
        events: &[Event::LlcMisses],
    },
    CounterReader {
        arm: "sampled-1s",
        period_ms: 1000.0,
        events: &[Event::LlcMisses],
    },
    CounterReader {
        arm: "multiplexed",
        period_ms: 100.0,
        events: &[
            Event::LlcMisses,
            Event::LlcReferences,
            Event::BranchMisses,
            Event::Branches,
            Event::FpOperations,
            Event::SimdOperations,
        ],
    },
];

/// Sums over samples. A ratio uses only the samples that contain both of its terms.
#[derive(Default)]
struct SampleSums {
    instructions: f64,
    cycles: f64,
    misses: f64,
    /// Instructions in the samples that contain misses.
    beside_misses: f64,
    /// Number of multiplexed event sets.
    sets: u32,
}

impl Recorder for SampleSums {
    fn observation(&mut self, _: &Topology, seen: &Observation, _: &MetricBank) {
        for sample in seen.samples.iter() {
            let counts = &sample.counts;
            let instructions = counts.get(Event::Instructions).unwrap_or(0.0);
            self.instructions += instructions;
            self.cycles += counts.get(Event::Cycles).unwrap_or(0.0);
            if let Some(misses) = counts.get(Event::LlcMisses) {
                self.misses += misses;
                self.beside_misses += instructions;
            }
            self.sets = self.sets.max(sample.sets());
        }
    }

    fn decision(&mut self, _: &Topology, _: Nanos, _: &Placement, _: Applied) {}
}

/// Measures every program by every reader.
pub fn measure(
    machine: &Arc<LoadedMachine>,
    programs: &[String],
    cpus: &str,
    cast: &Cast,
) -> anyhow::Result<CaseValues> {
    let runs: Vec<(&String, &CounterReader)> = programs
        .iter()
        .flat_map(|program| READERS.iter().map(move |reader| (program, reader)))
        .collect();
    let done: Vec<(SampleSums, f64)> = runs
        .par_iter()
        .map(|(program, reader)| {
            let mut sums = SampleSums::default();
            let watch = RunWatch {
                machine,
                cast,
                program,
                place: cpus,
                period_ms: reader.period_ms,
                // Counts of a whole run have no sampling noise.
                noise: (reader.period_ms >= NEVER_MS).then_some(0.0),
                events: reader.events,
            };
            let finished = watch.run(&mut sums)?;
            Ok((sums, finished.elapsed_s))
        })
        .collect::<anyhow::Result<_>>()?;
    let mut values = CaseValues::default();
    programs.iter().for_each(|program| values.add_row(program));
    for ((program, reader), (sums, seconds)) in runs.into_iter().zip(done) {
        for (measure, value) in [
            ("ipc", sums.instructions / sums.cycles),
            ("mpki", 1e3 * sums.misses / sums.beside_misses),
            ("time_s", seconds),
            ("sets", f64::from(sums.sets)),
        ] {
            values.add(program, reader.arm, measure, value);
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersteer_model::sample::{Sample, Samples};
    use countersteer_model::testing::{SMT, topology};
    use countersteer_model::units::{CoreTypeId, CpuId, ThreadId};

    #[test]
    fn misses_are_put_to_the_instructions_beside_which_they_were_counted() {
        let sample = |set, counted: &[(Event, f64)]| {
            let head = Sample::of_thread(ThreadId(1), CpuId(0), CoreTypeId(0), Nanos(0), Nanos(1));
            Samples::of(Sample { set, ..head }, 2, counted)
        };
        let both = [(Event::Instructions, 1e6), (Event::Cycles, 2e6)];
        let with_misses = [both.as_slice(), &[(Event::LlcMisses, 5e3)]].concat();
        let seen = Observation {
            samples: [sample(0, &with_misses), sample(1, &both)]
                .into_iter()
                .collect(),
            ..Observation::default()
        };
        let topology = topology(SMT);
        let mut sums = SampleSums::default();
        sums.observation(&topology, &seen, &MetricBank::new(&topology, &[]));
        assert_eq!(sums.instructions / sums.cycles, 0.5);
        assert_eq!(1e3 * sums.misses / sums.beside_misses, 5.0);
        assert_eq!(sums.sets, 2);
    }
}
