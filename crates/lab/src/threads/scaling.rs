//! A model of a parallel program's time on a set of CPUs.
//!
//! Input: a candidate, parameters of a program. Output: time, relative to one thread on a core of the fastest type.
//!
//! The form is Amdahl's law with the terms of the Universal Scalability Law (Gunther, "Guerrilla Capacity Planning", 2007, chapter
//! 4): a serial part, and a cost that grows with the number of threads. The capacity of cores replaces the number of threads. It
//! has a speed for each core type, and a yield of SMT siblings. Working sets that exceed a last-level cache cost misses. Memory
//! limits what misses.
//!
//! With static chunking the slowest core sets the time of a barrier. With dynamic chunking capacities add up. A pipeline's serial
//! stage runs beside the others, on a CPU that it may share, and the slower one sets the time.
//!
//! A chunking has a share of dynamic distribution, and a cost of its chunks. Shares of chunkings whose name tells their kind are
//! drawn near it.
//!
//! Parameters are coordinates between 0 and 1, whose uniform distribution is the prior.

use countersteer_model::topology::Topology;

use super::candidates::{Candidate, Chunking};

/// Parameters that every machine has.
const COMMON: usize = 10;
/// Parameters of each chunking after the first.
const OF_CHUNKING: usize = 2;
/// Largest factor, either way, between a core type's speed and that in the machine's description.
const SPEED_FACTOR: f64 = 1.8;
/// Sharpness of the bend at the limit by memory.
const BEND: f64 = 4.0;
/// Sharpness of the rise of misses where working sets exceed a cache.
const CLIFF: f64 = 3.0;

/// Candidate as the model sees it.
#[derive(Clone, Debug)]
pub(crate) struct CandidateShape {
    classes: Vec<ThreadClass>,
    threads: f64,
    llcs: f64,
    domains: f64,
    /// Row of the chunking.
    chunking: usize,
}

/// Threads that run alike.
#[derive(Clone, Debug, PartialEq)]
struct ThreadClass {
    core_type: usize,
    /// Number of threads of the core.
    siblings: usize,
    /// Threads per size of the last-level cache, relative to one thread in the largest.
    crowding: f64,
    count: f64,
}

/// Speeds of core types by the machine's description.
#[derive(Clone, Debug)]
pub(crate) struct Prior {
    speeds: Vec<f64>,
    /// Kinds of the chunkings that are tried.
    chunkings: Vec<Chunking>,
}

/// Program as the model sees it.
#[derive(Clone, Debug, Default)]
struct ScalingProgram {
    /// Share of the work that one thread does.
    serial: f64,
    /// Time of the serial part over that on a core of its own, if it runs beside the parallel one.
    stage: Option<f64>,
    /// Place of the serial part between the fastest core, 0, and the slowest one, 1.
    serial_place: f64,
    /// Share of the parallel work that is distributed dynamically.
    dynamic: f64,
    /// Time of the parallel part over that with the first chunking.
    chunk_cost: f64,
    /// Speed of a core with all its SMT siblings at work, over that with one.
    smt_yield: f64,
    /// Working set of a thread in sizes of the largest last-level cache; without one, all threads miss alike everywhere.
    footprint: Option<f64>,
    /// Time of misses of a thread whose working set does not fit at all, over its time without misses on a fast core. It is equal on
    /// all core types: memory is as far from each.
    loss: f64,
    /// Limit by memory of a domain, in fast cores whose threads miss so.
    memory: f64,
    /// Cost of each further thread, and of each further last-level cache.
    thread_cost: f64,
    cache_cost: f64,
    /// Speeds of core types, 1 for the fastest.
    speeds: Vec<f64>,
}

impl Prior {
    /// Reads a machine's speeds: capacity, or clock where the kernel distinguishes less than clocks do.
    #[must_use]
    pub fn of(topology: &Topology, candidates: &[Candidate]) -> Self {
        let mut chunkings = vec![Chunking::Unknown];
        for (row, kind) in candidates.iter().map(|c| c.chunking) {
            chunkings.resize(chunkings.len().max(row + 1), Chunking::Unknown);
            chunkings[row] = kind;
        }
        let fastest = &topology.core_types[0];
        let speed = |core_type: &countersteer_model::machine::CoreType| {
            let capacity = f64::from(core_type.capacity) / f64::from(fastest.capacity);
            let clock = core_type.freq_ghz / fastest.freq_ghz;
            capacity.min(clock)
        };
        Self {
            speeds: topology.core_types.iter().map(speed).collect(),
            chunkings,
        }
    }

    /// Number of parameters.
    #[must_use]
    pub fn dimensions(&self) -> usize {
        self.first_chunking() + (self.chunkings.len() - 1) * OF_CHUNKING
    }

    /// Row of the parameters of the chunking after the first.
    fn first_chunking(&self) -> usize {
        COMMON + self.speeds.len() - 1
    }

