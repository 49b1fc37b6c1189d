//! Quality of advice and coverage of its intervals, over random mixes of recorded programs.
//!
//! `cargo run --release -p countersteer-lab --example advice -- [MIXES]` draws MIXES mixes (default 12) and prints a Markdown
//! section. Mixes cycle through six machines, with a separate seed. Advice is the judge's result for seeds 1 to 3 of the whole
//! shelf. The reference values are medians over other seeds. A mix has at most a minute of CPU time.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use countersteer_lab::{Experiment, LoadedMachine, SimOptions, experiment, library, plan};
use countersteer_model::policy::{PolicyRng, policy_rng};
use countersteer_policies::reach;
use countersteer_report::judge::{Facts, Ranked, Ranking, RelativeChange, Verdict, judge};
use countersteer_report::table::{CompareRun, SeedSpread};
use rand::RngExt;

/// Machines with their maximum number of programs in a mix.
const MACHINES: [(&str, usize); 6] = [
    ("i9-12900k-8p8e", 16),
    ("ryzen-7950x3d", 16),
    ("core2-quad", 8),
    ("juno-2-4", 8),
    ("quickia-2b-2s", 8),
    ("opteron-2425-2b-10s", 12),
];
const LEAST_PROGRAMS: usize = 4;
/// Factors on the length of recorded programs, which last for tenths of a second. They give policies time to act.
const SCALES: [f64; 3] = [10.0, 20.0, 40.0];
/// Number of seeds for advice.
const SEEN: u64 = 3;
/// Number of seeds for the check.
const UNSEEN: u64 = 4;
/// Seed of the random mixes.
const DRAW: u64 = 20_261;
/// Relative changes below this count as no change.
const HAIR: f64 = 0.005;

fn main() -> anyhow::Result<()> {
    let mixes: usize = match std::env::args().nth(1) {
        Some(text) => text.parse().context("how many mixes?")?,
        None => 12,
    };
    let machines: Vec<Arc<LoadedMachine>> = (MACHINES.iter())
        .map(|(name, _)| experiment::machine(name))
        .collect::<Result<_, _>>()?;
    let profiles = profiles();
    let mut rng = policy_rng(DRAW);
    let mut table = Table::default();
    for mix in 0..mixes {
        let row = mix % MACHINES.len();
        let text = draw(&mut rng, &profiles, MACHINES[row].1);
        let runs = runs(&machines[row], mix, text)?;
        table.add(&runs);
        eprintln!(
            "{} of {mixes}: {}, {}",
            mix + 1,
            MACHINES[row].0,
            table.last
        );
    }
    table.print(mixes);
    Ok(())
}

/// Shipped profiles of recorded programs.
fn profiles() -> Vec<String> {
    let recorded = library::recorded().into_iter();
    recorded.map(|text| text.path).collect()
}

/// Draws a workload of single-threaded programs.
fn draw(rng: &mut PolicyRng, profiles: &[String], most: usize) -> String {
    let programs = rng.random_range(LEAST_PROGRAMS..=most);
    let mut text = String::new();
    for _ in 0..programs {
        let profile = &profiles[rng.random_range(0..profiles.len())];
        let scale = SCALES[rng.random_range(0..SCALES.len())];
        text += &format!("[[program]]\nprofile = {profile:?}\nthreads = 1\nscale = {scale}\n\n");
    }
    text
}

/// Runs the whole shelf with all seeds.
fn runs(machine: &Arc<LoadedMachine>, mix: usize, text: String) -> anyhow::Result<Vec<CompareRun>> {
    let workload = Arc::new(plan::of_text(&format!("mix-{mix}"), text)?);
    let shelf = reach::shelf(&machine.topology).policies;
    let policies = shelf.iter().filter(|p| !reach::simulator_only(p));
    let experiments: Vec<Experiment> = policies
        .flat_map(|policy| {
            (1..=SEEN + UNSEEN).map(|seed| Experiment {
                machine: Arc::clone(machine),
                workload: Arc::clone(&workload),
                policy: policy.clone(),
                seed,
                options: SimOptions::default(),
                detail: None,
            })
        })
        .collect();
    let finished = experiment::run_all(&experiments, &|| ())?;
    let scored = experiments.iter().zip(&finished);
    Ok(scored.map(|(e, f)| e.scored(f)).collect())
}

/// Results of all mixes.
#[derive(Default)]
struct Table {
    last: String,
    best: usize,
    among_three: usize,
    /// As `among_three`, but differences of less than [`HAIR`] do not count.
    nearly_among_three: usize,
    left_to_linux: usize,
    harmful: usize,
    /// Additional gain of the best policy, by mix.
    regrets: Vec<f64>,
    /// Intervals that held and their total, by quantity.
    held: BTreeMap<&'static str, (usize, usize)>,
}

