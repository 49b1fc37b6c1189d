//! Tabulated profiles from records: the counters of a program become a table that can be simulated.
//!
//! Input: a record with samples of instructions and cycles, from real hardware or from a simulation. Output: a [`Tabulated`]
//! profile with a table for each core type on which the program ran. Each table has one point. The occupancy of a program
//! changes with its phases, so speeds by occupancy would show phases instead of the benefit of cache space.

use std::collections::{BTreeMap, BTreeSet};

use countersteer_model::profile::{CoreTable, Source, TABLE_SCHEMA, TablePoint, Tabulated};
use countersteer_model::sample::{Event, SampleRow};
use countersteer_model::topology::Topology;
use countersteer_model::units::CoreTypeId;

use crate::error::ReportError;
use crate::record::Record;

/// Returns the tabulated profile of a program, given its name in the record.
///
/// # Errors
/// Fails if there is no such program, or if its counts do not suffice.
pub fn tabulate(record: &Record, program: &str) -> Result<Tabulated, ReportError> {
    let threads = record.identities();
    let own: BTreeSet<_> = threads
        .iter()
        .filter(|t| *t.name == *program)
        .map(|t| t.id)
        .collect();
    if own.is_empty() {
        let names: BTreeSet<&str> = threads.iter().map(|t| &*t.name).collect();
        let names: Vec<&str> = names.into_iter().collect();
        return Err(lacking(format!(
            "there is no program `{program}` in the record; there are {}",
            names.join(", ")
        )));
    }
    let topology = record.topology()?;
    let mut sums: BTreeMap<CoreTypeId, CoreTypeSums> = BTreeMap::new();
    let samples = record.samples.samples.of_threads();
    for (_, sample) in samples.filter(|(thread, _)| own.contains(thread)) {
        sums.entry(sample.core_type).or_default().add(&sample);
    }
    let instructions: f64 = sums.values().map(|s| s.instructions).sum();
    let core: Vec<CoreTable> = sums
        .iter()
        .filter_map(|(id, sums)| core_table(&topology, *id, sums))
        .collect();
    if core.is_empty() {
        let remedy = "count instructions and cycles: steer stat -e instructions,cycles,llc_misses -i 100ms -o DIR -- ...";
        return Err(lacking(format!(
            "no sample of `{program}` has both instructions and cycles; {remedy}"
        )));
    }
    let runs = record
        .manifest
        .outcome
        .programs
        .iter()
        .find(|p| p.name == program)
        .map_or(0, |p| p.completions_s.len());
    Ok(Tabulated {
        schema: TABLE_SCHEMA.into(),
        name: program.into(),
        source: source(record),
        giga_instructions: instructions * 1e-9 / runs.max(1) as f64,
        core,
    })
}

fn lacking(why: String) -> ReportError {
    ReportError::Lacking { why }
}

fn source(record: &Record) -> Source {
    let manifest = &record.manifest;
    Source {
        kind: "counters".into(),
        detail: format!(
            "samples of a record: {} on {}, policy {}",
            manifest.workload.name, manifest.machine.name, manifest.policy
        ),
        method:
            "sums of counts by core type; counts of sets that took turns by ratio within their set"
                .into(),
    }
}

/// Sums of a program's counts on one core type.
#[derive(Clone, Copy, Debug, Default)]
struct CoreTypeSums {
    instructions: f64,
    cycles: f64,
    running_ns: f64,
    occupied: f64,
    /// Misses, and instructions of the samples that counted them; multiplexed event sets count different instructions.
    misses: (f64, f64),
    /// Branch misses, and instructions of the samples that counted them.
    branches: (f64, f64),
    /// Energy in nJ, and instructions of the samples that measured it.
    energy_nj: (f64, f64),
}

impl CoreTypeSums {
    fn add(&mut self, sample: &SampleRow<'_>) {
        let counts = &sample.counts;
        let instructions = counts.get(Event::Instructions).unwrap_or(0.0);
        if let Some(cycles) = counts.get(Event::Cycles).filter(|_| instructions > 0.0) {
            self.instructions += instructions;
            self.cycles += cycles;
            self.running_ns += sample.running.0 as f64;
            self.occupied += instructions * counts.get(Event::LlcOccupancyBytes).unwrap_or(0.0);
        }
        let take = |sum: &mut (f64, f64), event| {
            if let Some(value) = counts.get(event).filter(|_| instructions > 0.0) {
                sum.0 += value;
                sum.1 += instructions;
            }
        };
        take(&mut self.misses, Event::LlcMisses);
        take(&mut self.branches, Event::BranchMisses);
        if let Some(energy) = counts.get(Event::EnergyNj) {
            self.energy_nj.0 += energy;
            self.energy_nj.1 += sample.running.0 as f64;
        }
    }

    /// Returns the number of events per thousand instructions that were counted with them; `None` without instructions.
    fn per_kilo(sum: (f64, f64)) -> Option<f64> {
        (sum.1 > 0.0).then(|| 1e3 * sum.0 / sum.1)
    }
}

fn core_table(topology: &Topology, id: CoreTypeId, sums: &CoreTypeSums) -> Option<CoreTable> {
    if sums.instructions <= 0.0 || sums.cycles <= 0.0 || sums.running_ns <= 0.0 {
        return None;
    }
    let cpu = topology.cpus.iter().find(|c| c.core_type == id)?;
    let whole_kib = topology.caches[topology.llc_of(cpu.id).index()].lines / 16.0;
    let occupied_kib = sums.occupied / sums.instructions / 1024.0;
    let cache_kib = if occupied_kib > 0.0 {
        occupied_kib
    } else {
        whole_kib
    };
    let ipc = sums.instructions / sums.cycles;
    Some(CoreTable {
        core_type: topology.core_types[id.index()].name.clone(),
        freq_ghz: sums.cycles / sums.running_ns,
        branch_mpki: CoreTypeSums::per_kilo(sums.branches),
        branches: None,
        power_w: (sums.energy_nj.1 > 0.0).then(|| sums.energy_nj.0 / sums.energy_nj.1),
        points: vec![TablePoint {
            cache_kib,
            ipc,
            llc_mpki: CoreTypeSums::per_kilo(sums.misses),
        }],
    })
}
