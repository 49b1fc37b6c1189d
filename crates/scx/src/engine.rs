//! [`ScxEngine`]: the scheduler behind the two verbs of engines.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use countersteer_core::cpunumbers::CpuNumbers;
use countersteer_core::cpuset::CpuSet;
use countersteer_core::engine::{Applied, Engine, Observation, ThreadEvent, ThreadEventKind, ThreadInfo};
use countersteer_core::placement::Placement;
use countersteer_core::sample::{Counts, Sample};
use countersteer_core::topology::Topology;
use countersteer_core::units::{CoreTypeId, CpuId, Nanos, ProgramId, ThreadId};
use countersteer_host::live::Root;

use crate::ScxError;
use crate::generated::{shared, types};
use crate::kernel::{Kernel, Told};

/// Whom the scheduler schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Only threads that are followed; all others stay with the kernel's own.
    Partial,
    /// Everybody.
    Full,
}

/// How the engine works.
#[derive(Clone, Debug)]
pub struct ScxConfig {
    /// Whom it schedules.
    pub mode: Mode,
    /// Sampling period.
    pub period: Nanos,
    /// Time on a CPU before others get their turn.
    pub slice: Nanos,
    /// CPUs without work take threads of other targets from queues longer than this; never, if absent.
    pub steal_above: Option<u32>,
    /// Tell wakes, sleeps and moves, not only births, execs and ends.
    pub tell_switches: bool,
    /// The kernel ejects the scheduler when a thread that could run has waited so long.
    pub watchdog: Duration,
    /// Fault injection for tests: threads of this target get lost.
    pub lose_target: Option<u32>,
}

impl Default for ScxConfig {
    fn default() -> Self {
        Self {
            mode: Mode::Partial,
            period: Nanos::from_millis(100),
            slice: Nanos::from_millis(5),
            steal_above: None,
            tell_switches: true,
            watchdog: Duration::from_secs(5),
            lose_target: None,
        }
    }
}

/// A thread that is followed.
struct Known {
    program: u32,
    cpu: CpuId,
    runnable: bool,
    nice: i8,
    target: u32,
    /// What its sums were when it was last sampled: time by row.
    times: Vec<u64>,
}

/// The engine inside the kernel.
pub struct ScxEngine {
    topology: Arc<Topology>,
    numbers: CpuNumbers,
    config: ScxConfig,
    kernel: Kernel,
    start: Instant,
    /// The start on the kernel's clock.
    start_ns: u64,
    names: BTreeMap<u32, Arc<str>>,
    threads: BTreeMap<u32, Known>,
    /// CPU sets by target.
    targets: Vec<Arc<CpuSet>>,
    events: Vec<ThreadEvent>,
    samples: Vec<Sample>,
}

fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes to `time`, which outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Gives a thread to the scheduler, or back to the kernel's own.
fn set_class(tid: u32, policy: libc::c_int) {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameters outlive the call. A thread that has ended meanwhile needs nothing.
    unsafe { libc::sched_setscheduler(tid as libc::pid_t, policy, &raw const none) };
}
const SCHED_EXT: libc::c_int = 7;

/// Threads of a process and of its descendants.
fn tasks_below(pid: u32) -> Vec<u32> {
    let numbers = |path: String| -> Vec<u32> {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
    };
    let parent = |pid: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    let parents: Vec<(u32, u32)> = numbers("/proc".into()).into_iter().filter_map(|p| Some((p, parent(p)?))).collect();
    let mut family = vec![pid];
    let mut next = 0;
    while next < family.len() {
        let this = family[next];
        family.extend(parents.iter().filter(|(_, parent)| *parent == this).map(|(child, _)| *child));
        next += 1;
    }
    family.into_iter().filter(|p| *p != std::process::id()).flat_map(|p| numbers(format!("/proc/{p}/task"))).collect()
}

impl ScxEngine {
    /// Loads the scheduler, starts it and follows the roots.
    ///
    /// # Errors
    /// The kernel refuses, or the machine is too big for the scheduler's tables.
    pub fn open(
        topology: Arc<Topology>,
        numbers: CpuNumbers,
        roots: Vec<Root>,
        config: ScxConfig,
    ) -> Result<Self, ScxError> {
        let all = Arc::clone(&topology.groups[0].cpus);
        let os = numbers.os_set(&all);
        let have = os.iter().last().map_or(0, |c| c.index() + 1);
        let fits = |what, have, most: u32| {
            let most = most as usize;
            if have <= most { Ok(()) } else { Err(ScxError::TooBig { what, have, most }) }
        };
        fits("CPUs", have, shared::MAX_CPUS)?;
        fits("core types", topology.core_types.len(), shared::MAX_TYPES)?;
        let mut core_types = vec![0; have];
        for cpu in all.iter() {
            if let Some(os) = numbers.os(cpu) {
                core_types[os.index()] = topology.core_type_of(cpu).0 as u8;
            }
        }
        let mut kernel = Kernel::load(&config, &core_types, &os)?;
        kernel.attach()?;
        let mut engine = Self {
            topology,
            numbers,
            config,
            kernel,
            start: Instant::now(),
            start_ns: now_ns(),
            names: BTreeMap::new(),
            threads: BTreeMap::new(),
            targets: vec![all],
            events: Vec::new(),
            samples: Vec::new(),
        };
        roots.into_iter().try_for_each(|root| engine.admit(root))?;
        Ok(engine)
    }

