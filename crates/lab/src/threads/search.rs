//! Search for the best candidate by few trials: the model predicts, the most promising candidate is run, the model learns.
//!
//! Input: candidates, a runner, limits. Output: trials with predicted and measured times, and predictions for all candidates.
//!
//! Programs are drawn from the model's prior. Metropolis steps move them to where they explain the times so far. Their spread is
//! what the trials leave open. The next trial is the candidate with the greatest expected improvement over the best time so far
//! (Jones, Schonlau and Welch 1998). The search ends when no candidate promises more than [`SearchLimits::worthwhile`].
//!
//! Threads that wait leave CPUs idle. The best candidate then also runs with more threads than CPUs.

use countersteer_model::policy::{PolicyRng, policy_rng};
use countersteer_model::topology::Topology;
use rand::RngExt;

use super::candidates::Candidate;
use super::residual::{ChunkPlace, Residual, dot};
use super::scaling::{CandidateShape, Prior};

/// Programs that are drawn.
const DRAWN: usize = 256;
/// Metropolis steps of each after a trial: first with deviations that many times as large, so that programs leave what the new
/// trial rules out.
const FREE_STEPS: usize = 16;
const STEPS: usize = 40;
const FREE: f64 = 4.0;
/// Largest change of a parameter in a step.
const STEP: f64 = 0.25;
/// Quantiles of the normal distribution in the middle of eight equal parts.
const NORMAL: [f64; 8] = [-1.534, -0.887, -0.489, -0.157, 0.157, 0.489, 0.887, 1.534];
/// Trials before the search may end by itself.
const LEAST: usize = 6;
/// Share of the CPUs' time below which threads wait.
const WAITS: f64 = 0.9;
/// Threads for each CPU of the best candidate, in this order. From the third on, only if the last one was the best so far.
const CROWDS: [f64; 4] = [1.25, 2.0, 4.0, 8.0];

/// Times a program with a candidate.
pub trait CandidateTimer {
    /// Returns seconds; `None` if the user ended the search.
    ///
    /// # Errors
    /// The program fails, or cannot be run.
    fn seconds(&mut self, candidate: &Candidate) -> anyhow::Result<Option<f64>>;

    /// Time in which the CPUs of the last run were busy, as a share of the run; `None` if it is unknown.
    fn busy(&self) -> Option<f64> {
        None
    }
}

/// End of a search.
#[derive(Clone, Copy, Debug)]
pub struct SearchLimits {
    /// Most trials.
    pub trials: usize,
    /// Expected improvement below which no trial is worthwhile; 0.001 is 0.1 %.
    pub worthwhile: f64,
    pub seed: u64,
}

