//! Other counters for an engine that runs.
//!
//! Input: the metrics that a policy reads from now on, and how often. Output: another watch over the same processes. The first
//! one goes on until the second is there, so nobody is born or ends unseen; what it has read until then is kept.

use std::collections::BTreeSet;

use countersteer_core::counters::Plan;
use countersteer_core::units::Nanos;

use super::scan::Scan;
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

    pub(super) fn count_anew(
        &mut self,
        metrics: &[&'static str],
        period: Nanos,
    ) -> Result<(), AffinityError> {
        let Some(mut recount) = self.recount.take() else {
            return Ok(());
        };
        let mut done = Ok(());
        self.config.period = period;
        if let Some(counters) = recount.counters(metrics, period) {
            if self.counting {
                match self.another_watch(counters.clone(), self.close) {
                    Ok(watch) => {
                        done = self.go_over(watch);
                        self.config.counters = Some(counters);
                    }
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

    /// Looks at each thread from now on, or spares them that.
    pub(super) fn look_closely(&mut self, close: bool) -> Result<(), AffinityError> {
        if close == std::mem::replace(&mut self.close, close) || !self.counting {
            return Ok(());
        }
        let Some(counters) = self.config.counters.clone() else {
            return Ok(());
        };
        match (self.another_watch(counters, close), &mut self.recount) {
            (Ok(watch), _) => self.go_over(watch)?,
            // Who is to be placed is looked at in any case.
            (Err(error), Some(recount)) if close => recount.failed(&error.to_string()),
            _ => {}
        }
        Ok(())
    }

    /// Goes on with counters, since there are more threads than there is room for inside the kernel. Those that were missed are
    /// sought, twice: while the first ones are being taken in, others are born.
    pub(super) fn leave_roll(&mut self) -> Result<(), AffinityError> {
        let Some(counters) = self.config.counters.clone() else {
            return Ok(());
        };
        self.catch_up()?;
        // What is on the roll is better than nothing.
        let Ok(watch) = self.another_watch(counters, self.close) else {
            return Ok(());
        };
        self.go_over(watch)?;
        // Who was born to one that is counted by now is counted, and told of.
        self.watch.listen_closely();
        self.follow()?;
        let before = self.processes();
        self.catch_up()?;
        self.watch.listen_closely();
        for pid in self.processes().difference(&before) {
            if !self.watch.knows(*pid)
                && let Err(error) = ignore_gone(self.watch.add(*pid))
            {
                self.blind.get_or_insert_with(|| error.to_string());
            }
        }
        Ok(())
    }

    /// Takes in what nobody has told of: births and ends that can be seen.
    fn catch_up(&mut self) -> Result<(), AffinityError> {
        let mut scan = Scan::default();
        let mut fates = Vec::new();
        self.roster
            .members
            .iter()
            .for_each(|(tid, member)| scan.knows(member.before.pid, *tid));
        scan.look(self.watch.now(), &mut fates);
        self.take(fates)
    }

    fn another_watch(&self, counters: Counters, close: bool) -> Result<Watch, CounterError> {
        let watch = self.watch.another(counters, self.config.period)?;
        let mut watch = if close {
            self.config.with_patience(watch)
        } else {
            watch.sparing(self.config.roll)
        };
        if self.last == Nanos::ZERO && self.roster.members.is_empty() {
            // Time begins when everything is ready.
            watch = watch.from_now_on();
        }
        for pid in self.processes() {
            ignore_gone(watch.add(pid))?;
        }
        Ok(watch)
    }

    fn go_over(&mut self, mut watch: Watch) -> Result<(), AffinityError> {
        let before = self.processes();
        // What befell threads meanwhile.
        self.watch.hear_the_last();
        self.follow()?;
        self.watch.sum_up()?;
        let samples = self.read(self.watch.now())?;
        self.read_before.extend(samples);
        // What both have counted has been read by now.
        watch.sum_up()?;
        watch.turn(|_, _| {})?;
        watch.listen();
        for pid in self.processes().difference(&before) {
            if !watch.knows(*pid)
                && let Err(error) = ignore_gone(watch.add(*pid))
            {
                self.blind.get_or_insert_with(|| error.to_string());
            }
        }
        watch.take_over(&mut self.watch);
        self.watch = watch;
        let sparing = self.watch.is_sparing();
        self.roots = self
            .roster
            .members
            .iter()
            .filter(|_| sparing)
            .map(|(tid, m)| (*tid, m.program))
            .collect();
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
