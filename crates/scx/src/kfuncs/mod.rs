//! Functions that schedulers call: kfuncs of sched_ext and helpers of BPF. `include/scx/common.bpf.h` gives them their names.
//!
//! The first argument of each is the address of the [`World`] that called the scheduler.

mod maps;
mod queues;

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use rand::RngExt;

use maps::*;
use queues::*;

use crate::abi::errno::{EBUSY, EINVAL};
use crate::abi::{CpuMask, HostFunctions, TaskStruct};
use crate::idle::IdleRequest;
use crate::state::{FIRST_PID, SchedState, TaskPlace};
use crate::world::World;

/// Table of the functions for the scheduler of one world.
pub fn host(world: &World) -> HostFunctions {
    HostFunctions {
        world: ptr::from_ref(world).cast_mut().cast(),
        error,
        print,
        now,
        random,
        this_cpu,
        nr_cpus,
        current,
        task_from_pid,
        cpu_curr,
        task_cpu,
        task_running,
        llc_of,
        node_of,
        cpuperf_cap,
        cpuperf_cur,
        clock_pelt,
        mask,
        test_and_clear_idle,
        pick_idle,
        select_default,
        create_dsq,
        destroy_dsq,
        dsq_length,
        dsq_next,
        insert,
        move_to_local,
        move_task,
        free_slots,
        kick,
        reenqueue_local,
        map_lookup,
        map_update,
        map_delete,
        map_push,
        map_pop,
        map_each,
        storage,
        storage_delete,
        timer_set,
        timer_start,
        timer_cancel,
        arena_alloc,
        arena_free,
    }
}

/// World behind the first argument of a function.
///
/// # Safety
/// `world` is the address that [`host`] has put into the table; the world outlives its scheduler.
pub(super) unsafe fn of<'a>(world: *mut c_void) -> &'a World {
    // SAFETY: the caller's contract.
    unsafe { &*world.cast::<World>() }
}

/// Copies a text of the scheduler.
///
/// # Safety
/// `text` is null or a C string.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's contract.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .trim()
        .to_owned()
}

unsafe extern "C" fn error(world: *mut c_void, why: *const c_char) {
    // SAFETY: both come from the scheduler, which got the world from the table.
    let (world, why) = unsafe { (of(world), text(why)) };
    world.state().fail(why);
}

unsafe extern "C" fn print(_: *mut c_void, _: *const c_char) {}

unsafe extern "C" fn now(world: *mut c_void) -> u64 {
    // SAFETY: the world comes from the table.
    unsafe { of(world) }.state().now
}

unsafe extern "C" fn random(world: *mut c_void) -> u32 {
    // SAFETY: the world comes from the table.
    unsafe { of(world) }.state().rng.random()
}

unsafe extern "C" fn this_cpu(world: *mut c_void) -> i32 {
    // SAFETY: the world comes from the table.
    unsafe { of(world) }.state().this_cpu as i32
}

unsafe extern "C" fn nr_cpus(world: *mut c_void) -> u32 {
    // SAFETY: the world comes from the table.
    unsafe { of(world) }.state().rqs.len() as u32
}

unsafe extern "C" fn current(world: *mut c_void) -> *mut TaskStruct {
    // SAFETY: the world comes from the table.
    let mut state = unsafe { of(world) }.state();
    let cpu = state.this_cpu;
    on_cpu(&mut state, cpu)
}

/// Task that a CPU runs: a thread's, or that of its idle loop.
fn on_cpu(state: &mut SchedState, cpu: usize) -> *mut TaskStruct {
    match state.rqs[cpu].curr {
        Some(t) => state.thread(t).task,
        None => state.idle_tasks[cpu],
    }
}

unsafe extern "C" fn task_from_pid(world: *mut c_void, pid: i32) -> *mut TaskStruct {
    // SAFETY: the world comes from the table.
    let state = unsafe { of(world) }.state();
    let row = usize::try_from(pid - FIRST_PID).ok();
    let thread = row.and_then(|row| state.threads.get(row));
    thread
        .filter(|t| t.place != TaskPlace::Dead)
        .map_or(ptr::null_mut(), |t| t.task)
}

unsafe extern "C" fn cpu_curr(world: *mut c_void, cpu: i32) -> *mut TaskStruct {
    // SAFETY: the world comes from the table.
    let mut state = unsafe { of(world) }.state();
    match existing(&state, cpu) {
        Some(cpu) => on_cpu(&mut state, cpu),
        None => ptr::null_mut(),
    }
}