    /// Share of dynamic distribution, and cost, of a chunking.
    fn chunking(&self, at: &[f64], row: usize) -> (f64, f64) {
        let own = match row.checked_sub(1) {
            None => [at[2], 0.0],
            Some(row) => {
                let first = self.first_chunking() + row * OF_CHUNKING;
                [at[first], at[first + 1]]
            }
        };
        let dynamic = match self.chunkings[row] {
            Chunking::Unknown => (2.0 * own[0] - 0.5).clamp(0.0, 1.0),
            Chunking::Static => 0.3 * (2.0 * own[0] - 1.0).max(0.0),
            Chunking::Dynamic => 1.0 - 0.3 * (2.0 * own[0] - 1.0).max(0.0),
        };
        let cost = above(own[1], 0.5).map_or(1.0, |u| 1.0 + between(u, 1e-3, 1.0));
        (dynamic, cost)
    }

    fn program(&self, at: &[f64], chunking: usize) -> ScalingProgram {
        let (dynamic, chunk_cost) = self.chunking(at, chunking);
        let speeds = self
            .speeds
            .iter()
            .enumerate()
            .map(|(row, speed)| match row {
                0 => 1.0,
                _ => speed * SPEED_FACTOR.powf(2.0 * at[COMMON + row - 1] - 1.0),
            });
        ScalingProgram {
            serial: above(at[0], 0.35).map_or(0.0, |u| between(u, 1e-3, 0.5)),
            stage: above(at[1], 0.75).map(|u| 1.0 + u),
            serial_place: (2.0 * at[9] - 1.0).max(0.0),
            dynamic,
            chunk_cost,
            smt_yield: 0.8 + 1.2 * at[3],
            footprint: above(at[4], 0.3).map(|u| between(u, 0.005, 2.0)),
            loss: above(at[5], 0.3).map_or(0.0, |u| between(u, 0.05, 30.0)),
            memory: above(at[6], 0.3).map_or(f64::INFINITY, |u| between(u, 40.0, 0.5)),
            thread_cost: above(at[7], 0.4).map_or(0.0, |u| between(u, 1e-5, 0.03)),
            cache_cost: above(at[8], 0.5).map_or(0.0, |u| between(u, 1e-4, 0.1)),
            speeds: speeds.collect(),
        }
    }

    /// Logarithm of the time of a program with these parameters.
    #[must_use]
    pub(crate) fn log_time(&self, at: &[f64], shape: &CandidateShape) -> f64 {
        self.program(at, shape.chunking).time(shape).ln()
    }
}

/// Position above a share of the prior that has the effect not at all.
fn above(at: f64, none: f64) -> Option<f64> {
    (at > none).then(|| (at - none) / (1.0 - none))
}

/// Value between two ends, uniform in its logarithm.
fn between(at: f64, from: f64, to: f64) -> f64 {
    from * (to / from).powf(at)
}

impl CandidateShape {
    /// Describes a candidate.
    #[must_use]
    pub fn of(candidate: &Candidate, topology: &Topology) -> Self {
        let cpus = || candidate.cpus.iter().map(|id| &topology.cpus[id.index()]);
        let mut sharers = vec![0.0_f64; topology.caches.len()];
        let mut domains: Vec<u32> = cpus().map(|cpu| cpu.memory).collect();
        domains.sort_unstable();
        domains.dedup();
        cpus().for_each(|cpu| sharers[topology.llc_of(cpu.id).index()] += 1.0);
        let largest = topology.cpus.iter();
        let largest = largest.map(|cpu| topology.caches[topology.llc_of(cpu.id).index()].lines);
        let largest = largest.fold(0.0, f64::max);
        let mut classes: Vec<ThreadClass> = Vec::new();
        for cpu in cpus() {
            let llc = topology.llc_of(cpu.id).index();
            let class = ThreadClass {
                core_type: cpu.core_type.index(),
                siblings: cpus().filter(|other| other.core == cpu.core).count(),
                crowding: sharers[llc] * largest / topology.caches[llc].lines,
                count: 0.0,
            };
            match classes.iter_mut().find(|c| {
                ThreadClass {
                    count: 0.0,
                    ..(*c).clone()
                } == class
            }) {
                Some(known) => known.count += 1.0,
                None => classes.push(ThreadClass {
                    count: 1.0,
                    ..class
                }),
            }
        }
        Self {
            classes,
            threads: candidate.threads as f64,
            chunking: candidate.chunking.0,
            llcs: sharers.iter().filter(|n| **n > 0.0).count() as f64,
            domains: domains.len() as f64,
        }
    }
}

