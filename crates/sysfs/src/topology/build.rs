//! A [`Machine`] from what was read of this one.
//!
//! Input: platform, CPUs, core types. Output: a [`Machine`], numbered without holes, with what sysfs lacks filled in
//! from the table of microarchitectures, and a `source` that says so.

use std::collections::BTreeMap;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::machine::{
    CorePipeline, CorePower, CoreType, Cores, Governor, LinuxKind, Machine, Memory, PrivateCache,
    SCHEMA, SharedCache,
};
use countersteer_model::units::CpuId;

use super::DetectError;
use super::arm::APPLE;
use super::classify::Class;
use super::cpus::{CacheFacts, CpuFacts, Cpus, USUAL_KIB};
use super::platform::{Platform, Vendor};
use super::tree::Tree;

/// Where no clock is reported at all.
const GUESSED_GHZ: f64 = 2.0;
/// Memory figures that are in no file of the kernel.
const MEMORY_NS: f64 = 90.0;
const MEMORY_GB_S: f64 = 40.0;
const MEMORY_NJ: f64 = 20.0;
const CACHE_NJ: f64 = 1.0;

pub(super) fn machine(
    tree: &Tree<'_>,
    platform: &Platform,
    cpus: &Cpus,
    classes: &[Class],
) -> Result<Machine, DetectError> {
    let here = Numbering::new(&cpus.online);
    let (linux, capacities) = capacities(platform, &cpus.list, classes);
    let mut notes = notes(platform, cpus, classes, &capacities);
    let memory = memory(tree, &here, &mut notes)?;
    let types = classes
        .iter()
        .zip(&capacities)
        .map(|(class, capacity)| core_type(platform, cpus, class, *capacity));
    Ok(Machine {
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
        os_cpus: (!here.is_identity()).then(|| cpus.online.clone()),
        core_type: types.collect(),
        cores: cores(tree, &here, &cpus.list, classes)?,
        cache: shared_caches(&here, &cpus.list, classes),
        memory,
    })
}

/// From the kernel's CPU numbers to numbers without holes.
struct Numbering {
    by_os: BTreeMap<CpuId, CpuId>,
}

impl Numbering {
    fn new(online: &CpuSet) -> Self {
        Self {
            by_os: online
                .iter()
                .enumerate()
                .map(|(i, os)| (os, CpuId::from_index(i)))
                .collect(),
        }
    }

    fn is_identity(&self) -> bool {
        self.by_os.iter().all(|(os, here)| os == here)
    }

    fn set(&self, os: &CpuSet) -> CpuSet {
        os.iter()
            .filter_map(|cpu| self.by_os.get(&cpu).copied())
            .collect()
    }
}

