//! Facts about CPUs as the user-space halves of schedulers read them from a kernel: capacity, core type, caches and order.

use std::cmp::Reverse;

use countersteer_model::topology::Topology;
use countersteer_model::units::CpuId;

/// Capacity of the most capable CPU.
const FULL: usize = 1024;
/// Ratio of the largest to the smallest capacity from which a machine has little cores, in tenths.
const UNEQUAL_TENTHS: usize = 13;
/// Bytes of a line of a cache.
const LINE: f64 = 64.0;

/// Core type in the words of schedulers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoreRank {
    Little,
    Big,
    /// Most capable of unequal CPUs.
    Turbo,
}

/// Facts about one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreFacts {
    pub cpu: usize,
    pub node: usize,
    /// Number of the last-level cache, in the order of the CPUs.
    pub llc: usize,
    /// Position of the cache among those of its node.
    pub llc_place: usize,
    /// Position of the core among those of its cache.
    pub place: usize,
    /// Position of the CPU among the siblings of its core.
    pub thread: usize,
    pub siblings: usize,
    /// The other CPU of the core.
    pub sibling: Option<usize>,
    /// Bytes of cache, shares of shared ones included.
    pub cache: usize,
    pub capacity: usize,
    pub kind: CoreRank,
}

/// Numbers of values in the order in which they first come.
fn dense<T: PartialEq>(values: &[T]) -> Vec<usize> {
    let mut known: Vec<&T> = Vec::new();
    let mut number = |value| {
        let found = known.iter().position(|other| *other == value);
        found.unwrap_or_else(|| {
            known.push(value);
            known.len() - 1
        })
    };
    values.iter().map(&mut number).collect()
}

/// Capacities that tell CPUs apart: Linux's own, or else the highest frequencies in MHz.
fn raw_capacities(topology: &Topology) -> Vec<usize> {
    let capacities: Vec<usize> = (topology.cpus.iter())
        .map(|cpu| cpu.capacity as usize)
        .collect();
    if capacities.iter().any(|other| *other != capacities[0]) {
        return capacities;
    }
    let mhz = |cpu: &countersteer_model::topology::Cpu| {
        (topology.core_types[cpu.core_type.index()].freq_ghz * 1000.0) as usize
    };
    topology.cpus.iter().map(mhz).collect()
}

fn cache_bytes(topology: &Topology, cpu: usize) -> usize {
    let of = &topology.cpus[cpu];
    let core_type = &topology.core_types[of.core_type.index()];
    let own = core_type.l1d.size_kib + core_type.l2.as_ref().map_or(0.0, |l2| l2.size_kib);
    let own = own * 1024.0 / f64::from(core_type.smt.max(1));
    let share = |id: &countersteer_model::units::CacheId| {
        let cache = &topology.caches[id.index()];
        let private = cache.private;
        let bytes = cache.lines * LINE / cache.cpus.len().max(1) as f64;
        if private { 0.0 } else { bytes }
    };
    let shared: f64 = of.caches.iter().map(share).sum();
    (own + shared) as usize
}

/// Facts about all CPUs of a machine, by their numbers.
pub fn cores(topology: &Topology) -> Vec<CoreFacts> {
    let cpus = &topology.cpus;
    let raw = raw_capacities(topology);
    let (least, most) = (
        raw.iter().min().copied().unwrap_or(1),
        raw.iter().max().copied().unwrap_or(1),
    );
    let average = raw.iter().sum::<usize>() / raw.len().max(1);
    let unequal = most * 10 >= least * UNEQUAL_TENTHS;
    let llcs: Vec<_> = (0..cpus.len())
        .map(|cpu| topology.llc_of(CpuId::from_index(cpu)))
        .collect();
    let llcs = dense(&llcs);
    let numbers = dense(&cpus.iter().map(|cpu| cpu.core).collect::<Vec<_>>());
    let kind = |cpu: usize| match raw[cpu] {
        rank if average < most && rank == most => CoreRank::Turbo,
        rank if unequal && rank < average => CoreRank::Little,
        _ => CoreRank::Big,
    };
    let describe = |cpu: usize| {
        // Position of a value among the different ones of all CPUs that share another.
        let among = |value: &[usize], same: &dyn Fn(usize) -> bool| {
            let mut others: Vec<usize> = (0..cpus.len())
                .filter(|other| same(*other))
                .map(|other| value[other])
                .collect();
            others.sort_unstable();
            others.dedup();
            others.iter().position(|other| *other == value[cpu])
        };
        let same = |other: &usize| cpus[*other].core == cpus[cpu].core;
        let own: Vec<usize> = (0..cpus.len()).filter(same).collect();
        CoreFacts {
            cpu,
            node: cpus[cpu].memory as usize,
            llc: llcs[cpu],
            llc_place: among(&llcs, &|other| cpus[other].memory == cpus[cpu].memory).unwrap_or(0),
            place: among(&numbers, &|other| llcs[other] == llcs[cpu]).unwrap_or(0),
            thread: own.iter().position(|other| *other == cpu).unwrap_or(0),
            siblings: own.len(),
            sibling: own.iter().copied().find(|other| *other != cpu),
            cache: cache_bytes(topology, cpu),
            capacity: raw[cpu] * FULL / most,
            kind: kind(cpu),
        }
    };
    (0..cpus.len()).map(describe).collect()
}