impl Table {
    fn add(&mut self, runs: &[CompareRun]) {
        let (seen, unseen): (Vec<_>, Vec<_>) = runs.iter().cloned().partition(|r| r.seed <= SEEN);
        let rankings = judge(&seen, &Facts::default());
        let Some(ranking) = rankings.first() else {
            return;
        };
        let truth = truth(&unseen);
        let advised = advised(ranking);
        let gain = truth.get(advised).copied().unwrap_or(0.0);
        let above = |by: f64| truth.values().filter(|g| **g > gain + by).count();
        let most = truth.values().copied().fold(0.0, f64::max);
        self.best += usize::from(above(0.0) == 0);
        self.among_three += usize::from(above(0.0) < 3);
        self.nearly_among_three += usize::from(above(HAIR) < 3);
        self.left_to_linux += usize::from(advised == "linux");
        self.harmful += usize::from(gain < -HAIR);
        self.regrets.push(most - gain);
        self.last = format!(
            "{advised} {:+.1} %, best {:+.1} %",
            gain * 100.0,
            most * 100.0
        );
        for policy in &ranking.deployable {
            self.hold(policy, &unseen);
        }
        if let Some(best) = ranking.best() {
            let one = [("throughput of the best", best.throughput)];
            self.count(&one, &best.policy, &unseen, |run| run.stp);
        }
    }

    fn hold(&mut self, p: &Ranked, unseen: &[CompareRun]) {
        // Policies that equal Linux have nothing to predict.
        if (p.throughput.min, p.throughput.max) == (0.0, 0.0) {
            return;
        }
        let policy = &p.policy;
        self.count(&[("throughput", p.throughput)], policy, unseen, |run| {
            run.stp
        });
        if let Some(slowdown) = p.slowdown {
            self.count(&[("mean slowdown", slowdown)], policy, unseen, |run| {
                run.antt
            });
        }
        if let Some(energy) = p.energy_per_instruction {
            let of = |run: &CompareRun| run.energy_per_instruction_nj;
            self.count(&[("energy per instruction", energy)], policy, unseen, of);
        }
        if let Some(loser) = &p.loser {
            let of = |run: &CompareRun| {
                let found = run.programs.iter().find(|q| q.name == loser.name);
                found.map_or(f64::NAN, |q| 1.0 / q.completion_s)
            };
            self.count(
                &[("speed of the worst loser", loser.speed)],
                policy,
                unseen,
                of,
            );
        }
    }

    fn count(
        &mut self,
        figures: &[(&'static str, RelativeChange)],
        policy: &str,
        unseen: &[CompareRun],
        of: impl Fn(&CompareRun) -> f64,
    ) {
        for (name, figure) in figures {
            for run in unseen.iter().filter(|run| run.policy == policy) {
                let base = unseen
                    .iter()
                    .find(|b| b.policy == "linux" && b.seed == run.seed);
                let Some(base) = base else { continue };
                let change = of(run) / of(base) - 1.0;
                let (held, all) = self.held.entry(name).or_default();
                *held += usize::from(figure.low <= change && change <= figure.high);
                *all += 1;
            }
        }
    }

    fn print(&mut self, mixes: usize) {
        self.regrets.sort_by(f64::total_cmp);
        let share = |n: usize| format!("{:.0} %", n as f64 / mixes.max(1) as f64 * 100.0);
        let mean = self.regrets.iter().sum::<f64>() / mixes.max(1) as f64;
        let worst = self.regrets.last().copied().unwrap_or(0.0);
        println!(
            "\n### Advice: {mixes} random mixes on {} machines, from seeds 1 to {SEEN}, held to {UNSEEN} unseen ones\n",
            MACHINES.len()
        );
        println!(
            "Harmful is advice that is more than {} points below `linux`; regret is what the best policy gains more, in points.\n",
            HAIR * 100.0
        );
        println!(
            "| the best | among the best three | the same to {} points | left to Linux | harmful | regret, mean | worst |",
            HAIR * 100.0
        );
        println!("|---|---|---|---|---|---|---|");
        println!(
            "| {} | {} | {} | {} | {} | {:.2} | {:.1} |",
            share(self.best),
            share(self.among_three),
            share(self.nearly_among_three),
            share(self.left_to_linux),
            self.harmful,
            mean * 100.0,
            worst * 100.0
        );
        println!(
            "\n90 % intervals that held, of runs with unseen seeds:\n\n| quantity | held | of |\n|---|---|---|"
        );
        for (name, (held, all)) in &self.held {
            println!(
                "| {name} | {:.0} % | {all} |",
                *held as f64 / *all as f64 * 100.0
            );
        }
    }
}

/// The policy that the verdict recommends.
fn advised(ranking: &Ranking) -> &str {
    match (&ranking.verdict, ranking.best()) {
        (Verdict::Use | Verdict::Costly, Some(best)) => &best.policy,
        _ => "linux",
    }
}

/// Median gain in throughput of every policy, with seeds that advice did not use.
fn truth(unseen: &[CompareRun]) -> BTreeMap<String, f64> {
    let mut ratios: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for run in unseen {
        let base = unseen
            .iter()
            .find(|b| b.policy == "linux" && b.seed == run.seed);
        if let Some(base) = base {
            ratios
                .entry(&run.policy)
                .or_default()
                .push(run.stp / base.stp - 1.0);
        }
    }
    let medians = ratios
        .into_iter()
        .map(|(p, r)| (p.to_owned(), SeedSpread::of(r).median));
    medians.collect()
}
