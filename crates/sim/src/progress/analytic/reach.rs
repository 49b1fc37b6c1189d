//! Costs of misses of the instruction cache and of translation buffers.
//!
//! Input: the locality of a behaviour's code and pages, and the buffers of a core. Output: cycles by which fetching stops, and
//! cycles by which translation delays loads. A curve that the profile lacks costs nothing.
//!
//! Code costs are for cores like the measured one only. On Skylake they made predictions of held-out measurements worse: 2.8 % instead
//! of 2.4 % of the cycles over cache sizes, and 14.2 instead of 13.7 % over another table.
//!
//! The two constants are fitted on counters of a Nehalem, the only public ones that have the cycles: fetch stalls of 55 programs
//! of SPEC CPU2000 and CPU2006 over their misses of L1I and page walks for code. Leave one program out, the stalls of the programs
//! that stall in 1 of 1,000 cycles or more are 11 % off in the median. The cost of page walks for data follows from the latency
//! of loads, like that of misses of the first-level data cache.

use countersteer_model::machine::{Buffers, CorePipeline, CoreType};
use countersteer_model::profile::{Behaviour, Reuse};

use super::class::CpuClass;

/// Part of the latency of the next level for which a miss of the instruction cache stops fetching: 1.8 of 10 cycles.
const FETCH_STOPS: f64 = 0.18;
/// Cycles for which a page walk for code stops fetching. New pages of code mostly mean misses of farther caches, too, which
/// this number includes.
const CODE_WALK_CYCLES: f64 = 222.0;
/// Size in KiB of the pages of the recorded curves.
const RECORDED_PAGE_KIB: f64 = 4.0;

/// Costs of one behaviour.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ReachCost {
    /// Cycles per instruction for which fetching stops.
    pub fetch: f64,
    /// Cycles per instruction by which translation delays data accesses.
    pub translation: f64,
}

/// Returns the costs on a class of CPUs.
pub(crate) fn reach_cost(
    behaviour: &Behaviour,
    core_type: &CoreType,
    class: &CpuClass,
) -> ReachCost {
    let pipeline = core_type.pipeline.as_deref().and_then(CorePipeline::named);
    let buffers = pipeline.and_then(|p| p.buffers.as_ref());
    let shared = class.levels.first().map(|l| l.latency_cycles);
    let next = core_type.l2.map(|l2| l2.latency_cycles).or(shared);
    let next = next.unwrap_or(class.memory_cycles);
    cost(behaviour, buffers, next, f64::from(class.threads))
}

/// Returns the costs with buffers that `siblings` threads share. `next_cycles` is the latency of the level behind the
/// instruction cache.
fn cost(
    behaviour: &Behaviour,
    buffers: Option<&Buffers>,
    next_cycles: f64,
    siblings: f64,
) -> ReachCost {
    let Some((reach, buffers)) = behaviour.reach.as_ref().zip(buffers) else {
        return ReachCost::default();
    };
    let misses = |reuse: Option<&Reuse>, entries: f64| {
        reuse.map_or(0.0, |r| r.curve().mpki(entries / siblings) / 1000.0)
    };
    let pages = |reuse, entries: f64| misses(reuse, entries * buffers.page_kib / RECORDED_PAGE_KIB);
    // Misses of a first and of the second level, which holds what the first holds.
    let both = |reuse, first: f64| {
        let missed = pages(reuse, first);
        (missed, pages(reuse, buffers.second_entries.max(first)))
    };
    let lines = buffers
        .code_kib
        .map_or(0.0, |kib| misses(reach.code_lines.as_ref(), kib * 16.0));
    let of_code = |entries| both(reach.code_pages.as_ref(), entries);
    let (code, code_walks) = buffers.code_entries.map_or((0.0, 0.0), of_code);
    let (data, data_walks) = both(reach.data_pages.as_ref(), buffers.data_entries);
    ReachCost {
        fetch: lines * FETCH_STOPS * next_cycles
            + (code - code_walks) * buffers.second_cycles
            + code_walks * CODE_WALK_CYCLES,
        translation: (data - data_walks) * buffers.second_cycles + data_walks * buffers.walk_cycles,
    }
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::{compute, profile};
    use super::*;
    use countersteer_model::profile::{Profile, Reach};

    const BUFFERS: Buffers = Buffers {
        code_kib: Some(32.0),
        code_entries: Some(128.0),
        data_entries: 64.0,
        second_entries: 512.0,
        second_cycles: 7.0,
        walk_cycles: 22.0,
        page_kib: 4.0,
    };

    fn behaviour() -> Behaviour {
        let Profile::Recorded(recorded) = profile("p", &[(compute(), 1_000_000)]) else {
            panic!("synthetic profiles are recorded ones");
        };
        let through = |points: &[(f64, f64)]| Some(Reuse::through(points));
        let mut behaviour = recorded.behaviours[0].clone();
        behaviour.reach = Some(Reach {
            code_lines: through(&[(128.0, 40.0), (512.0, 10.0), (4096.0, 1.0)]),
            code_pages: through(&[(16.0, 2.0), (128.0, 0.5), (512.0, 0.1), (4096.0, 0.0)]),
            data_pages: through(&[(16.0, 60.0), (64.0, 20.0), (512.0, 5.0), (8192.0, 1.0)]),
            branch_targets: None,
        });
        behaviour
    }

    #[test]
    fn costs_are_misses_times_cycles() {
        let cost = cost(&behaviour(), Some(&BUFFERS), 10.0, 1.0);
        let fetch = 0.010 * 1.8 + 0.0004 * 7.0 + 0.0001 * 222.0;
        let translation = 0.015 * 7.0 + 0.005 * 22.0;
        assert!((cost.fetch / fetch - 1.0).abs() < 0.02, "{cost:?}");
        assert!(
            (cost.translation / translation - 1.0).abs() < 0.02,
            "{cost:?}"
        );
    }

    #[test]
    fn what_is_unknown_costs_nothing() {
        let mut unknown = behaviour();
        assert_eq!(cost(&unknown, None, 10.0, 1.0), ReachCost::default());
        let without = Buffers {
            code_kib: None,
            code_entries: None,
            ..BUFFERS
        };
        assert_eq!(cost(&unknown, Some(&without), 10.0, 1.0).fetch, 0.0);
        unknown.reach = None;
        let cost = cost(&unknown, Some(&BUFFERS), 10.0, 1.0);
        assert_eq!(cost, ReachCost::default());
    }

    #[test]
    fn every_number_of_the_buffers_matters_and_siblings_share_them() {
        let behaviour = behaviour();
        let with = |change: fn(&mut Buffers)| {
            let mut buffers = BUFFERS;
            change(&mut buffers);
            cost(&behaviour, Some(&buffers), 10.0, 1.0)
        };
        let before = with(|_| ());
        let changes: [fn(&mut Buffers); 7] = [
            |b| b.code_kib = Some(16.0),
            |b| b.code_entries = Some(64.0),
            |b| b.data_entries *= 0.5,
            |b| b.second_entries *= 0.5,
            |b| b.second_cycles *= 2.0,
            |b| b.walk_cycles *= 2.0,
            |b| b.page_kib *= 0.5,
        ];
        for (nth, change) in changes.into_iter().enumerate() {
            let after = with(change);
            let more = after.fetch + after.translation - before.fetch - before.translation;
            assert!(more > 0.0, "change {nth}: {after:?}");
        }
        let shared = cost(&behaviour, Some(&BUFFERS), 10.0, 2.0);
        assert!(shared.fetch > before.fetch && shared.translation > before.translation);
    }
}
