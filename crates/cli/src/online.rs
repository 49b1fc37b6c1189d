//! `steer profile --online`: the miss curve of a program that runs, as a profile that can be simulated.
//!
//! Input: a process, or a command that is started. Output: a tabulated profile; speed and misses by cache for each type of
//! core that it ran on. Cache is taken from it by way masks where there is resctrl, else by co-runners.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::ValueEnum;
use countersteer_core::profile::{CoreTable, Source, TABLE_SCHEMA, TablePoint, Tabulated};
use countersteer_core::topology::Topology;
use countersteer_core::units::{CpuId, Nanos};
use countersteer_host::counters::{CoreTypes, Pmus};
use countersteer_host::online::counted::OfProcess;
use countersteer_host::online::duty::{Brake, Duty};
use countersteer_host::online::undo::{Step, Undo};
use countersteer_host::online::ways::Ways;
use countersteer_host::online::{Curves, Point, Schedule, Source as _, Squeeze, sweep};
use countersteer_host::own;
use countersteer_host::virtuals::Meters;
use countersteer_report::write_atomically;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error::{Kind, told};
use crate::progress;

/// By what cache is taken from a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Way masks (resctrl)
    Ways,
    /// Co-runners that are slowed down more or less
    CoRunners,
}

/// What was asked for.
pub struct Online<'a> {
    pub pid: Option<u32>,
    pub command: &'a [String],
    pub by: Option<By>,
    pub rounds: u32,
    pub dwell: Nanos,
    pub name: Option<&'a str>,
    pub output: Option<&'a Path>,
    /// Instructions, cycles and misses, or what stands for them.
    pub events: &'a str,
}

/// The program whose curve is wanted.
struct Program {
    pid: u32,
    child: Option<Child>,
    name: String,
}

impl Program {
    fn find(online: &Online<'_>) -> anyhow::Result<Self> {
        let (pid, child) = match (online.pid, online.command) {
            (Some(pid), _) => (pid, None),
            (None, [program, arguments @ ..]) => {
                let child = Command::new(program).args(arguments).spawn();
                let child = child.with_context(|| format!("cannot start `{program}`"))?;
                (child.id(), Some(child))
            }
            (None, []) => return Err(told(Kind::Internal, "there is no program")),
        };
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        let comm = comm.map_err(|_| {
            told(
                Kind::Missing,
                format!("there is no process {pid}; see `ps`"),
            )
        })?;
        let of_command = online
            .command
            .first()
            .and_then(|p| Path::new(p).file_name());
        let name = of_command.map_or_else(
            || comm.trim().to_owned(),
            |n| n.to_string_lossy().into_owned(),
        );
        Ok(Self {
            pid,
            child,
            name: online.name.map_or(name, str::to_owned),
        })
    }

    fn threads(&self) -> Vec<u32> {
        let entries = std::fs::read_dir(format!("/proc/{}/task", self.pid))
            .into_iter()
            .flatten()
            .flatten();
        entries
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect()
    }

    fn runs(&mut self) -> bool {
        match &mut self.child {
            Some(child) => matches!(child.try_wait(), Ok(None)),
            None => Path::new(&format!("/proc/{}", self.pid)).exists(),
        }
    }
}

/// Co-runners, ended when dropped.
struct CoRunners(Vec<Child>);

