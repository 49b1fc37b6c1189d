//! Structures that a scheduler and the simulator share: `include/sim.h` has the same ones, field by field.

use std::ffi::{c_char, c_void};

/// Highest number of CPUs that a scheduler's masks can hold.
pub const MOST_CPUS: usize = 1024;

/// Set of CPUs, as the kernel lays it out.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuMask {
    pub bits: [u64; MOST_CPUS / 64],
}

impl CpuMask {
    pub const EMPTY: Self = Self {
        bits: [0; MOST_CPUS / 64],
    };

    pub fn set(&mut self, cpu: usize) {
        self.bits[cpu / 64] |= 1 << (cpu % 64);
    }

    pub fn clear(&mut self, cpu: usize) {
        self.bits[cpu / 64] &= !(1 << (cpu % 64));
    }

    pub fn has(&self, cpu: usize) -> bool {
        cpu < MOST_CPUS && self.bits[cpu / 64] >> (cpu % 64) & 1 == 1
    }

    pub fn is_empty(&self) -> bool {
        self.bits.iter().all(|word| *word == 0)
    }

    /// Returns the CPUs that both masks have.
    pub fn and(&self, other: &Self) -> Self {
        let mut both = *self;
        for (word, other) in both.bits.iter_mut().zip(&other.bits) {
            *word &= other;
        }
        both
    }

    pub fn count(&self) -> usize {
        self.bits
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// Returns the lowest CPU of the mask from `from` on, and from 0 on if there is none.
    pub fn next_around(&self, from: usize) -> Option<usize> {
        let all = || (0..MOST_CPUS).filter(|cpu| self.has(*cpu));
        if self.is_empty() {
            return None;
        }
        all().find(|cpu| *cpu >= from).or_else(|| all().next())
    }
}

/// Thread's state in the class of sched_ext.
#[repr(C)]
pub struct ExtEntity {
    pub slice: u64,
    pub dsq_vtime: u64,
    pub weight: u32,
    pub flags: u32,
    pub sticky_cpu: i32,
    pub holding_cpu: i32,
    pub selected_cpu: i32,
    pub disallow: bool,
    pub dsq: *mut c_void,
    pub runnable_at: u64,
}

/// Thread's state for accounting.
#[repr(C)]
pub struct Entity {
    pub exec_start: u64,
    pub sum_exec_runtime: u64,
    pub prev_sum_exec_runtime: u64,
    pub vruntime: u64,
    pub nr_migrations: u64,
    pub load_weight: u64,
    pub load_inverse: u32,
    pub load_updated: u64,
    pub load_avg: u64,
    pub runnable_avg: u64,
    pub util_avg: u64,
}

/// First part of the kernel's `task_struct`; the rest stays zero.
#[repr(C)]
pub struct TaskStruct {
    pub scx: ExtEntity,
    pub se: Entity,
    pub cpus_ptr: *const CpuMask,
    pub nr_cpus_allowed: i32,
    pub flags: u32,
    pub pid: i32,
    pub tgid: i32,
    pub prio: i32,
    pub static_prio: i32,
    pub normal_prio: i32,
    pub policy: u32,
    pub wake_cpu: i32,
    pub recent_used_cpu: i32,
    pub state: u32,
    pub on_cpu: i32,
    pub on_rq: i32,
    pub migration_disabled: u16,
    pub thread_flags: u64,
    pub thread_cpu: u32,
    pub mm: *mut c_void,
    pub real_parent: *mut TaskStruct,
    pub parent: *mut TaskStruct,
    pub group_leader: *mut TaskStruct,
    pub start_time: u64,
    pub start_boottime: u64,
    pub comm: [c_char; 16],
}

/// Arguments of `init_task`.
#[repr(C)]
pub struct InitTaskArgs {
    pub fork: bool,
    pub cgroup: *mut c_void,
}

/// Arguments of `cgroup_init`.
#[repr(C)]
pub struct CgroupInitArgs {
    pub weight: u32,
    pub bw_period_us: u64,
    pub bw_quota_us: u64,
    pub bw_burst_us: u64,
}

type TaskOp = unsafe extern "C" fn(*mut TaskStruct);
type TaskFlagsOp = unsafe extern "C" fn(*mut TaskStruct, u64);
/// Function that the simulator never calls.
type Unused = Option<unsafe extern "C" fn()>;

/// Table of a scheduler's functions and options.
#[repr(C)]
pub struct Ops {
    pub select_cpu: Option<unsafe extern "C" fn(*mut TaskStruct, i32, u64) -> i32>,
    pub enqueue: Option<TaskFlagsOp>,
    pub dequeue: Option<TaskFlagsOp>,
    pub dispatch: Option<unsafe extern "C" fn(i32, *mut TaskStruct)>,
    pub tick: Option<TaskOp>,
    pub runnable: Option<TaskFlagsOp>,
    pub running: Option<TaskOp>,
    pub stopping: Option<unsafe extern "C" fn(*mut TaskStruct, bool)>,
    pub quiescent: Option<TaskFlagsOp>,
    pub yield_task: Option<unsafe extern "C" fn(*mut TaskStruct, *mut TaskStruct) -> bool>,
    pub core_sched_before: Unused,
    pub set_weight: Option<unsafe extern "C" fn(*mut TaskStruct, u32)>,
    pub set_cpumask: Option<unsafe extern "C" fn(*mut TaskStruct, *const CpuMask)>,
    pub update_idle: Option<unsafe extern "C" fn(i32, bool)>,
    pub cpu_acquire: Unused,
    pub cpu_release: Unused,
    pub init_task: Option<unsafe extern "C" fn(*mut TaskStruct, *mut InitTaskArgs) -> i32>,
    pub exit_task: Option<unsafe extern "C" fn(*mut TaskStruct, *mut bool)>,
    pub enable: Option<TaskOp>,
    pub disable: Option<TaskOp>,
    pub dumps: [Unused; 3],
    pub cgroup_init: Option<unsafe extern "C" fn(*mut c_void, *mut CgroupInitArgs) -> i32>,
    pub cgroups: [Unused; 7],
    pub subs: [Unused; 2],
    pub hotplug: [Unused; 2],
    pub init: Option<unsafe extern "C" fn() -> i32>,
    pub exit: Unused,
    pub flags: u64,
    pub hotplug_seq: u64,
    pub sub_cgroup_id: u64,
    pub dispatch_max_batch: u32,
    pub timeout_ms: u32,
    pub exit_dump_len: u32,
    pub name: [c_char; 128],
    pub private: *mut c_void,
}

/// Shape of a map: kind, sizes in bytes, and number of entries.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapShape {
    pub kind: u32,
    pub key: u32,
    pub value: u32,
    pub entries: u32,
}

