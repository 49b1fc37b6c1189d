//! Applicability of policies: policies that need a simulator, and machines on which a policy has nothing to decide.
//!
//! Input: a policy's specification and a topology. Output: messages for users, and the policies of a comparison.

use countersteer_model::machine::{CoreType, swaps_for};
use countersteer_model::topology::{Cpu, GroupBy, Topology};

use crate::ways::only_cache;

/// Property of a machine by which a policy places threads. If the machine has only one value of it, the policy lets Linux
/// choose among all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Apart {
    Nothing,
    CoreTypes,
    LastLevelCaches,
    /// Ways of a last-level cache that all cores share.
    Ways,
}

/// Further property that a policy assumes of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MachineProperty {
    /// All cores are assumed to be alike, since the policy considers only caches. Core types with the same pipeline and
    /// similar capacity count as alike.
    CoresAlike,
    /// Core types are assumed to have the same pipeline, since the policy's signatures model only clocks and caches.
    PipelinesAlike,
    /// Core types are assumed to share no last-level cache, since the policy measures a thread on each type beside other
    /// threads.
    CachesByCoreType,
    /// All threads are assumed to gain equally from a faster core, since the policy's predictions do not distinguish threads.
    GainsAlike,
    /// Exchange rules are assumed to exist for the machine, since the policy exchanges pairs by these rules.
    SwapRules,
}

impl MachineProperty {
    /// Returns the assumption as a clause for messages.
    const fn words(self) -> &'static str {
        match self {
            Self::CoresAlike => "cores are alike",
            Self::PipelinesAlike => "core types differ in clock and cache, not in their pipelines",
            Self::CachesByCoreType => "core types share no last-level cache",
            Self::GainsAlike => "all threads gain alike from a faster core",
            Self::SwapRules => "exchange rules were induced for the machine",
        }
    }

    /// Returns a description of the assumption if it does not hold on a machine; otherwise `None`.
    fn unmet_on(self, topology: &Topology) -> Option<&'static str> {
        let types = &topology.core_types;
        match self {
            Self::CoresAlike if !cores_alike(types) => {
                Some("it takes all cores to be alike, and here they are not")
            }
            Self::PipelinesAlike if !pipelines_alike(types) => Some(
                "its signatures know clocks and caches, and core types here differ in their pipelines",
            ),
            Self::CachesByCoreType if types_share_a_cache(topology) => Some(
                "it measures a thread's speed on each core type, and core types here share a last-level cache, whose other users change \
                 that speed",
            ),
            Self::GainsAlike if topology.groups_by(GroupBy::CoreType).len() > 1 => Some(
                "its predictions take all threads to gain alike from a faster core, and core types here differ",
            ),
            Self::SwapRules if swaps_for(&topology.name, types).is_none() => {
                Some("there are no exchange rules for this machine")
            }
            _ => None,
        }
    }
}

/// Ratio of capacity to utilisation that Linux demands if a thread is to fit a CPU: `fits_capacity`, kernel/sched/fair.c.
const HEADROOM: f64 = 1280.0 / 1024.0;

/// True if all core types have the same width, window and order of execution.
fn pipelines_alike(types: &[CoreType]) -> bool {
    let of = |t: &CoreType| (t.dispatch_width, t.window, t.in_order);
    types.windows(2).all(|pair| of(&pair[0]) == of(&pair[1]))
}

/// True if core types have equal pipelines and similar capacities, so that their caches matter more than the types.
pub(crate) fn cores_alike(types: &[CoreType]) -> bool {
    pipelines_alike(types) && capacities_alike(types)
}

/// True if capacities and clocks each differ by at most Linux's headroom. Both are compared, since kernels give all CPUs of
/// many machines one capacity.
fn capacities_alike(types: &[CoreType]) -> bool {
    let of = |of: fn(&CoreType) -> f64| {
        let (slowest, fastest) = types
            .iter()
            .map(of)
            .fold((f64::MAX, 0.0_f64), |(low, high), v| {
                (low.min(v), high.max(v))
            });
        fastest <= slowest * HEADROOM
    };
    of(|t| f64::from(t.capacity)) && of(|t| t.freq_ghz)
}

/// True if CPUs of different core types share a last-level cache.
fn types_share_a_cache(topology: &Topology) -> bool {
    let cpus = &topology.cpus;
    let differ =
        |a: &Cpu, b: &Cpu| a.caches.last() == b.caches.last() && a.core_type != b.core_type;
    cpus.iter().any(|a| cpus.iter().any(|b| differ(a, b)))
}

