//! Work of the user-space halves of schedulers before a scheduler starts: options' defaults, tables of the machine, and programs
//! that prepare memory.

use std::ffi::c_void;

use countersteer_model::topology::Topology;

use crate::cores::{CoreFacts, CoreRank, by_performance, by_power, cores, domains};
use crate::error::ScxError;
use crate::object::Object;
use crate::state::Inside;
use crate::world::World;

/// Defaults of scx_lavd's options, in the units of its variables. Variables of other schedulers have other names.
const DEFAULTS: [(&str, usize); 13] = [
    ("is_autopilot_on", 1),
    ("slice_max_ns", 5_000_000),
    ("slice_min_ns", 500_000),
    ("pinned_slice_ns", 5_000_000),
    ("preempt_shift", 6),
    ("lat_load_target_pct", 100),
    ("mig_delta_pct", 0),
    ("warm_cpu_ns", 0),
    // Shares of the CPUs' time in 1024ths.
    ("lb_low_util_wall", 256),
    ("lb_local_dsq_util_wall", 102),
    ("no_wake_sync", 0),
    // The tables of CPUs are those for a kernel without an energy model.
    ("no_use_em", 1),
    ("enable_cpu_bw", 0),
];

/// Time slices that the kernel's schedulers leave at zero for their user-space halves.
const SLICES: [&str; 2] = ["slice_ns", "cgrp_slice_ns"];

/// Variable that schedulers with compute domains have.
const DOMAINS: &str = "cpdom_ctxs";
/// Pages that the library of arenas takes at a time.
const STATIC_PAGES: usize = 8;
/// Bytes of a task's data if the scheduler names its structure in a way of its own.
const TASK_BYTES: usize = 2048;

/// Sets what a scheduler's user-space half sets before the start, and fills the tables of a scheduler that has compute domains.
pub fn fill(object: &Object, topology: &Topology) {
    for name in SLICES {
        if object.is_zero(name) {
            object.put(name, crate::abi::flags::SLICE_DEFAULT as usize);
        }
    }
    if object.layout().variable(DOMAINS).is_none() {
        return;
    }
    for (name, value) in DEFAULTS {
        object.put(name, value);
    }
    let cores = cores(topology);
    fill_cores(object, &cores);
    let fast = by_performance(&cores);
    fill_orders(object, &fast, &by_power(&cores));
    fill_domains(object, &fast);
    object.put(
        "nr_llcs",
        1 + cores.iter().map(|c| c.llc).max().unwrap_or(0),
    );
    let smt = cores.iter().any(|core| core.siblings > 1);
    object.put("is_smt_active", usize::from(smt));
}

fn fill_cores(object: &Object, cores: &[CoreFacts]) {
    let all = |value: fn(&CoreFacts) -> usize| cores.iter().map(value);
    object.put_all("cpu_capacity", all(|core| core.capacity));
    object.put_all(
        "cpu_big",
        all(|core| usize::from(core.kind != CoreRank::Little)),
    );
    object.put_all(
        "cpu_turbo",
        all(|core| usize::from(core.kind == CoreRank::Turbo)),
    );
    object.put_all(
        "cpu_sibling",
        all(|core| core.sibling.unwrap_or(usize::MAX)),
    );
}

/// Orders of CPUs, as on a machine whose kernel shows no energy model: one to save power up to the capacity of its first CPU, and
/// one for performance beyond.
fn fill_orders(object: &Object, fast: &[CoreFacts], frugal: &[CoreFacts]) {
    let numbers = |cores: &[CoreFacts]| cores.iter().map(|core| core.cpu).collect::<Vec<_>>();
    object.put_all("cpu_order_performance", numbers(fast));
    object.put_all("cpu_order_powersave", numbers(frugal));
    let total: usize = fast.iter().map(|core| core.capacity).sum();
    let mut orders = vec![(frugal[0].capacity, frugal), (total, fast)];
    orders.dedup_by_key(|(bound, _)| *bound);
    object.put("nr_pco_states", orders.len());
    for row in 0..object.layout().count("pco_bounds") {
        let (bound, cores) = orders[row.min(orders.len() - 1)];
        object.put(&format!("pco_bounds[{row}]"), bound);
        object.put(&format!("pco_nr_primary[{row}]"), 1);
        for (place, cpu) in numbers(cores).into_iter().enumerate() {
            object.put(&format!("pco_table[{row}][{place}]"), cpu);
        }
    }
}

fn fill_domains(object: &Object, fast: &[CoreFacts]) {
    let most = object.layout().count(DOMAINS);
    for domain in domains(fast) {
        let row = format!("{DOMAINS}[{}]", domain.id);
        let put = |member: &str, value: usize| object.put(&format!("{row}.{member}"), value);
        put("id", domain.id);
        put("alt_id", domain.other);
        put("numa_id", domain.node);
        put("node_id", domain.node);
        put("llc_id", domain.llc);
        put("is_big", usize::from(domain.big));
        put("is_valid", 1);
        for word in 0..fast.len().div_ceil(64) {
            let bits = domain.cpus.iter().filter(|cpu| *cpu / 64 == word);
            let bits = bits.fold(0, |bits, cpu| bits | 1_usize << (cpu % 64));
            put(&format!("__cpumask[{word}]"), bits);
        }
        for (far, ring) in domain.neighbours.iter().enumerate() {
            put(&format!("nr_neighbors[{far}]"), ring.len());
            let bits = ring.iter().fold(0, |bits, id| bits | 1_usize << (id % 64));
            put(&format!("neighbor_bits[{far}]"), bits);
            for (place, id) in ring.iter().enumerate() {
                put(&format!("neighbor_ids[{}]", far * most + place), *id);
            }
        }
    }
}

