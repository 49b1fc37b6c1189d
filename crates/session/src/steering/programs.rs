//! Programs to steer: a command, a workload, running processes, or a control group.
//!
//! Input: a command, PIDs, or a parsed workload. Output: [`SteeredPrograms`] for an engine and a record.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use countersteer_live::placer::ProcessRoot;
use countersteer_live::{LiveWorkload, StartingProgram};
use countersteer_model::topology::Topology;
use countersteer_model::units::{Nanos, ProgramId};
use countersteer_model::workload::{Workload, WorkloadProgram, at_program, at_table, cpus_of};
use countersteer_sysfs::cgroup;
use countersteer_sysfs::procfs::{PROC, Status};

use super::error::SteeringError;

/// Programs to steer, with a name and a workload file's text for the record.
pub struct SteeredPrograms {
    /// Live processes, or the commands that start them.
    pub workload: LiveWorkload,
    /// Name of the workload, for the record.
    pub name: String,
    /// Text of the workload file, for the record.
    pub text: String,
}

/// Creates a workload of one program that runs a command.
///
/// # Errors
/// The command cannot be written as a workload, or the signal handler cannot be installed.
pub fn of_command(command: &[String]) -> anyhow::Result<SteeredPrograms> {
    let name = Path::new(&command[0])
        .file_name()
        .map_or_else(|| command[0].clone(), |n| n.to_string_lossy().into());
    let program = WorkloadProgram::of_command(command.to_vec());
    let workload = Workload {
        cgroup: Vec::new(),
        hotplug: Vec::new(),
        name: name.clone(),
        title: String::new(),
        program: vec![program],
    };
    let text =
        toml::to_string(&workload).context("this command cannot be written as a workload")?;
    let start = StartingProgram {
        command: command.to_vec(),
        program: ProgramId(0),
        name: name.as_str().into(),
        nice: 0,
        launch_on: None,
        start: Nanos::ZERO,
    };
    Ok(SteeredPrograms {
        workload: LiveWorkload::of(vec![start])?,
        name,
        text,
    })
}

/// Creates programs from a workload whose programs are commands. `path` and `text` are those of the workload file.
///
/// # Errors
/// A program runs only in the simulator, or its `launch_on` names CPUs that this machine lacks. The error names the line.
pub fn of_workload(
    workload: Workload,
    (path, text): (&str, String),
    topology: &Topology,
) -> anyhow::Result<SteeredPrograms> {
    if !workload.hotplug.is_empty() {
        let why = "only the simulator supports `hotplug`; omit it here".into();
        return Err(at_table(path, &text, ("hotplug", 0), why).into());
    }
    let mut starts: Vec<StartingProgram> = Vec::new();
    let mut names = UniqueNames::of(&workload.program);
    for (row, program) in workload.program.iter().enumerate() {
        let wrong = |why: String| at_program(path, &text, row, why);
        let command = command_of(program).map_err(wrong)?;
        let place = program.launch_on.as_deref();
        let launch_on = place.map(|place| cpus_of(place, topology));
        let launch_on = launch_on.transpose().map_err(wrong)?;
        for _ in 0..program.copies {
            starts.push(StartingProgram {
                command: command.to_vec(),
                program: ProgramId::from_index(starts.len()),
                name: names.next(program, command),
                nice: program.nice,
                launch_on: launch_on.clone(),
                start: Nanos::from_secs_f64(program.start_s),
            });
        }
    }
    let stem = Path::new(path)
        .file_stem()
        .map(|s| s.to_string_lossy().into_owned())
        .unwrap_or_default();
    let name = if workload.name.is_empty() {
        stem
    } else {
        workload.name
    };
    Ok(SteeredPrograms {
        workload: LiveWorkload::of(starts)?,
        name,
        text,
    })
}

