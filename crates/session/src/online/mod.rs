//! `steer profile --online`: measures miss curves of running programs, as profiles for the simulator.
//!
//! Input: processes that share a cache, or a command to start. Output: a tabulated profile of each program, with IPC and misses
//! by cache size for each core type it used. If resctrl is available, way masks limit the measured program's cache. Otherwise
//! co-runners limit it: the other given programs, or filler processes if only one program is given. The co-runners are slowed
//! down in steps (PMCTrack, section 4.3.1).

mod curve;

use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use countersteer_live::online::counted::OfProcess;
use countersteer_live::online::duty::{Brake, Duty};
use countersteer_live::online::ways::WaySqueeze;
use countersteer_live::online::{OnlinePoints, OnlineSource as _, Schedule, Squeeze, sweep};
use countersteer_live::undo::{TemporaryJournal, journal_folder, restore};
use countersteer_model::profile::Tabulated;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos};
use countersteer_profiler::this_program;
use countersteer_sysfs::procfs::PROC;
use countersteer_sysfs::sensors::SensorSet;

use crate::error::{FaultKind, failure};
use crate::interrupt;
use crate::notice;
use crate::steering::cleanup;
pub use curve::CurveSummary;
use curve::{tabulated, whole_kib};

/// Method of limiting the cache of the measured program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum SqueezeMethod {
    /// Way masks (resctrl)
    Ways,
    /// Co-runners that compete for the cache and are slowed down in steps
    CoRunners,
}

/// Options of `steer profile --online`.
pub struct Online<'a> {
    /// PIDs of the running programs to measure, which share a cache; empty if a command is started.
    pub pids: &'a [u32],
    pub command: &'a [String],
    pub by: Option<SqueezeMethod>,
    pub rounds: u32,
    pub dwell: Nanos,
    pub name: Option<&'a str>,
    /// Events to count: instructions, cycles and misses, or substitutes for them.
    pub events: &'a str,
    /// Directory with the machine's `sys`: `/`, or a tree that imitates a machine.
    pub root: &'a Path,
}

/// Program whose miss curve is measured.
struct SqueezedProgram {
    pid: u32,
    child: Option<Child>,
    name: String,
}

impl SqueezedProgram {
    fn started(command: &[String]) -> anyhow::Result<Self> {
        let [program, arguments @ ..] = command else {
            return Err(failure(
                FaultKind::Usage,
                "name processes with -p, or a program after `--`",
            ));
        };
        let child = Command::new(program).args(arguments).spawn();
        let child = child.with_context(|| format!("cannot start `{program}`"))?;
        let file = Path::new(program).file_name();
        let name = file.map_or(program.clone(), |n| n.to_string_lossy().into_owned());
        Ok(Self {
            pid: child.id(),
            child: Some(child),
            name,
        })
    }

    fn running(pid: u32) -> anyhow::Result<Self> {
        let name = PROC.name_of(pid)?.ok_or_else(|| {
            failure(
                FaultKind::Missing,
                format!("there is no process {pid}; see `ps`"),
            )
        })?;
        Ok(Self {
            pid,
            child: None,
            name,
        })
    }

    fn threads(&self) -> Vec<u32> {
        PROC.threads(self.pid)
    }

    fn runs(&mut self) -> bool {
        match &mut self.child {
            Some(child) => matches!(child.try_wait(), Ok(None)),
            None => PROC.has(self.pid),
        }
    }
}

/// Filler processes that compete for the cache; they are killed when this value is dropped.
struct CoRunners(Vec<Child>);

impl Drop for CoRunners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts the command, or looks up the given PIDs. Returns the programs to measure, each with a unique name.
fn programs(online: &Online<'_>) -> anyhow::Result<Vec<SqueezedProgram>> {
    let mut programs: Vec<SqueezedProgram> = match online.pids {
        [] => vec![SqueezedProgram::started(online.command)?],
        pids => pids
            .iter()
            .map(|pid| SqueezedProgram::running(*pid))
            .collect::<Result<_, _>>()?,
    };
    if let (Some(name), [only]) = (online.name, programs.as_mut_slice()) {
        only.name = name.to_owned();
    }
    let names: Vec<String> = programs.iter().map(|p| p.name.clone()).collect();
    for program in &mut programs {
        let namesakes = names.iter().filter(|name| **name == program.name);
        if namesakes.count() > 1 {
            program.name = format!("{}-{}", program.name, program.pid);
        }
    }
    Ok(programs)
}

