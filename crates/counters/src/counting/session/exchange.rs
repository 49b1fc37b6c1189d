//! Exchange of sessions: a session with other events replaces this one while threads run.
//!
//! Input: two sessions that count the same threads. Output: the last samples of the former session; and the new session, whose
//! samples begin at that end.
use countersteer_model::counters::{Samples, Which};
use countersteer_model::units::Nanos;

use super::super::follow::TaskEvent;
use super::Session;
use crate::CounterError;

impl Session {
    /// Takes the last samples of this session and continues as `next`. The same processes have to be attached to `next`.
    ///
    /// Event sets of this session are switched off before its last counts are read, so the counts of running threads are
    /// complete. The counts of `next` up to then are read as well, and discarded. So each count of a thread is in samples of
    /// one session only.
    ///
    /// Counts of a running thread between the two switches are in neither session: some microseconds for each CPU. Per-thread
    /// counters cannot be read thread by thread if threads have created others. For each created thread, up to one sampling
    /// interval (a tenth of a period) may be missing or be in samples of both.
    ///
    /// Forks, execs and exits that only one of the two sessions has reported are kept.
    ///
    /// # Errors
    /// Fails if counters cannot be switched or read any more. This session then continues if it can.
    pub fn exchange(
        &mut self,
        mut next: Self,
        mut take: impl FnMut(&Samples),
    ) -> Result<(), CounterError> {
        if let Err(error) = self.switch_over(&mut next) {
            let again = self.counters.select(self.set as u32, true);
            return again.and(Err(error));
        }
        self.take_in_last()?;
        self.follower.readings.sort();
        take(&self.follower.readings);
        let former = self.follower.task_events.take().unwrap_or_default();
        if let Some(events) = &mut next.follower.task_events {
            add_missing(events, former);
        }
        next.counters.poller().take_over(self.counters.poller());
        *self = next;
        Ok(())
    }

    /// Switches the events of this session off and those of `next` on, and discards the counts of `next` before that.
    fn switch_over(&mut self, next: &mut Self) -> Result<(), CounterError> {
        if next.counters.follows_while_off() {
            next.counters.select(next.set as u32, false)?;
            next.discard()?;
            self.counters.select(self.set as u32, false)?;
            next.counters.select(next.set as u32, true)?;
        } else {
            // If neither session counted for a while, forks and exits would be missed. So `next` already counts.
            self.counters.select(self.set as u32, false)?;
            next.discard()?;
        }
        next.turned = next.counters.now();
        Ok(())
    }

    /// Processes all counts so far, without reporting them.
    fn discard(&mut self) -> Result<(), CounterError> {
        self.follower.listen(&mut *self.counters, true);
        self.follower.settle(&mut *self.counters)?;
        self.reported();
        Ok(())
    }

    /// Processes the remaining counts of counters that are switched off.
    pub(in super::super) fn take_in_last(&mut self) -> Result<(), CounterError> {
        self.follower.drain(&mut *self.counters);
        match self.owner {
            Some(owner) => {
                self.follower.read(&mut *self.counters, owner)?;
                self.follower.flush(Which::All);
                Ok(())
            }
            None => self.follower.settle(&mut *self.counters),
        }
    }
}

/// Inserts the events of the former session in front, except for those that both sessions have reported.
fn add_missing(
    events: &mut Vec<(Nanos, u32, TaskEvent)>,
    mut former: Vec<(Nanos, u32, TaskEvent)>,
) {
    let mut reported = former.clone();
    events.retain(|(_, tid, event)| {
        let same = |other: &(Nanos, u32, TaskEvent)| (&other.1, &other.2) == (tid, event);
        let found = reported.iter().position(same);
        found.map(|place| reported.swap_remove(place)).is_none()
    });
    former.append(events);
    *events = former;
}

#[cfg(test)]
mod tests;
