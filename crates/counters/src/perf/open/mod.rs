//! Opening of counters: every set, on every CPU, for every existing thread.
//!
//! Input: resolved sets and a target. Output: groups, each with a leader and members, and the ring buffers into which they
//! write.
//!
//! A set becomes several groups on a CPU, because the kernel lets a group count only if all its events can count. Software
//! events never wait for a hardware counter. They form one group, led by the thread's clock. The clock's value is the time that
//! the thread ran on that CPU while the set was switched on. The events of each PMU form another group. Its running time is the
//! fraction of that time in which they counted.
//!
//! A thread's counts are also reported whenever it leaves a CPU, and at its exit: each group has two more members for that. The
//! kernel reports final counts (`inherit_stat`), but writes those of every CPU's events from the CPU on which the thread exits.
//! If two CPUs write into one ring buffer at once, it stops permanently (seen on 6.18 within seconds of frequent forks). So
//! final counts are reported by an event of their own, into a ring buffer of their own: the kernel writes the reports of one
//! event one after the other. If the kernel does not report final counts ([`super::final_counts`]), they are known only as a
//! sum.
//!
//! Totals of threads are led by the dummy event, and the running time that the kernel keeps for it replaces the clock's value.
//! The task clock itself belongs to another PMU than other software events. At a switch from a parent to its child, the kernel
//! exchanges their counters PMU by PMU.

mod info;
mod opening;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::CpuId;
use rustc_hash::FxHashMap;

use super::catalog::TASK_CLOCK;
use super::final_counts::{NOTHING, SAMPLED};
use super::limits;
use super::sys::{self, Attr, EventScope, RING_BYTES, Ring, abi};
use crate::CounterError;
pub(crate) use info::{GroupInfo, MemberPlaces};
pub(crate) use opening::{CGROUP, CountedTasks, GroupOpening, Leaving, files_per_thread};
use opening::{GroupMember, OpeningGroup, SWITCHES, files, is_clock, is_switches};

/// Reason for which an event reports the counts of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    Due,
    /// The thread leaves a CPU, or exits.
    Leaves,
}

#[derive(Default)]
pub(crate) struct OpenedGroups {
    pub(crate) infos: Vec<GroupInfo>,
    pub(crate) leaders: Vec<OwnedFd>,
    /// File descriptors of the other events of each group.
    members: Vec<Vec<OwnedFd>>,
    /// Index of the group and reason for the report, by the identifier of an event.
    pub(crate) ids: FxHashMap<u64, (usize, Says)>,
    /// Ring buffer of each CPU, and the index of the group whose leader owns it.
    pub(crate) rings: Vec<(Ring, usize)>,
    /// Index of the ring buffer's group, by CPU.
    ring_of: FxHashMap<u32, usize>,
    /// Ring buffers for final counts alone, each with the index of the group whose last member owns it. Only groups of several
    /// initial threads share such a ring buffer.
    pub(crate) final_counts: Vec<(Ring, usize)>,
    /// Index of the owning group, by the CPU and the index of the group among those of its thread there.
    final_counts_of: FxHashMap<(u32, usize), usize>,
    /// Number of final counts that the kernel reports for each created thread.
    pub(crate) final_counts_each: u32,
    /// Number of trees so far.
    trees: u32,
    /// True if only user mode is counted.
    pub(crate) user_only: bool,
}

impl OpenedGroups {
    /// Opens the groups of threads, CPUs or a control group. The groups of the first thread have tree 0, those of the next have
    /// tree 1, and so on.
    pub(crate) fn open(
        opening: &GroupOpening<'_>,
        whom: CountedTasks<'_>,
    ) -> Result<Self, CounterError> {
        let mut opened = Self {
            user_only: opening.user_only()?,
            ..Self::default()
        };
        let groups = opening.groups(whom);
        let each = files(&groups);
        let times = if let CountedTasks::Threads(tids) | CountedTasks::Total(tids) = whom {
            tids.len() as u64
        } else {
            1
        };
        limits::make_room(each * times)?;
        match whom {
            CountedTasks::Threads(tids) => opened.add_threads(opening, tids)?,
            CountedTasks::Total(tids) => {
                for (tree, tid) in (0..).zip(tids) {
                    for group in &groups {
                        let cpu = (opening.core_types.names.len() > 1).then_some(group.cpu.0);
                        opened.group(opening, group, EventScope::Thread(*tid, cpu), tree, false)?;
                    }
                }
            }
            CountedTasks::Cpus | CountedTasks::Cgroup(_) => {
                opened.add_cpus(opening, whom, opening.cpus)?
            }
        }
        Ok(opened)
    }

