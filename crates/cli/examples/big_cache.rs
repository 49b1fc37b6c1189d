//! `steer` with a custom policy: an example of a package outside this repository, in one file.
//!
//! ```toml
//! [dependencies]
//! countersteer-policy = { git = "..." } # or path = "..."
//! countersteer-cli = { git = "..." }
//! ```
//!
//! `cargo run --release --example big_cache -- policy show big-cache` shows it; all other commands of `steer` work too. `compare`
//! tries it in the simulator, and `run --dry-run` prints its decisions about real threads. `run`, `trial` and `daemon` apply
//! them, by affinity or in the kernel. `why` gives its reasons, and `replay` repeats its decisions.
//!
//! The policy is for machines whose last-level caches differ in size, such as desktops with a stacked cache on one of two dies.
//! The threads with the most misses get the big cache. Misses in the small cache decide. In the big one a thread may seem to need
//! no cache, and would be sent back.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use countersteer_policy::cpuset::CpuSet;
use countersteer_policy::engine::{ThreadEventKind, ThreadInfo};
use countersteer_policy::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer_policy::policy::{Needs, ParamDef, Policy, PolicyDef, PolicyRng, View};
use countersteer_policy::topology::{GroupBy, Topology};
use countersteer_policy::units::ThreadId;

static POLICIES: &[PolicyDef] = &[PolicyDef {
    name: "big-cache",
    summary: "the largest last-level cache for those who miss most without it",
    source: "an example",
    params: &[ParamDef {
        key: "mpki",
        default: "1",
        prose: "last-level cache misses per kilo-instruction from which on a thread is sent to the largest cache",
    }],
    make: |params, topology| {
        Ok(Box::new(BigCache::new(
            topology,
            params.number("mpki", 0.0)?,
        )))
    },
}];

/// A metric as a formula: formulas over events need no name.
const MISSES: &str = "1000 * llc_misses / instructions";

fn main() -> ExitCode {
    countersteer_cli::steer(POLICIES)
}

struct BigCache {
    needs: Needs,
    mpki: f64,
    /// CPUs of the largest cache, and all others; `None` if all caches have the same size.
    places: Option<(Arc<CpuSet>, Arc<CpuSet>)>,
    /// Misses of threads with a small cache, per kilo-instruction.
    missed: BTreeMap<ThreadId, f64>,
    /// True for each thread that was placed on the big cache.
    placed: BTreeMap<ThreadId, bool>,
}

impl BigCache {
    fn new(topology: &Topology, mpki: f64) -> Self {
        let lines = |cpus: &CpuSet| {
            cpus.lowest().map_or(0.0, |cpu| {
                topology.caches[topology.llc_of(cpu).index()].lines
            })
        };
        let groups = topology.groups_by(GroupBy::Llc);
        let largest = groups
            .iter()
            .max_by(|a, b| lines(&a.cpus).total_cmp(&lines(&b.cpus)));
        let places = largest.and_then(|big| {
            let small = |cpus: &&Arc<CpuSet>| lines(cpus) < lines(&big.cpus);
            let rest: CpuSet = groups
                .iter()
                .map(|g| &g.cpus)
                .filter(small)
                .flat_map(|cpus| cpus.iter())
                .collect();
            (!rest.is_empty()).then(|| (Arc::clone(&big.cpus), Arc::new(rest)))
        });
        // Phases are detected from the counters of the second metric.
        let metrics = vec![MISSES, "ipc"];
        Self {
            needs: Needs {
                metrics,
                phases: true,
                ..Needs::NOTHING
            },
            mpki,
            places,
            missed: BTreeMap::new(),
            placed: BTreeMap::new(),
        }
    }

    /// Stores the misses of threads outside the big cache, and removes outdated values.
    fn learn(&mut self, view: &View<'_>, big: &CpuSet) {
        for event in view.events {
            if matches!(
                event.kind,
                ThreadEventKind::Exec | ThreadEventKind::Exit | ThreadEventKind::Phase
            ) {
                self.missed.remove(&event.thread);
            }
            if event.kind == ThreadEventKind::Exit {
                self.placed.remove(&event.thread);
            }
        }
        for thread in view.threads {
            let moved = self
                .placed
                .get(&thread.id)
                .is_some_and(|placed| *placed != big.contains(thread.cpu));
            let Some(mpki) = view.metric(thread.id, MISSES).filter(|_| !moved) else {
                continue;
            };
            let missed = self.missed.entry(thread.id).or_insert(mpki);
            // A thread with misses in the big cache would also have them in a small one.
            *missed = if big.contains(thread.cpu) {
                missed.max(mpki)
            } else {
                mpki
            };
        }
    }
}

impl Policy for BigCache {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        let Some((big, small)) = self.places.clone() else {
            return Placement::default();
        };
        self.learn(view, &big);
        let missed = |thread: &ThreadInfo| self.missed.get(&thread.id).copied();
        let mut known: Vec<&ThreadInfo> = view
            .threads
            .iter()
            .filter(|t| missed(t).is_some())
            .collect();
        known.sort_by(|a, b| {
            missed(b)
                .partial_cmp(&missed(a))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        let mut threads = Vec::new();
        for (rank, thread) in known.into_iter().enumerate() {
            let mpki = self.missed.get(&thread.id).copied();
            let wanted = rank < big.len() && mpki.is_some_and(|m| m >= self.mpki);
            if self.placed.insert(thread.id, wanted) == Some(wanted) {
                continue;
            }
            let (cpus, rule) = if wanted {
                (&big, "among those who miss most")
            } else {
                (&small, "does as well with a small cache")
            };
            let reason = Reason::rule(rule)
                .saw("llc_mpki", mpki)
                .saw("rank", Some(rank as f64));
            threads.push(ThreadPlacement::new(
                thread.id,
                Target::Cpus(Arc::clone(cpus)),
                reason,
            ));
        }
        threads.sort_by_key(|t| t.thread);
        Placement {
            threads,
            ..Placement::default()
        }
    }
}
