//! Speed-up factors by step tables: a factor is the sum of contributions of a few counter ratios, in fixed-point arithmetic
//! only.
//!
//! The engine in the kernel evaluates a model in this form, because it has no floating point. Values and tables are fixed-point
//! numbers, and this module computes the same result bit by bit. A machine file may contain a table for each core type
//! (`sf_steps`); otherwise the table of the trained model ([`crate::models`]) is used.
//!
//! Without either, the table is the best additive approximation of the model in `sf`. The model is evaluated on a grid
//! that combines each value of a ratio with several values of the others. On such a grid, the least-squares solution is given by
//! the means.

use super::sf::UntrainedModel;
use super::{MetricDef, MetricSource, ReadBy, Round};
use crate::models::{FACTOR_BITS, FEATURE_BITS, FixedFeature, FixedModel, StepFeature, StepModel};
use crate::sample::{Counts, Event, Sample, Samples};
use crate::topology::Topology;
use crate::units::{CoreTypeId, CpuId, Nanos, ThreadId};

pub(super) const SF_STEPS: MetricDef = MetricDef {
    name: "sf_steps",
    unit: "ratio",
    prose: "speed-up factor by the step tables that the engine in the kernel uses",
    needs: &[Event::Instructions, Event::Cycles],
    helps: &[Event::LlcReferences, Event::LlcMisses, Event::BranchMisses],
    read_by: ReadBy::Source(|topology| Box::new(Steps(step_models(topology)))),
};

/// Threshold as a reciprocal: a relative difference above 1/4 marks a ratio as one of another phase.
const AWAY: u64 = 4;
/// Weight of the newest ratio in the running mean, as a reciprocal.
const NEWEST: u64 = 4;

/// True if a ratio differs from the running mean of its phase by so much that it is of another phase.
#[must_use]
pub const fn is_away(ratio_q20: u64, mean_q20: u64) -> bool {
    ratio_q20.abs_diff(mean_q20) > mean_q20 / AWAY
}

/// Returns the running mean of a phase's ratios after one more. The kernel's engine computes the same.
#[must_use]
pub const fn running_mean(mean_q20: u64, ratio_q20: u64) -> u64 {
    mean_q20 - mean_q20 / NEWEST + ratio_q20 / NEWEST
}

impl FixedModel {
    /// Returns the speed-up factor of a round in Q16 fixed point; `None` if the first ratio is unavailable, as without
    /// instructions. A feature whose events are not counted contributes nothing.
    #[must_use]
    pub fn factor_q16(&self, round: &Round<'_>) -> Option<u64> {
        self.evaluate(|row| self.features[row].read_q20(round))
            .map(|(factor, _)| factor)
    }

    /// Evaluates the model; `read` returns the value of a feature by index. The second result is true if every feature had a
    /// value. `None` if the first feature has none.
    #[must_use]
    pub fn evaluate(&self, mut read: impl FnMut(usize) -> Option<u64>) -> Option<(u64, bool)> {
        let (first, others) = self.features.split_first()?;
        let mut sum = self.base_q16 + first.addition(read(0)?);
        let mut complete = true;
        for (feature, row) in others.iter().zip(1..) {
            match read(row) {
                Some(value) => sum += feature.addition(value),
                None => complete = false,
            }
        }
        Some((sum.max(1) as u64, complete))
    }
}

impl FixedFeature {
    /// Returns the contribution for a value of the feature; zero below the first step.
    fn addition(&self, value: u64) -> i64 {
        let reached = self.steps.partition_point(|(least, _)| *least <= value);
        reached.checked_sub(1).map_or(0, |row| self.steps[row].1)
    }

    /// Returns the feature's ratio in Q20 fixed point, from the newest sample of the round that has both events. `None` if there
    /// is none or the denominator is zero.
    #[must_use]
    pub fn read_q20(&self, round: &Round<'_>) -> Option<u64> {
        self.ratio_q20(&round.with(&[self.above, self.below])?.counts)
    }

    /// Returns the feature's ratio in Q20 fixed point from these counts; `None` if an event is not counted or the denominator is
    /// zero.
    #[must_use]
    pub fn ratio_q20(&self, counts: &Counts<'_>) -> Option<u64> {
        let above = counts.get(self.above)? as u64;
        let below = counts.get(self.below)? as u64;
        (above << FEATURE_BITS).checked_div(below)
    }
}

/// Returns the step model of each core type: from the machine file, or else the trained model, or else derived from the
/// untrained one.
#[must_use]
pub fn step_models(topology: &Topology) -> Vec<FixedModel> {
    let of = |id: CoreTypeId| {
        let own = topology.core_types[id.index()].sf_steps.as_ref();
        let trained = || Some(topology.models.get(id.index())?.sf.as_ref()?.factor.clone());
        own.map(StepModel::fixed)
            .or_else(trained)
            .unwrap_or_else(|| derived(topology, id))
    };
    (0..topology.core_types.len())
        .map(|row| of(CoreTypeId::from_index(row)))
        .collect()
}

