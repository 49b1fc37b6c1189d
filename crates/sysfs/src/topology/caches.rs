//! Caches of each CPU.
//!
//! Input: the tree. Output: the data and unified caches of each CPU, with the sets of CPUs that share them. Sizes unknown to the
//! kernel are the usual ones.

use std::collections::{BTreeMap, BTreeSet};

use countersteer_model::bounds;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::CpuId;

use super::agree::{self, Claims};
use super::platform::ArmPart;
use super::tree::SysRoot;
use super::uarch;

/// Data or unified cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CacheFacts {
    pub(super) level: u32,
    pub(super) size_kib: u32,
    /// 0 if unknown to the kernel.
    pub(super) ways: u32,
    pub(super) cpus: CpuSet,
    /// True if its size, or even its existence, is unknown to the kernel: common with device trees.
    pub(super) guessed: bool,
    /// True if no file names the CPUs that share it, which are then the usual ones.
    pub(super) usual: bool,
}

impl CacheFacts {
    /// Returns the size in KiB; `None` if it is unknown to the kernel.
    pub(super) fn known_kib(&self) -> Option<u32> {
        (!self.guessed).then_some(self.size_kib)
    }
}

/// Usual sizes by level, for sizes unknown to the kernel.
pub(super) const USUAL_KIB: [u32; 5] = [0, 32, 512, 4096, 8192];
pub(super) const LEVELS: u32 = USUAL_KIB.len() as u32 - 1;

/// Entry of a cache folder, with the fields whose files exist.
#[derive(Clone)]
pub(super) struct CacheFolder {
    index: u32,
    level: Option<u32>,
    kind: Option<String>,
    size_kib: Option<u32>,
    ways: Option<u32>,
    cpus: Option<CpuSet>,
}

/// Returns the entries of a CPU's cache folder.
pub(super) fn entries(tree: &SysRoot<'_>, cpu: CpuId, folder: &str) -> Vec<CacheFolder> {
    let entry = |index: u32| {
        let at = |file: &str| format!("{folder}/index{index}/{file}");
        let small = |file: &str| {
            tree.number(&at(file))
                .and_then(|n| u32::try_from(n).ok())
                .filter(|n| *n > 0)
        };
        let possible = |kib: &u32| bounds::CACHE_SIZE.check("size", f64::from(*kib)).is_ok();
        let size = tree.text(&at("size")).and_then(|text| kib(&text));
        CacheFolder {
            index,
            level: small("level").filter(|level| *level <= LEVELS),
            kind: tree.text(&at("type")),
            size_kib: size.filter(possible),
            ways: small("ways_of_associativity").filter(|ways| *ways <= bounds::WAYS.most as u32),
            cpus: tree.cpus_with(cpu, &at("shared_cpu_list"), &at("shared_cpu_map")),
        }
    };
    let indices = tree.numbered(folder, "index");
    indices.into_iter().map(entry).collect()
}

/// Parses `48K`, `2M`.
fn kib(size: &str) -> Option<u32> {
    let digits = size.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &size[digits.len()..] {
        "K" | "KB" => 1,
        "M" | "MB" => 1024,
        "G" | "GB" => 1024 * 1024,
        _ => return None,
    };
    digits.parse::<u32>().ok()?.checked_mul(unit)
}

/// Caches by CPU and level, level 1 first, and the CPUs whose folders list all of their caches.
pub(super) struct ListedCaches {
    pub(super) by_cpu: BTreeMap<CpuId, Vec<CacheFacts>>,
    pub(super) complete: CpuSet,
}

/// Cache folder of a CPU, and the CPU's position.
pub(super) struct Folder {
    pub(super) entries: Vec<CacheFolder>,
    pub(super) part: Option<ArmPart>,
    pub(super) package: u64,
}

