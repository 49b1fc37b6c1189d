//! `ef`: the threads with the highest efficiency factors run on the fastest cores.
//!
//! Idea: EF is the energy-delay product (EDP) of a thread on the slowest core type over that on the fastest. The fastest cores
//! therefore go to the threads whose EDP they improve most. If the energy ratios SF/EF of all threads are alike, energy does
//! not distinguish threads, and SF decides.
//!
//! Source: "EF-Driven" in PMCTrack, section 4.2.2. `ef=static` is the paper's experiment: overall EFs of programs measured
//! alone, and a mapping that changes only when programs start or end. `ef=model` is the paper's future work: EFs predicted from
//! counters of the core type on which the thread runs; no result for it is published. `ef=oracle` knows the EF of the present
//! phase (simulator only).
//!
//! Decided here:
//! - Source of static EFs: `factors=`, measured by the user. For other programs the engine's forecast of the program alone
//!   (simulator only). A program or thread without an EF counts as the mean of the known ones. If none is known, SF decides.
//! - Hysteresis of `ef=model` and `ef=oracle`, as in `hsf`: a challenger needs a lead of `margin`, or the same order for
//!   `patience` decisions. `ef=static` has none, since its factors do not change.
//! - With `idle=auto` a thread with an EF below 1 stays on the slowest type as long as a core of that type is free for it, even
//!   if a faster core is free: there its EDP is lower. It never occurs on the paper's board, where every EF is above 1.
//! - Threads whose hints state that they spin or are blocked are ranked last.
//!
//! Assumes: energies of threads add up, and the rest of the machine's energy depends on the run's length alone. Loses:
//! throughput against `hsf` if EF and SF disagree. EDP if idle power is most of the total, since then the shortest run is best.
//! Also with several threads per program: it ignores that they wait for each other, as the paper's programs have one thread
//! each.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::engine::{ThreadForecast, ThreadInfo};
use countersteer_model::placement::{Placement, Reason};
use countersteer_model::policy::{
    CoreSlots, HintClass, Needs, ParamDef, Params, Policy, PolicyDef, PolicyError, PolicyRng, View,
    active,
};
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, ProgramId, ThreadId};

use crate::order::{Contender, entries, place, ranks_where};

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "ef",
    summary: "efficiency factor first: fastest cores to the threads whose energy-delay product they improve most",
    source: "PMCTrack, section 4.2.2 (EF-Driven)",
    params: &[
        ParamDef {
            key: "ef",
            default: "model",
            prose: "where efficiency factors come from: model (counters where the thread runs), static (of the program alone: `factors`, \
                    else a forecast that only a simulator makes), oracle (the truth; simulator only)",
        },
        ParamDef {
            key: "factors",
            default: "",
            prose: "with ef=static: what was measured, PROGRAM/EF or PROGRAM/EF/SF joined by `+`, such as art/2.1/1.4+gap/1.2",
        },
        ParamDef {
            key: "spread",
            default: "0.05",
            prose: "where the ratios of SF to EF of all threads lie within this fraction, SF decides",
        },
        ParamDef {
            key: "margin",
            default: "0.05",
            prose: "a challenger must be ahead by this fraction to take a core slot at once (not with ef=static)",
        },
        ParamDef {
            key: "patience",
            default: "10",
            prose: "decisions in a row after which a thread that is ranked lower loses its core slot to any challenger (not with ef=static)",
        },
        ParamDef {
            key: "idle",
            default: "auto",
            prose: "auto: threads with an efficiency factor below 1 stay on the slowest cores although faster ones are free; fill: \
                    the fastest cores are filled whatever the factors",
        },
    ],
    make: |params, topology| Ok(Box::new(Ef::new(params, topology)?)),
};

/// Source of the speed-up and efficiency factors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FactorSource {
    Model,
    Static,
    Oracle,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Factors {
    sf: Option<f64>,
    ef: Option<f64>,
}

impl Factors {
    /// Clamps SF to 1 to 7 and EF to 0.1 to 10. A value that is not positive and finite becomes `None`.
    fn new(sf: Option<f64>, ef: Option<f64>) -> Self {
        let kept = |value: Option<f64>, least, most| {
            let usable = value.filter(|v| v.is_finite() && *v > 0.0);
            usable.map(|v| v.clamp(least, most))
        };
        Self {
            sf: kept(sf, 1.0, 7.0),
            ef: kept(ef, 0.1, 10.0),
        }
    }

