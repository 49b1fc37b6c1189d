//! Sets of tasks under the model: the counterpart of `vm/sets.c` under a kernel.
//!
//! Input: a set, a machine, and a configuration of the model. Output: the output of `vm/sets.c` for each task. System calls and
//! late timers of the emulated machine add to each job. Their times are drawn around the means of the kernel's runs, because
//! tasks with exact periods would stay synchronised.

use std::collections::{BTreeMap, VecDeque};

use countersteer_model::cpuset::CpuSet;
use countersteer_model::machine::Machine;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ThreadId};
use countersteer_sim::linux::ContextSwitch;
use countersteer_sim::scheduler::Scheduler;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::sets::{Emulated, Groups, How, Outcome, Plug, Task};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// CPU time of the steps before the start, as measured in the virtual machine. The first two are the creation of a process and
/// its work before its first thread. The others are the creation of another thread and its work before it waits for the others.
const FORK: u64 = 1_000 * US;
const BEGIN: u64 = 900 * US;
const CLONE: u64 = 400 * US;
const PREPARE: u64 = 100 * US;
/// Time from the readiness of the last task to the start.
const PAUSE: u64 = 20 * MS;
/// Length of the kernel's runs.
const LENGTH: u64 = 1_500 * MS;

/// Action of a thread after it received the CPU time of its present step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The program creates the next process; then it waits for all to exit.
    Fork,
    /// The first thread of a process creates the next of its tasks; then it waits for all to exit.
    Clone,
    /// A task is ready and waits for the start.
    Prepare,
    /// The last ready task has waited for [`PAUSE`] and starts all.
    Start,
    Work,
    /// System calls of a job.
    Call,
    /// Sleeps, or waits for another task to start it.
    Wait,
    Done,
}

struct Thread {
    step: Step,
    /// CPU time until the end of the step.
    left: u64,
    wakes: Option<u64>,
    begin: u64,
    /// Number of starts by another task, and number of starts handled.
    sent: u64,
    seen: u64,
    at_begin: Totals,
    last: Totals,
    waits: Vec<u64>,
    on_cpu: Vec<u64>,
    moved: bool,
}

/// Values in schedstat of a thread.
#[derive(Clone, Copy, Default)]
struct Totals {
    ran: u64,
    waited: u64,
    picked: u64,
    migrations: u64,
}

struct World<'a> {
    scheduler: Box<dyn Scheduler>,
    switches: Vec<ContextSwitch>,
    tasks: &'a [Task],
    threads: Vec<Thread>,
    /// Tasks that each process still has to create, and processes that the program still has to create.
    unborn: Vec<VecDeque<usize>>,
    unforked: VecDeque<usize>,
    ready: usize,
    picked: Vec<u64>,
    now: u64,
    emulated: Vec<Emulated>,
    topology: &'a Topology,
    /// CPUs that go offline and online, with times from the start on.
    plugs: VecDeque<Plug>,
    /// Time of the start.
    started: Option<u64>,
    chance: Pcg64,
}

/// Groups of CPUs of a machine, equal in size: its last-level caches, or its core types, fast ones first.
pub fn groups(name: &str) -> Groups {
    match name {
        "4" | "16" => Groups::Caches(1),
        "4-asym" | "8-clusters" | "8-clusters-equal" => Groups::CoreTypes,
        _ => Groups::Caches(2),
    }
}

/// Machine as a virtual machine has it: `8` are eight CPUs with two last-level caches, `8-smt` also has two CPUs per core, and `4`
/// are four CPUs with one cache. `4-asym` is an Arm machine like `4` whose last two CPUs have a smaller capacity. Of `8-clusters`, the last
/// four CPUs have a smaller capacity and form a cluster; of `8-clusters-equal`, all have one capacity. `16` is like `4`, with 16 CPUs.
pub fn machine(name: &str) -> Topology {
    let smt = if name == "8-smt" { 2 } else { 1 };
    let (last, shared) = match name {
        "4" | "4-asym" => (3, &["0-3"][..]),
        "16" => (15, &["0-15"][..]),
        _ => (7, &["0-3", "4-7"][..]),
    };
    match name {
        "4-asym" => return unequal([1024, 446], 2, ""),
        "8-clusters" => return unequal([1024, 446], 4, CLUSTER),
        "8-clusters-equal" => return unequal([1024, 1024], 4, CLUSTER),
        _ => {}
    }
    let mut text = format!(
        "schema = \"countersteer.machine/1\"\nname = \"two-caches\"\ntitle = \"two caches\"\nsource = \"made up\"\nlinux = \"symmetric\"\n
        [[core_type]]\nname = \"core\"\ndispatch_width = 4\nwindow = 128\nsmt = {smt}\nfreq_ghz = 3.0\ncapacity = 1024
        branch_penalty_cycles = 15\nl1d = {{ size_kib = 32, ways = 8, latency_cycles = 4 }}
        l2 = {{ size_kib = 512, ways = 8, latency_cycles = 14 }}
        power = {{ idle_w = 0.1, active_w = 1.0, instruction_nj = 0.3 }}\n
        [[cores]]\ntype = \"core\"\ncpus = \"0-{last}\"\n
        [[memory]]\ncpus = \"0-{last}\"\nlatency_ns = 80\nbandwidth_gb_s = 40\n"
    );
    for cpus in shared {
        text += &format!(
            "[[cache]]\nlevel = 3\ncpus = \"{cpus}\"\nsize_kib = 16384\nways = 16\nlatency_ns = 12\n"
        );
    }
    Topology::new(&Machine::parse("two-caches.toml", &text).unwrap())
}

