//! State of the simulated class of sched_ext: threads, CPUs and dispatch queues.

use std::collections::{BTreeMap, VecDeque};
use std::ptr;

use countersteer_model::latency::Histogram;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ThreadId};
use countersteer_sim::linux::ContextSwitch;
use rand::SeedableRng;
use rand_pcg::Pcg64;

use crate::abi::{CpuMask, TaskStruct, flags};
use crate::idle::Idle;

/// Process ID of thread 0.
pub const FIRST_PID: i32 = 1000;

/// Place of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskPlace {
    #[default]
    Dead,
    Asleep,
    /// On the CPU that the thread's task names.
    Running,
    /// In the local dispatch queue of a CPU.
    Local(usize),
    /// In a dispatch queue of the scheduler, or the global one.
    Queue(u64),
    /// Runnable, and in no dispatch queue: the scheduler keeps it itself.
    Held,
}

/// Dispatch that a scheduler has asked for.
#[derive(Clone, Copy, Debug)]
pub struct Dispatch {
    pub thread: u32,
    pub dsq: u64,
    pub enq_flags: u64,
    pub by_vtime: bool,
}

pub struct ScxThread {
    pub task: *mut TaskStruct,
    pub mask: Box<CpuMask>,
    pub place: TaskPlace,
    pub cpu: usize,
    /// Dispatch from `select_cpu` or `enqueue`.
    pub direct: Option<Dispatch>,
    pub process: Option<u32>,
    pub waiting_since: u64,
    /// Run-queue latency so far in nanoseconds.
    pub waited: u64,
}

/// Run queue of a CPU.
#[derive(Default)]
pub struct Rq {
    pub curr: Option<u32>,
    pub shown: Option<u32>,
    pub local: VecDeque<u32>,
    pub next_tick: u64,
    /// Share of time that the CPU was busy lately, and the time up to which it is counted.
    busy: f64,
    counted: u64,
    /// Clock by which load is counted, and the time at which it was read.
    load_clock: (u64, u64),
}

/// Time in nanoseconds after which a CPU's past counts half, as in the kernel's load tracking.
const HALF_LIFE_NS: f64 = 32e6;

impl Rq {
    /// Returns the share of time that the CPU was busy lately.
    pub fn busy(&self, now: u64) -> f64 {
        let kept = (-(now.saturating_sub(self.counted) as f64) / HALF_LIFE_NS).exp2();
        let present = f64::from(u8::from(self.curr.is_some()));
        self.busy * kept + present * (1.0 - kept)
    }

    /// Sets the thread that runs from now on. `capacity` is the CPU's.
    pub fn set_curr(&mut self, thread: Option<u32>, now: u64, capacity: u32) {
        self.load_clock = (self.load_clock(now, capacity), now);
        (self.busy, self.counted) = (self.busy(now), now);
        self.curr = thread;
    }

    /// Returns the clock by which load is counted (`rq_clock_pelt`): it is slower on a CPU of less capacity that is busy, and
    /// catches up when the CPU is idle. All CPUs run at their highest frequency.
    pub fn load_clock(&self, now: u64, capacity: u32) -> u64 {
        let (clock, at) = self.load_clock;
        if self.curr.is_none() {
            return now;
        }
        clock + now.saturating_sub(at) * u64::from(capacity) / 1024
    }
}

/// Dispatch queue in the order in which its threads run.
#[derive(Default)]
pub struct Dsq {
    threads: VecDeque<(u64, u32)>,
}

impl Dsq {
    pub fn len(&self) -> usize {
        self.threads.len()
    }

    pub fn push(&mut self, thread: u32, first: bool) {
        if first {
            self.threads.push_front((0, thread));
        } else {
            self.threads.push_back((u64::MAX, thread));
        }
    }

    /// Inserts by virtual time, behind all threads of the same time. Times wrap around.
    pub fn insert(&mut self, thread: u32, vtime: u64) {
        let after = |(other, _): &(u64, u32)| vtime.wrapping_sub(*other) as i64 >= 0;
        let at = self.threads.partition_point(after);
        self.threads.insert(at, (vtime, thread));
    }

    pub fn remove(&mut self, thread: u32) {
        self.threads.retain(|(_, other)| *other != thread);
    }

    /// Iterates over the threads, from the last one if `reversed`.
    pub fn iter(&self, reversed: bool) -> Box<dyn Iterator<Item = u32> + '_> {
        let threads = self.threads.iter().map(|(_, thread)| *thread);
        if reversed {
            Box::new(threads.rev())
        } else {
            Box::new(threads)
        }
    }
}