    /// Opens the groups of these CPUs, for all threads on them or for those of a control group. The groups form a new tree, so
    /// that their counts are added to earlier ones.
    pub(crate) fn add_cpus(
        &mut self,
        opening: &GroupOpening<'_>,
        whom: CountedTasks<'_>,
        cpus: &CpuSet,
    ) -> Result<(), CounterError> {
        let tree = self.trees;
        self.trees += 1;
        for group in &opening.groups(whom) {
            if !cpus.contains(group.cpu) {
                continue;
            }
            let scope = match whom {
                CountedTasks::Cgroup(folder) => EventScope::Cgroup(folder.as_raw_fd(), group.cpu.0),
                _ => EventScope::Cpu(group.cpu.0),
            };
            self.group(opening, group, scope, tree, false)?;
        }
        Ok(())
    }

    /// Opens the event groups of additional threads, with consecutive tree indexes.
    pub(crate) fn add_threads(
        &mut self,
        opening: &GroupOpening<'_>,
        tids: &[u32],
    ) -> Result<(), CounterError> {
        let groups = opening.groups(CountedTasks::Threads(tids));
        if opening.reports_final_counts {
            self.final_counts_each = groups.len() as u32;
        }
        for tid in tids {
            let tree = self.trees;
            self.trees += 1;
            for group in &groups {
                match self.group(
                    opening,
                    group,
                    EventScope::Thread(*tid, Some(group.cpu.0)),
                    tree,
                    true,
                ) {
                    Err(error) if error.is_of_end(*tid) => break,
                    Err(CounterError::Refused { .. } | CounterError::Forbidden { .. })
                        if opening.lenient =>
                    {
                        break;
                    }
                    other => other?,
                }
            }
        }
        Ok(())
    }

    fn group(
        &mut self,
        opening: &GroupOpening<'_>,
        group: &OpeningGroup<'_>,
        scope: EventScope,
        tree: u32,
        ring: bool,
    ) -> Result<(), CounterError> {
        let lead = group.members.iter().find(|m| is_clock(m)).map(|m| m.0);
        let others: Vec<&GroupMember<'_>> = group.members.iter().filter(|m| !is_clock(m)).collect();
        // An event of a package (not of a core) has no clock and counts alone.
        let alone = others.iter().any(|m| m.2.system);
        let exit_events = opening.exit_events(ring, self.user_only, &others);
        let inherit = matches!(scope, EventScope::Thread(..));
        let mut clock = self.clock(opening, group, ring, lead);
        clock.inherit = inherit;
        let timed = inherit && !ring && !alone;
        if timed {
            (clock.kind, clock.config) = (NOTHING.0, [NOTHING.1, 0, 0, 0]);
        }
        let mut files = GroupFiles::default();
        if !alone {
            let refused = |e| opening.refused("task_clock", e);
            files.open(&clock, scope, (lead, Says::Due), refused)?;
        }
        // If the set itself counts context switches, that event reports the counts, and no second one is needed.
        let switches_tell = !exit_events.contains(&SWITCHES);
        for member in &others {
            let mut attr = self.member(&clock, member, files.fds.is_empty());
            (attr.period, attr.frequency) = match opening.every {
                Some((set, place, n)) if ring && (set, place) == (group.set, member.0) => {
                    (n, false)
                }
                _ if switches_tell && is_switches(member) => opening.leaving.rate(),
                _ => (0, false),
            };
            let refused = |e| opening.refused(&member.1.planned.name, e);
            files.open(&attr, scope, (Some(member.0), Says::Due), refused)?;
        }
        let final_counts = (exit_events.last() == Some(&NOTHING)).then_some(group.nth);
        for event in exit_events {
            let attr = exit_attr(opening, &clock, event);
            let refused = |e| opening.refused("context_switches", e);
            files.open(&attr, scope, (None, Says::Leaves), refused)?;
        }
        let info = GroupInfo {
            tree,
            cpu: group.cpu,
            set: group.set as u32,
            places: MemberPlaces::new(files.places, opening.sets[group.set].len()),
            clock: group.clock,
            counts: group.counts,
            timed: timed && lead.is_some(),
        };
        self.keep(info, (files.fds, files.says), ring, final_counts)
    }

