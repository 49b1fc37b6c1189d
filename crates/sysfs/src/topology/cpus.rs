//! Facts about each CPU from sysfs.
//!
//! Input: the tree. Output: one [`CpuFacts`] per online CPU, in order; all CPU sets in it use the kernel's numbers. Siblings are
//! one core and share all facts: a value missing for one is taken from the other.

use std::collections::BTreeMap;

use countersteer_model::bounds;
use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::CpuId;

use super::DetectError;
use super::agree::{self, Claims};
use super::caches::{self, CacheFacts, Folder};
use super::clock::{self, Reported};
use super::platform::{ArmPart, HybridPmu, Platform, part_of_midr};
use super::tree::SysRoot;

const HYBRID_PMUS: [(HybridPmu, &str); 3] = [
    (HybridPmu::Core, "sys/devices/cpu_core/cpus"),
    (HybridPmu::Atom, "sys/devices/cpu_atom/cpus"),
    (HybridPmu::LowPower, "sys/devices/cpu_lowpower/cpus"),
];

#[derive(Clone, Debug)]
pub(super) struct CpuFacts {
    pub(super) os: CpuId,
    /// Online SMT siblings, itself included.
    pub(super) core: CpuSet,
    /// Online CPUs of its cluster; `None` if unknown to the kernel.
    pub(super) cluster: Option<CpuSet>,
    pub(super) package: u64,
    pub(super) part: Option<ArmPart>,
    pub(super) pmu: Option<HybridPmu>,
    pub(super) max_khz: Option<u64>,
    pub(super) capacity: Option<u32>,
    pub(super) highest_perf: Option<u64>,
    pub(super) l1d: Option<CacheFacts>,
    /// Level 2 and up, inner ones first.
    pub(super) outer: Vec<CacheFacts>,
    /// True if its cache folder lists all of its caches.
    pub(super) caches_complete: bool,
}

impl CpuFacts {
    pub(super) fn at_level(&self, level: u32) -> Option<&CacheFacts> {
        self.outer.iter().find(|c| c.level == level)
    }
}

/// Online CPUs, and CPUs that could be online.
pub(super) struct Cpus {
    pub(super) list: Vec<CpuFacts>,
    pub(super) online: CpuSet,
    pub(super) offline: CpuSet,
    /// Kind of clock that `max_khz` is.
    pub(super) reported: Reported,
}

const BASE: &str = "sys/devices/system/cpu";

pub(super) fn read(tree: &SysRoot<'_>, platform: &Platform) -> Result<Cpus, DetectError> {
    let online = online(tree)?;
    let number = online.len() as f64;
    (bounds::CPUS.check("online", number)).map_err(|problem| DetectError::Impossible {
        root: tree.root().to_owned(),
        problem,
    })?;
    // `possible` includes sockets that could be plugged in, so `present` comes first.
    let present = tree.cpus(&format!("{BASE}/present"));
    let present = present.or_else(|| tree.cpus(&format!("{BASE}/possible")));
    let offline = present
        .iter()
        .flat_map(CpuSet::iter)
        .filter(|cpu| !online.contains(*cpu))
        .collect();
    let cores = cores(tree, &online);
    let packages = packages(tree, &online, &cores);
    let part = |cpu: CpuId| {
        let midr = tree.text(&at(cpu, "regs/identification/midr_el1"));
        let of_midr = midr.as_deref().and_then(part_of_midr);
        of_midr.or_else(|| platform.part(cpu))
    };
    let folder = |cpu: CpuId| Folder {
        entries: caches::entries(tree, cpu, &at(cpu, "cache")),
        part: part(cpu),
        package: packages[&cpu],
    };
    let folders = online.iter().map(|cpu| (cpu, folder(cpu))).collect();
    let mut known = caches::agreed(tree, &folders, &cores);
    let pmus = HYBRID_PMUS.map(|(pmu, file)| (pmu, tree.cpus(file).unwrap_or_default()));
    let (reported, clocks) = clock::reported(tree, BASE, &online);
    let small = |file: String| {
        let number = tree.number(&file).filter(|n| *n > 0);
        number.and_then(|n| u32::try_from(n).ok())
    };
    let facts = |cpu: CpuId| {
        let caches = known.by_cpu.remove(&cpu).unwrap_or_default().into_iter();
        let (inner, outer): (Vec<CacheFacts>, _) = caches.partition(|c| c.level == 1);
        let cluster = tree.cpus(&at(cpu, "topology/cluster_cpus_list"));
        CpuFacts {
            os: cpu,
            core: [cpu].into_iter().collect(),
            cluster: cluster.map(|set| set.intersection(&online)),
            package: packages[&cpu],
            part: folders[&cpu].part,
            pmu: pmus.iter().find(|row| row.1.contains(cpu)).map(|row| row.0),
            max_khz: clocks.get(&cpu).copied(),
            capacity: small(at(cpu, "cpu_capacity")),
            highest_perf: small(at(cpu, "acpi_cppc/highest_perf")).map(u64::from),
            l1d: inner.into_iter().next(),
            outer,
            caches_complete: known.complete.contains(cpu),
        }
    };
    let mut list: Vec<CpuFacts> = online.iter().map(facts).collect();
    let rows: BTreeMap<CpuId, usize> = online.iter().enumerate().map(|(r, c)| (c, r)).collect();
    for core in &cores {
        let rows: Vec<usize> = core.iter().filter_map(|c| rows.get(&c).copied()).collect();
        share(&mut list, &rows, core);
    }
    Ok(Cpus {
        list,
        online,
        offline,
        reported,
    })
}