struct PolicyReach {
    policy: &'static str,
    apart: Apart,
    grounds: &'static [MachineProperty],
    /// True if the policy reads values that only a simulator has.
    simulator_only: bool,
}

const fn row(policy: &'static str, apart: Apart, simulator_only: bool) -> PolicyReach {
    PolicyReach {
        policy,
        apart,
        grounds: &[],
        simulator_only,
    }
}

/// Returns a row with these further assumptions.
const fn on(grounds: &'static [MachineProperty], row: PolicyReach) -> PolicyReach {
    PolicyReach { grounds, ..row }
}

/// Applicability of every policy of this crate.
const REACH: &[PolicyReach] = &[
    row(crate::LINUX, Apart::Nothing, false),
    row("default", Apart::Nothing, false),
    row("static", Apart::Nothing, false),
    row("best-static", Apart::Nothing, true),
    row("rr", Apart::CoreTypes, false),
    row("aarr", Apart::CoreTypes, false),
    row("ideal-rr", Apart::CoreTypes, false),
    row("adwrr", Apart::CoreTypes, false),
    row("eqp", Apart::CoreTypes, false),
    row("acfs", Apart::CoreTypes, false),
    row("hsf", Apart::CoreTypes, false),
    row("ef", Apart::CoreTypes, false),
    on(
        &[MachineProperty::SwapRules],
        row("prim", Apart::CoreTypes, false),
    ),
    on(
        &[MachineProperty::GainsAlike],
        row("greedy-energy", Apart::Nothing, false),
    ),
    on(
        &[MachineProperty::PipelinesAlike],
        row("hass", Apart::CoreTypes, false),
    ),
    on(
        &[MachineProperty::CachesByCoreType],
        row("ipc-driven", Apart::CoreTypes, false),
    ),
    on(
        &[MachineProperty::CoresAlike],
        row("mpi", Apart::LastLevelCaches, false),
    ),
    on(
        &[MachineProperty::CoresAlike],
        row("capacity", Apart::LastLevelCaches, false),
    ),
    on(
        &[MachineProperty::CoresAlike],
        row("capacity+mpi", Apart::LastLevelCaches, false),
    ),
    on(
        &[MachineProperty::CoresAlike],
        row("contention", Apart::LastLevelCaches, false),
    ),
    row("joint", Apart::Nothing, false),
    row("auto", Apart::Nothing, false),
    row("groups", Apart::Nothing, false),
    row("scx", Apart::Nothing, true),
    on(
        &[MachineProperty::CoresAlike],
        row("clusters", Apart::Ways, false),
    ),
];

fn reach(spec: &str) -> Option<&'static PolicyReach> {
    let name = spec.split(':').next().unwrap_or(spec).trim();
    REACH.iter().find(|r| r.policy == name)
}

/// Iterates over the keys and values of a specification's parameters.
fn pairs(params: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = params.split(',').filter_map(|p| p.split_once('='));
    pairs.map(|(key, value)| (key.trim(), value.trim()))
}

/// True if a policy reads values that only a simulator has, such as true speed-up factors or forecasts of whole runs. Its
/// results show the benefit of such knowledge. It cannot run on a real machine, and its result is no upper bound for other
/// policies.
#[must_use]
pub fn simulator_only(spec: &str) -> bool {
    let params = spec.split_once(':').map_or("", |(_, params)| params);
    let pairs: Vec<(&str, &str)> = pairs(params).collect();
    let has = |wanted: (&str, &str)| pairs.contains(&wanted);
    // The factors of programs that the user did not measure come from the simulator's forecast.
    let unmeasured = has(("ef", "static"))
        && !pairs
            .iter()
            .any(|(key, value)| *key == "factors" && !value.is_empty());
    unmeasured
        || pairs.iter().any(|(_, value)| *value == "oracle")
        || reach(spec).is_some_and(|r| r.simulator_only)
}

/// Returns the reason for which a policy's parameters need a simulator, with the interface that Linux lacks. `None` if they do
/// not need one.
#[must_use]
pub fn lacking(spec: &str) -> Option<&'static str> {
    let params = spec.split_once(':').map_or("", |(_, params)| params);
    let director = |pair| [("sf", "td"), ("history", "td")].contains(&pair);
    pairs(params).any(director).then_some(
        "Thread Director's class of a thread: Linux has no interface for it (its driver intel_hfi reads the table of \
         performances for class 0 alone, and classification stays off)",
    )
}

