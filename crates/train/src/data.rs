//! The table that models are fitted on: for one core type and target, truth and ratios of every sample.
//!
//! A ratio enters by its logarithm, as a straight line that may bend at five places ([`BASIS`] columns); sums of such lines are
//! what step tables come near to.

use countersteer_model::events::Event;
use countersteer_model::machine::CoreType;
use countersteer_model::models::Target;

use crate::rows::{EVENTS, TrainingRow};

/// Columns of a feature: the logarithm, and what it exceeds each knot by.
pub const BASIS: usize = KNOTS + 1;
const KNOTS: usize = 5;
/// Ratios below this are taken to be this: step tables resolve no less.
pub const LEAST_RATIO: f64 = 1e-6;
/// What all crossed samples weigh together, over what the others do.
const CROSSED_WEIGHT: f64 = 3.0;

/// An event is a candidate where at least this part of the samples has it; samples without a candidate are then left out.
const COMMON: f64 = 0.5;

/// A candidate ratio.
#[derive(Clone, Debug)]
pub struct Feature {
    pub above: Event,
    pub below: Event,
    /// Of the logarithm.
    pub knots: [f64; KNOTS],
    /// Least and greatest logarithm of any sample.
    pub range: (f64, f64),
    /// Mean and standard deviation of each column, which is standardised by them.
    scale: [(f64, f64); BASIS],
}

impl Feature {
    fn new(above: Event, below: Event, logarithms: &[f64]) -> Option<Self> {
        let mut sorted = logarithms.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let at = |share: f64| sorted[(share * (sorted.len() - 1) as f64) as usize];
        let mut feature = Self {
            above,
            below,
            knots: std::array::from_fn(|k| at((k + 1) as f64 / (KNOTS + 1) as f64)),
            range: (least, most),
            scale: [(0.0, 1.0); BASIS],
        };
        let raw: Vec<[f64; BASIS]> = logarithms.iter().map(|x| feature.raw(*x)).collect();
        let n = raw.len() as f64;
        feature.scale = std::array::from_fn(|c| {
            let mean = raw.iter().map(|r| r[c]).sum::<f64>() / n;
            let variance = raw.iter().map(|r| (r[c] - mean).powi(2)).sum::<f64>() / n;
            (mean, variance.sqrt().max(1e-9))
        });
        // A ratio that is the same in all programs tells nothing.
        (most - least > 0.01).then_some(feature)
    }

    fn raw(&self, x: f64) -> [f64; BASIS] {
        std::array::from_fn(|c| match c {
            0 => x,
            _ => (x - self.knots[c - 1]).max(0.0),
        })
    }

    /// The columns of a logarithm, which is kept to the range that was seen.
    #[must_use]
    pub fn columns(&self, x: f64) -> [f64; BASIS] {
        let raw = self.raw(x.clamp(self.range.0, self.range.1));
        std::array::from_fn(|c| (raw[c] - self.scale[c].0) / self.scale[c].1)
    }
}

/// A sample's row.
#[derive(Clone, Debug)]
pub struct Row {
    /// Row of the samples that the table is of.
    pub sample: usize,
    /// Rows of [`Data::families`].
    pub families: Vec<usize>,
    /// It is of a program, not crossed of two.
    pub real: bool,
    pub truth: f64,
    /// Families weigh alike.
    pub weight: f64,
    /// Logarithm of each feature.
    pub logarithms: Vec<f64>,
    /// An intercept and the columns of all features.
    pub columns: Vec<f64>,
}

/// Truth and ratios of every sample.
pub struct Data {
    pub families: Vec<String>,
    pub features: Vec<Feature>,
    pub rows: Vec<Row>,
    pub target: Target,
}

