//! Policy supervisor: exchanges the running policy, and handles panics and hangs of a failing one.
//!
//! Input: a policy, and requests from the control socket. Output: its decisions. The supervisor drops a policy that panics, or
//! whose decisions repeatedly take longer than a period. Then all threads are released, and Linux's own scheduler continues. A
//! policy that never returns from a call cannot be interrupted; the watchdog then ends the run.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use countersteer_live::{DecisionRequest, Stealing};
use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::engine::Span;
use countersteer_model::hint::Hint;
use countersteer_model::placement::{Clamp, Placement, PlacementState, ThreadPlacement};
use countersteer_model::policy::{Needs, Policy, PolicyError, PolicyRng, View, decide, panic_text};
use countersteer_model::topology::Topology;
use countersteer_model::units::{GroupId, Nanos, ThreadId};
use countersteer_sysfs::procfs::PROC;
use nix::unistd::gettid;

use super::rivals::{Look, RivalWatch};
use super::summary::SteeringSummary;
use super::watchdog::PolicyCalls;

/// Number of consecutive late decisions after which a policy is dropped.
const MOST_LATE: u32 = 5;

/// State shared by the control socket and the running policy.
#[derive(Default)]
pub struct SupervisorState {
    /// The active policy, with its parameters.
    pub policy: String,
    /// The next policy, if an exchange is requested.
    pub pending: Option<Exchange>,
    /// Reason why the policy cannot be exchanged; `None` if it can.
    pub fixed: Option<&'static str>,
    /// The active policy with new parameters, if a change is requested.
    pub tuned: Option<String>,
    pub period: Duration,
    /// Threads are released, and the policy makes no decisions.
    pub paused: bool,
    /// True if threads are also released while another scheduler has all of them.
    pub stand_back: bool,
    /// Reason for which threads should be released: another scheduler has all of them.
    pub blocked: Option<String>,
    /// Reason why threads are released although the run is not paused.
    pub stands_back: Option<String>,
    /// Current rivals, a sentence each.
    pub rivals: Vec<String>,
    /// Number of times that rivals changed. A trial drops the pair in which that happened.
    pub disturbances: u64,
    pub stealing: Stealing,
    /// Reason why the policy was dropped, if it was.
    pub dropped: Option<String>,
    pub summary: SteeringSummary,
    /// Kernel's numbers of the machine's CPUs.
    pub numbers: CpuNumbers,
    /// Last decision about each thread, by TID.
    pub words: BTreeMap<u32, DecisionText>,
    /// Hints of programs about their threads, by TID.
    pub hints: BTreeMap<u32, Hint>,
    /// Triggers a decision soon after a change, even if decisions are rare.
    pub decision_request: Option<DecisionRequest>,
}

/// A policy that replaces the active one.
pub struct Exchange {
    pub spec: String,
    /// Reason why the former policy is dropped, if it failed.
    pub why: Option<String>,
}

impl SupervisorState {
    /// Requests an exchange of the policy; discards pending parameters of the former one.
    pub fn exchange(&mut self, spec: &str, why: Option<String>) {
        let spec = spec.to_owned();
        self.pending = Some(Exchange { spec, why });
        self.tuned = None;
    }

    /// Reports the rivals that a look found, and decides whether threads are released because of them.
    fn see(&mut self, look: Option<Look>) {
        if let Some(look) = look {
            for change in &look.changes {
                say!("{change}");
            }
            self.disturbances += u64::from(!look.changes.is_empty());
            self.rivals = look.current;
            self.blocked = look.stand_back;
        }
        let stands_back = self.blocked.clone().filter(|_| self.stand_back);
        match (&self.stands_back, &stands_back) {
            (None, Some(why)) => say!("{why}: threads are released until it ends"),
            (Some(_), None) => say!("threads are steered again"),
            _ => {}
        }
        self.stands_back = stands_back;
    }
}

/// Decision about a thread, formatted only on request.
#[derive(Clone)]
pub struct DecisionText {
    pub placed: ThreadPlacement,
    pub program: Option<Arc<str>>,
    pub at: Nanos,
}

impl DecisionText {
    /// Returns the decision as JSON; its CPUs have the kernel's numbers.
    pub fn spell_out(&self, topology: &Topology, numbers: &CpuNumbers) -> serde_json::Value {
        let (placed, reason) = (&self.placed, &self.placed.reason);
        let group = |(group, value): &(GroupId, f64)| (topology.group(*group).name.clone(), *value);
        serde_json::json!({
            "thread": placed.thread.0,
            "program": self.program,
            "since_s": self.at.as_secs_f64(),
            "target": placed.target.name(topology),
            "cpus": numbers.os_set(&placed.target.cpus(topology)).to_string(),
            "clamp": placed.clamp.map(|c| [c.least, c.most]),
            "rule": reason.rule,
            "saw": reason.seen.iter().cloned().collect::<BTreeMap<_, _>>(),
            "alternatives": reason.alternatives.iter().map(group).collect::<BTreeMap<_, _>>(),
            "unit": reason.unit,
        })
    }
}