/// Functions of the simulator that a scheduler may call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HostFunctions {
    pub world: *mut c_void,
    pub error: unsafe extern "C" fn(*mut c_void, *const c_char),
    pub print: unsafe extern "C" fn(*mut c_void, *const c_char),
    pub now: unsafe extern "C" fn(*mut c_void) -> u64,
    pub random: unsafe extern "C" fn(*mut c_void) -> u32,
    pub this_cpu: unsafe extern "C" fn(*mut c_void) -> i32,
    pub nr_cpus: unsafe extern "C" fn(*mut c_void) -> u32,
    pub current: unsafe extern "C" fn(*mut c_void) -> *mut TaskStruct,
    pub task_from_pid: unsafe extern "C" fn(*mut c_void, i32) -> *mut TaskStruct,
    pub cpu_curr: unsafe extern "C" fn(*mut c_void, i32) -> *mut TaskStruct,
    pub task_cpu: unsafe extern "C" fn(*mut c_void, *const TaskStruct) -> i32,
    pub task_running: unsafe extern "C" fn(*mut c_void, *const TaskStruct) -> bool,
    pub llc_of: unsafe extern "C" fn(*mut c_void, i32) -> i32,
    pub node_of: unsafe extern "C" fn(*mut c_void, i32) -> i32,
    pub cpuperf_cap: unsafe extern "C" fn(*mut c_void, i32) -> u32,
    pub cpuperf_cur: unsafe extern "C" fn(*mut c_void, i32) -> u32,
    pub clock_pelt: unsafe extern "C" fn(*mut c_void, i32) -> u64,
    pub mask: unsafe extern "C" fn(*mut c_void, u32) -> *const CpuMask,
    pub test_and_clear_idle: unsafe extern "C" fn(*mut c_void, i32) -> bool,
    pub pick_idle: unsafe extern "C" fn(*mut c_void, *const CpuMask, u64) -> i32,
    pub select_default:
        unsafe extern "C" fn(*mut c_void, *mut TaskStruct, i32, u64, *const CpuMask, u64) -> i32,
    pub create_dsq: unsafe extern "C" fn(*mut c_void, u64) -> i32,
    pub destroy_dsq: unsafe extern "C" fn(*mut c_void, u64),
    pub dsq_length: unsafe extern "C" fn(*mut c_void, u64) -> i32,
    pub dsq_next: unsafe extern "C" fn(*mut c_void, u64, *mut TaskStruct, u64) -> *mut TaskStruct,
    pub insert:
        unsafe extern "C" fn(*mut c_void, *mut TaskStruct, u64, u64, u64, u64, bool) -> bool,
    pub move_to_local: unsafe extern "C" fn(*mut c_void, u64) -> bool,
    pub move_task:
        unsafe extern "C" fn(*mut c_void, u64, *mut TaskStruct, u64, u64, u64, u64, u32) -> bool,
    pub free_slots: unsafe extern "C" fn(*mut c_void) -> u32,
    pub kick: unsafe extern "C" fn(*mut c_void, i32, u64),
    pub reenqueue_local: unsafe extern "C" fn(*mut c_void) -> u32,
    pub map_lookup:
        unsafe extern "C" fn(*mut c_void, *mut c_void, MapShape, *const u8, i32) -> *mut u8,
    pub map_update:
        unsafe extern "C" fn(*mut c_void, *mut c_void, MapShape, *const u8, *const u8, u64) -> i64,
    pub map_delete: unsafe extern "C" fn(*mut c_void, *mut c_void, *const u8) -> i64,
    pub map_push: unsafe extern "C" fn(*mut c_void, *mut c_void, MapShape, *const u8, u64) -> i64,
    pub map_pop: unsafe extern "C" fn(*mut c_void, *mut c_void, MapShape, *mut u8, bool) -> i64,
    pub map_each:
        unsafe extern "C" fn(*mut c_void, *mut c_void, MapShape, *mut c_void, *mut c_void) -> i64,
    pub storage: unsafe extern "C" fn(
        *mut c_void,
        *mut c_void,
        MapShape,
        *const c_void,
        *const u8,
        u64,
    ) -> *mut u8,
    pub storage_delete: unsafe extern "C" fn(*mut c_void, *mut c_void, *const c_void) -> i64,
    pub timer_set: unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> i64,
    pub timer_start: unsafe extern "C" fn(*mut c_void, *mut c_void, u64, u64) -> i64,
    pub timer_cancel: unsafe extern "C" fn(*mut c_void, *mut c_void) -> i64,
    pub arena_alloc: unsafe extern "C" fn(*mut c_void, u64) -> *mut c_void,
    pub arena_free: unsafe extern "C" fn(*mut c_void, *mut c_void, u64),
}

