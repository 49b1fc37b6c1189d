//! Foreground program: the parameter `foreground=PROGRAM` of every policy.
//!
//! Input: the placements of a policy. Output: the same placements with two changes. The threads of one program keep Linux's own
//! placement and weight. All other threads have a lower weight while that program lives.
//!
//! A confined thread waits longer for a CPU, and a heavier one is picked earlier (`pick_eevdf`, kernel/sched/fair.c). So the
//! run-queue latency of the program's threads falls.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::engine::Span;
use countersteer_model::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer_model::policy::{Needs, Params, Policy, PolicyError, PolicyRng, View, decide};
use countersteer_model::score::nice_weight;
use countersteer_model::topology::Topology;
use countersteer_model::units::{ProgramId, ThreadId};

/// Key of the parameter.
pub const KEY: &str = "foreground";
/// Nice steps by which other threads give way: their weight is a ninth. In the test on juno-2-4, ten steps lower the 99th
/// percentile of run-queue latency by 71 to 90 %. Five steps lower it by 30 to 37 %.
const STEPS: i8 = 10;
/// Weight of a thread at nice 0.
const NEUTRAL: f64 = 1024.0;

/// Separates the parameter from a specification; `None` if it is not given.
pub(crate) fn split(spec: &str) -> (String, Option<&str>) {
    let Some((name, text)) = spec.split_once(':') else {
        return (spec.to_owned(), None);
    };
    let mut program = None;
    let mut rest = Vec::new();
    for part in text.split(',') {
        match part.split_once('=') {
            Some((key, value)) if key.trim() == KEY => program = Some(value.trim()),
            _ => rest.push(part),
        }
    }
    let rest = rest.join(",");
    let spec = if rest.is_empty() {
        name.to_owned()
    } else {
        format!("{name}:{rest}")
    };
    (spec, program)
}

/// Policy whose decisions leave one program to Linux and make the others give way.
pub(crate) struct ForegroundPolicy {
    inner: Box<dyn Policy>,
    needs: Needs,
    program: String,
    others: BTreeMap<ThreadId, Other>,
}

/// Thread of another program.
struct Other {
    target: Target,
    /// Weight without a foreground program.
    own: u32,
    /// Weight that the thread has now.
    now: u32,
}

impl ForegroundPolicy {
    pub(crate) fn new(inner: Box<dyn Policy>, program: &str) -> Self {
        Self {
            needs: needs(&*inner),
            inner,
            program: program.to_owned(),
            others: BTreeMap::new(),
        }
    }
}

/// True for the name of a foreground program, or for one of its processes on a host (`NAME#PID`).
#[must_use]
pub fn is_foreground(program: &str, name: &str) -> bool {
    name == program || name.split_once('#').is_some_and(|(n, _)| n == program)
}

/// Foreground program of a specification; `None` without one.
#[must_use]
pub fn foreground_of(spec: &str) -> Option<&str> {
    split(spec).1
}

/// Needs of the inner policy, which is called by groups here.
fn needs(inner: &dyn Policy) -> Needs {
    Needs {
        groups: None,
        ..inner.needs().clone()
    }
}

impl Policy for ForegroundPolicy {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn needs_changed(&mut self) -> bool {
        let changed = self.inner.needs_changed();
        if changed {
            self.needs = needs(&*self.inner);
        }
        changed
    }

    fn tune(&mut self, params: &Params, topology: &Arc<Topology>) -> Result<(), PolicyError> {
        self.inner.tune(params, topology)?;
        self.needs = needs(&*self.inner);
        Ok(())
    }

    fn switched(&mut self, ended: &[Span]) {
        self.inner.switched(ended);
    }

    fn decide(&mut self, view: &mut View<'_>, rng: &mut PolicyRng) -> Placement {
        let mut placement = decide(self.inner.as_mut(), view, rng);
        let first: Vec<ProgramId> = view
            .programs
            .iter()
            .filter(|p| is_foreground(&self.program, &p.name))
            .map(|p| p.id)
            .collect();
        let mut entries: BTreeMap<ThreadId, ThreadPlacement> = (placement.threads.drain(..))
            .map(|t| (t.thread, t))
            .collect();
        let is_alive = view.threads.iter().any(|t| first.contains(&t.program));
        let factor = if is_alive { nice_weight(STEPS) } else { 1.0 };
        self.others.retain(|id, _| view.lives(*id));
        for thread in view.threads {
            let entry = entries.get_mut(&thread.id);
            if first.contains(&thread.program) {
                if let Some(entry) = entry {
                    entry.target = Target::Anywhere;
                    entry.weight = None;
                    entry.reason = Reason::rule("the foreground program is left to Linux");
                }
                continue;
            }
            let other = self.others.entry(thread.id).or_insert_with(|| {
                let own = (NEUTRAL * nice_weight(thread.nice)).round() as u32;
                Other {
                    target: Target::Anywhere,
                    own,
                    now: own,
                }
            });
            if let Some(entry) = &entry {
                other.target = entry.target.clone();
                other.own = entry.weight.unwrap_or(other.own);
            }
            let weight = ((f64::from(other.own) * factor).round() as u32).max(1);
            if weight == other.now {
                if let Some(entry) = entry {
                    entry.weight = None;
                }
                continue;
            }
            other.now = weight;
            match entry {
                Some(entry) => entry.weight = Some(weight),
                None => {
                    let why = Reason::rule("gives way to the foreground program");
                    let mut new = ThreadPlacement::new(thread.id, other.target.clone(), why);
                    new.weight = Some(weight);
                    entries.insert(thread.id, new);
                }
            }
        }
        placement.threads = entries.into_values().collect();
        placement
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_is_taken_out_of_a_specification() {
        for (spec, rest, program) in [
            ("hsf", "hsf", None),
            ("hsf:margin=0.1", "hsf:margin=0.1", None),
            ("hsf:foreground=game", "hsf", Some("game")),
            (
                "hsf:margin=0.1, foreground = game ,sf=work",
                "hsf:margin=0.1,sf=work",
                Some("game"),
            ),
        ] {
            assert_eq!(split(spec), (rest.to_owned(), program), "{spec}");
        }
    }
}
