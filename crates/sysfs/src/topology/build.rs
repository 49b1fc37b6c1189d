//! Builds a [`Machine`] from the files of this one.
//!
//! Input: platform, CPUs, core types. Output: a [`Machine`] with contiguous numbers. Missing values come from the table of
//! microarchitectures, and `source` says so.

use std::collections::BTreeMap;

use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::machine::{
    CorePipeline, CorePower, CoreType, Cores, DEFAULT_QUEUEING, Governor, LinuxKind, Machine,
    Memory, PrivateCache, SCHEMA, SharedCache,
};
use countersteer_model::units::CpuId;

use super::agree;
use super::caches::{CacheFacts, USUAL_KIB};
use super::classify::CoreClass;
use super::cpus::{CpuFacts, Cpus, spacing};
use super::notes::notes;
use super::platform::{Platform, Vendor};
use super::tree::SysRoot;

/// Implementer of Apple's cores.
const APPLE: u32 = 0x61;
/// Clock frequency if no clock is reported at all.
const GUESSED_GHZ: f64 = 2.0;
/// Memory parameters that are in no file of the kernel.
const MEMORY_NS: f64 = 90.0;
const MEMORY_GB_S: f64 = 40.0;
const MEMORY_NJ: f64 = 20.0;
const CACHE_NJ: f64 = 1.0;

pub(super) fn machine(
    tree: &SysRoot<'_>,
    platform: &Platform,
    cpus: &Cpus,
    classes: &[CoreClass],
) -> Machine {
    let here = CpuNumbers::new(cpus.online.iter().collect());
    let (linux, capacities) = capacities(platform, &cpus.list, classes);
    let mut notes = notes(platform, cpus, classes, &capacities);
    let cores = cores(&here, &cpus.list, classes);
    let memory = memory(tree, &here, &cpus.list, &mut notes);
    notes.extend(tree.remedies());
    let types = classes
        .iter()
        .zip(&capacities)
        .map(|(class, capacity)| core_type(platform, cpus, class, *capacity));
    Machine {
        schema: SCHEMA.into(),
        name: slug(&platform.title),
        title: format!("{}, {} CPUs", platform.title, cpus.list.len()),
        source: notes.join(" "),
        linux,
        hz: platform.hz.unwrap_or(250),
        static_power_w: 0.0,
        governor: Governor::default(),
        power_limit: None,
        model: Vec::new(),
        os_cpus: Some(cpus.online.clone())
            .filter(|online| *online != CpuSet::first(cpus.list.len() as u32)),
        core_type: types.collect(),
        cores,
        cache: shared_caches(&here, &cpus.list, classes),
        memory,
    }
}

/// Returns the kernel's treatment of the core types, and the capacity it gives each.
fn capacities(
    platform: &Platform,
    cpus: &[CpuFacts],
    classes: &[CoreClass],
) -> (LinuxKind, Vec<u32>) {
    let alike = vec![1024; classes.len()];
    let own: Vec<u32> = classes.iter().filter_map(|c| c.capacity).collect();
    let best = own.iter().copied().max().unwrap_or(1024);
    // With SMT siblings online, x86 kernels rank cores instead of using capacities.
    let ranked = platform.is_x86() && cpus.iter().any(|c| c.core.len() > 1);
    if classes.len() == 1 {
        (LinuxKind::Symmetric, alike)
    } else if own.len() < classes.len() || own.iter().all(|c| *c == best) || ranked {
        (
            if platform.is_x86() {
                LinuxKind::SmtHybrid
            } else {
                LinuxKind::Symmetric
            },
            alike,
        )
    } else {
        // The best core may be offline; then no CPU has capacity 1,024.
        let part = |capacity: &u32| u64::from(*capacity) * 1024 / u64::from(best);
        let scaled = own.iter().map(|c| part(c).max(1) as u32).collect();
        (
            if platform.energy_aware {
                LinuxKind::EnergyAware
            } else {
                LinuxKind::Capacity
            },
            scaled,
        )
    }
}

/// Returns the largest number of threads of a core of the type.
fn threads(cpus: &[CpuFacts], class: &CoreClass) -> u32 {
    class
        .rows
        .iter()
        .map(|r| cpus[*r].core.len() as u32)
        .max()
        .unwrap_or(1)
}

/// True if several cores of the type share one level-two cache.
fn shares_l2(cpus: &[CpuFacts], class: &CoreClass) -> bool {
    class.rows.iter().any(|r| {
        cpus[*r]
            .at_level(2)
            .is_some_and(|l2| !l2.cpus.is_subset(&cpus[*r].core))
    })
}

