//! Forecast of a static mapping of programs to CPUs.
//!
//! Input: programs on CPUs, each with its share of the CPU. Output: their long-run rates. The rates are the fixed point of
//! occupancy (footprint composition), memory latency, SMT sharing and speed. The time-stepped model converges to this point if
//! each program keeps its average behaviour.

use std::borrow::Cow;

use countersteer_model::units::CpuId;

use super::class::{ClassCpu, MAX_LEVELS, NONE};
use super::memory::MemoryDomain;
use super::shared::{AnalyticCache, Resident};
use super::siblings::Beside;
use super::slices::{self, SliceStart};
use super::table::OccupancyRate;
use super::{Analytic, ModelId, SteadyRates};

const ROUNDS: usize = 200;
/// Number of intervals into which the warm-up of a thread's caches is divided, each with its own speed.
const WARMING_SLICES: u32 = 6;
/// Number of initial rounds in which only memory latency adapts.
const MEMORY_ROUNDS: usize = 6;
/// Threshold: relative change of every speed and occupancy per round below which the search ends.
const SETTLED: f64 = 1e-4;
/// Damping factor: fraction of the distance to its new occupancy that a program moves per round.
///
/// The search starts with the whole cache for every program and reduces occupancies slowly. Speed and occupancy reinforce each
/// other, so a working set that just fits may have two solutions, fitting and thrashing. Runs that start in an empty cache find
/// the first solution if it exists.
const DAMPING: f64 = 0.5;

struct SteadyRow {
    table: u32,
    cpu: usize,
    share: f64,
    /// Instructions per nanosecond while the program runs.
    speed: f64,
    rate: OccupancyRate,
    /// Occupancy of each shared cache, in lines.
    lines: [f64; MAX_LEVELS],
    local: [u32; MAX_LEVELS],
    resident: [u32; MAX_LEVELS],
}

struct SteadySearch<'a> {
    progress: &'a Analytic,
    /// CPUs at the frequencies that the number of active cores allows.
    cpus: Cow<'a, [ClassCpu]>,
    rows: Vec<SteadyRow>,
    caches: Vec<AnalyticCache>,
    factors: Vec<f64>,
    slice_ns: f64,
    /// For each CPU: fraction of the time during which it runs a thread, and its use of the core during that time.
    busy: Vec<(f64, Beside)>,
}

/// Forecasts the long-run rates of a static mapping; see [`Analytic::steady_state`].
pub fn forecast(progress: &Analytic, assignment: &[(ModelId, CpuId, f64)]) -> Vec<SteadyRates> {
    let mut search = SteadySearch::new(progress, assignment);
    if progress.config.contention {
        search.run();
    }
    if slices::are_shared(assignment, progress.cpus.len()) {
        let start: Vec<SliceStart> = search.rows.iter().map(|row| search.start(row)).collect();
        return slices::run(progress, search.cpus.into_owned(), assignment, &start);
    }
    search.rows.iter().map(|row| search.report(row)).collect()
}

/// Returns the CPUs at the highest frequency that their core type may have while the cores of the assignment are active.
fn clocked<'a>(
    progress: &'a Analytic,
    assignment: &[(ModelId, CpuId, f64)],
) -> Cow<'a, [ClassCpu]> {
    let types = &progress.topology.core_types;
    if types.iter().all(|t| t.frequency.is_none()) {
        return Cow::Borrowed(&progress.cpus);
    }
    let mut active: Vec<(u32, u32)> = assignment
        .iter()
        .map(|(_, cpu, _)| &progress.cpus[cpu.index()])
        .map(|place| (place.core_type, place.core))
        .collect();
    active.sort_unstable();
    active.dedup();
    let mut cpus = progress.cpus.clone();
    for cpu in &mut cpus {
        let of = &types[cpu.core_type as usize];
        let cores = active.iter().filter(|(t, _)| *t == cpu.core_type).count();
        let point = of.fastest_point(cores);
        cpu.run_at(point, of.points()[point].ghz);
    }
    Cow::Owned(cpus)
}