/// Order in which a scheduler fills CPUs for performance: one CPU of each core first, then by cache, capacity and size of cache.
pub fn by_performance(cores: &[CoreFacts]) -> Vec<CoreFacts> {
    let mut cores = cores.to_vec();
    cores.sort_by_key(|c| {
        let rank = (c.thread, c.node, c.llc_place);
        let power = (Reverse(c.capacity), Reverse(c.cache), c.siblings);
        (rank, power, c.llc, c.place, c.cpu)
    });
    cores
}

/// Order in which a scheduler fills CPUs to save power: cache by cache, little cores first, whole cores.
pub fn by_power(cores: &[CoreFacts]) -> Vec<CoreFacts> {
    let little = cores.iter().any(|core| core.kind == CoreRank::Little);
    let mut cores = cores.to_vec();
    cores.sort_by_key(|c| {
        let capacity = if little {
            c.capacity
        } else {
            FULL - c.capacity
        };
        let rank = (c.node, c.llc_place, capacity, Reverse(c.cache));
        (rank, c.llc, c.place, Reverse(c.siblings), c.thread, c.cpu)
    });
    cores
}

/// CPUs of one node, cache and core type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    pub id: usize,
    pub node: usize,
    pub llc: usize,
    llc_place: usize,
    pub big: bool,
    pub cpus: Vec<usize>,
    /// Nearest domain of the other core type; the domain itself without one.
    pub other: usize,
    /// Domains by their distance, nearest first.
    pub neighbours: Vec<Vec<usize>>,
}

fn distance(a: &Domain, b: &Domain) -> usize {
    let kind = if a.big == b.big { 0 } else { 100 };
    let place = match (a.node == b.node, a.llc == b.llc) {
        (false, _) => 10,
        // A cache differs in its position and in its number.
        (true, false) => 2,
        (true, true) => 0,
    };
    kind + place
}

/// Neighbours in turn on both sides of a domain, as on a circle.
fn around(id: usize, others: &[usize]) -> Vec<usize> {
    let mut all = others.to_vec();
    all.push(id);
    all.sort_unstable();
    let (n, start) = (all.len(), all.iter().position(|other| *other == id));
    let start = start.unwrap_or(0);
    let mut places: Vec<usize> = (0..n).collect();
    places.sort_by_key(|place| {
        let far = (place + n - start) % n;
        (far.min(n - far), *place)
    });
    places.iter().skip(1).map(|place| all[*place]).collect()
}

