//! Search for the best candidate by few trials: the model predicts, the most promising candidate is run, the model learns.
//!
//! Input: candidates, a runner, limits. Output: trials with predicted and measured times, and predictions for all candidates.
//!
//! Programs are drawn from the model's prior. Metropolis steps move them to where they explain the times so far. Their spread is
//! what the trials leave open. The next trial is the candidate with the greatest expected improvement over the best time so far
//! (Jones, Schonlau and Welch 1998). The search ends when no candidate promises more than [`Limits::worthwhile`].

use countersteer_model::policy::{PolicyRng, policy_rng};
use countersteer_model::topology::Topology;
use rand::RngExt;

use super::candidates::Candidate;
use super::scaling::{Prior, Shape};

/// Programs that are drawn.
const DRAWN: usize = 256;
/// Metropolis steps of each after a trial.
const STEPS: usize = 48;
/// Largest change of a parameter in a step.
const STEP: f64 = 0.25;
/// Deviation between model and program, as the standard deviation of a logarithm.
const DEVIATION: f64 = 0.02;
/// Trials before the search may end by itself.
const LEAST: usize = 4;

/// Times a program with a candidate.
pub trait Runner {
    /// Returns seconds; `None` if the user ended the search.
    ///
    /// # Errors
    /// The program fails, or cannot be run.
    fn seconds(&mut self, candidate: &Candidate) -> anyhow::Result<Option<f64>>;
}

/// End of a search.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most trials.
    pub trials: usize,
    /// Expected improvement below which no trial is worthwhile; 0.001 is 0.1 %.
    pub worthwhile: f64,
    pub seed: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            trials: 8,
            worthwhile: 0.001,
            seed: 1,
        }
    }
}

/// Time of a candidate by the model: median, and an interval that holds nine of ten programs that explain the trials.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

/// One trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Row of the candidate.
    pub candidate: usize,
    /// In seconds, before the trial; the first has none.
    pub predicted: Option<Prediction>,
    pub measured_s: f64,
}

/// Result of a search.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub trials: Vec<Trial>,
    /// Expected improvement over the best trial by the candidate that promises most; 0.01 is 1 %.
    pub open: f64,
    /// Seconds of every candidate after the last trial; relative to the first one without a trial.
    pub predictions: Vec<Prediction>,
}

impl Found {
    /// The fastest trial.
    #[must_use]
    pub fn best(&self) -> Option<&Trial> {
        let times = |t: &&Trial| t.measured_s;
        self.trials
            .iter()
            .min_by(|a, b| times(a).total_cmp(&times(b)))
    }
}

/// Runs the search; the first trial is the first candidate.
///
/// # Errors
/// Those of the runner.
pub fn search(
    candidates: &[Candidate],
    topology: &Topology,
    runner: &mut dyn Runner,
    limits: Limits,
) -> anyhow::Result<Found> {
    let mut ensemble = Ensemble::new(candidates, topology, limits.seed);
    let mut found = Found::default();
    let mut next = Some(0);
    while let Some(row) = next.filter(|_| found.trials.len() < limits.trials) {
        let predicted = (!found.trials.is_empty()).then(|| ensemble.prediction(row, &found.trials));
        let Some(measured_s) = runner.seconds(&candidates[row])? else {
            break;
        };
        found.trials.push(Trial {
            candidate: row,
            predicted,
            measured_s,
        });
        ensemble.learn(&found.trials);
        let promising = ensemble.most_promising(&found.trials);
        found.open = promising.map_or(0.0, |(_, gain)| gain);
        let goes_on = found.trials.len() < LEAST || found.open >= limits.worthwhile;
        next = promising.map(|(row, _)| row).filter(|_| goes_on);
    }
    let all = 0..candidates.len();
    found.predictions = all
        .map(|row| ensemble.prediction(row, &found.trials))
        .collect();
    Ok(found)
}

