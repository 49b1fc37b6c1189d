//! Policy supervisor: exchanges the policy while it runs, and catches the panics and hangs of one that fails.
//!
//! Input: a policy, and what the control socket asks for. Output: its decisions. A policy that panics, or whose decisions take
//! longer than a period several times in a row, is dropped: all threads are let go, and Linux's own scheduler goes on. One
//! that does not come back from a decision at all cannot be interrupted; a watcher then lets all threads go and ends the run.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use countersteer_live::{DecisionRequest, Stealing};
use countersteer_model::hint::Hint;
use countersteer_model::placement::{Clamp, Placement, PlacementState, ThreadPlacement};
use countersteer_model::policy::{Needs, Policy, PolicyError, PolicyRng, View, decide, panic_text};
use countersteer_model::topology::Topology;
use countersteer_model::units::{GroupId, Nanos, ThreadId};
use countersteer_sysfs::procfs::PROC;
use nix::unistd::gettid;

use super::summary::Summary;

/// Late decisions in a row after which a policy is dropped.
const MOST_LATE: u32 = 5;
/// How long a decision may take before the run is ended.
const HOPELESS: Duration = Duration::from_secs(10);

/// What the control socket and the running policy share.
#[derive(Default)]
pub struct Shared {
    /// The policy that decides, with its parameters.
    pub policy: String,
    /// The one that is to decide from now on.
    pub pending: Option<Exchange>,
    /// Why the policy cannot be exchanged, where it cannot.
    pub fixed: Option<&'static str>,
    /// The policy that decides, with parameters that it is to take over.
    pub tuned: Option<String>,
    pub period: Duration,
    /// Threads are let go, and nothing is decided.
    pub paused: bool,
    pub stealing: Stealing,
    /// Why the policy was dropped, if it was.
    pub dropped: Option<String>,
    pub summary: Summary,
    /// The last word on each thread.
    pub words: BTreeMap<u32, Word>,
    /// What programs tell about their threads.
    pub hints: BTreeMap<u32, Hint>,
    /// Has what was set be obeyed soon, where decisions are rare.
    pub decision_request: Option<DecisionRequest>,
}

/// A policy that takes the place of the one that decides.
pub struct Exchange {
    pub spec: String,
    /// Why the former one is dropped, if it is for a fault of its own.
    pub why: Option<String>,
}

impl Shared {
    /// Has another policy decide from now on; parameters that the former one was to take over are void.
    pub fn exchange(&mut self, spec: &str, why: Option<String>) {
        let spec = spec.to_owned();
        self.pending = Some(Exchange { spec, why });
        self.tuned = None;
    }
}

/// What was decided about a thread, kept as it is until somebody asks.
#[derive(Clone)]
pub struct Word {
    pub placed: ThreadPlacement,
    pub program: Option<Arc<str>>,
    pub at: Nanos,
}

impl Word {
    pub fn spell_out(&self, topology: &Topology) -> serde_json::Value {
        let (placed, reason) = (&self.placed, &self.placed.reason);
        let group = |(group, value): &(GroupId, f64)| (topology.group(*group).name.clone(), *value);
        serde_json::json!({
            "thread": placed.thread.0,
            "program": self.program,
            "since_s": self.at.as_secs_f64(),
            "target": placed.target.name(topology),
            "cpus": placed.target.cpus(topology).to_string(),
            "clamp": placed.clamp.map(|c| [c.least, c.most]),
            "rule": reason.rule,
            "saw": reason.seen.iter().cloned().collect::<BTreeMap<_, _>>(),
            "alternatives": reason.alternatives.iter().map(group).collect::<BTreeMap<_, _>>(),
            "unit": reason.unit,
        })
    }
}

#[derive(Clone, Default)]
pub struct Control(Arc<Mutex<Shared>>);

impl Control {
    /// What is shared; a holder that panicked leaves it usable.
    pub fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A policy's needs with the period of the run.
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
    control: Control,
    period: Duration,
    late: u32,
    paused: bool,
    /// What the policy has said, to be said again after a pause.
    said: PlacementState,
    /// When the present decision began, in milliseconds since `created`; 0 between decisions.
    busy: Arc<AtomicU64>,
    created: Instant,
}

