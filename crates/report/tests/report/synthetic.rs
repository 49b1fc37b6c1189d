//! Synthetic engine that is plausible enough to fill records for tests and for the inspection of reports.
//!
//! Threads have a speed on the fastest and on the slowest cores and a demand for cache. Each CPU switches to another thread
//! every few milliseconds, and from time to time the "kernel" moves a thread without a reason. None of this is a model of real
//! hardware.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, LazyLock, Mutex};

use countersteer_model::cpuset::CpuSet;
use countersteer_model::driver::{DriverConfig, drive};
use countersteer_model::engine::{
    Applied, Engine, Observation, Span, ThreadEvent, ThreadEventKind, ThreadInfo, Watch,
};
use countersteer_model::machine::Machine;
use countersteer_model::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer_model::policy::{Needs, Policy, PolicyRng, View};
use countersteer_model::sample::{Event, Sample, Samples};
use countersteer_model::score::{Outcome, ProgramOutcome};
use countersteer_model::topology::{GroupBy, Topology};
use countersteer_model::units::{CpuId, Nanos, ProgramId, ThreadId};
use countersteer_report::record::{
    Collector, Detail, Manifest, ReadingRow, Record, ThreadRow, VirtualRow,
};
use rand::{RngExt, SeedableRng};

/// Name, instructions per nanosecond on fast and slow cores, footprint in MiB, giga-instructions of a run.
type Kind = (&'static str, f64, f64, f64, f64);

pub const KINDS: [Kind; 10] = [
    ("519.lbm_r", 9.1, 5.2, 24.0, 60.0),
    ("505.mcf_r", 3.3, 2.1, 14.0, 20.0),
    ("523.xalancbmk_r", 11.4, 5.0, 4.0, 70.0),
    ("531.deepsjeng_r", 9.2, 5.4, 1.0, 60.0),
    ("538.imagick_r", 17.3, 6.4, 0.3, 120.0),
    ("541.leela_r", 7.4, 4.9, 0.4, 50.0),
    ("548.exchange2_r", 16.1, 7.6, 0.1, 110.0),
    ("554.roms_r", 10.5, 4.2, 18.0, 60.0),
    ("525.x264_r", 17.9, 7.1, 1.5, 120.0),
    ("557.xz_r", 5.5, 3.5, 8.0, 35.0),
];

const QUANTUM: u64 = 4_000_000;

struct Thread {
    kind: Kind,
    cpu: CpuId,
    allowed: Arc<CpuSet>,
    done: f64,
    started_ns: u64,
    completions_s: Vec<f64>,
    instructions: f64,
    cycles: f64,
    occupancy: f64,
    /// (instructions, cycles, running) since the last sample.
    sampled: (f64, f64, u64),
}

/// Synthetic engine.
pub struct Room {
    topology: Arc<Topology>,
    threads: Vec<Thread>,
    queues: BTreeMap<CpuId, VecDeque<usize>>,
    now: u64,
    events: Vec<ThreadEvent>,
    spans: Vec<Span>,
    migrations: u64,
    rng: PolicyRng,
}

impl Room {
    pub fn new(topology: Arc<Topology>, programs: usize, seed: u64) -> Self {
        let everywhere = Arc::clone(&topology.groups[0].cpus);
        let mut rng = PolicyRng::seed_from_u64(seed);
        let cpus = topology.cpus.len();
        let mut room = Self {
            threads: Vec::new(),
            queues: topology
                .cpus
                .iter()
                .map(|c| (c.id, VecDeque::new()))
                .collect(),
            now: 0,
            events: Vec::new(),
            spans: Vec::new(),
            migrations: 0,
            rng: rng.clone(),
            topology,
        };
        let offset = rng.random_range(0..cpus);
        for i in 0..programs {
            let cpu = CpuId(((i * 5 + offset) % cpus) as u32);
            room.queues.get_mut(&cpu).unwrap().push_back(i);
            room.events.push(ThreadEvent {
                at: Nanos(0),
                thread: ThreadId(i as u32),
                kind: ThreadEventKind::New,
            });
            room.threads.push(Thread {
                kind: KINDS[i % KINDS.len()],
                cpu,
                allowed: Arc::clone(&everywhere),
                done: 0.0,
                started_ns: 0,
                completions_s: Vec::new(),
                instructions: 0.0,
                cycles: 0.0,
                occupancy: 0.0,
                sampled: (0.0, 0.0, 0),
            });
        }
        room
    }

    pub fn name(&self, i: usize) -> String {
        let name = self.threads[i].kind.0;
        if i < KINDS.len() {
            name.into()
        } else {
            format!("{name}#{}", i / KINDS.len() + 1)
        }
    }

    fn move_thread(&mut self, i: usize, to: CpuId) {
        let from = self.threads[i].cpu;
        if from == to {
            return;
        }
        self.queues.get_mut(&from).unwrap().retain(|t| *t != i);
        self.queues.get_mut(&to).unwrap().push_back(i);
        self.threads[i].cpu = to;
        self.migrations += 1;
        let kind = ThreadEventKind::Migrate { from, to };
        self.events.push(ThreadEvent {
            at: Nanos(self.now),
            thread: ThreadId(i as u32),
            kind,
        });
    }

    fn emptiest(&self, allowed: &CpuSet) -> CpuId {
        allowed
            .iter()
            .min_by_key(|c| (self.queues[c].len(), c.0))
            .unwrap()
    }

    fn balance(&mut self) {
        for i in 0..self.threads.len() {
            let allowed = Arc::clone(&self.threads[i].allowed);
            if !allowed.contains(self.threads[i].cpu) {
                let to = self.emptiest(&allowed);
                self.move_thread(i, to);
            }
            let to = self.emptiest(&allowed);
            let uneven = self.queues[&self.threads[i].cpu].len() > self.queues[&to].len() + 1;
            if uneven || self.rng.random::<f64>() < 0.002 {
                self.move_thread(i, to);
            }
        }
    }

    fn quantum(&mut self) {
        self.balance();
        for (cpu, queue) in &mut self.queues {
            let Some(i) = queue.pop_front() else { continue };
            queue.push_back(i);
            let thread = &mut self.threads[i];
            let row = &self.topology.cpus[cpu.index()];
            let fast = self.topology.extremes().0 == row.core_type;
            let cache = thread.occupancy / (thread.kind.3 * 1048576.0).max(1.0);
            let speed =
                if fast { thread.kind.1 } else { thread.kind.2 } * (0.7 + 0.3 * cache.min(1.0));
            let work = speed * QUANTUM as f64;
            let cycles = self.topology.core_types[row.core_type.index()].freq_ghz * QUANTUM as f64;
            thread.done += work;
            thread.instructions += work;
            thread.cycles += cycles;
            thread.sampled = (
                thread.sampled.0 + work,
                thread.sampled.1 + cycles,
                thread.sampled.2 + QUANTUM,
            );
            let start = Nanos(self.now);
            let end = Nanos(self.now + QUANTUM);
            self.spans.push(Span {
                thread: ThreadId(i as u32),
                cpu: *cpu,
                start,
                end,
            });
        }
        self.share_caches();
        self.now += QUANTUM;
        for (i, thread) in self.threads.iter_mut().enumerate() {
            if thread.done >= thread.kind.4 * 1e9 {
                thread.done = 0.0;
                thread
                    .completions_s
                    .push((self.now - thread.started_ns) as f64 * 1e-9);
                thread.started_ns = self.now;
                let at = Nanos(self.now);
                let thread = ThreadId(i as u32);
                let kind = ThreadEventKind::Exec;
                self.events.push(ThreadEvent { at, thread, kind });
            }
        }
    }

    /// Moves each thread's occupancy gradually towards its share by demand.
    fn share_caches(&mut self) {
        for group in self.topology.groups_by(GroupBy::Llc) {
            let cache =
                &self.topology.caches[self.topology.llc_of(group.cpus.lowest().unwrap()).index()];
            let size = cache.lines * 64.0;
            let hunger: f64 = self
                .threads
                .iter()
                .filter(|t| group.cpus.contains(t.cpu))
                .map(|t| t.kind.3 * 1048576.0)
                .sum();
            for t in self
                .threads
                .iter_mut()
                .filter(|t| group.cpus.contains(t.cpu))
            {
                let goal = t.kind.3 * 1048576.0 * (size / hunger).min(1.0);
                t.occupancy += (goal - t.occupancy) * 0.02;
            }
        }
    }

    pub fn outcome(&self) -> Outcome {
        let programs = self
            .threads
            .iter()
            .enumerate()
            .map(|(i, t)| ProgramOutcome {
                name: self.name(i),
                nice: 0,
                completions_s: t.completions_s.clone(),
                runs: None,
                alone_fast_s: t.kind.4 / t.kind.1,
                alone_slow_s: t.kind.4 / t.kind.2,
                instructions: t.instructions,
                run_instructions: t.kind.4 * 1e9,
                cycles: t.cycles,
                sampled: None,
                run_queue_latency: None,
            });
        let elapsed_s = self.now as f64 * 1e-9;
        let power =
            60.0 + self.threads.iter().map(|t| t.instructions).sum::<f64>() / self.now as f64;
        Outcome {
            programs: programs.collect(),
            elapsed_s,
            energy_j: power * elapsed_s,
            migrations: self.migrations,
            switches: self.now / QUANTUM,
            evicted: Vec::new(),
        }
    }

    fn sample(&mut self, i: usize, into: &mut Samples) {
        let at = Nanos(self.now);
        let core_type = self.topology.core_type_of(self.threads[i].cpu);
        let noise = 1.0 + 0.02 * (self.rng.random::<f64>() - 0.5);
        let t = &mut self.threads[i];
        let (instructions, cycles, running) = std::mem::take(&mut t.sampled);
        if running == 0 {
            return;
        }
        let counts = [
            (Event::Instructions, (instructions * noise).round()),
            (Event::Cycles, cycles),
            (Event::LlcMisses, (instructions * t.kind.3 * 1e-3).round()),
            (Event::LlcOccupancyBytes, t.occupancy.round()),
            (Event::EnergyNj, (instructions * 1.1).round()),
            (Event::SfTrue, t.kind.1 / t.kind.2),
        ];
        let thread = ThreadId(i as u32);
        let sample = Sample::of_thread(thread, t.cpu, core_type, at, Nanos(running));
        into.add(sample, 1, &counts);
    }
}

impl Engine for Room {
    type Error = Infallible;

    fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    fn observe(&mut self, _: &Watch<'_>, until: Nanos) -> Result<Observation, Infallible> {
        let finished = |room: &Self| room.threads.iter().all(|t| t.completions_s.len() >= 2);
        while self.now < until.0 && !finished(self) {
            self.quantum();
        }
        let mut samples = Samples::default();
        (0..self.threads.len()).for_each(|i| self.sample(i, &mut samples));
        let info = |(i, t): (usize, &Thread)| ThreadInfo {
            id: ThreadId(i as u32),
            program: ProgramId(i as u32),
            name: self.name(i).into(),
            cpu: t.cpu,
            runnable: true,
            nice: 0,
            allowed: Arc::clone(&t.allowed),
            hint: None,
        };
        Ok(Observation {
            at: Nanos(self.now),
            threads: self.threads.iter().enumerate().map(info).collect(),
            events: std::mem::take(&mut self.events),
            samples,
            spans: std::mem::take(&mut self.spans),
            finished: finished(self),
            ..Observation::default()
        })
    }

    fn apply(&mut self, placement: &Placement) -> Result<Applied, Infallible> {
        let mut applied = Applied::default();
        for placed in &placement.threads {
            let thread = &mut self.threads[placed.thread.index()];
            let allowed = placed.target.cpus(&self.topology);
            applied.changed += u32::from(thread.allowed != allowed);
            thread.allowed = allowed;
        }
        Ok(applied)
    }
}

/// Places the threads with the largest gain on fast cores.
pub struct FastestFirst;

impl Policy for FastestFirst {
    fn needs(&self) -> &Needs {
        static NEEDS: LazyLock<Needs> =
            LazyLock::new(|| Needs::metrics(&["ipc", "llc_mpki", "sf_oracle", "llc_occupancy"]));
        &NEEDS
    }

    fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        let groups = view.topology.groups_by(GroupBy::CoreType);
        let fast = &groups[0];
        let slow = &groups[groups.len() - 1];
        let mut order: Vec<(f64, ThreadId)> = (view.threads.iter())
            .filter_map(|t| Some((view.metric(t.id, "sf_oracle")?, t.id)))
            .collect();
        order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let place = |(rank, (sf, thread)): (usize, &(f64, ThreadId))| {
            let wins = rank < fast.cpus.len();
            let rule = if wins {
                "among the largest speed-up factors"
            } else {
                "gains less from fast cores than others"
            };
            let reason = Reason::rule(rule)
                .saw("sf_oracle", Some(*sf))
                .saw("ipc", view.metric(*thread, "ipc"))
                .against(
                    "speed relative to slow cores",
                    [(fast.id, *sf), (slow.id, 1.0)],
                );
            let target = Target::Group(if wins { fast.id } else { slow.id });
            ThreadPlacement::new(*thread, target, reason)
        };
        Placement {
            threads: order.iter().enumerate().map(place).collect(),
            ..Placement::default()
        }
    }
}

