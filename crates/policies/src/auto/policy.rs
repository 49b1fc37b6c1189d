//! The policy: a candidate of the ground decides, and its trial shows if it helps.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::ThreadInfo;
use countersteer_model::placement::{
    AdmissionTable, Clamp, Placement, PlacementState, Reason, Target, ThreadPlacement,
};
use countersteer_model::policy::{
    Needs, ParamDef, Params, Policy, PolicyDef, PolicyError, PolicyRng, View, active, decide,
};
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ThreadId};

use super::curves::MachineCurves;
use super::ground::{Choice, MachineGround};
use super::masks::Masks;
use super::trial::{CandidateTrial, PresentBlock, TrialEvidence};
use crate::abstain::Abstention;

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "auto",
    summary: "the policy that suits the machine, as long as threads are not slower than under Linux",
    source: "this project; choice by features after Rice (1976), intervals of Wang and Ramdas (2025)",
    params: &[ParamDef {
        key: "block_ms",
        default: "400",
        prose: "length of the blocks under Linux and under the policy that are compared, in ms",
    }],
    make: |params, topology| {
        Ok(Box::new(AutoPolicy::new(
            params,
            topology,
            MachineGround::of(topology),
        )?))
    },
};

/// Time without a policy after which the first one is tried again, least and most.
const AGAIN: Nanos = Nanos::from_millis(60_000);
const MOST_AGAIN: Nanos = Nanos::from_millis(960_000);
/// Least time without a policy.
const CALM: Nanos = Nanos::from_millis(10_000);
/// Time after which a choice is made without the miss curves that are not known.
const PATIENCE: Nanos = Nanos::from_millis(5_000);
/// CPU time in s of a thread from which its instructions must have been counted.
const COUNTED_S: f64 = 0.5;
/// Relative change of the number of threads from which the comparison starts over.
const ANOTHER_LOAD: f64 = 0.25;

const UNCOUNTED: &str =
    "left to Linux: instructions are not counted here, so no gain could be measured";
const FEW: &str = "left to Linux: each thread has a last-level cache of its own";
const HOME: &str = "where Linux last had it, to compare";
const COMPARED: &str = "in a block under Linux, to compare";

/// Policy that decides now.
struct RunningCandidate {
    /// Row of the ground.
    row: usize,
    name: &'static str,
    policy: Box<dyn Policy>,
    trial: CandidateTrial,
    /// Its placements so far.
    held: PlacementState,
    /// Number of threads when the trial began.
    load: usize,
    /// Time of its last decision.
    decided: Nanos,
    /// True once threads are free in the block under Linux.
    free: bool,
    /// Total time around blocks under Linux, in which its clock stands still.
    paused: Nanos,
}

pub(super) struct AutoPolicy {
    needs: Needs,
    needs_changed: bool,
    topology: Arc<Topology>,
    ground: &'static MachineGround,
    /// Policies for the present load.
    choice: Choice,
    /// Miss curves until the choice is made; `None` where they change nothing.
    curves: Option<MachineCurves>,
    /// Time since which the choice is open.
    open: Option<Nanos>,
    block: Nanos,
    few: usize,
    candidate: Option<RunningCandidate>,
    /// Reason of threads that no candidate places.
    abstention: Abstention,
    /// Time at which the last candidate was dropped, and the number of threads then.
    dropped: Option<(Nanos, usize)>,
    again: Nanos,
    /// CPU on which Linux last had each thread.
    home: BTreeMap<ThreadId, CpuId>,
    masks: Masks,
    last: Nanos,
}

impl AutoPolicy {
    pub fn new(
        params: &Params,
        topology: &Arc<Topology>,
        ground: &'static MachineGround,
    ) -> Result<Self, PolicyError> {
        let mut auto = Self {
            needs: Needs::NOTHING,
            needs_changed: false,
            topology: Arc::clone(topology),
            ground,
            choice: ground.choice(),
            curves: ground.asks_curves().then(|| MachineCurves::new(topology)),
            open: Some(Nanos::ZERO),
            block: Nanos::from_secs_f64(params.number("block_ms", 1.0)? * 1e-3),
            few: MachineGround::few(topology),
            candidate: None,
            abstention: Abstention::new(if ground.candidates.is_empty() {
                ground.why
            } else {
                FEW
            }),
            dropped: None,
            again: AGAIN,
            home: BTreeMap::new(),
            masks: Masks::default(),
            last: Nanos::ZERO,
        };
        auto.begin(0)?;
        auto.needs_changed = false;
        Ok(auto)
    }

