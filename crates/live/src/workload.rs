//! Live workload: programs that are started at their times, and processes that existed before.
//!
//! Input: programs with their times. Output: the processes that an engine must attach now, and the exit status of each program.
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use countersteer_counters::CounterError;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::{Nanos, ProgramId};
use countersteer_sysfs::launch::{ExitEnding, ProgramStreams, WaitingProgram, find_program, hold};
use countersteer_sysfs::pidfd;

use crate::placer::ProcessRoot;

/// Program that is to be started.
#[derive(Clone, Debug)]
pub struct StartingProgram {
    /// Path or name of the program, and its arguments.
    pub command: Vec<String>,
    /// Index of the program in the workload.
    pub program: ProgramId,
    /// Name of the program, unique in the workload.
    pub name: Arc<str>,
    /// Nice value of the program.
    pub nice: i8,
    /// CPUs on which the program starts; the policy may move it from there. `None` for all CPUs.
    pub launch_on: Option<Arc<CpuSet>>,
    /// Time at which the program starts.
    pub start: Nanos,
}

/// Program of a live workload, with its state.
#[derive(Debug)]
pub struct LiveProgram {
    /// Name of the program, unique in the workload.
    pub name: Arc<str>,
    /// Time at which it was started; `None` before.
    pub started: Option<Nanos>,
    /// Time of the program's end, with its exit status or signal; the status is `None` for a process that existed before.
    pub ended: Option<(Nanos, Option<ExitEnding>)>,
    /// State of the program's process.
    kind: WorkloadKind,
}

#[derive(Debug)]
enum WorkloadKind {
    Waiting(StartingProgram),
    Started(WaitingProgram),
    Found(ProcessRoot, OwnedFd),
}

/// Function that returns all processes that currently belong to the workload, including those known already.
pub type Find = Box<dyn FnMut() -> Vec<ProcessRoot> + Send>;

/// Programs that are started, or followed, until they exit.
#[derive(Default)]
pub struct LiveWorkload {
    programs: Vec<LiveProgram>,
    /// Function that searches for further processes at intervals; the workload then never ends by itself. `None` without a
    /// search.
    find: Option<Find>,
    /// Streams of started programs; `None` for those of this process.
    streams: Option<ProgramStreams>,
}

/// Result of a search for processes.
#[derive(Default)]
pub(super) struct ProcessSearch {
    /// Processes that belong to the workload from now on.
    pub(super) new: Vec<ProcessRoot>,
    /// Processes that no longer belong to the workload.
    pub(super) left: Vec<ProcessRoot>,
}

/// Program that was started and waits before its `exec`.
pub(super) struct Started {
    pub(super) row: usize,
    pub(super) root: ProcessRoot,
    pub(super) launch_on: Option<Arc<CpuSet>>,
}

impl LiveProgram {
    /// Returns the root process if it existed before; `None` for a started program.
    const fn found(&self) -> Option<&ProcessRoot> {
        match &self.kind {
            WorkloadKind::Found(root, _) => Some(root),
            _ => None,
        }
    }
}

impl LiveWorkload {
    /// Creates a workload of programs to start.
    ///
    /// # Errors
    /// Fails if one of the programs does not exist.
    pub fn of(starts: Vec<StartingProgram>) -> Result<Self, CounterError> {
        for start in &starts {
            find_program(&start.command)?;
        }
        let program = |start: StartingProgram| LiveProgram {
            name: Arc::clone(&start.name),
            started: None,
            ended: None,
            kind: WorkloadKind::Waiting(start),
        };
        Ok(Self {
            programs: starts.into_iter().map(program).collect(),
            ..Self::default()
        })
    }

    /// Creates a workload of running processes.
    ///
    /// # Errors
    /// Fails if one of the processes has ended.
    pub fn found(roots: Vec<ProcessRoot>) -> Result<Self, CounterError> {
        let mut workload = Self::default();
        for root in roots {
            workload.take_in(root, Nanos::ZERO)?;
        }
        Ok(workload)
    }

    /// Returns the workload with running processes beside its programs. It ends with the last program that it starts.
    ///
    /// # Errors
    /// Fails if one of the processes has ended.
    pub fn beside(mut self, roots: Vec<ProcessRoot>) -> Result<Self, CounterError> {
        for root in roots {
            self.take_in(root, Nanos::ZERO)?;
        }
        Ok(self)
    }

    /// Creates a workload that searches for its processes repeatedly.
    #[must_use]
    pub fn finding(find: Find) -> Self {
        Self {
            find: Some(find),
            ..Self::default()
        }
    }

    /// Returns the workload with other streams of the programs that it starts.
    #[must_use]
    pub fn with_streams(mut self, streams: Option<ProgramStreams>) -> Self {
        self.streams = streams;
        self
    }

    fn take_in(&mut self, root: ProcessRoot, now: Nanos) -> Result<(), CounterError> {
        let file = pidfd::open(root.pid).map_err(|_| CounterError::Gone {
            what: "process",
            id: root.pid,
        })?;
        let name = Arc::clone(&root.name);
        self.programs.push(LiveProgram {
            name,
            started: Some(now),
            ended: None,
            kind: WorkloadKind::Found(root, file),
        });
        Ok(())
    }

