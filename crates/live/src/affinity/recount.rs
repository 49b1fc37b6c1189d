//! Other counters for an engine that runs.
//!
//! Input: the metrics that a policy reads from now on, and how often. Output: another session over the same processes. The first
//! one goes on until the second is there, so no fork and no exit is missed; what it has read until then is kept.
use std::collections::BTreeSet;

use countersteer_counters::{CounterError, Session};
use countersteer_model::units::Nanos;

use super::AffinityEngine;
use crate::placer::{Counters, EngineError};
use crate::undo::Journal;

impl AffinityEngine {
    /// Counts these events from now on, read so often.
    pub(super) fn count_anew(
        &mut self,
        counters: Counters,
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

    fn another_session(&self, counters: Counters, period: Nanos) -> Result<Session, CounterError> {
        let mut session = self.session.another(counters, period)?;
        if self.last == Nanos::ZERO && self.tasks.members.is_empty() {
            // Time begins when everything is ready.
            session = session.from_now_on();
        }
        for pid in self.processes() {
            ignore_gone(session.attach(pid))?;
        }
        Ok(session)
    }

    fn go_over(&mut self, mut session: Session, journal: &mut Journal) -> Result<(), EngineError> {
        let before = self.processes();
        // What happened to threads meanwhile.
        self.session.hear_the_last();
        self.follow(journal)?;
        // Twice: final counts wait one flush for the exit.
        for _ in 0..2 {
            let samples = self.read(self.session.now())?;
            self.read_before = samples;
        }
        // What both have counted has been read by now.
        (0..2).try_for_each(|_| session.turn(|_| {}))?;
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
