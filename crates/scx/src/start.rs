//! Start of a scheduler on a machine: its variables, its tasks of idle CPUs, and its functions for the start.

use std::alloc::Layout;
use std::ffi::c_void;
use std::sync::Arc;

use countersteer_model::topology::Topology;

use crate::abi::{CgroupInitArgs, MOST_CPUS, Task, flags};
use crate::error::ScxError;
use crate::library::Library;
use crate::object::Object;
use crate::scheduler::{Ext, TIMEOUT_NS, new_task};
use crate::state::{Inside, State};
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
const PRESETS: [Preset; 5] = [
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
        preset(&object, library, topology)?;
        set(&object, library, parameters)?;
        let task_layout = Layout::from_size_align(object.task_bytes(), 64);
        let task_layout = task_layout.map_err(|e| not_started(e.to_string()))?;
        let sibling = object.entry("enable_sibling_cpu");
        let idle = (0..topology.cpus.len()).map(|cpu| idle_task(task_layout, cpu));
        let state = State::new(topology, seed, idle.collect());
        let world = World::new(object, state);
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
        ext.begin(sibling, topology).map_err(not_started)?;
        Ok(ext)
    }

    /// Calls the scheduler's functions for its start, as its user-space half and the kernel do.
    fn begin(
        &self,
        sibling: Option<unsafe extern "C" fn(*mut c_void) -> i32>,
        topology: &Topology,
    ) -> Result<(), String> {
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
    let capacity: Vec<u64> = topology
        .cpus
        .iter()
        .map(|cpu| u64::from(cpu.capacity))
        .collect();
    let mut preferred: Vec<u64> = (0..capacity.len() as u64).collect();
    preferred.sort_by_key(|cpu| std::cmp::Reverse(capacity[*cpu as usize]));
    object.set_all("cpu_capacity", &capacity);
    object.set_all("preferred_cpus", &preferred);
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

fn idle_task(layout: Layout, cpu: usize) -> *mut Task {
    let task = new_task(layout);
    // SAFETY: a new task, to which there is no other pointer.
    unsafe {
        (*task).flags = flags::PF_IDLE;
        (*task).thread_cpu = cpu as u32;
        (*task).on_cpu = 1;
    }
    task
}
