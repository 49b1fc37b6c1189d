//! `prim`: exchanges random pairs of threads on fast and slow cores if a rule predicts that this saves energy.
//!
//! Idea: no ranking and no model of energy. Every interval the policy draws some pairs of a thread on the fastest and one on
//! the slowest type. If the counters of both lie inside one of the machine's boxes, the two threads swap cores.
//!
//! Source: PMCTrack, section 4.2.2, on Zhang et al. (DATE 2014). PRIM is the patient rule induction method, which finds the
//! boxes. The papers' rules and features are not in the sources, and the paper leaves its evaluation for future work.
//!
//! Decided here:
//! - Rules are shipped per machine (`models/<machine>.swaps.toml`), induced by `steer model rules` from recorded programs. A
//!   machine with the same core types and frequencies shares them. Features are, for both threads, IPC and three rates per
//!   1,000 instructions, as far as both core types count them: misses of the last-level cache, misses of the first-level cache,
//!   and branches.
//! - On a machine without rules, threads are placed at random and never exchanged; the reason says so.
//! - With three or more types, the fastest and the slowest exchange threads; threads on the others keep their cores.
//! - A thread that was just moved is not drawn for `settle` decisions, since its counters belong to the other type.
//! - A core of a faster type that becomes free takes a random thread of a slower one at the next decision.
//!
//! Assumes: a pair's energy does not depend on the other threads. Loses: to `ef` by construction, since the best partner may
//! not be drawn and a box does not predict how much a pair saves. With few boxes it soon stops exchanging. Phases and
//! priorities are ignored.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::engine::ThreadInfo;
use countersteer_model::machine::swaps_for;
use countersteer_model::models::swaps::{FEATURES, FeatureInterval, SwapFile, SwapRule, SwapSide};
use countersteer_model::placement::{Placement, Reason};
use countersteer_model::policy::{
    CoreSlots, Needs, ParamDef, Params, Policy, PolicyDef, PolicyError, PolicyRng, View, active,
};
use countersteer_model::topology::Topology;
use countersteer_model::units::ThreadId;
use rand::RngExt;

use crate::interval::DecisionInterval;
use crate::order::{Contender, entries, free, place};

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "prim",
    summary: "random pairs of threads on fast and slow cores are exchanged where a rule of the machine says that it saves energy",
    source: "PMCTrack, section 4.2.2 (PRIM, after Zhang et al., DATE 2014)",
    params: &[
        ParamDef {
            key: "every_ms",
            default: "200",
            prose: "time between draws, in ms",
        },
        ParamDef {
            key: "pairs",
            default: "auto",
            prose: "pairs drawn each time; auto: as many as the fewer of the fastest and the slowest cores",
        },
        ParamDef {
            key: "settle",
            default: "3",
            prose: "decisions after a thread's move in which it is not drawn",
        },
    ],
    make: |params, topology| {
        let rules = swaps_for(&topology.name, &topology.core_types);
        Ok(Box::new(Prim::new(params, topology, rules)?))
    },
};

struct Prim {
    needs: Needs,
    interval: DecisionInterval,
    /// Number of pairs drawn per interval; `None` for the number of cores of the type that has fewer.
    pairs: Option<usize>,
    /// Number of decisions after a move for which a thread is not drawn.
    settle: u32,
    /// Exchange rules for this machine; `None` without any.
    rules: Option<SwapFile>,
    slots: CoreSlots,
    /// Number of decisions since each thread's last move.
    still: BTreeMap<ThreadId, u32>,
}

/// Reason for a thread's rank.
#[derive(Clone, Copy, PartialEq)]
enum RankReason {
    Stays,
    Start,
    Filled,
    Exchanged(f64),
}

impl RankReason {
    fn reason(self, has_rules: bool) -> Reason {
        match self {
            Self::Exchanged(saving) => Reason::rule(
                "drawn with a partner whose exchange saves energy by a rule of this machine",
            )
            .saw("saving", Some(saving)),
            Self::Filled => Reason::rule("drawn for a faster core that fell free"),
            Self::Start if !has_rules => Reason::rule(
                "a core type drawn at random; there are no rules for this machine, so nothing is exchanged",
            ),
            Self::Start => Reason::rule("a core type drawn at random to begin with"),
            Self::Stays => Reason::rule("stays on its core type"),
        }
    }
}

