//! The engine of a job: the scheduler in the kernel where there can be one, else masks.
//!
//! Input: what the job is about. Output: a [`LiveEngine`]. When the kernel ends the scheduler, masks take over: what was
//! steered then is steered on, and time goes on.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use clap::ValueEnum;
use countersteer_core::engine::{Applied, Engine, Observation, ThreadInfo, Watch, Watched};
use countersteer_core::placement::{Placement, ThreadPlacement};
use countersteer_core::topology::Topology;
use countersteer_core::units::{Nanos, ThreadId};
use countersteer_host::affinity::{AffinityConfig, AffinityEngine, AffinityError, Recount};
use countersteer_host::counters::CounterError;
use countersteer_host::live::{LiveEngine, Root};
#[cfg(feature = "scx")]
use countersteer_scx::{Mode, ScxConfig, ScxEngine, ScxError, probe};

use super::governed::Control;

/// How threads are placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum EngineName {
    /// The scheduler in the kernel where there can be one, else masks
    #[default]
    Auto,
    /// Masks of threads: any Linux, no privilege
    Affinity,
    /// A scheduler in the kernel (sched_ext) for the threads that are steered: root, Linux 6.16 or newer
    Scx,
    /// The same for all threads of the machine
    ScxFull,
}

/// Why an engine gave up.
#[derive(Debug)]
pub enum EngineError {
    /// Masks.
    Affinity(AffinityError),
    /// The scheduler in the kernel.
    #[cfg(feature = "scx")]
    Scx(ScxError),
}

impl std::fmt::Display for EngineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Affinity(error) => error.fmt(f),
            #[cfg(feature = "scx")]
            Self::Scx(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for EngineError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Affinity(error) => Some(error),
            #[cfg(feature = "scx")]
            Self::Scx(error) => Some(error),
        }
    }
}

impl From<CounterError> for EngineError {
    fn from(error: CounterError) -> Self {
        Self::Affinity(error.into())
    }
}

enum Inner {
    Affinity(Box<AffinityEngine>),
    #[cfg(feature = "scx")]
    Scx(Box<ScxEngine>),
}

/// One of the engines of this machine.
#[cfg_attr(
    not(feature = "scx"),
    allow(
        dead_code,
        reason = "only a scheduler in the kernel may have to be replaced"
    )
)]
pub struct Steered {
    inner: Inner,
    /// For masks, should they have to take over.
    config: AffinityConfig,
    recount: Option<Box<dyn Recount>>,
    watched: Watched,
    /// What was steered when that was last looked at.
    threads: Vec<ThreadInfo>,
    names: BTreeMap<u32, Arc<str>>,
    /// Where the policy wants those threads, for whoever takes over.
    placed: BTreeMap<ThreadId, ThreadPlacement>,
    /// When this engine began.
    base: Nanos,
    /// When it was last known how things stand.
    observed: Instant,
    /// Names of the engines that there were.
    engines: Vec<&'static str>,
    /// Where others ask for stealing, and are told of it.
    control: Control,
    /// From which backlogs threads may be taken now.
    steal_above: Option<u32>,
}

impl Steered {
    /// Opens the engine of this name; a dry run reports what it would change as affinity masks. `events` asks for each thread's wakes,
    /// sleeps and moves.
    pub fn open(
        name: EngineName,
        config: AffinityConfig,
        events: bool,
        recount: Box<dyn Recount>,
        control: &Control,
    ) -> anyhow::Result<Self> {
        let steal_above = control.lock().steal_above;
        let inner = match name {
            EngineName::Affinity => None,
            _ if config.dry => None,
            EngineName::Auto => match in_kernel(&config, events, name, steal_above) {
                Ok(engine) => Some(engine),
                Err(why) => {
                    eprintln!("steer: threads are steered by CPU affinity: {why}");
                    None
                }
            },
            _ => Some(in_kernel(&config, events, name, steal_above)?),
        };
        let mut recount = Some(recount);
        let inner = match inner {
            Some(inner) => inner,
            None => {
                if steal_above.is_some() {
                    eprintln!(
                        "steer: --steal-above has no effect under the affinity engine, which has no queues"
                    );
                }
                masks(&config, recount.take())?
            }
        };
        let mut steered = Self {
            inner,
            recount,
            watched: Watched::default(),
            config,
            threads: Vec::new(),
            names: BTreeMap::new(),
            placed: BTreeMap::new(),
            base: Nanos::ZERO,
            observed: Instant::now(),
            engines: vec![],
            control: control.clone(),
            steal_above,
        };
        steered.engines.push(steered.name());
        Ok(steered)
    }

