//! Other counters for an engine that runs.
//!
//! Input: the metrics that a policy reads from now on, and how often. Output: another session over the same processes. The first
//! one goes on until the second is there, so nobody is born or ends unseen; what it has read until then is kept.

use std::collections::BTreeSet;

use countersteer_core::counters::Plan;
use countersteer_core::units::Nanos;

use super::{AffinityEngine, AffinityError};
use crate::counters::{CounterError, Resolved, Session};

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
                match self.another_session(counters.clone()) {
                    Ok(session) => {
                        done = self.go_over(session);
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

    fn another_session(&self, counters: Counters) -> Result<Session, CounterError> {
        let mut session = self.session.another(counters, self.config.period)?;
        if self.last == Nanos::ZERO && self.roster.members.is_empty() {
            // Time begins when everything is ready.
            session = session.from_now_on();
        }
        for pid in self.processes() {
            ignore_gone(session.attach(pid))?;
        }
        Ok(session)
    }

    fn go_over(&mut self, mut session: Session) -> Result<(), AffinityError> {
        let before = self.processes();
        // What befell threads meanwhile.
        self.session.hear_the_last();
        self.follow()?;
        // Twice: final counts wait one flush for the exit.
        for _ in 0..2 {
            let samples = self.read(self.session.now())?;
            self.read_before.extend(samples);
        }
        // What both have counted has been read by now.
        (0..2).try_for_each(|_| session.turn(|_, _| {}))?;
        session.listen();
        for pid in self.processes().difference(&before) {
            if !session.knows(*pid)
                && let Err(error) = ignore_gone(session.attach(*pid))
            {
                self.blind.get_or_insert_with(|| error.to_string());
            }
        }
        session.take_over(&mut self.session);
        self.session = session;
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