#[derive(Clone, Default)]
pub struct RunControl(Arc<Mutex<SupervisorState>>);

impl RunControl {
    /// Locks the state; it remains usable after a holder's panic.
    pub fn lock(&self) -> MutexGuard<'_, SupervisorState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Needs of a policy with the run's period.
fn needs(policy: &dyn Policy, period: Duration) -> Needs {
    Needs {
        period: Some(Nanos(period.as_nanos() as u64)),
        groups: None,
        ..policy.needs().clone()
    }
}

pub struct Supervisor {
    inner: Box<dyn Policy>,
    needs: Needs,
    needs_changed: bool,
    topology: Arc<Topology>,
    control: RunControl,
    period: Duration,
    late: u32,
    /// Reason to drop the policy at the next decision: it panicked on context switches.
    failed: Option<String>,
    paused: bool,
    rivals: RivalWatch,
    /// Threads that are left to another scheduler, with that reason in the record.
    left: BTreeSet<ThreadId>,
    /// Placement state of the policy, to restore after a pause.
    said: PlacementState,
    calls: PolicyCalls,
}

impl Supervisor {
    /// Supervises a policy, whose calls are visible in `calls`.
    pub fn new(
        (spec, inner): (&str, Box<dyn Policy>),
        topology: &Arc<Topology>,
        control: &RunControl,
        period: Duration,
        calls: PolicyCalls,
    ) -> Self {
        {
            let mut shared = control.lock();
            spec.clone_into(&mut shared.policy);
            shared.period = period;
        }
        let topology = Arc::clone(topology);
        let control = control.clone();
        let needs = needs(inner.as_ref(), period);
        Self {
            inner,
            needs,
            needs_changed: false,
            topology,
            control,
            period,
            late: 0,
            failed: None,
            paused: false,
            rivals: RivalWatch::new(Path::new("/")),
            left: BTreeSet::new(),
            said: PlacementState::default(),
            calls,
        }
    }

    /// Applies requests of the control socket; returns true if threads must be released first.
    fn obey(&mut self) -> bool {
        let mut shared = self.control.lock();
        let period_changed = std::mem::replace(&mut self.period, shared.period) != shared.period;
        shared.see(self.rivals.look(Instant::now()));
        let released = shared.paused || shared.stands_back.is_some();
        let paused = std::mem::replace(&mut self.paused, released);
        let mut let_go = self.paused && !paused;
        let mut handed_over = false;
        let pending = shared.pending.take();
        let tuned = shared.tuned.take();
        let before = shared.policy.clone();
        if let Some(next) = &pending {
            shared.policy.clone_from(&next.spec);
        }
        // A policy is created without the lock, for which the control socket would wait.
        drop(shared);
        if let Some(Exchange { spec, why }) = pending {
            // The request was parsed when it arrived.
            let parse = || countersteer_policies::parse(&spec, &self.topology);
            match self.calls.call(parse) {
                Ok(policy) => {
                    (self.inner, self.late, let_go) = (policy, 0, true);
                    self.failed = None;
                    self.said = PlacementState::default();
                    self.control.lock().dropped = why;
                    handed_over = true;
                }
                Err(_) => self.control.lock().policy = before,
            }
        }
        if let Some(spec) = tuned
            && self.tune(&spec).is_ok()
        {
            self.control.lock().policy = spec;
            handed_over = true;
        }
        if period_changed || handed_over {
            self.ask_needs();
        }
        let_go
    }

    /// Passes the parameters of a specification to the policy.
    fn tune(&mut self, spec: &str) -> Result<(), PolicyError> {
        let (_, params) = countersteer_policies::params(spec)?;
        let inner = &mut self.inner;
        self.calls.call(|| inner.tune(&params, &self.topology))
    }

    /// Replaces the policy by Linux's own scheduler.
    fn drop_policy(&mut self, why: String) {
        if let Ok(linux) =
            countersteer_policies::parse(countersteer_policies::LINUX, &self.topology)
        {
            self.inner = linux;
        }
        let mut shared = self.control.lock();
        let dropped =
            std::mem::replace(&mut shared.policy, countersteer_policies::LINUX.to_owned());
        shared.dropped = Some(why.clone());
        drop(shared);
        say!("policy {dropped} was dropped: {why}; Linux's own scheduler continues");
        self.ask_needs();
    }