/// Sizes and offsets in bytes as this file has them, in the order of `sim_sizes` in `include/runtime.c`, after the first.
pub const SIZES: [usize; 6] = [
    size_of::<TaskStruct>(),
    std::mem::offset_of!(TaskStruct, se),
    std::mem::offset_of!(TaskStruct, pid),
    std::mem::offset_of!(TaskStruct, comm),
    size_of::<Ops>(),
    size_of::<HostFunctions>(),
];

/// Constants of sched_ext, as `include/scx/common.bpf.h` defines them.
pub mod flags {
    pub const DSQ_BUILTIN: u64 = 1 << 63;
    pub const DSQ_GLOBAL: u64 = DSQ_BUILTIN | 1;
    pub const DSQ_LOCAL: u64 = DSQ_BUILTIN | 2;
    pub const DSQ_LOCAL_ON: u64 = DSQ_BUILTIN | 1 << 62;
    pub const ITER_REVERSED: u64 = 1 << 16;
    pub const ENQ_WAKEUP: u64 = 1;
    pub const ENQ_HEAD: u64 = 16;
    pub const ENQ_CPU_SELECTED: u64 = 1 << 10;
    pub const ENQ_PREEMPT: u64 = 1 << 32;
    pub const ENQ_REENQ: u64 = 1 << 40;
    pub const ENQ_LAST: u64 = 1 << 41;
    pub const DEQ_SLEEP: u64 = 1;
    pub const WAKE_FORK: u64 = 4;
    pub const WAKE_TTWU: u64 = 8;
    pub const WAKE_SYNC: u64 = 16;
    pub const KICK_IDLE: u64 = 1;
    pub const KICK_PREEMPT: u64 = 2;
    pub const PICK_IDLE_CORE: u64 = 1;
    pub const OPS_ENQ_LAST: u64 = 2;
    pub const TASK_QUEUED: u32 = 1;
    pub const PF_IDLE: u32 = 2;
    pub const STORAGE_CREATE: u64 = 1;
    pub const MAP_NOEXIST: u64 = 1;
    pub const MAP_EXIST: u64 = 2;
    /// Default time slice in nanoseconds.
    pub const SLICE_DEFAULT: u64 = 20_000_000;
    pub const SLICE_INFINITE: u64 = u64::MAX;
}

/// Error numbers that kfuncs return, negated.
pub mod errno {
    pub const ENOENT: i32 = 2;
    pub const E2BIG: i32 = 7;
    pub const EBUSY: i32 = 16;
    pub const EEXIST: i32 = 17;
    pub const EINVAL: i32 = 22;
}