impl<'a> SteadySearch<'a> {
    fn new(progress: &'a Analytic, assignment: &[(ModelId, CpuId, f64)]) -> Self {
        let cpus = clocked(progress, assignment);
        let mut search = Self {
            cpus: cpus.clone(),
            progress,
            rows: Vec::with_capacity(assignment.len()),
            caches: Vec::new(),
            factors: vec![1.0; progress.memories.len()],
            slice_ns: slices::length_ns(&progress.topology) as f64,
            busy: vec![(0.0, Beside::default()); cpus.len()],
        };
        let mut local = vec![NONE; progress.caches.len()];
        for (model, cpu, share) in assignment {
            let model = &progress.models[model.0 as usize];
            let place = &cpus[cpu.index()];
            let table = model.table(model.average(), place.class);
            let mut row = SteadyRow {
                // The tables for more running siblings follow this table.
                table,
                cpu: cpu.index(),
                share: share.clamp(1e-6, 1.0),
                speed: 0.0,
                rate: OccupancyRate::default(),
                lines: [0.0; MAX_LEVELS],
                local: [NONE; MAX_LEVELS],
                resident: [0; MAX_LEVELS],
            };
            search.busy[cpu.index()].0 += row.share;
            if progress.config.contention {
                search.reside(&mut row, &mut local);
            }
            for k in 0..place.levels {
                row.lines[k] = progress.caches[place.chain[k] as usize].lines;
            }
            row.rate = progress.tables[row.table as usize].rate(&row.lines, &Beside::default());
            row.speed = place.freq / (row.rate.a + row.rate.b);
            search.rows.push(row);
        }
        search
    }

    fn reside(&mut self, row: &mut SteadyRow, local: &mut [u32]) {
        let place = &self.cpus[row.cpu];
        for k in 0..place.levels {
            let cache = place.chain[k] as usize;
            if local[cache] == NONE {
                local[cache] = self.caches.len() as u32;
                self.caches
                    .push(AnalyticCache::new(self.progress.caches[cache].lines));
            }
            row.local[k] = local[cache];
            let residents = &mut self.caches[local[cache] as usize].residents;
            row.resident[k] = residents.len() as u32;
            let [on, off] =
                Resident::lasting(self.rows.len() as u32, k as u8, row.share, self.slice_ns);
            residents.push(on);
            if row.share < 1.0 {
                residents.push(off);
            }
        }
    }

    fn run(&mut self) {
        for round in 0..ROUNDS {
            self.dispatched();
            // Memory latency adapts first: otherwise programs that stream at full speed would evict the lines of others at once.
            let mut change = if round < MEMORY_ROUNDS {
                1.0
            } else {
                self.compose()
            };
            self.load();
            for i in 0..self.rows.len() {
                let (speed, rate) = self.speed(&self.rows[i]);
                let row = &mut self.rows[i];
                change = change.max((speed / row.speed - 1.0).abs());
                (row.speed, row.rate) = (speed, rate);
            }
            if change < SETTLED {
                break;
            }
        }
    }

    fn dispatched(&mut self) {
        self.busy.iter_mut().for_each(|b| b.1 = Beside::default());
        for row in &self.rows {
            let place = &self.cpus[row.cpu];
            let table = row.table + self.beside(place).round() as u32;
            let shares = &self.progress.tables[table as usize].shares;
            let (busy, takes) = &mut self.busy[row.cpu];
            takes.add(shares, row.speed / place.freq, row.share / *busy);
        }
    }

    /// Moves occupancies towards those of footprint composition; returns the largest distance as a fraction of the cache.
    fn compose(&mut self) -> f64 {
        let mut distance = 0.0f64;
        for row in &self.rows {
            let place = &self.cpus[row.cpu];
            // SMT siblings use part of the private caches, so that more accesses reach the shared caches.
            let table = row.table + self.beside(place).round() as u32;
            for k in 0..place.levels {
                let residents = &mut self.caches[row.local[k] as usize].residents;
                let rows = if row.share < 1.0 { 2 } else { 1 };
                for resident in &mut residents[row.resident[k] as usize..][..rows] {
                    (resident.speed, resident.table) = (row.speed, table);
                }
            }
        }
        for cache in &mut self.caches {
            cache.aim(&self.progress.tables, 0.0);
        }
        for row in &mut self.rows {
            for k in 0..self.cpus[row.cpu].levels {
                let target =
                    self.caches[row.local[k] as usize].residents[row.resident[k] as usize].target;
                let gap = target - row.lines[k];
                row.lines[k] += DAMPING * gap;
                distance = distance.max(gap.abs() / self.caches[row.local[k] as usize].lines);
            }
        }
        distance
    }

    fn load(&mut self) {
        for domain in 0..self.factors.len() {
            let factor = self.factors[domain];
            let mut memory = MemoryDomain::new(&self.progress.topology.memory[domain]);
            memory.factor = factor;
            for row in &self.rows {
                let place = &self.cpus[row.cpu];
                if place.memory as usize != domain {
                    continue;
                }
                let lines = row.speed * row.share * self.lines_per_instruction(row);
                memory.demand += lines;
                memory.slope += lines * row.rate.b / (row.rate.a + row.rate.b * factor);
            }
            self.factors[domain] = memory.solve(1e-6).unwrap_or(factor);
        }
    }

    fn lines_per_instruction(&self, row: &SteadyRow) -> f64 {
        self.misses(row) * self.progress.tables[row.table as usize].lines_per_miss
    }