fn at(cpu: CpuId, file: &str) -> String {
    format!("{BASE}/cpu{}/{file}", cpu.0)
}

/// Returns the online CPUs.
fn online(tree: &SysRoot<'_>) -> Result<CpuSet, DetectError> {
    let file = format!("{BASE}/online");
    if let Some(listed) = tree.cpus(&file).filter(|c| !c.is_empty()) {
        return Ok(listed);
    }
    let online = tree.unlisted_online();
    let online = online.ok_or_else(|| DetectError::Nothing {
        root: tree.root().to_owned(),
    })?;
    let what = "Missing, so that CPUs are online which have a topology or, without sysfs, which /proc counts";
    tree.remedy(what, file);
    Ok(online)
}

/// Returns the cores, as sets of siblings.
fn cores(tree: &SysRoot<'_>, online: &CpuSet) -> Vec<CpuSet> {
    let listed = |cpu: CpuId| {
        let list = |name: &str, mask: &str| {
            let [list, mask] = [name, mask].map(|file| at(cpu, &format!("topology/{file}")));
            tree.cpus_with(cpu, &list, &mask)
        };
        let set = list("core_cpus_list", "core_cpus");
        let set = set.or_else(|| list("thread_siblings_list", "thread_siblings"))?;
        Some(set.intersection(online))
    };
    let claims: Claims = online.iter().map(|cpu| (cpu, listed(cpu))).collect();
    let (mut cores, denied) = agree::sets(&claims);
    for cpu in denied.iter() {
        let what = "Siblings contradict each other: two CPUs are of one core where both say so";
        tree.remedy(what, format!("CPU {}", cpu.0));
    }
    let numbers = CpuNumbers::new(online.iter().collect());
    cores.retain(|core| {
        let own = numbers.own_set(core);
        let possible = spacing(&own).is_some() && bounds::SMT.check("smt", own.len() as f64).is_ok();
        if !possible {
            let what = "Siblings not evenly spaced or more than any core has: each stands for a core of its own";
            tree.remedy(what, format!("CPUs {core}"));
        }
        possible
    });
    let placed: CpuSet = cores.iter().flat_map(CpuSet::iter).collect();
    let alone = online.iter().filter(|cpu| !placed.contains(*cpu));
    cores.extend(alone.map(|cpu| CpuSet::from_iter([cpu])));
    cores.sort_by_key(CpuSet::lowest);
    cores
}

/// Returns the spacing of a core's siblings; 1 for a core with a single thread. `None` if they are not evenly spaced.
pub(super) fn spacing(siblings: &CpuSet) -> Option<u32> {
    let numbers: Vec<u32> = siblings.iter().map(|cpu| cpu.0).collect();
    let mut steps = numbers.windows(2).map(|w| w[1] - w[0]);
    let step = steps.next().unwrap_or(1);
    steps.all(|other| other == step).then_some(step)
}

/// Returns the socket of each CPU. Some Arm kernels print -1, which means none. A CPU without a socket is on that of its
/// siblings, or else on that of the previous CPU.
fn packages(tree: &SysRoot<'_>, online: &CpuSet, cores: &[CpuSet]) -> BTreeMap<CpuId, u64> {
    let file = |cpu: CpuId| tree.number(&at(cpu, "topology/physical_package_id"));
    let mut packages: BTreeMap<CpuId, u64> = online
        .iter()
        .filter_map(|cpu| Some((cpu, file(cpu)?)))
        .collect();
    for core in cores {
        if let Some(package) = core.iter().find_map(|cpu| packages.get(&cpu).copied()) {
            packages.extend(core.iter().map(|cpu| (cpu, package)));
        }
    }
    let mut last = packages.values().next().copied().unwrap_or(0);
    for cpu in online.iter() {
        last = *packages.entry(cpu).or_insert(last);
    }
    packages
}

/// Gives all siblings of a core the known facts of any of them.
fn share(list: &mut [CpuFacts], rows: &[usize], core: &CpuSet) {
    fn first<T>(cpus: &[CpuFacts], fact: impl Fn(&CpuFacts) -> Option<T>) -> Option<T> {
        cpus.iter().find_map(fact)
    }
    let own: Vec<CpuFacts> = rows.iter().map(|row| list[*row].clone()).collect();
    let max_khz = own.iter().filter_map(|c| c.max_khz).max();
    let most = own.iter().max_by_key(|c| c.outer.len());
    let outer = most.map(|c| c.outer.clone()).unwrap_or_default();
    for row in rows {
        let cpu = &mut list[*row];
        cpu.core = core.clone();
        cpu.cluster = first(&own, |c| c.cluster.clone());
        cpu.part = first(&own, |c| c.part);
        cpu.pmu = first(&own, |c| c.pmu);
        cpu.max_khz = max_khz;
        cpu.capacity = first(&own, |c| c.capacity);
        cpu.highest_perf = first(&own, |c| c.highest_perf);
        cpu.l1d = first(&own, |c| c.l1d.clone());
        cpu.outer.clone_from(&outer);
        cpu.caches_complete = own.iter().all(|c| c.caches_complete);
    }
}
