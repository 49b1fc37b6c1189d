//! An engine with its crew: programs start at their times, signals are passed on, what programs tell in their pages is heard
//! and answered, and the run ends with the last program.
//!
//! Input: an engine and a crew. Output: an [`Engine`] for the driver.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use countersteer_core::cpuset::CpuSet;
use countersteer_core::engine::{
    Applied, Engine, Forecast, Observation, ThreadForecast, Watch, Watched,
};
use countersteer_core::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer_core::signature::Signature;
use countersteer_core::topology::Topology;
use countersteer_core::units::{CpuId, Nanos, ThreadId};

use super::carried::Signatures;
use super::crew::{Found, Started};
use super::pages::Pages;
use super::programs::Programs;
use super::{Crew, Gauges, LiveEngine};
use crate::counters::{CounterError, pidfd};
use crate::signals::Signals;

/// An engine whose programs are attended to.
pub struct Attended<E> {
    inner: E,
    crew: Crew,
    signals: Signals,
    pages: Pages,
    signatures: Signatures,
    programs: Programs,
    gauges: Option<Gauges>,
    watched: Watched,
    now: Nanos,
    begun: bool,
    asked_to_end: bool,
    /// Where somebody may ask for a decision.
    bell: Option<UnixStream>,
}

/// Has an engine that waits observe at once, so that a decision follows.
#[derive(Debug)]
pub struct Bell(UnixStream);

impl Bell {
    pub fn ring(&self) {
        // Where nobody takes it in, enough are waiting.
        let _ = (&self.0).write(&[0]);
    }
}

impl<E: LiveEngine> Attended<E>
where
    E::Error: From<CounterError>,
{
    /// An engine with the programs that it will run.
    ///
    /// # Errors
    /// No file is left.
    pub fn new(mut inner: E, crew: Crew) -> Result<Self, E::Error> {
        let system = CounterError::system("listening for signals");
        let signals = Signals::listen().map_err(&system)?;
        inner.wake_on(signals.as_fd().try_clone_to_owned().map_err(&system)?);
        let pages = Pages::new(inner.topology());
        let begun = false;
        let asked_to_end = false;
        let gauges = None;
        let now = Nanos::ZERO;
        let bell = None;
        Ok(Self {
            inner,
            crew,
            signals,
            pages,
            signatures: Signatures::default(),
            programs: Programs::default(),
            gauges,
            watched: Watched::default(),
            now,
            begun,
            asked_to_end,
            bell,
        })
    }

    /// What has this engine observe at once, from another thread.
    ///
    /// # Errors
    /// No file is left.
    pub fn bell(&mut self) -> Result<Bell, E::Error> {
        let system = CounterError::system("making room for requests");
        let (here, there) = UnixStream::pair().map_err(&system)?;
        [&here, &there]
            .into_iter()
            .try_for_each(|end| end.set_nonblocking(true))
            .map_err(&system)?;
        self.inner
            .wake_on(here.try_clone().map_err(&system)?.into());
        self.bell = Some(here);
        Ok(Bell(there))
    }

    /// Whether the bell was rung.
    fn is_rung(&mut self) -> bool {
        let Some(bell) = &mut self.bell else {
            return false;
        };
        let rung = bell.read(&mut [0; 64]).is_ok_and(|n| n > 0);
        if rung && let Ok(again) = bell.try_clone() {
            self.inner.wake_on(again.into());
        }
        rung
    }

    /// The same, whose samples have what these gauges read as well.
    #[must_use]
    pub fn reading(self, gauges: Gauges) -> Self {
        Self {
            gauges: Some(gauges),
            ..self
        }
    }

    pub const fn inner(&self) -> &E {
        &self.inner
    }

    /// The same, to ask it something.
    pub const fn inner_mut(&mut self) -> &mut E {
        &mut self.inner
    }

    /// The programs.
    pub const fn crew(&self) -> &Crew {
        &self.crew
    }

    /// Admits what was there before, once, and starts what is due.
    fn start(&mut self) -> Result<(), E::Error> {
        if !std::mem::replace(&mut self.begun, true) {
            for root in self.crew.roots() {
                self.inner.admit(&root)?;
                self.wake_at_end(root.pid);
            }
        }
        let Found { new, left } = self.crew.find(self.now);
        for root in &left {
            self.inner.dismiss(root)?;
        }
        // What those that left have started may belong to the crew by itself.
        let again = if left.is_empty() {
            Vec::new()
        } else {
            self.crew.roots()
        };
        for root in again {
            let _ = self.inner.admit(&root);
        }
        for root in new {
            // One that has ended since it was found is not missed.
            if self.inner.admit(&root).is_ok() {
                self.wake_at_end(root.pid);
            }
        }
        for Started {
            row,
            root,
            launch_on,
        } in self.crew.start(self.now)?
        {
            self.inner.admit(&root)?;
            if let Some(cpus) = launch_on {
                self.inner.apply(&placed_at_launch(root.pid, cpus))?;
            }
            self.wake_at_end(root.pid);
            self.crew.release(row)?;
        }
        Ok(())
    }

    fn wake_at_end(&mut self, pid: u32) {
        // One that has ended already is found by the next look.
        if let Ok(file) = pidfd(pid) {
            self.inner.wake_on(file);
        }
    }

    /// Passes a signal on to the programs; whether the run ends with it.
    fn heed(&mut self) -> bool {
        let Some((signal, only_here)) = self.signals.pending() else {
            return false;
        };
        // From a terminal the programs got it too; from `kill` only this process did. The second one is meant.
        if only_here || self.asked_to_end {
            let signal = if self.asked_to_end {
                libc::SIGKILL
            } else {
                signal
            };
            if !self.crew.signal(signal) {
                return true;
            }
        } else if !self.crew.signal(0) {
            return true;
        }
        self.asked_to_end = true;
        false
    }
}

