//! Start of a scheduler on a machine: its variables, its tasks of idle CPUs, and its functions for the start.

use std::alloc::Layout;
use std::ffi::c_void;
use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::topology::Topology;

use crate::abi::{CgroupInitArgs, MOST_CPUS, TaskStruct, flags};
use crate::error::ScxError;
use crate::kfuncs;
use crate::library::Library;
use crate::object::Object;
use crate::scheduler::{Ext, TIMEOUT_NS, new_task};
use crate::state::{Inside, SchedState};
use crate::userspace;
use crate::world::World;

/// Value that a scheduler's user-space half would set, from the machine.
struct Preset {
    names: &'static [&'static str],
    value: fn(&Topology) -> i128,
}

fn smt(topology: &Topology) -> bool {
    topology.cpus.iter().any(|cpu| cpu.thread > 0)
}

/// Variables that the user-space halves of schedulers set from the machine. Memory nodes are left off, since the maps that
/// describe them are filled by those halves, too.
const PRESETS: [Preset; 6] = [
    Preset {
        names: &[
            "nr_cpu_ids",
            "nr_cpus",
            "nr_possible_cpus",
            "nr_online_cpus",
            "nr_cpus_possible",
            "__nr_cpu_ids",
        ],
        value: |topology| topology.cpus.len() as i128,
    },
    Preset {
        names: &["smt_enabled"],
        value: |topology| i128::from(smt(topology)),
    },
    Preset {
        names: &["all_cpus_same_capacity"],
        value: |topology| {
            let first = topology.cpus.first().map(|cpu| cpu.capacity);
            i128::from(topology.cpus.iter().all(|cpu| Some(cpu.capacity) == first))
        },
    },
    Preset {
        names: &["numa_enabled", "gpu_enabled"],
        value: |_| 0,
    },
    Preset {
        names: &["CONFIG_HZ"],
        value: |topology| i128::from(topology.hz),
    },
    Preset {
        names: &["nr_node_ids"],
        value: |topology| topology.memory.len() as i128,
    },
];

impl Ext {
    /// Starts a scheduler on a machine without threads. `parameters` are variables of the scheduler with their values.
    ///
    /// # Errors
    /// Fails on unknown variables, and if the scheduler does not start.
    pub fn start(
        library: &Library,
        topology: &Arc<Topology>,
        parameters: &[(String, String)],
        seed: u64,
    ) -> Result<Self, ScxError> {
        let source = &library.source;
        let not_started = |why: String| ScxError::NotStarted {
            path: source.clone(),
            why,
        };
        if topology.cpus.len() > MOST_CPUS {
            return Err(not_started(format!(
                "masks of schedulers hold {MOST_CPUS} CPUs"
            )));
        }
        let object = Object::load(library)?;
        userspace::check(&object, source)?;
        userspace::set_flags(&object, library.flags);
        preset(&object, library, topology)?;
        userspace::fill(&object, topology);
        let (primary, parameters): (Vec<_>, Vec<_>) =
            (parameters.iter().cloned()).partition(|(name, _)| name == PRIMARY);
        let primary = primary_domain(&object, library, topology, primary.last())?;
        set(&object, library, &parameters)?;
        let task_layout = Layout::from_size_align(object.task_bytes(), 64);
        let task_layout = task_layout.map_err(|e| not_started(e.to_string()))?;
        let sibling = object.entry("enable_sibling_cpu");
        let idle = (0..topology.cpus.len()).map(|cpu| idle_task(task_layout, cpu));
        let state = SchedState::new(topology, seed, idle.collect());
        let world = World::new(object, state, kfuncs::host);
        let ops = world.ops();
        if ops.dispatch_max_batch > 0 {
            world.state().batch = ops.dispatch_max_batch as usize;
        }
        let timeout = u64::from(ops.timeout_ms) * 1_000_000;
        let timeout_ns = if timeout > 0 { timeout } else { TIMEOUT_NS };
        let init = new_task(task_layout);
        // SAFETY: a new task, to which there is no other pointer.
        unsafe {
            (*init).pid = 1;
            (*init).tgid = 1;
            (*init).group_leader = init;
            (*init).real_parent = init;
            (*init).parent = init;
        }
        let ext = Self {
            world,
            task_layout,
            processes: Vec::new(),
            timeout_ns,
            next_check: timeout_ns / 2,
            init,
        };
        if let Some((f, cpus)) = primary {
            ext.prefer(f, &cpus);
        }
        userspace::prepare(&ext.world, topology).map_err(not_started)?;
        ext.begin(sibling, topology).map_err(not_started)?;
        Ok(ext)
    }

    /// Names the CPUs of the primary domain to the scheduler, as its user-space half does.
    fn prefer(&self, f: EntryFunction, cpus: &CpuSet) {
        for cpu in cpus.iter() {
            let mut argument = cpu.0 as i32;
            // SAFETY: the function takes a structure of one number.
            self.world.call(0, Inside::Other, |_| unsafe {
                f((&raw mut argument).cast())
            });
        }
    }