/// Part of the scheduler's code that runs at the moment; it decides what kfuncs may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    Other,
    /// `select_cpu` or `enqueue` of a thread.
    Placing(u32),
    /// `dispatch` of a CPU.
    Dispatching(usize),
}

pub struct BpfTimer {
    pub callback: usize,
    pub due: Option<(u64, u64)>,
}

pub struct SchedState {
    pub now: u64,
    pub this_cpu: usize,
    pub inside: Inside,
    pub threads: Vec<ScxThread>,
    pub rqs: Vec<Rq>,
    pub queues: BTreeMap<u64, Dsq>,
    pub idle: Idle,
    pub buffer: Vec<Dispatch>,
    /// Highest number of dispatches in one call of `dispatch`.
    pub batch: usize,
    /// CPUs to reschedule before the current event ends.
    pub pending: VecDeque<usize>,
    pub timers: BTreeMap<usize, BpfTimer>,
    pub due: BTreeMap<(u64, u64), usize>,
    pub started_timers: u64,
    pub switches: Vec<ContextSwitch>,
    pub waits: Vec<Histogram>,
    pub failure: Option<String>,
    pub capacity: Vec<u32>,
    pub llc: Vec<i32>,
    pub node: Vec<i32>,
    pub tick_ns: u64,
    /// Task of the idle loop of each CPU.
    pub idle_tasks: Vec<*mut TaskStruct>,
    pub rng: Pcg64,
}

impl SchedState {
    pub fn new(topology: &Topology, seed: u64, idle_tasks: Vec<*mut TaskStruct>) -> Self {
        let n = topology.cpus.len();
        Self {
            now: 0,
            this_cpu: 0,
            inside: Inside::Other,
            threads: Vec::new(),
            rqs: (0..n).map(|_| Rq::default()).collect(),
            queues: BTreeMap::from([(flags::DSQ_GLOBAL, Dsq::default())]),
            idle: Idle::new(topology),
            buffer: Vec::new(),
            batch: 32,
            pending: VecDeque::new(),
            timers: BTreeMap::new(),
            due: BTreeMap::new(),
            started_timers: 0,
            switches: Vec::new(),
            waits: Vec::new(),
            failure: None,
            capacity: topology.cpus.iter().map(|cpu| cpu.capacity).collect(),
            llc: (0..n)
                .map(|cpu| topology.llc_of(CpuId::from_index(cpu)).index() as i32)
                .collect(),
            node: topology.cpus.iter().map(|cpu| cpu.memory as i32).collect(),
            tick_ns: 1_000_000_000 / u64::from(topology.hz.max(1)),
            idle_tasks,
            rng: Pcg64::seed_from_u64(seed),
        }
    }

    pub fn thread(&mut self, t: u32) -> &mut ScxThread {
        &mut self.threads[t as usize]
    }

    /// Task of a thread.
    ///
    /// # Safety
    /// No other reference to the task may be in use.
    pub unsafe fn task(&mut self, t: u32) -> &mut TaskStruct {
        // SAFETY: tasks live as long as the state; the caller's contract.
        unsafe { &mut *self.threads[t as usize].task }
    }

    /// Thread of a task; `None` for idle tasks and foreign pointers.
    pub fn of_task(&self, task: *const TaskStruct) -> Option<u32> {
        if task.is_null() {
            return None;
        }
        // SAFETY: schedulers only have pointers to tasks that the simulator gave them.
        let row = unsafe { (*task).pid } - FIRST_PID;
        let thread = self.threads.get(usize::try_from(row).ok()?)?;
        let known = ptr::eq(thread.task, task) && thread.place != TaskPlace::Dead;
        known.then_some(row as u32)
    }

    /// Ends the simulation with the first of all errors.
    pub fn fail(&mut self, why: impl Into<String>) {
        self.failure.get_or_insert(why.into());
    }

    pub fn resched(&mut self, cpu: usize) {
        if !self.pending.contains(&cpu) {
            self.pending.push_back(cpu);
        }
    }

    /// Charges the running thread of a CPU for the time since the last charge (`update_curr_scx`).
    pub fn update_curr(&mut self, cpu: usize) {
        let now = self.now;
        let Some(t) = self.rqs[cpu].curr else { return };
        // SAFETY: the borrow ends here.
        let task = unsafe { self.task(t) };
        let delta = now.saturating_sub(task.se.exec_start);
        task.se.exec_start = now.max(task.se.exec_start);
        task.se.sum_exec_runtime += delta;
        if task.scx.slice != flags::SLICE_INFINITE {
            task.scx.slice -= delta.min(task.scx.slice);
        }
    }