fn core_type(platform: &Platform, cpus: &Cpus, class: &CoreClass, capacity: u32) -> CoreType {
    let u = class.uarch;
    let of_rows = || class.rows.iter().map(|row| &cpus.list[*row]);
    let first = &cpus.list[class.rows[0]];
    // (size in KiB, ways); 0 ways means unknown to the kernel.
    let private = |(size_kib, ways): (u32, u32), cycles: u32| PrivateCache {
        size_kib: f64::from(size_kib),
        ways: if ways == 0 { 8 } else { ways },
        latency_cycles: f64::from(cycles),
    };
    let facts = |cache: &CacheFacts| (cache.size_kib, cache.ways);
    let l1 = of_rows().find_map(|cpu| cpu.l1d.as_ref());
    let l1 = l1.map_or((USUAL_KIB[1], 0), facts);
    let l2 = first
        .at_level(2)
        .filter(|_| !shares_l2(&cpus.list, class))
        .map(facts);
    CoreType {
        name: class.name.clone(),
        why: (!class.why.is_empty()).then(|| class.why.join(", ")),
        dispatch_width: f64::from(u.width),
        window: u.window,
        pipeline: CorePipeline::named(&class.name).map(|p| p.name.clone()),
        in_order: u.in_order,
        smt: threads(&cpus.list, class),
        freq_ghz: clock(platform, class),
        capacity,
        branch_penalty_cycles: f64::from(u.penalty),
        memory_extra_ns: 0.0,
        l1d: private(l1, u.l1_cycles),
        l2: l2.map(|l2| private(l2, u.l2_cycles)),
        counters: u.counters,
        fixed_counters: fixed_counters(platform, first),
        idle: None,
        frequency: None,
        power: CorePower {
            idle_w: u.power.idle_w,
            active_w: u.power.active_w,
            instruction_nj: u.power.instruction_nj,
            fp_nj: 0.0,
            simd_nj: 0.0,
        },
        uncounted: Vec::new(),
        sf_steps: None,
    }
}

/// Returns the number of fixed counters. Intel has them for cycles and for instructions since its first 64-bit cores, and so
/// does Apple; Arm has one for cycles, AMD none.
fn fixed_counters(platform: &Platform, cpu: &CpuFacts) -> u32 {
    match platform.vendor {
        Vendor::Amd { .. } => 0,
        Vendor::Arm if cpu.part.is_none_or(|part| part.implementer != APPLE) => 1,
        Vendor::Intel { .. } | Vendor::Arm | Vendor::Other => 2,
    }
}

fn clock(platform: &Platform, class: &CoreClass) -> f64 {
    let khz = class.khz.map(|khz| khz as f64 / 1e6);
    khz.or(platform.clock.map(|clock| clock.ghz))
        .unwrap_or(GUESSED_GHZ)
}

/// Returns rows of CPUs that are equal in type, socket, threads per core and spacing of siblings.
fn cores(here: &CpuNumbers, cpus: &[CpuFacts], classes: &[CoreClass]) -> Vec<Cores> {
    let mut packages: Vec<u64> = cpus.iter().map(|c| c.package).collect();
    packages.sort_unstable();
    packages.dedup();
    let mut rows: BTreeMap<(usize, u32, u32, u32), CpuSet> = BTreeMap::new();
    for (class, cpu) in classes
        .iter()
        .enumerate()
        .flat_map(|(i, c)| c.rows.iter().map(move |r| (i, &cpus[*r])))
    {
        let own = here.own_set(&cpu.core);
        let step = spacing(&own).unwrap_or(1);
        let socket = packages.partition_point(|p| *p < cpu.package) as u32;
        let row = rows
            .entry((class, socket, own.len() as u32, step))
            .or_default();
        own.iter().for_each(|c| row.insert(c));
    }
    let threads: Vec<u32> = classes.iter().map(|class| threads(cpus, class)).collect();
    let mut cores: Vec<Cores> = Vec::new();
    for ((class, socket, online, step), cpus_of_row) in rows {
        cores.push(Cores {
            core_type: classes[class].name.clone(),
            cpus: cpus_of_row,
            sibling_step: step,
            threads: Some(online).filter(|n| *n < threads[class]),
            socket,
        });
    }
    cores.sort_by_key(|c| c.cpus.lowest());
    cores
}

/// Returns every cache outside the cores, once.
fn shared_caches(here: &CpuNumbers, cpus: &[CpuFacts], classes: &[CoreClass]) -> Vec<SharedCache> {
    let mut caches: BTreeMap<(u32, CpuSet), SharedCache> = BTreeMap::new();
    let shared: Vec<bool> = classes.iter().map(|class| shares_l2(cpus, class)).collect();
    for (class, shares_l2, cpu) in (classes.iter().zip(shared))
        .flat_map(|(c, shares_l2)| c.rows.iter().map(move |r| (c, shares_l2, &cpus[*r])))
    {
        for cache in &cpu.outer {
            if cache.level == 2 && !shares_l2 {
                continue;
            }
            let set = here.own_set(&cache.cpus);
            let cycles_ns = f64::from(class.uarch.l2_cycles)
                / class.khz.map_or(GUESSED_GHZ, |khz| khz as f64 / 1e6);
            let latency_ns = if cache.level == 2 {
                (cycles_ns * 10.0).round() / 10.0
            } else {
                class.uarch.l3_ns
            };
            caches
                .entry((cache.level, set.clone()))
                .or_insert_with(|| SharedCache {
                    level: cache.level,
                    cpus: set,
                    size_kib: f64::from(cache.size_kib),
                    ways: if cache.ways == 0 { 16 } else { cache.ways },
                    latency_ns,
                    access_nj: CACHE_NJ,
                });
        }
    }
    let cores = cpus.iter().map(|cpu| here.own_set(&cpu.core)).collect();
    nested(caches.into_values().collect(), cores)
}

