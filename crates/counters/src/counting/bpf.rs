//! Counting of threads by BPF programs.
//!
//! Input: a [`Follow`], which represents the loaded programs (crate `bpf`), and its reports. Output: the same events as from
//! the ring buffers of per-thread counters. The counters of CPUs count all the time: they are not switched with threads, and
//! a fork opens none. This costs less than per-thread counters, but needs more privileges.
pub(crate) mod interface;

use std::os::fd::OwnedFd;
use std::path::Path;

use countersteer_model::counters::{Cumulative, Ledger, NO_TREE, Owner, SetPlan};
use countersteer_model::units::{CpuId, Nanos};
use countersteer_sysfs::poll::{Poller, Wake};
use countersteer_sysfs::procfs::{PROC, Procfs};

use super::event_sorter::EventSorter;
use super::request::{CountRequest, CountTarget, sample_ns};
use super::task_counters::TaskCounters;
use crate::CounterError;
use crate::perf::open::{GroupInfo, GroupOpening, MemberPlaces, Says};
use crate::perf::sys;
use interface::{BpfLoader, BpfRequest, Follow, SetOfClass, TaskReport};

/// Interval between checks of whether the tables of the programs are almost full.
const LOOK: Nanos = Nanos::from_millis(50);
/// Limit on the time for which the final counts of processes that have exited are awaited.
const PATIENCE: Nanos = Nanos::from_millis(500);
/// Pause between two checks for these counts.
const PAUSE: std::time::Duration = std::time::Duration::from_micros(100);

/// Loads the BPF programs for a request. Returns `None` if they are not possible, and threads get counters of their own
/// instead.
pub(super) fn follow(
    request: &CountRequest,
    spacing_ns: u64,
    (threads, program): (usize, Option<u32>),
    loader: &BpfLoader,
) -> Result<Option<Box<dyn Follow>>, CounterError> {
    let spacing = Nanos(sample_ns(
        request.interval.map_or(u64::MAX, |i| i.0),
        spacing_ns,
    ));
    let core_types = &request.core_types.by_cpu;
    let asked = BpfRequest {
        sets: &request.sets,
        cpus: &request.cpus,
        core_types,
        program,
        threads,
        interval: request.interval,
        spacing,
    };
    let loaded = suits(request)
        .map_err(str::to_owned)
        .and_then(|()| (loader.load)(&asked));
    match loaded {
        Ok(follow) => Ok(Some(follow)),
        Err(reason) if loader.must => Err(CounterError::NoBpf { reason }),
        Err(_) => Ok(None),
    }
}

fn suits(request: &CountRequest) -> Result<(), &'static str> {
    let threads = matches!(
        request.target,
        CountTarget::Launch(_)
            | CountTarget::Processes(_)
            | CountTarget::Present(_)
            | CountTarget::Threads(_)
    );
    if !threads || request.total {
        return Err("that is for threads counted one by one: of a program, of -p or of -t");
    }
    if request.every.is_some() {
        return Err("a sample every N events takes counters of the thread's own");
    }
    let mut encodings = request
        .sets
        .iter()
        .flatten()
        .flat_map(|event| &event.encodings);
    if encodings.any(|encoding| encoding.system) {
        return Err("an event belongs to a package or the machine, not to a core");
    }
    if !sees_all_threads(Path::new("/")) {
        return Err("threads have other numbers in the kernel than in this container");
    }
    Ok(())
}

/// True if this process sees the same TIDs as the kernel, which are those of the outermost PID namespace.
#[must_use]
pub fn sees_all_threads(root: &Path) -> bool {
    Procfs::below(root).in_outermost_namespace()
}

/// Bit of the capability CAP_SYS_ADMIN in the effective set.
const CAP_SYS_ADMIN: u64 = 1 << 21;
/// Bit of the capability CAP_PERFMON in the effective set.
const CAP_PERFMON: u64 = 1 << 38;
/// Bit of the capability CAP_BPF in the effective set.
const CAP_BPF: u64 = 1 << 39;

/// True if this process may load BPF programs that observe threads.
#[must_use]
pub fn may_load_programs(root: &Path) -> bool {
    let own = Procfs::below(root).own_status();
    let capabilities = own.map_or(0, |status| status.capabilities);
    let has = |all: u64| capabilities & all == all;
    has(CAP_SYS_ADMIN) || has(CAP_BPF | CAP_PERFMON)
}

pub(super) struct BpfCounters {
    follow: Box<dyn Follow>,
    infos: Vec<GroupInfo>,
    poller: Poller,
    /// PIDs of the threads that existed before counting began.
    pids: Vec<u32>,
}