    /// Calls the scheduler's functions for its start, as its user-space half and the kernel do.
    fn begin(&self, sibling: Option<EntryFunction>, topology: &Topology) -> Result<(), String> {
        if let Some(f) = sibling.filter(|_| smt(topology)) {
            for (a, b) in pairs(topology) {
                let mut domain = [a as i32, b as i32];
                // SAFETY: the function takes a structure of these two numbers.
                self.world.call(0, Inside::Other, |_| unsafe {
                    f(domain.as_mut_ptr().cast())
                });
            }
        }
        let root = self.world.root;
        let mut args = CgroupInitArgs {
            weight: 100,
            bw_period_us: 100_000,
            bw_quota_us: u64::MAX,
            bw_burst_us: 0,
        };
        let init = self.world.ops().init;
        // SAFETY: the scheduler's function, with arguments of its declared types.
        let started = init.map_or(0, |f| self.world.call(0, Inside::Other, |_| unsafe { f() }));
        let grouped = self.world.ops().cgroup_init.filter(|_| started == 0);
        let grouped = grouped.map_or(0, |f| {
            // SAFETY: the scheduler's function, with arguments of its declared types.
            self.world
                .call(0, Inside::Other, |_| unsafe { f(root, &raw mut args) })
        });
        let failure = self.world.state().failure.clone();
        match (failure, started, grouped) {
            (Some(why), ..) => Err(why),
            (None, 0, 0) => Ok(()),
            (None, 0, code) => Err(format!("cgroup_init returned {code}")),
            (None, code, _) => Err(format!("init returned {code}")),
        }
    }
}

/// Function of a scheduler that its user-space half calls with a structure.
type EntryFunction = unsafe extern "C" fn(*mut c_void) -> i32;

/// Parameter with the CPUs of the primary domain, as in `primary=0-3+8`, for schedulers that have one.
const PRIMARY: &str = "primary";

/// Function that adds a CPU to the scheduler's primary domain, and the CPUs that the user names; `None` without names.
fn primary_domain(
    object: &Object,
    library: &Library,
    topology: &Topology,
    parameter: Option<&(String, String)>,
) -> Result<Option<(EntryFunction, CpuSet)>, ScxError> {
    let Some((_, text)) = parameter else {
        return Ok(None);
    };
    let bad = |why: String| ScxError::BadParameter {
        path: library.source.clone(),
        why: format!("`{PRIMARY}={text}`: {why}"),
    };
    let f = object.entry("enable_primary_cpu");
    let f = f.ok_or_else(|| bad("the scheduler has no function `enable_primary_cpu`".into()))?;
    let cpus: CpuSet = (text.replace('+', ",").parse())
        .map_err(|why| bad(format!("{why}; write CPUs as in 0-3+8")))?;
    let beyond = cpus.iter().find(|cpu| cpu.index() >= topology.cpus.len());
    if let Some(cpu) = beyond {
        return Err(bad(format!("the machine has no CPU {}", cpu.0)));
    }
    object.set(&library.source, "primary_all", 0)?;
    Ok(Some((f, cpus)))
}

/// Pairs of different CPUs of one core.
fn pairs(topology: &Topology) -> impl Iterator<Item = (usize, usize)> + '_ {
    let cpus = || topology.cpus.iter().enumerate();
    cpus().flat_map(move |(a, one)| {
        cpus()
            .filter(move |(b, other)| a != *b && one.core == other.core)
            .map(move |(b, _)| (a, b))
    })
}

/// Sets what a scheduler's user-space half would set from the machine.
fn preset(object: &Object, library: &Library, topology: &Topology) -> Result<(), ScxError> {
    for preset in &PRESETS {
        for name in preset.names {
            object.set(&library.source, name, (preset.value)(topology))?;
        }
    }
    let capacity: Vec<usize> = topology
        .cpus
        .iter()
        .map(|cpu| cpu.capacity as usize)
        .collect();
    let mut preferred: Vec<usize> = (0..capacity.len()).collect();
    preferred.sort_by_key(|cpu| std::cmp::Reverse(capacity[*cpu]));
    object.put_all("cpu_capacity", capacity);
    object.put_all("preferred_cpus", preferred);
    Ok(())
}

/// Sets the variables that the user names.
fn set(
    object: &Object,
    library: &Library,
    parameters: &[(String, String)],
) -> Result<(), ScxError> {
    let bad = |why: String| ScxError::BadParameter {
        path: library.source.clone(),
        why,
    };
    for (name, text) in parameters {
        let elements = object.layout().count(name);
        if elements > 0 {
            let wanted = || {
                bad(format!(
                    "`{name}={text}`: write up to {elements} numbers, as in 4+6-7+0-3"
                ))
            };
            for (index, value) in list(text, elements)
                .ok_or_else(wanted)?
                .into_iter()
                .enumerate()
            {
                let element = format!("{name}[{index}]");
                if !object.set(&library.source, &element, value as i128)? {
                    return Err(bad(format!("`{name}` is no list of integers")));
                }
            }
            continue;
        }
        let value = match text.as_str() {
            "true" => 1,
            "false" => 0,
            digits => digits.parse().map_err(|_| {
                bad(format!(
                    "`{name}={text}`: it must be an integer, true or false"
                ))
            })?,
        };
        if !object.set(&library.source, name, value)? {
            let known: Vec<&str> = object.integers().collect();
            return Err(bad(format!(
                "the scheduler has no variable `{name}`; it has {}",
                known.join(", ")
            )));
        }
    }
    Ok(())
}

/// Numbers of a list of at most `most`, in its order, as in `4+6-7+0-3`; `None` if it is none.
fn list(text: &str, most: usize) -> Option<Vec<usize>> {
    let mut values = Vec::new();
    for part in text.split('+') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        let length = last.checked_sub(first)?;
        if length >= most - values.len() {
            return None;
        }
        values.extend(first..=last);
    }
    Some(values)
}

fn idle_task(layout: Layout, cpu: usize) -> *mut TaskStruct {
    let task = new_task(layout);
    // SAFETY: a new task, to which there is no other pointer.
    unsafe {
        (*task).flags = flags::PF_IDLE;
        (*task).thread_cpu = cpu as u32;
        (*task).on_cpu = 1;
    }
    task
}
