//! Policies, which turn the state of threads into placements.
//!
//! A policy is a [`Policy`] and its [`PolicyDef`]. A policy does not depend on the engine that runs it, reads no clock and
//! does no I/O. The crate `countersteer-policies` contains the shipped policies and the table of their names.
//!
//! Order of events: the driver observes until the next policy period or, for a policy with [`Needs::events`], until thread
//! events have happened. It then updates the metrics, calls [`Policy::decide`] once, and applies the placement before any more
//! time passes. The first call is at time zero, when the threads of the workload exist but no metric does.

#![warn(missing_docs)]

mod core_slots;
mod groups;
mod hint_class;
mod params;

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use rand::SeedableRng;

pub use core_slots::{CoreSlots, PresentRank, Rank, active};
pub use groups::decide;
pub use hint_class::{HintClass, weights};
pub use params::{ParamDef, Params, PolicyError};

use crate::engine::{Forecast, ProgramInfo, Span, ThreadEvent, ThreadInfo};
use crate::metric::{MetricBank, MetricColumn};
use crate::placement::{Clamp, Placement, Reason, Target, ThreadPlacement};
use crate::topology::{Group, GroupBy, Topology};
use crate::units::{Nanos, ProgramId, ThreadId};
use crate::usage::Usage;

/// Random number generator of policies, seeded by the driver.
pub type PolicyRng = rand_pcg::Pcg64;

