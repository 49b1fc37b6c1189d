//! Toy engine: threads with fixed speeds per core type, placed at once.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

use std::path::Path;
use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::{
    Applied, Engine, Forecast, Observation, ThreadEvent, ThreadEventKind, ThreadForecast,
    ThreadInfo, Watch,
};
use countersteer_model::machine::Machine;
use countersteer_model::placement::{Placement, Target};
use countersteer_model::policy::PolicyRng;
use countersteer_model::sample::{Event, Sample, Samples};
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ProgramId, ThreadId};
use rand::RngExt;
use rand_pcg::rand_core::SeedableRng;

/// Number of threads, and whether it changes.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// Initial number of threads.
    pub threads: usize,
    /// True if some start, sleep, wake and exit.
    pub changes: bool,
}

pub struct Thread {
    pub info: ThreadInfo,
    /// Instructions per second on the fastest core type, and their ratio to those on the slowest.
    pub speed: f64,
    pub sf: f64,
    mpki: f64,
    occupancy: f64,
    /// Instructions retired.
    pub retired: f64,
}

pub struct Toy {
    topology: Arc<Topology>,
    pub threads: Vec<Thread>,
    events: Vec<ThreadEvent>,
    life: Life,
    now: Nanos,
    forked: u32,
    rng: PolicyRng,
}

impl Toy {
    pub fn new(topology: &Arc<Topology>, life: Life, seed: u64) -> Self {
        let rng = PolicyRng::seed_from_u64(seed);
        let mut toy = Self {
            topology: Arc::clone(topology),
            threads: Vec::new(),
            events: Vec::new(),
            life,
            now: Nanos::ZERO,
            forked: 0,
            rng,
        };
        (0..life.threads).for_each(|_| toy.fork());
        toy
    }

    fn fork(&mut self) {
        let id = ThreadId(self.forked);
        self.forked += 1;
        let cpu = CpuId::from_index(self.rng.random_range(0..self.topology.cpus.len()));
        let info = ThreadInfo {
            id,
            program: ProgramId(id.0),
            name: format!("p{}", id.0).into(),
            cpu,
            runnable: true,
            nice: 0,
            allowed: Arc::clone(&self.topology.groups[0].cpus),
            hint: None,
        };
        let mut between = |low: f64, high: f64| low + (high - low) * self.rng.random::<f64>();
        let speed = between(1e9, 4e9);
        let sf = between(1.1, 3.0);
        let mpki = between(0.0, 30.0);
        let occupancy = between(0.0, 4e6);
        self.threads.push(Thread {
            info,
            speed,
            sf,
            mpki,
            occupancy,
            retired: 0.0,
        });
        self.event(id, ThreadEventKind::New);
    }

    fn event(&mut self, thread: ThreadId, kind: ThreadEventKind) {
        self.events.push(ThreadEvent {
            at: self.now,
            thread,
            kind,
        });
    }

    /// Instructions per second of a thread alone on a CPU.
    pub fn ips(&self, thread: &Thread, cpu: CpuId) -> f64 {
        let last = self.topology.core_types.len().saturating_sub(1).max(1) as f64;
        let down = self.topology.core_type_of(cpu).index() as f64 / last;
        thread.speed / thread.sf.powf(down)
    }

    fn load(&self, cpu: CpuId) -> f64 {
        self.threads
            .iter()
            .filter(|t| t.info.runnable && t.info.cpu == cpu)
            .count()
            .max(1) as f64
    }

    fn change(&mut self) {
        if self.rng.random::<f64>() < 0.15 {
            self.fork();
        }
        for row in 0..self.threads.len() {
            if self.rng.random::<f64>() < 0.1 {
                let info = &mut self.threads[row].info;
                info.runnable = !info.runnable;
                let kind = if info.runnable {
                    ThreadEventKind::Wake
                } else {
                    ThreadEventKind::Sleep
                };
                let id = info.id;
                self.event(id, kind);
            }
        }
        if self.rng.random::<f64>() < 0.1 && !self.threads.is_empty() {
            let gone = self
                .threads
                .remove(self.rng.random_range(0..self.threads.len()));
            self.event(gone.info.id, ThreadEventKind::Exit);
        }
    }