    /// Returns the attributes of the clock that leads a group and requests its samples.
    fn clock(
        &self,
        opening: &GroupOpening<'_>,
        group: &OpeningGroup<'_>,
        ring: bool,
        lead: Option<usize>,
    ) -> Attr {
        Attr {
            kind: abi::PERF_TYPE_SOFTWARE,
            config: [TASK_CLOCK, 0, 0, 0],
            exclude_kernel: self.user_only,
            disabled: true,
            enable_on_exec: opening.on_exec && group.set == 0,
            follow: ring && group.clock,
            period: if ring {
                opening.clock_period(group.set, lead)
            } else {
                0
            },
            ring,
            wake_each: ring && opening.prompt && opening.every.is_some(),
            ..Attr::default()
        }
    }

    /// Returns the attributes of another member of a clock's group, or of the leader of a group without a clock.
    fn member(&self, clock: &Attr, (_, event, encoding): &GroupMember<'_>, leads: bool) -> Attr {
        let space = event.space;
        Attr {
            kind: encoding.kind,
            config: encoding.config,
            exclude_user: !space.user && !encoding.system,
            exclude_kernel: (!space.kernel || self.user_only) && !encoding.system,
            enable_on_exec: leads && clock.enable_on_exec,
            disabled: leads,
            follow: false,
            ..clock.clone()
        }
    }

    /// Stores a group. With `ring`, its leader writes into a ring buffer; with `final_counts`, its last member writes into one
    /// for final counts.
    fn keep(
        &mut self,
        info: GroupInfo,
        (mut fds, says): (Vec<OwnedFd>, Vec<Says>),
        ring: bool,
        final_counts: Option<usize>,
    ) -> Result<(), CounterError> {
        let cpu = info.cpu.0;
        let index = self.infos.len();
        if ring {
            let system = CounterError::system("asking for a counter's identifier");
            for (fd, says) in fds.iter().zip(says) {
                self.ids
                    .insert(sys::id(fd).map_err(&system)?, (index, says));
            }
            let failed = |source| CounterError::Ring { cpu, source };
            let mut first = 0;
            if !self.ring_of.contains_key(&cpu) {
                // Both kinds of ring buffers share the memory that an ordinary user may lock.
                let size = if final_counts.is_some() {
                    RING_BYTES / 2
                } else {
                    RING_BYTES
                };
                self.rings
                    .push((Ring::map_sized(&fds[0], size).map_err(failed)?, index));
                self.ring_of.insert(cpu, index);
                first = 1;
            }
            let owner = self.ring_of[&cpu];
            let mut others = fds.split_at(first).1;
            if let (Some(nth), Some((last, before))) = (final_counts, others.split_last())
                && self
                    .tell_final_counts(last, (cpu, nth), index)
                    .map_err(failed)?
            {
                others = before;
            }
            for fd in others {
                let target = if owner == index {
                    &fds[0]
                } else {
                    &self.leaders[owner]
                };
                sys::redirect(fd, target).map_err(failed)?;
            }
        }
        self.infos.push(info);
        self.members.push(fds.drain(1..).collect());
        self.leaders.extend(fds);
        Ok(())
    }

    /// Gives an event of final counts a ring buffer of its own. Returns false if the buffer cannot be mapped.
    fn tell_final_counts(
        &mut self,
        fd: &OwnedFd,
        of: (u32, usize),
        group: usize,
    ) -> io::Result<bool> {
        if let Some(owner) = self.final_counts_of.get(&of) {
            return match self.members[*owner].last() {
                Some(owner) => sys::redirect(fd, owner).map(|()| true),
                None => Ok(false),
            };
        }
        let Ok(ring) = Ring::map_sized(fd, RING_BYTES / 4) else {
            return Ok(false);
        };
        self.final_counts.push((ring, group));
        self.final_counts_of.insert(of, group);
        Ok(true)
    }