struct Steps(Vec<FixedModel>);

impl MetricSource for Steps {
    fn read(&mut self, round: &Round<'_>) -> Option<f64> {
        let model = self
            .0
            .get(round.sample.core_type.index())
            .filter(|_| round.is_whole())?;
        let factor = model.factor_q16(round)?;
        Some(factor as f64 / f64::from(1u32 << FACTOR_BITS))
    }
}

/// Ratios of a derived table: numerator, denominator, smallest and largest value. Misses are per cycle, because the fraction of
/// time spent waiting for them is more informative than their number.
const GRID: [StepRatio; 4] = [
    StepRatio {
        above: Event::Cycles,
        below: Event::Instructions,
        least: 0.2,
        greatest: 6.0,
    },
    StepRatio {
        above: Event::LlcReferences,
        below: Event::Cycles,
        least: 1e-4,
        greatest: 0.03,
    },
    StepRatio {
        above: Event::LlcMisses,
        below: Event::Cycles,
        least: 1e-5,
        greatest: 0.01,
    },
    StepRatio {
        above: Event::BranchMisses,
        below: Event::Cycles,
        least: 1e-4,
        greatest: 0.02,
    },
];
#[derive(Clone, Copy)]
struct StepRatio {
    above: Event,
    below: Event,
    least: f64,
    greatest: f64,
}
/// Number of steps per ratio of a derived table.
const STEPS: usize = 24;
/// Number of values of each other ratio with which a value is combined on the grid.
const OTHERS: usize = 5;

/// Returns the value with index `nth` of `of` values, spaced geometrically from the smallest to the largest of the ratio.
fn grid_value(ratio: StepRatio, nth: usize, of: usize) -> f64 {
    ratio.least * (ratio.greatest / ratio.least).powf(nth as f64 / (of - 1) as f64)
}