    /// Puts a thread into the local queue of a CPU and wakes the CPU if needed (`local_dsq_post_enq`).
    pub fn push_local(&mut self, t: u32, cpu: usize, enq_flags: u64) {
        if !self.thread(t).mask.has(cpu) {
            let name = self.name(t);
            return self.fail(format!(
                "it dispatched {name} to CPU {cpu}, which the thread may not use"
            ));
        }
        self.take_out(t);
        self.thread(t).place = TaskPlace::Local(cpu);
        self.set_cpu(t, cpu);
        let rq = &mut self.rqs[cpu];
        if enq_flags & (flags::ENQ_HEAD | flags::ENQ_PREEMPT) != 0 {
            rq.local.push_front(t);
        } else {
            rq.local.push_back(t);
        }
        let curr = rq.curr;
        if let (Some(curr), true) = (curr, enq_flags & flags::ENQ_PREEMPT != 0) {
            // SAFETY: the borrow ends here.
            unsafe { self.task(curr) }.scx.slice = 0;
            self.resched(cpu);
        }
        if curr.is_none() {
            self.resched(cpu);
        }
    }

    /// Executes a dispatch (`dispatch_enqueue`). `here` is the CPU that `SCX_DSQ_LOCAL` stands for.
    pub fn dispatch(&mut self, d: Dispatch, here: usize) {
        if d.dsq == flags::DSQ_LOCAL {
            return self.push_local(d.thread, here, d.enq_flags);
        }
        if d.dsq & flags::DSQ_LOCAL_ON == flags::DSQ_LOCAL_ON {
            let cpu = d.dsq as u32 as usize;
            if cpu >= self.rqs.len() {
                return self.fail(format!("it dispatched to CPU {cpu}, which does not exist"));
            }
            return self.push_local(d.thread, cpu, d.enq_flags);
        }
        self.take_out(d.thread);
        // SAFETY: the borrow ends here.
        let vtime = unsafe { self.task(d.thread) }.scx.dsq_vtime;
        let first = d.enq_flags & (flags::ENQ_HEAD | flags::ENQ_PREEMPT) != 0;
        let Some(queue) = self.queues.get_mut(&d.dsq) else {
            return self.fail(format!(
                "it dispatched to queue {:#x}, which it has not created",
                d.dsq
            ));
        };
        if d.by_vtime {
            queue.insert(d.thread, vtime);
        } else {
            queue.push(d.thread, first);
        }
        self.thread(d.thread).place = TaskPlace::Queue(d.dsq);
    }

    /// Removes a waiting thread from its queue.
    pub fn take_out(&mut self, t: u32) {
        match self.thread(t).place {
            TaskPlace::Local(cpu) => self.rqs[cpu].local.retain(|other| *other != t),
            TaskPlace::Queue(id) => {
                if let Some(queue) = self.queues.get_mut(&id) {
                    queue.remove(t);
                }
            }
            _ => {}
        }
        if self.thread(t).place != TaskPlace::Running {
            self.thread(t).place = TaskPlace::Held;
        }
    }

    /// Moves the first thread of a queue that may run on a CPU to the CPU's local queue (`consume_dispatch_q`).
    pub fn consume(&mut self, dsq: u64, cpu: usize) -> bool {
        let threads = &self.threads;
        let fits = |t: &u32| threads[*t as usize].mask.has(cpu);
        let Some(queue) = self.queues.get(&dsq) else {
            self.fail(format!(
                "it takes from queue {dsq:#x}, which it has not created"
            ));
            return false;
        };
        let first = queue.iter(false).find(fits);
        if let Some(t) = first {
            self.push_local(t, cpu, 0);
        }
        first.is_some()
    }

    pub fn set_cpu(&mut self, t: u32, cpu: usize) {
        self.thread(t).cpu = cpu;
        // SAFETY: the borrow ends here.
        let task = unsafe { self.task(t) };
        if task.thread_cpu != cpu as u32 {
            task.se.nr_migrations += 1;
        }
        task.thread_cpu = cpu as u32;
    }

    fn name(&self, t: u32) -> String {
        format!("thread {t}")
    }

    /// Sets the time of a busy CPU's next tick; the ticks of all CPUs coincide.
    pub fn set_tick(&mut self, cpu: usize) {
        self.rqs[cpu].next_tick = (self.now / self.tick_ns + 1) * self.tick_ns;
    }

    /// Records a context switch if the thread of a CPU differs from the last one that was reported.
    pub fn show(&mut self, cpu: usize, next: Option<u32>) {
        let prev = std::mem::replace(&mut self.rqs[cpu].shown, next);
        if prev != next {
            self.switches.push(ContextSwitch {
                cpu: CpuId::from_index(cpu),
                prev: prev.map(ThreadId),
                next: next.map(ThreadId),
                at: Nanos(self.now),
            });
        }
    }
}