    /// Runs all threads for a while.
    fn pass(&mut self, length: Nanos) -> Samples {
        let seconds = length.as_secs_f64();
        let mut samples = Samples::default();
        for row in 0..self.threads.len() {
            let thread = &self.threads[row];
            if !thread.info.runnable || seconds == 0.0 {
                continue;
            }
            let (cpu, share) = (thread.info.cpu, 1.0 / self.load(thread.info.cpu));
            let instructions = self.ips(thread, cpu) * share * seconds;
            let core_type = self.topology.core_type_of(cpu);
            let freq = self.topology.core_types[core_type.index()].freq_ghz * 1e9;
            let mut counts = Vec::new();
            let thread = &mut self.threads[row];
            for (event, value) in [
                (Event::Instructions, instructions),
                (Event::Cycles, freq * share * seconds),
                (Event::L2Misses, instructions * thread.mpki * 2e-3),
                (Event::LlcMisses, instructions * thread.mpki * 1e-3),
                (Event::BranchMisses, instructions * 2e-3),
                (Event::LlcOccupancyBytes, thread.occupancy),
                (Event::SfTrue, thread.sf),
            ] {
                counts.push((event, value * (0.98 + 0.04 * self.rng.random::<f64>())));
            }
            thread.retired += instructions;
            let running = Nanos::from_secs_f64(seconds * share);
            let at = self.now;
            let sample = Sample::of_thread(thread.info.id, cpu, core_type, at, running);
            samples.add(sample, 1, &counts);
        }
        samples
    }
}

impl Engine for Toy {
    type Error = std::convert::Infallible;

    fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    fn observe(&mut self, watch: &Watch<'_>, until: Nanos) -> Result<Observation, Self::Error> {
        // Some periods end early, so that policies that want events are also called between periods.
        let early = watch.events && self.life.changes && self.rng.random::<f64>() < 0.5;
        let early = if early {
            self.rng.random_range(0..20_000_000)
        } else {
            0
        };
        let until = Nanos(until.0.saturating_sub(early)).max(self.now);
        let length = until.since(self.now);
        self.now = until;
        let mut samples = self.pass(length);
        if self.life.changes && length > Nanos::ZERO {
            self.change();
        }
        let threads: Vec<ThreadInfo> = self.threads.iter().map(|t| t.info.clone()).collect();
        samples.retain(|s| threads.iter().any(|t| Some(t.id) == s.thread()));
        let events = std::mem::take(&mut self.events);
        // The next placement comes too late for this thread.
        let vanishes = self.life.changes && self.rng.random::<f64>() < 0.1;
        if let Some(gone) = self.threads.pop_if(|_| vanishes) {
            self.event(gone.info.id, ThreadEventKind::Exit);
        }
        Ok(Observation {
            at: until,
            threads,
            events,
            samples,
            ..Observation::default()
        })
    }

    fn apply(&mut self, placement: &Placement) -> Result<Applied, Self::Error> {
        let mut applied = Applied::default();
        for entry in &placement.threads {
            let cpus: Arc<CpuSet> = match &entry.target {
                Target::Anywhere => Arc::clone(&self.topology.groups[0].cpus),
                other => other.cpus(&self.topology),
            };
            let Some(row) = self.threads.iter().position(|t| t.info.id == entry.thread) else {
                applied.gone += 1;
                continue;
            };
            applied.changed += 1;
            if !cpus.contains(self.threads[row].info.cpu) {
                let least = cpus
                    .iter()
                    .min_by(|a, b| self.load(*a).total_cmp(&self.load(*b)))
                    .unwrap();
                let from = std::mem::replace(&mut self.threads[row].info.cpu, least);
                self.event(entry.thread, ThreadEventKind::Migrate { from, to: least });
            }
            self.threads[row].info.allowed = cpus;
        }
        Ok(applied)
    }

    fn forecast(&mut self) -> Option<&mut dyn Forecast> {
        Some(self)
    }
}

impl Forecast for Toy {
    fn steady_state(&mut self, threads: &[ThreadId], assignment: &[CpuId]) -> Vec<ThreadForecast> {
        let mut load = vec![0.0; self.topology.cpus.len()];
        assignment.iter().for_each(|c| load[c.index()] += 1.0);
        let one = |(id, cpu): (&ThreadId, &CpuId)| {
            let Some(thread) = self.threads.iter().find(|t| t.info.id == *id) else {
                return ThreadForecast::default();
            };
            let ips = self.ips(thread, *cpu);
            let freq =
                self.topology.core_types[self.topology.core_type_of(*cpu).index()].freq_ghz * 1e9;
            ThreadForecast {
                ips: ips / load[cpu.index()],
                ipc: ips / freq,
                ips_alone_fast: thread.speed,
                ips_alone_slow: thread.speed / thread.sf,
                power_w: 1.0,
            }
        };
        threads.iter().zip(assignment).map(one).collect()
    }
}

/// Machines that are always included.
const INLINE: [&str; 3] = [
    include_str!("two-big-two-small.toml"),
    include_str!("smt-hybrid.toml"),
    include_str!("two-caches.toml"),
];

/// Inline machines and all shipped ones.
pub fn machines() -> Vec<Arc<Topology>> {
    let inline = INLINE
        .iter()
        .map(|text| ("inline".to_owned(), (*text).to_owned()));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|e| e.unwrap().path())
        .collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "toml"));
    files.sort();
    let shipped = files
        .iter()
        .map(|p| (p.display().to_string(), std::fs::read_to_string(p).unwrap()));
    inline
        .chain(shipped)
        .map(|(path, text)| Arc::new(Topology::new(&Machine::parse(&path, &text).unwrap())))
        .collect()
}
