//! CPUs that a command is confined to, as users name them.
//!
//! Input: `all`, `each`, a core group of the machine or a CPU list. Output: [`NamedCpus`]s, with the kernel's CPU numbers.

use countersteer_model::cpuset::CpuSet;
use countersteer_model::suggestion::suggestion;
use countersteer_model::topology::GroupBy;
use countersteer_sysfs::task::affinity;

use crate::error::{FaultKind, failure};
use crate::steering::here::SteeredMachine;

/// CPUs under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedCpus {
    pub name: String,
    /// By the kernel's numbers.
    pub cpus: CpuSet,
    /// SMT siblings of these CPUs that are not among them.
    pub siblings: CpuSet,
    /// False for all CPUs that this process may use: affinity is left as it is.
    pub confined: bool,
}

impl NamedCpus {
    /// The affinity mask for a command; `None` leaves that of this process.
    pub fn mask(&self) -> Option<&CpuSet> {
        self.confined.then_some(&self.cpus)
    }
}

/// Returns the places of these names, in order; `each` is a place for each core type, fastest first.
///
/// # Errors
/// A name that means nothing here, or CPUs that this process may not use.
pub fn places(wanted: &[String], here: &SteeredMachine) -> anyhow::Result<Vec<NamedCpus>> {
    let allowed = affinity::mask(0)?.intersection(&here.pmus.online);
    let mut places = Vec::new();
    for name in wanted {
        match name.as_str() {
            "all" => places.push(place(name, allowed.clone(), false, here)),
            "each" => places.extend(each(&allowed, here)),
            _ => places.push(place(name, cpus(name, &allowed, here)?, true, here)),
        }
    }
    places.dedup_by(|a, b| a.cpus == b.cpus);
    Ok(places)
}

/// Returns a place for each core type that this process may use, fastest first.
pub fn each(allowed: &CpuSet, here: &SteeredMachine) -> Vec<NamedCpus> {
    let types = here.topology.groups_by(GroupBy::CoreType).iter();
    let found = types.map(|group| {
        let cpus = here.numbers.os_set(&group.cpus).intersection(allowed);
        place(&group.name, cpus, true, here)
    });
    found.filter(|p| !p.cpus.is_empty()).collect()
}

/// Creates a place of these CPUs.
pub fn place(name: &str, cpus: CpuSet, confined: bool, here: &SteeredMachine) -> NamedCpus {
    let cores = here.topology.groups_by(GroupBy::Core).iter();
    let siblings = cores
        .map(|core| here.numbers.os_set(&core.cpus))
        .filter(|core| core.intersects(&cpus))
        .flat_map(|core| core.iter().collect::<Vec<_>>())
        .filter(|cpu| !cpus.contains(*cpu))
        .collect();
    NamedCpus {
        name: name.to_owned(),
        cpus,
        siblings,
        confined,
    }
}

fn cpus(name: &str, allowed: &CpuSet, here: &SteeredMachine) -> anyhow::Result<CpuSet> {
    let cpus = match here.topology.group_named(name) {
        Some(group) => here.numbers.os_set(&group.cpus),
        None => name.parse().map_err(|_| unknown(name, here))?,
    };
    if cpus.is_empty() || !cpus.is_subset(allowed) {
        let why = format!("--on {name} are CPUs {cpus}; this process may use {allowed}");
        return Err(failure(FaultKind::Usage, why));
    }
    Ok(cpus)
}

fn unknown(name: &str, here: &SteeredMachine) -> anyhow::Error {
    let types = here.topology.groups_by(GroupBy::CoreType).iter();
    let caches = here.topology.groups_by(GroupBy::Llc).iter();
    let named = types.chain(caches).map(|g| g.name.as_str());
    let known: Vec<&str> = ["all", "each"].into_iter().chain(named).collect();
    let why = format!(
        "--on `{name}` is neither a CPU list nor a name here{}; there are {}",
        suggestion(name, known.iter().copied()),
        known.join(", ")
    );
    failure(FaultKind::Usage, why)
}