/// Returns the command of a program; returns an error if the program has settings that only the simulator supports.
fn command_of(program: &WorkloadProgram) -> Result<&[String], String> {
    let Some(command) = &program.command else {
        return Err("only the simulator runs a `profile`; give a `command` instead".into());
    };
    let simulated = [
        ("threads", program.threads.is_some()),
        ("barriers", program.barriers.is_some()),
        ("chunk_mi", program.chunk_mi.is_some()),
        ("burst_mi", program.burst_mi.is_some()),
        ("cgroup", program.cgroup.is_some()),
        ("uclamp_min", program.uclamp_min.is_some()),
        ("uclamp_max", program.uclamp_max.is_some()),
        ("allowed", program.allowed.is_some()),
        ("scale", (program.scale - 1.0).abs() > f64::EPSILON),
    ];
    match simulated.iter().find(|(_, given)| *given) {
        Some((key, _)) => Err(format!("only the simulator supports `{key}`; omit it here")),
        None => Ok(command),
    }
}

/// Generator of unique program names.
struct UniqueNames<'a> {
    /// Names that the workload gives to programs that have not been named yet; no other program gets them.
    kept: BTreeSet<&'a str>,
    used: BTreeSet<String>,
}

impl<'a> UniqueNames<'a> {
    fn of(programs: &'a [WorkloadProgram]) -> Self {
        let given = programs.iter().filter_map(|p| p.name.as_deref());
        Self {
            kept: given.collect(),
            used: BTreeSet::new(),
        }
    }

    /// Returns the program's given name, or its command's file name, with a suffix `#2`, `#3`, ... if the name is in use.
    fn next(&mut self, program: &'a WorkloadProgram, command: &[String]) -> Arc<str> {
        let file = || Path::new(&command[0]).file_name()?.to_str();
        let given = program.name.as_deref();
        let base = given.or_else(file).unwrap_or(&command[0]);
        if let Some(given) = given {
            self.kept.remove(given);
        }
        let mut name = base.to_owned();
        let mut copy = 1;
        while self.kept.contains(name.as_str()) || self.used.contains(&name) {
            copy += 1;
            name = format!("{base}#{copy}");
        }
        self.used.insert(name.clone());
        name.into()
    }
}

/// Returns the running processes of a program, by its name.
///
/// # Errors
/// There is none, or it belongs to another user.
pub fn running(name: &str) -> Result<Vec<u32>, SteeringError> {
    let own = std::process::id();
    let is_it = |pid: &u32| *pid != own && PROC.name(*pid).is_some_and(|comm| comm == name);
    let pids: Vec<u32> = PROC.processes().into_iter().filter(is_it).collect();
    if pids.is_empty() {
        return Err(SteeringError::NoForeground { name: name.into() });
    }
    check_users(&pids)?;
    Ok(pids)
}

/// Adds running processes.
///
/// # Errors
/// One of them has ended.
pub fn beside(programs: SteeredPrograms, pids: &[u32]) -> anyhow::Result<SteeredPrograms> {
    let first = programs.workload.programs().len();
    let roots = pids.iter().enumerate();
    let roots = roots.map(|(row, pid)| root(*pid, first + row)).collect();
    Ok(SteeredPrograms {
        workload: programs.workload.beside(roots)?,
        ..programs
    })
}

/// Creates programs from running processes, one per PID.
///
/// # Errors
/// A process belongs to another user, or has exited.
pub fn attached(pids: &[u32]) -> anyhow::Result<SteeredPrograms> {
    check_users(pids)?;
    let roots = pids
        .iter()
        .enumerate()
        .map(|(row, pid)| root(*pid, row))
        .collect();
    let numbers = pids
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    let name = format!("process {numbers}");
    let text = format!("# processes {numbers}\n");
    Ok(SteeredPrograms {
        workload: LiveWorkload::found(roots)?,
        name,
        text,
    })
}

fn check_users(pids: &[u32]) -> Result<(), SteeringError> {
    for pid in pids {
        if let Some(user) = foreign_user(*pid) {
            let process = root(*pid, 0).name.to_string();
            return Err(SteeringError::OtherUser { process, user });
        }
    }
    Ok(())
}

/// Returns the user ID of a process whose affinity mask this process may not change; `None` if it may.
fn foreign_user(pid: u32) -> Option<u32> {
    foreign(&PROC.status(std::process::id())?, &PROC.status(pid)?)
}