    /// Begins with the candidate of a row; without one, threads are left to Linux.
    fn begin(&mut self, row: usize) -> Result<(), PolicyError> {
        self.needs_changed = true;
        let Some(def) = self.choice.candidates.get(row) else {
            self.candidate = None;
            self.needs = Needs::NOTHING;
            return Ok(());
        };
        let policy = (def.make)(&Params::parse(def, "")?, &self.topology)?;
        self.needs = policy.needs().clone();
        self.candidate = Some(RunningCandidate {
            row,
            name: def.name,
            policy,
            trial: CandidateTrial::new(self.block),
            held: PlacementState::default(),
            load: 0,
            decided: Nanos::ZERO,
            free: false,
            paused: Nanos::ZERO,
        });
        Ok(())
    }

    /// Adds the last interval, and the CPUs that Linux chose in it.
    fn note(&mut self, view: &View<'_>) {
        let passed = view.now.since(self.last);
        self.last = view.now;
        self.home.retain(|id, _| view.lives(*id));
        let linux = match &mut self.candidate {
            Some(candidate) => {
                candidate.trial.note(view, passed);
                candidate.trial.arm() == PresentBlock::Linux || !candidate.trial.has_begun()
            }
            None => true,
        };
        if linux {
            self.home.extend(view.threads.iter().map(|t| (t.id, t.cpu)));
        }
    }

    /// True if threads ran without any instruction being counted.
    fn is_uncounted(&self, view: &View<'_>) -> bool {
        let mut usage = view.metrics.usage().read_threads();
        let mut ran = view.threads.iter().filter_map(|t| {
            let usage = usage.get(t.id)?;
            (usage.total_cpu_s() > COUNTED_S).then(|| usage.instructions())
        });
        let Some(first) = ran.next() else {
            return false;
        };
        first <= 0.0 && ran.all(|instructions| instructions <= 0.0)
    }

    /// Gives the candidate up for a reason, and begins with another one.
    fn give_up(&mut self, view: &View<'_>, rule: String, next: usize) -> Placement {
        let released = self.candidate.as_ref().map(|c| c.release(view, COMPARED));
        self.abstention = Abstention::new(rule);
        if next >= self.choice.candidates.len() {
            self.dropped = Some((view.now, view.threads.len()));
        }
        // The ground's policies have no parameter that could be wrong.
        if self.begin(next).is_err() {
            self.candidate = None;
        }
        Placement {
            threads: self.abstention.leave(view),
            ..released.unwrap_or_default()
        }
    }

    /// Tries the first candidate again if it is time to, or if the load is another one.
    fn resume(&mut self, view: &View<'_>) {
        let Some((at, load)) = self.dropped else {
            return;
        };
        let waited = view.now.since(at);
        let differs = waited >= CALM && is_another_load(view.threads.len(), load);
        if differs || waited >= self.again {
            self.dropped = None;
            self.again = match differs {
                true => AGAIN,
                false => Nanos(self.again.0 * 2).min(MOST_AGAIN),
            };
            self.choice = self.ground.choice();
            self.open = Some(view.now);
            if self.begin(0).is_err() {
                self.candidate = None;
            }
        }
    }

    /// Chooses the policies by miss curves once they are known, or waited for in vain. Returns the placement that ends what the
    /// present candidate did, if another one takes its place.
    fn consider(&mut self, view: &mut View<'_>) -> Option<Placement> {
        let since = self.open?;
        let curves = self.curves.as_mut()?;
        let candidate = self.candidate.as_ref()?;
        if candidate.trial.arm() != PresentBlock::Steer {
            return None;
        }
        curves.note(view);
        let worth = curves.worth(view);
        if worth.is_none() && view.now.since(since) < PATIENCE {
            return None;
        }
        self.open = None;
        self.choice = self.ground.choice_by(worth, view.topology.cpus.len());
        let first = self.choice.candidates.first().map(|def| def.name);
        if first == Some(candidate.name) {
            return None;
        }
        let why = self.choice.why.to_string();
        Some(self.give_up(view, why, 0))
    }
}

fn is_another_load(threads: usize, before: usize) -> bool {
    threads.abs_diff(before) as f64 > ANOTHER_LOAD * before as f64
}

impl RunningCandidate {
    /// Starts the comparison over if the number of threads changed. Returns true if it did.
    fn compare_load(&mut self, view: &View<'_>) -> bool {
        let threads = view.threads.len();
        if !is_another_load(threads, self.load) || self.trial.arm() == PresentBlock::Linux {
            return false;
        }
        self.load = threads;
        let acted = self.trial.has_begun();
        self.trial = self.trial.restarted();
        if acted {
            self.trial.acts(view.now);
        }
        true
    }

    /// Lets the policy decide.
    fn steer(&mut self, why: &str, view: &mut View<'_>, rng: &mut PolicyRng) -> Placement {
        self.decided = view.now;
        let mut own = View {
            now: Nanos(view.now.0 - self.paused.0),
            topology: view.topology,
            group: view.group,
            threads: view.threads,
            programs: view.programs,
            events: view.events,
            metrics: view.metrics,
            forecast: None,
        };
        let mut placement = decide(self.policy.as_mut(), &mut own, rng);
        for placed in &mut placement.threads {
            let rule = &mut placed.reason.rule;
            *rule = format!("`{}`, since {why}: {rule}", self.name).into();
        }
        self.held.add(&placement);
        self.held.retain(|id| view.lives(id));
        let confines = |t: &ThreadPlacement| t.target != Target::Anywhere;
        let acts = placement.threads.iter().any(confines);
        if acts || placement.caches.as_ref().is_some_and(|c| !c.is_empty()) {
            self.trial.acts(view.now);
        }
        placement
    }