/// Returns the caches that CPUs agree on, given the cores, which no cache cuts.
pub(super) fn agreed(
    tree: &SysRoot<'_>,
    cpus: &BTreeMap<CpuId, Folder>,
    cores: &[CpuSet],
) -> ListedCaches {
    let mut shapes: BTreeMap<u32, (u32, String)> = BTreeMap::new();
    for entry in cpus.values().flat_map(|folder| &folder.entries) {
        if let (Some(level), Some(kind)) = (entry.level, &entry.kind) {
            shapes
                .entry(entry.index)
                .or_insert_with(|| (level, kind.clone()));
        }
    }
    let data = |entry: &&CacheFolder| {
        let kind = entry.kind.as_deref();
        kind.or(shapes.get(&entry.index).map(|s| s.1.as_str())) != Some("Instruction")
    };
    let level_of = |entry: &CacheFolder| entry.level.or(shapes.get(&entry.index).map(|s| s.0));
    let whole = |entries: &[CacheFolder]| {
        let numbered = entries
            .iter()
            .enumerate()
            .all(|(nth, e)| e.index as usize == nth && level_of(e).is_some());
        numbered && !entries.is_empty()
    };
    let mut known = ListedCaches {
        by_cpu: BTreeMap::new(),
        complete: cpus
            .iter()
            .filter(|(_, folder)| whole(&folder.entries))
            .map(|(cpu, _)| *cpu)
            .collect(),
    };
    let mut inner = cores.to_vec();
    for level in 1..=LEVELS {
        let at_level: BTreeMap<CpuId, &CacheFolder> = cpus
            .iter()
            .filter_map(|(cpu, folder)| {
                let of_level = folder.entries.iter().filter(data);
                let mut of_level = of_level.filter(|e| level_of(e) == Some(level));
                Some((*cpu, of_level.next()?))
            })
            .collect();
        let mut sets = shared(tree, level, cpus.keys(), &at_level, &inner);
        let placed: CpuSet = sets.iter().flat_map(CpuSet::iter).collect();
        let rest = at_level.keys().filter(|cpu| !placed.contains(**cpu));
        let rest: CpuSet = rest.copied().collect();
        let claimed = sets.len();
        sets.extend(usual_sharing(level, &rest, cpus, cores));
        for (nth, set) in sets.iter().enumerate() {
            let entries: Vec<&CacheFolder> = set
                .iter()
                .filter_map(|c| at_level.get(&c).copied())
                .collect();
            let part = set.lowest().and_then(|cpu| cpus.get(&cpu)?.part);
            let mut cache = cache(level, set, &entries, part);
            cache.usual = nth >= claimed;
            for cpu in set.iter() {
                known.by_cpu.entry(cpu).or_default().push(cache.clone());
            }
        }
        inner.extend(sets);
    }
    known
}

/// Returns the sets of CPUs that share the caches of a level; no set cuts a core or an inner cache.
fn shared<'a>(
    tree: &SysRoot<'_>,
    level: u32,
    cpus: impl Iterator<Item = &'a CpuId>,
    at_level: &BTreeMap<CpuId, &CacheFolder>,
    inner: &[CpuSet],
) -> Vec<CpuSet> {
    let claims: Claims = cpus
        .map(|cpu| (*cpu, at_level.get(cpu).and_then(|e| e.cpus.clone())))
        .collect();
    let online: CpuSet = claims.keys().copied().collect();
    let (sets, denied) = agree::sets(&claims);
    let united = agree::united(&sets, inner);
    let agreed: BTreeSet<&CpuSet> = sets.iter().collect();
    let cut = united.iter().filter(|set| !agreed.contains(set));
    for set in denied
        .iter()
        .map(|c| c.to_string())
        .chain(cut.map(ToString::to_string))
    {
        let what =
            format!("Level-{level} caches contradict each other, and are as most CPUs have them");
        tree.remedy(what, format!("CPUs {set}"));
    }
    united.iter().map(|set| set.intersection(&online)).collect()
}

/// Returns the usual sharing of caches without sharing files: inner caches belong to a core, others to a socket.
fn usual_sharing(
    level: u32,
    rest: &CpuSet,
    cpus: &BTreeMap<CpuId, Folder>,
    cores: &[CpuSet],
) -> Vec<CpuSet> {
    if level <= 2 {
        let of_core = cores.iter().map(|core| core.intersection(rest));
        return of_core.filter(|set| !set.is_empty()).collect();
    }
    let mut sockets: BTreeMap<u64, CpuSet> = BTreeMap::new();
    for cpu in rest.iter() {
        let package = cpus.get(&cpu).map_or(0, |folder| folder.package);
        sockets.entry(package).or_default().insert(cpu);
    }
    sockets.into_values().collect()
}

fn cache(level: u32, cpus: &CpuSet, entries: &[&CacheFolder], part: Option<ArmPart>) -> CacheFacts {
    let size = most_common(entries.iter().filter_map(|e| e.size_kib));
    let usual = || {
        let built = uarch::arm(part).cache_kib(level as usize);
        built.unwrap_or(USUAL_KIB[level as usize])
    };
    CacheFacts {
        level,
        size_kib: size.unwrap_or_else(usual),
        ways: most_common(entries.iter().filter_map(|e| e.ways)).unwrap_or(0),
        cpus: cpus.clone(),
        guessed: size.is_none(),
        usual: false,
    }
}

/// Returns the most common of several values; the smallest if several are equally common.
pub(super) fn most_common(figures: impl Iterator<Item = u32>) -> Option<u32> {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    figures.for_each(|figure| *counts.entry(figure).or_default() += 1);
    let common = counts.into_iter().rev().max_by_key(|(_, count)| *count);
    common.map(|(figure, _)| figure)
}
