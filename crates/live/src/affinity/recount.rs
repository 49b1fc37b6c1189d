//! Exchange of the counters of a running affinity engine.
//!
//! Input: counters of the metrics that a policy reads from now on, and their period. Output: another counting session over the
//! same processes. The former session counts until the new one is open, so no fork and no exit is missed. Its last samples are
//! kept.
use std::collections::BTreeSet;

use countersteer_counters::{CounterError, Session};
use countersteer_model::sample::Samples;
use countersteer_model::units::Nanos;

use super::AffinityEngine;
use crate::placer::{CounterPlan, EngineError};
use crate::undo::Journal;

impl AffinityEngine {
    /// Replaces the counters by these, with this period. Fails with [`EngineError::Uncounted`] if they cannot be opened; the
    /// former counters then continue.
    pub(super) fn count_anew(
        &mut self,
        counters: CounterPlan,
        period: Nanos,
        journal: &mut Journal,
    ) -> Result<(), EngineError> {
        if !self.counting {
            return Err(EngineError::Uncounted(
                "this run goes without counters".into(),
            ));
        }
        match self.another_session(counters, period) {
            Ok(session) => self.go_over(session, journal),
            Err(error) => Err(EngineError::Uncounted(error.to_string())),
        }
    }

    fn processes(&self) -> BTreeSet<u32> {
        self.tasks.members.values().map(|m| m.before.pid).collect()
    }

    fn another_session(
        &self,
        counters: CounterPlan,
        period: Nanos,
    ) -> Result<Session, CounterError> {
        let mut session = self.session.another(counters, period)?;
        if self.last == Nanos::ZERO && self.tasks.members.is_empty() {
            // Times count from the moment at which all counters are open.
            session = session.from_now_on();
        }
        for pid in self.processes() {
            ignore_gone(session.attach(pid))?;
        }
        Ok(session)
    }

    /// Continues with another session that counts the same processes.
    fn go_over(&mut self, next: Session, journal: &mut Journal) -> Result<(), EngineError> {
        let before = self.processes();
        let origin = self.session.origin();
        let mut counted = Samples::default();
        self.session.exchange(next, |last| counted = last.clone())?;
        // The forks reported so far are handled before the counts of the forked threads.
        self.follow(journal)?;
        self.keep(&counted, origin, self.session.now());
        for pid in self.processes().difference(&before) {
            if let Err(error) = ignore_gone(self.session.attach(*pid)) {
                self.blind.get_or_insert_with(|| error.to_string());
            }
        }
        Ok(())
    }
}

/// Converts the error for a process that has ended to success.
fn ignore_gone(added: Result<(), CounterError>) -> Result<(), CounterError> {
    match added {
        Err(CounterError::Gone { .. }) => Ok(()),
        other => other,
    }
}