    /// Updates the needs to those of the active policy.
    fn ask_needs(&mut self) {
        self.needs = needs(self.inner.as_ref(), self.period);
        self.needs_changed = true;
    }

    fn ask(&mut self, view: &mut View<'_>, rng: &mut PolicyRng) -> Placement {
        if let Some(why) = self.failed.take() {
            self.drop_policy(why);
            return view.release("the policy panicked");
        }
        let begun = Instant::now();
        let had_waited = waited_for_cpu();
        let inner = self.inner.as_mut();
        let call = || catch_unwind(AssertUnwindSafe(|| decide(inner, view, rng)));
        let decided = self.calls.call(call);
        let placement = match decided {
            Ok(placement) => placement,
            Err(payload) => {
                let said = panic_text(payload.as_ref());
                self.drop_policy(said.map_or("it panicked".into(), |t| format!("it failed: {t}")));
                return view.release("the policy panicked");
            }
        };
        let is_late = begun.elapsed() > self.period && {
            // On a busy machine this thread waits for a CPU, which is not the policy's fault. The clock is read last. Otherwise a
            // wait between both readings would count only as a wait, and a slow policy would seem fast.
            let waited = waited_for_cpu().saturating_sub(had_waited);
            begun.elapsed().saturating_sub(waited) > self.period
        };
        self.late = if is_late { self.late + 1 } else { 0 };
        if self.late < MOST_LATE {
            return placement;
        }
        self.drop_policy(format!(
            "{MOST_LATE} decisions in a row took longer than a period"
        ));
        view.release("the policy was too slow")
    }
}

/// Run-queue latency of this thread since its start; zero if the kernel does not report it.
fn waited_for_cpu() -> Duration {
    let sums = PROC.sums(gettid().as_raw() as u32).unwrap_or_default();
    Duration::from_nanos(sums.waited_ns)
}

impl Policy for Supervisor {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn needs_changed(&mut self) -> bool {
        std::mem::take(&mut self.needs_changed)
    }

    fn switched(&mut self, ended: &[Span]) {
        let inner = &mut self.inner;
        let call = || catch_unwind(AssertUnwindSafe(|| inner.switched(ended)));
        if let Err(payload) = self.calls.call(call) {
            let said = panic_text(payload.as_ref());
            self.failed = Some(said.map_or("it panicked".into(), |t| format!("it failed: {t}")));
        }
    }

    fn decide(&mut self, view: &mut View<'_>, rng: &mut PolicyRng) -> Placement {
        let was_paused = self.paused;
        let let_go = self.obey();
        let mut placement = Placement::default();
        if !self.paused {
            placement = self.ask(view, rng);
            self.said.retain(|id| view.lives(id));
            self.said.add(&placement);
            if was_paused {
                placement = self.said.placement();
            }
        }
        let stands_back = self.control.lock().stands_back.clone();
        match stands_back {
            Some(why) => self.leave(&mut placement, view, let_go, &why),
            None if let_go => take_back(&mut placement, view, LET_GO),
            None => {}
        }
        placement
    }
}

impl Supervisor {
    /// Leaves threads to another scheduler, each once, with the reason.
    fn leave(&mut self, placement: &mut Placement, view: &View<'_>, all: bool, why: &str) {
        self.left.retain(|id| !all && view.lives(*id));
        let mut nothing = view.release(format!("left to Linux: {why}"));
        nothing.threads.retain(|t| self.left.insert(t.thread));
        placement.threads = nothing.threads;
        if all {
            (placement.admission, placement.caches) = (nothing.admission, nothing.caches);
        }
    }
}

const LET_GO: &str = "another policy decides from now on";

/// Revokes in `placement` all settings of another policy that it does not set itself.
pub fn take_back(placement: &mut Placement, view: &View<'_>, why: &'static str) {
    let nothing = view.release(why);
    placement
        .threads
        .iter_mut()
        .for_each(|t| t.clamp = t.clamp.or(Some(Clamp::FREE)));
    let placed: BTreeSet<ThreadId> = placement.threads.iter().map(|t| t.thread).collect();
    placement.threads.extend(
        nothing
            .threads
            .into_iter()
            .filter(|t| !placed.contains(&t.thread)),
    );
    placement.threads.sort_by_key(|t| t.thread);
    placement.admission = placement.admission.take().or(nothing.admission);
    placement.caches = placement.caches.take().or(nothing.caches);
}

#[cfg(test)]
mod tests;