    /// Searches for processes. Returns those found since the last call, and those that have left the workload. Ended ones are
    /// skipped.
    pub(super) fn find(&mut self, now: Nanos) -> ProcessSearch {
        let Some(find) = &mut self.find else {
            return ProcessSearch::default();
        };
        let mut new = find();
        let found: BTreeSet<u32> = new.iter().map(|root| root.pid).collect();
        let mut left = Vec::new();
        self.programs.retain(|member| match &member.kind {
            WorkloadKind::Found(root, file)
                if member.ended.is_none() && !found.contains(&root.pid) && !has_ended(file) =>
            {
                left.push(root.clone());
                false
            }
            _ => true,
        });
        let living = self.programs.iter().filter(|m| m.ended.is_none());
        let known: BTreeSet<u32> = living
            .filter_map(|m| m.found().map(|root| root.pid))
            .collect();
        new.retain(|root| !known.contains(&root.pid));
        self.programs.retain(|m| m.ended.is_none());
        new.retain(|root| self.take_in(root.clone(), now).is_ok());
        ProcessSearch { new, left }
    }

    #[must_use]
    pub fn programs(&self) -> &[LiveProgram] {
        &self.programs
    }

    /// Returns the time at which the next program is to be started; [`Nanos::NEVER`] if there is none.
    #[must_use]
    pub(crate) fn next_start(&self) -> Nanos {
        let waiting = self.programs.iter().filter_map(|m| match &m.kind {
            WorkloadKind::Waiting(start) => Some(start.start),
            _ => None,
        });
        waiting.min().unwrap_or(Nanos::NEVER)
    }

    /// Starts the programs that are due, up to their `exec`. They wait there for [`LiveWorkload::release`].
    ///
    /// # Errors
    /// Fails if a program cannot be started.
    pub(super) fn start(&mut self, now: Nanos) -> Result<Vec<Started>, CounterError> {
        let mut roots = Vec::new();
        for (row, member) in self.programs.iter_mut().enumerate() {
            let WorkloadKind::Waiting(start) = &member.kind else {
                continue;
            };
            if start.start > now {
                continue;
            }
            let held = hold(&start.command, None, self.streams.as_ref())?;
            if start.nice != 0 {
                // SAFETY: this is a plain system call. If it is refused, the program keeps this process's nice value.
                unsafe { libc::setpriority(libc::PRIO_PROCESS, held.pid(), i32::from(start.nice)) };
            }
            let root = ProcessRoot {
                pid: held.pid(),
                program: start.program,
                name: Arc::clone(&start.name),
            };
            roots.push(Started {
                row,
                root,
                launch_on: start.launch_on.clone(),
            });
            member.started = Some(now);
            member.kind = WorkloadKind::Started(held);
        }
        Ok(roots)
    }

    /// Returns the root processes that existed before.
    pub(super) fn roots(&self) -> Vec<ProcessRoot> {
        self.programs
            .iter()
            .filter_map(|m| m.found().cloned())
            .collect()
    }

    /// Returns the PIDs of the programs that have started and not ended.
    pub(super) fn running(&self) -> Vec<u32> {
        let running = self.programs.iter().filter(|m| m.ended.is_none());
        let pid = |member: &LiveProgram| match &member.kind {
            WorkloadKind::Waiting(_) => None,
            WorkloadKind::Started(held) => Some(held.pid()),
            WorkloadKind::Found(root, _) => Some(root.pid),
        };
        running.filter_map(pid).collect()
    }

    /// Lets a started program, given by its index, execute.
    ///
    /// # Errors
    /// Fails if the program cannot be executed.
    pub(super) fn release(&mut self, row: usize) -> Result<(), CounterError> {
        match &mut self.programs[row].kind {
            WorkloadKind::Started(held) => Ok(held.release()?),
            _ => Ok(()),
        }
    }

    /// Records the programs that have exited. Returns true if all have; if some were started here, if those have.
    pub(super) fn reap(&mut self, now: Nanos) -> bool {
        for member in self.programs.iter_mut().filter(|m| m.ended.is_none()) {
            member.ended = match &member.kind {
                WorkloadKind::Waiting(_) => None,
                WorkloadKind::Started(held) => held.ended().map(|ending| (now, Some(ending))),
                WorkloadKind::Found(_, file) => has_ended(file).then_some((now, None)),
            };
        }
        let is_found = |m: &LiveProgram| m.found().is_some();
        let starts = !self.programs.iter().all(is_found);
        let mut awaited = self.programs.iter().filter(|m| !starts || !is_found(m));
        self.find.is_none() && awaited.all(|m| m.ended.is_some())
    }

    /// Sends a signal to the started programs that still run. Returns true if there is at least one.
    pub(super) fn signal(&self, signal: i32) -> bool {
        let running = self.programs.iter().filter(|m| m.ended.is_none());
        let held: Vec<&WaitingProgram> = running
            .filter_map(|m| match &m.kind {
                WorkloadKind::Started(held) => Some(held),
                _ => None,
            })
            .collect();
        held.iter().for_each(|h| h.signal(signal));
        !held.is_empty()
    }

    /// Returns the first exit code other than zero of a started program; 0 if there is none.
    #[must_use]
    pub fn exit_code(&self) -> i32 {
        let codes = self
            .programs
            .iter()
            .filter_map(|m| m.ended?.1)
            .map(ExitEnding::code);
        codes.into_iter().find(|c| *c != 0).unwrap_or(0)
    }
}

fn has_ended(file: &OwnedFd) -> bool {
    use std::os::fd::AsFd;
    let mut fds = [nix::poll::PollFd::new(
        file.as_fd(),
        nix::poll::PollFlags::POLLIN,
    )];
    nix::poll::poll(&mut fds, nix::poll::PollTimeout::ZERO).is_ok_and(|n| n > 0)
}
