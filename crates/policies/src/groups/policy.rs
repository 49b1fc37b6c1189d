//! Policy `groups`: divides threads and views among instances of other policies, and translates what they decide.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::{Span, ThreadEvent, ThreadEventKind, ThreadInfo};
use countersteer_model::placement::{
    ClockLimit, Placement, Reason, Target, ThreadPlacement, WayClass,
};
use countersteer_model::policy::{Needs, Params, Policy, PolicyError, PolicyRng, View, decide};
use countersteer_model::topology::{GroupBy, Topology};
use countersteer_model::units::{CpuId, GroupId, Nanos, ThreadId};

use crate::interval::DecisionInterval;
use crate::registry;

/// Kinds of groups by name.
const KINDS: &[(&str, GroupBy)] = &[
    ("llc", GroupBy::Llc),
    ("node", GroupBy::Node),
    ("socket", GroupBy::Socket),
    ("core-type", GroupBy::CoreType),
    ("machine", GroupBy::Machine),
];

/// Part of the machine with its policy.
struct MachinePart {
    name: String,
    /// CPUs of the part, by the machine's numbers.
    cpus: Arc<CpuSet>,
    /// CPUs of the part in ascending order; the index is the number in the part.
    numbers: Vec<CpuId>,
    topology: Arc<Topology>,
    policy: Box<dyn Policy>,
    /// Time between decisions of the policy; `None` for the period of the run.
    interval: Option<DecisionInterval>,
    /// Limits on frequencies that the policy set, by the machine's numbers.
    limits: Vec<ClockLimit>,
}

pub(super) struct GroupsPolicy {
    needs: Needs,
    parts: Vec<MachinePart>,
    /// Part of each living thread.
    member: BTreeMap<ThreadId, usize>,
}

impl GroupsPolicy {
    pub fn new(params: &Params, topology: &Arc<Topology>) -> Result<Self, PolicyError> {
        let listed: Vec<(&str, &str)> = params
            .iter()
            .filter(|(key, _)| !matches!(*key, "by" | "policy"))
            .collect();
        let mut parts = Vec::new();
        let mut free: CpuSet = topology.cpus.iter().map(|c| c.id).collect();
        let mut by_list = false;
        for (key, spec) in &listed {
            let cpus = match topology.group_named(key) {
                Some(group) => (*group.cpus).clone(),
                None => {
                    by_list = true;
                    list(key, spec, topology)?
                }
            };
            if let Some(cpu) = cpus.iter().find(|cpu| !free.contains(*cpu)) {
                let why = format!("CPU {} is in another group already", cpu.0);
                return Err(bad(key, spec, why));
            }
            cpus.iter().for_each(|cpu| free.remove(cpu));
            parts.push(part(key, spec, cpus, topology)?);
        }
        let by = params.choice("by", KINDS)?;
        let spec = params.text("policy");
        for group in topology.groups_by(by).iter().filter(|_| !by_list) {
            let cpus: CpuSet = group.cpus.intersection(&free);
            if !cpus.is_empty() {
                parts.push(part(&group.name, spec, cpus, topology)?);
            }
        }
        if by_list && !free.is_empty() {
            parts.push(part("the other CPUs", crate::LINUX, free, topology)?);
        }
        let needs = needs(&parts);
        Ok(Self {
            needs,
            parts,
            member: BTreeMap::new(),
        })
    }

    /// Number of threads of each part.
    fn sizes(&self) -> Vec<usize> {
        let mut sizes = vec![0; self.parts.len()];
        self.member.values().for_each(|part| sizes[*part] += 1);
        sizes
    }

    /// Divides the threads of the view among the parts. Returns placements of those that join a part.
    fn divide(&mut self, view: &View<'_>) -> Vec<ThreadPlacement> {
        self.member.retain(|thread, _| view.lives(*thread));
        let mut sizes = self.sizes();
        let mut joined = Vec::new();
        for thread in view.threads {
            if self.member.contains_key(&thread.id) {
                continue;
            }
            let load =
                |part: usize| (sizes[part] + 1) as f64 / self.parts[part].numbers.len() as f64;
            let here = |part: usize| self.parts[part].cpus.contains(thread.cpu);
            let may = (0..self.parts.len())
                .filter(|part| thread.allowed.intersects(&self.parts[*part].cpus));
            let best =
                may.min_by(|a, b| load(*a).total_cmp(&load(*b)).then(here(*b).cmp(&here(*a))));
            let Some(part) = best else { continue };
            sizes[part] += 1;
            self.member.insert(thread.id, part);
            joined.push(self.join(
                thread.id,
                part,
                "joins the group with the fewest threads by CPU",
            ));
        }
        joined.extend(self.even_out(&mut sizes));
        joined
    }

