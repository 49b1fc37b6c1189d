//! Patient rule induction: rules that predict from two threads, one on the fastest and one on the slowest core type, whether
//! their exchange saves energy.
//!
//! Input: samples of programs on both types. Output: the rules of a machine ([`SwapFile`]). Source: PMCTrack, section 4.2.2,
//! after Zhang et al. (DATE 2014), who name the method; the method itself is Friedman and Fisher's (1999).
//!
//! - **Pairs.** Two samples of different families, drawn with equal weight of families. The first stands for a thread on the
//!   fastest type, the second for one on the slowest. The saving is 1 - E(exchanged) / E(present) if each does as many
//!   instructions in both cases. Energy is the part attributed to threads: cores while they run, caches, memory.
//! - **Peeling.** It starts from the box of all pairs. Each step removes the lowest or highest `ALPHA` of one feature. It
//!   chooses the cut that leaves the highest mean saving. Steps end when `SUPPORT` of all pairs are inside. **Pasting**
//!   restores such parts while the mean rises. The pairs inside are then removed and the next box begins.
//! - **Held-out programs.** A third of the families is in no pair from which rules are induced. A box whose mean saving on
//!   pairs of those is not above zero ends the search and is not kept.
//!
//! Decided here: everything but the method, since the published rules and their training are not in the sources.

use countersteer_model::events::Event;
use countersteer_model::models::swaps::{
    FEATURES, FeatureInterval, SCHEMA, SwapFile, SwapRule, SwapSide, SwapsJudged,
};
use countersteer_model::topology::Topology;
use rand::{RngExt, SeedableRng};

use crate::rows::TrainingRow;

/// Part of a box that a cut removes.
const ALPHA: f64 = 0.05;
/// Lower bound of the part of all pairs in a box.
const SUPPORT: f64 = 0.05;
/// Limit on the number of boxes.
const MOST_RULES: usize = 8;
/// Number of pairs for the induction of rules, and for their validation.
const PAIRS: usize = 20_000;
const JUDGING: usize = 8_000;
const SEED: u64 = 1;
/// Features of both threads.
const COLUMNS: usize = 2 * FEATURES.len();

/// Two samples: features of both, and the part of the energy that their exchange saves.
#[derive(Clone, Copy, Debug)]
pub struct SamplePair {
    pub features: [f64; COLUMNS],
    pub saving: f64,
}

/// Bounds of each feature; both ends are inside.
pub type FeatureBounds = [(f64, f64); COLUMNS];

const ALL: FeatureBounds = [(f64::NEG_INFINITY, f64::INFINITY); COLUMNS];

/// Induces the rules of a machine from samples of programs; `None` if it has one core type, or fewer than six families.
#[must_use]
pub fn induce(topology: &Topology, samples: &[TrainingRow], programs: &str) -> Option<SwapFile> {
    let (fast, slow) = topology.extremes();
    let usable: Vec<&TrainingRow> = samples
        .iter()
        .filter(|s| s.families.len() == 1 && features(s, 0, &counted(topology)).is_some())
        .collect();
    let mut families: Vec<&String> = usable.iter().map(|s| &s.families[0]).collect();
    families.sort();
    families.dedup();
    if fast == slow || families.len() < 6 {
        return None;
    }
    let mut rng = rand_pcg::Pcg64::seed_from_u64(SEED);
    for row in (1..families.len()).rev() {
        families.swap(row, rng.random_range(0..=row));
    }
    let (held_out, training) = families.split_at(families.len() / 3);
    let counted = counted(topology);
    let mut draw =
        |families: &[&String], count| pairs(&usable, families, &counted, count, &mut rng);
    let (known, unseen) = (draw(training, PAIRS), draw(held_out, JUDGING));
    let boxes = boxes(&known, &unseen);
    let [fast, slow] = [fast, slow].map(|id| &topology.core_types[id.index()]);
    Some(SwapFile {
        schema: SCHEMA.into(),
        machine: topology.name.clone(),
        fast: fast.name.clone(),
        slow: slow.name.clone(),
        clock_ratio: fast.freq_ghz / slow.freq_ghz,
        trained_on: format!(
            "{} pairs of {programs} of {} families; judged on {} pairs of {} others",
            known.len(),
            training.len(),
            unseen.len(),
            held_out.len(),
        ),
        judged: judge(&boxes, &unseen),
        rule: boxes.iter().map(|b| rule(b, &known, &unseen)).collect(),
    })
}