/// Prepares the memory and the tree of CPUs of a scheduler that uses the library of arenas.
///
/// # Errors
/// Fails if one of the scheduler's programs does.
pub fn prepare(world: &World, topology: &Topology) -> Result<(), String> {
    let object = world.object();
    let layout = object.layout();
    let task = layout.record("task_ctx").unwrap_or(TASK_BYTES);
    let values = [
        ("static_pages", STATIC_PAGES),
        ("task_ctx_size", task),
        ("nr_cpus", topology.cpus.len()),
    ];
    if !run(world, "arena_init", &values)?.1 {
        return Ok(());
    }
    let tree = ArenaTree::new(&cores(topology));
    let values: Vec<(String, usize)> = (tree.children.iter().enumerate())
        .map(|(level, most)| (format!("max_children[{level}]"), *most))
        .collect();
    let values: Vec<_> = values.iter().map(|(name, n)| (name.as_str(), *n)).collect();
    run(world, "arena_topology_init", &values)?;
    for (id, cpus) in &tree.nodes {
        let (arguments, known) = run(world, "arena_alloc_mask", &[])?;
        if !known {
            break;
        }
        let spot = layout.member("arena_alloc_mask_args", "bitmap");
        let bitmap = spot.map_or(0, |spot| arguments[spot.at / 8]) as usize;
        if bitmap == 0 {
            return Err("`arena_alloc_mask` returned no `bitmap`".into());
        }
        let words: *mut u64 = std::ptr::with_exposed_provenance_mut(bitmap);
        for cpu in cpus {
            // SAFETY: the program has returned the address of a mask of all CPUs.
            unsafe { *words.add(cpu / 64) |= 1 << (cpu % 64) };
        }
        let values = [("bitmap", bitmap), ("data_size", 0), ("id", *id)];
        run(world, "arena_topology_node_init", &values)?;
    }
    Ok(())
}

/// Runs a program of a scheduler with a structure of arguments, which it may change. Returns the structure, and true if there is
/// such a program.
fn run(world: &World, name: &str, values: &[(&str, usize)]) -> Result<(Vec<u64>, bool), String> {
    let (object, record) = (world.object(), format!("{name}_args"));
    // A symbol of the name without the structure is something else.
    let bytes = object.layout().record(&record);
    let Some((bytes, f)) = bytes.zip(object.entry(name)) else {
        return Ok((Vec::new(), false));
    };
    let mut arguments = vec![0_u64; bytes.div_ceil(8) + 1];
    for (member, value) in values {
        let Some(spot) = object.layout().member(&record, member) else {
            continue;
        };
        let from = value.to_ne_bytes();
        let to = arguments.as_mut_ptr().cast::<u8>();
        // SAFETY: the member lies inside the structure.
        unsafe { std::ptr::copy(from.as_ptr(), to.add(spot.at), spot.bytes.min(8)) };
    }
    let at: *mut c_void = arguments.as_mut_ptr().cast();
    // SAFETY: the program takes its structure, which has this size.
    let code = world.call(0, Inside::Other, |_| unsafe { f(at) });
    if code != 0 {
        return Err(format!("`{name}` returned {code}"));
    }
    Ok((arguments, true))
}

/// Key that the CPUs of a node at one level of the tree share.
type TreeLevel = fn(&CoreFacts) -> (usize, usize);

/// Nodes of the tree that the library of arenas has: machine, memory nodes, caches, cores, CPUs.
struct ArenaTree {
    /// Highest number of children at each level.
    children: [usize; 5],
    /// Identifiers with their CPUs.
    nodes: Vec<(usize, Vec<usize>)>,
}

impl ArenaTree {
    fn new(cores: &[CoreFacts]) -> Self {
        let mut nodes = Vec::new();
        let mut children = [0; 5];
        let levels: [TreeLevel; 5] = [
            |_| (0, 0),
            |core| (core.node, 0),
            |core| (core.llc, 0),
            |core| (core.llc, core.place),
            |core| (core.cpu, 0),
        ];
        for (level, key) in levels.iter().enumerate() {
            let mut keys: Vec<_> = cores.iter().map(key).collect();
            keys.sort_unstable();
            keys.dedup();
            for (row, one) in keys.iter().enumerate() {
                let of = || cores.iter().filter(|core| key(core) == *one);
                let id = if level == 3 { row } else { one.0 };
                nodes.push((id, of().map(|core| core.cpu).collect()));
                if let Some(below) = levels.get(level + 1) {
                    let mut below: Vec<_> = of().map(below).collect();
                    below.sort_unstable();
                    below.dedup();
                    children[level] = children[level].max(below.len());
                }
            }
        }
        Self { children, nodes }
    }
}

/// Options of a scheduler's table that its user-space half sets.
pub fn set_flags(object: &Object, flags: u64) {
    // SAFETY: the table lies in the loaded object, and nothing refers to it yet.
    unsafe { (*object.ops.cast_mut()).flags |= flags };
}

/// Error of a scheduler that uses what only a user-space half can give it.
pub fn check(object: &Object, source: &std::path::Path) -> Result<(), ScxError> {
    const HASH_OF_MAPS: u32 = 13;
    if object.maps().any(|(_, map)| map.kind == HASH_OF_MAPS) {
        return Err(ScxError::Lacking {
            path: source.to_owned(),
            names: "a hash of maps (BPF_MAP_TYPE_HASH_OF_MAPS), which user space fills".into(),
        });
    }
    Ok(())
}