    const fn name(&self) -> &'static str {
        match self.inner {
            Inner::Affinity(_) => "affinity",
            #[cfg(feature = "scx")]
            Inner::Scx(_) => "scx",
        }
    }

    /// Names of the engines that there were, the last one last.
    pub fn engines(&self) -> String {
        self.engines.join(", then ")
    }

    /// Why counters are not used, if they are not although they were asked for.
    pub fn blindness(&self) -> Option<&str> {
        match &self.inner {
            Inner::Affinity(engine) => engine.blindness(),
            #[cfg(feature = "scx")]
            Inner::Scx(engine) => engine.blindness(),
        }
    }

    /// What the kernel told of threads and nobody could take in; none where that is not known.
    pub fn lost(&mut self) -> Option<u64> {
        match &mut self.inner {
            Inner::Affinity(_) => None,
            #[cfg(feature = "scx")]
            Inner::Scx(engine) => Some(engine.figures().ok()?.lost),
        }
    }

    /// Masks take over from a scheduler that the kernel has ended.
    #[cfg(feature = "scx")]
    fn fall_back(&mut self, why: &ScxError, at: Nanos) -> Result<(), EngineError> {
        eprintln!("steer: {why}; masks take over");
        self.base = at;
        let mut engine =
            with_masks(&self.config, self.recount.take()).map_err(EngineError::Affinity)?;
        let mut roots: BTreeMap<u32, Root> = BTreeMap::new();
        for thread in &self.threads {
            // The scheduler's engine took leave of them.
            let Ok(pid) = countersteer_host::counters::process_of(thread.id.0) else {
                continue;
            };
            let name = self.names.get(&thread.program.0).unwrap_or(&thread.name);
            roots.insert(
                pid,
                Root {
                    pid,
                    program: thread.program,
                    name: Arc::clone(name),
                },
            );
        }
        for root in roots.values() {
            // One that has ended meanwhile is not missed.
            let _ = engine.admit(root);
        }
        let threads = std::mem::take(&mut self.placed).into_values().collect();
        engine
            .apply(&Placement {
                threads,
                ..Placement::default()
            })
            .map_err(EngineError::Affinity)?;
        self.inner = Inner::Affinity(Box::new(engine));
        self.engines.push(self.name());
        Ok(())
    }

    /// Has the scheduler count what the watch needs; the affinity engine does so by itself.
    #[cfg(feature = "scx")]
    fn count_for(&mut self, watch: &Watch<'_>) {
        let (Inner::Scx(engine), Some(recount)) = (&mut self.inner, &mut self.recount) else {
            return;
        };
        if !self.watched.changes(watch) {
            return;
        }
        let Some(counters) = recount.counters(watch.metrics, watch.period) else {
            return;
        };
        match engine.recount(counters.clone()) {
            // The affinity engine would count the same, should it have to take over.
            Ok(()) => self.config.counters = Some(counters),
            Err(error) => recount.failed(&error.to_string()),
        }
    }

    /// Passes on from which backlogs threads may be taken, and tells how often one was.
    fn share_stealing(&mut self) -> Result<(), EngineError> {
        let mut shared = self.control.lock();
        shared.stolen = match &mut self.inner {
            Inner::Affinity(_) => None,
            #[cfg(feature = "scx")]
            Inner::Scx(engine) => {
                if self.steal_above != shared.steal_above {
                    engine
                        .steal_above(shared.steal_above)
                        .map_err(EngineError::Scx)?;
                    self.steal_above = shared.steal_above;
                }
                Some(engine.figures().map_err(EngineError::Scx)?.stolen)
            }
        };
        Ok(())
    }

    /// By the clock of the engine that is at work now.
    const fn inward(&self, at: Nanos) -> Nanos {
        if at.0 == Nanos::NEVER.0 {
            at
        } else {
            at.since(self.base)
        }
    }

    fn outward(&self, mut seen: Observation) -> Observation {
        if self.base > Nanos::ZERO {
            seen.at += self.base;
            seen.samples.iter_mut().for_each(|s| s.at += self.base);
            seen.events.iter_mut().for_each(|e| e.at += self.base);
        }
        seen
    }
}

fn with_masks(
    config: &AffinityConfig,
    recount: Option<Box<dyn Recount>>,
) -> Result<AffinityEngine, AffinityError> {
    let engine = AffinityEngine::open(config.clone())?;
    Ok(match recount {
        Some(recount) => engine.recounting(recount),
        None => engine,
    })
}

fn masks(config: &AffinityConfig, recount: Option<Box<dyn Recount>>) -> anyhow::Result<Inner> {
    Ok(Inner::Affinity(Box::new(with_masks(config, recount)?)))
}