/// True for features that both core types count.
fn counted(topology: &Topology) -> [bool; FEATURES.len()] {
    let events: [&[Event]; FEATURES.len()] = [
        &[],
        &[Event::LlcMisses],
        &[Event::L1dMisses],
        &[Event::BranchMisses],
    ];
    let (fast, slow) = topology.extremes();
    let both = [fast, slow].map(|id| &topology.core_types[id.index()]);
    events.map(|all| all.iter().all(|e| both.iter().all(|t| t.counts(*e))))
}

/// Features of a sample on a core type; uncounted ones are 0 for all samples, so that no cut uses them.
fn features(
    sample: &TrainingRow,
    core_type: usize,
    counted: &[bool; FEATURES.len()],
) -> Option<[f64; FEATURES.len()]> {
    let ratio = |above, below| sample.ratio(core_type, above, below);
    let per_kilo = |event| Some(1e3 * ratio(event, Event::Instructions)?);
    let all = [
        ratio(Event::Instructions, Event::Cycles),
        per_kilo(Event::LlcMisses),
        per_kilo(Event::L1dMisses),
        per_kilo(Event::BranchMisses),
    ];
    let mut values = [0.0; FEATURES.len()];
    for ((value, found), counted) in values.iter_mut().zip(all).zip(counted) {
        if *counted {
            *value = found?;
        }
    }
    Some(values)
}

fn pairs(
    samples: &[&TrainingRow],
    families: &[&String],
    counted: &[bool; FEATURES.len()],
    count: usize,
    rng: &mut rand_pcg::Pcg64,
) -> Vec<SamplePair> {
    let of_family: Vec<Vec<&TrainingRow>> = families
        .iter()
        .map(|family| {
            let inside = samples.iter().filter(|s| s.families[0] == **family);
            inside.copied().collect()
        })
        .collect();
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let first = rng.random_range(0..families.len());
        let other = (first + rng.random_range(1..families.len())) % families.len();
        let mut one = |family: usize| {
            let inside: &[&TrainingRow] = &of_family[family];
            inside[rng.random_range(0..inside.len())]
        };
        let (big, small) = (one(first), one(other));
        all.extend(pair(big, small, counted));
    }
    all
}

fn pair(
    big: &TrainingRow,
    small: &TrainingRow,
    counted: &[bool; FEATURES.len()],
) -> Option<SamplePair> {
    let slow = small.counts.len() - 1;
    let energy = |s: &TrainingRow, core_type: usize| {
        let energy = s.ratio(core_type, Event::EnergyNj, Event::Instructions);
        energy.unwrap_or(f64::NAN)
    };
    let present = energy(big, 0) + energy(small, slow);
    let exchanged = energy(big, slow) + energy(small, 0);
    let (a, b) = (features(big, 0, counted)?, features(small, slow, counted)?);
    let pair = SamplePair {
        features: std::array::from_fn(|c| if c < a.len() { a[c] } else { b[c - a.len()] }),
        saving: 1.0 - exchanged / present,
    };
    pair.saving.is_finite().then_some(pair)
}

/// Boxes of pairs whose exchange saves energy, best first.
#[must_use]
pub fn boxes(known: &[SamplePair], unseen: &[SamplePair]) -> Vec<FeatureBounds> {
    let mut left: Vec<&SamplePair> = known.iter().collect();
    let mut found = Vec::new();
    let least = (SUPPORT * known.len() as f64).ceil() as usize;
    while found.len() < MOST_RULES && left.len() > least {
        let peeled = peel(&left, least);
        let pasted = paste(peeled, &left);
        let saves =
            |pairs: &[&SamplePair]| mean(pairs.iter().filter(|p| is_inside(&pasted, p))) > 0.0;
        let unseen: Vec<&SamplePair> = unseen.iter().collect();
        if pasted == ALL || !saves(&left) || !saves(&unseen) {
            break;
        }
        left.retain(|p| !is_inside(&pasted, p));
        found.push(pasted);
    }
    found
}

fn is_inside(bounds: &FeatureBounds, pair: &SamplePair) -> bool {
    let within = |(value, (least, most)): (&f64, &(f64, f64))| value >= least && value <= most;
    pair.features.iter().zip(bounds).all(within)
}

