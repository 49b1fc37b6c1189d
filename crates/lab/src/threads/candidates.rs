//! Candidates: sets of CPUs with one thread on each.
//!
//! Input: a topology, the CPUs that may be used. Output: prefixes of orders in which CPUs are filled. Cores come before all SMT
//! siblings, or fast cores with theirs before slow ones. Last-level caches come one after the other, or in turn. Each core type
//! comes by itself, too.

use std::collections::BTreeSet;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::topology::{Cpu, GroupBy, Topology};
use countersteer_model::units::CpuId;

/// Numbers of threads that are all candidates; above, each is an eighth more than the last one.
const EACH: usize = 16;

/// Threads on CPUs, one on each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// CPUs by the topology's numbers.
    pub cpus: CpuSet,
    /// False for all CPUs that may be used: threads are left where the kernel places them.
    pub confined: bool,
    /// Cores in words: `8 golden-cove + 4 gracemont`.
    pub name: String,
}

impl Candidate {
    /// Number of threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.cpus.len()
    }
}

/// Position of a CPU in an order of filling.
type Key = [usize; 4];

/// Returns the candidates on a machine. The first one is the default: a thread for each CPU, nowhere confined.
#[must_use]
pub fn candidates(topology: &Topology, allowed: &CpuSet) -> Vec<Candidate> {
    let cpus: Vec<&Cpu> = topology
        .cpus
        .iter()
        .filter(|cpu| allowed.contains(cpu.id))
        .collect();
    let mut sets = Vec::new();
    for key in [cores_first, siblings_early, caches_in_turn, caches_filled] {
        sets.extend(prefixes(topology, &cpus, key));
    }
    for group in topology.groups_by(GroupBy::CoreType) {
        let own: Vec<&Cpu> = cpus
            .iter()
            .copied()
            .filter(|cpu| group.cpus.contains(cpu.id))
            .collect();
        sets.extend(prefixes(topology, &own, cores_first));
    }
    let mut seen = BTreeSet::new();
    let mut all = vec![candidate(topology, allowed.clone(), false)];
    seen.insert(allowed.to_string());
    for set in sets {
        if seen.insert(set.to_string()) {
            all.push(candidate(topology, set, true));
        }
    }
    all
}

/// All cores, fast types and full caches first; then their SMT siblings.
fn cores_first(cpu: &Cpu, topology: &Topology) -> Key {
    let llc = topology.llc_of(cpu.id).index();
    [cpu.thread as usize, cpu.core_type.index(), llc, 0]
}

/// Fast cores with their SMT siblings before slow cores.
fn siblings_early(cpu: &Cpu, topology: &Topology) -> Key {
    let llc = topology.llc_of(cpu.id).index();
    [cpu.core_type.index(), cpu.thread as usize, llc, 0]
}

/// All cores, fast types first, caches in turn; then their SMT siblings.
fn caches_in_turn(cpu: &Cpu, topology: &Topology) -> Key {
    let llc = topology.llc_of(cpu.id);
    let is_before = |other: &&Cpu| {
        topology.llc_of(other.id) == llc
            && (other.thread, other.core_type) == (cpu.thread, cpu.core_type)
            && other.id < cpu.id
    };
    let nth = topology.cpus.iter().filter(is_before).count();
    let thread = cpu.thread as usize;
    [thread, cpu.core_type.index(), nth, llc.index()]
}

/// One last-level cache after the other, each with the SMT siblings of its cores.
fn caches_filled(cpu: &Cpu, topology: &Topology) -> Key {
    let llc = topology.llc_of(cpu.id).index();
    [cpu.core_type.index(), llc, cpu.thread as usize, 0]
}

fn prefixes(topology: &Topology, cpus: &[&Cpu], key: fn(&Cpu, &Topology) -> Key) -> Vec<CpuSet> {
    let mut order: Vec<(Key, CpuId)> = cpus
        .iter()
        .map(|cpu| (key(cpu, topology), cpu.id))
        .collect();
    order.sort_unstable();
    let mut sets = Vec::new();
    let mut last = 0;
    for count in 1..=order.len() {
        let is_border = order
            .get(count)
            .is_none_or(|next| next.0[..2] != order[count - 1].0[..2]);
        if count <= EACH || is_border || count * 8 >= last * 9 {
            last = count;
            sets.push(order[..count].iter().map(|(_, cpu)| *cpu).collect());
        }
    }
    sets
}

fn candidate(topology: &Topology, cpus: CpuSet, confined: bool) -> Candidate {
    let mut parts = Vec::new();
    for group in topology.groups_by(GroupBy::CoreType) {
        let own = group.cpus.intersection(&cpus);
        let cores: BTreeSet<u32> = own.iter().map(|c| topology.cpus[c.index()].core).collect();
        let siblings = own.len() - cores.len();
        match (cores.len(), siblings) {
            (0, _) => {}
            (cores, 0) => parts.push(format!("{cores} {}", group.name)),
            (cores, more) => parts.push(format!("{cores} {} with {more} siblings", group.name)),
        }
    }
    let llcs = topology.groups_by(GroupBy::Llc);
    let used = llcs.iter().filter(|llc| llc.cpus.intersects(&cpus)).count();
    let mut name = parts.join(" + ");
    if llcs.len() > 1 && used < llcs.len() && topology.core_types.len() == 1 {
        name += &format!(", {used} of {} caches", llcs.len());
    }
    Candidate {
        cpus,
        confined,
        name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::machine;

    fn of(name: &str) -> Vec<Candidate> {
        let machine = machine(name).unwrap();
        let all = &machine.topology.groups[0].cpus;
        candidates(&machine.topology, all)
    }

    #[test]
    fn core_types_siblings_and_caches_give_their_prefixes() {
        let found = of("i9-12900k");
        assert!(!found[0].confined && found[0].threads() == 24);
        let has = |cpus: &str| found.iter().any(|c| c.cpus.to_string() == cpus);
        // P cores without siblings, with them, with E cores, and E cores alone.
        for cpus in [
            "0,2,4,6,8,10,12,14",
            "0-15",
            "0,2,4,6,8,10,12,14,16-23",
            "16-23",
        ] {
            assert!(has(cpus), "{cpus}");
        }
        assert!(found.iter().skip(1).all(|c| c.confined));
        let two_caches = of("ryzen-7950x3d");
        let has = |name: &str| two_caches.iter().any(|c| c.name == name);
        assert!(has("8 zen4") && has("8 zen4-x3d") && has("8 zen4 with 8 siblings"));
        let server = of("server-12llc");
        assert!(server.len() < 200, "{}", server.len());
        assert!(
            server.iter().any(|c| c.name == "12 zen4"),
            "one core of each cache"
        );
        assert!(server.iter().any(|c| c.name == "8 zen4, 1 of 12 caches"));
    }

    #[test]
    fn only_allowed_cpus_are_used_and_no_set_stands_twice() {
        let machine = machine("juno-2-4").unwrap();
        let found = candidates(&machine.topology, &"1-3".parse().unwrap());
        let sets: BTreeSet<String> = found.iter().map(|c| c.cpus.to_string()).collect();
        assert_eq!(sets.len(), found.len());
        assert!(
            found
                .iter()
                .all(|c| c.cpus.is_subset(&"1-3".parse().unwrap()))
        );
        assert!(sets.contains("1-2") && sets.contains("3"));
    }
}
