//! Kfuncs of dispatch queues, and those that make a CPU choose again.

use std::ffi::c_void;
use std::ptr;

use super::{existing, of};
use crate::abi::errno::{EEXIST, EINVAL, ENOENT};
use crate::abi::{TaskStruct, flags};
use crate::state::{Dispatch, Dsq, Inside, SchedState, TaskPlace};

pub(super) unsafe extern "C" fn create_dsq(world: *mut c_void, id: u64) -> i32 {
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

pub(super) unsafe extern "C" fn destroy_dsq(world: *mut c_void, id: u64) {
    // SAFETY: the world comes from the table.
    let mut state = unsafe { of(world) }.state();
    if state.queues.get(&id).is_some_and(|queue| queue.len() > 0) {
        state.fail(format!("it destroys queue {id:#x}, in which threads wait"));
    } else {
        state.queues.remove(&id);
    }
}

/// Threads of a dispatch queue in their order; `None` if there is no such queue.
fn queued(state: &SchedState, id: u64, reversed: bool) -> Option<Vec<u32>> {
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

pub(super) unsafe extern "C" fn dsq_length(world: *mut c_void, id: u64) -> i32 {
    // SAFETY: the world comes from the table.
    let state = unsafe { of(world) }.state();
    let queue = queued(&state, id, false);
    queue.map_or(-ENOENT, |threads| threads.len() as i32)
}

pub(super) unsafe extern "C" fn dsq_next(
    world: *mut c_void,
    id: u64,
    after: *mut TaskStruct,
    how: u64,
) -> *mut TaskStruct {
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

pub(super) unsafe extern "C" fn insert(
    world: *mut c_void,
    task: *mut TaskStruct,
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

pub(super) unsafe extern "C" fn move_to_local(world: *mut c_void, dsq: u64) -> bool {
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
pub(super) unsafe extern "C" fn move_task(
    world: *mut c_void,
    from: u64,
    task: *mut TaskStruct,
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
    if state.thread(t).place != TaskPlace::Queue(from) {
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

pub(super) unsafe extern "C" fn free_slots(world: *mut c_void) -> u32 {
    // SAFETY: the world comes from the table.
    let state = unsafe { of(world) }.state();
    state.batch.saturating_sub(state.buffer.len()) as u32
}

pub(super) unsafe extern "C" fn kick(world: *mut c_void, cpu: i32, how: u64) {
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

pub(super) unsafe extern "C" fn reenqueue_local(world: *mut c_void) -> u32 {
    // SAFETY: the world comes from the table.
    let world = unsafe { of(world) };
    let (cpu, waiting) = {
        let mut state = world.state();
        let cpu = state.this_cpu;
        (cpu, std::mem::take(&mut state.rqs[cpu].local))
    };
    for t in &waiting {
        world.state().thread(*t).place = TaskPlace::Held;
        world.enqueue_runnable(*t, flags::ENQ_REENQ, cpu);
    }
    waiting.len() as u32
}