/// Mean saving; 0 without pairs.
fn mean<'a>(pairs: impl Iterator<Item = &'a &'a SamplePair>) -> f64 {
    let (sum, count) = pairs.fold((0.0, 0.0), |(sum, count), p| (sum + p.saving, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

/// Removes, starting from all pairs, the parts that save least.
fn peel(all: &[&SamplePair], least: usize) -> FeatureBounds {
    let mut bounds = ALL;
    let mut inside: Vec<&SamplePair> = all.to_vec();
    while inside.len() > least {
        let mut best: Option<(f64, FeatureBounds)> = None;
        for column in 0..COLUMNS {
            for cut in cuts(&inside, column) {
                let mut smaller = bounds;
                smaller[column] = (bounds[column].0.max(cut.0), bounds[column].1.min(cut.1));
                let kept = inside.iter().filter(|p| is_inside(&smaller, p));
                let count = kept.clone().count();
                let saving = mean(kept);
                let better = best.as_ref().is_none_or(|(most, _)| saving > *most);
                if count >= least && count < inside.len() && better {
                    best = Some((saving, smaller));
                }
            }
        }
        let Some((_, smaller)) = best else { break };
        bounds = smaller;
        inside.retain(|p| is_inside(&bounds, p));
    }
    bounds
}

/// Bounds of a feature's values without the lowest, and without the highest part of them.
fn cuts(inside: &[&SamplePair], column: usize) -> [(f64, f64); 2] {
    let mut values: Vec<f64> = inside.iter().map(|p| p.features[column]).collect();
    values.sort_by(f64::total_cmp);
    let part = ((ALPHA * values.len() as f64) as usize).clamp(1, values.len() - 1);
    // Equal values stay or go together.
    let (low, high) = (values[part - 1], values[values.len() - part]);
    let above = values.partition_point(|v| *v <= low);
    let below = values.partition_point(|v| *v < high);
    let least = values.get(above).copied().unwrap_or(f64::INFINITY);
    let most = below
        .checked_sub(1)
        .map_or(f64::NEG_INFINITY, |row| values[row]);
    [(least, f64::INFINITY), (f64::NEG_INFINITY, most)]
}

/// Restores removed parts, as long as the mean rises.
fn paste(mut bounds: FeatureBounds, all: &[&SamplePair]) -> FeatureBounds {
    let of = |bounds: &FeatureBounds| mean(all.iter().filter(|p| is_inside(bounds, p)));
    let mut saving = of(&bounds);
    loop {
        let count = all.iter().filter(|p| is_inside(&bounds, p)).count();
        let part = ((ALPHA * count as f64) as usize).max(1);
        let wider = (0..COLUMNS).flat_map(|column| widened(&bounds, all, column, part));
        let best = wider
            .map(|b| (of(&b), b))
            .max_by(|a, b| a.0.total_cmp(&b.0));
        match best {
            Some((more, wider)) if more > saving + 1e-12 => (bounds, saving) = (wider, more),
            _ => return bounds,
        }
    }
}

/// Boxes with `part` more pairs below, and above, in one feature.
fn widened(
    bounds: &FeatureBounds,
    all: &[&SamplePair],
    column: usize,
    part: usize,
) -> Vec<FeatureBounds> {
    let mut open = *bounds;
    open[column] = (f64::NEG_INFINITY, f64::INFINITY);
    let mut values: Vec<f64> = all
        .iter()
        .filter(|p| is_inside(&open, p))
        .map(|p| p.features[column])
        .collect();
    values.sort_by(f64::total_cmp);
    let below = values.partition_point(|v| *v < bounds[column].0);
    let above = values.partition_point(|v| *v <= bounds[column].1);
    let mut wider = Vec::new();
    if below > 0 {
        let mut low = *bounds;
        low[column].0 = values[below.saturating_sub(part)];
        wider.push(low);
    }
    if above < values.len() {
        let mut high = *bounds;
        high[column].1 = values[(above + part - 1).min(values.len() - 1)];
        wider.push(high);
    }
    wider
}

fn judge(boxes: &[FeatureBounds], unseen: &[SamplePair]) -> SwapsJudged {
    let chosen: Vec<&SamplePair> = unseen
        .iter()
        .filter(|p| boxes.iter().any(|b| is_inside(b, p)))
        .collect();
    let share = |part: usize, of: usize| round(part as f64 / of.max(1) as f64);
    let saves = |p: &&&SamplePair| p.saving > 0.0;
    SwapsJudged {
        exchanged: share(chosen.len(), unseen.len()),
        worth: share(
            unseen.iter().filter(|p| p.saving > 0.0).count(),
            unseen.len(),
        ),
        right: share(chosen.iter().filter(saves).count(), chosen.len()),
        saving: round(mean(chosen.iter())),
    }
}

fn rule(bounds: &FeatureBounds, known: &[SamplePair], unseen: &[SamplePair]) -> SwapRule {
    let saving = |pairs: &[SamplePair]| {
        let inside: Vec<&SamplePair> = pairs.iter().filter(|p| is_inside(bounds, p)).collect();
        (round(mean(inside.iter())), inside.len())
    };
    let (of_known, count) = saving(known);
    let bound = |(column, (least, most)): (usize, &(f64, f64))| {
        let (thread, row) = match column.checked_sub(FEATURES.len()) {
            None => (SwapSide::Fast, column),
            Some(row) => (SwapSide::Slow, row),
        };
        let finite = |v: &f64| v.is_finite().then(|| round(*v));
        let (least, most) = (finite(least), finite(most));
        (least.is_some() || most.is_some()).then(|| FeatureInterval {
            thread,
            metric: FEATURES[row].into(),
            least,
            most,
        })
    };
    SwapRule {
        saving: of_known,
        held_out_saving: saving(unseen).0,
        support: round(count as f64 / known.len().max(1) as f64),
        bounds: bounds.iter().enumerate().filter_map(bound).collect(),
    }
}

fn round(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs on a grid whose exchange saves if the first feature is high and the fifth is low.
    fn grid(shift: f64) -> Vec<SamplePair> {
        let mut all = Vec::new();
        for row in 0..40 {
            for column in 0..40 {
                let mut features = [0.0; COLUMNS];
                features[0] = f64::from(row) + shift;
                features[4] = f64::from(column) + shift;
                let saves = row >= 30 && column < 10;
                let saving = if saves { 0.3 } else { -0.1 };
                all.push(SamplePair { features, saving });
            }
        }
        all
    }

    #[test]
    fn the_region_that_saves_is_found_and_no_other() {
        let (known, unseen) = (grid(0.0), grid(0.25));
        let found = boxes(&known, &unseen);
        assert_eq!(found.len(), 1, "{found:?}");
        let inside: Vec<&SamplePair> = known.iter().filter(|p| is_inside(&found[0], p)).collect();
        // A quarter of the quarter: all of it, or up to the cuts of a twentieth nearest to its edges.
        assert!((80..=121).contains(&inside.len()), "{}", inside.len());
        assert!(mean(inside.iter()) > 0.2);
        assert!(
            found[0][1] == ALL[1],
            "features that tell nothing have no bounds"
        );
    }

    #[test]
    fn a_box_that_saves_nothing_on_other_programs_is_not_kept() {
        let mut unseen = grid(0.0);
        unseen.iter_mut().for_each(|p| p.saving = -0.1);
        assert!(boxes(&grid(0.0), &unseen).is_empty());
    }

    #[test]
    fn pasting_takes_back_what_saves() {
        let pairs = grid(0.0);
        let all: Vec<&SamplePair> = pairs.iter().collect();
        let mut narrow = ALL;
        narrow[0] = (34.0, 36.0);
        narrow[4] = (0.0, 12.0);
        let wide = paste(narrow, &all);
        assert_eq!(wide[4], (0.0, 12.0));
        let of = |b: &FeatureBounds| mean(all.iter().filter(|p| is_inside(b, p)));
        assert!(of(&wide) >= of(&narrow));
    }

    #[test]
    fn equal_values_go_together() {
        let of = |value: f64| SamplePair {
            features: [value; COLUMNS],
            saving: 0.0,
        };
        let pairs: Vec<SamplePair> = [1.0, 1.0, 1.0, 2.0, 3.0, 3.0].map(of).to_vec();
        let all: Vec<&SamplePair> = pairs.iter().collect();
        assert_eq!(
            cuts(&all, 0),
            [(2.0, f64::INFINITY), (f64::NEG_INFINITY, 2.0)]
        );
    }
}