    /// Moves the newest thread of the fullest part to the emptiest one, if their loads differ by more than one thread per CPU.
    fn even_out(&mut self, sizes: &mut [usize]) -> Option<ThreadPlacement> {
        let load = |part: &usize| sizes[*part] as f64 / self.parts[*part].numbers.len() as f64;
        let most = (0..sizes.len()).max_by(|a, b| load(a).total_cmp(&load(b)))?;
        let least = (0..sizes.len()).min_by(|a, b| load(a).total_cmp(&load(b)))?;
        if load(&most) - load(&least) <= 1.0 {
            return None;
        }
        let (thread, _) = self.member.iter().rev().find(|(_, part)| **part == most)?;
        let thread = *thread;
        self.member.insert(thread, least);
        Some(self.join(
            thread,
            least,
            "changes over to a group with fewer threads by CPU",
        ))
    }

    fn join(&self, thread: ThreadId, part: usize, rule: &str) -> ThreadPlacement {
        let part = &self.parts[part];
        let rule = format!("{rule}: {}", part.name);
        ThreadPlacement::new(
            thread,
            Target::Cpus(Arc::clone(&part.cpus)),
            Reason::rule(rule),
        )
    }
}

impl Policy for GroupsPolicy {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn switched(&mut self, ended: &[Span]) {
        for (nth, part) in self.parts.iter_mut().enumerate() {
            if !part.policy.needs().switches {
                continue;
            }
            let mine = ended
                .iter()
                .filter(|span| self.member.get(&span.thread) == Some(&nth));
            // A thread that was still elsewhere ran for another group.
            let seen = |span: &Span| {
                let cpu = part.inside(span.cpu)?;
                Some(Span { cpu, ..*span })
            };
            let seen: Vec<Span> = mine.filter_map(seen).collect();
            if !seen.is_empty() {
                part.policy.switched(&seen);
            }
        }
    }

    fn decide(&mut self, view: &mut View<'_>, rng: &mut PolicyRng) -> Placement {
        let mut all: BTreeMap<ThreadId, ThreadPlacement> = self
            .divide(view)
            .into_iter()
            .map(|placed| (placed.thread, placed))
            .collect();
        let mut caches: Option<Vec<WayClass>> = None;
        let mut limits_changed = false;
        let member = &self.member;
        for (nth, part) in self.parts.iter_mut().enumerate() {
            let is_due = part.interval.is_none_or(|i| i.is_over(view.now));
            let needs = part.policy.needs();
            if !is_due && (!needs.events || view.events.is_empty()) {
                continue;
            }
            if let Some(interval) = part.interval.as_mut().filter(|_| is_due) {
                interval.begin(view.now);
            }
            let mine = |thread: &&ThreadInfo| member.get(&thread.id) == Some(&nth);
            let threads: Vec<ThreadInfo> = view
                .threads
                .iter()
                .filter(mine)
                .map(|t| part.seen(t))
                .collect();
            let events = part.events(view.events, &threads);
            let mut inside = View {
                now: view.now,
                topology: &part.topology,
                group: None,
                threads: &threads,
                programs: view.programs,
                events: &events,
                metrics: view.metrics,
                forecast: None,
            };
            let placement = decide(part.policy.as_mut(), &mut inside, rng);
            for placed in placement.threads {
                let placed = part.outside(placed, view.topology);
                all.insert(placed.thread, placed);
            }
            if let Some(limits) = placement.clocks {
                limits_changed = true;
                part.limits = limits;
                for limit in &mut part.limits {
                    limit.cpu = part.numbers[limit.cpu.index()];
                }
            }
            if let Some(classes) = placement.caches {
                let classes = classes.into_iter().map(|c| part.class(c, view.topology));
                caches.get_or_insert_default().extend(classes);
            }
        }
        Placement {
            threads: all.into_values().collect(),
            admission: None,
            caches,
            // A list replaces all limits, so those of the other parts are repeated.
            clocks: limits_changed
                .then(|| self.parts.iter().flat_map(|p| p.limits.clone()).collect()),
        }
    }
}

impl MachinePart {
    /// Number that a CPU has inside the part; `None` outside.
    fn inside(&self, cpu: CpuId) -> Option<CpuId> {
        let nth = self.numbers.binary_search(&cpu).ok()?;
        Some(CpuId(nth as u32))
    }

    fn set_inside(&self, cpus: &CpuSet) -> CpuSet {
        cpus.iter().filter_map(|cpu| self.inside(cpu)).collect()
    }