/// Returns the reason for which a policy lets Linux choose among all CPUs of a machine; `None` if it does not. The policy may
/// still place threads again on all CPUs, so scores can differ.
#[must_use]
pub fn idle_on(spec: &str, topology: &Topology) -> Option<&'static str> {
    let one = |by| topology.groups_by(by).len() < 2;
    let splits_ways = spec.contains("ways=split");
    let sees_caches = spec.contains("shared-cache=on") && !one(GroupBy::Llc);
    match reach(spec)?.apart {
        Apart::CoreTypes if one(GroupBy::CoreType) && !sees_caches => Some("all cores are alike"),
        Apart::LastLevelCaches if one(GroupBy::Llc) && !splits_ways => {
            Some("all cores share one last-level cache")
        }
        Apart::Ways if only_cache(topology).is_none() => {
            Some("there is no last-level cache of all cores with ways to divide")
        }
        _ => None,
    }
}

/// Baselines of papers, which users would not run to improve performance.
const BASELINES: [&str; 4] = ["default", "static", "ideal-rr", "rr"];

/// Policy that chooses among the others.
const CHOOSES: &str = "auto";

/// True for the policy that chooses among the others. It leaves threads to other programs that place them.
#[must_use]
pub fn chooses(spec: &str) -> bool {
    reach(spec).is_some_and(|row| row.policy == CHOOSES)
}

/// True for the policy that places no thread, for which no scheduler has to be loaded.
#[must_use]
pub fn places_nothing(spec: &str) -> bool {
    reach(spec).is_some_and(|row| row.policy == crate::LINUX)
}

/// Policies that a comparison on a machine includes by default, and those that it leaves out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shelf {
    /// Names of the included policies in the order of the policy table; `linux` is the first.
    pub policies: Vec<String>,
    /// Names of the policies that are left out, each with the reason.
    pub left_out: Vec<(String, &'static str)>,
}

/// Returns the default policies for a machine: all except baselines of papers, those that divide cache ways, and those that
/// let Linux choose among all CPUs.
#[must_use]
pub fn shelf(topology: &Topology) -> Shelf {
    let mut shelf = Shelf::default();
    for name in crate::names() {
        let why = if BASELINES.contains(&name) {
            Some("baselines of papers")
        } else if name == crate::scx::NAME {
            Some("runs a scheduler that you name: scx:path=FILE.bpf.c")
        } else if name == crate::groups::DEF.name {
            Some("divides the machine among policies that you name: groups:by=llc,policy=hsf")
        } else if name == CHOOSES {
            Some("chooses among the others: name it to compare it")
        } else if reach(name).is_some_and(|r| r.apart == Apart::Ways) {
            Some("divides ways of a cache, which few processors can: name it to compare it")
        } else {
            idle_on(name, topology)
        };
        match why {
            None => shelf.policies.push(name.to_owned()),
            Some(why) => shelf.left_out.push((name.to_owned(), why)),
        }
    }
    shelf
}

/// True if a machine offers a policy nothing to decide: one core type, no SMT, one last-level cache.
#[must_use]
pub fn is_uniform(topology: &Topology) -> bool {
    let one = |by| topology.groups_by(by).len() < 2;
    let cores: u32 = (topology.groups_by(GroupBy::CoreType).iter())
        .map(|g| g.cores)
        .sum();
    one(GroupBy::CoreType) && one(GroupBy::Llc) && cores as usize == topology.cpus.len()
}

/// Returns one sentence for each assumption of a policy that does not hold on a machine. The policy still runs, but its
/// results mean little.
#[must_use]
pub fn unmet(spec: &str, topology: &Topology) -> Vec<&'static str> {
    let grounds = reach(spec).map_or(&[][..], |r| r.grounds);
    let unmet = grounds.iter().filter_map(|g| g.unmet_on(topology));
    unmet.collect()
}