    /// Returns the energy per instruction on the fastest core type divided by that on the slowest. `None` if a factor is
    /// unknown.
    fn energy_ratio(&self) -> Option<f64> {
        Some(self.sf? / self.ef?)
    }
}

struct Ef {
    needs: Needs,
    source: FactorSource,
    spread: f64,
    margin: f64,
    patience: u32,
    /// True if threads with an EF below 1 are kept off faster cores (`idle=auto`).
    keeps_low: bool,
    /// Factors that the user measured, by program name.
    given: BTreeMap<String, Factors>,
    slots: CoreSlots,
    /// Static factors of each program, once determined.
    known: BTreeMap<ProgramId, Factors>,
    /// Number of consecutive decisions that ranked a thread below its assigned rank.
    doubt: BTreeMap<ThreadId, u32>,
}

impl Ef {
    fn new(params: &Params, topology: &Arc<Topology>) -> Result<Self, PolicyError> {
        let sources = [
            ("model", FactorSource::Model),
            ("static", FactorSource::Static),
            ("oracle", FactorSource::Oracle),
        ];
        let source = params.choice("ef", &sources)?;
        let needs = match source {
            FactorSource::Model => Needs::metrics(&["ef", "sf"]),
            FactorSource::Oracle => Needs::metrics(&["ef_oracle", "sf_oracle"]),
            FactorSource::Static => Needs::EVENTS,
        };
        let given = given(params.text("factors"))?;
        if source != FactorSource::Static && !given.is_empty() {
            let why = "only `ef=static` reads factors that were measured";
            return Err(bad(params.text("factors"), why));
        }
        let fixed = source == FactorSource::Static;
        Ok(Self {
            needs,
            source,
            spread: params.number("spread", 0.0)?,
            margin: params.number("margin", 0.0)? * f64::from(u8::from(!fixed)),
            patience: params.number("patience", 1.0)? as u32,
            keeps_low: params.choice("idle", &[("auto", true), ("fill", false)])?,
            given,
            slots: CoreSlots::new(topology),
            known: BTreeMap::new(),
            doubt: BTreeMap::new(),
        })
    }

    /// Returns the factors of a thread; `columns` are the metric columns of SF and EF.
    fn factors(
        &mut self,
        view: &mut View<'_>,
        info: &ThreadInfo,
        columns: [Option<usize>; 2],
    ) -> Factors {
        match self.source {
            FactorSource::Model | FactorSource::Oracle => {
                let [sf, ef] = columns.map(|column| view.metrics.at(info.id, column?));
                Factors::new(sf, ef)
            }
            FactorSource::Static => {
                if let Some(known) = self.known.get(&info.program) {
                    return *known;
                }
                self.known.retain(|program, _| view.may_return(*program));
                let given = self.given.get(&*info.name).copied();
                let factors = given.unwrap_or_else(|| self.foreseen(view, info.id));
                self.known.insert(info.program, factors);
                factors
            }
        }
    }

    /// Returns the factors that the forecast predicts for a thread's program alone on a CPU of the fastest and of the slowest
    /// type.
    fn foreseen(&self, view: &mut View<'_>, thread: ThreadId) -> Factors {
        let ranks = self.slots.ranks();
        let cpu = |row: usize| view.topology.group(ranks[row].group).cpus.lowest();
        let (Some(fast), Some(slow), Some(forecast)) =
            (cpu(0), cpu(ranks.len() - 1), view.forecast.as_mut())
        else {
            return Factors::default();
        };
        let mut alone = |cpu: CpuId| forecast.steady_state(&[thread], &[cpu]).first().copied();
        let (Some(fast), Some(slow)) = (alone(fast), alone(slow)) else {
            return Factors::default();
        };
        let energy = |f: ThreadForecast| f.power_w / f.ips;
        let sf = fast.ips / slow.ips;
        Factors::new(Some(sf), Some(sf * energy(slow) / energy(fast)))
    }

