//! A census: who lives, and what processes use together, for engines that leave threads alone.
//!
//! Input: processes. Output: births, names and ends in rings, and totals that are read when somebody asks. Nothing is written when
//! a thread leaves a CPU, which is what observing threads one by one costs them. Two kinds of events do it: one that counts
//! nothing and only tells of births and ends, for each CPU since it has a ring; and those of the sets, which are handed down and
//! added up by the kernel.

use std::os::fd::OwnedFd;

use countersteer_core::counters::{Cumulative, Owner};
use countersteer_core::cpuset::CpuSet;
use countersteer_core::units::{CpuId, Nanos};

use super::super::super::CounterError;
use super::super::super::follow::Follower;
use super::super::super::limits;
use super::super::super::open::{GroupInfo, Opened, Opening, Whom};
use super::super::super::sys::{self, Attr, Ring, Scope, abi};

/// No set's: it is never switched off.
const ALWAYS: u32 = u32::MAX;
/// Files per thread and CPU, more or less.
const FILES: u64 = 4;

/// What a thread that was there first has counted, with all that it gave birth to.
struct Counted {
    owner: Owner,
    tree: u32,
    totals: Opened,
}

/// Totals by tree.
#[derive(Default)]
pub(super) struct Census {
    trees: Vec<Counted>,
    /// Trees that there ever were.
    next: u32,
    bytes: Vec<u8>,
    values: Vec<u64>,
}

impl Census {
    /// Takes in threads of a process, whose set `set` counts at once; what befalls them and theirs comes through the rings of
    /// `told`. Those that have ended are passed over. What a thread is born to while it is being taken in is told, and not
    /// counted.
    pub(super) fn add(
        &mut self,
        opening: &Opening<'_>,
        (pid, tids): (u32, &[u32]),
        set: usize,
        (told, follower): (&mut Opened, &mut Follower),
        now: Nanos,
    ) -> Result<(), CounterError> {
        let (files, cpus) = ((told.leaders.len() + self.trees.len()) as u64, opening.cpus.len() as u64);
        limits::make_room(files + tids.len() as u64 * cpus * FILES)?;
        for tid in tids {
            if announce(told, opening.cpus, *tid, self.next)? {
                let mut totals = match Opened::open(opening, Whom::Total(&[*tid])) {
                    Err(CounterError::Refused { source, .. }) if source.raw_os_error() == Some(libc::ESRCH) => {
                        Opened::default()
                    }
                    other => other?,
                };
                totals.infos.iter_mut().for_each(|info| info.tree = self.next);
                totals.switch(set as u32, true)?;
                follower.groups(&totals.infos);
                let (owner, tree) = (Owner::Thread { pid, tid: *tid }, self.next);
                self.trees.push(Counted { owner, tree, totals });
                follower.root(pid, *tid, now);
                self.next += 1;
            }
        }
        Ok(())
    }

    /// Switches the groups of a set on or off.
    pub(super) fn switch(&self, set: usize, on: bool) -> Result<(), CounterError> {
        self.trees.iter().try_for_each(|counted| counted.totals.switch(set as u32, on))
    }

    /// Reads what trees have counted, or those of them that are over.
    pub(super) fn read(
        &mut self,
        follower: &mut Follower,
        now: Nanos,
        over: Option<&[u32]>,
    ) -> Result<(), CounterError> {
        let wanted = |tree: &u32| over.is_none_or(|over| over.contains(tree));
        for Counted { owner, totals, .. } in self.trees.iter().filter(|counted| wanted(&counted.tree)) {
            for (nth, group) in totals.infos.iter().enumerate() {
                let (_, running) = totals
                    .total(nth, &mut self.bytes, &mut self.values)
                    .map_err(CounterError::system("reading counters"))?;
                let values = in_set(group, &self.values);
                let time = |known: bool| if known { Nanos(running) } else { Nanos::ZERO };
                let (enabled, running) = (time(group.clock), time(group.counts));
                let told = Cumulative { at: now, seen_on: group.cpu, enabled, running, values: &values };
                follower.ledger.tell_root(*owner, group.tree, group.cpu, group.set, &told);
            }
        }
        Ok(())
    }

    /// Closes the counters of trees that are over.
    pub(super) fn close(&mut self, over: &[u32]) {
        self.trees.retain(|counted| !over.contains(&counted.tree));
    }
}

/// Has a thread's births and ends, and those of its offspring, told through the rings; whether it is there.
fn announce(told: &mut Opened, cpus: &CpuSet, tid: u32, tree: u32) -> Result<bool, CounterError> {
    let (kind, config) = (abi::PERF_TYPE_SOFTWARE, [abi::PERF_COUNT_SW_DUMMY.into(), 0, 0, 0]);
    let (exclude_kernel, inherit, follow, ring) = (told.user_only, true, true, true);
    let attr = Attr { kind, config, exclude_kernel, inherit, follow, ring, ..Attr::default() };
    for cpu in cpus.iter() {
        let fd = match sys::open(&attr, Scope::Thread(tid, Some(cpu.0)), None) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(false),
            other => other.map_err(CounterError::system("listening for births and ends"))?,
        };
        keep(told, cpu, fd, tree).map_err(|source| CounterError::Ring { cpu: cpu.0, source })?;
    }
    Ok(true)
}

/// The first event of a CPU has its ring, the others write to it.
fn keep(told: &mut Opened, cpu: CpuId, fd: OwnedFd, tree: u32) -> std::io::Result<()> {
    match told.rings.iter().find(|(_, owner)| told.infos[*owner].cpu == cpu) {
        Some((_, owner)) => sys::redirect(&fd, &told.leaders[*owner])?,
        None => told.rings.push((Ring::map(&fd)?, told.infos.len())),
    }
    told.infos.push(GroupInfo {
        tree,
        cpu,
        set: ALWAYS,
        places: Vec::new(),
        width: 0,
        clock: false,
        counts: false,
        timed: false,
    });
    told.leaders.push(fd);
    Ok(())
}

/// A group's values in the order of its set's events; zero where another group counts.
fn in_set(group: &GroupInfo, values: &[u64]) -> Vec<u64> {
    let mut placed = vec![0; group.width];
    for (place, value) in group.places.iter().zip(values) {
        if let Some(slot) = place.and_then(|place| placed.get_mut(place)) {
            *slot = *value;
        }
    }
    placed
}