pub const HYBRID: &str = include_str!("../../../../machines/i9-12900k-8p8e.toml");
pub const CHIPLETS: &str = include_str!("../../../../machines/ryzen-7950x3d.toml");

/// Returns the record of a run of `programs` programs; created once for each set of arguments.
pub fn record(
    machine_text: &str,
    policy: &str,
    programs: usize,
    seed: u64,
    detail: Detail,
) -> Record {
    type Key = (String, String, usize, u64, Detail);
    static MADE: Mutex<BTreeMap<Key, Record>> = Mutex::new(BTreeMap::new());
    let key = (
        machine_text.to_owned(),
        policy.to_owned(),
        programs,
        seed,
        detail,
    );
    let mut made = MADE.lock().unwrap();
    made.entry(key)
        .or_insert_with(|| run(machine_text, policy, programs, seed, detail))
        .clone()
}

fn run(machine_text: &str, policy: &str, programs: usize, seed: u64, detail: Detail) -> Record {
    let machine = Machine::parse("machine.toml", machine_text).unwrap();
    let topology = Arc::new(Topology::new(&machine));
    let mut room = Room::new(topology, programs, seed);
    let mut made: Box<dyn Policy> = if policy == "fastest-first" {
        Box::new(FastestFirst)
    } else {
        countersteer_policies::parse(policy, &room.topology).unwrap()
    };
    let period = Nanos::from_millis(100);
    let manifest = Manifest::new(
        (&machine.name, machine_text),
        ("ten-programs", "[[program]]\nprofile = \"lbm.toml\"\n"),
        policy,
        seed,
        period,
        [("period_ms".to_owned(), "100".to_owned())],
        profiles(),
    );
    let mut collector = Collector::new(manifest, detail);
    let config = DriverConfig {
        period,
        until: Nanos::from_millis(60_000),
    };
    let mut rng = PolicyRng::seed_from_u64(seed);
    drive(
        &mut room,
        made.as_mut(),
        &mut [&mut collector],
        config,
        &mut rng,
    )
    .unwrap();
    let outcome = room.outcome();
    collector.finish(&outcome)
}