impl Default for SearchLimits {
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
pub struct TimePrediction {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

/// One trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimedTrial {
    /// Row of the candidate.
    pub candidate: usize,
    /// In seconds, before the trial; the first has none.
    pub predicted: Option<TimePrediction>,
    pub measured_s: f64,
    /// Share of the time in which its CPUs were busy.
    pub busy: Option<f64>,
}

/// Result of a search.
#[derive(Clone, Debug, Default)]
pub struct SearchResult {
    pub trials: Vec<TimedTrial>,
    /// Expected improvement over the best trial by the candidate that promises most; 0.01 is 1 %.
    pub open: f64,
    /// Seconds of every candidate after the last trial; relative to the first one without a trial. Candidates with more threads than
    /// CPUs have none.
    pub predictions: Vec<TimePrediction>,
}

impl SearchResult {
    /// The fastest trial.
    #[must_use]
    pub fn best(&self) -> Option<&TimedTrial> {
        let times = |t: &&TimedTrial| t.measured_s;
        self.trials
            .iter()
            .min_by(|a, b| times(a).total_cmp(&times(b)))
    }
}

/// Runs the search; the first trial is the first candidate. Candidates with more threads than CPUs are added if threads wait.
///
/// # Errors
/// Those of the runner.
pub fn search(
    candidates: &mut Vec<Candidate>,
    topology: &Topology,
    runner: &mut dyn CandidateTimer,
    limits: SearchLimits,
) -> anyhow::Result<SearchResult> {
    let mut ensemble = Ensemble::new(candidates, topology, limits.seed);
    let mut found = SearchResult::default();
    let mut next = Some(0);
    while let Some(row) = next.filter(|_| found.trials.len() < limits.trials) {
        let predicted = (!found.trials.is_empty()).then(|| ensemble.prediction(row));
        let Some(measured_s) = runner.seconds(&candidates[row])? else {
            break;
        };
        found.trials.push(TimedTrial {
            candidate: row,
            predicted,
            measured_s,
            busy: runner.busy(),
        });
        ensemble.learn(row, measured_s);
        let promising = ensemble.most_promising();
        found.open = promising.map_or(0.0, |(_, gain)| gain);
        let goes_on = found.trials.len() < LEAST || found.open >= limits.worthwhile;
        next = promising.map(|(row, _)| row).filter(|_| goes_on);
    }
    let all = 0..candidates.len();
    found.predictions = all.map(|row| ensemble.prediction(row)).collect();
    // Without a next candidate, the user did not end the search.
    if next.is_none() || found.trials.len() == limits.trials {
        crowd(candidates, runner, &mut found)?;
    }
    Ok(found)
}

/// Runs the best candidate with more threads than CPUs, if its threads wait.
fn crowd(
    candidates: &mut Vec<Candidate>,
    runner: &mut dyn CandidateTimer,
    found: &mut SearchResult,
) -> anyhow::Result<()> {
    let Some(best) = found.best().copied() else {
        return Ok(());
    };
    if best.busy.is_none_or(|busy| busy >= WAITS) {
        return Ok(());
    }
    let base = candidates[best.candidate].clone();
    let mut is_best = true;
    for (nth, crowd) in CROWDS.iter().enumerate() {
        if nth > 1 && !is_best {
            break;
        }
        let threads = (base.threads as f64 * crowd).ceil() as usize;
        let candidate = Candidate {
            threads,
            ..base.clone()
        };
        if candidates.contains(&candidate) {
            continue;
        }
        let Some(measured_s) = runner.seconds(&candidate)? else {
            break;
        };
        is_best = found.best().is_none_or(|b| measured_s < b.measured_s);
        found.trials.push(TimedTrial {
            candidate: candidates.len(),
            predicted: None,
            measured_s,
            busy: runner.busy(),
        });
        candidates.push(candidate);
    }
    Ok(())
}

/// Programs that explain the trials.
struct Ensemble<'a> {
    candidates: &'a [Candidate],
    prior: Prior,
    shapes: Vec<CandidateShape>,
    /// Parameters of each program.
    programs: Vec<Vec<f64>>,
    /// Rows of the candidates that were run, and logarithms of their seconds.
    tried: Vec<(usize, f64)>,
    residual: Residual,
    rng: PolicyRng,
}

impl<'a> Ensemble<'a> {
    fn new(candidates: &'a [Candidate], topology: &Topology, seed: u64) -> Self {
        let prior = Prior::of(topology, candidates);
        let mut rng = policy_rng(seed);
        let mut draw = || {
            let all = 0..prior.dimensions();
            all.map(|_| rng.random::<f64>()).collect()
        };
        Self {
            programs: (0..DRAWN).map(|_| draw()).collect(),
            shapes: candidates
                .iter()
                .map(|c| CandidateShape::of(c, topology))
                .collect(),
            candidates,
            prior,
            tried: Vec::new(),
            residual: Residual::default(),
            rng,
        }
    }

    fn place(&self, row: usize) -> ChunkPlace {
        let candidate = &self.candidates[row];
        (candidate.cpus.clone(), candidate.chunking.0)
    }

    /// Deviations of the trials from a program, as logarithms.
    fn deviations(&self, program: &[f64]) -> Vec<f64> {
        let of =
            |(row, log_s): &(usize, f64)| log_s - self.prior.log_time(program, &self.shapes[*row]);
        self.tried.iter().map(of).collect()
    }

    /// Distance of a program from the trials, in squared standard deviations.
    fn distance(&self, program: &[f64]) -> f64 {
        self.residual.fit(&self.deviations(program)).1
    }

    /// Moves programs freely, draws them by the likelihood of the trials, and moves each by further steps.
    fn learn(&mut self, row: usize, seconds: f64) {
        self.tried.push((row, seconds.ln()));
        let sets = || {
            let rows = self.tried.iter().map(|(row, _)| *row);
            rows.map(|row| self.place(row)).collect()
        };
        let (free, close) = (Residual::at(sets(), FREE), Residual::at(sets(), 1.0));
        self.residual = free;
        self.walk(FREE_STEPS);
        self.residual = close;
        let distances: Vec<f64> = self.programs.iter().map(|p| self.distance(p)).collect();
        let least = distances.iter().copied().fold(f64::INFINITY, f64::min);
        let precision = 0.5 * (1.0 - FREE.powi(-2));
        let weight = |distance: &f64| (-precision * (distance - least)).exp();
        self.draw(&distances.iter().map(weight).collect::<Vec<f64>>());
        self.walk(STEPS);
    }