/// Returns the policy's random number generator: a separate stream, so that its draws are independent of the simulated
/// kernel's.
#[must_use]
pub fn policy_rng(seed: u64) -> PolicyRng {
    PolicyRng::seed_from_u64(seed.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

/// Data and events that a policy needs from the engine and the driver.
///
/// ```
/// use countersteer_model::policy::Needs;
///
/// let needs = Needs::metrics(&["llc_mpki", "cycles/instructions"]);
/// assert!(!needs.events && needs.groups.is_none());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Names of the metrics that the policy reads.
    pub metrics: Vec<&'static str>,
    /// True if the policy also decides after thread events, not only every period.
    pub events: bool,
    /// True if the policy needs phase changes among the events. They are derived from instructions and cycles, so the policy
    /// should also name a metric that counts these.
    pub phases: bool,
    /// True if the policy learns of each context switch, by [`Policy::switched`]. Engines without the data ignore this.
    pub switches: bool,
    /// Time between decisions; `None` for the period of the run.
    pub period: Option<Nanos>,
    /// Kind of core groups for which the policy is called separately, with a view of one group each (PMCSched, section 3).
    /// `None` for one call for the machine.
    pub groups: Option<GroupBy>,
}

impl Needs {
    /// Needs of a policy that decides once per period and reads no metric.
    pub const NOTHING: Self = Self {
        metrics: Vec::new(),
        events: false,
        phases: false,
        switches: false,
        period: None,
        groups: None,
    };

    /// Needs of a policy that also decides after thread events and reads no metric.
    pub const EVENTS: Self = Self {
        metrics: Vec::new(),
        events: true,
        phases: false,
        switches: false,
        period: None,
        groups: None,
    };

    /// Returns the needs of a policy that decides once per period and reads these metrics.
    #[must_use]
    pub fn metrics(names: &[&'static str]) -> Self {
        Self {
            metrics: names.to_vec(),
            ..Self::NOTHING
        }
    }
}

/// Scheduling policy, which decides placements.
///
/// ```
/// use std::sync::Arc;
///
/// use countersteer_model::machine::Machine;
/// use countersteer_model::metric::MetricBank;
/// use countersteer_model::observation::ThreadInfo;
/// use countersteer_model::placement::{Placement, Reason, Target, ThreadPlacement};
/// use countersteer_model::policy::{Policy, PolicyRng, View};
/// use countersteer_model::topology::{GroupBy, Topology};
/// use countersteer_model::units::{CpuId, Nanos, ProgramId, ThreadId};
/// use rand::SeedableRng;
///
/// /// Places every thread on the fastest core type.
/// struct FastestFirst;
///
/// impl Policy for FastestFirst {
///     fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
///         let fastest = view.topology.groups_by(GroupBy::CoreType)[0].id;
///         let place = |thread: &ThreadInfo| {
///             ThreadPlacement::new(thread.id, Target::Group(fastest), Reason::rule("fastest first"))
///         };
///         Placement { threads: view.threads.iter().map(place).collect(), ..Placement::default() }
///     }
/// }
///
/// # let text = include_str!("../../../../machines/quickia-2b-2s.toml");
/// let machine = Machine::parse("quickia-2b-2s.toml", text)?;
/// let topology = Arc::new(Topology::new(&machine));
/// let thread = ThreadInfo {
///     id: ThreadId(7),
///     program: ProgramId(0),
///     name: "gzip".into(),
///     cpu: CpuId(0),
///     runnable: true,
///     nice: 0,
///     allowed: Arc::default(),
///     hint: None,
/// };
/// let metrics = MetricBank::new(&topology, &[]);
/// let mut view = View {
///     now: Nanos::from_millis(20),
///     topology: &topology,
///     group: None,
///     threads: &[thread],
///     programs: &[],
///     events: &[],
///     metrics: &metrics,
///     forecast: None,
/// };
/// let placement = FastestFirst.decide(&mut view, &mut PolicyRng::seed_from_u64(1));
/// assert_eq!(placement.threads[0].thread, ThreadId(7));
/// assert_eq!(placement.threads[0].target.cpus(&topology).len(), 2);
/// # Ok::<(), countersteer_model::textfile::TextError>(())
/// ```
pub trait Policy: Send {
    /// Returns the needs of the policy. The driver calls this at the start, and after each decision for which
    /// [`Policy::needs_changed`] is true.
    fn needs(&self) -> &Needs {
        const NOTHING: &Needs = &Needs::NOTHING;
        NOTHING
    }

    /// True if the last decision changed the result of [`Policy::needs`]. Only a policy that switches between other policies
    /// implements this.
    fn needs_changed(&mut self) -> bool {
        false
    }

    /// Changes the policy's parameters and keeps its state.
    ///
    /// # Errors
    /// Fails on an invalid value, or with [`PolicyError::Fixed`] if the parameters cannot change after the start.
    fn tune(&mut self, _params: &Params, _topology: &Arc<Topology>) -> Result<(), PolicyError> {
        Err(PolicyError::Fixed)
    }

    /// Receives the run intervals that ended since the last call, in order of their ends: one for each context switch away from
    /// a thread. The driver calls this before [`Policy::decide`], and only if [`Needs::switches`] is set and there are any.
    fn switched(&mut self, _ended: &[Span]) {}

    /// Decides the placements of threads from now on. Threads without an entry keep theirs.
    fn decide(&mut self, view: &mut View<'_>, rng: &mut PolicyRng) -> Placement;
}

/// State of the machine and its threads as a policy sees it. [`Policy`] has an example of a view.
pub struct View<'a> {
    /// Current time since the start of the run.
    pub now: Nanos,
    /// Topology of the machine.
    pub topology: &'a Arc<Topology>,
    /// Core group to decide about, for a policy that is called per group; the view then contains only threads whose CPU is in
    /// it. `None` for the whole machine.
    pub group: Option<&'a Group>,
    /// Living threads, in ascending order of ids.
    pub threads: &'a [ThreadInfo],
    /// Programs of all threads, in ascending order of ids.
    pub programs: &'a [ProgramInfo],
    /// Events of threads since the last call of the policy.
    pub events: &'a [ThreadEvent],
    /// Latest values of the requested metrics.
    pub metrics: &'a MetricBank,
    /// Forecaster for static assignments; `None` if the engine has none.
    pub forecast: Option<&'a mut dyn Forecast>,
}

impl View<'_> {
    /// Returns a placement that removes all placements, frequency hints and cache partitions. Every thread may then run on all
    /// CPUs that its program allows.
    #[must_use]
    pub fn release(&self, why: impl Into<Cow<'static, str>>) -> Placement {
        let why = why.into();
        let place = |t: &ThreadInfo| ThreadPlacement {
            clamp: Some(Clamp::FREE),
            ..ThreadPlacement::new(t.id, Target::Anywhere, Reason::rule(why.clone()))
        };
        Placement {
            threads: self.threads.iter().map(place).collect(),
            admission: Some(Default::default()),
            caches: Some(Vec::new()),
            clocks: Some(Vec::new()),
        }
    }

    /// Returns the latest value of a thread's metric; `None` if it is unavailable.
    #[must_use]
    pub fn metric(&self, thread: ThreadId, name: &str) -> Option<f64> {
        self.metrics.get(thread, name)
    }

    /// Returns a reader of one metric for many threads. The name is looked up once; access in ascending order of ids is
    /// cheapest.
    #[must_use]
    pub fn column(&self, name: &str) -> MetricColumn<'_> {
        self.metrics.read_column(name)
    }

    /// True if a thread is in this view.
    #[must_use]
    pub fn lives(&self, thread: ThreadId) -> bool {
        self.threads.binary_search_by_key(&thread, |t| t.id).is_ok()
    }

    /// Returns the data of a program; `None` if it has no living threads.
    #[must_use]
    pub fn program(&self, program: ProgramId) -> Option<&ProgramInfo> {
        let row = self.programs.binary_search_by_key(&program, |p| p.id);
        row.ok().map(|row| &self.programs[row])
    }

    /// True if a program has threads or had some recently. A policy can drop the state of other programs. Always true if the
    /// view lists no programs.
    #[must_use]
    pub fn may_return(&self, program: ProgramId) -> bool {
        self.programs.is_empty()
            || self.program(program).is_some()
            || self.program_usage(program).is_some()
    }

    /// Returns the CPU usage of a thread; `None` before its first sample.
    #[must_use]
    pub fn usage(&self, thread: ThreadId) -> Option<&Usage> {
        self.metrics.usage().thread(thread)
    }

    /// Returns the CPU usage of a program, including its exited threads. `None` before the first sample.
    #[must_use]
    pub fn program_usage(&self, program: ProgramId) -> Option<&Usage> {
        self.metrics.usage().program(program)
    }
}

/// Returns the message of a caught panic; `None` if its payload is not text.
#[must_use]
pub fn panic_text(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
}

/// Function that creates a policy for a machine. Fails on an invalid parameter.
pub type MakePolicy = fn(&Params, &Arc<Topology>) -> Result<Box<dyn Policy>, PolicyError>;

/// Row of the policy table: a policy with its name, parameters and constructor.
pub struct PolicyDef {
    /// Name of the policy in flags and records.
    pub name: &'static str,
    /// Summary of the policy in one line, for lists.
    pub summary: &'static str,
    /// Paper and section that the policy implements, or the system that it models.
    pub source: &'static str,
    /// Parameters of the policy, given as `name:key=value,...`.
    pub params: &'static [ParamDef],
    /// Function that creates the policy.
    pub make: MakePolicy,
}