impl BpfCounters {
    /// Returns counters over loaded programs that follow the threads of the processes `pids`. The descriptors `awaited`
    /// report the exits of these processes.
    pub(super) fn new(
        follow: Box<dyn Follow>,
        plan: &SetPlan,
        pids: Vec<u32>,
        awaited: Vec<OwnedFd>,
    ) -> Result<Self, CounterError> {
        let info = |kind: &SetOfClass| {
            let width = plan
                .sets
                .get(kind.set as usize)
                .map_or(0, |set| set.events.len());
            let places = (0..width)
                .map(|place| (kind.present >> place & 1 == 1).then_some(place))
                .collect();
            let places = MemberPlaces::new(places, width);
            GroupInfo {
                tree: NO_TREE,
                cpu: kind.cpu,
                set: kind.set,
                places,
                clock: true,
                counts: true,
                timed: false,
            }
        };
        let infos = follow.kinds().iter().map(info).collect();
        Ok(Self {
            follow,
            infos,
            poller: Poller::new(awaited).map_err(CounterError::system("listening for signals"))?,
            pids,
        })
    }
}

impl TaskCounters for BpfCounters {
    fn now(&self) -> Nanos {
        Nanos(sys::now())
    }

    fn attach(&mut self, _: &GroupOpening<'_>, threads: &[(u32, u32)]) -> Result<(), CounterError> {
        self.follow
            .adopt(threads)
            .map_err(CounterError::system("following threads in the kernel"))
    }

    fn poller(&mut self) -> &mut Poller {
        &mut self.poller
    }

    fn wait(&mut self, until: Nanos) -> Result<Wake, CounterError> {
        loop {
            let left = until.since(self.now());
            let (wake, _) = self
                .poller
                .wait(left.min(LOOK), &[])
                .map_err(CounterError::system("waiting for counters"))?;
            if left <= LOOK || wake != Wake::default() || self.follow.is_crowded() {
                return Ok(wake);
            }
        }
    }

    fn poll(&mut self, sorter: &mut EventSorter, ledger: &mut Ledger) {
        let Self { follow, infos, .. } = self;
        follow.collect(&mut |at, tid, report| match report {
            // Most reports are counts alone, whose order does not matter, so they skip the sorter.
            TaskReport::Counted {
                pid,
                kind,
                cpu,
                enabled,
                running,
                values,
                alone: true,
            } => {
                let group = &infos[kind];
                let cumulative = Cumulative {
                    at,
                    seen_on: cpu,
                    enabled,
                    running,
                    values,
                };
                ledger.tell(
                    Owner::Thread { pid, tid },
                    group.tree,
                    group.cpu,
                    group.set,
                    &cumulative,
                );
            }
            _ => sorter.report(at, tid, &report),
        });
        sorter.lost = follow.lost();
    }

    fn groups(&self) -> &[GroupInfo] {
        &self.infos
    }

    fn group_of(&self, id: u64) -> Option<(usize, Says)> {
        Some((id as usize, Says::Due))
    }

    /// BPF programs keep no totals besides the counts of threads, so the result is zero.
    fn read(&mut self, group: usize, values: &mut Vec<u64>) -> Result<(u64, u64), CounterError> {
        values.clear();
        values.resize(
            self.infos
                .get(group)
                .map_or(0, |info| info.places.members()),
            0,
        );
        Ok((0, 0))
    }

    fn select(&mut self, set: u32, on: bool) -> Result<(), CounterError> {
        self.follow
            .switch(set, on)
            .map_err(CounterError::system("switching counters"))
    }

    fn is_prompt(&self) -> bool {
        true
    }

    fn follows_while_off(&self) -> bool {
        true
    }

    fn is_crowded(&self) -> bool {
        self.follow.is_crowded()
    }

    /// Waits for final counts. A parent sees the exit of a thread a little before that thread leaves its CPU. So threads of
    /// the awaited processes, and other threads that have exited according to /proc, may still lack their final counts.
    fn wait_for_final_counts(&mut self) {
        let until = self.now() + PATIENCE;
        let mut ending = self.follow.living();
        ending.retain(|(pid, tid)| self.pids.contains(pid) || PROC.has_exited(*tid));
        while !ending.is_empty() && self.now() < until {
            std::thread::sleep(PAUSE);
            let living = self.follow.living();
            ending.retain(|thread| living.contains(thread));
        }
    }

    fn rest(&mut self) -> Vec<((CpuId, u32), Vec<u64>)> {
        let of = |(kind, counts): (usize, Vec<u64>)| {
            self.infos
                .get(kind)
                .map(|info| ((info.cpu, info.set), counts))
        };
        self.follow.rest().into_iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests;
