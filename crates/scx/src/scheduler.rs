//! A scheduler as the simulator's engine drives it.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::ffi::c_char;
use std::ptr;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::latency::Histogram;
use countersteer_model::units::{CpuId, Nanos, ThreadId};
use countersteer_sim::linux::{ContextSwitch, weight_of_nice};
use countersteer_sim::scheduler::Scheduler;

use crate::abi::{CpuMask, InitTaskArgs, TaskStruct, flags};
use crate::state::{FIRST_PID, Inside, ScxThread, TaskPlace};
use crate::world::World;

/// Time in nanoseconds after which a waiting thread counts as forgotten, if the scheduler does not set it.
pub const TIMEOUT_NS: u64 = 30_000_000_000;

/// Simulated class of sched_ext with one scheduler, which schedules all threads.
pub struct Ext {
    pub(crate) world: Box<World>,
    pub(crate) task_layout: Layout,
    /// Identity of each process's address space, and process ID of its first thread.
    pub(crate) processes: Vec<(Box<u64>, i32)>,
    pub(crate) timeout_ns: u64,
    pub(crate) next_check: u64,
    /// Task that stands for the parent of all threads.
    pub(crate) init: *mut TaskStruct,
}

// SAFETY: an `Ext` owns its tasks, its scheduler's code and its variables; no two of them share any.
unsafe impl Send for Ext {}

impl Ext {
    /// Handles all events up to a time, and sets the time.
    fn advance_to(&mut self, now: Nanos) {
        let now = now.0;
        loop {
            let due = self.next_event().0;
            if due > now {
                break;
            }
            {
                let mut state = self.world.state();
                state.now = state.now.max(due);
            }
            self.world.fire_timers();
            let cpus = self.world.state().rqs.len();
            for cpu in 0..cpus {
                let ticks = self.world.state().rqs[cpu].next_tick <= due;
                let busy = self.world.state().rqs[cpu].curr.is_some();
                if ticks && busy {
                    self.world.tick(cpu);
                }
            }
            if self.next_check <= due {
                self.check(due);
            }
            self.world.settle();
            if self.world.state().failure.is_some() {
                break;
            }
        }
        let mut state = self.world.state();
        state.now = state.now.max(now);
    }

    /// Ends the simulation if a thread has waited for too long, as the kernel's watchdog does.
    fn check(&mut self, now: u64) {
        self.next_check = now + self.timeout_ns / 2;
        let mut state = self.world.state();
        let limit = self.timeout_ns;
        let waits = |t: &ScxThread| {
            matches!(
                t.place,
                TaskPlace::Held | TaskPlace::Local(_) | TaskPlace::Queue(_)
            )
        };
        let forgotten = state
            .threads
            .iter()
            .position(|t| waits(t) && now.saturating_sub(t.waiting_since) > limit);
        if let Some(row) = forgotten {
            let why = format!(
                "thread {row} is runnable and has not run for {} ms",
                limit / 1_000_000
            );
            state.fail(why);
        }
    }

    /// Fills the task of a new thread.
    fn describe(&mut self, thread: ThreadId, process: Option<u32>, nice: i8, now: u64) {
        let pid = FIRST_PID + thread.0 as i32;
        let row = process.unwrap_or(thread.0) as usize;
        while self.processes.len() <= row {
            self.processes.push((Box::new(0), 0));
        }
        let (space, leader) = &mut self.processes[row];
        if *leader == 0 {
            *leader = pid;
        }
        let (space, leader) = (ptr::from_mut(space.as_mut()).cast(), *leader);
        let mut state = self.world.state();
        let first = state.thread((leader - FIRST_PID) as u32).task;
        let task_at = state.thread(thread.0).task;
        // SAFETY: the borrow ends with this function; the scheduler does not run meanwhile.
        let task = unsafe { state.task(thread.0) };
        task.pid = pid;
        task.tgid = leader;
        task.group_leader = if leader == pid { task_at } else { first };
        (task.parent, task.real_parent) = (self.init, self.init);
        task.mm = space;
        task.static_prio = 120 + i32::from(nice);
        (task.prio, task.normal_prio) = (task.static_prio, task.static_prio);
        (task.start_time, task.start_boottime) = (now, now);
        task.scx.weight = ext_weight(weight_of_nice(nice));
        task.se.load_weight = u64::from(weight_of_nice(nice)) << 10;
        task.scx.slice = flags::SLICE_DEFAULT;
        (task.scx.sticky_cpu, task.scx.holding_cpu) = (-1, -1);
        for (to, from) in task.comm.iter_mut().zip(format!("program{row}").bytes()) {
            *to = from as c_char;
        }
    }