/// Domains of a machine, numbered in the order of `cores`.
pub fn domains(cores: &[CoreFacts]) -> Vec<Domain> {
    let mut domains: Vec<Domain> = Vec::new();
    for core in cores {
        let big = core.kind != CoreRank::Little;
        let same = |d: &&mut Domain| (d.node, d.llc, d.big) == (core.node, core.llc, big);
        if let Some(domain) = domains.iter_mut().find(same) {
            domain.cpus.push(core.cpu);
            continue;
        }
        domains.push(Domain {
            id: domains.len(),
            node: core.node,
            llc: core.llc,
            llc_place: core.llc_place,
            big,
            cpus: vec![core.cpu],
            other: domains.len(),
            neighbours: Vec::new(),
        });
    }
    let mut by_place: Vec<Domain> = domains.clone();
    by_place.sort_by_key(|d| (d.node, d.llc, d.llc_place, d.big));
    for domain in &mut domains {
        let others = || by_place.iter().filter(|other| other.id != domain.id);
        let mut distances: Vec<usize> = others().map(|other| distance(domain, other)).collect();
        distances.sort_unstable();
        distances.dedup();
        let ring = |far: &usize| {
            let at = others().filter(|other| distance(domain, other) == *far);
            around(domain.id, &at.map(|other| other.id).collect::<Vec<_>>())
        };
        let neighbours: Vec<Vec<usize>> = distances.iter().map(ring).collect();
        let near = |id: &&usize| by_place.iter().any(|d| d.id == **id && d.big != domain.big);
        let other = neighbours.iter().flatten().find(near).copied();
        domain.other = other.unwrap_or(domain.id);
        domain.neighbours = neighbours;
    }
    domains
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersteer_model::machine::Machine;

    fn of(machine: &str) -> Vec<CoreFacts> {
        let path = format!(
            "{}/../../machines/{machine}.toml",
            env!("CARGO_MANIFEST_DIR")
        );
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let machine = Machine::parse(&path, &text);
        machine.map_or_else(|_| Vec::new(), |machine| cores(&Topology::new(&machine)))
    }

    fn numbers(cores: &[CoreFacts]) -> Vec<usize> {
        cores.iter().map(|core| core.cpu).collect()
    }

    #[test]
    fn unequal_cores_are_big_little_and_turbo() {
        let kinds: Vec<CoreRank> = of("phone-1-3-4").iter().map(|core| core.kind).collect();
        let count = |kind: CoreRank| kinds.iter().filter(|other| **other == kind).count();
        assert_eq!(
            (
                count(CoreRank::Turbo),
                count(CoreRank::Big),
                count(CoreRank::Little)
            ),
            (1, 3, 4)
        );
        // Linux gives all CPUs of this machine one capacity; their clocks differ by more than 1.3.
        let i9 = of("i9-12900k");
        assert!(
            i9[..16]
                .iter()
                .all(|core| core.kind == CoreRank::Turbo && core.siblings == 2)
        );
        assert!(
            i9[16..]
                .iter()
                .all(|core| core.kind == CoreRank::Little && core.sibling.is_none())
        );
        assert_eq!((i9[2].sibling, i9[3].sibling), (Some(3), Some(2)));
        // The clocks of these two dies differ by less.
        let ryzen = of("ryzen-7950x3d");
        assert!(ryzen.iter().all(|core| core.kind != CoreRank::Little));
        assert!(
            of("core2-quad")
                .iter()
                .all(|core| core.kind == CoreRank::Big)
        );
    }

    #[test]
    fn orders_prefer_what_their_purpose_wants() {
        let phone = of("phone-1-3-4");
        let fast = by_performance(&phone);
        let frugal = by_power(&phone);
        assert!(fast.is_sorted_by_key(|core| Reverse(core.capacity)));
        assert!(frugal.is_sorted_by_key(|core| core.capacity));
        // Siblings of cores come last for performance, and next to each other to save power.
        let i9 = of("i9-12900k");
        let order = numbers(&by_performance(&i9));
        let (first, second) = order.split_at(16);
        assert!(
            first[..8].iter().all(|cpu| cpu % 2 == 0 && *cpu < 16),
            "{order:?}"
        );
        assert!(
            second.iter().all(|cpu| cpu % 2 == 1 && *cpu < 16),
            "{order:?}"
        );
        let order = numbers(&by_power(&i9));
        assert_eq!(order[8..12], [0, 1, 2, 3], "{order:?}");
    }

    #[test]
    fn domains_are_ordered_around_each_other() {
        let phone = domains(&by_performance(&of("phone-1-3-4")));
        assert_eq!(
            phone.iter().map(|d| d.cpus.len()).collect::<Vec<_>>(),
            [4, 4]
        );
        assert_eq!((phone[0].other, phone[1].other), (1, 0));
        let server = domains(&by_performance(&of("server-12llc")));
        assert_eq!(server.len(), 12);
        assert_eq!(server[0].other, 0, "all cores are alike");
        let rings: Vec<usize> = server[0].neighbours.iter().map(Vec::len).collect();
        assert_eq!(rings.iter().sum::<usize>(), 11, "{rings:?}");
        assert_eq!(around(0, &[1, 2, 3, 4]), [1, 4, 2, 3]);
        assert_eq!(around(3, &[0, 1, 2, 4]), [2, 4, 0, 1]);
    }
}