    /// Removes its placements: every thread runs wherever its program allows.
    fn release(&self, view: &View<'_>, why: &'static str) -> Placement {
        let held = self.held.placement();
        let anywhere = |t: &ThreadInfo| ThreadPlacement {
            clamp: Some(Clamp::FREE),
            ..ThreadPlacement::new(t.id, Target::Anywhere, Reason::rule(why))
        };
        Placement {
            threads: view.threads.iter().map(anywhere).collect(),
            admission: held.admission.map(|_| AdmissionTable {
                rows: vec![(0.0, view.topology.groups[0].id)],
                ..AdmissionTable::default()
            }),
            caches: held.caches.map(|_| Vec::new()),
            clocks: held.clocks.map(|_| Vec::new()),
        }
    }

    /// Places threads where Linux last had them.
    fn send_home(&self, home: &BTreeMap<ThreadId, CpuId>, view: &View<'_>) -> Placement {
        let mut placement = self.release(view, HOME);
        for placed in &mut placement.threads {
            if let Some(cpu) = home.get(&placed.thread) {
                let only: CpuSet = [*cpu].into_iter().collect();
                placed.target = Target::Cpus(Arc::new(only));
            }
        }
        placement
    }

    /// Its placements so far, with the verdict as their reason.
    fn announce(&self) -> Vec<ThreadPlacement> {
        let gain = self.trial.evidence().gain();
        let low = self.trial.interval().map(|(low, _)| low);
        let rule = format!("`{}`: threads are faster than under Linux", self.name);
        let mut threads = self.held.placement().threads;
        for placed in &mut threads {
            placed.reason = Reason::rule(rule.clone())
                .saw("gain", Some(gain))
                .saw("gain at least", low);
        }
        threads
    }

    /// Reason for which it is dropped.
    fn verdict(&self) -> String {
        let loss = -100.0 * self.trial.evidence().gain();
        let pairs = self.trial.evidence().pairs();
        format!(
            "left to Linux: under `{}` threads were {loss:.1} % slower, in {pairs} blocks",
            self.name
        )
    }
}

impl Policy for AutoPolicy {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn needs_changed(&mut self) -> bool {
        std::mem::take(&mut self.needs_changed)
    }

    fn decide(&mut self, view: &mut View<'_>, rng: &mut PolicyRng) -> Placement {
        let changes = self.masks.note(view);
        let placement = self.choose(view, rng);
        self.masks.filter(placement, changes)
    }
}

impl AutoPolicy {
    fn choose(&mut self, view: &mut View<'_>, rng: &mut PolicyRng) -> Placement {
        self.note(view);
        self.resume(view);
        let few = active(view).len() <= self.few;
        let uncounted = self.candidate.is_some() && self.is_uncounted(view);
        if uncounted {
            let end = self.choice.candidates.len();
            return self.give_up(view, UNCOUNTED.to_owned(), end);
        }
        if let Some(placement) = self.consider(view) {
            return placement;
        }
        let why = self.choice.why.clone();
        let Some(candidate) = self.candidate.as_mut() else {
            return Placement {
                threads: self.abstention.leave(view),
                ..Placement::default()
            };
        };
        if few && !candidate.trial.has_begun() {
            return Placement {
                threads: self.abstention.leave(view),
                ..Placement::default()
            };
        }
        if candidate.compare_load(view) && self.open.is_none() {
            self.open = Some(view.now);
        }
        let before = candidate.trial.arm();
        let verdict = candidate.trial.turn(view.now);
        if verdict == Some(TrialEvidence::Dropped) {
            let (rule, next) = (candidate.verdict(), candidate.row + 1);
            return self.give_up(view, rule, next);
        }
        match (before, candidate.trial.arm()) {
            (PresentBlock::Linux, PresentBlock::Linux) => {
                if std::mem::replace(&mut candidate.free, true) {
                    Placement::default()
                } else {
                    candidate.release(view, COMPARED)
                }
            }
            (PresentBlock::Linux, _) => {
                candidate.paused += view.now.since(candidate.decided);
                candidate.held.retain(|id| view.lives(id));
                candidate.held.placement()
            }
            (_, PresentBlock::Linux) => {
                candidate.free = false;
                candidate.send_home(&self.home, view)
            }
            _ => {
                let mut placement = candidate.steer(&why, view, rng);
                if verdict == Some(TrialEvidence::Adopted) {
                    placement.threads = candidate.announce();
                }
                placement
            }
        }
    }
}