impl Data {
    /// The table of a core type. The first feature is cycles per instruction. Samples of which no factor is known, or that lack
    /// an event that most others have, are left out.
    #[must_use]
    pub fn new(samples: &[TrainingRow], core_type: usize, of: &CoreType, target: Target) -> Self {
        let truth = |s: &TrainingRow| match target {
            Target::Sf => s.speed_up(),
            Target::Ef => s.energy_factor(),
        };
        let candidates = candidates(samples, core_type, of);
        let complete = |s: &TrainingRow| {
            let has = |event: &Event| s.counts[core_type].get(*event).is_some();
            let always = [Event::Instructions, Event::Cycles];
            truth(s).is_finite() && always.iter().chain(&candidates).all(has)
        };
        let kept: Vec<usize> = (0..samples.len())
            .filter(|row| complete(&samples[*row]))
            .collect();
        let own = || kept.iter().map(|row| &samples[*row]);
        let mut families: Vec<String> = own().flat_map(|s| s.families.clone()).collect();
        families.sort();
        families.dedup();
        let logarithms = |above, below| -> Option<Vec<f64>> {
            let of =
                |s: &TrainingRow| Some(s.ratio(core_type, above, below)?.max(LEAST_RATIO).ln());
            own().map(of).collect()
        };
        let per = |event| [(event, Event::Instructions), (event, Event::Cycles)];
        let pairs = [(Event::Cycles, Event::Instructions)]
            .into_iter()
            .chain(candidates.iter().copied().flat_map(per));
        let (features, values): (Vec<Feature>, Vec<Vec<f64>>) = pairs
            .filter_map(|(above, below)| {
                let values = logarithms(above, below)?;
                Some((Feature::new(above, below, &values)?, values))
            })
            .unzip();
        let (least, most) = target.bounds();
        let row = |(nth, sample): (usize, &usize)| {
            let s = &samples[*sample];
            let logarithms: Vec<f64> = values.iter().map(|v| v[nth]).collect();
            let columns = features.iter().zip(&logarithms);
            Row {
                sample: *sample,
                families: s
                    .families
                    .iter()
                    .filter_map(|f| families.binary_search(f).ok())
                    .collect(),
                real: s.families.len() == 1,
                truth: truth(s).clamp(least, most),
                weight: 0.0,
                columns: std::iter::once(1.0)
                    .chain(columns.flat_map(|(f, x)| f.columns(*x)))
                    .collect(),
                logarithms,
            }
        };
        let rows = kept.iter().enumerate().map(row).collect();
        let mut data = Self {
            families,
            features,
            rows,
            target,
        };
        data.weigh();
        data
    }

    fn weigh(&mut self) {
        let mut of_family = vec![0.0; self.families.len()];
        let real = self.rows.iter().filter(|r| r.real);
        real.for_each(|r| of_family[r.families[0]] += 1.0);
        let crossed = self.rows.iter().filter(|r| !r.real).count() as f64;
        let total = of_family.iter().filter(|n| **n > 0.0).count() as f64;
        for row in &mut self.rows {
            row.weight = if row.real {
                1.0 / of_family[row.families[0]]
            } else {
                CROSSED_WEIGHT * total / crossed
            };
        }
    }

    /// Where a feature's columns begin.
    #[must_use]
    pub const fn first_column(feature: usize) -> usize {
        1 + feature * BASIS
    }
}

/// Events that the core type could count and that too few samples have.
#[must_use]
pub fn missing(samples: &[TrainingRow], core_type: usize, of: &CoreType) -> Vec<Event> {
    let candidates = candidates(samples, core_type, of);
    let could = EVENTS.into_iter().filter(|event| of.counts(*event));
    could.filter(|event| !candidates.contains(event)).collect()
}

/// Events that the core type counts and that samples have.
fn candidates(samples: &[TrainingRow], core_type: usize, of: &CoreType) -> Vec<Event> {
    let common = |event: &Event| {
        let has = |s: &&TrainingRow| s.counts[core_type].get(*event).is_some();
        let number = samples.iter().filter(has).count();
        number > 0 && number as f64 >= COMMON * samples.len() as f64
    };
    EVENTS
        .into_iter()
        .filter(|event| of.counts(*event) && common(event))
        .collect()
}

/// Events that a core type can count in the sets that a model may take, besides cycles and instructions: all at once where it has
/// four counters for them, else in two sets.
#[must_use]
pub fn most_events(core_type: &CoreType) -> usize {
    let free = (core_type.counters + core_type.fixed_counters.min(2)).saturating_sub(2) as usize;
    if free >= 4 { free } else { 2 * free }
}
