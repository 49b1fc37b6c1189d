//! Counting until the target exits, or a time or a number of samples is reached, with a [`Tick`] per period.
//!
//! Input: a [`Session`]. Output: a [`Tick`] per period with the samples since the last one, then a [`CountingSummary`].
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;

use countersteer_model::counters::{Samples, Which};
use countersteer_model::units::Nanos;
use countersteer_sysfs::launch::{ExitEnding, WaitingProgram};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};

use super::follow::Follower;
use super::session::{HOUSEKEEPING, Session};
use crate::CounterError;

pub struct Tick<'a> {
    /// Start of the session, by the clock of the samples.
    pub origin: Nanos,
    /// End of the period, by the clock of the samples.
    pub at: Nanos,
    /// Index of the period, from 0.
    pub number: u64,
    /// Samples of the period.
    pub readings: &'a Samples,
    /// True for the last period.
    pub last: bool,
    /// Follower, which knows the names of threads.
    follower: &'a Follower,
}

impl Tick<'_> {
    /// Returns the name of a thread; `?` if unknown.
    #[must_use]
    pub fn name(&self, tid: u32) -> &str {
        self.follower.name(tid)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountingSummary {
    /// Exit status or signal of the started program; `None` if no program was started.
    pub ending: Option<ExitEnding>,
    /// Time from the start to the end of the session.
    pub elapsed: Nanos,
    /// CPU time in user mode of the started program and of its children that it waited for.
    pub user: Nanos,
    /// CPU time in the kernel of the started program and of its children that it waited for.
    pub system: Nanos,
    /// Number of threads created during the session.
    pub forked: u64,
    /// Number of records that did not fit into a ring buffer. Their counts are in the samples of
    /// [`countersteer_model::counters::Owner::Rest`].
    pub lost: u64,
    /// Number of final counts that lacked an event. The missing counts are in the samples of `Owner::Rest`, too.
    pub partial: u64,
    /// True if only user mode was counted, because counting the kernel is not permitted.
    pub user_only: bool,
}

impl Session {
    /// Returns a handle that ends [`Session::run`] from another thread.
    ///
    /// # Errors
    /// Fails with EMFILE.
    pub fn stopper(&mut self) -> Result<Stopper, CounterError> {
        self.counters
            .poller()
            .stopper()
            .map(Stopper)
            .map_err(CounterError::system("preparing the end of counting"))
    }

    /// Counts until the target exits, the time or the number of samples is reached, or `sink` returns [`ControlFlow::Break`].
    ///
    /// # Errors
    /// Fails if the program cannot be started, or counters cannot be read any more.
    pub fn run(
        mut self,
        mut sink: impl FnMut(&Tick<'_>) -> ControlFlow<()>,
    ) -> Result<CountingSummary, CounterError> {
        self = self.from_now_on();
        let mut child = self.child.take();
        match &mut child {
            Some(child) => child.release()?,
            None => self.counters.select(0, true)?,
        }
        self.run_periods(child.as_ref(), &mut sink)?;
        let elapsed = self.now();
        let before = children_cpu_time();
        let ending = child.as_ref().map(|child| self.end_of(child)).transpose()?;
        let (user, system) = children_cpu_time();
        Ok(CountingSummary {
            ending,
            elapsed,
            user: user.since(before.0),
            system: system.since(before.1),
            forked: self.follower.forked,
            lost: self.follower.lost(),
            partial: self.follower.partial,
            user_only: self.counters.user_only(),
        })
    }

    /// Waits for the end of the started program, to which signals are passed on.
    fn end_of(&mut self, child: &WaitingProgram) -> Result<ExitEnding, CounterError> {
        let mut asked_to_end = false;
        loop {
            if let Some(ending) = child.ended() {
                return Ok(ending);
            }
            let woken = self.counters.poller().wait(HOUSEKEEPING, &[]);
            let (wake, _) = woken.map_err(CounterError::system("waiting for the program"))?;
            if let Some(signal) = wake.signal {
                pass_on(signal, child, std::mem::replace(&mut asked_to_end, true));
            }
        }
    }

    pub(super) fn run_periods(
        &mut self,
        child: Option<&WaitingProgram>,
        sink: SampleSink<'_>,
    ) -> Result<(), CounterError> {
        let mut reporting = Reporting { number: 0, sink };
        let interval = self.request.interval;
        let origin = self.origin;
        let deadline = self.request.duration.map_or(Nanos::NEVER, |d| origin + d);
        let mut next = interval.map_or(Nanos::NEVER, |i| origin + i);
        let mut asked_to_end = false;
        if let Some(owner) = self.owner {
            self.follower.read(&mut *self.counters, owner)?;
        }
        loop {
            let until = next.min(deadline).min(self.counters.now() + HOUSEKEEPING);
            let wake = self.counters.wait(until)?;
            self.listen();
            self.renew()?;
            if let Some(signal) = wake.signal {
                let Some(child) = child else { break };
                pass_on(signal, child, std::mem::replace(&mut asked_to_end, true));
            }
            let now = self.counters.now();
            if wake.ended {
                self.counters.wait_for_final_counts();
            }
            if wake.ended || now >= deadline {
                break;
            }
            if now < next {
                // Without a sampling interval, a thread is reported when it has exited.
                self.follower.flush(Which::Ended);
                let reports = interval.is_none() && !self.follower.readings.rows().is_empty();
                if reports && reporting.report(self, now, false) {
                    return Ok(());
                }
                continue;
            }
            // The last requested sample is the one at the end, so the loop ends before it.
            if self
                .request
                .samples
                .is_some_and(|n| reporting.number + 1 >= n)
            {
                break;
            }
            self.end_period()?;
            if reporting.report(self, now, false) {
                return Ok(());
            }
            let period = interval.unwrap_or(HOUSEKEEPING);
            next += period;
            if next <= now {
                // If the report is late by more than a period, samples are skipped instead of taken at short intervals.
                next = now + period;
            }
        }
        self.end()?;
        reporting.report(self, self.counters.now(), true);
        Ok(())
    }
}

type SampleSink<'a> = &'a mut dyn FnMut(&Tick<'_>) -> ControlFlow<()>;

/// Closure that receives each period, and the index of the next period.
struct Reporting<'a> {
    number: u64,
    sink: SampleSink<'a>,
}

impl Reporting<'_> {
    /// Passes the samples of the period to the closure. Returns true if the closure ends counting.
    fn report(&mut self, session: &mut Session, at: Nanos, last: bool) -> bool {
        let done = (self.sink)(&Tick {
            origin: session.origin,
            at,
            number: self.number,
            readings: &session.follower.readings,
            last,
            follower: &session.follower,
        })
        .is_break();
        session.reported();
        self.number += 1;
        done
    }
}

/// Returns user and system CPU time of all children of this process that have been waited for.
#[must_use]
pub fn children_cpu_time() -> (Nanos, Nanos) {
    let time = |t: TimeVal| Nanos((t.num_nanoseconds()).max(0).unsigned_abs());
    getrusage(UsageWho::RUSAGE_CHILDREN)
        .map(|usage| (time(usage.user_time()), time(usage.system_time())))
        .unwrap_or_default()
}

/// Handle that ends a session from another thread.
#[derive(Debug)]
pub struct Stopper(UnixStream);

impl Stopper {
    /// Acts like a signal to this process: the first call asks a started program to end, the second kills it.
    pub fn stop(&self) {
        // The write fails if the session has ended and closed the other end of the socket, which is no error.
        let _ = (&self.0).write(&[0]);
    }
}

/// Passes a signal on to the program. A signal of the terminal has already reached the program; a signal of `kill` has reached
/// this process only.
fn pass_on((signal, only_here): (i32, bool), child: &WaitingProgram, again: bool) {
    if only_here || again {
        child.signal(if again { libc::SIGKILL } else { signal });
    }
}