    /// Tells the scheduler of a new thread (`init_task`, `enable`).
    fn introduce(&self, t: u32, cpu: usize) {
        let task = self.world.task(t);
        let mut args = InitTaskArgs {
            fork: true,
            cgroup: self.world.root,
        };
        if let Some(f) = self.world.ops().init_task {
            // SAFETY: the scheduler's function, with arguments of its declared types.
            let code = self
                .world
                .call(cpu, Inside::Other, |_| unsafe { f(task, &raw mut args) });
            if code != 0 {
                self.world
                    .state()
                    .fail(format!("init_task of thread {t} returned {code}"));
            }
        }
        if let Some(f) = self.world.ops().enable {
            // SAFETY: the scheduler's function, with arguments of its declared types.
            self.world.call(cpu, Inside::Other, |_| unsafe { f(task) });
        }
        self.reweigh(t, cpu);
    }

    fn reweigh(&self, t: u32, cpu: usize) {
        let task = self.world.task(t);
        if let Some(f) = self.world.ops().set_weight {
            // SAFETY: the scheduler's function, with arguments of its declared types.
            self.world.call(cpu, Inside::Other, |_| unsafe {
                f(task, (*task).scx.weight)
            });
        }
    }

    fn assign(&self, thread: ThreadId, allowed: &CpuSet) {
        let mut state = self.world.state();
        let mut mask = CpuMask::EMPTY;
        let n = state.rqs.len();
        let cpus = allowed.iter().map(CpuId::index).filter(|cpu| *cpu < n);
        cpus.for_each(|cpu| mask.set(cpu));
        if mask.is_empty() {
            mask = state.idle.all;
        }
        *state.thread(thread.0).mask = mask;
        let place = &raw const *state.thread(thread.0).mask;
        // SAFETY: the borrow ends here.
        let task = unsafe { state.task(thread.0) };
        task.cpus_ptr = place;
        task.nr_cpus_allowed = mask.count() as i32;
    }

    fn place(&self, thread: ThreadId) -> TaskPlace {
        let state = self.world.state();
        state
            .threads
            .get(thread.index())
            .map_or(TaskPlace::Dead, |t| t.place)
    }

    fn finish(&self) {
        self.world.settle();
    }
}

/// Weight of a thread in sched_ext, 100 for nice 0, from its load weight (`sched_weight_to_cgroup`).
fn ext_weight(load: u32) -> u32 {
    ((load * 100 + 512) / 1024).clamp(1, 10_000)
}

pub fn new_task(layout: Layout) -> *mut TaskStruct {
    // SAFETY: the layout is that of a task, which is not empty.
    let task = unsafe { alloc_zeroed(layout) };
    if task.is_null() {
        handle_alloc_error(layout);
    }
    task.cast()
}

impl Drop for Ext {
    fn drop(&mut self) {
        let mut state = self.world.state();
        let threads: Vec<_> = state.threads.iter().map(|t| t.task).collect();
        let idle = std::mem::take(&mut state.idle_tasks);
        for task in threads.into_iter().chain(idle).chain([self.init]) {
            // SAFETY: each task was allocated with this layout, and the scheduler does not run any more.
            unsafe { std::alloc::dealloc(task.cast(), self.task_layout) };
        }
    }
}

