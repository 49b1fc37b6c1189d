//! Candidates: sets of CPUs with one thread on each, and the chunking of the program's loops.
//!
//! Input: a topology, the CPUs that may be used, chunkings. Output: prefixes of orders in which CPUs are filled. Cores come before all SMT
//! siblings, or fast cores with theirs before slow ones. Last-level caches come one after the other, or in turn. Each core type
//! comes by itself, too.

use std::collections::BTreeSet;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::topology::{Cpu, GroupBy, Topology};
use countersteer_model::units::CpuId;

/// Numbers of threads that are all candidates; above, each is an eighth more than the last one.
const EACH: usize = 16;

/// Distribution of a loop's iterations among threads, as far as its name tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Chunking {
    /// Nothing is known of it.
    #[default]
    Unknown,
    /// Shares are fixed before the loop begins.
    Static,
    /// Threads take chunks until none is left.
    Dynamic,
}

impl Chunking {
    /// Reads a schedule in the notation of OpenMP: `static`, `dynamic,16`, `guided`; with a modifier as in `monotonic:dynamic`.
    #[must_use]
    pub fn named(text: &str) -> Self {
        let kind = text.rsplit(':').next().unwrap_or(text);
        match kind.split(',').next().unwrap_or(kind).trim() {
            "static" => Self::Static,
            "dynamic" | "guided" => Self::Dynamic,
            _ => Self::Unknown,
        }
    }
}

/// Threads on CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// CPUs by the topology's numbers.
    pub cpus: CpuSet,
    /// False for all CPUs that may be used: threads are left where the kernel places them.
    pub confined: bool,
    /// Cores in words: `8 golden-cove + 4 gracemont`.
    pub name: String,
    /// Number of threads: one for each CPU, or more.
    pub threads: usize,
    /// Row of the chunking among those that are tried, and its kind.
    pub chunking: (usize, Chunking),
}

/// Returns the candidates with each chunking; the first one keeps the first chunking.
#[must_use]
pub fn chunked(all: Vec<Candidate>, chunkings: &[Chunking]) -> Vec<Candidate> {
    if chunkings.is_empty() {
        return all;
    }
    let with = |(row, kind): (usize, &Chunking)| {
        let chunking = (row, *kind);
        all.iter().map(move |candidate| Candidate {
            chunking,
            ..candidate.clone()
        })
    };
    chunkings.iter().enumerate().flat_map(with).collect()
}

/// Position of a CPU in an order of filling.
type FillingKey = [usize; 4];

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
fn cores_first(cpu: &Cpu, topology: &Topology) -> FillingKey {
    let llc = topology.llc_of(cpu.id).index();
    [cpu.thread as usize, cpu.core_type.index(), llc, 0]
}

/// Fast cores with their SMT siblings before slow cores.
fn siblings_early(cpu: &Cpu, topology: &Topology) -> FillingKey {
    let llc = topology.llc_of(cpu.id).index();
    [cpu.core_type.index(), cpu.thread as usize, llc, 0]
}

/// All cores, fast types first, caches in turn; then their SMT siblings.
fn caches_in_turn(cpu: &Cpu, topology: &Topology) -> FillingKey {
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
fn caches_filled(cpu: &Cpu, topology: &Topology) -> FillingKey {
    let llc = topology.llc_of(cpu.id).index();
    [cpu.core_type.index(), llc, cpu.thread as usize, 0]
}

fn prefixes(
    topology: &Topology,
    cpus: &[&Cpu],
    key: fn(&Cpu, &Topology) -> FillingKey,
) -> Vec<CpuSet> {
    let mut order: Vec<(FillingKey, CpuId)> = cpus
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
        threads: cpus.len(),
        cpus,
        confined,
        name,
        chunking: Default::default(),
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
        assert!(!found[0].confined && found[0].threads == 24);
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

    #[test]
    fn chunkings_multiply_candidates_and_their_names_tell_their_kind() {
        let plain = of("juno-2-4");
        let kinds = ["static", "dynamic,16", "nonmonotonic:guided", "64"].map(Chunking::named);
        let [fixed, taken, guided, unknown] = kinds;
        assert_eq!((fixed, taken), (Chunking::Static, Chunking::Dynamic));
        assert_eq!((guided, unknown), (Chunking::Dynamic, Chunking::Unknown));
        let all = chunked(plain.clone(), &kinds);
        assert_eq!(all.len(), 4 * plain.len());
        assert_eq!(all[0].chunking, (0, Chunking::Static));
        assert!(!all[0].confined && all[0].cpus == plain[0].cpus);
        assert_eq!(chunked(plain.clone(), &[]), plain);
    }
}
