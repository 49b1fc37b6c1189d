//! Other counters for an engine that runs.
//!
//! Input: the metrics that a policy reads from now on, and how often. Output: another watch over the same processes. The first
//! one goes on until the second is there, so nobody is born or ends unseen; what it has read until then is kept.

use std::collections::BTreeSet;

use countersteer_core::counters::Plan;
use countersteer_core::units::Nanos;

use super::{AffinityEngine, AffinityError};
use crate::counters::{CounterError, Resolved, Watch};

/// Events to count, with their plan.
pub type Counters = (Vec<Vec<Resolved>>, Plan);

/// Chooses counters while an engine runs.
pub trait Recount {
    /// Events for these metrics, read so often; `None` where they are those that are counted already, or nothing can be counted.
    fn counters(&mut self, metrics: &[&'static str], period: Nanos) -> Option<Counters>;

    /// They could not be opened; those before are counted on.
    fn failed(&mut self, why: &str);
}

impl AffinityEngine {
    /// An engine that counts what policies read that come later.
    #[must_use]
    pub fn recounting(mut self, recount: Box<dyn Recount>) -> Self {
        self.recount = Some(recount);
        self
    }

    pub(super) fn count_anew(&mut self, metrics: &[&'static str], period: Nanos) -> Result<(), AffinityError> {
        let Some(mut recount) = self.recount.take() else { return Ok(()) };
        let mut done = Ok(());
        if let Some(counters) = recount.counters(metrics, period) {
            if self.counting {
                match self.another_watch(counters, period) {
                    Ok(watch) => done = self.go_over(watch),
                    Err(error) => recount.failed(&error.to_string()),
                }
            } else {
                recount.failed("this run goes without counters");
            }
        }
        self.recount = Some(recount);
        done
    }

    fn processes(&self) -> BTreeSet<u32> {
        self.roster.members.values().map(|m| m.before.pid).collect()
    }

    fn another_watch(&self, counters: Counters, period: Nanos) -> Result<Watch, CounterError> {
        let mut watch = self.watch.another(counters, period)?;
        for pid in self.processes() {
            ignore_gone(watch.add(pid))?;
        }
        Ok(watch)
    }

    fn go_over(&mut self, mut watch: Watch) -> Result<(), AffinityError> {
        let before = self.processes();
        // What befell threads meanwhile.
        self.watch.listen();
        self.follow()?;
        let samples = self.read(self.watch.now())?;
        self.read_before.extend(samples);
        watch.listen();
        for pid in self.processes().difference(&before) {
            if !watch.knows(*pid) {
                ignore_gone(watch.add(*pid))?;
            }
        }
        watch.take_over(&mut self.watch);
        self.watch = watch;
        Ok(())
    }
}

/// A process that has ended is not missed.
fn ignore_gone(added: Result<(), CounterError>) -> Result<(), CounterError> {
    match added {
        Err(CounterError::Gone { .. }) => Ok(()),
        other => other,
    }
}