impl Scheduler for Ext {
    fn fork_in(
        &mut self,
        process: Option<u32>,
        thread: ThreadId,
        nice: i8,
        allowed: &CpuSet,
        parent: Option<CpuId>,
        now: Nanos,
    ) -> CpuId {
        self.advance_to(now);
        {
            let mut state = self.world.state();
            while state.threads.len() <= thread.index() {
                state.threads.push(ScxThread {
                    task: new_task(self.task_layout),
                    mask: Box::new(CpuMask::EMPTY),
                    place: TaskPlace::Dead,
                    cpu: 0,
                    direct: None,
                    process: None,
                    waiting_since: 0,
                    waited: 0,
                });
            }
            if let Some(process) = process {
                let number = state.waits.len().max(process as usize + 1);
                state.waits.resize_with(number, Histogram::default);
            }
            let new = state.thread(thread.0);
            new.process = process;
            new.place = TaskPlace::Asleep;
            new.waited = 0;
            // SAFETY: the thread is new, so the scheduler has no pointer to its task.
            unsafe { ptr::write_bytes(new.task.cast::<u8>(), 0, self.task_layout.size()) };
        }
        self.describe(thread, process, nice, now.0);
        self.assign(thread, allowed);
        let parent = parent.map_or(0, CpuId::index);
        self.world.state().set_cpu(thread.0, parent);
        self.introduce(thread.0, parent);
        let selected = self
            .world
            .select(thread.0, parent, parent, flags::WAKE_FORK);
        self.world.enqueue(thread.0, selected, parent);
        self.wake_cpu(thread);
        self.finish();
        self.cpu_of(thread)
    }

    fn wake(&mut self, thread: ThreadId, waker: Option<CpuId>, now: Nanos) -> CpuId {
        self.wake_with(thread, waker, flags::WAKE_TTWU, now)
    }

    fn wake_sync(&mut self, thread: ThreadId, waker: CpuId, now: Nanos) -> CpuId {
        self.wake_with(
            thread,
            Some(waker),
            flags::WAKE_TTWU | flags::WAKE_SYNC,
            now,
        )
    }

    fn block(&mut self, thread: ThreadId, now: Nanos) {
        self.advance_to(now);
        let place = self.place(thread);
        if !matches!(place, TaskPlace::Dead | TaskPlace::Asleep) {
            let cpu = self.cpu_of(thread).index();
            self.world.dequeue(thread.0, flags::DEQ_SLEEP, true);
            if place == TaskPlace::Running {
                self.world.state().resched(cpu);
            }
        }
        self.finish();
    }

    /// Does nothing: `select_task_rq_scx` returns the thread's CPU at `exec`.
    fn exec(&mut self, _: ThreadId, now: Nanos) {
        self.advance_to(now);
    }

    fn exit(&mut self, thread: ThreadId, now: Nanos) {
        self.block(thread, now);
        if self.place(thread) == TaskPlace::Dead {
            return;
        }
        let task = self.world.task(thread.0);
        let cpu = self.cpu_of(thread).index();
        let (disable, exit) = (self.world.ops().disable, self.world.ops().exit_task);
        if let Some(f) = disable {
            // SAFETY: the scheduler's function, with arguments of its declared types.
            self.world.call(cpu, Inside::Other, |_| unsafe { f(task) });
        }
        if let Some(f) = exit {
            let mut cancelled = false;
            // SAFETY: the scheduler's function, with arguments of its declared types.
            self.world.call(cpu, Inside::Other, |_| unsafe {
                f(task, &raw mut cancelled)
            });
        }
        self.world.maps().forget(task.cast());
        self.world.state().thread(thread.0).place = TaskPlace::Dead;
    }

    fn set_affinity(&mut self, thread: ThreadId, allowed: &CpuSet, now: Nanos) {
        self.advance_to(now);
        let place = self.place(thread);
        let cpu = self.cpu_of(thread).index();
        let waits = !matches!(
            place,
            TaskPlace::Dead | TaskPlace::Asleep | TaskPlace::Running
        );
        if waits {
            self.world.dequeue(thread.0, 0, false);
        }
        self.assign(thread, allowed);
        if let Some(f) = self.world.ops().set_cpumask {
            let task = self.world.task(thread.0);
            // SAFETY: the scheduler's function, with arguments of its declared types.
            self.world
                .call(cpu, Inside::Other, |_| unsafe { f(task, (*task).cpus_ptr) });
        }
        let mask = *self.world.state().thread(thread.0).mask;
        let stays = mask.has(cpu);
        if place == TaskPlace::Running && !stays {
            self.world.dequeue(thread.0, 0, false);
            self.world.state().resched(cpu);
        }
        if waits || (place == TaskPlace::Running && !stays) {
            let to = if stays {
                cpu
            } else {
                mask.next_around(cpu).unwrap_or(cpu)
            };
            self.world.state().set_cpu(thread.0, to);
            self.world.enqueue_runnable(thread.0, 0, to);
            self.wake_cpu(thread);
        }
        self.finish();
    }