impl Supervisor {
    /// Supervises a policy; `give_up` is called when a decision never ends, and must not return to it.
    pub fn new(
        (spec, inner): (&str, Box<dyn Policy>),
        topology: &Arc<Topology>,
        control: &Control,
        period: Duration,
        give_up: impl Fn() + Send + 'static,
    ) -> Self {
        {
            let mut shared = control.lock();
            spec.clone_into(&mut shared.policy);
            shared.period = period;
        }
        let busy = Arc::new(AtomicU64::new(0));
        let created = Instant::now();
        let watched = Arc::clone(&busy);
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(HOPELESS / 10);
                let since = watched.load(Ordering::Relaxed);
                let now = created.elapsed().as_millis() as u64;
                if since > 0 && now.saturating_sub(since) > HOPELESS.as_millis() as u64 {
                    give_up();
                }
                if Arc::strong_count(&watched) == 1 {
                    return;
                }
            }
        });
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
            paused: false,
            said: PlacementState::default(),
            busy,
            created,
        }
    }

    /// Takes up what the control socket asked for; whether threads must be let go first.
    fn obey(&mut self) -> bool {
        let mut shared = self.control.lock();
        let period_changed = std::mem::replace(&mut self.period, shared.period) != shared.period;
        let paused = std::mem::replace(&mut self.paused, shared.paused);
        let mut let_go = self.paused && !paused;
        let mut handed_over = false;
        if let Some(Exchange { spec, why }) = shared.pending.take() {
            // It was parsed when it was asked for.
            if let Ok(policy) = countersteer_policies::parse(&spec, &self.topology) {
                (self.inner, self.late, let_go) = (policy, 0, true);
                self.said = PlacementState::default();
                (shared.policy, shared.dropped) = (spec, why);
                handed_over = true;
            }
        }
        let tuned = shared.tuned.take();
        drop(shared);
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

    /// Has the policy take over the parameters of a specification.
    fn tune(&mut self, spec: &str) -> Result<(), PolicyError> {
        let (_, params) = countersteer_policies::params(spec)?;
        self.inner.tune(&params, &self.topology)
    }

    /// Exchanges the policy for Linux's own scheduler.
    fn drop_policy(&mut self, why: String) {
        let mut shared = self.control.lock();
        eprintln!(
            "steer: policy {} was dropped: {why}; Linux's own scheduler goes on",
            shared.policy
        );
        shared.dropped = Some(why);
        "linux".clone_into(&mut shared.policy);
        if let Ok(linux) = countersteer_policies::parse("linux", &self.topology) {
            self.inner = linux;
        }
        drop(shared);
        self.ask_needs();
    }

    /// Takes over the needs of the policy that decides now.
    fn ask_needs(&mut self) {
        self.needs = needs(self.inner.as_ref(), self.period);
        self.needs_changed = true;
    }

    fn ask(&mut self, view: &mut View<'_>, rng: &mut PolicyRng) -> Placement {
        let begun = Instant::now();
        let had_waited = waited_for_cpu();
        self.busy.store(
            (self.created.elapsed().as_millis() as u64).max(1),
            Ordering::Relaxed,
        );
        let decided = catch_unwind(AssertUnwindSafe(|| decide(self.inner.as_mut(), view, rng)));
        self.busy.store(0, Ordering::Relaxed);
        let placement = match decided {
            Ok(placement) => placement,
            Err(payload) => {
                let said = panic_text(payload.as_ref());
                self.drop_policy(said.map_or("it panicked".into(), |t| format!("it failed: {t}")));
                return view.release("the policy panicked");
            }
        };
        let is_late = begun.elapsed() > self.period && {
            // On a busy machine this thread waits for a CPU, which is no fault of the policy's. The clock is read last: a wait
            // between the two would be taken off without being in the time, and a slow policy would seem fast.
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

/// How long this thread has waited for a CPU since its start; zero where the kernel does not say.
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
        if let_go {
            take_back(&mut placement, view, "another policy decides from now on");
        }
        placement
    }
}

/// Whatever another policy said before, and this placement does not, is taken back with it.
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
