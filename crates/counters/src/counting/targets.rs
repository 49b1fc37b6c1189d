//! Threads of a target at its start.
//!
//! Input: a [`CountTarget`]. Output: the threads that it has at the start, with their processes, and descriptors that report the
//! exits of the processes.
use std::os::fd::OwnedFd;

use countersteer_sysfs::launch::WaitingProgram;
use countersteer_sysfs::pidfd;

use super::request::CountTarget;
use super::tasks;
use crate::CounterError;

/// Returns the initial threads of a target as pairs of PID and TID.
pub(super) fn roots(
    target: &CountTarget,
    child: Option<&WaitingProgram>,
) -> Result<Vec<(u32, u32)>, CounterError> {
    let mut roots = Vec::new();
    match (target, child) {
        (_, Some(child)) => roots.push((child.pid(), child.pid())),
        (CountTarget::Processes(pids), _) => {
            for pid in pids {
                roots.extend(tasks::of_process(*pid)?.into_iter().map(|tid| (*pid, tid)));
            }
        }
        (CountTarget::Present(pids), _) => {
            for pid in pids {
                // A process that has exited since it was listed is left out.
                roots.extend(
                    tasks::of_process(*pid)
                        .into_iter()
                        .flatten()
                        .map(|tid| (*pid, tid)),
                );
            }
        }
        (CountTarget::Threads(tids), _) => {
            for tid in tids {
                roots.push((tasks::process_of(*tid)?, *tid));
            }
        }
        _ => {}
    }
    Ok(roots)
}

pub(super) fn cgroup(target: &CountTarget) -> Result<Option<OwnedFd>, CounterError> {
    let CountTarget::Cgroup(path) = target else {
        return Ok(None);
    };
    let failed = |source| CounterError::Cgroup {
        path: path.clone(),
        source,
    };
    let folder = std::fs::File::open(path).map_err(failed)?;
    // Only control groups have this file. Without the check, another folder would be accepted, and counting would fail with
    // EBADF.
    std::fs::metadata(path.join("cgroup.procs")).map_err(failed)?;
    Ok(Some(folder.into()))
}

pub(super) fn awaited(roots: &[(u32, u32)]) -> Result<Vec<OwnedFd>, CounterError> {
    pids_of(roots)
        .into_iter()
        .map(|pid| {
            pidfd::open(pid).map_err(|_| CounterError::Gone {
                what: "process",
                id: pid,
            })
        })
        .collect()
}

/// Returns the TIDs of threads that are given as pairs of PID and TID.
pub(super) fn tids_of(threads: &[(u32, u32)]) -> Vec<u32> {
    threads.iter().map(|(_, tid)| *tid).collect()
}

/// Returns the PIDs of threads. The threads of a process have to be adjacent.
pub(super) fn pids_of(threads: &[(u32, u32)]) -> Vec<u32> {
    let mut pids: Vec<u32> = threads.iter().map(|(pid, _)| *pid).collect();
    pids.dedup();
    pids
}