    /// Draws as many programs by their weights (systematic resampling: one random number for all).
    fn draw(&mut self, weights: &[f64]) {
        let total: f64 = weights.iter().sum();
        let start = self.rng.random::<f64>();
        let mut row = 0;
        let mut passed = weights[0];
        let mut chosen = Vec::with_capacity(DRAWN);
        for nth in 0..DRAWN {
            let at = (nth as f64 + start) / DRAWN as f64 * total;
            while passed < at && row + 1 < weights.len() {
                row += 1;
                passed += weights[row];
            }
            chosen.push(self.programs[row].clone());
        }
        self.programs = chosen;
    }

    fn walk(&mut self, steps: usize) {
        let mut programs = std::mem::take(&mut self.programs);
        for program in &mut programs {
            let mut distance = self.distance(program);
            for _ in 0..steps {
                self.step(program, &mut distance);
            }
        }
        self.programs = programs;
    }

    /// One Metropolis step: a few parameters change; the prior is uniform and the change symmetric.
    fn step(&mut self, program: &mut Vec<f64>, distance: &mut f64) {
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
        let new = self.distance(&moved);
        if self.rng.random::<f64>() < (-0.5 * (new - *distance)).exp() {
            *program = moved;
            *distance = new;
        }
    }

    /// Logarithms of a candidate's seconds by program, and the standard deviation that each of them has.
    fn log_seconds(&self, row: usize) -> (Vec<f64>, f64) {
        if self.tried.is_empty() {
            let log =
                |program: &Vec<f64>, row: usize| self.prior.log_time(program, &self.shapes[row]);
            let relative = self.programs.iter().map(|p| log(p, row) - log(p, 0));
            return (relative.collect(), 0.0);
        }
        let (weights, spread) = self.residual.towards(&self.place(row));
        let of = |program: &Vec<f64>| {
            let deviations = self.deviations(program);
            let (common, _) = self.residual.fit(&deviations);
            let rest: Vec<f64> = deviations.iter().map(|d| d - common).collect();
            let time = self.prior.log_time(program, &self.shapes[row]);
            time + common + dot(&weights, &rest)
        };
        (self.programs.iter().map(of).collect(), spread)
    }

    fn prediction(&self, row: usize) -> TimePrediction {
        let (logs, spread) = self.log_seconds(row);
        let nodes = NORMAL.iter().map(|z| z * spread);
        let mut all: Vec<f64> = nodes
            .flat_map(|by| logs.iter().map(move |log| log + by))
            .collect();
        all.sort_by(f64::total_cmp);
        let quantile = |share: f64| all[((all.len() - 1) as f64 * share).round() as usize].exp();
        TimePrediction {
            median: quantile(0.5),
            low: quantile(0.05),
            high: quantile(0.95),
        }
    }