/// Returns one table for each kind of program.
pub fn profiles() -> BTreeMap<String, String> {
    let table = |&(name, fast, slow, footprint, giga): &Kind| {
        let mpki = |kib: f64| {
            12.0 * footprint / (1.0 + footprint) / (1.0 + (kib / 1024.0 / footprint).powi(2))
        };
        let points: Vec<String> = (0..9)
            .map(|i| 256.0 * f64::from(1 << i))
            .map(|kib| {
                format!(
                    "{{ cache_kib = {kib:?}, ipc = {:?}, llc_mpki = {:.3} }}",
                    fast / 4.9,
                    mpki(kib)
                )
            })
            .collect();
        let core = |core_type: &str, freq: f64, ipc: f64, points: &str| {
            format!(
                "[[core]]\ncore_type = \"{core_type}\"\nfreq_ghz = {freq:?}\nbranch_mpki = 1.5\npoints = [{}]\n",
                if points.is_empty() {
                    format!("{{ cache_kib = 30720.0, ipc = {ipc:?} }}")
                } else {
                    points.into()
                }
            )
        };
        let text = format!(
            "schema = \"countersteer.table/1\"\nname = \"{name}\"\ngiga_instructions = {giga:?}\n[source]\nkind = \"published\"\n\
             detail = \"made up for tests\"\n{}{}",
            core("golden-cove", 4.9, fast / 4.9, &points.join(", ")),
            core("gracemont", 3.7, slow / 3.7, ""),
        );
        (format!("{name}.toml"), text)
    };
    KINDS.iter().map(table).collect()
}