/// Number of a CPU; `None` if the machine lacks it.
pub(super) fn existing(state: &SchedState, cpu: i32) -> Option<usize> {
    usize::try_from(cpu)
        .ok()
        .filter(|cpu| *cpu < state.rqs.len())
}

unsafe extern "C" fn task_cpu(_: *mut c_void, task: *const TaskStruct) -> i32 {
    // SAFETY: schedulers only have pointers to tasks that the simulator gave them.
    unsafe { (*task).thread_cpu as i32 }
}

unsafe extern "C" fn task_running(_: *mut c_void, task: *const TaskStruct) -> bool {
    // SAFETY: schedulers only have pointers to tasks that the simulator gave them.
    unsafe { (*task).on_cpu != 0 }
}

unsafe extern "C" fn llc_of(world: *mut c_void, cpu: i32) -> i32 {
    // SAFETY: the world comes from the table.
    let state = unsafe { of(world) }.state();
    existing(&state, cpu).map_or(-EINVAL, |cpu| state.llc[cpu])
}

unsafe extern "C" fn node_of(world: *mut c_void, cpu: i32) -> i32 {
    // SAFETY: the world comes from the table.
    let state = unsafe { of(world) }.state();
    existing(&state, cpu).map_or(-EINVAL, |cpu| state.node[cpu])
}

unsafe extern "C" fn cpuperf_cap(world: *mut c_void, cpu: i32) -> u32 {
    // SAFETY: the world comes from the table.
    let state = unsafe { of(world) }.state();
    existing(&state, cpu).map_or(0, |cpu| state.capacity[cpu])
}

unsafe extern "C" fn cpuperf_cur(world: *mut c_void, cpu: i32) -> u32 {
    // SAFETY: the world comes from the table.
    unsafe { cpuperf_cap(world, cpu) }
}

unsafe extern "C" fn clock_pelt(world: *mut c_void, cpu: i32) -> u64 {
    // SAFETY: the world comes from the table.
    let state = unsafe { of(world) }.state();
    existing(&state, cpu).map_or(state.now, |cpu| {
        state.rqs[cpu].load_clock(state.now, state.capacity[cpu])
    })
}

unsafe extern "C" fn mask(world: *mut c_void, which: u32) -> *const CpuMask {
    // SAFETY: the world comes from the table.
    let state = unsafe { of(world) }.state();
    match which {
        0 => &raw const state.idle.cpus,
        1 => &raw const state.idle.cores,
        _ => &raw const state.idle.all,
    }
}

unsafe extern "C" fn test_and_clear_idle(world: *mut c_void, cpu: i32) -> bool {
    // SAFETY: the world comes from the table.
    let mut state = unsafe { of(world) }.state();
    existing(&state, cpu).is_some_and(|cpu| state.idle.test_and_clear(cpu))
}

unsafe extern "C" fn pick_idle(world: *mut c_void, allowed: *const CpuMask, how: u64) -> i32 {
    // SAFETY: both come from the scheduler, which got the world from the table.
    let (mut state, allowed) = unsafe { (of(world).state(), *allowed) };
    let this_cpu = state.this_cpu;
    let cpu = state.idle.pick(&allowed, how, this_cpu);
    cpu.map_or(-EBUSY, |cpu| cpu as i32)
}

unsafe extern "C" fn select_default(
    world: *mut c_void,
    task: *mut TaskStruct,
    prev: i32,
    wake_flags: u64,
    within: *const CpuMask,
    pick_flags: u64,
) -> i32 {
    // SAFETY: the world comes from the table.
    let mut state = unsafe { of(world) }.state();
    let Some(t) = state.of_task(task) else {
        return -EINVAL;
    };
    let mut allowed = *state.thread(t).mask;
    if !within.is_null() {
        // SAFETY: the scheduler's mask.
        allowed = allowed.and(unsafe { &*within });
    }
    let this_cpu = state.this_cpu;
    let request = IdleRequest {
        prev: prev.max(0) as usize,
        wake_flags,
        allowed,
        pick_flags,
        this_cpu,
        waiting_here: !state.rqs[this_cpu].local.is_empty(),
    };
    let cpu = state.idle.select(&request);
    cpu.map_or(-EBUSY, |cpu| cpu as i32)
}