/// Returns the caches by level and lowest CPU, united if they overlap or cut a core or an inner cache.
fn nested(caches: Vec<SharedCache>, mut inner: Vec<CpuSet>) -> Vec<SharedCache> {
    let mut nested = Vec::new();
    for level in 2..=4 {
        let here: Vec<&SharedCache> = caches.iter().filter(|c| c.level == level).collect();
        let sets: Vec<CpuSet> = here.iter().map(|c| c.cpus.clone()).collect();
        let sets = agree::united(&sets, &inner);
        let place = places(&sets);
        let mut first: Vec<Option<&SharedCache>> = vec![None; sets.len()];
        for cache in here {
            if let Some(nth) = cache.cpus.lowest().and_then(|cpu| place.get(&cpu)) {
                first[*nth].get_or_insert(cache);
            }
        }
        for (set, cache) in sets.iter().zip(first) {
            nested.extend(cache.map(|cache| SharedCache {
                cpus: set.clone(),
                ..cache.clone()
            }));
        }
        inner.extend(sets);
    }
    nested
}

/// Returns the index of each CPU's set, given disjoint sets.
fn places(sets: &[CpuSet]) -> BTreeMap<CpuId, usize> {
    let members =
        |(nth, set): (usize, &CpuSet)| set.iter().map(|cpu| (cpu, nth)).collect::<Vec<_>>();
    sets.iter().enumerate().flat_map(members).collect()
}

/// Returns the CPUs of the memory nodes, made disjoint. CPUs without a node get their own.
fn memory(
    tree: &SysRoot<'_>,
    here: &CpuNumbers,
    cpus: &[CpuFacts],
    notes: &mut Vec<String>,
) -> Vec<Memory> {
    const NODES: &str = "sys/devices/system/node";
    let mut nodes = Vec::new();
    let mut without = Vec::new();
    for node in tree.numbered(NODES, "node") {
        let at = |file: &str| format!("{NODES}/node{node}/{file}");
        let listed = tree.cpus_or_mask(&at("cpulist"), &at("cpumap"));
        let set = here.own_set(&listed.unwrap_or_default());
        if set.is_empty() {
            without.push(node.to_string());
        } else {
            nodes.push(set);
        }
    }
    if !without.is_empty() {
        notes.push(format!(
            "Memory nodes without CPUs are left out: {}.",
            without.join(", ")
        ));
    }
    let cores: Vec<CpuSet> = cpus.iter().map(|cpu| here.own_set(&cpu.core)).collect();
    let mut domains = agree::united(&nodes, &cores);
    let place = places(&domains);
    let mut united = vec![0; domains.len()];
    for node in nodes.iter().filter_map(CpuSet::lowest) {
        united[place[&node]] += 1;
    }
    for (set, _) in domains.iter().zip(united).filter(|(_, nodes)| *nodes != 1) {
        let what = "Memory nodes share CPUs or cut cores, and are taken for one";
        tree.remedy(what, format!("CPUs {}", here.os_set(set)));
    }
    let placed: CpuSet = domains.iter().flat_map(CpuSet::iter).collect();
    let all = CpuSet::first(cpus.len() as u32);
    let rest: CpuSet = all.iter().filter(|cpu| !placed.contains(*cpu)).collect();
    if !rest.is_empty() {
        if !nodes.is_empty() {
            let what = "No memory node lists some CPUs, which are taken for a node of their own";
            tree.remedy(what, format!("CPUs {}", here.os_set(&rest)));
        }
        domains.push(rest);
    }
    let domain = |cpus| Memory {
        cpus,
        latency_ns: MEMORY_NS,
        bandwidth_gb_s: MEMORY_GB_S,
        queueing: DEFAULT_QUEUEING,
        // The kernel's distances of nodes are firmware's estimates and no latencies, so all memory counts as local.
        remote: 1.0,
        access_nj: MEMORY_NJ,
    };
    domains.into_iter().map(domain).collect()
}

/// Converts `12th Gen Intel(R) Core(TM) i9-12900K` to `12th-gen-intel-core-i9-12900k`.
fn slug(title: &str) -> String {
    let title = title
        .replace("(R)", " ")
        .replace("(TM)", " ")
        .to_lowercase();
    let title = title.split('@').next().unwrap_or_default();
    let words = title
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|w| !w.is_empty());
    let slug = words.collect::<Vec<_>>().join("-");
    if slug.is_empty() {
        "unknown".into()
    } else {
        slug
    }
}