    fn set_weight(&mut self, thread: ThreadId, weight: u32, now: Nanos) {
        self.advance_to(now);
        let cpu = self.cpu_of(thread).index();
        {
            let mut state = self.world.state();
            // SAFETY: the borrow ends here.
            unsafe { state.task(thread.0) }.scx.weight = ext_weight(weight);
        }
        self.reweigh(thread.0, cpu);
        self.finish();
    }

    fn set_clock(&mut self, _: CpuId, _: f64, _: Nanos) {}

    fn next_event(&self) -> Nanos {
        let state = self.world.state();
        let ticks = state
            .rqs
            .iter()
            .filter(|rq| rq.curr.is_some())
            .map(|rq| rq.next_tick);
        let timer = state.due.keys().next().map(|(at, _)| *at);
        let next = ticks.chain(timer).chain([self.next_check]).min();
        Nanos(next.unwrap_or(u64::MAX))
    }

    fn advance(&mut self, now: Nanos) {
        self.advance_to(now);
        self.finish();
    }

    fn take_switches(&mut self, into: &mut Vec<ContextSwitch>) {
        into.append(&mut self.world.state().switches);
    }

    fn running(&self, cpu: CpuId) -> Option<ThreadId> {
        self.world.state().rqs[cpu.index()].curr.map(ThreadId)
    }

    fn cpu_of(&self, thread: ThreadId) -> CpuId {
        CpuId::from_index(self.world.state().thread(thread.0).cpu)
    }

    fn is_runnable(&self, thread: ThreadId) -> bool {
        !matches!(self.place(thread), TaskPlace::Dead | TaskPlace::Asleep)
    }

    fn run_time(&self, thread: ThreadId) -> Nanos {
        let mut state = self.world.state();
        let now = state.now;
        let running = state.thread(thread.0).place == TaskPlace::Running;
        // SAFETY: the borrow ends here.
        let se = &unsafe { state.task(thread.0) }.se;
        let present = if running {
            now.saturating_sub(se.exec_start)
        } else {
            0
        };
        Nanos(se.sum_exec_runtime + present)
    }

    fn run_delay(&self, thread: ThreadId) -> Nanos {
        let state = self.world.state();
        let thread = &state.threads[thread.index()];
        let waits = matches!(
            thread.place,
            TaskPlace::Held | TaskPlace::Local(_) | TaskPlace::Queue(_)
        );
        let present = if waits {
            state.now.saturating_sub(thread.waiting_since)
        } else {
            0
        };
        Nanos(thread.waited + present)
    }

    fn migrations(&self, thread: ThreadId) -> u64 {
        let mut state = self.world.state();
        // SAFETY: the borrow ends here.
        unsafe { state.task(thread.0) }.se.nr_migrations
    }

    fn waits(&self, process: u32) -> Option<Histogram> {
        self.world.state().waits.get(process as usize).cloned()
    }

    fn cpu_utilisation(&self, cpu: CpuId) -> f64 {
        let state = self.world.state();
        let capacity = f64::from(state.capacity[cpu.index()]);
        state.rqs[cpu.index()].busy(state.now) * capacity
    }

    fn failure(&self) -> Option<String> {
        self.world.state().failure.clone()
    }
}

impl Ext {
    fn wake_with(
        &mut self,
        thread: ThreadId,
        waker: Option<CpuId>,
        wake_flags: u64,
        now: Nanos,
    ) -> CpuId {
        self.advance_to(now);
        if self.place(thread) == TaskPlace::Asleep {
            let prev = self.cpu_of(thread).index();
            let waker = waker.map_or(prev, CpuId::index);
            let selected = self.world.select(thread.0, prev, waker, wake_flags);
            self.world
                .enqueue(thread.0, selected | flags::ENQ_WAKEUP, waker);
            self.wake_cpu(thread);
        }
        self.finish();
        self.cpu_of(thread)
    }

    /// Reschedules the CPU of a thread that has become runnable, if the CPU is idle (`wakeup_preempt`).
    fn wake_cpu(&self, thread: ThreadId) {
        let mut state = self.world.state();
        let cpu = state.thread(thread.0).cpu;
        if state.rqs[cpu].curr.is_none() {
            state.resched(cpu);
        }
    }
}