/// Returns the step model that best approximates the untrained model of a core type.
fn derived(topology: &Topology, core_type: CoreTypeId) -> FixedModel {
    let mut model = UntrainedModel::new(topology);
    let mut factor = |values: &[f64; GRID.len()]| {
        let cycles = values[0] * 1e9;
        let counts = [
            (Event::Instructions, 1e9),
            (Event::Cycles, cycles),
            // Every miss is also a reference, so there are at least as many references.
            (Event::LlcReferences, values[1].max(values[2]) * cycles),
            (Event::LlcMisses, values[2] * cycles),
            (Event::BranchMisses, values[3] * cycles),
        ];
        let time = Nanos::from_millis(1);
        let any = Sample::of_thread(ThreadId(0), CpuId(0), core_type, time, time);
        let sample = Samples::of(any, 1, &counts);
        let factor = Round::of(&sample).and_then(|round| model.read(&round));
        factor.unwrap_or(1.0)
    };
    let mut mean_with = |fixed: Option<(usize, f64)>| {
        let free: Vec<usize> = (0..GRID.len())
            .filter(|f| fixed.is_none_or(|(row, _)| row != *f))
            .collect();
        let combinations = OTHERS.pow(free.len() as u32);
        let sum: f64 = (0..combinations)
            .map(|combination| {
                let mut values = [0.0; GRID.len()];
                let mut rest = combination;
                for row in &free {
                    values[*row] = grid_value(GRID[*row], rest % OTHERS, OTHERS);
                    rest /= OTHERS;
                }
                if let Some((row, value)) = fixed {
                    values[row] = value;
                }
                factor(&values)
            })
            .sum();
        sum / combinations as f64
    };
    let base = mean_with(None);
    let features = GRID.iter().enumerate().map(|(row, ratio)| {
        let steps = (0..STEPS)
            .map(|nth| {
                let value = grid_value(*ratio, nth, STEPS);
                // A step begins at the geometric mean of its value and the one before. The first step begins at zero.
                let least = if nth == 0 {
                    0.0
                } else {
                    (value * grid_value(*ratio, nth - 1, STEPS)).sqrt()
                };
                (least, mean_with(Some((row, value))) - base)
            })
            .collect();
        StepFeature::new(ratio.above, ratio.below, steps)
    });
    StepModel {
        base,
        features: features.collect(),
    }
    .fixed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::textfile::parse_toml;
    use rand::RngExt as _;

    fn sample(values: &[(Event, f64)]) -> Samples {
        let time = Nanos::from_millis(100);
        let head = Sample::of_thread(ThreadId(0), CpuId(0), CoreTypeId(0), time, time);
        Samples::of(head, 1, values)
    }

    fn factor_of(model: &FixedModel, values: &[(Event, f64)]) -> Option<u64> {
        model.factor_q16(&Round::of(&sample(values)).unwrap())
    }

    fn toy() -> StepModel {
        let feature = |above: &str, steps| StepFeature {
            ratio: format!("{above} / instructions"),
            steps,
        };
        let features = vec![
            feature("cycles", vec![(0.5, 0.25), (1.0, -0.5)]),
            feature("llc_misses", vec![(0.001, -0.25), (0.01, -2.5)]),
        ];
        StepModel {
            base: 2.0,
            features,
        }
    }

    #[test]
    fn the_last_step_that_is_reached_counts() {
        let model = toy().fixed();
        let factor = |cycles: f64, misses: f64| {
            let read = [
                (Event::Instructions, 1e6),
                (Event::Cycles, cycles * 1e6),
                (Event::LlcMisses, misses * 1e6),
            ];
            factor_of(&model, &read).map(|q| q as f64 / 65536.0)
        };
        assert_eq!(factor(0.4, 0.0), Some(2.0));
        assert_eq!(factor(0.5, 0.0), Some(2.25));
        assert_eq!(factor(3.0, 0.0), Some(1.5));
        assert_eq!(factor(3.0, 0.005), Some(1.25));
        // The result is never so small that it equals "unknown".
        assert_eq!(factor(3.0, 0.5), Some(1.0 / 65536.0));
        assert_eq!(factor_of(&model, &[(Event::Cycles, 5.0)]), None);
        // An uncounted event adds nothing, which differs from a count of zero.
        let mut model = model;
        model.features[1].steps.insert(0, (0, 1 << 20));
        let cycles = [(Event::Instructions, 1e6), (Event::Cycles, 3e6)];
        assert_eq!(
            factor_of(&model, &cycles).map(|q| q as f64 / 65536.0),
            Some(1.5)
        );
    }

    /// Both models of the same counts agree on the order of gains, as far as an additive table can follow the interval model.
    #[test]
    fn derived_tables_rank_threads_like_the_model_they_are_derived_from() {
        let text = include_str!("../../../../machines/i9-12900k-8p8e.toml");
        let mut topology = Topology::new(&crate::machine::Machine::parse("i9", text).unwrap());
        topology.models.clear();
        let mut model = UntrainedModel::new(&topology);
        let steps = step_models(&topology);
        let mut rng = crate::policy::PolicyRng::new(1, 1);
        let mut uniform = move || rng.random::<f64>();
        let mut alike = 0;
        let mut all = 0;
        let mut draw = |_| {
            let misses = 1e-5 * 2000f64.powf(uniform());
            let read = [
                (Event::Instructions, 1e8),
                (Event::Cycles, 1e8 * 0.25 * 12f64.powf(uniform())),
                (Event::LlcReferences, 1e8 * misses * (1.0 + 4.0 * uniform())),
                (Event::LlcMisses, 1e8 * misses),
                (Event::BranchMisses, 1e8 * 1e-4 * 100f64.powf(uniform())),
            ];
            let sample = sample(&read);
            let round = Round::of(&sample).unwrap();
            (
                model.read(&round).unwrap(),
                steps[0].factor_q16(&round).unwrap() as f64 / 65536.0,
            )
        };
        let drawn: Vec<(f64, f64)> = (0..200).map(&mut draw).collect();
        for (i, a) in drawn.iter().enumerate() {
            for b in &drawn[..i] {
                // Near ties are not compared.
                if (a.0 - b.0).abs() > 0.2 {
                    all += 1;
                    alike += i32::from((a.0 > b.0) == (a.1 > b.1));
                }
            }
        }
        assert!(all > 1000 && alike * 10 > all * 9, "{alike} of {all}");
    }

    #[test]
    fn faults_are_named() {
        let fault = |change: fn(&mut StepModel)| {
            let mut model = toy();
            change(&mut model);
            let text = toml::to_string(&model).unwrap();
            let read = parse_toml::<StepModel>("m", &text);
            read.err().map(|e| e.to_string())
        };
        assert_eq!(fault(|_| {}), None);
        let named = |change, part: &str| fault(change).is_some_and(|f| f.contains(part));
        assert!(named(|m| m.features.clear(), "1 to 8"));
        assert!(named(
            |m| m.features[0].ratio = "cycle / instructions".into(),
            "`cycle`"
        ));
        assert!(named(
            |m| m.features[0].ratio = "cycles + 1".into(),
            "no ratio"
        ));
        assert!(named(|m| m.features[0].steps.swap(0, 1), "ascend"));
        assert!(named(|m| m.features[1].steps = vec![(0.0, 0.0); 65], "65"));
        assert!(named(|m| m.base = f64::NAN, "`base` is NaN"));
    }
}