/// Cluster of the last four of eight CPUs.
const CLUSTER: &str =
    "[[cache]]\nlevel = 2\ncpus = \"4-7\"\nsize_kib = 2048\nways = 16\nlatency_ns = 5\n";

/// CPUs that execute equally fast, as the virtual machine's do. The kernel sees two capacities, each of `each` CPUs.
fn unequal(capacities: [u32; 2], each: u32, caches: &str) -> Topology {
    let core_type = |name: &str, capacity: u32| {
        format!(
            "[[core_type]]\nname = \"{name}\"\ndispatch_width = 4\nwindow = 128\nfreq_ghz = 3.0\ncapacity = {capacity}
            branch_penalty_cycles = 15\nl1d = {{ size_kib = 32, ways = 8, latency_cycles = 4 }}
            l2 = {{ size_kib = 512, ways = 8, latency_cycles = 14 }}
            power = {{ idle_w = 0.1, active_w = 1.0, instruction_nj = 0.3 }}\n"
        )
    };
    let linux = if capacities[0] == capacities[1] {
        "symmetric"
    } else {
        "capacity"
    };
    let (second, last) = (each, 2 * each - 1);
    let text = format!(
        "schema = \"countersteer.machine/1\"\nname = \"unequal\"\ntitle = \"unequal\"\nsource = \"made up\"\nlinux = \"{linux}\"\n
        {}{}[[cores]]\ntype = \"big\"\ncpus = \"0-{}\"\n[[cores]]\ntype = \"little\"\ncpus = \"{second}-{last}\"\n
        {caches}[[cache]]\nlevel = 3\ncpus = \"0-{last}\"\nsize_kib = 16384\nways = 16\nlatency_ns = 12
        [[memory]]\ncpus = \"0-{last}\"\nlatency_ns = 80\nbandwidth_gb_s = 40\n",
        core_type("big", capacities[0]),
        core_type("little", capacities[1]),
        each - 1
    );
    Topology::new(&Machine::parse("unequal.toml", &text).unwrap())
}

/// Runs the tasks of a set for as long as under the kernel.
///
/// `emulated` is the overhead of the emulated machine per job, by role; `seed` draws it.
pub fn run(
    topology: &Topology,
    (scheduler, seed): (Box<dyn Scheduler>, u64),
    (tasks, plugs): (&[Task], Vec<Plug>),
    emulated: &BTreeMap<String, Emulated>,
) -> Vec<Outcome> {
    let mut processes: Vec<&str> = Vec::new();
    for task in tasks {
        if !processes.contains(&task.process.as_str()) {
            processes.push(&task.process);
        }
    }
    let of = |process: &str| -> VecDeque<usize> {
        let rows = 0..tasks.len();
        rows.filter(|t| tasks[*t].process == process).collect()
    };
    let cpus = topology.cpus.len();
    let total = tasks.len() + processes.len() + 1;
    let mut world = World {
        scheduler,
        switches: Vec::new(),
        tasks,
        threads: (0..total).map(|_| Thread::new(cpus)).collect(),
        unborn: processes.iter().map(|p| of(p)).collect(),
        unforked: (0..processes.len()).collect(),
        ready: 0,
        picked: vec![0; total],
        now: 0,
        emulated: tasks.iter().map(|t| emulated[&t.role]).collect(),
        topology,
        plugs: plugs.into(),
        started: None,
        chance: Pcg64::seed_from_u64(seed),
    };
    world.make(total - 1, processes.len(), CpuId(0), Step::Fork, FORK);
    world.live();
    world.outcomes()
}

impl Thread {
    fn new(cpus: usize) -> Self {
        Self {
            step: Step::Done,
            left: 0,
            wakes: None,
            begin: 0,
            sent: 0,
            seen: 0,
            at_begin: Totals::default(),
            last: Totals::default(),
            waits: Vec::new(),
            on_cpu: vec![0; cpus],
            moved: false,
        }
    }
}

