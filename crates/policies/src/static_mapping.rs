//! `static`: puts every program where the user specifies and leaves it there.
//!
//! Idea: a mapping known in advance, for baselines (best, worst, launch mapping) and for experiments with one variable. Source:
//! the launch mappings of CMPSched$im, figure 7. Assumes that the mapping is good for the whole run. Loses whenever programs
//! change phase, start or end, or the user guessed wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::ThreadInfo;
use countersteer_model::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer_model::policy::{
    Needs, ParamDef, Params, Policy, PolicyDef, PolicyError, PolicyRng, View,
};
use countersteer_model::topology::{GroupBy, Topology};
use countersteer_model::units::ThreadId;

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "static",
    summary: "puts programs where you say: static:NAME=TARGET,...",
    source: "CMPSched$im, figure 7 (launch mappings)",
    params: &[ParamDef {
        key: "*",
        default: "",
        prose: "NAME=TARGET: NAME is a program (`mcf`, or `mcf#2` for one copy) or `*` for all others; TARGET is a core \
                group (`golden-cove`, `llc1`, `core3`, `cpu5`) or a CPU list with `+` for commas (`0-3+8`)",
    }],
    make: |params, topology| Ok(Box::new(Static::new(params, topology)?)),
};

struct Static {
    targets: BTreeMap<String, Target>,
    /// Names of the mapping that no program has matched so far.
    unmet: BTreeSet<String>,
    /// Threads that were placed.
    placed: BTreeSet<ThreadId>,
}

impl Static {
    fn new(params: &Params, topology: &Topology) -> Result<Self, PolicyError> {
        let mut targets = BTreeMap::new();
        for (name, text) in params.iter() {
            targets.insert(name.to_owned(), target(name, text, topology)?);
        }
        if targets.is_empty() {
            let why = "it needs at least one NAME=TARGET, as in `static:mcf=cpu0,*=machine`".into();
            return Err(PolicyError::BadValue {
                key: "*".into(),
                value: String::new(),
                why,
            });
        }
        let unmet = targets.keys().filter(|n| *n != "*").cloned().collect();
        Ok(Self {
            targets,
            unmet,
            placed: BTreeSet::new(),
        })
    }

    /// Returns the target of a program, with the name by which it is listed: its full name, the name that its copies share, or
    /// `*`. `None` if it is not listed.
    fn entry(&self, name: &str) -> Option<(&str, &Target)> {
        let base = name.split_once('#').map_or(name, |(base, _)| base);
        [name, base, "*"]
            .into_iter()
            .find_map(|n| self.targets.get_key_value(n))
            .map(|(n, t)| (n.as_str(), t))
    }

    fn place(&self, thread: &ThreadInfo) -> ThreadPlacement {
        let (target, mut rule) = match self.entry(&thread.name) {
            Some((name, target)) => (target.clone(), format!("the given mapping of `{name}`")),
            None => (
                Target::Anywhere,
                format!(
                    "the given mapping does not name `{}`: Linux decides",
                    thread.name
                ),
            ),
        };
        if !self.unmet.is_empty() {
            // A program may start later, so an unmatched name is no error. The reason still shows the name, since it may be
            // misspelt.
            let unmet: Vec<&str> = self.unmet.iter().map(String::as_str).collect();
            rule.push_str(&format!(
                " (no program so far is called `{}`)",
                unmet.join("`, `")
            ));
        }
        ThreadPlacement::new(thread.id, target, Reason::rule(rule))
    }
}

impl Policy for Static {
    fn needs(&self) -> &Needs {
        const NEEDS: &Needs = &Needs::EVENTS;
        NEEDS
    }

    fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        if self.placed.len() == view.threads.len()
            && view.threads.iter().all(|t| self.placed.contains(&t.id))
        {
            return Placement::default();
        }
        for thread in view.threads {
            let base = thread
                .name
                .split_once('#')
                .map_or(&*thread.name, |(base, _)| base);
            self.unmet.remove(&*thread.name);
            self.unmet.remove(base);
        }
        let new = view.threads.iter().filter(|t| !self.placed.contains(&t.id));
        let threads = new.map(|t| self.place(t)).collect();
        self.placed = view.threads.iter().map(|t| t.id).collect();
        Placement {
            threads,
            ..Placement::default()
        }
    }
}

fn target(name: &str, text: &str, topology: &Topology) -> Result<Target, PolicyError> {
    if let Some(group) = topology.group_named(text) {
        return Ok(Target::Group(group.id));
    }
    let bad = |why| PolicyError::BadValue {
        key: name.into(),
        value: text.into(),
        why,
    };
    let starts_like_a_list = text.starts_with(|c: char| c.is_ascii_digit());
    let list = text
        .replace('+', ",")
        .parse::<CpuSet>()
        .ok()
        .filter(|_| starts_like_a_list);
    let Some(cpus) = list.filter(|l| !l.is_empty()) else {
        return Err(bad(format!(
            "it is neither a CPU list nor a core group; there are {}",
            group_names(topology)
        )));
    };
    if cpus.iter().any(|c| c.index() >= topology.cpus.len()) {
        return Err(bad(format!(
            "the machine has CPUs 0-{} only",
            topology.cpus.len().saturating_sub(1)
        )));
    }
    Ok(Target::Cpus(Arc::new(cpus)))
}

/// Returns the names of the core groups of every kind; of a long list, only the first and the last name.
fn group_names(topology: &Topology) -> String {
    let kinds = [
        GroupBy::Machine,
        GroupBy::CoreType,
        GroupBy::Llc,
        GroupBy::Node,
        GroupBy::Socket,
        GroupBy::Core,
        GroupBy::Cpu,
    ];
    let names = kinds
        .into_iter()
        .flat_map(|by| match topology.groups_by(by) {
            [first, .., last] if by != GroupBy::CoreType => {
                vec![format!("{} to {}", first.name, last.name)]
            }
            groups => groups.iter().map(|g| g.name.clone()).collect(),
        });
    names.collect::<Vec<_>>().join(", ")
}
