//! What big cores are worth to an application: its speed-up from the SF of its threads, their number and that of big cores.
//!
//! Source: the formulas that PMCTrack, section 4.1.1, takes from earlier work (Saez et al., EuroSys 2010 and TOCS 2012);
//! `dynamic` is that of a program whose threads share work dynamically and take turns on the big cores.

use countersteer_model::by_id::ById;
use countersteer_model::engine::ThreadInfo;
use countersteer_model::policy::HintClass;
use countersteer_model::units::ProgramId;

/// How a program's threads divide their work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A thread that is free takes the next piece.
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

/// SF of a thread that has run on one type only, where the policy needs a value by which it comes to the other.
pub(crate) const UNKNOWN: f64 = 2.5;

/// What is known of a program's active threads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Active {
    /// Threads that are active and do not wait by their own word.
    pub threads: usize,
    /// Their mean SF; the mean of all threads where none of theirs is known.
    pub sf: f64,
    known: usize,
}

/// Every program with active threads; `sf` gives each thread's, in the order of `threads`. Where no thread has any, it is `unknown`.
pub(crate) fn programs(
    threads: &[&ThreadInfo],
    sf: &[Option<f64>],
    unknown: f64,
) -> ById<ProgramId, Active> {
    let mut programs: ById<ProgramId, Active> = ById::default();
    let (mut sum, mut known) = (0.0, 0usize);
    for (info, sf) in threads.iter().zip(sf) {
        let program = programs.entry(info.program, Active::default);
        program.threads += usize::from(HintClass::of(info, None, false, 0.0) != HintClass::Waiting);
        if let Some(sf) = sf {
            program.sf += sf;
            program.known += 1;
            sum += sf;
            known += 1;
        }
    }
    let mean = if known > 0 {
        sum / known as f64
    } else {
        unknown
    };
    for program in programs.values_mut() {
        program.threads = program.threads.max(1);
        program.sf = if program.known > 0 {
            program.sf / program.known as f64
        } else {
            mean
        };
    }
    programs
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
