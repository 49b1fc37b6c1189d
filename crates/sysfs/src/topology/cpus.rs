//! What sysfs says about each CPU.
//!
//! Input: the tree. Output: one [`CpuFacts`] per online CPU, in order; all CPU sets in it are the kernel's numbers.

use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::CpuId;

use super::DetectError;
use super::arm;
use super::platform::{Part, Platform, part_of_midr};
use super::tree::Tree;

/// The PMU that a CPU of an Intel hybrid belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HybridPmu {
    Core,
    Atom,
    LowPower,
}

const HYBRID_PMUS: [(HybridPmu, &str); 3] = [
    (HybridPmu::Core, "sys/devices/cpu_core/cpus"),
    (HybridPmu::Atom, "sys/devices/cpu_atom/cpus"),
    (HybridPmu::LowPower, "sys/devices/cpu_lowpower/cpus"),
];

/// A data or unified cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CacheFacts {
    pub(super) level: u32,
    pub(super) size_kib: u32,
    /// 0 where the kernel does not know.
    pub(super) ways: u32,
    pub(super) cpus: CpuSet,
    /// The kernel knows the CPUs that share it, but not its size: usual where a device tree describes it.
    pub(super) guessed: bool,
}

/// Usual sizes by level, where the kernel does not know one.
pub(super) const USUAL_KIB: [u32; 5] = [0, 32, 512, 4096, 8192];

#[derive(Clone, Debug)]
pub(super) struct CpuFacts {
    pub(super) os: CpuId,
    /// Online SMT siblings, itself included.
    pub(super) core: CpuSet,
    /// Online CPUs of its cluster, where the kernel tells.
    pub(super) cluster: Option<CpuSet>,
    pub(super) package: u64,
    pub(super) part: Option<Part>,
    pub(super) pmu: Option<HybridPmu>,
    pub(super) max_khz: Option<u64>,
    pub(super) capacity: Option<u32>,
    pub(super) highest_perf: Option<u64>,
    pub(super) l1d: Option<CacheFacts>,
    /// Level 2 and up, inner ones first.
    pub(super) outer: Vec<CacheFacts>,
}

impl CpuFacts {
    pub(super) fn at_level(&self, level: u32) -> Option<&CacheFacts> {
        self.outer.iter().find(|c| c.level == level)
    }
}

/// The online CPUs, and those that could be.
pub(super) struct Cpus {
    pub(super) list: Vec<CpuFacts>,
    pub(super) online: CpuSet,
    pub(super) offline: CpuSet,
}

const BASE: &str = "sys/devices/system/cpu";

pub(super) fn read(tree: &Tree<'_>, platform: &Platform) -> Result<Cpus, DetectError> {
    let online = tree.required_cpus(&format!("{BASE}/online"))?;
    // `possible` counts sockets that only could be plugged in, so `present` goes first.
    let present = match tree.cpus(&format!("{BASE}/present"))? {
        Some(present) => present,
        None => tree
            .cpus(&format!("{BASE}/possible"))?
            .unwrap_or_else(|| online.clone()),
    };
    let mut pmus = Vec::new();
    for (pmu, file) in HYBRID_PMUS {
        pmus.extend(tree.cpus(file)?.map(|cpus| (pmu, cpus)));
    }
    let mut list = Vec::new();
    for os in online.iter() {
        let mut facts = cpu(tree, platform, &online, os)?;
        facts.pmu = pmus
            .iter()
            .find(|(_, cpus)| cpus.contains(os))
            .map(|(pmu, _)| *pmu);
        list.push(facts);
    }
    let offline = present
        .iter()
        .filter(|cpu| !online.contains(*cpu))
        .collect();
    Ok(Cpus {
        list,
        online,
        offline,
    })
}

fn cpu(
    tree: &Tree<'_>,
    platform: &Platform,
    online: &CpuSet,
    os: CpuId,
) -> Result<CpuFacts, DetectError> {
    let at = |file: &str| format!("{BASE}/cpu{}/{file}", os.0);
    let itself: CpuSet = [os].into_iter().collect();
    let mut siblings = tree.cpus(&at("topology/core_cpus_list"))?;
    if siblings.is_none() {
        siblings = tree.cpus(&at("topology/thread_siblings_list"))?;
    }
    let with_itself = |set: CpuSet| {
        set.intersection(online)
            .iter()
            .chain([os])
            .collect::<CpuSet>()
    };
    let midr = tree.text(&at("regs/identification/midr_el1"));
    let part = midr
        .as_deref()
        .and_then(part_of_midr)
        .or_else(|| platform.parts.get(&os.0).copied());
    let caches = caches(tree, &at("cache"), part, &with_itself)?;
    // Without a driver that knows boost clocks there may still be the nominal one.
    let nominal = || {
        tree.number(&at("acpi_cppc/nominal_freq"))
            .map(|mhz| mhz.saturating_mul(1000))
    };
    let base = || tree.number(&at("cpufreq/base_frequency"));
    let max_khz = tree
        .number(&at("cpufreq/cpuinfo_max_freq"))
        .or_else(base)
        .or_else(nominal);
    let small = |n: u64| u32::try_from(n).ok();
    Ok(CpuFacts {
        os,
        core: siblings.map_or(itself, with_itself),
        cluster: tree
            .cpus(&at("topology/cluster_cpus_list"))?
            .map(with_itself),
        // Some Arm kernels say -1: no socket information.
        package: tree
            .number(&at("topology/physical_package_id"))
            .unwrap_or(0),
        part,
        pmu: None,
        max_khz: max_khz.filter(|khz| *khz > 0),
        capacity: tree
            .number(&at("cpu_capacity"))
            .and_then(small)
            .filter(|c| *c > 0),
        highest_perf: tree
            .number(&at("acpi_cppc/highest_perf"))
            .filter(|p| *p > 0),
        l1d: caches.iter().find(|c| c.level == 1).cloned(),
        outer: caches.into_iter().filter(|c| c.level >= 2).collect(),
    })
}

fn caches(
    tree: &Tree<'_>,
    folder: &str,
    part: Option<Part>,
    with_itself: &impl Fn(CpuSet) -> CpuSet,
) -> Result<Vec<CacheFacts>, DetectError> {
    let mut caches = Vec::new();
    for index in tree.numbered(folder, "index") {
        let at = |file: &str| format!("{folder}/index{index}/{file}");
        let is_data = tree.text(&at("type")).is_some_and(|t| t != "Instruction");
        let level = tree
            .number(&at("level"))
            .and_then(|l| usize::try_from(l).ok())
            .unwrap_or(0);
        let Some(usual) = USUAL_KIB.get(level).filter(|kib| is_data && **kib > 0) else {
            continue;
        };
        let size = tree.text(&at("size"));
        let malformed = |content| DetectError::Malformed {
            path: tree.path(&at("size")),
            content,
            expected: "size",
        };
        let size_kib = size
            .map(|text| kib(&text).ok_or_else(|| malformed(text)))
            .transpose()?
            .unwrap_or(0);
        caches.push(CacheFacts {
            level: level as u32,
            size_kib: if size_kib == 0 {
                arm::cache_kib(part, level).unwrap_or(*usual)
            } else {
                size_kib
            },
            ways: tree
                .number(&at("ways_of_associativity"))
                .and_then(|w| u32::try_from(w).ok())
                .unwrap_or(0),
            cpus: with_itself(tree.cpus(&at("shared_cpu_list"))?.unwrap_or_default()),
            guessed: size_kib == 0,
        });
    }
    caches.sort_by_key(|c| c.level);
    Ok(caches)
}

/// `48K`, `2M`.
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