    /// A thread as the part's policy sees it. One that has not yet arrived counts as on the part's first CPU.
    fn seen(&self, thread: &ThreadInfo) -> ThreadInfo {
        ThreadInfo {
            cpu: self.inside(thread.cpu).unwrap_or(CpuId(0)),
            allowed: Arc::new(self.set_inside(&thread.allowed)),
            ..thread.clone()
        }
    }

    /// Events of the part's threads, and exits of all.
    fn events(&self, events: &[ThreadEvent], threads: &[ThreadInfo]) -> Vec<ThreadEvent> {
        let is_mine = |event: &ThreadEvent| {
            event.kind == ThreadEventKind::Exit
                || threads
                    .binary_search_by_key(&event.thread, |t| t.id)
                    .is_ok()
        };
        let seen = |event: &ThreadEvent| {
            let kind = match event.kind {
                ThreadEventKind::Migrate { from, to } => ThreadEventKind::Migrate {
                    from: self.inside(from)?,
                    to: self.inside(to)?,
                },
                other => other,
            };
            Some(ThreadEvent { kind, ..*event })
        };
        events
            .iter()
            .filter(|e| is_mine(e))
            .filter_map(seen)
            .collect()
    }

    /// Group of the machine with the CPUs of one of the part's groups; `None` if the machine has no such group.
    fn group(&self, id: GroupId, machine: &Topology) -> Result<GroupId, CpuSet> {
        let group = self.topology.group(id);
        let cpus: CpuSet = group
            .cpus
            .iter()
            .map(|cpu| self.numbers[cpu.index()])
            .collect();
        let same = machine
            .groups
            .iter()
            .find(|g| g.by == group.by && *g.cpus == cpus);
        same.map(|g| g.id).ok_or(cpus)
    }

    /// A placement of the part's policy in terms of the machine.
    fn outside(&self, placed: ThreadPlacement, machine: &Topology) -> ThreadPlacement {
        let target = match placed.target {
            Target::Anywhere => Target::Cpus(Arc::clone(&self.cpus)),
            Target::Cpus(cpus) => {
                let cpus: CpuSet = cpus.iter().map(|cpu| self.numbers[cpu.index()]).collect();
                Target::Cpus(Arc::new(cpus))
            }
            Target::Group(id) => match self.group(id, machine) {
                Ok(group) => Target::Group(group),
                Err(cpus) => Target::Cpus(Arc::new(cpus)),
            },
        };
        let mut reason = placed.reason;
        reason.alternatives = reason
            .alternatives
            .into_iter()
            .filter_map(|(id, value)| Some((self.group(id, machine).ok()?, value)))
            .collect();
        ThreadPlacement {
            target,
            reason,
            ..placed
        }
    }

    /// A class of the part's policy in terms of the machine; shares of caches that the part has only a part of are dropped.
    fn class(&self, class: WayClass, machine: &Topology) -> WayClass {
        let mut shares = class.shares;
        shares.retain_mut(|share| match self.group(share.llc, machine) {
            Ok(group) => {
                share.llc = group;
                true
            }
            Err(_) => false,
        });
        WayClass {
            name: format!("{}-{}", self.name, class.name).into(),
            members: class.members,
            shares,
        }
    }
}

fn bad(key: &str, value: &str, why: String) -> PolicyError {
    PolicyError::BadValue {
        key: key.into(),
        value: value.into(),
        why,
    }
}

/// CPUs of a list with `+` for commas.
fn list(key: &str, spec: &str, topology: &Topology) -> Result<CpuSet, PolicyError> {
    let there: CpuSet = topology.cpus.iter().map(|c| c.id).collect();
    let cpus = key.replace('+', ",").parse::<CpuSet>().ok();
    let Some(cpus) = cpus.filter(|cpus| !cpus.is_empty()) else {
        let kinds = KINDS.iter().flat_map(|(_, by)| topology.groups_by(*by));
        let names: Vec<&str> = kinds.map(|g| &*g.name).collect();
        let why = format!(
            "`{key}` is neither a core group ({}) nor a CPU list such as 0-3+8",
            names.join(", ")
        );
        return Err(bad(key, spec, why));
    };
    if cpus.is_subset(&there) {
        return Ok(cpus);
    }
    let missing: CpuSet = cpus.iter().filter(|cpu| !there.contains(*cpu)).collect();
    let why = format!("the machine has no CPU {missing}; it has {there}");
    Err(bad(key, spec, why))
}