impl ScalingProgram {
    fn time(&self, shape: &CandidateShape) -> f64 {
        let mut capacity = 0.0;
        let mut traffic = 0.0;
        let mut slowest = f64::INFINITY;
        let mut fastest = 0.0_f64;
        let mut slowest_alone = f64::INFINITY;
        for class in &shape.classes {
            let misses = self.misses(class.crowding);
            let share = match class.siblings {
                1 => 1.0,
                siblings => self.smt_yield / siblings as f64,
            };
            let speed = |without: f64| 1.0 / (1.0 / without + self.loss * misses);
            let alone = speed(self.speeds[class.core_type]);
            fastest = fastest.max(alone);
            slowest_alone = slowest_alone.min(alone);
            let speed = speed(self.speeds[class.core_type] * share);
            slowest = slowest.min(speed);
            capacity += class.count * speed;
            traffic += class.count * speed * misses;
        }
        let limit = self.memory * shape.domains;
        let limited = (1.0 + (traffic / limit).powf(BEND)).powf(-1.0 / BEND);
        let dynamic_s = 1.0 / (capacity * limited);
        let static_s = 1.0 / (shape.threads * slowest * limited);
        let parallel_s = self.dynamic * dynamic_s + (1.0 - self.dynamic) * static_s;
        let parallel_s = (1.0 - self.serial) * parallel_s * self.chunk_cost;
        let serial_speed = fastest * (slowest_alone / fastest).powf(self.serial_place);
        let serial_s = self.serial / serial_speed;
        let work_s = match self.stage {
            Some(slower) => parallel_s.max(serial_s * slower),
            None => parallel_s + serial_s,
        };
        work_s + self.thread_cost * (shape.threads - 1.0) + self.cache_cost * (shape.llcs - 1.0)
    }

    /// Share of the accesses that miss, of those of a thread whose working set does not fit at all.
    fn misses(&self, crowding: f64) -> f64 {
        self.footprint.map_or(1.0, |footprint| {
            let over = (footprint * crowding).powf(CLIFF);
            over / (1.0 + over)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::machine;
    use crate::threads::candidates::{candidates, chunked};

    fn program() -> ScalingProgram {
        ScalingProgram {
            smt_yield: 1.3,
            chunk_cost: 1.0,
            memory: f64::INFINITY,
            speeds: vec![1.0, 0.5],
            ..ScalingProgram::default()
        }
    }

    /// Time on CPUs of the i9-12900K: P cores are 0 to 15 with siblings beside each other, E cores 16 to 23.
    fn time(program: &ScalingProgram, cpus: &str) -> f64 {
        let machine = machine("i9-12900k").unwrap();
        let cpus: countersteer_model::cpuset::CpuSet = cpus.parse().unwrap();
        let candidate = Candidate {
            threads: cpus.len(),
            cpus,
            confined: true,
            name: String::new(),
            chunking: Default::default(),
        };
        program.time(&CandidateShape::of(&candidate, &machine.topology))
    }

    #[test]
    fn chunking_decides_between_the_slowest_core_and_the_sum() {
        let by_barriers = program();
        assert!((time(&by_barriers, "0,2,4,6") - 0.25).abs() < 1e-12);
        // Four slow cores more: eight threads at the speed of the slow ones.
        assert!((time(&by_barriers, "0,2,4,6,16-19") - 0.25).abs() < 1e-12);
        let by_chunks = ScalingProgram {
            dynamic: 1.0,
            ..program()
        };
        assert!((time(&by_chunks, "0,2,4,6,16-19") - 1.0 / 6.0).abs() < 1e-12);
        assert!((time(&by_chunks, "0-3") - 1.0 / 2.6).abs() < 1e-12);
    }

    #[test]
    fn serial_parts_stages_memory_and_costs_limit() {
        let amdahl = ScalingProgram {
            serial: 0.2,
            ..program()
        };
        assert!((time(&amdahl, "0,2") - 0.6).abs() < 1e-12);
        let pipeline = ScalingProgram {
            stage: Some(1.0),
            ..amdahl.clone()
        };
        assert!((time(&pipeline, "0,2") - 0.4).abs() < 1e-12);
        assert!((time(&pipeline, "0,2,4,6,8,10") - 0.2).abs() < 1e-12);
        let memory = ScalingProgram {
            memory: 2.0,
            ..program()
        };
        assert!(time(&memory, "0,2,4,6,8,10") > 0.49);
        // Two working sets fit the cache, six do not.
        let cached = ScalingProgram {
            footprint: Some(0.2),
            loss: 8.0,
            ..program()
        };
        assert!(time(&cached, "0,2,4,6,8,10") > time(&cached, "0,2"));
        let costly = ScalingProgram {
            thread_cost: 0.1,
            ..program()
        };
        assert!(time(&costly, "0,2,4,6,8,10") > time(&costly, "0,2,4"));
    }

    #[test]
    fn every_parameter_gives_every_candidate_a_time() {
        let machine = machine("ryzen-7950x3d").unwrap();
        let topology = &machine.topology;
        let all = candidates(topology, &topology.groups[0].cpus);
        let kinds = [Chunking::Static, Chunking::Dynamic, Chunking::Unknown];
        let all = chunked(all, &kinds);
        let prior = Prior::of(topology, &all);
        assert_eq!(prior.dimensions(), 10 + 1 + 4);
        for candidate in all {
            let shape = CandidateShape::of(&candidate, topology);
            for value in [0.0, 0.3, 0.5, 0.8, 1.0] {
                let at = vec![value; prior.dimensions()];
                assert!(prior.log_time(&at, &shape).is_finite(), "{value}");
            }
        }
    }
}