    /// Reads the total of a group into `values`, by member. Returns the enabled and running time in ns.
    pub(crate) fn total(
        &self,
        group: usize,
        bytes: &mut Vec<u8>,
        values: &mut Vec<u64>,
    ) -> io::Result<(u64, u64)> {
        let (enabled, running) = sys::read_group(&self.leaders[group], bytes, values)?;
        if let Some(clock) = values.first_mut().filter(|_| self.infos[group].timed) {
            *clock = running;
        }
        Ok((enabled, running))
    }

    /// Closes the groups of trees, except for groups that own a ring buffer, because others write into it.
    pub(crate) fn close(&mut self, trees: &[u32]) {
        self.close_where(|info| trees.contains(&info.tree));
    }

    /// Closes the groups of a CPU that count all threads on it; these have no ring buffers.
    pub(crate) fn close_cpu(&mut self, cpu: CpuId) {
        self.close_where(|info| info.cpu == cpu);
    }

    fn close_where(&mut self, is_over: impl Fn(&GroupInfo) -> bool) {
        let owners: Vec<usize> = self
            .rings
            .iter()
            .chain(&self.final_counts)
            .map(|(_, owner)| *owner)
            .collect();
        let goes = |(nth, info): (usize, &GroupInfo)| is_over(info) && !owners.contains(&nth);
        let going: Vec<bool> = self.infos.iter().enumerate().map(goes).collect();
        let mut next = 0;
        let place = |goes: &bool| {
            next += usize::from(!goes);
            (!goes).then(|| next - 1)
        };
        let places: Vec<Option<usize>> = going.iter().map(place).collect();
        retain_not(&mut self.infos, &going);
        retain_not(&mut self.leaders, &going);
        retain_not(&mut self.members, &going);
        self.ids
            .retain(|_, (group, _)| places[*group].map(|place| *group = place).is_some());
        let rings = self
            .rings
            .iter_mut()
            .chain(&mut self.final_counts)
            .map(|(_, owner)| owner);
        let owners = rings
            .chain(self.ring_of.values_mut())
            .chain(self.final_counts_of.values_mut());
        owners.for_each(|owner| *owner = places[*owner].unwrap_or(*owner));
    }

    /// Switches the groups of a set on or off.
    pub(crate) fn switch(&self, set: u32, on: bool) -> Result<(), CounterError> {
        let groups = self
            .infos
            .iter()
            .zip(&self.leaders)
            .filter(|(info, _)| info.set == set);
        for (_, leader) in groups {
            sys::switch(leader, on).map_err(CounterError::system("switching counters"))?;
        }
        Ok(())
    }
}

fn retain_not<T>(rows: &mut Vec<T>, going: &[bool]) {
    let mut going = going.iter();
    rows.retain(|_| going.next().is_none_or(|goes| !goes));
}

/// Events of a group that is being opened, its leader first.
#[derive(Default)]
struct GroupFiles {
    fds: Vec<OwnedFd>,
    places: Vec<Option<usize>>,
    says: Vec<Says>,
}

impl GroupFiles {
    fn open(
        &mut self,
        attr: &Attr,
        scope: EventScope,
        (place, says): (Option<usize>, Says),
        refused: impl FnOnce(io::Error) -> CounterError,
    ) -> Result<(), CounterError> {
        let fd = sys::open(attr, scope, self.fds.first()).map_err(refused)?;
        self.fds.push(fd);
        self.places.push(place);
        self.says.push(says);
        Ok(())
    }
}

/// Returns the attributes of the event that reports its group's counts when a thread leaves a CPU, or exits.
fn exit_attr(opening: &GroupOpening<'_>, clock: &Attr, event: (u32, u64)) -> Attr {
    // The kernel removes the members of a group from last to first. Only the first one removed still sees the whole group.
    let tell_at_exit = event == NOTHING;
    let (period, frequency) = if tell_at_exit {
        (SAMPLED, false)
    } else {
        opening.leaving.rate()
    };
    Attr {
        kind: event.0,
        config: [event.1, 0, 0, 0],
        period,
        frequency,
        tell_at_exit,
        disabled: false,
        enable_on_exec: false,
        follow: false,
        ..clock.clone()
    }
}
