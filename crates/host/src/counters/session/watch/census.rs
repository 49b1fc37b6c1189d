//! A census: who lives, and what processes use together, for engines that leave threads alone.
//!
//! Input: processes. Output: births, names and ends in rings, and totals that are read when somebody asks. Nothing is written when
//! a thread leaves a CPU, which is what observing threads one by one costs them. A roll inside the kernel does it, where one can be
//! kept and knows enough; else two kinds of events: one that counts nothing and only tells of births and ends, for each CPU since it
//! has a ring; and those of the sets, which are handed down and added up by the kernel.

use std::os::fd::OwnedFd;
use std::time::Duration;

use countersteer_core::counters::{Cumulative, Owner};
use countersteer_core::cpuset::CpuSet;
use countersteer_core::units::{CpuId, Nanos};
use rustc_hash::FxHashMap;

use crate::affinity::task;

use super::super::super::CounterError;
use super::super::super::backend::{Backend, Kernel};
use super::super::super::follow::Follower;
use super::super::super::limits;
use super::super::super::open::{GroupInfo, Opened, Opening, Places, Whom};
use super::super::super::roll::Family;
use super::super::super::sys::{self, Attr, Ring, Scope, abi};

/// No set's: it is never switched off.
const ALWAYS: u32 = u32::MAX;
/// Files per thread and CPU, more or less.
const FILES: u64 = 4;

/// How long is waited for threads that are just ending, and how long in between. Those that take longer are asked again later.
const PATIENCE: Nanos = Nanos::from_millis(10);
const PAUSE: Duration = Duration::from_micros(500);

/// A thread that was there first, with all that it gave birth to.
struct Counted {
    owner: Owner,
    tree: u32,
    by: By,
}

/// Who knows what a tree has counted.
enum By {
    Events(Box<Opened>),
    /// The roll, which calls it so.
    Roll(u32),
}

#[derive(Default)]
pub(super) struct Census {
    trees: Vec<Counted>,
    /// Trees that there ever were, and families of the roll.
    next: u32,
    families: u32,
    /// The clock as a group, if the roll has one.
    clock: Option<GroupInfo>,
    bytes: Vec<u8>,
    values: Vec<u64>,
    placed: Vec<u64>,
}

impl Census {
    /// Takes in threads of a process, whose set `set` counts at once; what befalls them and theirs comes through the backend's
    /// rings. Those that have ended are passed over. What a thread is born to while it is being taken in is told, and not
    /// counted.
    pub(super) fn add(
        &mut self,
        opening: &Opening<'_>,
        (pid, tids): (u32, &[u32]),
        set: usize,
        (backend, follower): (&mut Kernel, &mut Follower),
    ) -> Result<(), CounterError> {
        let now = backend.now();
        if backend.roll.is_some() {
            return self.enter(opening, (pid, tids), (backend, follower), now);
        }
        let told = &mut backend.opened;
        let files = (told.leaders.len() + self.trees.len()) as u64;
        let cpus = opening.cpus.len() as u64;
        limits::make_room(files + tids.len() as u64 * cpus * FILES)?;
        for tid in tids {
            if announce(told, opening.cpus, *tid, self.next)? {
                let mut totals = match Opened::open(opening, Whom::Total(&[*tid])) {
                    Err(error) if error.is_of_end(*tid) => Opened::default(),
                    other => other?,
                };
                totals
                    .infos
                    .iter_mut()
                    .for_each(|info| info.tree = self.next);
                totals.switch(set as u32, true)?;
                follower.groups(&totals.infos);
                self.push((pid, *tid), By::Events(Box::new(totals)), follower, now);
            }
        }
        Ok(())
    }

    /// The same by the roll.
    fn enter(
        &mut self,
        opening: &Opening<'_>,
        (pid, tids): (u32, &[u32]),
        (backend, follower): (&mut Kernel, &mut Follower),
        now: Nanos,
    ) -> Result<(), CounterError> {
        let Some(roll) = &mut backend.roll else {
            return Ok(());
        };
        let clock = self.clock.get_or_insert_with(|| clock(opening.cpus));
        follower.groups(std::slice::from_ref(clock));
        for tid in tids {
            let family = self.families;
            self.families += 1;
            if !roll
                .enter(*tid, family)
                .map_err(CounterError::system("following threads in the kernel"))?
            {
                continue;
            }
            // Of one that had begun to end, nothing would be told any more.
            if task::stat(pid, *tid).is_some() {
                self.push((pid, *tid), By::Roll(family), follower, now);
            } else {
                roll.forget(family);
            }
        }
        Ok(())
    }

    fn push(&mut self, (pid, tid): (u32, u32), by: By, follower: &mut Follower, now: Nanos) {
        let owner = Owner::Thread { pid, tid };
        let tree = self.next;
        self.trees.push(Counted { owner, tree, by });
        follower.root(pid, tid, now);
        self.next += 1;
    }

    /// Switches the groups of a set on or off.
    pub(super) fn switch(&self, set: usize, on: bool) -> Result<(), CounterError> {
        self.trees.iter().try_for_each(|counted| match &counted.by {
            By::Events(totals) => totals.switch(set as u32, on),
            // It has but one set.
            By::Roll(_) => Ok(()),
        })
    }

