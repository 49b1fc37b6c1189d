//! `ef`: the programs with the highest efficiency factors run on the big cores.
//!
//! Idea: EF is the EDP of a program on a small core over that on a big one. Big cores go to the programs whose EDP they
//! improve most. Where the ratios of SF to EF are alike, energies do not tell programs apart and SF decides.
//!
//! Source: "EF-Driven" in PMCTrack, section 4.2.2, in its static form: overall EFs measured with each program alone, a
//! mapping that never changes while the programs stay.
//!
//! Decided here: EF comes from the engine's forecast of the program alone on either type (simulator only), so policies on real
//! threads cannot use it; the spread below which SF decides.
//!
//! Assumes: programs behave as their average. Loses: throughput against `hsf`, phases, several threads per program.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_core::placement::{Placement, Reason};
use countersteer_core::policy::{
    Needs, ParamDef, Params, Policy, PolicyDef, PolicyError, PolicyRng, Seats, View, active,
};
use countersteer_core::topology::Topology;
use countersteer_core::units::{CpuId, ProgramId, ThreadId};

use crate::order::{entries, place, ranks};

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "ef",
    summary: "efficiency factor first: fastest cores to the programs whose EDP they improve most (simulator only)",
    source: "PMCTrack, section 4.2.2 (EF-Driven)",
    params: &[ParamDef {
        key: "spread",
        default: "0.05",
        prose: "where the ratios of SF to EF of all programs lie within this fraction, SF decides",
    }],
    make: |params, topology| {
        Ok(Box::new(Ef {
            spread: params.number("spread", 0.0)?,
            seats: Seats::new(topology),
            known: BTreeMap::new(),
        }))
    },
};

#[derive(Clone, Copy)]
struct Factors {
    sf: f64,
    ef: f64,
}

struct Ef {
    spread: f64,
    seats: Seats,
    /// Factors by program; none where the engine cannot tell.
    known: BTreeMap<ProgramId, Option<Factors>>,
}

impl Ef {
    /// SF and EF of a thread's program, alone on a CPU of the fastest and of the slowest type.
    fn factors(&self, view: &mut View<'_>, thread: ThreadId) -> Option<Factors> {
        let ranks = self.seats.ranks();
        let cpu = |row: usize| view.topology.group(ranks[row].group).cpus.lowest();
        let (fast, slow) = (cpu(0)?, cpu(ranks.len() - 1)?);
        let forecast = view.forecast.as_mut()?;
        let mut alone = |cpu: CpuId| forecast.steady_state(&[thread], &[cpu]).first().copied();
        let (fast, slow) = (alone(fast)?, alone(slow)?);
        let sf = fast.ips / slow.ips;
        let energy = |f: countersteer_core::engine::ThreadForecast| f.power_w / f.ips;
        let ef = sf * energy(slow) / energy(fast);
        (sf.is_finite() && ef.is_finite()).then_some(Factors { sf, ef })
    }

    /// Whether EF tells programs apart.
    fn tells_apart(&self) -> bool {
        let ratios = self.known.values().flatten().map(|f| f.sf / f.ef);
        let (least, most) = ratios.fold((f64::INFINITY, 0.0f64), |(least, most), ratio| {
            (least.min(ratio), most.max(ratio))
        });
        most / least - 1.0 >= self.spread
    }
}

impl Policy for Ef {
    fn needs(&self) -> &Needs {
        const NEEDS: &Needs = &Needs::EVENTS;
        NEEDS
    }

    fn tune(&mut self, params: &Params, _: &Arc<Topology>) -> Result<(), PolicyError> {
        self.spread = params.number("spread", 0.0)?;
        Ok(())
    }

    fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        let present = active(view);
        if self.seats.ranks().is_empty() {
            return Placement::default();
        }
        for info in &present {
            if !self.known.contains_key(&info.program) {
                let factors = self.factors(view, info.id);
                self.known.insert(info.program, factors);
            }
        }
        let by_ef = self.tells_apart();
        let key = |f: &Factors| if by_ef { f.ef } else { f.sf };
        let keys: Vec<f64> = self.known.values().flatten().map(key).collect();
        let mean = keys.iter().sum::<f64>() / keys.len().max(1) as f64;
        let mut entries = entries(&present, &self.seats);
        for entry in &mut entries {
            let known = self.known.get(&entry.info.program).copied().flatten();
            entry.key = known.as_ref().map_or(mean, key);
        }
        let quota = self.seats.quota(entries.len());
        let ranks = ranks(&entries, &quota, |holder, challenger| challenger > holder);
        place(&mut self.seats, &entries, &ranks, |row| {
            let known = self
                .known
                .get(&entries[row].info.program)
                .copied()
                .flatten();
            let rule = if by_ef {
                "its EDP gains most from the fastest cores"
            } else {
                "efficiency factors are alike: ranked by speed-up factor"
            };
            Reason::rule(rule)
                .saw("ef", known.map(|f| f.ef))
                .saw("sf", known.map(|f| f.sf))
        })
    }
}
