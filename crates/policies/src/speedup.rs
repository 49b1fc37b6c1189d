//! What big cores are worth to an application: its speed-up from the SF of its threads, their number and that of big cores.
//!
//! Source: the formulas that PMCTrack, section 4.1.1, takes from earlier work (Saez et al., EuroSys 2010 and TOCS 2012);
//! `dynamic` is that of a program whose threads share work dynamically and take turns on the big cores.

use std::collections::BTreeMap;

use countersteer_core::engine::ThreadInfo;
use countersteer_core::policy::HintClass;
use countersteer_core::units::ProgramId;

/// How a program's threads divide their work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Whoever is free takes the next piece.
    Dynamic,
    /// Equal shares with barriers: the slowest thread decides.
    Static,
}

/// Speed-up of an application of `threads` active threads with mean speed-up factor `sf` on `big` big cores.
pub(crate) fn application(kind: Kind, sf: f64, threads: usize, big: usize) -> f64 {
    if threads <= big {
        return sf;
    }
    match kind {
        Kind::Dynamic => 1.0 + (sf - 1.0) * big as f64 / threads as f64,
        Kind::Static => 1.0,
    }
}

/// CAMP's utility factor.
pub(crate) fn utility(sf: f64, threads: usize, big: usize) -> f64 {
    let beyond = (threads as f64 - (big as f64 - 1.0)).max(1.0);
    sf / (beyond * beyond)
}

/// What is known of a program's active threads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Active {
    /// Threads that are active and do not wait by their own word.
    pub threads: usize,
    /// Their mean SF; the mean of all programs where none is known.
    pub sf: f64,
}

/// Every program with active threads; `sf` gives each thread's, in the order of `threads`.
pub(crate) fn programs(threads: &[&ThreadInfo], sf: &[Option<f64>]) -> BTreeMap<ProgramId, Active> {
    let known: Vec<f64> = sf.iter().flatten().copied().collect();
    let mean = if known.is_empty() {
        1.0
    } else {
        known.iter().sum::<f64>() / known.len() as f64
    };
    let mut sums: BTreeMap<ProgramId, (usize, f64, usize)> = BTreeMap::new();
    for (info, sf) in threads.iter().zip(sf) {
        let (count, sum, known) = sums.entry(info.program).or_default();
        *count += usize::from(HintClass::of(info, None, false, 0.0) != HintClass::Waiting);
        *sum += sf.unwrap_or(0.0);
        *known += usize::from(sf.is_some());
    }
    let active = |(program, (threads, sum, known)): (ProgramId, (usize, f64, usize))| {
        let sf = if known > 0 { sum / known as f64 } else { mean };
        let threads = threads.max(1);
        (program, Active { threads, sf })
    };
    sums.into_iter().map(active).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_figures_for_sf_two_on_two_big_cores() {
        let speedups = [
            (1, 2.0),
            (2, 2.0),
            (3, 1.667),
            (4, 1.5),
            (6, 1.333),
            (9, 1.222),
        ];
        for (threads, expected) in speedups {
            let got = application(Kind::Dynamic, 2.0, threads, 2);
            assert!((got - expected).abs() < 5e-4, "{threads} threads: {got}");
        }
        let utilities = [
            (1, 2.0),
            (2, 2.0),
            (3, 0.5),
            (4, 0.222),
            (6, 0.08),
            (9, 0.031),
        ];
        for (threads, expected) in utilities {
            let got = utility(2.0, threads, 2);
            assert!((got - expected).abs() < 5e-4, "{threads} threads: {got}");
        }
    }

    #[test]
    fn threads_with_equal_shares_wait_for_the_slowest() {
        assert_eq!(application(Kind::Static, 3.0, 5, 2), 1.0);
    }
}