    /// Reads what trees have counted, or those of them that are over; of these, those whose last word is still to come.
    pub(super) fn read(
        &mut self,
        backend: &mut Kernel,
        follower: &mut Follower,
        over: Option<&[u32]>,
    ) -> Result<Vec<u32>, CounterError> {
        let now = backend.now();
        let late = self.ask_roll(backend, follower, over)?;
        for Counted { owner, by, .. } in self.trees.iter().filter(|counted| is_one(counted, over)) {
            let By::Events(totals) = by else { continue };
            for (nth, group) in totals.infos.iter().enumerate() {
                let (_, running) = totals
                    .total(nth, &mut self.bytes, &mut self.values)
                    .map_err(CounterError::system("reading counters"))?;
                let values = group.places.in_set(&self.values, &mut self.placed);
                let time = |known: bool| if known { Nanos(running) } else { Nanos::ZERO };
                let enabled = time(group.clock);
                let running = time(group.counts);
                let told = Cumulative {
                    at: now,
                    seen_on: group.cpu,
                    enabled,
                    running,
                    values,
                };
                follower
                    .ledger
                    .tell_root(*owner, group.tree, group.cpu, group.set, &told);
            }
        }
        Ok(late)
    }

    /// Reads what the roll knows; of trees that are over, those with threads that have not yet really left their CPUs.
    fn ask_roll(
        &self,
        backend: &mut Kernel,
        follower: &mut Follower,
        over: Option<&[u32]>,
    ) -> Result<Vec<u32>, CounterError> {
        let (Some(roll), Some(clock)) = (&mut backend.roll, &self.clock) else {
            return Ok(Vec::new());
        };
        let until = Nanos(sys::now()) + PATIENCE;
        let asked = |counted: &&Counted| is_one(counted, over) && matches!(counted.by, By::Roll(_));
        let asked: FxHashMap<u32, &Counted> = self
            .trees
            .iter()
            .filter(asked)
            .filter_map(|counted| Some((counted.family()?, counted)))
            .collect();
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let wanted: Vec<u32> = asked.keys().copied().collect();
        let mut known = Vec::with_capacity(asked.len());
        loop {
            known.clear();
            let read = roll.families(&wanted, &mut |nr, family: Family| known.push((nr, family)));
            read.map_err(CounterError::system("asking how long threads ran"))?;
            let leaving = known.iter().any(|(_, family)| family.leaving > 0);
            if over.is_none() || !leaving || sys::now() >= until.0 {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        let at = Nanos(sys::now());
        let mut late = Vec::new();
        for (nr, Family { ran, leaving }) in known {
            let Some(counted) = asked.get(&nr) else {
                continue;
            };
            if over.is_some() && leaving > 0 {
                late.push(counted.tree);
            }
            let told = Cumulative {
                at,
                seen_on: clock.cpu,
                enabled: ran,
                running: ran,
                values: &[ran.0],
            };
            follower
                .ledger
                .tell_root(counted.owner, counted.tree, clock.cpu, clock.set, &told);
        }
        Ok(late)
    }

    /// Closes the counters of trees that are over.
    pub(super) fn close(&mut self, backend: &mut Kernel, over: &[u32]) {
        for counted in self
            .trees
            .extract_if(.., |counted| over.contains(&counted.tree))
        {
            if let (Some(roll), Some(family)) = (&mut backend.roll, counted.family()) {
                roll.forget(family);
            }
        }
    }
}

impl Counted {
    const fn family(&self) -> Option<u32> {
        match self.by {
            By::Events(_) => None,
            By::Roll(family) => Some(family),
        }
    }
}

/// Whether a tree is one of those that are over, if only those are asked for.
fn is_one(counted: &Counted, over: Option<&[u32]>) -> bool {
    over.is_none_or(|over| over.contains(&counted.tree))
}

/// The roll's clock: it is said to be that of the first CPU, as a counter that goes by no CPU is.
fn clock(cpus: &CpuSet) -> GroupInfo {
    let cpu = cpus.iter().next().unwrap_or(CpuId(0));
    GroupInfo {
        tree: 0,
        cpu,
        set: 0,
        places: Places::new(vec![Some(0)], 1),
        clock: true,
        counts: true,
        timed: true,
    }
}

/// Has a thread's births and ends, and those of its offspring, told through the rings; whether it is there.
fn announce(told: &mut Opened, cpus: &CpuSet, tid: u32, tree: u32) -> Result<bool, CounterError> {
    let kind = abi::PERF_TYPE_SOFTWARE;
    let config = [abi::PERF_COUNT_SW_DUMMY.into(), 0, 0, 0];
    let exclude_kernel = told.user_only;
    let inherit = true;
    let follow = true;
    let ring = true;
    let attr = Attr {
        kind,
        config,
        exclude_kernel,
        inherit,
        follow,
        ring,
        ..Attr::default()
    };
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
    match told
        .rings
        .iter()
        .find(|(_, owner)| told.infos[*owner].cpu == cpu)
    {
        Some((_, owner)) => sys::redirect(&fd, &told.leaders[*owner])?,
        None => told.rings.push((Ring::map(&fd)?, told.infos.len())),
    }
    told.infos.push(GroupInfo {
        tree,
        cpu,
        set: ALWAYS,
        places: Places::default(),
        clock: false,
        counts: false,
        timed: false,
    });
    told.leaders.push(fd);
    Ok(())
}
