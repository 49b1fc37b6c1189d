//! Caches that no file lists.
//!
//! Input: the caches that files list, and the core types. Output: the caches of each CPU. Missing ones are taken from CPUs of the
//! same type, or else assumed.

use std::collections::BTreeMap;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::CpuId;

use super::caches::{CacheFacts, LEVELS, USUAL_KIB};
use super::classify::CoreClass;
use super::cpus::CpuFacts;
use super::tree::SysRoot;

/// Fills in caches that CPUs lack but others of their type have, or that the kernel does not know.
pub(super) fn complete(tree: &SysRoot<'_>, cpus: &mut [CpuFacts], classes: &[CoreClass]) {
    for level in 2..=LEVELS {
        as_others_of_the_type(tree, cpus, classes, level);
    }
    let blank = |cpu: &CpuFacts| cpu.outer.is_empty();
    let mut sockets: BTreeMap<u64, CpuSet> = BTreeMap::new();
    for cpu in cpus.iter_mut().filter(|c| blank(c)) {
        // Old Arm kernels list clusters but no caches; a cluster shares its L2.
        let cluster = cpu.cluster.clone().filter(|c| !c.is_subset(&cpu.core));
        match cluster {
            Some(cluster) => cpu.outer.push(assumed(2, 2 * USUAL_KIB[2], cluster)),
            None => sockets.entry(cpu.package).or_default().insert(cpu.os),
        }
    }
    for shared in sockets.into_values() {
        let what = "No file has caches outside the cores: one last-level cache is assumed";
        tree.remedy(what, format!("CPUs {shared}"));
        for row in rows_of(cpus, &shared) {
            let cpu = &mut cpus[row];
            let own = assumed(2, USUAL_KIB[2], cpu.core.clone());
            cpu.outer = vec![own, assumed(3, USUAL_KIB[3], shared.clone())];
        }
    }
}

/// Returns the rows of a set's CPUs; the rows are in order of the kernel's numbers.
fn rows_of(cpus: &[CpuFacts], set: &CpuSet) -> Vec<usize> {
    let row = |os| cpus.binary_search_by_key(&os, |cpu| cpu.os).ok();
    set.iter().filter_map(row).collect()
}

const fn assumed(level: u32, size_kib: u32, cpus: CpuSet) -> CacheFacts {
    CacheFacts {
        level,
        size_kib,
        ways: 0,
        cpus,
        guessed: true,
        usual: true,
    }
}

/// Gives CPUs without a cache of a level the caches of others of their type: equal in size and number of sharers.
fn as_others_of_the_type(
    tree: &SysRoot<'_>,
    cpus: &mut [CpuFacts],
    classes: &[CoreClass],
    level: u32,
) {
    // Types that share a cache where it is known share the assumed ones, too.
    let mut models: BTreeMap<Option<CpuId>, (CacheFacts, Vec<usize>)> = BTreeMap::new();
    for class in classes {
        let rows = class.rows.iter().copied();
        let lacks = |row: &usize| cpus[*row].at_level(level).is_none();
        let (without, with): (Vec<usize>, Vec<usize>) = rows.partition(lacks);
        let model = with.first().and_then(|row| cpus[*row].at_level(level));
        let Some(model) = model.cloned().filter(|_| !without.is_empty()) else {
            continue;
        };
        let named: CpuSet = without.iter().map(|row| cpus[*row].os).collect();
        let what = format!(
            "No file has level-{level} caches of some CPUs, as others of their type have them: assumed"
        );
        tree.remedy(what, format!("CPUs {named}"));
        let without = join_the_usual(cpus, &with, without, level);
        let model = models
            .entry(model.cpus.lowest())
            .or_insert_with(|| (model, Vec::new()));
        model.1.extend(without);
    }
    for (model, mut rows) in models.into_values() {
        rows.sort_unstable();
        like(cpus, &model, rows);
    }
}

/// Gives CPUs without a cache caches like a model.
fn like(cpus: &mut [CpuFacts], model: &CacheFacts, without: Vec<usize>) {
    let mut open: BTreeMap<u64, CpuSet> = BTreeMap::new();
    let mut done: CpuSet = CpuSet::default();
    let mut sets = Vec::new();
    for row in without {
        if done.contains(cpus[row].os) {
            continue;
        }
        let set = open.entry(cpus[row].package).or_default();
        for cpu in cpus[row].core.iter() {
            set.insert(cpu);
            done.insert(cpu);
        }
        if set.len() >= model.cpus.len() {
            sets.push(std::mem::take(set));
        }
    }
    sets.extend(open.into_values().filter(|set| !set.is_empty()));
    for set in sets {
        for row in rows_of(cpus, &set) {
            let cpu = &mut cpus[row];
            let cache = assumed(model.level, model.size_kib, set.clone());
            cpu.outer.push(CacheFacts {
                ways: model.ways,
                ..cache
            });
            cpu.outer.sort_by_key(|c| c.level);
        }
    }
}

/// Adds CPUs to the cache of their socket if no file names the CPUs that share that; returns the rows of the other CPUs.
fn join_the_usual(
    cpus: &mut [CpuFacts],
    with: &[usize],
    without: Vec<usize>,
    level: u32,
) -> Vec<usize> {
    let mut sockets: BTreeMap<u64, CacheFacts> = BTreeMap::new();
    for cpu in with.iter().map(|row| &cpus[*row]) {
        // Caches of level 2 belong to a core, whose siblings have the same.
        if let Some(cache) = cpu.at_level(level).filter(|c| c.usual && level > 2) {
            sockets.entry(cpu.package).or_insert_with(|| cache.clone());
        }
    }
    let (joining, rest): (Vec<usize>, _) = without
        .into_iter()
        .partition(|row| sockets.contains_key(&cpus[*row].package));
    for cpu in joining.iter().map(|row| &cpus[*row]) {
        if let Some(cache) = sockets.get_mut(&cpu.package) {
            cpu.core
                .iter()
                .for_each(|sibling| cache.cpus.insert(sibling));
        }
    }
    for cpu in cpus.iter_mut() {
        let joined = sockets.get(&cpu.package);
        if let Some(cache) = joined.filter(|cache| cache.cpus.contains(cpu.os)) {
            cpu.outer.retain(|old| old.level != level);
            cpu.outer.push(cache.clone());
            cpu.outer.sort_by_key(|c| c.level);
        }
    }
    rest
}