/// Programs that explain the trials.
struct Ensemble {
    prior: Prior,
    shapes: Vec<Shape>,
    /// Parameters of each program.
    programs: Vec<Vec<f64>>,
    rng: PolicyRng,
}

impl Ensemble {
    fn new(candidates: &[Candidate], topology: &Topology, seed: u64) -> Self {
        let prior = Prior::of(topology);
        let mut rng = policy_rng(seed);
        let mut draw = || {
            let all = 0..prior.dimensions();
            all.map(|_| rng.random::<f64>()).collect()
        };
        Self {
            programs: (0..DRAWN).map(|_| draw()).collect(),
            shapes: candidates.iter().map(|c| Shape::of(c, topology)).collect(),
            prior,
            rng,
        }
    }

    /// Logarithm of a program's scale, and of the likelihood of the trials.
    fn fit(&self, program: &[f64], trials: &[Trial]) -> (f64, f64) {
        let residual = |t: &Trial| {
            let shape = &self.shapes[t.candidate];
            t.measured_s.ln() - self.prior.log_time(program, shape)
        };
        let residuals: Vec<f64> = trials.iter().map(residual).collect();
        let scale = residuals.iter().sum::<f64>() / residuals.len().max(1) as f64;
        let squares: f64 = residuals.iter().map(|r| (r - scale).powi(2)).sum();
        (scale, -0.5 * squares / DEVIATION.powi(2))
    }

    /// Draws programs by the likelihood of the trials, then moves each by Metropolis steps.
    fn learn(&mut self, trials: &[Trial]) {
        let fits: Vec<f64> = self
            .programs
            .iter()
            .map(|p| self.fit(p, trials).1)
            .collect();
        let best = fits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = fits.iter().map(|fit| (fit - best).exp()).collect();
        let total: f64 = weights.iter().sum();
        // Systematic resampling: one random number for all.
        let start = self.rng.random::<f64>();
        let (mut row, mut passed) = (0, weights[0]);
        let mut chosen = Vec::with_capacity(DRAWN);
        for nth in 0..DRAWN {
            let at = (nth as f64 + start) / DRAWN as f64 * total;
            while passed < at && row + 1 < weights.len() {
                row += 1;
                passed += weights[row];
            }
            chosen.push((self.programs[row].clone(), fits[row]));
        }
        for (program, fit) in &mut chosen {
            for _ in 0..STEPS {
                self.step(program, fit, trials);
            }
        }
        self.programs = chosen.into_iter().map(|(program, _)| program).collect();
    }

    /// One Metropolis step: a few parameters change; the prior is uniform and the change symmetric.
    fn step(&mut self, program: &mut Vec<f64>, fit: &mut f64, trials: &[Trial]) {
        let mut moved = program.clone();
        for _ in 0..self.rng.random_range(1..=3) {
            let row = self.rng.random_range(0..moved.len());
            moved[row] = if self.rng.random::<f64>() < 0.25 {
                self.rng.random()
            } else {
                let by = STEP * (2.0 * self.rng.random::<f64>() - 1.0);
                reflected(moved[row] + by)
            };
        }
        let (_, new) = self.fit(&moved, trials);
        if self.rng.random::<f64>() < (new - *fit).exp() {
            *program = moved;
            *fit = new;
        }
    }

    /// Logarithms of a candidate's seconds, by program.
    fn log_seconds(&self, row: usize, trials: &[Trial]) -> Vec<f64> {
        let of = |program: &Vec<f64>| {
            let time = self.prior.log_time(program, &self.shapes[row]);
            let scale = if trials.is_empty() {
                -self.prior.log_time(program, &self.shapes[0])
            } else {
                self.fit(program, trials).0
            };
            time + scale
        };
        self.programs.iter().map(of).collect()
    }

    fn prediction(&self, row: usize, trials: &[Trial]) -> Prediction {
        let mut all = self.log_seconds(row, trials);
        all.sort_by(f64::total_cmp);
        let quantile = |share: f64| all[((all.len() - 1) as f64 * share).round() as usize].exp();
        Prediction {
            median: quantile(0.5),
            low: quantile(0.05),
            high: quantile(0.95),
        }
    }

