//! The class of sched_ext around a scheduler's functions: order and conditions of their calls as in kernel/sched/ext.c.
//!
//! A scheduler's functions call back into the state, so no borrow of it lasts over such a call.

use std::cell::{Cell, RefCell, RefMut};
use std::ffi::c_void;
use std::ptr;

use crate::abi::{HostFunctions, Ops, TaskStruct, flags};
use crate::idle::IdleRequest;
use crate::maps::Maps;
use crate::object::Object;
use crate::state::{Dispatch, Inside, SchedState, TaskPlace};

/// Highest number of calls of `dispatch` in a row (`SCX_DSP_MAX_LOOPS`).
const DISPATCH_LOOPS: u32 = 32;
/// Time in nanoseconds from the interrupt that ends a thread's slice to the clock reading from which the next thread is charged.
/// It is short, but a slice of five ticks that begins at a tick is not over at the fifth tick because of it.
const SWITCH_NS: u64 = 1_000;
/// Number of context switches at one point of time after which the scheduler counts as stuck.
const MOST_SWITCHES: u32 = 100_000;

pub struct World {
    state: RefCell<SchedState>,
    maps: RefCell<Maps>,
    ops: *const Ops,
    pub root: *mut c_void,
    settling: Cell<bool>,
    /// Keeps the code of the scheduler in memory.
    object: Object,
}

impl World {
    /// Creates the class around a loaded scheduler, with the functions of `host` for it to call. The result must not move
    /// afterwards: the scheduler keeps its address.
    pub fn new(object: Object, state: SchedState, host: fn(&Self) -> HostFunctions) -> Box<Self> {
        let world = Box::new(Self {
            maps: RefCell::new(Maps::new(state.rqs.len(), object.maps())),
            state: RefCell::new(state),
            ops: object.ops,
            root: object.root,
            settling: Cell::new(false),
            object,
        });
        // SAFETY: the object's table has the layout of `Host`, which was checked when it was loaded, and no other code uses it.
        unsafe { ptr::write(world.object.host.cast::<HostFunctions>(), host(&world)) };
        world
    }

    pub fn object(&self) -> &Object {
        &self.object
    }

