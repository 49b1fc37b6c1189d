//! Opening counters: every set, on every CPU, for every thread that is there.
//!
//! Input: resolved sets and a target. Output: groups, each a leader and its members, and the rings they write into.
//!
//! A set becomes several groups on a CPU, because the kernel lets a group count only if all of it can: what the kernel
//! counts itself never has to wait and forms one group with the thread's clock, which so knows how long the thread ran on
//! that CPU while the set had its turn; the events of each PMU form another, whose running time says how much of that they
//! really counted.
//!
//! A thread's counts are also told whenever it leaves a CPU, and when it ends: two more members of each group see to that. The
//! kernel tells final counts itself (`inherit_stat`), but writes those of every CPU's events from the CPU on which the thread
//! ends, and two CPUs that write into one ring at once leave it silent for good (seen on 6.18 within seconds of busy births).
//! So an event that does nothing else has them told, into a ring that takes nothing else: what one event tells of several ends the
//! kernel writes one after the other. Where there are several threads first, whose offspring's events are not the same, or the
//! kernel does not tell ([`super::ends`]), the tracepoint of ends asks for a sample instead, where it may.
//!
//! Totals of threads are led by an event that counts nothing: the kernel keeps its times, which are the clock's value. Its clock belongs to
//! another PMU than all else that it counts itself, and PMUs are what relatives exchange, one by one, when they take turns.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use countersteer_core::cpuset::CpuSet;
use countersteer_core::events::EventDef;
use countersteer_core::units::CpuId;
use rustc_hash::FxHashMap;

use super::CounterError;
use super::catalog::{Probe, TASK_CLOCK, probe};
use super::cgroup::mend_of_cgroup;
use super::ends::{NOTHING, SAMPLED};
use super::limits;
use super::resolve::{CoreTypes, Encoding, Resolved};
use super::sys::{self, Attr, RING_BYTES, Ring, Scope, abi};

/// Kind and config of the kernel's own event of a thread that leaves its CPU.
const SWITCHES: (u32, u64) = (
    abi::PERF_TYPE_SOFTWARE,
    abi::PERF_COUNT_SW_CONTEXT_SWITCHES as u64,
);

/// What a group's times and values mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupInfo {
    /// Whose tree; 0 where there are no trees.
    pub(super) tree: u32,
    pub(super) cpu: CpuId,
    pub(super) set: u32,
    pub(super) places: Places,
    /// Its running time is the time that the thread ran there.
    pub(super) clock: bool,
    /// Its running time is the time that the set counted.
    pub(super) counts: bool,
    /// Its running time is the first member's value.
    pub(super) timed: bool,
}

/// Which events of a set the members of a group count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    members: Vec<Option<usize>>,
    width: usize,
    whole: bool,
}

impl Places {
    /// By member, the event that it counts, of a set of so many.
    pub(super) fn new(members: Vec<Option<usize>>, width: usize) -> Self {
        let whole = members.iter().copied().eq((0..width).map(Some));
        Self {
            members,
            width,
            whole,
        }
    }

    pub(super) const fn members(&self) -> usize {
        self.members.len()
    }

    /// A bit per event that is counted.
    pub(super) fn present(&self) -> u64 {
        self.members
            .iter()
            .flatten()
            .fold(0, |bits, place| bits | 1u64 << (place % 64))
    }

    /// The members' values in the order of the set's events; zero where another group counts.
    pub(super) fn in_set<'a>(&self, values: &'a [u64], into: &'a mut Vec<u64>) -> &'a [u64] {
        if self.whole {
            return values;
        }
        into.clear();
        into.resize(self.width, 0);
        for (place, value) in self.members.iter().zip(values) {
            if let Some(slot) = place.and_then(|place| into.get_mut(place)) {
                *slot = *value;
            }
        }
        into
    }
}