    /// The candidate without a trial that promises most, and its expected improvement.
    fn most_promising(&self) -> Option<(usize, f64)> {
        let times = self.tried.iter().map(|(_, log_s)| *log_s);
        let best = times.fold(f64::INFINITY, f64::min);
        let gain = |row: usize| {
            let (logs, spread) = self.log_seconds(row);
            let all = logs
                .iter()
                .flat_map(|log| NORMAL.iter().map(move |z| log + z * spread));
            let gains = all.map(|log| (-(log - best).exp_m1()).max(0.0));
            gains.sum::<f64>() / (logs.len() * NORMAL.len()) as f64
        };
        let is_open = |row: &usize| self.tried.iter().all(|(tried, _)| tried != row);
        let open = (0..self.shapes.len()).filter(is_open);
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
    use crate::threads::candidates::{Chunking, candidates, chunked};

    /// Program whose times follow a rule.
    struct Ruled<F>(F, usize);

    impl<F: Fn(&Candidate) -> f64> CandidateTimer for Ruled<F> {
        fn seconds(&mut self, candidate: &Candidate) -> anyhow::Result<Option<f64>> {
            self.1 += 1;
            Ok(Some((self.0)(candidate)))
        }
    }

    /// Time of the found candidate over the least of all, and the number of trials.
    fn found(name: &str, rule: impl Fn(&Candidate) -> f64) -> (f64, usize) {
        let machine = machine(name).unwrap();
        let topology = &machine.topology;
        let mut all = candidates(topology, &topology.groups[0].cpus);
        let least = all.iter().map(&rule).fold(f64::INFINITY, f64::min);
        let mut runner = Ruled(rule, 0);
        let found = search(&mut all, topology, &mut runner, SearchLimits::default()).unwrap();
        assert_eq!(found.trials.len(), runner.1);
        assert_eq!(found.trials[0].candidate, 0);
        (found.best().unwrap().measured_s / least, found.trials.len())
    }

    #[test]
    fn the_best_number_is_found_by_few_trials() {
        // Each thread costs: the best number lies inside.
        let costly = |c: &Candidate| 100.0 / c.threads as f64 + c.threads as f64;
        let (ratio, trials) = found("xeon-gold-6138", costly);
        assert!(ratio < 1.03 && trials <= 8, "{ratio} by {trials}");
        // Static chunks: slow cores only delay.
        let slow: countersteer_model::cpuset::CpuSet = "8-15".parse().unwrap();
        let barrier = |c: &Candidate| {
            let speed = if c.cpus.intersects(&slow) { 0.45 } else { 1.0 };
            2.0 / (c.threads as f64 * speed)
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
        impl CandidateTimer for Twice {
            fn seconds(&mut self, _: &Candidate) -> anyhow::Result<Option<f64>> {
                self.0 += 1;
                Ok((self.0 <= 2).then_some(1.0))
            }
        }
        let machine = machine("core2-quad").unwrap();
        let topology = &machine.topology;
        let mut all = candidates(topology, &topology.groups[0].cpus);
        let found = search(&mut all, topology, &mut Twice(0), SearchLimits::default()).unwrap();
        assert_eq!(found.trials.len(), 2);
        assert_eq!(found.predictions.len(), all.len());
    }

    #[test]
    fn threads_cores_and_chunking_are_found_together() {
        // Static shares wait for the slow cores; small chunks cost, large ones do not.
        let slow: countersteer_model::cpuset::CpuSet = "8-15".parse().unwrap();
        let rule = |c: &Candidate| {
            let few = c.cpus.intersection(&slow).len() as f64;
            let many = c.threads as f64 - few;
            match c.chunking.0 {
                0 if few > 0.0 => 1.0 / (0.45 * c.threads as f64),
                0 => 1.0 / many,
                1 => 1.3 / (many + 0.45 * few),
                _ => 1.01 / (many + 0.45 * few),
            }
        };
        let machine = machine("i9-12900k-8p8e").unwrap();
        let topology = &machine.topology;
        let kinds = ["static", "dynamic,1", "dynamic,64"].map(Chunking::named);
        let mut all = chunked(candidates(topology, &topology.groups[0].cpus), &kinds);
        let least = all.iter().map(rule).fold(f64::INFINITY, f64::min);
        let limits = SearchLimits {
            trials: 12,
            ..SearchLimits::default()
        };
        let found = search(&mut all, topology, &mut Ruled(rule, 0), limits).unwrap();
        let best = found.best().unwrap();
        assert!(best.measured_s < 1.03 * least, "{best:?} {least}");
        assert_eq!(all[best.candidate].chunking.0, 2);
    }

    #[test]
    fn more_threads_than_cpus_run_only_where_threads_wait() {
        /// Twelve tasks, each of which waits for a second without a CPU.
        struct Waiting(f64);
        impl CandidateTimer for Waiting {
            fn seconds(&mut self, candidate: &Candidate) -> anyhow::Result<Option<f64>> {
                Ok(Some((12.0 / candidate.threads as f64).ceil()))
            }
            fn busy(&self) -> Option<f64> {
                Some(self.0)
            }
        }
        let machine = machine("core2-quad").unwrap();
        let topology = &machine.topology;
        let best = |busy: f64| {
            let mut all = candidates(topology, &topology.groups[0].cpus);
            let limits = SearchLimits::default();
            let found = search(&mut all, topology, &mut Waiting(busy), limits).unwrap();
            assert!(found.trials.len() <= limits.trials + 4);
            all[found.best().unwrap().candidate].clone()
        };
        assert_eq!(best(0.97).threads, 4);
        let found = best(0.1);
        assert_eq!((found.threads, found.cpus.len()), (16, 4));
    }
}
