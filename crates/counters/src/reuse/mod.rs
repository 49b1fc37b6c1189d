//! Reuse distances of a program by sampled data addresses and watch points (as RDX: Wang, Liu and Chabbi, ICPP 2019).
//!
//! Input: a command, and an event whose samples have data addresses: PEBS on Intel, IBS on AMD. Output: for sampled accesses, the
//! number of accesses until the same thread used the line again ([`WatchedAccess`]).
//!
//! Each sample stops the thread before its next instruction. Where the processor has watch points of 64 bytes, four lines are watched at
//! a time; otherwise one, by four watch points of 8 bytes: the accessed word, the one before and the two after it, wrapped within
//! the line. [`Watches`](countersteer_model::profile::reuse::Watches) chooses the samples that are watched.
//!
//! This was tested with page faults in place of accesses, and never run with PEBS or IBS.

mod traced;
mod watch;

use countersteer_model::counters::parse_set;
use countersteer_model::profile::reuse::WatchedAccess;

use crate::perf::pmu::Pmus;
use crate::perf::resolve::{Resolved, resolve};
use crate::region::{machine, refused};
use crate::{CounterError, Encoding};

/// Default number of accesses per sample; a prime, because programs repeat themselves at round numbers.
pub const PERIOD: u64 = 1_000_003;

/// Sampled accesses of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reuses {
    /// Samples whose line was watched.
    pub watched: Vec<WatchedAccess>,
    /// Number of samples, and of those with a data address.
    pub samples: u64,
    pub addresses: u64,
    /// Exit code of the program; 128 and the signal's number if a signal ended it.
    pub exit_code: i32,
}

/// Names an event of this machine whose samples have data addresses: the loads of Intel's PEBS, or the operations of AMD's IBS.
///
/// # Errors
/// The machine has no such event.
pub fn event() -> Result<String, CounterError> {
    named(machine()?).ok_or(CounterError::Region(
        "this machine samples no data addresses: an Intel processor with PEBS is needed, or an AMD processor with IBS and a kernel \
         that leaves its own samples out (the format `swfilt` of ibs_op)",
    ))
}

fn named(pmus: &Pmus) -> Option<String> {
    if let Some(ibs) = pmus.named("ibs_op") {
        // Operations instead of cycles, and none of the kernel.
        let filters = ibs.format("swfilt").is_some() && ibs.format("cnt_ctl").is_some();
        return filters.then(|| "ibs_op/cnt_ctl=1,swfilt=1/".into());
    }
    // MEM_INST_RETIRED.ALL_LOADS since Skylake. Only Intel's kernel driver has the format `ldlat`, of sampled loads.
    let intel = pmus
        .cores()
        .into_iter()
        .find(|p| p.format("ldlat").is_some())?;
    Some(format!("{}/event=0xd0,umask=0x81/", intel.name))
}

/// Checks that an event can be sampled on this thread, before programs run.
///
/// # Errors
/// Those of [`run`], except for those of the program.
pub fn check(event: &str) -> Result<(), CounterError> {
    with_event(event, PERIOD, |sampled| {
        let tid = nix::unistd::gettid().as_raw() as u32;
        let opened = watch::SampledThread::open(tid, sampled);
        opened.map(drop).map_err(|e| refused(sampled.name(), e))
    })
}

fn with_event<T>(
    event: &str,
    period: u64,
    then: impl FnOnce(&SampledEvent<'_>) -> Result<T, CounterError>,
) -> Result<T, CounterError> {
    let resolved = resolve(event, &parse_set(event)?, machine()?)?;
    let [event] = resolved.as_slice() else {
        return Err(CounterError::Region("name one event to sample"));
    };
    then(&SampledEvent {
        event,
        period: period.max(1),
    })
}

/// Runs a command, and samples its accesses. `event` is named like those of `steer stat`; one sample is taken per `period` events.
/// The program's output is discarded; processes that it starts are not sampled.
///
/// # Errors
/// The event is unknown or has no samples with signals (Linux 5.13), may not be sampled, or the program cannot be started.
pub fn run(command: &[String], event: &str, period: u64) -> Result<Reuses, CounterError> {
    let command = command.to_vec();
    let mut found = with_event(event, period, |sampled| {
        // The kernel ties a traced program to the thread that started it, and this thread waits for its own children alone.
        std::thread::scope(|scope| {
            let tracer = scope.spawn(|| traced::run(&command, sampled));
            tracer
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })?;
    // IBS counts operations, of which only some access data.
    if found.samples > 0 {
        let accesses = found.addresses as f64 / found.samples as f64;
        found
            .watched
            .iter_mut()
            .for_each(|watched| watched.accesses *= accesses);
    }
    Ok(found)
}

/// Event that is sampled.
struct SampledEvent<'a> {
    event: &'a Resolved,
    period: u64,
}

impl SampledEvent<'_> {
    fn name(&self) -> &str {
        &self.event.planned.name
    }

    fn encodings(&self) -> &[Encoding] {
        &self.event.encodings
    }
}

#[cfg(test)]
mod tests;
