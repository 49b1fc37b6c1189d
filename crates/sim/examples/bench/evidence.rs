//! Frequency of wrong decisions of trials, and time to right ones, if they are checked after every pair.
//!
//! Noise is the standard deviation of a pair's logarithm, 4 %; 5.7 % is 4 % in each of its two blocks. Blocks of a pair have a
//! random order, so the noise of a pair is symmetric, whatever the noise of a block.

use std::error::Error;

use countersteer_model::evidence::{Evidence, GainDecision};
use countersteer_model::policy::PolicyRng;
use rand::{RngExt, SeedableRng};

const TRIALS: usize = 4000;
const CONFIDENCE: f64 = 0.95;
const MARGIN: f64 = 0.01;

/// Noise of mean 0 and standard deviation 1.
type Noise = fn(&mut PolicyRng) -> f64;

const NOISES: [(&str, Noise); 3] = [
    ("normal", normal),
    ("skewed blocks (exponential)", skewed_blocks),
    ("one pair of 20 five times as noisy", disturbed),
];

/// Prints the section.
pub fn run() -> Result<(), Box<dyn Error>> {
    println!(
        "### Trials that are looked at after every pair: {TRIALS} of each, 95 % confidence, margin 1 %\n"
    );
    println!(
        "Wrong is a gain where there is none, a loss where there is none, or no difference where it is as large as the margin.\n"
    );
    println!(
        "| noise | of a pair | true gain | pairs at most | faster | slower | no difference | wrong | median pairs |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (name, noise) in NOISES {
        for gain in [0.0, MARGIN, -MARGIN] {
            row(name, noise, 0.04, gain, 1000);
        }
    }
    for spread in [0.04, 0.04 * std::f64::consts::SQRT_2] {
        for gain in [0.03, -0.03] {
            row("normal", normal, spread, gain, 40);
        }
    }
    println!();
    Ok(())
}

fn row(name: &str, noise: Noise, spread: f64, gain: f64, most: u64) {
    let mut rng = PolicyRng::seed_from_u64(7);
    let mut counts = [0_usize; 3];
    let mut ends = Vec::with_capacity(TRIALS);
    for _ in 0..TRIALS {
        let (verdict, pairs) = trial(&mut rng, noise, spread, gain, most);
        if let Some(verdict) = verdict {
            counts[verdict as usize] += 1;
        }
        ends.push(pairs);
    }
    ends.sort_unstable();
    let [faster, slower, equivalent] = counts.map(|n| 100.0 * n as f64 / TRIALS as f64);
    let wrong = match gain {
        0.0 => faster + slower,
        gain if gain > 0.0 => slower + equivalent,
        _ => faster + equivalent,
    };
    println!(
        "| {name} | {:.1} % | {:+.0} % | {most} | {faster:.1} % | {slower:.1} % | {equivalent:.1} % | {wrong:.1} % | {} |",
        spread * 100.0,
        gain * 100.0,
        ends[TRIALS / 2]
    );
}

/// First verdict of a trial and the number of pairs before it; all pairs if there is none.
fn trial(
    rng: &mut PolicyRng,
    noise: Noise,
    spread: f64,
    gain: f64,
    most: u64,
) -> (Option<GainDecision>, u64) {
    let mut evidence = Evidence::default();
    let verdict = (0..most).find_map(|_| {
        evidence.push(gain.ln_1p() + spread * noise(rng));
        evidence.verdict(CONFIDENCE, MARGIN)
    });
    (verdict, evidence.pairs())
}

/// Draws a normal deviate by the method of Box and Muller.
fn normal(rng: &mut PolicyRng) -> f64 {
    let radius = (2.0 * exponential(rng)).sqrt();
    radius * (std::f64::consts::TAU * rng.random::<f64>()).cos()
}

fn skewed_blocks(rng: &mut PolicyRng) -> f64 {
    (exponential(rng) - exponential(rng)) / std::f64::consts::SQRT_2
}

fn disturbed(rng: &mut PolicyRng) -> f64 {
    let factor = if rng.random::<f64>() < 0.05 { 5.0 } else { 1.0 };
    factor * normal(rng) / (0.95_f64 + 0.05 * 25.0).sqrt()
}

fn exponential(rng: &mut PolicyRng) -> f64 {
    -(1.0 - rng.random::<f64>()).ln()
}