/// What it means when an event tells what its group has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    Due,
    /// The thread leaves a CPU.
    Leaves,
    Ends,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Whom<'a> {
    /// Threads and what they give birth to, each for itself.
    Threads(&'a [u32]),
    /// Threads and what they give birth to, all together.
    Total(&'a [u32]),
    Cpus,
    /// A control group, by the descriptor of its folder.
    Cgroup(&'a OwnedFd),
}

/// When a thread tells its counts as it leaves a CPU: it is interrupted for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    Each(u64),
    /// Each time, but of those who leave more often only about so many times a second.
    PerSecond(u64),
}

pub(super) struct Opening<'a> {
    pub(super) sets: &'a [Vec<Resolved>],
    pub(super) cpus: &'a CpuSet,
    pub(super) core_types: &'a CoreTypes,
    /// A sample whenever a thread has run that long; 0 for none.
    pub(super) sample_ns: u64,
    /// Instead of that: a sample each so many events of this set, at this place.
    pub(super) every: Option<(usize, usize, u64)>,
    /// Such a sample wakes who waits.
    pub(super) prompt: bool,
    /// The tracepoint of a thread's end, where it may be used.
    pub(super) exit_point: Option<u64>,
    /// The kernel tells final counts itself, too.
    pub(super) kernel_tells: bool,
    /// All threads stem from one that was there first.
    pub(super) one_root: bool,
    /// When a thread's counts are told as it leaves a CPU.
    pub(super) leaving: Leaving,
    /// The first set begins with the program.
    pub(super) on_exec: bool,
    /// Threads that cannot be looked at are passed over.
    pub(super) lenient: bool,
    pub(super) target: String,
}

#[derive(Default)]
pub(super) struct Opened {
    pub(super) infos: Vec<GroupInfo>,
    pub(super) leaders: Vec<OwnedFd>,
    /// The other events of each group.
    members: Vec<Vec<OwnedFd>>,
    /// Group by the identifier of its events, and what it means when that event tells.
    pub(super) ids: FxHashMap<u64, (usize, Says)>,
    /// By CPU: the ring, and the group whose leader has it.
    pub(super) rings: Vec<(Ring, usize)>,
    ring_of: FxHashMap<u32, usize>,
    /// Rings of final counts alone, each with the group whose last member has it, by CPU and place of the group among those of its
    /// thread there. Only groups of several threads that were there first share one.
    pub(super) final_counts: Vec<(Ring, usize)>,
    final_counts_of: FxHashMap<(u32, usize), usize>,
    /// Final counts that the kernel tells of each thread that is born to one with counters.
    pub(super) final_counts_each: u32,
    trees: u32,
    /// Each group's last member is a counter of ends.
    exit_events: bool,
    pub(super) user_only: bool,
}

/// An event of a group: place in the set, event, encoding.
type Member<'a> = (usize, &'a Resolved, &'a Encoding);

/// One group that is to be opened.
struct Group<'a> {
    cpu: CpuId,
    set: usize,
    /// Among those of the CPU.
    nth: usize,
    members: Vec<Member<'a>>,
    clock: bool,
    counts: bool,
}

impl Opened {
    /// Opens everything for `whom`; groups of the first thread are of tree 0, and so on.
    pub(super) fn open(opening: &Opening<'_>, whom: Whom<'_>) -> Result<Self, CounterError> {
        let mut opened = Self {
            user_only: opening.user_only()?,
            ..Self::default()
        };
        let groups = opening.groups(whom);
        let each = files(&groups);
        let times = if let Whom::Threads(tids) | Whom::Total(tids) = whom {
            tids.len() as u64
        } else {
            1
        };
        limits::make_room(each * times)?;
        match whom {
            Whom::Threads(tids) => opened.add_threads(opening, tids)?,
            Whom::Total(tids) => {
                for (tree, tid) in (0..).zip(tids) {
                    for group in &groups {
                        let cpu = (opening.core_types.names.len() > 1).then_some(group.cpu.0);
                        opened.group(opening, group, Scope::Thread(*tid, cpu), tree, false)?;
                    }
                }
            }
            Whom::Cpus => {
                for group in &groups {
                    opened.group(opening, group, Scope::Cpu(group.cpu.0), 0, false)?;
                }
            }
            Whom::Cgroup(folder) => {
                use std::os::fd::AsRawFd;
                for group in &groups {
                    opened.group(
                        opening,
                        group,
                        Scope::Cgroup(folder.as_raw_fd(), group.cpu.0),
                        0,
                        false,
                    )?;
                }
            }
        }
        Ok(opened)
    }

