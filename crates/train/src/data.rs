//! Table on which models are fitted: for one core type and target, truth and ratios of every sample.
//!
//! A ratio enters by its logarithm, as a straight line that may bend at five places ([`BASIS`] columns). Step tables
//! approximate sums of such lines.

use countersteer_model::events::Event;
use countersteer_model::machine::CoreType;
use countersteer_model::models::Target;

use crate::rows::{EVENTS, TrainingRow};

/// Number of columns of a feature: the logarithm, and its excess over each knot.
pub const BASIS: usize = KNOTS + 1;
const KNOTS: usize = 5;
/// Lower bound of ratios: the resolution of step tables.
pub const LEAST_RATIO: f64 = 1e-6;
/// Weight of all crossed samples together, over that of the others.
const CROSSED_WEIGHT: f64 = 3.0;

/// Part of the samples from which an event that they have is a candidate; samples without a candidate are then left out.
const COMMON: f64 = 0.5;

/// Candidate ratio.
#[derive(Clone, Debug)]
pub struct Feature {
    pub above: Event,
    pub below: Event,
    /// Knots of the logarithm.
    pub knots: [f64; KNOTS],
    /// Least and greatest logarithm of any sample.
    pub range: (f64, f64),
    /// Mean and standard deviation by which each column is standardised.
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
        // A ratio that is equal in all programs has no information.
        (most - least > 0.01).then_some(feature)
    }

    fn raw(&self, x: f64) -> [f64; BASIS] {
        std::array::from_fn(|c| match c {
            0 => x,
            _ => (x - self.knots[c - 1]).max(0.0),
        })
    }

    /// Columns of a logarithm, which is clamped to the range of the samples.
    #[must_use]
    pub fn columns(&self, x: f64) -> [f64; BASIS] {
        let raw = self.raw(x.clamp(self.range.0, self.range.1));
        std::array::from_fn(|c| (raw[c] - self.scale[c].0) / self.scale[c].1)
    }
}

/// Row of a sample.
#[derive(Clone, Debug)]
pub struct TypeRow {
    /// Row of the samples from which the table is made.
    pub sample: usize,
    /// Rows of [`Data::families`].
    pub families: Vec<usize>,
    /// True if it is of a program, false if crossed of two.
    pub real: bool,
    pub truth: f64,
    /// Weight; each family has the same sum.
    pub weight: f64,
    /// Logarithm of each feature.
    pub logarithms: Vec<f64>,
    /// Intercept and the columns of all features.
    pub columns: Vec<f64>,
}

/// Truth and ratios of every sample.
pub struct Data {
    pub families: Vec<String>,
    pub features: Vec<Feature>,
    pub rows: Vec<TypeRow>,
    pub target: Target,
}

impl Data {
    /// Table of a core type. The first feature is cycles per instruction. Samples without a factor, or without an event that
    /// most others have, are left out.
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
            TypeRow {
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

    /// First column of a feature.
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

/// Number of events that a core type can count in the sets that a model may use, besides cycles and instructions. With four
/// free counters it is one set, else two.
#[must_use]
pub fn most_events(core_type: &CoreType) -> usize {
    let free = (core_type.counters + core_type.fixed_counters.min(2)).saturating_sub(2) as usize;
    if free >= 4 { free } else { 2 * free }
}