/// Returns the assumptions of a policy about a machine, one clause each. If the first one fails, the policy lets Linux choose
/// among all CPUs ([`idle_on`]). If another one fails, [`unmet`] returns a sentence about it.
#[must_use]
pub fn assumptions(spec: &str) -> Vec<&'static str> {
    let Some(reach) = reach(spec) else {
        return Vec::new();
    };
    let apart = match reach.apart {
        Apart::Nothing => None,
        Apart::CoreTypes => Some("the machine has several core types"),
        Apart::LastLevelCaches => Some("the machine has several last-level caches"),
        Apart::Ways => Some("all cores share one last-level cache, whose ways can be masked (CAT)"),
    };
    let grounds = reach.grounds.iter().map(|g| g.words());
    apart.into_iter().chain(grounds).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersteer_model::machine::Machine;

    #[test]
    fn only_linux_places_nothing() {
        let idle: Vec<&str> = REACH.iter().map(|row| row.policy).collect();
        let idle: Vec<&str> = idle
            .into_iter()
            .filter(|spec| places_nothing(spec))
            .collect();
        assert_eq!(idle, ["linux"]);
        assert!(places_nothing("linux:") && !places_nothing("of-another-package"));
    }

    #[test]
    fn what_a_policy_takes_for_granted_is_held_against_the_machine() {
        let quickia = include_str!("../../../machines/quickia-2b-2s.toml");
        let alike = include_str!("../../../machines/core2-quad.toml");
        let [quickia, alike] =
            [quickia, alike].map(|text| Topology::new(&Machine::parse("m", text).unwrap()));
        for policy in ["mpi", "capacity", "contention:mpki=8"] {
            assert!(unmet(policy, &quickia)[0].contains("cores to be alike"));
            assert!(unmet(policy, &alike).is_empty(), "{policy}");
            // One pipeline at 4.85 and 5.2 GHz.
            assert!(unmet(policy, &topology("ryzen-7950x3d")).is_empty());
            assert!(!unmet(policy, &topology("opteron-2425-2b-10s")).is_empty());
            let assumed = [
                "the machine has several last-level caches",
                "cores are alike",
            ];
            assert_eq!(assumptions(policy), assumed, "{policy}");
        }
        assert!(assumptions("joint").is_empty());
        assert!(unmet("hass", &quickia)[0].contains("pipelines"));
        assert!(unmet("greedy-energy", &quickia)[0].contains("gain alike"));
        assert!(unmet("greedy-energy", &alike).is_empty());
        assert!(unmet("ipc-driven", &topology("i9-12900k-8p8e"))[0].contains("share"));
        assert!(unmet("ipc-driven", &topology("opteron-2425-2b-10s"))[0].contains("share"));
        for apart in ["juno-2-4", "ryzen-7950x3d"] {
            assert!(unmet("ipc-driven", &topology(apart)).is_empty(), "{apart}");
        }
        for policy in ["linux", "hsf", "joint", "of-another-package"] {
            assert!(unmet(policy, &quickia).is_empty(), "{policy}");
        }
    }

    #[test]
    fn every_policy_has_a_row() {
        let names: Vec<&str> = crate::POLICIES.iter().map(|p| p.name).collect();
        let rows: Vec<&str> = REACH.iter().map(|r| r.policy).collect();
        for name in &names {
            assert!(rows.contains(name), "{name} has no row in reach.rs");
        }
        assert_eq!(names.len(), rows.len());
    }

    fn topology(name: &str) -> Topology {
        let path = format!("{}/../../machines/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap();
        Topology::new(&countersteer_model::machine::Machine::parse(&path, &text).unwrap())
    }

    #[test]
    fn the_shelf_has_what_can_act_and_says_what_it_leaves_out() {
        let topology = topology("core2-quad");
        let shelf = shelf(&topology);
        assert_eq!(shelf.policies[0], "linux");
        let has = |name: &str| shelf.policies.iter().any(|p| p == name);
        assert!(has("contention") && has("joint") && !has("hsf") && !has("rr"));
        let why = |name: &str| shelf.left_out.iter().find(|(p, _)| p == name).unwrap().1;
        assert_eq!(
            (why("hsf"), why("rr")),
            ("all cores are alike", "baselines of papers")
        );
        assert!(!is_uniform(&topology));
    }

    #[test]
    fn who_asks_thread_director_asks_in_vain() {
        for spec in ["hsf:sf=td", "hsf:sf=history, history=td"] {
            assert!(lacking(spec).is_some_and(|why| why.contains("intel_hfi")));
            assert!(
                !simulator_only(spec),
                "{spec} knows no more than hardware would"
            );
        }
        assert_eq!(lacking("hsf:sf=history"), None);
    }

    #[test]
    fn oracles_run_in_simulators_only_whatever_the_policy() {
        for spec in [
            "best-static",
            "ef:ef=oracle",
            "ef:ef=static,spread=0",
            "ef:ef=static,factors=",
            "ef: ef = static, factors = ",
            "hsf:sf= oracle",
            "hsf:sf=oracle ,margin=1",
            "hsf:sf=oracle",
            "acfs:margin=1,sf=oracle",
        ] {
            assert!(simulator_only(spec), "{spec}");
        }
        for spec in [
            "linux",
            "ef",
            "ef:ef=static,factors=art/2.1",
            "ef: ef = static, factors = art/2.1",
            "hsf:sf=steps",
            "of-another-package",
            "contention:ways=split",
        ] {
            assert!(!simulator_only(spec), "{spec}");
        }
    }
}