fn part(
    name: &str,
    spec: &str,
    cpus: CpuSet,
    machine: &Arc<Topology>,
) -> Result<MachinePart, PolicyError> {
    let topology = machine.part(&cpus);
    let types = topology.core_types.len();
    if types > 1 && types < machine.core_types.len() {
        let has: Vec<&str> = topology.core_types.iter().map(|t| &*t.name).collect();
        let why = format!(
            "{name} has the core types {}: a group has one, or all {}",
            has.join(", "),
            machine.core_types.len()
        );
        return Err(bad(name, spec, why));
    }
    let topology = Arc::new(topology);
    let (first, rest) = spec.split_once('/').unwrap_or((spec, ""));
    if first == "groups" {
        return Err(bad(name, spec, "groups have no groups".into()));
    }
    let text = if rest.is_empty() {
        first.to_owned()
    } else {
        format!("{first}:{}", rest.replace('/', ","))
    };
    let policy = registry::parse(&text, &topology)?;
    let interval = policy.needs().period.map(DecisionInterval::new);
    let numbers = cpus.iter().collect();
    Ok(MachinePart {
        name: name.to_owned(),
        cpus: Arc::new(cpus),
        numbers,
        topology,
        policy,
        interval,
        limits: Vec::new(),
    })
}

/// Needs of all parts together: decisions come as often as the most frequent of them.
fn needs(parts: &[MachinePart]) -> Needs {
    let mut all = Needs::NOTHING;
    let mut period: Option<Nanos> = None;
    for part in parts {
        let needs = part.policy.needs();
        for metric in &needs.metrics {
            if !all.metrics.contains(metric) {
                all.metrics.push(metric);
            }
        }
        all.events |= needs.events;
        all.phases |= needs.phases;
        all.switches |= needs.switches;
        period = match (period, needs.period) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
    all.period = period;
    all
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test helper that fails has failed its test
mod tests {
    use super::*;
    use countersteer_model::machine::Machine;

    const SERVER: &str = include_str!("../../../../machines/server-12llc.toml");
    const HYBRID: &str = include_str!("../../../../machines/i9-12900k-8p8e.toml");

    fn made(machine: &str, params: &str) -> Result<GroupsPolicy, PolicyError> {
        let topology = Arc::new(Topology::new(&Machine::parse("m", machine).unwrap()));
        GroupsPolicy::new(&Params::parse(&super::super::DEF, params)?, &topology)
    }

    fn said(machine: &str, params: &str) -> String {
        made(machine, params).err().unwrap().to_string()
    }

    fn parts(groups: &GroupsPolicy) -> Vec<(String, String)> {
        let part = |p: &MachinePart| (p.name.clone(), p.cpus.to_string());
        groups.parts.iter().map(part).collect()
    }

    #[test]
    fn each_cache_is_a_group_unless_another_kind_is_asked_for() {
        let caches = made(SERVER, "").unwrap();
        assert_eq!(caches.parts.len(), 12);
        assert_eq!(parts(&caches)[1], ("llc1".into(), "8-15,104-111".into()));
        let types = made(HYBRID, "by=core-type,policy=mpi").unwrap();
        let names = parts(&types).into_iter().map(|p| p.0).collect::<Vec<_>>();
        assert_eq!(names, ["golden-cove", "gracemont"]);
        assert_eq!(made(SERVER, "by=node").unwrap().parts.len(), 1);
    }

    #[test]
    fn listed_groups_have_their_policies_and_the_other_cpus_are_linux_own() {
        let listed = made(SERVER, "0-7=mpi,8-11+20=aarr/turn_ms=50").unwrap();
        let expected = [
            ("0-7", "0-7"),
            ("8-11+20", "8-11,20"),
            ("the other CPUs", "12-19,21-191"),
        ];
        let expected = expected.map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(parts(&listed), expected);
        let named = made(SERVER, "llc3=mpi").unwrap();
        assert_eq!(named.parts.len(), 12, "the others have the policy of all");
    }

    #[test]
    fn groups_that_cannot_be_are_refused_with_what_there_is() {
        let said_of = |params: &str| said(HYBRID, params);
        let missing = said_of("12-19=aarr");
        assert!(missing.contains("no CPU 16-19; it has 0-15"), "{missing}");
        let twice = said_of("0-3=aarr,3-5=mpi");
        assert!(twice.contains("CPU 3 is in another group"), "{twice}");
        let none = said_of("sockets=aarr");
        assert!(none.contains("neither a core group (llc0, node0"), "{none}");
        let unknown = said_of("0-3=nothing");
        assert!(
            unknown.contains("there is no policy `nothing`"),
            "{unknown}"
        );
        assert!(said_of("policy=groups").contains("groups have no groups"));
        assert!(said_of("by=row").contains("llc, node, socket"));
    }
}