#[cfg(feature = "scx")]
fn in_kernel(
    config: &AffinityConfig,
    events: bool,
    name: EngineName,
    steal_above: Option<u32>,
) -> anyhow::Result<Inner> {
    probe()?;
    let mode = if name == EngineName::ScxFull {
        Mode::Full
    } else {
        Mode::Partial
    };
    let engine = ScxEngine::open(ScxConfig {
        counters: config.counters.clone(),
        mode,
        period: config.period,
        steal_above,
        tell_switches: events,
        lose_target: number_of("COUNTERSTEER_LOSE_TARGET"),
        most_targets: number_of("COUNTERSTEER_MOST_TARGETS"),
        ..ScxConfig::new(Arc::clone(&config.topology), config.numbers.clone())
    })?;
    Ok(Inner::Scx(Box::new(engine)))
}

/// Fault injection, for tests of what happens when the kernel throws the scheduler out, or has no room left.
#[cfg(feature = "scx")]
fn number_of(variable: &str) -> Option<u32> {
    std::env::var(variable).ok()?.parse().ok()
}

#[cfg(not(feature = "scx"))]
fn in_kernel(_: &AffinityConfig, _: bool, _: EngineName, _: Option<u32>) -> anyhow::Result<Inner> {
    let why =
        "this `steer` was built without the scheduler in the kernel; build it with --features scx";
    Err(crate::error::told(crate::error::Kind::Missing, why))
}

impl Engine for Steered {
    type Error = EngineError;

    fn topology(&self) -> &Arc<Topology> {
        &self.config.topology
    }

    fn observe(&mut self, watch: &Watch<'_>, until: Nanos) -> Result<Observation, EngineError> {
        self.config.period = watch.period;
        #[cfg(feature = "scx")]
        self.count_for(watch);
        let inward = self.inward(until);
        let seen = match &mut self.inner {
            Inner::Affinity(engine) => engine
                .observe(watch, inward)
                .map_err(EngineError::Affinity)?,
            #[cfg(feature = "scx")]
            Inner::Scx(engine) => match engine.observe(watch, inward) {
                Ok(seen) => {
                    self.threads.clone_from(&seen.threads);
                    let alive =
                        |id: &ThreadId| seen.threads.binary_search_by_key(id, |t| t.id).is_ok();
                    self.placed.retain(|id, _| alive(id));
                    seen
                }
                Err(why @ ScxError::Ejected { .. }) => {
                    let at = engine.now();
                    self.fall_back(&why, at)?;
                    let watch = Watch {
                        events: true,
                        ..*watch
                    };
                    return self.observe(&watch, until.max(at));
                }
                Err(error) => return Err(EngineError::Scx(error)),
            },
        };
        self.share_stealing()?;
        self.observed = Instant::now();
        Ok(self.outward(seen))
    }

    fn apply(&mut self, placement: &Placement) -> Result<Applied, EngineError> {
        let applied = match &mut self.inner {
            Inner::Affinity(engine) => engine.apply(placement).map_err(EngineError::Affinity)?,
            #[cfg(feature = "scx")]
            Inner::Scx(engine) => {
                self.placed
                    .extend(placement.threads.iter().map(|t| (t.thread, t.clone())));
                let applied = engine.apply(placement);
                if let Some(complaint) = engine.complaint() {
                    eprintln!("steer: {complaint}");
                }
                match applied {
                    // The next observation finds out.
                    Err(ScxError::Ejected { .. }) => Applied::default(),
                    done => done.map_err(EngineError::Scx)?,
                }
            }
        };
        Ok(Applied {
            took: Nanos(self.observed.elapsed().as_nanos() as u64),
            ..applied
        })
    }
}

impl LiveEngine for Steered {
    fn dismiss(&mut self, root: &Root) -> Result<(), EngineError> {
        match &mut self.inner {
            Inner::Affinity(engine) => engine.dismiss(root).map_err(EngineError::Affinity),
            #[cfg(feature = "scx")]
            Inner::Scx(engine) => engine.dismiss(root).map_err(EngineError::Scx),
        }
    }

    fn admit(&mut self, root: &Root) -> Result<(), EngineError> {
        self.names.insert(root.program.0, Arc::clone(&root.name));
        match &mut self.inner {
            Inner::Affinity(engine) => engine.admit(root).map_err(EngineError::Affinity),
            #[cfg(feature = "scx")]
            Inner::Scx(engine) => engine.admit(root).map_err(EngineError::Scx),
        }
    }

    fn wake_on(&mut self, file: OwnedFd) {
        match &mut self.inner {
            Inner::Affinity(engine) => engine.wake_on(file),
            #[cfg(feature = "scx")]
            Inner::Scx(engine) => engine.wake_on(file),
        }
    }

    fn process_of(&self, thread: ThreadId) -> Option<u32> {
        match &self.inner {
            Inner::Affinity(engine) => engine.process_of(thread),
            #[cfg(feature = "scx")]
            Inner::Scx(engine) => engine.process_of(thread),
        }
    }

    fn is_dry(&self) -> bool {
        self.config.dry
    }
}