    pub fn state(&self) -> RefMut<'_, SchedState> {
        self.state.borrow_mut()
    }

    pub fn maps(&self) -> RefMut<'_, Maps> {
        self.maps.borrow_mut()
    }

    pub fn ops(&self) -> &Ops {
        // SAFETY: the table lies in the loaded object, which lives as long as the world and does not change it.
        unsafe { &*self.ops }
    }

    /// Calls a function of the scheduler on a CPU.
    pub fn call<T>(&self, cpu: usize, inside: Inside, f: impl FnOnce(&Ops) -> T) -> T {
        let before = {
            let mut state = self.state();
            let before = (state.this_cpu, state.inside);
            (state.this_cpu, state.inside) = (cpu, inside);
            before
        };
        let result = f(self.ops());
        let mut state = self.state();
        (state.this_cpu, state.inside) = before;
        result
    }

    pub fn task(&self, t: u32) -> *mut TaskStruct {
        self.state().thread(t).task
    }

    fn cpu_of(&self, t: u32) -> usize {
        self.state().thread(t).cpu
    }

    /// Chooses the CPU of a thread that wakes or is new (`select_task_rq_scx`). Returns flags for `enqueue`.
    pub fn select(&self, t: u32, prev: usize, waker: usize, wake_flags: u64) -> u64 {
        let (mask, task) = {
            let mut state = self.state();
            let thread = state.thread(t);
            thread.direct = None;
            (*thread.mask, thread.task)
        };
        let fallback = || {
            let near = mask.has(prev).then_some(prev);
            near.or_else(|| mask.next_around(0)).unwrap_or(0)
        };
        if mask.count() <= 1 {
            self.state().set_cpu(t, fallback());
            return 0;
        }
        let chosen = match self.ops().select_cpu {
            // SAFETY: the scheduler's function, with arguments of its declared types.
            Some(f) => self.call(waker, Inside::Placing(t), |_| unsafe {
                f(task, prev as i32, wake_flags)
            }),
            None => self.select_default(t, prev, waker, wake_flags),
        };
        let mut state = self.state();
        if usize::try_from(chosen).is_ok_and(|cpu| cpu < state.rqs.len()) {
            let cpu = chosen as usize;
            let cpu = if mask.has(cpu) { cpu } else { fallback() };
            state.set_cpu(t, cpu);
            // SAFETY: the borrow ends here.
            unsafe { state.task(t) }.scx.selected_cpu = cpu as i32;
        } else {
            state.fail(format!("select_cpu returned {chosen}, which is no CPU"));
        }
        flags::ENQ_CPU_SELECTED
    }

    /// Chooses a CPU as sched_ext does without `select_cpu`: an idle CPU runs the thread at once.
    fn select_default(&self, t: u32, prev: usize, waker: usize, wake_flags: u64) -> i32 {
        let mut state = self.state();
        let request = IdleRequest {
            prev,
            wake_flags,
            allowed: *state.thread(t).mask,
            pick_flags: 0,
            this_cpu: waker,
            waiting_here: !state.rqs[waker].local.is_empty(),
        };
        let Some(cpu) = state.idle.select(&request) else {
            return prev as i32;
        };
        // SAFETY: the borrow ends here.
        unsafe { state.task(t) }.scx.slice = flags::SLICE_DEFAULT;
        state.thread(t).direct = Some(Dispatch {
            thread: t,
            dsq: flags::DSQ_LOCAL,
            enq_flags: 0,
            by_vtime: false,
        });
        cpu as i32
    }

    /// Makes a thread runnable on its CPU (`enqueue_task_scx`).
    pub fn enqueue(&self, t: u32, enq_flags: u64, on: usize) {
        let task = {
            let mut state = self.state();
            let now = state.now;
            let thread = state.thread(t);
            thread.place = TaskPlace::Held;
            thread.waiting_since = now;
            // SAFETY: the borrow ends here.
            let task = unsafe { state.task(t) };
            task.scx.flags |= flags::TASK_QUEUED;
            task.scx.runnable_at = now;
            task.on_rq = 1;
            state.thread(t).task
        };
        if let Some(f) = self.ops().runnable {
            // SAFETY: the scheduler's function, with arguments of its declared types.
            self.call(on, Inside::Other, |_| unsafe { f(task, enq_flags) });
        }
        self.enqueue_runnable(t, enq_flags, on);
    }

    /// Hands a runnable thread to the scheduler (`do_enqueue_task`), unless it was dispatched already.
    pub fn enqueue_runnable(&self, t: u32, enq_flags: u64, on: usize) {
        let direct = self.state().thread(t).direct.take();
        if let Some(direct) = direct {
            return self.dispatch_direct(t, direct, enq_flags);
        }
        let task = self.task(t);
        let Some(f) = self.ops().enqueue else {
            let mut state = self.state();
            // SAFETY: the borrow ends here.
            unsafe { state.task(t) }.scx.slice = flags::SLICE_DEFAULT;
            let cpu = state.thread(t).cpu;
            let dsq = flags::DSQ_GLOBAL;
            let by_vtime = false;
            return state.dispatch(
                Dispatch {
                    thread: t,
                    dsq,
                    enq_flags,
                    by_vtime,
                },
                cpu,
            );
        };
        // SAFETY: the scheduler's function, with arguments of its declared types.
        self.call(on, Inside::Placing(t), |_| unsafe { f(task, enq_flags) });
        let direct = self.state().thread(t).direct.take();
        if let Some(direct) = direct {
            self.dispatch_direct(t, direct, enq_flags);
        }
    }

    fn dispatch_direct(&self, t: u32, direct: Dispatch, enq_flags: u64) {
        let mut state = self.state();
        let cpu = state.thread(t).cpu;
        let enq_flags = direct.enq_flags | enq_flags & flags::ENQ_WAKEUP;
        state.dispatch(
            Dispatch {
                enq_flags,
                ..direct
            },
            cpu,
        );
    }

    /// Tells the scheduler that the running thread of a CPU stops (`put_prev_task_scx`, `dequeue_task_scx`).
    pub fn stopping(&self, t: u32, runnable: bool) {
        let cpu = self.cpu_of(t);
        self.state().update_curr(cpu);
        let task = self.task(t);
        if let Some(f) = self.ops().stopping {
            // SAFETY: the scheduler's function, with arguments of its declared types.
            self.call(cpu, Inside::Other, |_| unsafe { f(task, runnable) });
        }
    }

    /// Takes a thread that goes to sleep, exits or moves away from the scheduler (`dequeue_task_scx`).
    pub fn dequeue(&self, t: u32, deq_flags: u64, asleep: bool) {
        let (place, task, cpu) = {
            let mut state = self.state();
            let thread = state.thread(t);
            (thread.place, thread.task, thread.cpu)
        };
        match place {
            TaskPlace::Running => self.stopping(t, false),
            TaskPlace::Held => {
                if let Some(f) = self.ops().dequeue {
                    // SAFETY: the scheduler's function, with arguments of its declared types.
                    self.call(cpu, Inside::Other, |_| unsafe { f(task, deq_flags) });
                }
            }
            _ => {}
        }
        if let (true, Some(f)) = (asleep, self.ops().quiescent) {
            // SAFETY: the scheduler's function, with arguments of its declared types.
            self.call(cpu, Inside::Other, |_| unsafe { f(task, deq_flags) });
        }
        let mut state = self.state();
        state.take_out(t);
        let thread = state.thread(t);
        thread.place = if asleep {
            TaskPlace::Asleep
        } else {
            TaskPlace::Held
        };
        thread.direct = None;
        // SAFETY: the borrow ends here.
        let task = unsafe { state.task(t) };
        if asleep {
            task.scx.flags &= !flags::TASK_QUEUED;
            task.on_rq = 0;
        }
        task.on_cpu = 0;
    }

    /// Reschedules all CPUs that need it, until none does.
    pub fn settle(&self) {
        if self.settling.replace(true) {
            return;
        }
        let mut left = MOST_SWITCHES;
        loop {
            let next = {
                let mut state = self.state();
                if state.failure.is_some() {
                    state.pending.clear();
                }
                state.pending.pop_front()
            };
            let Some(cpu) = next else { break };
            self.schedule(cpu);
            left -= 1;
            if left == 0 {
                let why = format!(
                    "it reschedules without end: {MOST_SWITCHES} times at one point of time"
                );
                self.state().fail(why);
            }
        }
        self.settling.set(false);
    }

    /// Chooses the next thread of a CPU (`__schedule`).
    fn schedule(&self, cpu: usize) {
        let (prev, gone) = {
            let mut state = self.state();
            state.update_curr(cpu);
            let curr = state.rqs[cpu].curr;
            let running = curr.filter(|t| {
                let thread = state.thread(*t);
                thread.place == TaskPlace::Running && thread.cpu == cpu
            });
            (running, curr)
        };
        if self.balance(cpu, prev) {
            return self.keep(cpu, prev);
        }
        let next = {
            let mut state = self.state();
            let next = state.rqs[cpu].local.pop_front();
            if let Some(t) = next {
                state.thread(t).place = TaskPlace::Held;
            }
            next
        };
        if let Some(t) = prev {
            self.put_prev(t, cpu, next.is_none());
        }
        match next {
            Some(t) => self.set_next(t, cpu, gone.is_none()),
            None => self.go_idle(cpu),
        }
    }

    /// Lets the running thread of a CPU go on, with a new slice if it has none.
    fn keep(&self, cpu: usize, prev: Option<u32>) {
        let mut state = self.state();
        let Some(t) = prev else { return };
        // SAFETY: the borrow ends here.
        let task = unsafe { state.task(t) };
        if task.scx.slice == 0 {
            task.scx.slice = flags::SLICE_DEFAULT;
        }
        state.show(cpu, Some(t));
    }

    /// Looks for a thread for a CPU's local queue (`balance_one`). Returns true if the running thread goes on.
    fn balance(&self, cpu: usize, prev: Option<u32>) -> bool {
        let lasting = || {
            let mut state = self.state();
            // SAFETY: the borrow ends here.
            prev.is_some_and(|t| unsafe { state.task(t) }.scx.slice > 0)
        };
        if lasting() {
            return true;
        }
        let found = || {
            let mut state = self.state();
            !state.rqs[cpu].local.is_empty() || state.consume(flags::DSQ_GLOBAL, cpu)
        };
        if found() {
            return false;
        }
        if let Some(f) = self.ops().dispatch {
            let task = prev.map_or(ptr::null_mut(), |t| self.task(t));
            for _ in 0..DISPATCH_LOOPS {
                // SAFETY: the scheduler's function, with arguments of its declared types.
                self.call(cpu, Inside::Dispatching(cpu), |_| unsafe {
                    f(cpu as i32, task)
                });
                let dispatched = self.flush(cpu);
                if lasting() {
                    return true;
                }
                if found() {
                    return false;
                }
                if !dispatched || self.state().failure.is_some() {
                    break;
                }
            }
        }
        prev.is_some() && self.ops().flags & flags::OPS_ENQ_LAST == 0
    }

    /// Executes the dispatches that `dispatch` has collected (`flush_dispatch_buf`). Returns true if there were any.
    pub fn flush(&self, cpu: usize) -> bool {
        let mut state = self.state();
        let buffer = std::mem::take(&mut state.buffer);
        for dispatch in &buffer {
            // A thread that the scheduler no longer keeps, for it was dispatched or fell asleep, is passed over.
            if state.thread(dispatch.thread).place == TaskPlace::Held {
                state.dispatch(*dispatch, cpu);
            }
        }
        !buffer.is_empty()
    }

    /// Takes the CPU from a running thread that could go on.
    fn put_prev(&self, t: u32, cpu: usize, last: bool) {
        self.stopping(t, true);
        let sliced = {
            let mut state = self.state();
            let now = state.now;
            let thread = state.thread(t);
            thread.place = TaskPlace::Held;
            thread.waiting_since = now;
            // SAFETY: the borrow ends here.
            let task = unsafe { state.task(t) };
            task.on_cpu = 0;
            task.scx.slice > 0
        };
        if sliced {
            self.state().push_local(t, cpu, flags::ENQ_HEAD);
        } else {
            self.enqueue_runnable(t, if last { flags::ENQ_LAST } else { 0 }, cpu);
        }
    }

    fn set_next(&self, t: u32, cpu: usize, was_idle: bool) {
        if was_idle {
            self.update_idle(cpu, false);
        }
        let task = {
            let mut state = self.state();
            let now = state.now;
            state.set_cpu(t, cpu);
            let thread = state.thread(t);
            thread.place = TaskPlace::Running;
            let waited = now.saturating_sub(thread.waiting_since);
            thread.waited += waited;
            if let Some(process) = thread.process {
                state.waits[process as usize].record(waited, 1);
            }
            // SAFETY: the borrow ends here.
            let task = unsafe { state.task(t) };
            task.se.exec_start = now + SWITCH_NS;
            task.on_cpu = 1;
            if task.scx.slice == 0 {
                task.scx.slice = flags::SLICE_DEFAULT;
            }
            let capacity = state.capacity[cpu];
            state.rqs[cpu].set_curr(Some(t), now, capacity);
            state.set_tick(cpu);
            state.thread(t).task
        };
        if let Some(f) = self.ops().running {
            // SAFETY: the scheduler's function, with arguments of its declared types.
            self.call(cpu, Inside::Other, |_| unsafe { f(task) });
        }
        self.state().show(cpu, Some(t));
    }

    fn go_idle(&self, cpu: usize) {
        {
            let mut state = self.state();
            let now = state.now;
            let capacity = state.capacity[cpu];
            state.rqs[cpu].set_curr(None, now, capacity);
            state.rqs[cpu].next_tick = u64::MAX;
            state.show(cpu, None);
        }
        self.update_idle(cpu, true);
        let mut state = self.state();
        if !state.rqs[cpu].local.is_empty() {
            state.resched(cpu);
        }
    }

    fn update_idle(&self, cpu: usize, idle: bool) {
        self.state().idle.update(cpu, idle);
        if let Some(f) = self.ops().update_idle {
            // SAFETY: the scheduler's function, with arguments of its declared types.
            self.call(cpu, Inside::Other, |_| unsafe { f(cpu as i32, idle) });
        }
    }

    /// Handles the scheduler tick of a CPU (`task_tick_scx`).
    pub fn tick(&self, cpu: usize) {
        let task = {
            let mut state = self.state();
            state.update_curr(cpu);
            state.set_tick(cpu);
            let Some(t) = state.rqs[cpu].curr else { return };
            state.thread(t).task
        };
        if let Some(f) = self.ops().tick {
            // SAFETY: the scheduler's function, with arguments of its declared types.
            self.call(cpu, Inside::Other, |_| unsafe { f(task) });
        }
        // SAFETY: tasks live as long as the state.
        if unsafe { (*task).scx.slice } == 0 {
            self.state().resched(cpu);
        }
    }
}
