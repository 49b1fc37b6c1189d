//! Selection of the running processes that may be counted by per-thread counters.
//!
//! Input: the event sets of each thread. Output: processes for [`Target::Present`](crate::CountTarget), and the number of processes
//! that are left out, by reason. Kernel threads are neither counted nor part of those numbers.
use countersteer_model::cpuset::CpuSet;
use countersteer_sysfs::procfs::{PROC, Stat};

use crate::perf::catalog::TASK_CLOCK;
use crate::perf::limits;
use crate::perf::open::files_per_thread;
use crate::perf::resolve::Resolved;
use crate::perf::sys::{self, Attr, EventScope, abi};

/// Limit on open counters. Each counter costs kernel memory, and time whenever its thread enters or leaves a CPU.
const MOST_COUNTERS: u64 = 1 << 16;
/// Number of files kept free for the counters of threads that are created while counters are being opened.
const SPARE: u64 = 1024;

/// Processes that can be counted, and the number of those that cannot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PresentProcesses {
    /// PIDs of the processes that can be counted, in ascending order.
    pub pids: Vec<u32>,
    /// Number of processes that this user may not count.
    pub forbidden: usize,
    /// Number of processes for which the limit on counters was too low; they have the least CPU time.
    pub left_out: usize,
}

/// Process that may be counted, before its counters are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PresentProcess {
    pid: u32,
    threads: u64,
    /// CPU time of the process since its start, in clock ticks.
    ran: u64,
}

impl PresentProcesses {
    /// Returns all processes but this one, for counting without per-thread counters.
    #[must_use]
    pub fn all() -> Self {
        let mut pids: Vec<u32> = candidates().into_iter().map(|c| c.pid).collect();
        pids.sort_unstable();
        Self {
            pids,
            ..Self::default()
        }
    }

    /// Selects the processes for which these sets can be counted on these CPUs. This process itself is left out.
    #[must_use]
    pub fn gather(sets: &[Vec<Resolved>], cpus: &CpuSet) -> Self {
        let each = files_per_thread(sets, cpus).max(1);
        let most = MOST_COUNTERS.min(limits::most().saturating_sub(SPARE)) / each;
        let mut crowd = Self::default();
        let mut permitted = Vec::new();
        for candidate in candidates() {
            match may_count(candidate.pid) {
                Ok(()) => permitted.push(candidate),
                Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => {
                    crowd.forbidden += 1
                }
                // The process has exited since it was listed.
                Err(_) => {}
            }
        }
        let found = permitted.len();
        crowd.pids = fitting(permitted, most);
        crowd.left_out = found - crowd.pids.len();
        // If the limit cannot be raised, the error follows when counters are opened.
        let _ = limits::make_room(most * each + SPARE);
        crowd
    }
}

/// Selects the processes with the most CPU time, as long as their threads do not exceed `most_threads`. Returns their PIDs in
/// ascending order.
fn fitting(mut candidates: Vec<PresentProcess>, most_threads: u64) -> Vec<u32> {
    candidates.sort_by_key(|c| (std::cmp::Reverse(c.ran), c.pid));
    let mut left = most_threads;
    candidates.retain(|c| {
        let fits = c.threads <= left;
        left -= if fits { c.threads } else { 0 };
        fits
    });
    let mut pids: Vec<u32> = candidates.iter().map(|c| c.pid).collect();
    pids.sort_unstable();
    pids
}

fn candidates() -> Vec<PresentProcess> {
    let own = std::process::id();
    PROC.processes()
        .into_iter()
        .filter(|pid| *pid != own)
        .filter_map(|pid| candidate(pid, &PROC.process_stat(pid)?))
        .collect()
}

/// Returns the candidate for a process; `None` for kernel threads and zombies.
fn candidate(pid: u32, stat: &Stat) -> Option<PresentProcess> {
    (!stat.kernel && !stat.zombie).then_some(PresentProcess {
        pid,
        threads: stat.threads,
        ran: stat.ran_ticks,
    })
}

fn may_count(pid: u32) -> std::io::Result<()> {
    let config = [TASK_CLOCK, 0, 0, 0];
    let attr = Attr {
        kind: abi::PERF_TYPE_SOFTWARE,
        config,
        exclude_kernel: true,
        disabled: true,
        ..Attr::default()
    };
    sys::open(&attr, EventScope::Thread(pid, None), None).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_the_kernel_and_what_has_exited_are_no_candidates() {
        let program = Stat {
            threads: 3,
            ran_ticks: 42,
            ..Stat::default()
        };
        let found = candidate(7, &program).unwrap();
        assert_eq!((found.pid, found.threads, found.ran), (7, 3, 42));
        let kernel = Stat {
            kernel: true,
            ..program
        };
        let zombie = Stat {
            zombie: true,
            ..program
        };
        assert_eq!([kernel, zombie].map(|stat| candidate(7, &stat)), [None; 2]);
    }

    #[test]
    fn who_has_run_most_comes_first_as_long_as_there_is_room() {
        let candidate = |(pid, threads, ran)| PresentProcess { pid, threads, ran };
        let all = [(1, 1, 5), (2, 4, 100), (3, 3, 50), (4, 1, 7)]
            .map(candidate)
            .to_vec();
        assert_eq!(fitting(all.clone(), 6), [1, 2, 4]);
        assert_eq!(fitting(all, 100), [1, 2, 3, 4]);
    }
}
