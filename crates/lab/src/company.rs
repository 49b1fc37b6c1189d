//! Fractions of one last-level cache that co-running programs occupy, for any cache size.
//!
//! Input: profiles, a machine and cache sizes. Output: the bytes of the cache that each program occupies, its misses and its
//! speed, by size and program. They are the steady state of the analytic model (footprint composition): a program's speed and the
//! memory bandwidth determine how fast it touches lines. Each program has a core of the machine's fastest type. Caches between a
//! core's own and the last level are omitted.

use std::path::Path;
use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::machine::{Cores, Machine, Memory, SharedCache};
use countersteer_model::profile::Profile;
use countersteer_model::units::CpuId;
use countersteer_sim::progress::{Analytic, ModelId, ProgressConfig, ProgressModel, SteadyRates};
use serde::Serialize;

use crate::error::{FaultKind, failure};
use crate::experiment::LoadedMachine;
use crate::{library, traces};

/// Size of a cache line in bytes.
const LINE_BYTES: f64 = 64.0;
/// Number of cache lines per KiB.
const LINES_PER_KIB: f64 = 16.0;

/// Occupancy of the last-level cache by the programs, for each cache size.
#[derive(Clone, Debug, Serialize)]
pub struct CacheCompany {
    pub machine: String,
    pub core_type: String,
    pub programs: Vec<String>,
    pub sizes: Vec<SharedOccupancy>,
}

/// Cache of one size, with the occupancy of each program.
#[derive(Clone, Debug, Serialize)]
pub struct SharedOccupancy {
    pub bytes: u64,
    pub parts: Vec<ProgramPart>,
}

/// Occupancy, misses and speed of a program with its co-runners, and alone.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ProgramPart {
    /// Occupancy of the cache in bytes, with co-runners.
    pub bytes: f64,
    /// Misses per kilo-instruction with co-runners.
    pub mpki: f64,
    /// Instructions per cycle with co-runners.
    pub ipc: f64,
    /// Misses per kilo-instruction if the program has the whole cache and memory alone.
    pub mpki_alone: f64,
    /// Instructions per cycle if the program has the whole cache and memory alone.
    pub ipc_alone: f64,
}

/// Reads a profile from a profile file, from the library by name, or from a trace that contains one.
///
/// # Errors
/// Fails if the file is of another kind, or if the trace contains no profile.
pub fn profile(path: &Path) -> anyhow::Result<Arc<Profile>> {
    let text = if traces::is_trace(&path.to_string_lossy()) {
        traces::open(path)?.0
    } else {
        library::profile_text(path)?
    };
    Ok(Arc::new(Profile::parse(&text.path, &text.text)?))
}

/// Creates a machine with `cores` fastest cores behind one last-level cache of `bytes` bytes.
///
/// # Errors
/// Fails if the machine has no shared cache, or if the size is impossible with the cache's ways.
pub(crate) fn behind_one_cache(
    machine: &LoadedMachine,
    cores: u32,
    bytes: u64,
) -> anyhow::Result<LoadedMachine> {
    let topology = &machine.topology;
    let fastest = &topology.cpus[fastest(machine).index()];
    let last = &topology.caches[topology.llc_of(fastest.id).index()];
    if last.private {
        let why = format!(
            "machine {} has no cache that cores share; `steer machine list` shows others",
            machine.machine.name
        );
        return Err(failure(FaultKind::BadInput, why));
    }
    let mut core_type = topology.core_types[fastest.core_type.index()].clone();
    core_type.smt = 1;
    let cpus = CpuSet::first(cores);
    LoadedMachine::of(Machine {
        os_cpus: None,
        cores: vec![Cores {
            core_type: core_type.name.clone(),
            cpus: cpus.clone(),
            sibling_step: 1,
            threads: None,
            socket: 0,
        }],
        core_type: vec![core_type],
        cache: vec![SharedCache {
            level: last.level,
            cpus: cpus.clone(),
            size_kib: bytes as f64 / LINE_BYTES / LINES_PER_KIB,
            ways: last.ways,
            latency_ns: last.latency_ns,
            access_nj: last.access_nj,
        }],
        memory: vec![Memory {
            cpus,
            ..topology.memory[fastest.memory as usize].clone()
        }],
        ..machine.machine.clone()
    })
}

fn fastest(machine: &LoadedMachine) -> CpuId {
    let (fast, _) = machine.topology.extremes();
    let cpus = &machine.topology.cpus;
    let first = cpus.iter().find(|cpu| cpu.core_type == fast);
    first.map_or(CpuId(0), |cpu| cpu.id)
}

/// Returns the size in bytes of the last-level cache of the machine's fastest cores.
#[must_use]
pub fn own_size(machine: &LoadedMachine) -> u64 {
    let topology = &machine.topology;
    let last = topology.llc_of(fastest(machine));
    (topology.caches[last.index()].lines * LINE_BYTES) as u64
}

/// Computes the occupancy of each program in caches of the given sizes, if all programs run at the same time.
///
/// # Errors
/// Fails with the errors of `behind_one_cache`, and if the machine cannot run a profile.
pub fn company(
    machine: &LoadedMachine,
    programs: &[Arc<Profile>],
    sizes: &[u64],
) -> anyhow::Result<CacheCompany> {
    let shared = |bytes: &u64| {
        let parts = parts(
            &behind_one_cache(machine, programs.len() as u32, *bytes)?,
            programs,
        )?;
        let bytes = *bytes;
        anyhow::Ok(SharedOccupancy { bytes, parts })
    };
    let fast = machine.topology.extremes().0;
    Ok(CacheCompany {
        machine: machine.machine.name.clone(),
        core_type: machine.topology.core_types[fast.index()].name.clone(),
        programs: programs.iter().map(|p| p.name().to_owned()).collect(),
        sizes: sizes.iter().map(shared).collect::<Result<_, _>>()?,
    })
}

fn parts(machine: &LoadedMachine, programs: &[Arc<Profile>]) -> anyhow::Result<Vec<ProgramPart>> {
    let mut model = Analytic::new(Arc::clone(&machine.topology), ProgressConfig::default());
    let add = |(cpu, profile): (usize, &Arc<Profile>)| {
        let id = model.add_program(Arc::clone(profile))?;
        anyhow::Ok((id, CpuId(cpu as u32), 1.0))
    };
    let rows = programs.iter().enumerate().map(add);
    let rows = rows.collect::<Result<Vec<(ModelId, CpuId, f64)>, _>>()?;
    let together = model.steady_state(&rows);
    let part = |(row, rates): (&(ModelId, CpuId, f64), SteadyRates)| {
        let alone = model.steady_state(std::slice::from_ref(row));
        ProgramPart {
            bytes: rates.llc_lines * LINE_BYTES,
            mpki: rates.llc_mpki,
            ipc: rates.ipc,
            mpki_alone: alone[0].llc_mpki,
            ipc_alone: alone[0].ipc,
        }
    };
    Ok(rows.iter().zip(together).map(part).collect())
}