/// Checks the options before any program starts or any setting changes; returns an error if they are invalid.
fn check(online: &Online<'_>) -> anyhow::Result<()> {
    let several = online.pids.len() > 1;
    let usage = |why: &str| Err(failure(FaultKind::Usage, why));
    let twice = (1..online.pids.len()).any(|n| online.pids[..n].contains(&online.pids[n]));
    if twice {
        return usage("a process is named twice; give each -p once");
    }
    if several && online.name.is_some() {
        return usage("--name is for one profile, and several processes are given; omit it");
    }
    OfProcess::open(&[std::process::id()], online.events)?;
    Ok(())
}

/// Miss curves that were measured.
pub struct MeasuredCurves {
    /// Exit code of the program that was started, or 0.
    pub exit_code: u8,
    pub summaries: Vec<CurveSummary>,
}

/// Measures the miss curves of the programs, one after the other, and passes each program's profile to `keep`.
///
/// # Errors
/// The options are invalid, a program does not start, or its events cannot be counted; errors of `keep`.
pub fn run(
    online: &Online<'_>,
    keep: &mut dyn FnMut(&str, &Tabulated) -> anyhow::Result<()>,
) -> anyhow::Result<MeasuredCurves> {
    check(online)?;
    let machine = countersteer_sysfs::topology::detect(online.root)?;
    let topology = Topology::new(&machine);
    // Restores settings that an earlier, killed run has changed.
    restore(&journal_folder())?;
    // Declared before the changes, so it is dropped after all of them.
    let _cleanup = cleanup::start();
    let mut undo = TemporaryJournal::begin(&journal_folder())?;
    let stopped = interrupt::flag()?;
    let mut programs = programs(online)?;
    let mut measured: Vec<CurveSummary> = Vec::new();
    let mut code = 0;
    for nth in 0..programs.len() {
        let others: Vec<u32> = programs.iter().map(|p| p.pid).collect();
        let program = &mut programs[nth];
        let others: Vec<u32> = others
            .into_iter()
            .filter(|pid| *pid != program.pid)
            .collect();
        let mut whole = OfProcess::open(&program.threads(), online.events)?;
        whole.begin()?;
        let (curves, how) = curves(online, program, &others, &topology, &mut undo, &stopped)?;
        if let Some(child) = &mut program.child {
            code = child.wait()?.code().unwrap_or(1);
        }
        let instructions: f64 = whole.end()?.values().map(|s| s.instructions).sum();
        let (profile, summaries) = tabulated(&program.name, curves, &topology, instructions, how)?;
        measured.extend(summaries);
        keep(&program.name, &profile)?;
    }
    drop(undo);
    Ok(MeasuredCurves {
        exit_code: code as u8,
        summaries: measured,
    })
}

