//! Speed-up of an application by big cores, computed from the SF of its threads, their number and the number of big cores.
//!
//! Source: the formulas that PMCTrack, section 4.1.1, takes from earlier work (Saez et al., EuroSys 2010 and TOCS 2012).
//! `dynamic` is the formula for a program whose threads share work dynamically and alternate on the big cores.

use countersteer_model::by_id::ById;
use countersteer_model::engine::ThreadInfo;
use countersteer_model::policy::HintClass;
use countersteer_model::units::ProgramId;

/// Division of a program's work among its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkDivision {
    /// Work is shared dynamically: a free thread takes the next chunk of work.
    Dynamic,
    /// Work is divided into equal shares that end at barriers, so that the slowest thread determines the speed.
    Static,
}

/// Returns the speed-up of an application with `threads` active threads of mean speed-up factor `sf` on `big` big cores.
pub(crate) fn application(kind: WorkDivision, sf: f64, threads: usize, big: usize) -> f64 {
    if threads <= big {
        return sf;
    }
    match kind {
        WorkDivision::Dynamic => 1.0 + (sf - 1.0) * big as f64 / threads as f64,
        WorkDivision::Static => 1.0,
    }
}

/// Returns the utility factor of CAMP, `SF / max(1, threads - (big - 1))^2` (Saez et al., EuroSys 2010).
pub(crate) fn utility(sf: f64, threads: usize, big: usize) -> f64 {
    let beyond = (threads as f64 - (big as f64 - 1.0)).max(1.0);
    sf / (beyond * beyond)
}

/// Default SF of a thread that has run on one type only. It is large enough that the policy sends the thread to the other
/// type.
pub(crate) const UNKNOWN: f64 = 2.5;

/// Active threads of one program.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Active {
    /// Number of active threads whose hints do not state that they spin or are blocked.
    pub threads: usize,
    /// Mean known SF of the program's active threads; the mean of all programs' threads if none is known.
    pub sf: f64,
    /// Number of the program's active threads with a known SF.
    known: usize,
}

/// Returns the active threads of each program. `sf` has one entry per thread, in the order of `threads`; `unknown` is used
/// if all entries are `None`.
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
            let got = application(WorkDivision::Dynamic, 2.0, threads, 2);
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
        assert_eq!(application(WorkDivision::Static, 3.0, 5, 2), 1.0);
    }
}