/// Returns a counting session of two threads on two core types, ten samples of 100 ms; the second event is counted in every
/// other sample.
pub fn counted() -> Record {
    let mut record = record(HYBRID, "linux", 2, 1, Detail::Scores);
    record.manifest.engine = "counters".into();
    record.manifest.outcome = Outcome::default();
    record.manifest.outcome.elapsed_s = 1.0;
    record.reading_counts = ["instructions", "llc_misses"].map(Arc::from).into();
    record.reading_metrics = vec![Arc::from("llc_mpki")];
    for step in 0..10u32 {
        let at_ns = u64::from(step + 1) * 100_000_000;
        for (thread, core_type) in [(41, "cpu_core"), (42, "cpu_atom")] {
            let misses = (step % 2 == 0).then_some(u64::from(step) * 1000);
            let instructions = 100_000_000;
            let name: Arc<str> = "<sorter>".into();
            record.readings.push(ReadingRow {
                step,
                start_ns: at_ns - 100_000_000,
                at_ns,
                pid: Some(41),
                thread: Some(thread),
                name: Arc::clone(&name),
                cpu: None,
                core_type: core_type.into(),
                set: step % 2,
                enabled_ns: 50_000_000,
                running_ns: 50_000_000,
                last: false,
                counts: [Some(instructions), misses].into(),
                metrics: [misses.map(|m| m as f64 / 1e5)].into(),
            });
            let cpu = 0;
            record.threads.push(ThreadRow {
                step,
                at_ns,
                thread,
                program: 41,
                name,
                cpu,
                runnable: true,
                nice: 0,
                allowed: Arc::new(CpuSet::first(1)),
            });
        }
        record.virtuals.push(VirtualRow {
            step,
            at_ns,
            scope: "machine".into(),
            place: "package-0".into(),
            thread: None,
            cpu: None,
            name: "energy".into(),
            unit: "J".into(),
            value: 2.5,
        });
    }
    record
}