    /// The candidate without a trial that promises most, and its expected improvement.
    fn most_promising(&self, trials: &[Trial]) -> Option<(usize, f64)> {
        let best = trials
            .iter()
            .map(|t| t.measured_s)
            .fold(f64::INFINITY, f64::min)
            .ln();
        let gain = |row: usize| {
            let all = self.log_seconds(row, trials);
            let gains = all.iter().map(|log| (-(log - best).exp_m1()).max(0.0));
            gains.sum::<f64>() / all.len() as f64
        };
        let open = (0..self.shapes.len()).filter(|row| trials.iter().all(|t| t.candidate != *row));
        open.map(|row| (row, gain(row)))
            .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))
    }
}

/// Reflects a value into the range from 0 to 1.
fn reflected(value: f64) -> f64 {
    let value = value.abs();
    if value > 1.0 { 2.0 - value } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::machine;
    use crate::threads::candidates::candidates;

    /// Program whose times follow a rule.
    struct Ruled<F>(F, usize);

    impl<F: Fn(&Candidate) -> f64> Runner for Ruled<F> {
        fn seconds(&mut self, candidate: &Candidate) -> anyhow::Result<Option<f64>> {
            self.1 += 1;
            Ok(Some((self.0)(candidate)))
        }
    }

    /// Time of the found candidate over the least of all, and the number of trials.
    fn found(name: &str, rule: impl Fn(&Candidate) -> f64) -> (f64, usize) {
        let machine = machine(name).unwrap();
        let topology = &machine.topology;
        let all = candidates(topology, &topology.groups[0].cpus);
        let least = all.iter().map(&rule).fold(f64::INFINITY, f64::min);
        let mut runner = Ruled(rule, 0);
        let found = search(&all, topology, &mut runner, Limits::default()).unwrap();
        assert_eq!(found.trials.len(), runner.1);
        assert_eq!(found.trials[0].candidate, 0);
        (found.best().unwrap().measured_s / least, found.trials.len())
    }

    #[test]
    fn the_best_number_is_found_by_few_trials() {
        // Each thread costs: the best number lies inside.
        let costly = |c: &Candidate| 100.0 / c.threads() as f64 + c.threads() as f64;
        let (ratio, trials) = found("xeon-gold-6138", costly);
        assert!(ratio < 1.03 && trials <= 8, "{ratio} by {trials}");
        // Static chunks: slow cores only delay.
        let slow: countersteer_model::cpuset::CpuSet = "8-15".parse().unwrap();
        let barrier = |c: &Candidate| {
            let speed = if c.cpus.intersects(&slow) { 0.45 } else { 1.0 };
            2.0 / (c.threads() as f64 * speed)
        };
        let (ratio, trials) = found("i9-12900k-8p8e", barrier);
        assert!(ratio < 1.03 && trials <= 8, "{ratio} by {trials}");
    }

    #[test]
    fn a_program_that_does_not_scale_is_left_at_once() {
        let (ratio, trials) = found("core2-quad", |_| 1.0);
        assert!((ratio - 1.0).abs() < 1e-12 && trials <= 8, "{trials}");
    }

    #[test]
    fn a_user_who_ends_the_search_keeps_what_was_measured() {
        struct Twice(u32);
        impl Runner for Twice {
            fn seconds(&mut self, _: &Candidate) -> anyhow::Result<Option<f64>> {
                self.0 += 1;
                Ok((self.0 <= 2).then_some(1.0))
            }
        }
        let machine = machine("core2-quad").unwrap();
        let topology = &machine.topology;
        let all = candidates(topology, &topology.groups[0].cpus);
        let found = search(&all, topology, &mut Twice(0), Limits::default()).unwrap();
        assert_eq!(found.trials.len(), 2);
        assert_eq!(found.predictions.len(), all.len());
    }
}
