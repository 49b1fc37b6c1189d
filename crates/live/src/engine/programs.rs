//! Names and executable files of the programs that have threads.
//!
//! Input: observations. Output: the programs of their threads. An executable is looked up when a program is first seen,
//! and after each `exec`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::{Observation, ProgramInfo, ThreadEventKind};
use countersteer_model::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer_model::units::{ProgramId, ThreadId};

use countersteer_sysfs::procfs::PROC;

/// Programs that have threads, by id.
#[derive(Default)]
pub(super) struct LivePrograms(BTreeMap<ProgramId, ProgramInfo>);

impl LivePrograms {
    /// Adds the programs of an observation's threads to the observation.
    pub(super) fn fill(&mut self, seen: &mut Observation) {
        let execs = seen.events.iter();
        let execs = execs.filter(|e| e.kind == ThreadEventKind::Exec);
        let execs: BTreeSet<ThreadId> = execs.map(|e| e.thread).collect();
        let mut alive = BTreeSet::new();
        for thread in &seen.threads {
            alive.insert(thread.program);
            if self.0.contains_key(&thread.program) && !execs.contains(&thread.id) {
                continue;
            }
            let info = ProgramInfo {
                id: thread.program,
                name: Arc::clone(&thread.name),
                path: executable(thread.id),
            };
            self.0.insert(thread.program, info);
        }
        self.0.retain(|id, _| alive.contains(id));
        seen.programs = self.0.values().cloned().collect();
    }
}

/// Returns the path of the executable file of a thread's process. `None` if the process has exited or belongs to another
/// user.
fn executable(thread: ThreadId) -> Option<Arc<str>> {
    let path = PROC.executable(thread.0)?;
    Some(path.to_string_lossy().into())
}

/// Returns the placement of a process on the CPUs on which its workload file launches it.
pub(super) fn placed_at_launch(pid: u32, cpus: Arc<CpuSet>) -> Placement {
    let thread = ThreadId(pid);
    let target = Target::Cpus(cpus);
    let reason = Reason::rule("where the workload launches it");
    Placement {
        threads: vec![ThreadPlacement::new(thread, target, reason)],
        ..Placement::default()
    }
}

#[cfg(test)]
mod tests {
    use countersteer_model::engine::{ThreadEvent, ThreadInfo};
    use countersteer_model::units::Nanos;

    use super::*;

    fn thread(id: u32, program: u32) -> ThreadInfo {
        ThreadInfo {
            id: ThreadId(id),
            program: ProgramId(program),
            name: format!("p{program}").into(),
            cpu: Default::default(),
            runnable: true,
            nice: 0,
            allowed: Arc::default(),
            hint: None,
        }
    }

    #[test]
    fn programs_have_their_executables_as_long_as_they_have_threads() {
        let mut programs = LivePrograms::default();
        let here = std::process::id();
        let mut seen = Observation {
            threads: vec![thread(here, 3), thread(u32::MAX, 5)],
            ..Observation::default()
        };
        programs.fill(&mut seen);
        let exe = std::fs::read_link("/proc/self/exe").unwrap();
        assert_eq!(seen.programs[0].id, ProgramId(3));
        assert_eq!(seen.programs[0].path.as_deref(), exe.to_str());
        assert_eq!(
            (&*seen.programs[1].name, &seen.programs[1].path),
            ("p5", &None)
        );
        // The program of a thread without a process is looked up again after its exec.
        seen.threads = vec![thread(here, 5)];
        programs.fill(&mut seen);
        assert_eq!(seen.programs.len(), 1);
        assert_eq!(seen.programs[0].path, None);
        seen.events = vec![ThreadEvent {
            at: Nanos::ZERO,
            thread: ThreadId(here),
            kind: ThreadEventKind::Exec,
        }];
        programs.fill(&mut seen);
        assert_eq!(seen.programs[0].path.as_deref(), exe.to_str());
    }
}
