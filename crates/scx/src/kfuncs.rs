//! Functions that schedulers call: kfuncs of sched_ext and helpers of BPF. `include/scx/common.bpf.h` gives them their names.
//!
//! The first argument of each is the address of the [`World`] that called the scheduler.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use rand::RngExt;

use crate::abi::errno::{EBUSY, EEXIST, EINVAL, ENOENT};
use crate::abi::{CpuMask, Host, MapShape, Task, flags};
use crate::idle::Request;
use crate::state::{Dispatch, Dsq, FIRST_PID, Inside, Place, State, Timer};
use crate::world::World;

/// Table of the functions for the scheduler of one world.
pub fn host(world: &World) -> Host {
    Host {
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
    }
}

/// World behind the first argument of a function.
///
/// # Safety
/// `world` is the address that [`host`] has put into the table; the world outlives its scheduler.
unsafe fn of<'a>(world: *mut c_void) -> &'a World {
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

unsafe extern "C" fn current(world: *mut c_void) -> *mut Task {
    // SAFETY: the world comes from the table.
    let mut state = unsafe { of(world) }.state();
    let cpu = state.this_cpu;
    on_cpu(&mut state, cpu)
}

/// Task that a CPU runs: a thread's, or that of its idle loop.
fn on_cpu(state: &mut State, cpu: usize) -> *mut Task {
    match state.rqs[cpu].curr {
        Some(t) => state.thread(t).task,
        None => state.idle_tasks[cpu],
    }
}

unsafe extern "C" fn task_from_pid(world: *mut c_void, pid: i32) -> *mut Task {
    // SAFETY: the world comes from the table.
    let state = unsafe { of(world) }.state();
    let row = usize::try_from(pid - FIRST_PID).ok();
    let thread = row.and_then(|row| state.threads.get(row));
    thread
        .filter(|t| t.place != Place::Dead)
        .map_or(ptr::null_mut(), |t| t.task)
}

unsafe extern "C" fn cpu_curr(world: *mut c_void, cpu: i32) -> *mut Task {
    // SAFETY: the world comes from the table.
    let mut state = unsafe { of(world) }.state();
    match existing(&state, cpu) {
        Some(cpu) => on_cpu(&mut state, cpu),
        None => ptr::null_mut(),
    }
}

/// Number of a CPU; `None` if the machine lacks it.
fn existing(state: &State, cpu: i32) -> Option<usize> {
    usize::try_from(cpu)
        .ok()
        .filter(|cpu| *cpu < state.rqs.len())
}

unsafe extern "C" fn task_cpu(_: *mut c_void, task: *const Task) -> i32 {
    // SAFETY: schedulers only have pointers to tasks that the simulator gave them.
    unsafe { (*task).thread_cpu as i32 }
}

unsafe extern "C" fn task_running(_: *mut c_void, task: *const Task) -> bool {
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
    task: *mut Task,
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
    let request = Request {
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

unsafe extern "C" fn create_dsq(world: *mut c_void, id: u64) -> i32 {
    // SAFETY: the world comes from the table.
    let mut state = unsafe { of(world) }.state();
    if id & flags::DSQ_BUILTIN != 0 {
        return -EINVAL;
    }
    if state.queues.contains_key(&id) {
        return -EEXIST;
    }
    state.queues.insert(id, Dsq::default());
    0
}

unsafe extern "C" fn destroy_dsq(world: *mut c_void, id: u64) {
    // SAFETY: the world comes from the table.
    let mut state = unsafe { of(world) }.state();
    if state.queues.get(&id).is_some_and(|queue| queue.len() > 0) {
        state.fail(format!("it destroys queue {id:#x}, in which threads wait"));
    } else {
        state.queues.remove(&id);
    }
}

/// Threads of a dispatch queue in their order; `None` if there is no such queue.
fn queued(state: &State, id: u64, reversed: bool) -> Option<Vec<u32>> {
    let local = |cpu: usize| {
        let queue = state.rqs.get(cpu).map(|rq| rq.local.iter().copied())?;
        Some(if reversed {
            queue.rev().collect()
        } else {
            queue.collect()
        })
    };
    if id == flags::DSQ_LOCAL {
        return local(state.this_cpu);
    }
    if id & flags::DSQ_LOCAL_ON == flags::DSQ_LOCAL_ON {
        return local(id as u32 as usize);
    }
    state
        .queues
        .get(&id)
        .map(|queue| queue.iter(reversed).collect())
}

unsafe extern "C" fn dsq_length(world: *mut c_void, id: u64) -> i32 {
    // SAFETY: the world comes from the table.
    let state = unsafe { of(world) }.state();
    let queue = queued(&state, id, false);
    queue.map_or(-ENOENT, |threads| threads.len() as i32)
}

unsafe extern "C" fn dsq_next(
    world: *mut c_void,
    id: u64,
    after: *mut Task,
    how: u64,
) -> *mut Task {
    // SAFETY: the world comes from the table.
    let mut state = unsafe { of(world) }.state();
    let Some(threads) = queued(&state, id, how & flags::ITER_REVERSED != 0) else {
        return ptr::null_mut();
    };
    let next = match state.of_task(after) {
        None => threads.first(),
        Some(t) => {
            let at = threads.iter().position(|other| *other == t);
            at.and_then(|at| threads.get(at + 1))
        }
    };
    let next = next.copied();
    next.map_or(ptr::null_mut(), |t| state.thread(t).task)
}

unsafe extern "C" fn insert(
    world: *mut c_void,
    task: *mut Task,
    dsq: u64,
    slice: u64,
    vtime: u64,
    enq_flags: u64,
    by_vtime: bool,
) -> bool {
    // SAFETY: the world comes from the table.
    let mut state = unsafe { of(world) }.state();
    let Some(t) = state.of_task(task) else {
        state.fail("it dispatches a thread that has exited");
        return false;
    };
    // SAFETY: the borrow ends with the block.
    {
        let task = unsafe { state.task(t) };
        if slice != 0 {
            task.scx.slice = slice;
        } else {
            task.scx.slice = task.scx.slice.max(1);
        }
        if by_vtime {
            task.scx.dsq_vtime = vtime;
        }
    }
    let dispatch = Dispatch {
        thread: t,
        dsq,
        enq_flags,
        by_vtime,
    };
    match state.inside {
        Inside::Placing(of) if of == t => {
            if state.thread(t).direct.is_some() {
                state.fail(format!("it dispatches thread {t} twice"));
                return false;
            }
            state.thread(t).direct = Some(dispatch);
        }
        Inside::Placing(_) | Inside::Other => {
            state.fail(format!(
                "it dispatches thread {t} outside of select_cpu, enqueue and dispatch"
            ));
            return false;
        }
        Inside::Dispatching(_) => {
            if state.buffer.len() >= state.batch {
                state.fail("its buffer of dispatches is full");
                return false;
            }
            state.buffer.push(dispatch);
        }
    }
    true
}

unsafe extern "C" fn move_to_local(world: *mut c_void, dsq: u64) -> bool {
    // SAFETY: the world comes from the table.
    let world = unsafe { of(world) };
    let inside = world.state().inside;
    let Inside::Dispatching(cpu) = inside else {
        world
            .state()
            .fail("it moves threads to a local queue outside of dispatch");
        return false;
    };
    world.flush(cpu);
    world.state().consume(dsq, cpu)
}

#[allow(
    clippy::too_many_arguments,
    reason = "the table's functions take no structures"
)]
unsafe extern "C" fn move_task(
    world: *mut c_void,
    from: u64,
    task: *mut Task,
    dsq: u64,
    slice: u64,
    vtime: u64,
    enq_flags: u64,
    given: u32,
) -> bool {
    // SAFETY: the world comes from the table.
    let mut state = unsafe { of(world) }.state();
    let Some(t) = state.of_task(task) else {
        return false;
    };
    if state.thread(t).place != Place::Queue(from) {
        return false;
    }
    // SAFETY: the borrow ends with the block.
    {
        let task = unsafe { state.task(t) };
        if given & 1 != 0 {
            task.scx.slice = slice;
        }
        if given & 2 != 0 {
            task.scx.dsq_vtime = vtime;
        }
    }
    let here = state.this_cpu;
    let by_vtime = given & 4 != 0;
    let dispatch = Dispatch {
        thread: t,
        dsq,
        enq_flags,
        by_vtime,
    };
    state.dispatch(dispatch, here);
    true
}

unsafe extern "C" fn free_slots(world: *mut c_void) -> u32 {
    // SAFETY: the world comes from the table.
    let state = unsafe { of(world) }.state();
    state.batch.saturating_sub(state.buffer.len()) as u32
}

unsafe extern "C" fn kick(world: *mut c_void, cpu: i32, how: u64) {
    // SAFETY: the world comes from the table.
    let mut state = unsafe { of(world) }.state();
    let Some(cpu) = existing(&state, cpu) else {
        return state.fail(format!("it kicks CPU {cpu}, which does not exist"));
    };
    let curr = state.rqs[cpu].curr;
    match curr {
        Some(_) if how & flags::KICK_IDLE != 0 => {}
        Some(t) => {
            if how & flags::KICK_PREEMPT != 0 {
                // SAFETY: the borrow ends here.
                unsafe { state.task(t) }.scx.slice = 0;
            }
            state.resched(cpu);
        }
        None => state.resched(cpu),
    }
}

unsafe extern "C" fn reenqueue_local(world: *mut c_void) -> u32 {
    // SAFETY: the world comes from the table.
    let world = unsafe { of(world) };
    let (cpu, waiting) = {
        let mut state = world.state();
        let cpu = state.this_cpu;
        (cpu, std::mem::take(&mut state.rqs[cpu].local))
    };
    for t in &waiting {
        world.state().thread(*t).place = Place::Held;
        world.enqueue_runnable(*t, flags::ENQ_REENQ, cpu);
    }
    waiting.len() as u32
}

unsafe extern "C" fn map_lookup(
    world: *mut c_void,
    map: *mut c_void,
    shape: MapShape,
    key: *const u8,
    cpu: i32,
) -> *mut u8 {
    // SAFETY: the world comes from the table.
    let world = unsafe { of(world) };
    let copy = usize::try_from(cpu).unwrap_or(world.state().this_cpu);
    if copy >= world.state().rqs.len() {
        return ptr::null_mut();
    }
    // SAFETY: the scheduler's key, of the map's size.
    unsafe { world.maps().lookup(map, shape, key, copy) }
}

unsafe extern "C" fn map_update(
    world: *mut c_void,
    map: *mut c_void,
    shape: MapShape,
    key: *const u8,
    value: *const u8,
    how: u64,
) -> i64 {
    // SAFETY: the world comes from the table.
    let world = unsafe { of(world) };
    let copy = world.state().this_cpu;
    // SAFETY: the scheduler's key and value, of the map's sizes.
    unsafe { world.maps().update(map, shape, (key, value), how, copy) }
}

unsafe extern "C" fn map_delete(world: *mut c_void, map: *mut c_void, key: *const u8) -> i64 {
    // SAFETY: the scheduler's key, of the map's size.
    unsafe { of(world).maps().delete(map, key) }
}

unsafe extern "C" fn map_push(
    world: *mut c_void,
    map: *mut c_void,
    shape: MapShape,
    value: *const u8,
    _: u64,
) -> i64 {
    // SAFETY: the scheduler's value, of the map's size.
    unsafe { of(world).maps().push(map, shape, value) }
}

unsafe extern "C" fn map_pop(
    world: *mut c_void,
    map: *mut c_void,
    shape: MapShape,
    value: *mut u8,
    keep: bool,
) -> i64 {
    // SAFETY: the scheduler's room for a value, of the map's size.
    unsafe { of(world).maps().pop(map, shape, value, keep) }
}

/// Function that a scheduler wants called for each value of a map, and for a timer.
type Callback = unsafe extern "C" fn(*mut c_void, *const u8, *mut u8, *mut c_void) -> i64;

unsafe extern "C" fn map_each(
    world: *mut c_void,
    map: *mut c_void,
    shape: MapShape,
    callback: *mut c_void,
    context: *mut c_void,
) -> i64 {
    // SAFETY: the world comes from the table, and the callback has this type by the rules of `bpf_for_each_map_elem`.
    let (world, callback) = unsafe {
        (
            of(world),
            std::mem::transmute::<*mut c_void, Callback>(callback),
        )
    };
    let copy = world.state().this_cpu;
    let keys = world.maps().keys(map, shape);
    let mut done = 0;
    for key in &keys {
        // SAFETY: a key of this map.
        let value = unsafe { world.maps().lookup(map, shape, key.as_ptr(), copy) };
        done += 1;
        // SAFETY: arguments as the callback's type wants them.
        if !value.is_null() && unsafe { callback(map, key.as_ptr(), value, context) } != 0 {
            break;
        }
    }
    done
}

unsafe extern "C" fn storage(
    world: *mut c_void,
    map: *mut c_void,
    shape: MapShape,
    owner: *const c_void,
    initial: *const u8,
    how: u64,
) -> *mut u8 {
    // SAFETY: the scheduler's initial value, of the map's size.
    unsafe { of(world).maps().storage(map, shape, owner, initial, how) }
}

unsafe extern "C" fn storage_delete(
    world: *mut c_void,
    map: *mut c_void,
    owner: *const c_void,
) -> i64 {
    // SAFETY: the world comes from the table.
    unsafe { of(world) }.maps().storage_delete(map, owner)
}

unsafe extern "C" fn timer_set(
    world: *mut c_void,
    timer: *mut c_void,
    callback: *mut c_void,
) -> i64 {
    // SAFETY: the world comes from the table.
    let mut state = unsafe { of(world) }.state();
    let timer = state.timers.entry(timer as usize).or_insert(Timer {
        callback: 0,
        due: None,
    });
    timer.callback = callback as usize;
    0
}

/// Flag of `bpf_timer_start` for a point of time instead of a duration.
const TIMER_ABSOLUTE: u64 = 1;

unsafe extern "C" fn timer_start(
    world: *mut c_void,
    timer: *mut c_void,
    nanoseconds: u64,
    how: u64,
) -> i64 {
    // SAFETY: the world comes from the table.
    let mut state = unsafe { of(world) }.state();
    let state = &mut *state;
    let Some(known) = state.timers.get_mut(&(timer as usize)) else {
        return -i64::from(EINVAL);
    };
    state.started_timers += 1;
    let start = if how & TIMER_ABSOLUTE != 0 {
        0
    } else {
        state.now
    };
    let due = ((start + nanoseconds).max(state.now), state.started_timers);
    if let Some(before) = known.due.replace(due) {
        state.due.remove(&before);
    }
    state.due.insert(due, timer as usize);
    0
}

unsafe extern "C" fn timer_cancel(world: *mut c_void, timer: *mut c_void) -> i64 {
    // SAFETY: the world comes from the table.
    let mut state = unsafe { of(world) }.state();
    let state = &mut *state;
    let known = state.timers.get_mut(&(timer as usize));
    let due = known.and_then(|timer| timer.due.take());
    i64::from(due.is_some_and(|due| state.due.remove(&due).is_some()))
}

impl World {
    /// Calls the callbacks of all timers that are due. Timers run on the first CPU.
    pub fn fire_timers(&self) {
        loop {
            let (address, callback) = {
                let mut state = self.state();
                let state = &mut *state;
                let Some((&due, &address)) = state.due.first_key_value() else {
                    return;
                };
                if due.0 > state.now {
                    return;
                }
                state.due.remove(&due);
                let Some(timer) = state.timers.get_mut(&address) else {
                    continue;
                };
                timer.due = None;
                (address, timer.callback)
            };
            let around = self.maps().around(address);
            let Some((map, key, value)) = around.filter(|_| callback != 0) else {
                continue;
            };
            // SAFETY: the scheduler has set this callback for the timer; by the rules of `bpf_timer_set_callback`, it takes map,
            // key and value.
            let f = unsafe {
                std::mem::transmute::<*mut c_void, Callback>(ptr::with_exposed_provenance_mut(
                    callback,
                ))
            };
            // SAFETY: as above.
            self.call(0, Inside::Other, |_| unsafe {
                f(
                    ptr::with_exposed_provenance_mut(map),
                    key.as_ptr(),
                    value,
                    ptr::null_mut(),
                )
            });
        }
    }
}