    /// Follows one more process, with its threads and whatever it starts.
    ///
    /// # Errors
    /// The process has ended, or the scheduler has.
    pub fn admit(&mut self, root: Root) -> Result<(), ScxError> {
        let program = root.program.0;
        self.names.insert(program, root.name);
        let mut done = BTreeSet::new();
        loop {
            // A thread that is born meanwhile belongs to its parent's program if that one was followed already.
            let new: Vec<u32> = tasks_below(root.pid).into_iter().filter(|t| done.insert(*t)).collect();
            if new.is_empty() {
                return if done.is_empty() { Err(ScxError::Gone(root.pid)) } else { Ok(()) };
            }
            let admit = |tid: &u32| types::command {
                tid: *tid,
                kind: shared::COMMAND_ADMIT,
                program,
                ..types::command::default()
            };
            let commands: Vec<_> = new.iter().map(admit).collect();
            let mut known = Vec::new();
            self.kernel.obey(&commands, |c, _| known.extend((c.result == 0).then_some(*c)))?;
            for command in known {
                if self.config.mode == Mode::Partial {
                    set_class(command.tid, SCHED_EXT);
                }
                self.know(command.tid, program, command.cpu);
                self.event(now_ns(), command.tid, ThreadEventKind::New);
            }
        }
    }

    fn know(&mut self, tid: u32, program: u32, cpu: u32) {
        let rows = (shared::MAX_TYPES * shared::MAX_SETS) as usize;
        let cpu = self.own(cpu);
        let new = Known { program, cpu, runnable: true, nice: 0, target: 0, times: vec![0; rows] };
        self.threads.entry(tid).or_insert(new);
    }

    /// When the kernel ends the scheduler it takes leave of all threads first, and only then says why.
    fn rule_out_ejection(&mut self) -> Result<(), ScxError> {
        let enabled = |state: String| state.trim() == "enabled";
        for _ in 0..200 {
            self.kernel.ejected()?;
            if std::fs::read_to_string("/sys/kernel/sched_ext/state").is_ok_and(enabled) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.kernel.ejected()
    }

    fn own(&self, os: u32) -> CpuId {
        self.numbers.own(CpuId(os)).unwrap_or_default()
    }

    fn event(&mut self, at_ns: u64, tid: u32, kind: ThreadEventKind) {
        self.events.push(ThreadEvent { at: Nanos(at_ns.saturating_sub(self.start_ns)), thread: ThreadId(tid), kind });
    }

    /// Takes in what the kernel told.
    fn hear(&mut self, told: &Told) {
        let head = &told.head;
        let kind = match head.kind {
            shared::TOLD_NEW => {
                self.know(head.tid, head.program, 0);
                ThreadEventKind::New
            }
            shared::TOLD_EXEC => ThreadEventKind::Exec,
            shared::TOLD_EXIT => {
                self.threads.remove(&head.tid);
                ThreadEventKind::Exit
            }
            shared::TOLD_WAKE => ThreadEventKind::Wake,
            shared::TOLD_SLEEP => ThreadEventKind::Sleep,
            shared::TOLD_MIGRATE => ThreadEventKind::Migrate { from: self.own(head.from), to: self.own(head.to) },
            _ => {
                if let Some(sum) = &told.sum {
                    let cpu = self.own(head.to);
                    self.sample(head.tid, head.from as usize, sum, cpu, head.at_ns);
                }
                return;
            }
        };
        self.event(head.at_ns, head.tid, kind);
    }

    /// What a sum gained since it was last looked at.
    fn sample(&mut self, tid: u32, row: usize, sum: &types::sum, cpu: CpuId, at_ns: u64) {
        let Some(before) = self.threads.get_mut(&tid).and_then(|k| k.times.get_mut(row)) else { return };
        let gained = sum.time_ns.saturating_sub(std::mem::replace(before, sum.time_ns));
        if gained == 0 {
            return;
        }
        let sets = shared::MAX_SETS as usize;
        self.samples.push(Sample {
            thread: ThreadId(tid),
            cpu,
            core_type: CoreTypeId::from_index(row / sets),
            at: Nanos(at_ns.saturating_sub(self.start_ns)),
            set: (row % sets) as u32,
            enabled: Nanos(gained),
            running: Nanos(gained),
            counts: Counts::default(),
        });
    }

    /// Asks for every thread's sums and whereabouts.
    fn collect(&mut self) -> Result<(), ScxError> {
        let ask = |tid: &u32| types::command { tid: *tid, kind: shared::COMMAND_COLLECT, ..types::command::default() };
        let commands: Vec<_> = self.threads.keys().map(ask).collect();
        let mut answers = Vec::with_capacity(commands.len());
        self.kernel.obey(&commands, |c, l| answers.push((*c, (c.result == 0 && l.changes & 1 == 0).then_some(*l))))?;
        let now = now_ns();
        for (command, ledger) in answers {
            let cpu = self.own(command.cpu);
            let Some(known) = self.threads.get_mut(&command.tid) else { continue };
            if command.result != 0 {
                // Its end was told and lost, or is still on its way.
                continue;
            }
            (known.cpu, known.runnable, known.target) = (cpu, command.runnable != 0, command.old_target);
            known.nice = command.nice.clamp(-20, 19) as i8;
            for (row, sum) in ledger.iter().flat_map(|l| l.sums.iter().enumerate()) {
                self.sample(command.tid, row, sum, cpu, now);
            }
        }
        Ok(())
    }

    /// The target of a set of CPUs, made if there is none.
    fn target(&mut self, cpus: &Arc<CpuSet>) -> Result<u32, ScxError> {
        if let Some(id) = self.targets.iter().position(|known| known == cpus) {
            return Ok(id as u32);
        }
        let (have, most) = (self.targets.len() + 1, shared::MAX_TARGETS as usize);
        if have > most {
            return Err(ScxError::TooBig { what: "distinct CPU sets", have, most });
        }
        let id = self.targets.len() as u32;
        self.kernel.define(id, &self.numbers.os_set(cpus))?;
        self.targets.push(Arc::clone(cpus));
        Ok(id)
    }
}

impl Engine for ScxEngine {
    type Error = ScxError;

    fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    fn observe(&mut self, until: Nanos, early: bool) -> Result<Observation, ScxError> {
        let finished = loop {
            let left = until.since(Nanos(self.start.elapsed().as_nanos() as u64));
            // The scheduler's end comes through no ring: it is looked for now and then.
            let told = self.kernel.listen(Duration::from_nanos(left.0).min(Duration::from_millis(100)));
            told.iter().for_each(|t| self.hear(t));
            self.kernel.ejected()?;
            let finished = self.kernel.counters()?.followed == 0;
            if finished {
                self.rule_out_ejection()?;
            }
            if finished || left == Nanos::ZERO || (early && !self.events.is_empty()) {
                break finished;
            }
        };
        self.collect()?;
        let mut samples = std::mem::take(&mut self.samples);
        samples.sort_by_key(|s| (s.thread, s.at));
        let anywhere = Arc::clone(&self.targets[0]);
        let info = |(tid, k): (&u32, &Known)| ThreadInfo {
            id: ThreadId(*tid),
            program: ProgramId(k.program),
            name: self.names.get(&k.program).cloned().unwrap_or_else(|| "?".into()),
            cpu: k.cpu,
            runnable: k.runnable,
            nice: k.nice,
            allowed: Arc::clone(self.targets.get(k.target as usize).unwrap_or(&anywhere)),
        };
        let threads = self.threads.iter().map(info).collect();
        let mut events = std::mem::take(&mut self.events);
        events.sort_by_key(|e| e.at);
        let at = Nanos(self.start.elapsed().as_nanos() as u64);
        Ok(Observation { at, threads, events, samples, spans: Vec::new(), finished })
    }

    fn apply(&mut self, placement: &Placement) -> Result<Applied, ScxError> {
        self.kernel.ejected()?;
        let mut commands = Vec::with_capacity(placement.threads.len());
        for thread in &placement.threads {
            let target = self.target(&thread.target.cpus(&self.topology))?;
            commands.push(types::command {
                tid: thread.thread.0,
                kind: shared::COMMAND_PLACE,
                target,
                weight: thread.weight.unwrap_or(0),
                ..types::command::default()
            });
        }
        let (mut applied, mut left) = (Applied::default(), BTreeSet::new());
        self.kernel.obey(&commands, |c, _| match c.result {
            0 if c.on_target == 0 => applied.refused += 1,
            0 if c.old_target != c.target => {
                applied.changed += 1;
                left.insert(c.old_target);
            }
            0 => {}
            _ => applied.gone += 1,
        })?;
        left.into_iter().try_for_each(|target| self.kernel.sweep(target))?;
        if let Some(table) = &placement.admission {
            let mut rows = Vec::with_capacity(table.rows.len());
            for (least, group) in &table.rows {
                let cpus = Arc::clone(&self.topology.group(*group).cpus);
                rows.push((*least, self.target(&cpus)?));
            }
            self.kernel.admit_by(shared::METRIC_NONE, &rows)?;
        }
        Ok(applied)
    }
}

impl Drop for ScxEngine {
    fn drop(&mut self) {
        if self.config.mode == Mode::Partial {
            self.threads.keys().for_each(|tid| set_class(*tid, libc::SCHED_OTHER));
        }
    }
}