/// How the kernel treats the core types, and the capacity it gives each.
fn capacities(platform: &Platform, cpus: &[CpuFacts], classes: &[Class]) -> (LinuxKind, Vec<u32>) {
    let alike = vec![1024; classes.len()];
    let own: Vec<u32> = classes.iter().filter_map(|c| c.capacity).collect();
    let best = own.iter().copied().max().unwrap_or(1024);
    // With siblings online, x86 kernels rank cores instead of using capacities.
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
        // The best core may be offline, and then no CPU has 1,024.
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

fn threads(cpus: &[CpuFacts], class: &Class) -> u32 {
    class
        .rows
        .iter()
        .map(|r| cpus[*r].core.len() as u32)
        .max()
        .unwrap_or(1)
}

/// Whether more than one core of the type uses the same level-two cache.
fn shares_l2(cpus: &[CpuFacts], class: &Class) -> bool {
    class.rows.iter().any(|r| {
        cpus[*r]
            .at_level(2)
            .is_some_and(|l2| !l2.cpus.is_subset(&cpus[*r].core))
    })
}

fn core_type(platform: &Platform, cpus: &Cpus, class: &Class, capacity: u32) -> CoreType {
    let u = class.uarch;
    let first = &cpus.list[class.rows[0]];
    // (size in KiB, ways); 0 ways: the kernel does not know.
    let private = |(size_kib, ways): (u32, u32), cycles: u32| PrivateCache {
        size_kib: f64::from(size_kib),
        ways: if ways == 0 { 8 } else { ways },
        latency_cycles: f64::from(cycles),
    };
    let facts = |cache: &CacheFacts| (cache.size_kib, cache.ways);
    let l1 = first.l1d.as_ref().map_or((USUAL_KIB[1], 0), facts);
    let no_outer = first.outer.is_empty() && cluster_l2(first).is_none();
    let l2 = first
        .at_level(2)
        .filter(|_| !shares_l2(&cpus.list, class))
        .map(facts);
    let l2 = l2.or(no_outer.then_some((USUAL_KIB[2], 0)));
    CoreType {
        name: class.name.clone(),
        dispatch_width: f64::from(u.width),
        window: u.window,
        pipeline: CorePipeline::named(&class.name).map(|p| p.name.clone()),
        in_order: u.in_order,
        smt: threads(&cpus.list, class),
        freq_ghz: clock(platform, class),
        capacity,
        branch_penalty_cycles: f64::from(u.penalty),
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

/// Intel has had counters for cycles and for instructions since its first 64-bit cores, and so has Apple; Arm has one for cycles,
/// AMD none.
fn fixed_counters(platform: &Platform, cpu: &CpuFacts) -> u32 {
    match platform.vendor {
        Vendor::Amd { .. } => 0,
        Vendor::Arm if cpu.part.is_none_or(|part| part.implementer != APPLE) => 1,
        Vendor::Intel { .. } | Vendor::Arm | Vendor::Other => 2,
    }
}

fn clock(platform: &Platform, class: &Class) -> f64 {
    let khz = class.khz.map(|khz| khz as f64 / 1e6);
    khz.or(platform.mhz.map(|mhz| (mhz / 10.0).round() / 100.0))
        .unwrap_or(GUESSED_GHZ)
}

/// Rows of CPUs alike in type, socket, threads per core and spacing of siblings.
fn cores(
    tree: &Tree<'_>,
    here: &Numbering,
    cpus: &[CpuFacts],
    classes: &[Class],
) -> Result<Vec<Cores>, DetectError> {
    let mut packages: Vec<u64> = cpus.iter().map(|c| c.package).collect();
    packages.sort_unstable();
    packages.dedup();
    let mut rows: BTreeMap<(usize, u32, u32, u32), CpuSet> = BTreeMap::new();
    for (class, cpu) in classes
        .iter()
        .enumerate()
        .flat_map(|(i, c)| c.rows.iter().map(move |r| (i, &cpus[*r])))
    {
        let siblings: Vec<u32> = here.set(&cpu.core).iter().map(|c| c.0).collect();
        let step = siblings.get(1).map_or(1, |second| second - siblings[0]);
        if siblings.windows(2).any(|w| w[1] - w[0] != step) {
            let file = format!(
                "sys/devices/system/cpu/cpu{}/topology/core_cpus_list",
                cpu.os.0
            );
            return Err(DetectError::OddSiblings {
                path: tree.path(&file),
                cpus: cpu.core.to_string(),
            });
        }
        let socket = packages.partition_point(|p| *p < cpu.package) as u32;
        let row = rows
            .entry((class, socket, siblings.len() as u32, step))
            .or_default();
        here.set(&cpu.core).iter().for_each(|c| row.insert(c));
    }
    let mut cores: Vec<Cores> = Vec::new();
    for ((class, socket, online, step), cpus_of_row) in rows {
        cores.push(Cores {
            core_type: classes[class].name.clone(),
            cpus: cpus_of_row,
            sibling_step: step,
            threads: Some(online).filter(|n| *n < threads(cpus, &classes[class])),
            socket,
        });
    }
    cores.sort_by_key(|c| c.cpus.lowest());
    Ok(cores)
}

/// Every cache outside the cores, once.
fn shared_caches(here: &Numbering, cpus: &[CpuFacts], classes: &[Class]) -> Vec<SharedCache> {
    let mut caches: BTreeMap<(u32, CpuSet), SharedCache> = BTreeMap::new();
    for (class, cpu) in classes
        .iter()
        .flat_map(|c| c.rows.iter().map(move |r| (c, &cpus[*r])))
    {
        let guessed = cluster_l2(cpu);
        for cache in cpu.outer.iter().chain(&guessed) {
            if cache.level == 2 && guessed.is_none() && !shares_l2(cpus, class) {
                continue;
            }
            let set = here.set(&cache.cpus);
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
    let mut caches: Vec<SharedCache> = caches.into_values().collect();
    caches.sort_by_key(|c| (c.level, c.cpus.lowest()));
    caches
}

/// Old Arm kernels know clusters but no caches; a cluster shares its L2.
fn cluster_l2(cpu: &CpuFacts) -> Option<CacheFacts> {
    let cluster = cpu
        .cluster
        .as_ref()
        .filter(|c| cpu.outer.is_empty() && !c.is_subset(&cpu.core))?;
    Some(CacheFacts {
        level: 2,
        size_kib: 2 * USUAL_KIB[2],
        ways: 0,
        cpus: cluster.clone(),
        guessed: true,
    })
}

fn memory(
    tree: &Tree<'_>,
    here: &Numbering,
    notes: &mut Vec<String>,
) -> Result<Vec<Memory>, DetectError> {
    const NODES: &str = "sys/devices/system/node";
    let mut rest: CpuSet = here.by_os.values().copied().collect();
    let mut domains = Vec::new();
    let mut without = Vec::new();
    for node in tree.numbered(NODES, "node") {
        let cpus = here.set(
            &tree
                .cpus(&format!("{NODES}/node{node}/cpulist"))?
                .unwrap_or_default(),
        );
        cpus.iter().for_each(|cpu| rest.remove(cpu));
        if cpus.is_empty() {
            without.push(node.to_string())
        } else {
            domains.push(cpus)
        }
    }
    if !without.is_empty() {
        notes.push(format!(
            "Memory nodes without CPUs are left out: {}.",
            without.join(", ")
        ));
    }
    if !rest.is_empty() {
        domains.push(rest);
    }
    let domain = |cpus| Memory {
        cpus,
        latency_ns: MEMORY_NS,
        bandwidth_gb_s: MEMORY_GB_S,
        access_nj: MEMORY_NJ,
    };
    Ok(domains.into_iter().map(domain).collect())
}

/// What was read, what was not, and what is odd.
fn notes(platform: &Platform, cpus: &Cpus, classes: &[Class], capacities: &[u32]) -> Vec<String> {
    let names: Vec<&str> = classes.iter().map(|c| c.name.as_str()).collect();
    let mut notes = vec![
        "Read from sysfs and /proc: CPUs, siblings, sockets, cache sizes and ways, capacities, memory nodes, highest clocks.".into(),
        format!("From a table of microarchitectures ({}): widths, windows, penalties, cache latencies, counters.", names.join(", ")),
        "Estimates: all power figures, memory latency and bandwidth. Clocks are the highest that every core of a type \
         reaches, not what it sustains."
            .into(),
    ];
    let mut note = |when: bool, text: String| notes.extend(when.then_some(text));
    note(
        platform.virtual_machine,
        "A virtual machine: sockets, caches and siblings are what the hypervisor makes up.".into(),
    );
    note(
        !cpus.offline.is_empty(),
        format!("Offline when read: CPUs {}.", cpus.offline),
    );
    let unknown = classes.iter().any(|c| c.uarch.name == "generic");
    note(
        unknown,
        "The processor is in no table: figures of a generic core.".into(),
    );
    let no_clock = classes.iter().any(|c| c.khz.is_none());
    let clock = platform.mhz.map_or("a guess", |_| "that of /proc/cpuinfo");
    note(
        no_clock,
        format!("The kernel reports no highest clock: the one here is {clock}."),
    );
    let one_clock = classes.len() > 1
        && classes
            .iter()
            .all(|c| c.khz.is_some() && c.khz == classes[0].khz);
    note(
        one_clock,
        "The kernel reports one highest clock for all core types, which cannot be right for all."
            .into(),
    );
    let vague = |c: &CpuFacts| {
        c.outer.is_empty() || c.l1d.iter().chain(&c.outer).any(|cache| cache.guessed)
    };
    note(
        cpus.list.iter().any(vague),
        "The kernel does not know all caches or their sizes: what is missing is guessed.".into(),
    );
    let blind = classes.len() > 1 && capacities.iter().all(|c| *c == 1024);
    note(
        blind,
        "The kernel gives all core types the same capacity; they are distinguished by PMU, part, caches or clock.".into(),
    );
    note(
        platform.hz.is_none(),
        "The timer frequency is the usual 250 Hz: no kernel configuration was found.".into(),
    );
    notes
}

/// `12th Gen Intel(R) Core(TM) i9-12900K` to `12th-gen-intel-core-i9-12900k`.
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