fn curves(
    online: &Online<'_>,
    program: &mut SqueezedProgram,
    others: &[u32],
    topology: &Topology,
    undo: &mut TemporaryJournal,
    stopped: &AtomicBool,
) -> anyhow::Result<(OnlinePoints, &'static str)> {
    let root = online.root;
    let by = online.by.unwrap_or(if WaySqueeze::possible(root) {
        SqueezeMethod::Ways
    } else {
        SqueezeMethod::CoRunners
    });
    let mut fillers = CoRunners(Vec::new());
    let mut squeeze: Box<dyn Squeeze> = match by {
        SqueezeMethod::Ways => {
            let kib = whole_kib(topology);
            Box::new(WaySqueeze::open(root, &program.threads(), kib, undo)?)
        }
        SqueezeMethod::CoRunners if others.is_empty() => {
            let brakes = brakes_of_fillers(&mut fillers, topology, root, undo)?;
            let pids: Vec<u32> = fillers.0.iter().map(Child::id).collect();
            Box::new(duty(program, brakes, &pids, topology, online)?)
        }
        SqueezeMethod::CoRunners => {
            let brake = |pid: &u32| Brake::of_other(*pid, undo);
            let brakes = others.iter().map(brake).collect::<Result<_, _>>()?;
            let own = Brake::of_other(program.pid, undo)?;
            let duty = duty(program, brakes, others, topology, online)?;
            Box::new(duty.with_own(own))
        }
    };
    let mut source = OfProcess::open(&program.threads(), online.events)?;
    let dwell = Duration::from_nanos(online.dwell.0);
    let schedule = Schedule {
        settle: dwell,
        dwell,
        rounds: online.rounds,
    };
    let spinner = notice::busy(&format!("measuring {}", program.name));
    let mut wait = |time| wait(time, stopped, || spinner.tick());
    let mut goes_on = || program.runs() && !stopped.load(Ordering::Relaxed);
    let curves = sweep(
        &mut *squeeze,
        &mut source,
        schedule,
        &mut wait,
        &mut goes_on,
    );
    drop(spinner);
    Ok((curves?, how(by, others)))
}

/// Waits for `time`, or until `stopped` is true. Calls `tick` at least every 50 ms.
fn wait(time: Duration, stopped: &AtomicBool, mut tick: impl FnMut()) {
    let begun = Instant::now();
    while begun.elapsed() < time && !stopped.load(Ordering::Relaxed) {
        std::thread::sleep((time - begun.elapsed().min(time)).min(Duration::from_millis(50)));
        tick();
    }
}

/// Returns a description of the method that limited the program's cache, for the profile.
const fn how(by: SqueezeMethod, others: &[u32]) -> &'static str {
    match by {
        SqueezeMethod::Ways => "way masks of resctrl, all other programs in the other ways",
        SqueezeMethod::CoRunners if others.is_empty() => {
            "co-runners slowed down in steps; cache by share of the misses, or by resctrl's monitoring"
        }
        SqueezeMethod::CoRunners => {
            "the programs that it ran with, then itself, slowed down in steps; cache by share of the misses, or by resctrl's monitoring"
        }
    }
}

/// Starts up to four filler processes, fewer if fewer CPUs share the cache. Each writes to a buffer of twice the cache size.
/// Returns their brakes, which slow them down.
fn brakes_of_fillers(
    fillers: &mut CoRunners,
    topology: &Topology,
    root: &Path,
    undo: &mut TemporaryJournal,
) -> anyhow::Result<Vec<Brake>> {
    let shared = topology.llc_of(CpuId(0));
    let sharers = topology
        .cpus
        .iter()
        .filter(|cpu| topology.llc_of(cpu.id) == shared)
        .count();
    let bytes = (2.0 * 1024.0 * whole_kib(topology)) as usize;
    let mut brakes = Vec::new();
    for _ in 1..sharers.clamp(2, 5) {
        let mut filler = this_program::command()?;
        filler.args(["internal", "fill", &bytes.to_string()]);
        this_program::end_with_this_thread(&mut filler);
        let child = filler.spawn().context("cannot start a co-runner")?;
        let pid = child.id();
        let journalled = undo.helper(&child);
        fillers.0.push(child);
        journalled?;
        brakes.push(Brake::new(root, pid, undo)?);
    }
    Ok(brakes)
}

/// Creates the controller that slows co-runners down in steps, and estimates the cache that they leave to the program.
fn duty(
    program: &SqueezedProgram,
    brakes: Vec<Brake>,
    co_runners: &[u32],
    topology: &Topology,
    online: &Online<'_>,
) -> anyhow::Result<Duty<OfProcess>> {
    let mut held = SensorSet::open(online.root, &["llc_occupancy_bytes"]).ok();
    if let Some(meters) = &mut held {
        program
            .threads()
            .into_iter()
            .for_each(|tid| meters.follow(tid));
    }
    let threads: Vec<u32> = co_runners
        .iter()
        .flat_map(|pid| PROC.threads(*pid))
        .collect();
    Ok(Duty::new(
        brakes,
        OfProcess::open(&threads, online.events)?,
        whole_kib(topology),
        held,
    ))
}