impl Prim {
    fn new(
        params: &Params,
        topology: &Arc<Topology>,
        rules: Option<SwapFile>,
    ) -> Result<Self, PolicyError> {
        let pairs = match params.text("pairs") {
            "auto" => None,
            _ => Some(params.number("pairs", 1.0)? as usize),
        };
        let read = |metric: &&str| {
            let mut bounds = rules.iter().flat_map(|f| &f.rule).flat_map(|r| &r.bounds);
            bounds.any(|b| b.metric == **metric)
        };
        let interval = DecisionInterval::of(params, "every_ms")?;
        Ok(Self {
            needs: Needs {
                metrics: FEATURES.into_iter().filter(|m| read(m)).collect(),
                period: Some(interval.every),
                ..Needs::NOTHING
            },
            interval,
            pairs,
            settle: params.number("settle", 0.0)? as u32,
            rules,
            slots: CoreSlots::new(topology),
            still: BTreeMap::new(),
        })
    }

    /// Returns the initial ranks of a decision. Threads keep their ranks, new threads get random free core slots, and freed
    /// fast cores are filled at random.
    fn start(
        &self,
        entries: &[Contender<'_>],
        quota: &[usize],
        rng: &mut PolicyRng,
    ) -> Vec<(usize, RankReason)> {
        let last = quota.len() - 1;
        let mut room = free(quota.to_vec(), entries.iter().map(|e| e.stuck));
        let mut ranks: Vec<Option<(usize, RankReason)>> = vec![None; entries.len()];
        for (rank, entry) in ranks.iter_mut().zip(entries) {
            let held = entry.held.map(|held| held.min(last));
            if let Some(stuck) = entry.stuck {
                *rank = Some((stuck, RankReason::Stays));
            } else if let Some(held) = held.filter(|held| room[*held] > 0) {
                room[held] -= 1;
                *rank = Some((held, RankReason::Stays));
            }
        }
        for rank in ranks.iter_mut().filter(|rank| rank.is_none()) {
            let mut drawn = rng.random_range(0..room.iter().sum::<usize>().max(1));
            let free = |places: &usize| {
                let here = drawn < *places;
                drawn = drawn.saturating_sub(*places);
                here
            };
            let chosen = room.iter().position(free).unwrap_or(last);
            room[chosen] = room[chosen].saturating_sub(1);
            *rank = Some((chosen, RankReason::Start));
        }
        let mut ranks: Vec<(usize, RankReason)> = ranks.into_iter().flatten().collect();
        for fast in 0..last {
            while room[fast] > 0 {
                let slower: Vec<usize> = (0..ranks.len())
                    .filter(|row| ranks[*row].0 > fast && entries[*row].stuck.is_none())
                    .collect();
                if slower.is_empty() {
                    break;
                }
                let row = slower[rng.random_range(0..slower.len())];
                room[ranks[row].0] += 1;
                room[fast] -= 1;
                ranks[row] = (fast, RankReason::Filled);
            }
        }
        ranks
    }

    /// Draws random pairs of a thread on the fastest and one on the slowest type. Exchanges the pairs whose metrics satisfy a
    /// rule (PMCTrack, section 4.2.2).
    fn exchange(
        &self,
        view: &View<'_>,
        entries: &[Contender<'_>],
        ranks: &mut [(usize, RankReason)],
        rng: &mut PolicyRng,
    ) {
        let last = self.slots.ranks().len() - 1;
        let Some(rules) = self.rules.as_ref().filter(|_| last > 0) else {
            return;
        };
        let settled = |row: &usize| {
            let still = self.still.get(&entries[*row].info.id).copied();
            let still =
                still.is_some_and(|n| n >= self.settle) && ranks[*row].1 == RankReason::Stays;
            still && entries[*row].stuck.is_none()
        };
        let mut on = |rank: usize| -> Vec<usize> {
            let here = (0..ranks.len()).filter(|row| ranks[*row].0 == rank);
            let mut here: Vec<usize> = here.filter(settled).collect();
            shuffle(&mut here, rng);
            here
        };
        let (big, small) = (on(0), on(last));
        let cores = |rank: usize| self.slots.ranks()[rank].cores.len();
        let pairs = self.pairs.unwrap_or_else(|| cores(0).min(cores(last)));
        // Metric columns by rule and bound, looked up once per decision.
        let column = |bound: &FeatureInterval| view.metrics.column(&bound.metric);
        let columns = |rule: &SwapRule| rule.bounds.iter().map(column).collect();
        let columns: Vec<Vec<Option<usize>>> = rules.rule.iter().map(columns).collect();
        for (b, s) in big.into_iter().zip(small).take(pairs) {
            let inside = |(rule, columns): &(&SwapRule, &Vec<Option<usize>>)| {
                rule.contains(|bound, side| {
                    let row = if side == SwapSide::Fast { b } else { s };
                    let value = view.metrics.at(entries[row].info.id, columns[bound]?);
                    value.filter(|v| v.is_finite())
                })
            };
            if let Some((rule, _)) = rules.rule.iter().zip(&columns).find(inside) {
                ranks[b] = (last, RankReason::Exchanged(rule.held_out_saving));
                ranks[s] = (0, RankReason::Exchanged(rule.held_out_saving));
            }
        }
    }

    /// Updates the number of decisions since each thread's last move.
    fn remember(
        &mut self,
        entries: &[Contender<'_>],
        ranks: &[(usize, RankReason)],
        alive: &[ThreadInfo],
    ) {
        self.still
            .retain(|id, _| alive.binary_search_by_key(id, |t| t.id).is_ok());
        for (entry, (_, why)) in entries.iter().zip(ranks) {
            let still = self.still.entry(entry.info.id).or_default();
            *still = if *why == RankReason::Stays {
                *still + 1
            } else {
                0
            };
        }
    }
}

fn shuffle(rows: &mut [usize], rng: &mut PolicyRng) {
    for row in (1..rows.len()).rev() {
        rows.swap(row, rng.random_range(0..=row));
    }
}

impl Policy for Prim {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn tune(&mut self, params: &Params, topology: &Arc<Topology>) -> Result<(), PolicyError> {
        let new = Self::new(params, topology, self.rules.take())?;
        *self = Self {
            interval: self.interval.as_long_as(new.interval),
            slots: std::mem::replace(&mut self.slots, CoreSlots::new(topology)),
            still: std::mem::take(&mut self.still),
            ..new
        };
        Ok(())
    }

    fn decide(&mut self, view: &mut View<'_>, rng: &mut PolicyRng) -> Placement {
        let present = active(view);
        if self.slots.ranks().is_empty() || !self.interval.is_over(view.now) {
            return Placement::default();
        }
        self.interval.begin(view.now);
        let entries = entries(&present, &self.slots);
        let quota = self.slots.quota(entries.len());
        let mut ranks = self.start(&entries, &quota, rng);
        self.exchange(view, &entries, &mut ranks, rng);
        self.remember(&entries, &ranks, view.threads);
        let has_rules = self.rules.as_ref().is_some_and(|f| !f.rule.is_empty());
        let only: Vec<usize> = ranks.iter().map(|(rank, _)| *rank).collect();
        let metrics = self.needs.metrics.iter();
        let columns: Vec<(&'static str, Option<usize>)> = metrics
            .map(|name| (*name, view.metrics.column(name)))
            .collect();
        place(&mut self.slots, &entries, &only, |row| {
            let reason = ranks[row].1.reason(has_rules);
            columns.iter().fold(reason, |reason, (name, column)| {
                let value = column.and_then(|c| view.metrics.at(entries[row].info.id, c));
                reason.saw(*name, value.filter(|v| v.is_finite()))
            })
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test helper that fails has failed its test
mod tests {
    use super::*;
    use countersteer_model::engine::Observation;
    use countersteer_model::machine::Machine;
    use countersteer_model::metric::MetricBank;
    use countersteer_model::models::swaps::{SCHEMA, SwapsJudged};
    use countersteer_model::sample::{Event, Sample, Samples};
    use countersteer_model::units::{CpuId, Nanos, ProgramId};
    use rand::SeedableRng;

    fn topology() -> Arc<Topology> {
        let machine = include_str!("../tests/toy/two-big-two-small.toml");
        Arc::new(Topology::new(&Machine::parse("m", machine).unwrap()))
    }

    /// Rules that exchange a slow thread on a big core for a fast one on a small core.
    fn rules() -> SwapFile {
        let bound = |thread, least, most| FeatureInterval {
            thread,
            metric: "ipc".into(),
            least,
            most,
        };
        SwapFile {
            schema: SCHEMA.into(),
            machine: "two-big-two-small".into(),
            fast: "big".into(),
            slow: "small".into(),
            clock_ratio: 1.5,
            trained_on: String::new(),
            judged: SwapsJudged::default(),
            rule: vec![SwapRule {
                saving: 0.2,
                held_out_saving: 0.1,
                support: 0.1,
                bounds: vec![
                    bound(SwapSide::Fast, None, Some(1.0)),
                    bound(SwapSide::Slow, Some(1.0), None),
                ],
            }],
        }
    }

    fn big(seed: u64, decisions: u64, rules: Option<SwapFile>) -> (Vec<usize>, u32) {
        big_where("", seed, decisions, rules)
    }

    /// Threads on big cores after a number of decisions, and the number of moves. Thread n has IPC n / 2 + .25 on every core.
    fn big_where(
        params: &str,
        seed: u64,
        decisions: u64,
        rules: Option<SwapFile>,
    ) -> (Vec<usize>, u32) {
        let topology = topology();
        let params = Params::parse(&DEF, params).unwrap();
        let mut policy = Prim::new(&params, &topology, rules).unwrap();
        let thread = |id: u32| ThreadInfo {
            id: ThreadId(id),
            program: ProgramId(id),
            name: "p".into(),
            cpu: CpuId(id),
            runnable: true,
            nice: 0,
            allowed: Arc::clone(&topology.groups[0].cpus),
            hint: None,
        };
        let mut threads: Vec<ThreadInfo> = (0..4).map(thread).collect();
        let mut metrics = MetricBank::new(&topology, &policy.needs.metrics);
        let mut rng = PolicyRng::seed_from_u64(seed);
        let mut moved = 0;
        for decision in 0..decisions {
            let now = Nanos(decision * 200_000_000);
            let samples = threads.iter().map(|info| {
                let instructions = 1e8 * (f64::from(info.id.0) / 2.0 + 0.25);
                let counts = [(Event::Cycles, 1e8), (Event::Instructions, instructions)];
                let time = Nanos::from_millis(200);
                Samples::of(
                    Sample::of_thread(
                        info.id,
                        info.cpu,
                        topology.core_type_of(info.cpu),
                        now,
                        time,
                    ),
                    1,
                    &counts,
                )
            });
            metrics.update(&Observation {
                samples: samples.collect(),
                ..Observation::default()
            });
            let mut view = View {
                group: None,
                programs: &[],
                now,
                topology: &topology,
                threads: &threads,
                events: &[],
                metrics: &metrics,
                forecast: None,
            };
            for placed in policy.decide(&mut view, &mut rng).threads {
                let info = &mut threads[placed.thread.index()];
                info.allowed = placed.target.cpus(&topology);
                info.cpu = info.allowed.lowest().unwrap();
                moved += u32::from(decision > 0);
            }
        }
        let on_big = |row: &usize| topology.core_type_of(threads[*row].cpu).index() == 0;
        ((0..4).filter(on_big).collect(), moved)
    }

    #[test]
    fn pairs_inside_a_rule_change_places_and_then_all_stay() {
        for seed in 0..20 {
            // Threads 0 and 1 have IPCs below 1, threads 2 and 3 above. All exchanges end here, whatever the start.
            let (on_big, moved) = big(seed, 60, Some(rules()));
            assert_eq!(on_big, [2, 3], "seed {seed}");
            assert!(moved <= 4, "seed {seed}: {moved} moves");
        }
    }

    #[test]
    fn a_start_is_random_balanced_and_the_same_for_a_seed() {
        let starts: Vec<Vec<usize>> = (0..20).map(|seed| big(seed, 1, None).0).collect();
        assert!(starts.iter().all(|s| s.len() == 2), "{starts:?}");
        assert!(starts.iter().any(|s| *s != starts[0]), "{starts:?}");
        assert_eq!(starts[3], big(3, 1, None).0);
    }

    #[test]
    fn nothing_is_drawn_before_the_interval_is_over() {
        // Decisions come every 200 ms.
        for seed in 0..20 {
            let exchanged =
                |decisions| big_where("every_ms=1000,settle=0", seed, decisions, Some(rules())).1;
            assert_eq!(exchanged(5), 0, "seed {seed}");
        }
        let exchanged = |seed| big_where("every_ms=1000,settle=1", seed, 11, Some(rules())).1 > 0;
        assert!((0..20).any(exchanged));
    }

    #[test]
    fn without_rules_nothing_is_exchanged() {
        for seed in 0..5 {
            assert_eq!(big(seed, 40, None).1, 0);
        }
    }
}