fn id(row: usize) -> ThreadId {
    ThreadId::from_index(row)
}

impl World<'_> {
    fn make(&mut self, row: usize, process: usize, parent: CpuId, step: Step, left: u64) {
        (self.threads[row].step, self.threads[row].left) = (step, left);
        let nice = self.tasks.get(row).map_or(0, |t| t.nice);
        let process = Some(process as u32);
        let all = CpuSet::default();
        self.scheduler
            .fork_in(process, id(row), nice, &all, Some(parent), Nanos(self.now));
        self.note_switches();
    }

    /// Draws a time with this mean in nanoseconds; at least 1.
    fn around(&mut self, mean_us: f64) -> u64 {
        1 + (mean_us * 2e3 * self.chance.random::<f64>()) as u64
    }

    fn note_switches(&mut self) {
        self.scheduler.take_switches(&mut self.switches);
        for switch in self.switches.drain(..) {
            if let Some(next) = switch.next {
                self.picked[next.index()] += 1;
            }
        }
    }

    fn totals(&self, row: usize) -> Totals {
        Totals {
            ran: self.scheduler.run_time(id(row)).0,
            waited: self.scheduler.run_delay(id(row)).0,
            picked: self.picked[row],
            migrations: self.scheduler.migrations(id(row)),
        }
    }

    /// Runs until there are no more events.
    fn live(&mut self) {
        let cpus = self.threads[0].on_cpu.len();
        loop {
            let running: Vec<(usize, usize)> = (0..cpus)
                .filter_map(|c| Some((c, self.scheduler.running(CpuId(c as u32))?.index())))
                .collect();
            let ends = running.iter().map(|(_, t)| self.threads[*t].left);
            let over = ends.min().map_or(u64::MAX, |left| self.now + left);
            let wakes = self.threads.iter().filter_map(|t| t.wakes).min();
            let next = over.min(wakes.unwrap_or(u64::MAX));
            if next == u64::MAX {
                return;
            }
            let next = next
                .min(self.scheduler.next_event().0)
                .min(self.next_plug());
            for (cpu, row) in &running {
                self.threads[*row].left -= next - self.now;
                if matches!(self.threads[*row].step, Step::Work) {
                    self.threads[*row].on_cpu[*cpu] += next - self.now;
                }
            }
            self.now = next;
            self.scheduler.advance(Nanos(next));
            self.note_switches();
            self.plug();
            for (cpu, row) in running {
                let still = self.scheduler.running(CpuId(cpu as u32)) == Some(id(row));
                if still && self.threads[row].left == 0 {
                    self.finish_step(row, CpuId(cpu as u32));
                    self.note_switches();
                }
            }
            for row in 0..self.threads.len() {
                if self.threads[row].wakes.take_if(|at| *at <= next).is_some() {
                    self.scheduler.wake(id(row), None, Nanos(next));
                    self.note_switches();
                }
            }
        }
    }

    /// Time of the next CPU that goes offline or online.
    fn next_plug(&self) -> u64 {
        let start = self.started.zip(self.plugs.front());
        start.map_or(u64::MAX, |(start, plug)| start + plug.at_ms * MS)
    }

    fn plug(&mut self) {
        while self.next_plug() <= self.now
            && let Some(plug) = self.plugs.pop_front()
        {
            self.scheduler
                .set_online(self.topology, plug.cpu, plug.online, Nanos(self.now));
            self.note_switches();
        }
    }

    fn sleep(&mut self, row: usize, until: Option<u64>) {
        self.threads[row].wakes = until;
        self.scheduler.block(id(row), Nanos(self.now));
    }

    fn finish_step(&mut self, row: usize, cpu: CpuId) {
        match self.threads[row].step {
            Step::Fork => match self.unforked.pop_front() {
                Some(process) => {
                    self.make(self.tasks.len() + process, process, cpu, Step::Clone, BEGIN);
                    self.threads[row].left = FORK;
                }
                None => self.retire(row),
            },
            Step::Clone => {
                let process = row - self.tasks.len();
                match self.unborn[process].pop_front() {
                    Some(task) => {
                        self.make(task, process, cpu, Step::Prepare, PREPARE);
                        self.threads[row].left = CLONE;
                    }
                    None => self.retire(row),
                }
            }
            Step::Prepare => {
                self.ready += 1;
                if let Some(mask) = &self.tasks[row].mask {
                    self.scheduler.set_affinity(id(row), mask, Nanos(self.now));
                }
                let last = self.ready == self.tasks.len();
                self.threads[row].step = if last { Step::Start } else { Step::Wait };
                self.threads[row].left = 10 * US;
                self.sleep(row, last.then_some(self.now + PAUSE));
            }
            Step::Start => {
                self.started = Some(self.now);
                for other in (0..self.tasks.len()).filter(|o| *o != row) {
                    self.scheduler.wake(id(other), Some(cpu), Nanos(self.now));
                    self.begin(other);
                }
                self.begin(row);
                self.loop_again(row);
            }
            Step::Wait => self.loop_again(row),
            Step::Work => {
                self.threads[row].step = Step::Call;
                self.threads[row].left = self.around(self.emulated[row].calls_us);
            }
            Step::Call => self.finish_work(row, cpu),
            Step::Done => {}
        }
    }

    fn retire(&mut self, row: usize) {
        self.threads[row].step = Step::Done;
        self.sleep(row, None);
    }

    fn begin(&mut self, row: usize) {
        let totals = self.totals(row);
        let thread = &mut self.threads[row];
        thread.begin = self.now;
        (thread.at_begin, thread.last) = (totals, totals);
        (thread.step, thread.left) = (Step::Wait, 10 * US);
    }

    /// Head of a task's loop.
    fn loop_again(&mut self, row: usize) {
        let task = &self.tasks[row];
        let thread = &mut self.threads[row];
        if self.now >= thread.begin + LENGTH {
            return self.end(row);
        }
        if task.from.is_some() && thread.sent == thread.seen {
            (thread.step, thread.left) = (Step::Wait, 1);
            return self.sleep(row, None);
        }
        thread.seen = match task.how {
            How::Pipe => thread.seen + u64::from(task.from.is_some()),
            How::Futex => thread.sent,
        };
        (thread.step, thread.left) = (Step::Work, task.work_us * US);
        if task.sleep_us == 0 {
            // The task checks the time meanwhile; the wall clock is ahead of the CPU clock.
            let left = thread.begin + LENGTH - self.now;
            thread.left = thread.left.min(left);
        }
    }

    fn finish_work(&mut self, row: usize, cpu: CpuId) {
        let totals = self.totals(row);
        let thread = &mut self.threads[row];
        let picked = totals.picked - thread.last.picked;
        let waited = totals.waited - thread.last.waited;
        thread.waits.extend(waited.checked_div(picked));
        thread.last = totals;
        let task = &self.tasks[row];
        if let Some((after_ms, mask)) = &task.later
            && !self.threads[row].moved
            && self.now > self.threads[row].begin + after_ms * MS
        {
            self.threads[row].moved = true;
            self.scheduler.set_affinity(id(row), mask, Nanos(self.now));
        }
        self.start_others(row, cpu);
        let asleep = task.sleep_us > 0;
        if asleep {
            (self.threads[row].step, self.threads[row].left) = (Step::Wait, 5 * US);
            let late = self.around(self.emulated[row].late_us);
            self.sleep(row, Some(self.now + task.sleep_us * US + late));
        } else {
            self.loop_again(row);
        }
    }

    fn start_others(&mut self, row: usize, cpu: CpuId) {
        let name = &self.tasks[row].name;
        for other in 0..self.tasks.len() {
            if self.tasks[other].from.as_ref() != Some(name) {
                continue;
            }
            self.threads[other].sent += 1;
            if self.threads[other].step != Step::Wait || self.threads[other].wakes.is_some() {
                continue;
            }
            match self.tasks[other].how {
                How::Pipe => self.scheduler.wake_sync(id(other), cpu, Nanos(self.now)),
                How::Futex => self.scheduler.wake(id(other), Some(cpu), Nanos(self.now)),
            };
        }
    }

    fn end(&mut self, row: usize) {
        self.threads[row].last = self.totals(row);
        self.threads[row].step = Step::Done;
        // The tasks that it would have started end as well.
        let cpu = self.scheduler.cpu_of(id(row));
        self.sleep(row, None);
        self.start_others(row, cpu);
    }

    fn outcomes(&mut self) -> Vec<Outcome> {
        let outcome = |(row, thread): (usize, &mut Thread)| {
            thread.waits.sort_unstable();
            Outcome {
                role: self.tasks[row].role.clone(),
                process: self.tasks[row].process.clone(),
                share: (thread.last.ran - thread.at_begin.ran) as f64 / LENGTH as f64,
                picked: (thread.last.picked - thread.at_begin.picked) as f64,
                waited_us: (thread.last.waited - thread.at_begin.waited) as f64 * 1e-3,
                migrations: (thread.last.migrations - thread.at_begin.migrations) as f64,
                wait_ns: thread
                    .waits
                    .get(thread.waits.len() / 2)
                    .map_or(0.0, |ns| *ns as f64),
                on_cpu: thread.on_cpu.iter().map(|ns| *ns as f64 * 1e-3).collect(),
            }
        };
        let threads = self.threads.iter_mut().take(self.tasks.len());
        threads.enumerate().map(outcome).collect()
    }
}