    /// Opens all groups of more threads; their trees follow those that are there.
    pub(super) fn add_threads(
        &mut self,
        opening: &Opening<'_>,
        tids: &[u32],
    ) -> Result<(), CounterError> {
        let groups = opening.groups(Whom::Threads(tids));
        if opening.tells_last(self.user_only) {
            self.final_counts_each = groups.len() as u32;
        }
        for tid in tids {
            let tree = self.trees;
            self.trees += 1;
            for group in &groups {
                match self.group(
                    opening,
                    group,
                    Scope::Thread(*tid, Some(group.cpu.0)),
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
        opening: &Opening<'_>,
        group: &Group<'_>,
        scope: Scope,
        tree: u32,
        ring: bool,
    ) -> Result<(), CounterError> {
        let lead = group.members.iter().find(|m| is_clock(m)).map(|m| m.0);
        let others: Vec<&Member<'_>> = group.members.iter().filter(|m| !is_clock(m)).collect();
        // What belongs to a package has no clock and counts alone.
        let alone = others.iter().any(|m| m.2.system);
        let exit_events = opening.exit_events(ring, self.user_only, &others);
        let inherit = matches!(scope, Scope::Thread(..));
        let mut clock = self.clock(opening, group, ring, lead);
        clock.inherit = inherit;
        let timed = inherit && !ring && !alone;
        if timed {
            (clock.kind, clock.config) = (NOTHING.0, [NOTHING.1, 0, 0, 0]);
        }
        let mut fds: Vec<OwnedFd> = Vec::with_capacity(others.len() + 1);
        let mut places = Vec::with_capacity(others.len() + 1);
        if !alone {
            fds.push(sys::open(&clock, scope, None).map_err(|e| opening.refused("task_clock", e))?);
            places.push(lead);
        }
        for member in &others {
            let mut attr = self.member(&clock, member, fds.is_empty());
            let asked = opening
                .every
                .filter(|e| ring && (e.0, e.1) == (group.set, member.0));
            // What tells already when the thread leaves a CPU need not be opened twice.
            let tells = is_switches(member) && !exit_events.contains(&SWITCHES);
            (attr.period, attr.frequency) = asked.map_or(
                if tells {
                    opening.leaving.rate()
                } else {
                    (0, false)
                },
                |e| (e.2, false),
            );
            let refused = |e| opening.refused(&member.1.planned.name, e);
            fds.push(sys::open(&attr, scope, fds.first()).map_err(refused)?);
            places.push(Some(member.0));
        }
        let mut says = vec![Says::Due; fds.len()];
        self.exit_events |= exit_events.iter().any(|f| f.0 == abi::PERF_TYPE_TRACEPOINT);
        let tells_last = exit_events.last() == Some(&NOTHING);
        for exit_event in exit_events {
            // The kernel ends the members last to first, and the first to go still sees the whole group.
            let (tell_at_exit, (kind, config)) = (exit_event == NOTHING, exit_event);
            let (period, frequency) = match kind {
                _ if tell_at_exit => (SAMPLED, false),
                abi::PERF_TYPE_TRACEPOINT => (1, false),
                _ => opening.leaving.rate(),
            };
            let config = [config, 0, 0, 0];
            let disabled = false;
            let enable_on_exec = false;
            let follow = false;
            let lead = Attr {
                disabled,
                enable_on_exec,
                follow,
                ..clock.clone()
            };
            let attr = Attr {
                kind,
                config,
                period,
                frequency,
                tell_at_exit,
                ..lead
            };
            fds.push(
                sys::open(&attr, scope, fds.first())
                    .map_err(|e| opening.refused("context_switches", e))?,
            );
            places.push(None);
            says.push(if exit_event == SWITCHES {
                Says::Leaves
            } else {
                Says::Ends
            });
        }
        let width = opening.sets[group.set].len();
        let set = group.set as u32;
        let cpu = group.cpu;
        let timed = timed && lead.is_some();
        let places = Places::new(places, width);
        let info = GroupInfo {
            tree,
            cpu,
            set,
            places,
            clock: group.clock,
            counts: group.counts,
            timed,
        };
        let final_counts = tells_last.then_some(group.nth);
        self.keep(info, (fds, says), ring, final_counts)
    }

    /// The clock that leads a group and asks for its samples.
    fn clock(
        &self,
        opening: &Opening<'_>,
        group: &Group<'_>,
        ring: bool,
        lead: Option<usize>,
    ) -> Attr {
        Attr {
            kind: abi::PERF_TYPE_SOFTWARE,
            config: [TASK_CLOCK, 0, 0, 0],
            exclude_kernel: self.user_only,
            disabled: true,
            enable_on_exec: opening.on_exec && group.set == 0,
            follow: ring && group.set == 0 && group.clock,
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

    /// Another member of a clock's group, or one that leads where there is no clock.
    fn member(&self, clock: &Attr, (_, event, encoding): &Member<'_>, leads: bool) -> Attr {
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

    /// Keeps a group, which may have a ring, and its last member one for final counts.
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
                // Both kinds of rings have to do with what an ordinary user may have.
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

    /// Gives an event of final counts a ring for those alone; whether there is room for one.
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

    /// What a group has counted: enabled and running time, values by member.
    pub(super) fn total(
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

    /// Closes the groups of trees, but for those that own a ring: others write to it.
    pub(super) fn close(&mut self, trees: &[u32]) {
        let owners: Vec<usize> = self
            .rings
            .iter()
            .chain(&self.final_counts)
            .map(|(_, owner)| *owner)
            .collect();
        let goes =
            |(nth, info): (usize, &GroupInfo)| trees.contains(&info.tree) && !owners.contains(&nth);
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

    /// One of the counters of ends, the last of which is slow to close.
    pub(super) fn slow(&self) -> Option<&OwnedFd> {
        self.members
            .first()
            .and_then(|members| members.last())
            .filter(|_| self.exit_events)
    }

    /// Switches the groups of a set on or off.
    pub(super) fn switch(&self, set: u32, on: bool) -> Result<(), CounterError> {
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

impl Leaving {
    /// A period, and whether it is a frequency.
    const fn rate(self) -> (u64, bool) {
        match self {
            Self::Each(times) => (times, false),
            Self::PerSecond(times) => (times, true),
        }
    }
}

fn retain_not<T>(rows: &mut Vec<T>, going: &[bool]) {
    let mut going = going.iter();
    rows.retain(|_| going.next().is_none_or(|goes| !goes));
}

/// What targets that are control groups are called, in front of their path.
pub(super) const CGROUP: &str = "CPUs for ";

impl Opening<'_> {
    /// Whether only user mode may be counted; an error if that does not do.
    fn user_only(&self) -> Result<bool, CounterError> {
        match probe(abi::PERF_TYPE_SOFTWARE, TASK_CLOCK) {
            Probe::UserOnly => {}
            Probe::Forbidden => return Err(self.forbidden("task_clock", 2)),
            _ => return Ok(false),
        }
        let blind = self
            .sets
            .iter()
            .flatten()
            .find(|e| e.in_kernel || !e.space.user);
        blind.map_or(
            Ok(true),
            |event| Err(self.forbidden(&event.planned.name, 1)),
        )
    }

    /// Kind and config of the events that a group of these needs besides, so that a thread's counts are told when it leaves a CPU
    /// and, the last one, when it ends; or one that tells only that.
    fn exit_events(&self, ring: bool, user_only: bool, members: &[&Member<'_>]) -> Vec<(u32, u64)> {
        if !ring {
            return Vec::new();
        }
        // An event that asks for readings must not be taken for one that only tells.
        let is_there = self.every.is_none() && members.iter().any(|member| is_switches(member));
        let switch = (!user_only && !is_there).then_some(SWITCHES);
        let exit = self
            .traces(user_only)
            .map(|point| (abi::PERF_TYPE_TRACEPOINT, point));
        switch
            .into_iter()
            .chain(exit.or(self.tells_last(user_only).then_some(NOTHING)))
            .collect()
    }

    /// Whether the kernel is what tells final counts.
    fn tells_last(&self, user_only: bool) -> bool {
        self.kernel_tells && self.traces(user_only).is_none()
    }

    /// The tracepoint of a thread's end, if that is what tells its final counts.
    pub(super) fn traces(&self, user_only: bool) -> Option<u64> {
        let spared = self.kernel_tells && self.one_root;
        self.exit_point.filter(|_| !user_only && !spared)
    }

    /// After how much running the clock of a set's groups asks for a sample; 0 for never.
    fn clock_period(&self, set: usize, place: Option<usize>) -> u64 {
        match self.every {
            None => self.sample_ns,
            Some((of_set, at, period)) if of_set == set && place == Some(at) => period,
            Some(_) => 0,
        }
    }

    fn forbidden(&self, event: &str, wanted: i32) -> CounterError {
        let paranoid =
            std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
        let paranoid = paranoid.trim().to_owned();
        CounterError::Forbidden {
            event: event.into(),
            target: self.target.clone(),
            paranoid,
            wanted,
        }
    }

    fn refused(&self, event: &str, source: io::Error) -> CounterError {
        match source.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => {
                self.forbidden(event, if self.target.contains("CPU") { 0 } else { 1 })
            }
            Some(libc::EMFILE | libc::ENFILE) => CounterError::TooManyFiles {
                needed: 1 << 16,
                limit: 0,
            },
            Some(libc::ENOENT) if EventDef::by_name(event).is_some_and(EventDef::is_software) => {
                self.uncounted(event, source)
            }
            _ => CounterError::Refused {
                event: event.into(),
                target: self.target.clone(),
                source,
            },
        }
    }

    /// What the kernel counts anywhere it does not count for some control groups.
    fn uncounted(&self, event: &str, source: io::Error) -> CounterError {
        match self.target.strip_prefix(CGROUP).map(Path::new) {
            Some(path) => CounterError::CgroupUncounted {
                path: path.into(),
                mend: mend_of_cgroup(path),
            },
            None => CounterError::Refused {
                event: event.into(),
                target: self.target.clone(),
                source,
            },
        }
    }

    /// The groups of every set on every CPU.
    fn groups(&self, whom: Whom<'_>) -> Vec<Group<'_>> {
        let together = matches!(whom, Whom::Total(_)) && self.core_types.names.len() == 1;
        let cpus: Vec<CpuId> = self
            .cpus
            .iter()
            .take(if together { 1 } else { usize::MAX })
            .collect();
        let sets = || self.sets.iter().enumerate();
        let on = |cpu: &CpuId| {
            let mut groups: Vec<_> = sets()
                .flat_map(|(nth, set)| groups_of_set(*cpu, nth, set))
                .collect();
            groups
                .iter_mut()
                .enumerate()
                .for_each(|(nth, group)| group.nth = nth);
            groups
        };
        cpus.iter().flat_map(on).collect()
    }
}

fn is_clock((_, _, encoding): &Member<'_>) -> bool {
    encoding.software && encoding.config[0] == TASK_CLOCK
}

/// Whether this counts every switch of its thread.
fn is_switches((_, event, encoding): &Member<'_>) -> bool {
    let everywhere = event.space.user && event.space.kernel;
    (encoding.kind, encoding.config[0]) == SWITCHES && everywhere
}

/// Counters that one thread needs.
pub(super) fn files_per_thread(sets: &[Vec<Resolved>], cpus: &CpuSet) -> u64 {
    let sets = || sets.iter().enumerate();
    cpus.iter()
        .flat_map(|cpu| sets().map(move |(nth, set)| files(&groups_of_set(cpu, nth, set))))
        .sum()
}

/// Besides its members a group has a clock and two that ask for samples.
fn files(groups: &[Group<'_>]) -> u64 {
    groups.iter().map(|g| g.members.len() as u64 + 3).sum()
}

fn groups_of_set(cpu: CpuId, set: usize, events: &[Resolved]) -> Vec<Group<'_>> {
    let mut groups = vec![Group {
        cpu,
        set,
        nth: 0,
        members: Vec::new(),
        clock: true,
        counts: true,
    }];
    for (place, event) in events.iter().enumerate() {
        let Some(encoding) = event.on(cpu) else {
            continue;
        };
        let found = groups.iter_mut().find(|g| match g.members.first() {
            _ if encoding.software => g.clock,
            Some((_, _, known)) => !g.clock && known.pmu == encoding.pmu && !encoding.system,
            None => false,
        });
        match found {
            Some(group) => group.members.push((place, event, encoding)),
            None => groups.push(Group {
                cpu,
                set,
                nth: 0,
                members: vec![(place, event, encoding)],
                clock: false,
                counts: !encoding.system,
            }),
        }
    }
    // Where a PMU counts, its running time is what matters.
    if groups.iter().any(|g| !g.clock && g.counts) {
        groups[0].counts = false;
    }
    groups
}
