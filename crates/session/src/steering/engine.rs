//! Choice of the engine that places threads on this machine.
//!
//! Input: an engine's name from the command line. Output: a sched_ext scheduler, if it is requested and possible.

#[cfg(feature = "scx")]
use std::sync::Arc;

#[cfg(feature = "scx")]
use countersteer_bpf::{EngineMode, ScxConfig, ScxEngine, probe};
use countersteer_live::affinity::AffinityConfig;
use countersteer_live::placer::Placer;

/// Engine that places threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum EngineName {
    /// sched_ext scheduler if possible, otherwise affinity masks
    #[default]
    Auto,
    /// sched_setaffinity() on any Linux; no root
    Affinity,
    /// sched_ext scheduler for the steered threads; root, Linux 6.16 or newer
    Scx,
    /// sched_ext scheduler for all threads of the machine
    ScxFull,
}

impl EngineName {
    /// Engines by name, as on command lines.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("auto", Self::Auto),
        ("affinity", Self::Affinity),
        ("scx", Self::Scx),
        ("scx-full", Self::ScxFull),
    ];

    /// Engine of this name; `None` if there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, e)| *e)
    }
}

/// Loads the sched_ext scheduler for an engine name. Returns `None` if affinity masks are used instead, as in every dry run.
/// `events` requests the wakeups, sleeps and migrations of each thread.
pub fn scheduler(
    name: EngineName,
    config: &AffinityConfig,
    events: bool,
    steal_above: Option<u32>,
) -> anyhow::Result<Option<Box<dyn Placer>>> {
    let scheduler = match name {
        EngineName::Affinity => None,
        _ if config.dry => None,
        EngineName::Auto => match in_kernel(config, events, name, steal_above) {
            Ok(scheduler) => Some(scheduler),
            Err(why) => {
                say!("threads are steered by CPU affinity: {why}");
                None
            }
        },
        _ => Some(in_kernel(config, events, name, steal_above)?),
    };
    if scheduler.is_none() && steal_above.is_some() {
        say!("--steal-above has no effect under the affinity engine, which has no run queues");
    }
    Ok(scheduler)
}

#[cfg(feature = "scx")]
fn in_kernel(
    config: &AffinityConfig,
    events: bool,
    name: EngineName,
    steal_above: Option<u32>,
) -> anyhow::Result<Box<dyn Placer>> {
    probe()?;
    let mode = if name == EngineName::ScxFull {
        EngineMode::Full
    } else {
        EngineMode::Partial
    };
    let engine = ScxEngine::open(ScxConfig {
        counters: config.counters.clone(),
        mode,
        period: config.period,
        steal_above,
        report_switches: events,
        lose_target: number_of("COUNTERSTEER_LOSE_TARGET"),
        most_targets: number_of("COUNTERSTEER_MOST_TARGETS"),
        ..ScxConfig::new(Arc::clone(&config.topology), config.numbers.clone())
    })?;
    Ok(Box::new(engine))
}

/// Returns the number in an environment variable, with which tests make the kernel eject the scheduler or its table overflow.
#[cfg(feature = "scx")]
fn number_of(variable: &str) -> Option<u32> {
    std::env::var(variable).ok()?.parse().ok()
}

#[cfg(not(feature = "scx"))]
fn in_kernel(
    _: &AffinityConfig,
    _: bool,
    _: EngineName,
    _: Option<u32>,
) -> anyhow::Result<Box<dyn Placer>> {
    Err(super::error::SteeringError::NoScheduler.into())
}