impl Drop for CoRunners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs the command; passes on the exit code of a program that was started.
pub fn run(online: &Online<'_>) -> anyhow::Result<ExitCode> {
    if online.pid.is_none() && online.command.is_empty() {
        return Err(told(
            Kind::Usage,
            "name a process with -p, or a program after `--`",
        ));
    }
    // Said before anything is started or changed.
    OfProcess::open(&[std::process::id()], online.events)?;
    let machine = countersteer_host::topology::detect(Path::new("/"))?;
    let topology = Topology::new(&machine);
    if let Some(output) = online.output {
        crate::output::check_writable(output)?;
    }
    let mut keeper = own::command()?;
    keeper.args(["internal", "undo"]);
    let mut undo = Undo::start(keeper)?;
    let mut program = Program::find(online)?;
    let mut whole = OfProcess::open(&program.threads(), online.events)?;
    whole.begin()?;
    let (curves, how) = curves(online, &mut program, &topology, &mut undo)?;
    drop(undo);
    let code = match &mut program.child {
        Some(child) => child.wait()?.code().unwrap_or(1),
        None => 0,
    };
    let instructions: f64 = whole.end()?.values().map(|s| s.instructions).sum();
    let profile = tabulated(&program.name, &curves, &topology, instructions, how)?;
    let output = online.output.map_or_else(
        || PathBuf::from(format!("{}.profile.toml", program.name)),
        Path::to_owned,
    );
    let text = toml::to_string(&profile).context("the profile cannot be written as TOML")?;
    write_atomically(&output, text.as_bytes())?;
    let points: usize = profile.core.iter().map(|c| c.points.len()).sum();
    eprintln!(
        "steer: {points} points of the miss curve; profile in {}",
        output.display()
    );
    Ok(ExitCode::from(code as u8))
}

fn curves(
    online: &Online<'_>,
    program: &mut Program,
    topology: &Topology,
    undo: &mut Undo,
) -> anyhow::Result<(Curves, &'static str)> {
    let root = Path::new("/");
    let llc_kib = topology.caches[topology.llc_of(CpuId(0)).index()].lines / 16.0;
    let by = online.by.unwrap_or(if Ways::possible(root) {
        By::Ways
    } else {
        By::CoRunners
    });
    let mut co_runners = CoRunners(Vec::new());
    let (mut squeeze, how): (Box<dyn Squeeze>, _) = match by {
        By::Ways => {
            let ways = Ways::open(root, &program.threads(), llc_kib, undo)?;
            (
                Box::new(ways),
                "way masks of resctrl, everybody else in the other ways",
            )
        }
        By::CoRunners => {
            let duty = duty(
                program,
                &mut co_runners,
                (llc_kib, topology),
                online.events,
                undo,
            )?;
            (
                duty,
                "co-runners slowed down more or less; cache by share of the misses, or as resctrl tells it",
            )
        }
    };
    let mut source = OfProcess::open(&program.threads(), online.events)?;
    let dwell = Duration::from_nanos(online.dwell.0);
    let schedule = Schedule {
        settle: dwell,
        dwell,
        rounds: online.rounds,
    };
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stopped))
            .context("cannot listen for signals")?;
    }
    let spinner = progress::spinner(&format!("measuring {}", program.name));
    let mut wait = |time: Duration| {
        let begun = Instant::now();
        while begun.elapsed() < time && !stopped.load(Ordering::Relaxed) {
            std::thread::sleep((time - begun.elapsed().min(time)).min(Duration::from_millis(50)));
            spinner.tick();
        }
    };
    let mut goes_on = || program.runs() && !stopped.load(Ordering::Relaxed);
    let curves = sweep(
        &mut *squeeze,
        &mut source,
        schedule,
        &mut wait,
        &mut goes_on,
    );
    spinner.finish_and_clear();
    Ok((curves?, how))
}

/// A co-runner for each other CPU of the cache that the program runs on, each writing through twice the cache.
fn duty(
    program: &Program,
    co_runners: &mut CoRunners,
    (llc_kib, topology): (f64, &Topology),
    events: &str,
    undo: &mut Undo,
) -> anyhow::Result<Box<dyn Squeeze>> {
    let root = Path::new("/");
    let mut brakes = Vec::new();
    let shared = topology.llc_of(CpuId(0));
    let sharers = topology
        .cpus
        .iter()
        .filter(|cpu| topology.llc_of(cpu.id) == shared)
        .count();
    let bytes = (2.0 * 1024.0 * llc_kib) as usize;
    for _ in 1..sharers.clamp(2, 5) {
        let mut filler = own::command()?;
        filler.args(["internal", "fill", &bytes.to_string()]);
        let child = filler.spawn().context("cannot start a co-runner")?;
        let pid = child.id();
        co_runners.0.push(child);
        brakes.push(Brake::new(root, pid, undo)?);
        undo.at_end(&Step::End(pid))?;
    }
    let pids: Vec<u32> = co_runners.0.iter().map(Child::id).collect();
    let mut held = Meters::open(root, &["llc_occupancy_bytes"]).ok();
    if let Some(meters) = &mut held {
        program
            .threads()
            .into_iter()
            .for_each(|tid| meters.follow(tid));
    }
    Ok(Box::new(Duty::new(
        brakes,
        OfProcess::open(&pids, events)?,
        llc_kib,
        held,
    )))
}

