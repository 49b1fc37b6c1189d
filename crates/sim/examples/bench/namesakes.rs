//! Recorded programs beside the published program that each is most like: mispredicted branches, and misses by cache size.
//!
//! The pairs are in `bench/silicon.tsv`; the published figures are those of `profiles/published/*-2017`. A recorded program that is
//! like its namesake has every figure within a factor of [`LIKE`].

use std::error::Error;
use std::sync::Arc;

use countersteer_model::profile::{MissCurve, Profile, Recorded};

use super::runner::{profiles, quantile, root};

/// Cache sizes in KiB: L1, L2 and last level of the machine of the published figures.
const SIZES_KIB: [f64; 3] = [32.0, 1024.0, 20_736.0];
/// Factor within which figures count as alike.
const LIKE: f64 = 1.5;
/// Rate per kilo-instruction below which a figure hardly costs time. Two such figures are alike.
const LITTLE: f64 = 0.1;

/// Mispredictions and misses at [`SIZES_KIB`], per kilo-instruction.
type Figures = [f64; 4];

/// Prints the section.
pub fn run() -> Result<(), Box<dyn Error>> {
    let (recorded, published) = (profiles("recorded")?, profiles("published")?);
    let find = |all: &[Arc<Profile>], name: &str| -> Result<Figures, String> {
        let found = all.iter().find(|p| p.name() == name);
        match found.map(|p| &**p) {
            Some(Profile::Recorded(recorded)) => Ok(figures(recorded)),
            _ => Err(format!("there is no recorded profile `{name}`")),
        }
    };
    println!(
        "\n### Recorded programs beside their namesakes\n\nMispredicted branches and misses of 32 KiB, 1 MiB and 20.25 MiB per kilo-instruction, recorded/published, and the factor between them.\nTwo figures below {LITTLE} are alike.\n\n| recorded ~ published | branches | L1 | L2 | LLC | within {LIKE} |\n|---|---|---|---|---|---|"
    );
    let text = std::fs::read_to_string(root().join("bench/silicon.tsv"))?;
    let mut factors: [Vec<f64>; 4] = Default::default();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let [name, _family, like, _kind, _half] = line.split('\t').collect::<Vec<_>>()[..] else {
            return Err(format!("bench/silicon.tsv: five columns expected in `{line}`").into());
        };
        let short = like[4..].trim_end_matches("_r");
        let ours = find(&recorded, name)?;
        let theirs = find(&published, &format!("{short}-2017"))?;
        let mut cells = String::new();
        let mut within = 0;
        for ((a, b), all) in ours.iter().zip(theirs).zip(&mut factors) {
            let factor = a.max(LITTLE) / b.max(LITTLE);
            let apart = factor.max(1.0 / factor);
            within += usize::from(apart <= LIKE);
            all.push(apart);
            cells += &format!(" {a:.2}/{b:.2} {factor:.1} |");
        }
        println!("| {name} ~ {short} |{cells} {within} of 4 |");
    }
    let cells = factors.map(|mut all| {
        all.sort_by(f64::total_cmp);
        let within = all.iter().filter(|f| **f <= LIKE).count();
        format!(" {:.1}; {within} of {} |", quantile(&all, 0.5), all.len())
    });
    println!("| median factor; within {LIKE} |{} |", cells.concat());
    Ok(())
}

/// Means over the behaviours of a profile.
fn figures(profile: &Recorded) -> Figures {
    let mut sums = Figures::default();
    for (behaviour, share) in profile.behaviours.iter().zip(profile.shares()) {
        let curve = MissCurve::from_locality(&behaviour.locality);
        let misses = SIZES_KIB.map(|kib| curve.mpki(kib * 16.0));
        let all = std::iter::once(behaviour.branch_mpki).chain(misses);
        sums.iter_mut()
            .zip(all)
            .for_each(|(sum, figure)| *sum += share * figure);
    }
    sums
}
