//! Memory nodes of threads' pages, and NUMA balancing of these pages.
//!
//! Input: the CPUs on which threads run. Output: the node of each thread's pages, for the progress model and the scheduler. A thread's
//! pages are on the node where it first ran (first touch). With NUMA balancing, a scan every second of running time finds accesses
//! from another node. The scheduler then tries to bring the thread home. Pages that two scans in a row find accessed from another
//! node move there (`should_numa_migrate_memory`, kernel/sched/fair.c). The pages of a thread move together, without cost. Only machines whose
//! files have the latency of remote memory (`remote`) have such nodes.

use countersteer_model::topology::Topology;
use countersteer_model::units::{Nanos, ThreadId};

use super::{EngineTimer, Simulation};

/// Running time between two scans of a thread's pages, at least (`scan_period_min_ms`).
pub(super) const SCAN: Nanos = Nanos::from_millis(1_000);
/// Running time on another node after which two scans have found its accesses.
const TWO_SCANS: Nanos = Nanos::from_millis(2_000);

/// Pages of one thread.
#[derive(Clone, Copy, Debug, Default)]
struct ThreadPages {
    /// Memory node; `None` before the thread has run.
    home: Option<u32>,
    /// Running time on another node since the thread last ran at home.
    away: Nanos,
    /// Running time at the last scan.
    scanned: Nanos,
}

/// Pages of all threads, on a machine with several memory nodes.
#[derive(Clone, Debug)]
pub(super) struct Homes {
    threads: Vec<ThreadPages>,
    /// Number of times that a thread's pages moved, and that a thread was brought home.
    pub moved: u64,
    pub returned: u64,
}

impl Homes {
    /// Returns `None` for a machine on which all memory counts as local.
    pub fn new(topology: &Topology) -> Option<Self> {
        let remote = topology.memory.len() > 1 && topology.memory.iter().any(|m| m.remote > 1.0);
        remote.then(|| Self {
            threads: Vec::new(),
            moved: 0,
            returned: 0,
        })
    }

    fn of(&mut self, id: ThreadId) -> &mut ThreadPages {
        if self.threads.len() <= id.index() {
            self.threads.resize(id.index() + 1, ThreadPages::default());
        }
        &mut self.threads[id.index()]
    }
}

impl Simulation {
    /// Notes the node on which a thread first runs.
    pub(super) fn touch_first(&mut self, id: ThreadId) {
        let Some(homes) = &mut self.homes else {
            return;
        };
        let node = self.topology.cpus[self.threads[id.index()].cpu.index()].memory;
        let pages = homes.of(id);
        if pages.home.is_none() {
            pages.home = Some(node);
            self.progress.set_home(id, node, self.now);
        }
    }

    /// Scans the pages of all threads, and schedules the next scan.
    pub(super) fn scan(&mut self) {
        let next = (self.now + SCAN, EngineTimer::Scan);
        self.timers.push(std::cmp::Reverse(next));
        for row in 0..self.threads.len() {
            let id = ThreadId::from_index(row);
            if self.threads[row].alive {
                self.scan_pages(id);
            }
        }
    }

    fn scan_pages(&mut self, id: ThreadId) {
        let ran = self.linux.run_time(id);
        let node = self.topology.cpus[self.linux.cpu_of(id).index()].memory;
        let now = self.now;
        let Some(homes) = &mut self.homes else {
            return;
        };
        let pages = homes.of(id);
        let Some(home) = pages.home else {
            return;
        };
        let lately = ran.since(pages.scanned);
        pages.scanned = ran;
        if ran < SCAN || lately == Nanos::ZERO {
            return;
        }
        if node == home {
            pages.away = Nanos::ZERO;
            self.linux.set_home(id, home);
            return;
        }
        pages.away += lately;
        if pages.away >= TWO_SCANS {
            (pages.home, pages.away) = (Some(node), Nanos::ZERO);
            homes.moved += 1;
            self.progress.set_home(id, node, now);
            self.linux.set_home(id, node);
            return;
        }
        self.linux.set_home(id, home);
        if self.linux.return_home(id, now)
            && let Some(homes) = &mut self.homes
        {
            homes.returned += 1;
        }
    }
}