    /// True if the ratios of energy per instruction differ enough that ranking by EF differs from ranking by SF.
    fn tells_apart(&self, all: &[Factors]) -> bool {
        let ratios = all.iter().filter_map(Factors::energy_ratio);
        let (least, most) = ratios.fold((f64::INFINITY, 0.0f64), |(least, most), ratio| {
            (least.min(ratio), most.max(ratio))
        });
        // If no SF is known, EF is the only criterion.
        let only_ef = most == 0.0 && all.iter().any(|f| f.ef.is_some());
        only_ef || most / least - 1.0 >= self.spread
    }

    /// Returns the rank of each entry. A holder of a rank loses it only with a lead of `margin`, or after `patience` decisions.
    fn rank(&mut self, entries: &[Contender<'_>], quota: &[usize]) -> Vec<usize> {
        let ideal = ranks_where(entries, quota, |holder, challenger| {
            entries[challenger].key > entries[holder].key
        });
        let mut doubt = BTreeMap::new();
        for (entry, ideal) in entries.iter().zip(&ideal) {
            if entry.held.is_some_and(|held| *ideal > held) {
                let before = self.doubt.get(&entry.info.id).copied().unwrap_or(0);
                doubt.insert(entry.info.id, before + 1);
            }
        }
        self.doubt = doubt;
        ranks_where(entries, quota, |holder, challenger| {
            let (holder, challenger) = (&entries[holder], &entries[challenger]);
            let doubt = self.doubt.get(&holder.info.id).copied().unwrap_or(0);
            let lead = if doubt >= self.patience {
                0.0
            } else {
                self.margin
            };
            challenger.key > holder.key * (1.0 + lead)
        })
    }

    /// Moves threads with an EF below 1 to free cores of the slowest type, where their EDP is lower. Returns for each entry
    /// true if it was moved.
    fn keep_low(
        &self,
        entries: &[Contender<'_>],
        all: &[Factors],
        ranks: &mut [usize],
    ) -> Vec<bool> {
        let last = self.slots.ranks().len() - 1;
        let mut kept = vec![false; ranks.len()];
        let taken = ranks.iter().filter(|rank| **rank == last).count();
        let mut free = self.slots.ranks()[last].cores.len().saturating_sub(taken);
        let may = |row: &usize| ranks[*row] != last && entries[*row].stuck.is_none();
        let mut rows: Vec<usize> = (0..ranks.len()).filter(may).collect();
        rows.sort_by(|a, b| entries[*a].key.total_cmp(&entries[*b].key));
        for row in rows {
            let Some(ef) = all[row].ef else { continue };
            let stays = entries[row].held == Some(last);
            let least = if stays { 1.0 } else { 1.0 - self.margin };
            if free > 0 && ef < least {
                ranks[row] = last;
                kept[row] = true;
                free -= 1;
            }
        }
        kept
    }
}

impl Policy for Ef {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn tune(&mut self, params: &Params, topology: &Arc<Topology>) -> Result<(), PolicyError> {
        let new = Self::new(params, topology)?;
        if new.source != self.source || new.given != self.given {
            return Err(PolicyError::Fixed);
        }
        self.spread = new.spread;
        self.margin = new.margin;
        self.patience = new.patience;
        self.keeps_low = new.keeps_low;
        Ok(())
    }

    fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        let present = active(view);
        if self.slots.ranks().is_empty() {
            return Placement::default();
        }
        let column = |name| view.metrics.column(name);
        let columns = match self.source {
            FactorSource::Model => ["sf", "ef"].map(column),
            FactorSource::Oracle => ["sf_oracle", "ef_oracle"].map(column),
            FactorSource::Static => [None; 2],
        };
        let all: Vec<Factors> = present
            .iter()
            .map(|info| self.factors(view, info, columns))
            .collect();
        let by_ef = self.tells_apart(&all);
        let key = |f: &Factors| if by_ef { f.ef } else { f.sf };
        let known: Vec<f64> = all.iter().filter_map(key).collect();
        let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
        let mut entries = entries(&present, &self.slots);
        for (entry, factors) in entries.iter_mut().zip(&all) {
            let class = HintClass::of(entry.info, None, false, 0.0);
            entry.key = key(factors).unwrap_or(mean) * class.factor();
        }
        let quota = self.slots.quota(entries.len());
        let mut ranks = self.rank(&entries, &quota);
        let kept = if self.keeps_low && by_ef && quota.len() > 1 {
            self.keep_low(&entries, &all, &mut ranks)
        } else {
            vec![false; ranks.len()]
        };
        place(&mut self.slots, &entries, &ranks, |row| {
            let rule = match (kept[row], by_ef, ranks[row]) {
                (true, ..) => {
                    "its EDP is lower on the slowest cores, although faster ones are free"
                }
                (_, true, 0) => "its EDP gains most from the fastest cores",
                (_, true, _) => "the EDP of others gains more from faster cores",
                _ if known.is_empty() => "no factor is known yet: as there is room",
                _ => "efficiency factors are alike or unknown: ranked by speed-up factor",
            };
            Reason::rule(rule)
                .saw("ef", all[row].ef)
                .saw("sf", all[row].sf)
        })
    }
}

fn bad(value: &str, why: &str) -> PolicyError {
    PolicyError::BadValue {
        key: "factors".into(),
        value: value.into(),
        why: why.into(),
    }
}

/// Parses the factors that the user measured, `name/ef/sf` separated by commas.
fn given(text: &str) -> Result<BTreeMap<String, Factors>, PolicyError> {
    let one = |part: &str| {
        let mut fields = part.split('/');
        let name = fields.next().filter(|name| !name.is_empty());
        let mut number = || match fields.next().map(str::parse::<f64>) {
            None => Ok(None),
            Some(Ok(v)) if v.is_finite() && v > 0.0 => Ok(Some(v)),
            Some(_) => Err(()),
        };
        match (name, number(), number()) {
            (Some(name), Ok(Some(ef)), Ok(sf)) => Ok((name.into(), Factors::new(sf, Some(ef)))),
            _ => Err(bad(
                part,
                "it must be PROGRAM/EF or PROGRAM/EF/SF with numbers above 0",
            )),
        }
    };
    text.split('+').filter(|p| !p.is_empty()).map(one).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test helper that fails has failed its test
mod tests {
    use super::*;
    use countersteer_model::machine::Machine;

    fn ef(text: &str) -> Result<Ef, PolicyError> {
        let machine = include_str!("../tests/toy/two-big-two-small.toml");
        let topology = Arc::new(Topology::new(&Machine::parse("m", machine).unwrap()));
        Ef::new(&Params::parse(&DEF, text).unwrap(), &topology)
    }

    fn factors(sf: f64, ef: f64) -> Factors {
        Factors::new(Some(sf), Some(ef))
    }

    #[test]
    fn energy_ratios_within_the_spread_tell_nothing() {
        let policy = ef("spread=0.05").unwrap();
        // SF/EF of 2 and 2.08 are 4 % apart; of 2 and 2.12 they are 6 % apart.
        assert!(!policy.tells_apart(&[factors(2.0, 1.0), factors(2.08, 1.0)]));
        assert!(policy.tells_apart(&[factors(2.0, 1.0), factors(2.12, 1.0)]));
        assert!(!policy.tells_apart(&[Factors::default(), factors(2.0, 1.0)]));
    }

    #[test]
    fn without_speed_up_factors_efficiency_factors_decide() {
        let policy = ef("").unwrap();
        let only = |ef| Factors::new(None, Some(ef));
        assert!(policy.tells_apart(&[only(1.2), only(2.0)]));
        assert!(!policy.tells_apart(&[Factors::default(), Factors::default()]));
    }

    #[test]
    fn measured_factors_are_read_and_mistakes_named() {
        let policy = ef("ef=static,factors=art/2.1/1.4+gap/1.2").unwrap();
        assert_eq!(policy.given["art"], factors(1.4, 2.1));
        assert_eq!(policy.given["gap"], Factors::new(None, Some(1.2)));
        for wrong in [
            "ef=static,factors=art",
            "ef=static,factors=art/x",
            "ef=static,factors=/2",
            "ef=static,factors=art/-1",
            "factors=art/2",
        ] {
            assert!(ef(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn factors_beyond_their_limits_or_without_sense_are_none_or_clamped() {
        let all = Factors::new(Some(f64::NAN), Some(-2.0));
        assert_eq!(all, Factors::default());
        assert_eq!(factors(0.5, 50.0), factors(1.0, 10.0));
    }
}