fn placed_at_launch(pid: u32, cpus: Arc<CpuSet>) -> Placement {
    let thread = ThreadId(pid);
    let target = Target::Cpus(cpus);
    let reason = Reason::rule("where the workload launches it");
    Placement {
        threads: vec![ThreadPlacement::new(thread, target, reason)],
        ..Placement::default()
    }
}

/// Adds what came to what there is; whether there was anything. Most of the time there is not, and nothing is copied.
fn append<T>(all: &mut Vec<T>, mut more: Vec<T>) -> bool {
    if all.is_empty() {
        *all = more;
        return false;
    }
    all.append(&mut more);
    true
}

impl<E: LiveEngine> Engine for Attended<E>
where
    E::Error: From<CounterError>,
{
    type Error = E::Error;

    fn topology(&self) -> &Arc<Topology> {
        self.inner.topology()
    }

    fn observe(&mut self, watch: &Watch<'_>, until: Nanos) -> Result<Observation, E::Error> {
        if let Some(gauges) = &mut self.gauges
            && self.watched.changes(watch)
        {
            gauges.turn_to(watch.metrics);
        }
        let mut seen = Observation::default();
        let mut joined = false;
        loop {
            self.start()?;
            let part = self
                .inner
                .observe(watch, until.min(self.crew.next_start()))?;
            self.now = part.at;
            (seen.at, seen.threads, seen.tells_phases) = (part.at, part.threads, part.tells_phases);
            append(&mut seen.events, part.events);
            append(&mut seen.ended, part.ended);
            joined |= append(&mut seen.samples, part.samples);
            seen.finished = self.crew.reap(part.at) | self.heed();
            let rung = self.is_rung();
            if seen.finished
                || rung
                || self.now >= until
                || (watch.events && !seen.events.is_empty())
            {
                if joined {
                    seen.samples.sort_by_key(|s| (s.thread, s.at));
                }
                if let Some(gauges) = &mut self.gauges {
                    gauges.read(&mut seen);
                }
                self.programs.fill(&mut seen);
                self.pages
                    .hear(&mut seen, |thread| self.inner.process_of(thread));
                return Ok(seen);
            }
        }
    }

    fn apply(&mut self, placement: &Placement) -> Result<Applied, E::Error> {
        let applied = self.inner.apply(placement)?;
        if !self.inner.is_dry() {
            self.pages.say(placement);
        }
        Ok(applied)
    }

    fn forecast(&mut self) -> Option<&mut dyn Forecast> {
        Some(self)
    }
}

impl<E: LiveEngine> Forecast for Attended<E> {
    fn predicts(&self) -> bool {
        false
    }

    fn steady_state(&mut self, _: &[ThreadId], _: &[CpuId]) -> Vec<ThreadForecast> {
        Vec::new()
    }

    fn signature(&mut self, thread: ThreadId) -> Option<Signature> {
        let pid = self.inner.process_of(thread)?;
        self.signatures.of_process(pid)
    }
}
