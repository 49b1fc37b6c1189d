//! A session that is asked instead of one that tells: what engines look through.
//!
//! Input: processes, one after the other. Output: what befell their threads, and readings of the time since the last ones, thread by
//! thread.

use std::os::fd::OwnedFd;

use countersteer_core::counters::{Plan, Readings, Which};
use countersteer_core::cpuset::CpuSet;
use countersteer_core::units::Nanos;

use super::super::backend::{Backend, Kernel};
use super::super::follow::{Fate, Follower};
use super::super::notes::TAKEN_IN;
use super::super::open::{Opened, Whom};
use super::super::request::{LEAST_SAMPLE_NS, Request, Target};
use super::super::resolve::{CoreTypes, Resolved};
use super::super::{CounterError, tasks};
use super::{HOUSEKEEPING, add_newborn, tids_of};

/// Counters over processes that are added one by one.
pub struct Watch {
    request: Request,
    backend: Kernel,
    follower: Follower,
    origin: Nanos,
    /// The set whose turn it is, and since when.
    set: usize,
    turned: Nanos,
    /// Records that were lost when trees were last looked at.
    lost: u64,
}

impl Watch {
    /// A watch over nobody yet; it counts `sets` every `interval` on `cpus`.
    ///
    /// # Errors
    /// No file is left.
    pub fn new(
        (sets, plan): (Vec<Vec<Resolved>>, Plan),
        interval: Nanos,
        cpus: CpuSet,
        core_types: CoreTypes,
    ) -> Result<Self, CounterError> {
        let request = Request {
            target: Target::Processes(Vec::new()),
            sets,
            plan,
            interval: Some(interval),
            samples: None,
            duration: None,
            every: None,
            prompt: false,
            cpus,
            bind: None,
            total: false,
            output: None,
            core_types,
        };
        // Engines act on whether a thread ran all through a period, so they want its samples close together.
        let opening = request.opening(LEAST_SAMPLE_NS);
        let nothing = request.sets.iter().all(Vec::is_empty);
        let opened = if nothing {
            Opened::default()
        } else {
            Opened::open(&opening, Whom::Threads(&[]))?
        };
        let mut follower = Follower::new(request.core_types.by_cpu.clone(), &opened.infos);
        follower.exit_events = opening.traces(opened.user_only).is_some();
        follower.fates = Some(Vec::new());
        drop(opening);
        let backend = Kernel::new(opened, Vec::new())?;
        let origin = backend.now();
        let set = 0;
        let turned = origin;
        let lost = 0;
        Ok(Self {
            request,
            backend,
            follower,
            origin,
            set,
            turned,
            lost,
        })
    }

    /// A watch over nobody yet, by the same clock and with the same CPUs, that counts something else.
    ///
    /// # Errors
    /// No file is left.
    pub fn another(
        &self,
        counters: (Vec<Vec<Resolved>>, Plan),
        interval: Nanos,
    ) -> Result<Self, CounterError> {
        let new = Self::new(
            counters,
            interval,
            self.request.cpus.clone(),
            self.request.core_types.clone(),
        )?;
        Ok(Self {
            origin: self.origin,
            ..new
        })
    }

    /// The same, by a clock of its own.
    #[must_use]
    pub fn from_now_on(self) -> Self {
        let now = self.backend.now();
        Self {
            origin: now,
            turned: now,
            ..self
        }
    }

    /// Waits for the files too that another watch waited for.
    pub fn take_over(&mut self, from: &mut Self) {
        self.backend.take_over(&mut from.backend);
    }

    /// Whether a thread is counted.
    #[must_use]
    pub fn knows(&self, tid: u32) -> bool {
        self.follower.ledger.is_alive(tid)
    }

    #[must_use]
    pub fn now(&self) -> Nanos {
        self.backend.now().since(self.origin)
    }