    fn misses(&self, row: &SteadyRow) -> f64 {
        let levels = self.cpus[row.cpu].levels;
        let table = &self.progress.tables[row.table as usize];
        levels
            .checked_sub(1)
            .map_or(table.private_misses, |last| row.rate.miss[last])
    }

    /// Average number of a CPU's SMT siblings that run at the same time.
    fn beside(&self, place: &ClassCpu) -> f64 {
        place
            .siblings
            .iter()
            .map(|s| self.busy[*s as usize].0.min(1.0))
            .sum()
    }

    /// Returns the speed and rates of a program while `others` SMT siblings run.
    fn speed_beside(
        &self,
        row: &SteadyRow,
        others: f64,
        lines: &[f64; MAX_LEVELS],
    ) -> (f64, OccupancyRate) {
        let place = &self.cpus[row.cpu];
        let most = place.siblings.len() as f64;
        let table = &self.progress.tables[row.table as usize + others as usize];
        let mut taken = Beside::default();
        if others > 0.0 {
            let siblings = place.siblings.iter();
            siblings.for_each(|s| taken.add_all(&self.busy[*s as usize].1, others / most));
            taken.threads = others;
        }
        let rate = table.rate(lines, &taken);
        let speed = place.freq / (rate.a + rate.b * self.factors[place.memory as usize]);
        (speed, rate)
    }

    /// Returns the speed and rates of a program at the present occupancies and latency factors, averaged over the number of
    /// running siblings.
    fn speed(&self, row: &SteadyRow) -> (f64, OccupancyRate) {
        let place = &self.cpus[row.cpu];
        let beside = self.beside(place);
        let with = |others: f64, lines: &[f64; MAX_LEVELS]| self.speed_beside(row, others, lines);
        let few = beside.floor();
        let part = beside.fract();
        let (mut speed, mut rate) = with(few, &row.lines);
        if part > 1e-9 {
            let (slower, crowded) = with(few + 1.0, &row.lines);
            speed += part * (slower - speed);
            rate = if part > 0.5 { crowded } else { rate };
        }
        if row.share < 1.0 {
            speed *= self.warming(row, |lines| with(few, lines));
        }
        (speed, rate)
    }

    /// Returns the mean speed over a time slice relative to the speed at its end: a thread first refills the lines that others
    /// evicted.
    fn warming(
        &self,
        row: &SteadyRow,
        at: impl Fn(&[f64; MAX_LEVELS]) -> (f64, OccupancyRate),
    ) -> f64 {
        let place = &self.cpus[row.cpu];
        let left: [f64; MAX_LEVELS] = std::array::from_fn(|k| {
            let held = |cache: u32| {
                self.caches[cache as usize].residents[row.resident[k] as usize + 1].target
            };
            if k < place.levels {
                held(row.local[k]).min(row.lines[k])
            } else {
                0.0
            }
        });
        let (full, _) = at(&row.lines);
        let mut ns = 0.0;
        let mut work = 0.0;
        for slice in 0..WARMING_SLICES {
            let warm = (f64::from(slice) + 0.5) / f64::from(WARMING_SLICES);
            let lines = std::array::from_fn(|k| left[k] + (row.lines[k] - left[k]) * warm);
            let (speed, rate) = at(&lines);
            let needs = |k: usize| {
                (row.lines[k] - left[k]) / f64::from(WARMING_SLICES) / rate.miss[k].max(1e-9)
            };
            let instructions = (0..place.levels).map(needs).fold(0.0, f64::max);
            let takes = (instructions / speed).min(self.slice_ns - ns);
            ns += takes;
            work += takes * speed;
        }
        (work + (self.slice_ns - ns) * full) / (self.slice_ns * full)
    }

    fn start(&self, row: &SteadyRow) -> SliceStart {
        SliceStart {
            table: row.table,
            share: row.share,
            speed: row.speed,
            lines: row.lines,
        }
    }

    fn report(&self, row: &SteadyRow) -> SteadyRates {
        let place = &self.cpus[row.cpu];
        let table = &self.progress.tables[row.table as usize];
        let mut nj = table.instruction_nj + self.lines_per_instruction(row) * place.memory_nj;
        let mut references = table.private_misses;
        for k in 0..place.levels {
            nj += place.access_nj[k] * references;
            references = row.rate.miss[k];
        }
        SteadyRates {
            ips: row.speed * row.share * 1e9,
            ipc: row.speed / place.freq,
            llc_mpki: self.misses(row) * 1000.0,
            llc_lines: row.lines[..place.levels].last().map_or(0.0, |lines| *lines),
            power_w: row.share * (table.active_w + row.speed * nj),
        }
    }
}