fn tabulated(
    name: &str,
    curves: &Curves,
    topology: &Topology,
    instructions: f64,
    how: &str,
) -> anyhow::Result<Tabulated> {
    if curves.is_empty() {
        let mend = "give it more work, or shorter stretches (--dwell 100ms)";
        return Err(told(
            Kind::BadInput,
            format!("`{name}` ended, or slept, before a stretch was counted; {mend}"),
        ));
    }
    let types = CoreTypes::of(&Pmus::read(Path::new("/"))?);
    let core_type = |pmu: &str| {
        let row = types.names.iter().position(|n| n == pmu).unwrap_or(0) as u32;
        let cpu = types.by_cpu.iter().position(|r| *r == row).unwrap_or(0);
        let cpu = topology.cpus.get(cpu).map_or(CpuId(0), |c| c.id);
        topology.core_types[topology.core_type_of(cpu).index()]
            .name
            .clone()
    };
    Ok(Tabulated {
        schema: TABLE_SCHEMA.into(),
        name: name.into(),
        source: Source {
            kind: "counters".into(),
            detail: "measured while it ran (steer profile --online)".into(),
            method: how.into(),
        },
        giga_instructions: instructions.max(1.0) * 1e-9,
        core: curves
            .iter()
            .map(|(pmu, points)| table(core_type(pmu), points))
            .collect(),
    })
}

fn table(core_type: String, points: &[Point]) -> CoreTable {
    let (cycles, time) = points.iter().fold((0.0, 0.0), |sum, p| {
        (sum.0 + p.seen.cycles, sum.1 + p.seen.running_ns)
    });
    let point = |p: &Point| TablePoint {
        cache_kib: p.cache_kib,
        ipc: p.seen.instructions / p.seen.cycles,
        llc_mpki: Some(1e3 * p.seen.misses / p.seen.instructions),
    };
    let points = points.iter().map(point).collect();
    CoreTable {
        core_type,
        freq_ghz: cycles / time.max(1.0),
        branch_mpki: None,
        power_w: None,
        points,
    }
}

#[cfg(test)]
mod tests {
    use countersteer_core::machine::Machine;
    use countersteer_core::profile::Profile;
    use countersteer_host::online::Seen;

    use super::*;

    const MACHINE: &str = include_str!("../../../machines/core2-quad.toml");

    #[test]
    fn a_curve_becomes_a_profile_that_the_simulator_takes() {
        let topology = Topology::new(&Machine::parse("m", MACHINE).unwrap());
        let point = |kib: f64, misses: f64| Point {
            cache_kib: kib,
            seen: Seen {
                instructions: 1e9,
                cycles: 1e9 + 100.0 * misses,
                misses,
                running_ns: 5e8,
            },
        };
        let curves: Curves = [(String::new(), vec![point(1024.0, 4e6), point(4096.0, 1e6)])].into();
        let profile = tabulated("mcf", &curves, &topology, 7e9, "h").unwrap();
        let core = &profile.core[0];
        assert_eq!(
            (core.points[0].llc_mpki, core.points[1].ipc),
            (Some(4.0), 1.0 / 1.1)
        );
        assert!(
            (core.freq_ghz - 2.5).abs() < 1e-9 && core.core_type == topology.core_types[0].name
        );
        let text = toml::to_string(&profile).unwrap();
        assert!(
            matches!(Profile::parse("p.toml", &text), Ok(Profile::Tabulated(p)) if p.giga_instructions == 7.0)
        );
        let error = tabulated("mcf", &Curves::new(), &topology, 0.0, "h")
            .unwrap_err()
            .to_string();
        assert!(error.contains("--dwell"), "{error}");
    }
}