    /// Counts of a process's threads from now on, and of what they give birth to; without counters, only its end is noticed.
    ///
    /// # Errors
    /// It is gone, or may not be counted.
    pub fn add(&mut self, pid: u32) -> Result<(), CounterError> {
        let tids = tasks::of_process(pid)?;
        let target = Target::Processes(vec![pid]);
        let request = Request {
            target,
            ..self.request.clone()
        };
        let opening = request.opening(LEAST_SAMPLE_NS);
        let known = self.backend.opened.infos.len();
        self.backend.opened.add_threads(&opening, &tids)?;
        self.follower.groups(&self.backend.opened.infos[known..]);
        let now = self.backend.now();
        tids.iter()
            .for_each(|tid| self.follower.root(pid, *tid, now));
        add_newborn(
            &[pid],
            &mut self.backend,
            &mut self.follower,
            |backend, threads| backend.opened.add_threads(&opening, &tids_of(threads)),
        )?;
        self.backend.switch(self.set as u32, true)
    }

    /// Makes [`Watch::wait`] return when something can be read here, once.
    pub fn wake_on(&mut self, file: OwnedFd) {
        self.backend.wake_on(file);
    }

    /// Waits until then, or less: until records came; whether it was a signal or one of those files.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn wait(&mut self, until: Nanos) -> Result<bool, CounterError> {
        let until = self.origin + until;
        let wake = self
            .backend
            .wait(until.min(self.backend.now() + HOUSEKEEPING))?;
        self.follower.listen(&mut self.backend, false);
        Ok(wake.file || wake.signal.is_some())
    }

    /// Takes in what rings hold by now.
    pub fn listen(&mut self) {
        self.follower.listen(&mut self.backend, false);
    }

    /// Takes in what rings hold by now, ends of just now as well, which take a moment.
    pub fn listen_closely(&mut self) {
        if !self.request.sets.is_empty() {
            std::thread::sleep(TAKEN_IN);
        }
        self.listen();
    }

    /// Takes in all that was told, since nobody will look again.
    pub fn hear_the_last(&mut self) {
        self.follower.hear_the_last(&mut self.backend);
    }

    /// What befell threads since the last call, by time.
    pub fn fates(&mut self) -> Vec<(Nanos, u32, Fate)> {
        let mut fates = self.follower.fates.replace(Vec::new()).unwrap_or_default();
        fates.iter_mut().for_each(|f| f.0 = f.0.since(self.origin));
        fates
    }

    /// Ends a period: the readings of the time since the last end, and the next set's turn, unless this one's has hardly begun.
    ///
    /// # Errors
    /// Counters cannot be switched any more.
    pub fn turn(&mut self, mut take: impl FnMut(&Readings, &Plan)) -> Result<(), CounterError> {
        let now = self.backend.now();
        let least = self
            .request
            .interval
            .map_or(Nanos::ZERO, |interval| Nanos(interval.0 * 3 / 4));
        let begun = now.since(self.turned) < least;
        let next = if begun {
            self.set
        } else {
            self.request.plan.after(self.set)
        };
        if next != self.set {
            self.backend.switch(self.set as u32, false)?;
        }
        let over = self.over();
        self.follower.flush(Which::All);
        if next != self.set {
            self.backend.switch(next as u32, true)?;
            (self.set, self.turned) = (next, now);
        }
        take(&self.follower.readings, &self.request.plan);
        self.follower.readings.clear();
        self.follower.reported();
        self.close(&over);
        Ok(())
    }

    /// Trees of roots that have ended with all their descendants, when their last word was heard. Where births may have been
    /// missed nobody knows them.
    fn over(&mut self) -> Vec<u32> {
        if self.follower.lost() > self.lost {
            self.lost = self.follower.lost();
            self.follower.trees.doubt();
        }
        self.follower.trees.take_over()
    }

    /// Closes the counters of trees that are over.
    fn close(&mut self, over: &[u32]) {
        if over.is_empty() {
            return;
        }
        self.backend.opened.close(over);
        over.iter()
            .for_each(|tree| self.follower.ledger.fell(*tree));
    }

    /// Since the watch began, by the clock of the readings.
    #[must_use]
    pub const fn origin(&self) -> Nanos {
        self.origin
    }

    /// Groups of counters that are open.
    #[must_use]
    pub const fn open(&self) -> usize {
        self.backend.opened.infos.len()
    }

    /// Records that did not fit into a ring.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.follower.lost()
    }
}