/// Decides like [`foreign_user`], from the statuses of this process and the other. The kernel requires that this process's
/// effective user is one of the other's users, or the capability CAP_SYS_NICE.
fn foreign(own: &Status, of: &Status) -> Option<u32> {
    const CAP_SYS_NICE: u32 = 23;
    let capable = own.capabilities >> CAP_SYS_NICE & 1 == 1;
    let me = *own.users.get(1)?;
    let first = of.users.first().copied()?;
    (!capable && !of.users.iter().take(2).any(|user| *user == me)).then_some(first)
}

/// Creates a set of programs with all current and future processes of a control group and the groups below it.
///
/// # Errors
/// The folder is not a control group.
pub fn in_cgroup(folder: &Path) -> Result<SteeredPrograms, SteeringError> {
    if !folder.join("cgroup.procs").is_file() {
        return Err(SteeringError::NoControlGroup(folder.to_owned()));
    }
    let shown = folder.display().to_string();
    let folder = folder.to_owned();
    let mut known = std::collections::BTreeMap::new();
    let find = move || {
        let pids = cgroup::members(&folder);
        known.retain(|pid, _| pids.contains(pid));
        let mut next = known
            .values()
            .map(|r: &ProcessRoot| r.program.0 + 1)
            .max()
            .unwrap_or(0);
        for pid in pids {
            known.entry(pid).or_insert_with(|| {
                next += 1;
                root(pid, next as usize - 1)
            });
        }
        known.values().cloned().collect()
    };
    let text = format!("# control group {shown}\n");
    Ok(SteeredPrograms {
        workload: LiveWorkload::finding(Box::new(find)),
        name: shown,
        text,
    })
}

fn root(pid: u32, row: usize) -> ProcessRoot {
    let comm = PROC.name(pid).unwrap_or_default();
    let name = if comm.is_empty() {
        format!("#{pid}")
    } else {
        format!("{comm}#{pid}")
    };
    ProcessRoot {
        pid,
        program: ProgramId::from_index(row),
        name: name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Status, UniqueNames, WorkloadProgram, foreign};

    fn names(programs: &[(Option<&str>, &str, u32)]) -> Vec<String> {
        let program = |(name, command, copies): &(Option<&str>, &str, u32)| WorkloadProgram {
            name: name.map(str::to_owned),
            copies: *copies,
            ..WorkloadProgram::of_command(vec![(*command).to_owned()])
        };
        let programs: Vec<_> = programs.iter().map(program).collect();
        let mut names = UniqueNames::of(&programs);
        let mut all = Vec::new();
        for program in &programs {
            let command = program.command.as_deref().unwrap_or_default();
            all.extend((0..program.copies).map(|_| names.next(program, command).to_string()));
        }
        all
    }

    #[test]
    fn no_two_programs_have_one_name_and_users_have_theirs() {
        let both = [(Some("job"), "/bin/sh", 2), (Some("job#2"), "/bin/sh", 1)];
        assert_eq!(names(&both), ["job", "job#3", "job#2"]);
        let both = [(Some("job#2"), "/bin/sh", 2), (Some("job"), "/bin/sh", 2)];
        assert_eq!(names(&both), ["job#2", "job#2#2", "job", "job#3"]);
        let unnamed = [(None, "/bin/sh", 2), (Some("sh"), "/bin/true", 1)];
        assert_eq!(names(&unnamed), ["sh#2", "sh#3", "sh"]);
        let twice = [(Some("job"), "/bin/sh", 1), (Some("job"), "/bin/sh", 1)];
        assert_eq!(names(&twice), ["job", "job#2"]);
    }

    #[test]
    fn a_process_of_another_user_is_not_to_be_steered_without_the_capability() {
        let of = |user, capabilities| Status {
            users: vec![user; 4],
            capabilities,
            ..Status::default()
        };
        let nobody = of(65534, 0);
        let init = of(0, 0x01ff_ffff_ffff);
        let nice = of(65534, 0x0080_0000);
        assert_eq!(foreign(&nobody, &init), Some(0));
        assert_eq!(foreign(&nobody, &nobody), None);
        assert_eq!(foreign(&init, &nobody), None);
        assert_eq!(foreign(&nice, &init), None);
    }
}
