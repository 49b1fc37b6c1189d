//! A session that is asked instead of one that tells: what engines look through.
//!
//! Input: processes, one after the other. Output: what befell their threads, and readings of the time since the last ones: thread by
//! thread, or of trees of threads, which costs them less.

mod census;

use std::os::fd::OwnedFd;
use std::time::Duration;

use countersteer_core::counters::{Plan, Readings, Which};
use countersteer_core::cpuset::CpuSet;
use countersteer_core::units::Nanos;

use super::super::backend::{Backend, Kernel};
use super::super::follow::{Fate, Follower};
use super::super::notes::TAKEN_IN;
use super::super::open::{Leaving, Opened, Opening, Whom};
use super::super::resolve::{CoreTypes, Resolved};
use super::super::roll::{self, LoadRoll};
use super::super::{CounterError, tasks};
use super::{HOUSEKEEPING, LEAST_SAMPLE_NS, Request, Target, add_newborn, tids_of};
use census::Census;

/// Counters over processes that are added one by one.
pub struct Watch {
    request: Request,
    backend: Kernel,
    follower: Follower,
    origin: Nanos,
    /// The set whose turn it is, and since when.
    set: usize,
    turned: Nanos,
    /// Trees of threads are counted instead of threads.
    census: Option<Census>,
    /// Who the next readings are of.
    which: Which,
    /// What threads have counted may be told late.
    patient: bool,
    /// Records that were lost when trees were last looked at.
    lost: u64,
    /// Trees that are over and whose last word is still to come.
    late: Vec<u32>,
}

/// A thread that may tell late what it counted does so each so many times that it leaves a CPU: it is interrupted for that. One that
/// runs for long tells anyway, as the clock goes.
const SWITCHES: u64 = 8;

/// Rounds in which threads are looked for that were born while others were taken in, and how long their births may take to be told.
const MOST_ROUNDS: usize = 10;
const TOLD: Duration = Duration::from_millis(2);

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
        follower.farewells = opening.traces(opened.user_only).is_some();
        follower.fates = Some(Vec::new());
        drop(opening);
        let backend = Kernel::new(opened, Vec::new())?;
        let origin = backend.now();
        let set = 0;
        let turned = origin;
        let census = None;
        let which = Which::All;
        let patient = false;
        let lost = 0;
        let late = Vec::new();
        Ok(Self {
            request,
            backend,
            follower,
            origin,
            set,
            turned,
            census,
            which,
            patient,
            lost,
            late,
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

    /// The same over nobody yet, for who leaves threads alone: births and ends are told, and what threads have counted stands, when
    /// [`Watch::sum_up`] asks, in the readings of those that were there first, together with what they gave birth to.
    ///
    /// A roll inside the kernel knows of them without cost, if `load` is there to load one and it knows all that is counted.
    #[must_use]
    pub fn sparing(mut self, load: Option<LoadRoll>) -> Self {
        // The events that tell of births tell no counts.
        self.backend.opened.last_words_each = 0;
        let suffices = roll::suffices(&self.request.sets, self.request.core_types.names.len());
        self.backend.roll = load.filter(|_| suffices).and_then(|load| load().ok());
        Self {
            census: Some(Census::default()),
            ..self
        }
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

    /// Whether trees of threads are counted instead of threads.
    #[must_use]
    pub const fn is_sparing(&self) -> bool {
        self.census.is_some()
    }

    /// Leaves threads out of readings that ran for less than this since they were last in them, until [`Watch::sum_up`] asks; and
    /// has those that leave their CPU often tell less often what they counted.
    #[must_use]
    pub fn patient(mut self, less_than: Nanos) -> Self {
        self.follower.ledger.pass_over(less_than);
        Self {
            which: Which::Due,
            patient: true,
            ..self
        }
    }

    /// Has the next readings tell everything: what trees of threads have counted so far, and of threads that hardly ran.
    ///
    /// # Errors
    /// Counters cannot be read any more.
    pub fn sum_up(&mut self) -> Result<(), CounterError> {
        self.which = Which::All;
        self.follower.ledger.hurry();
        let Self {
            census,
            backend,
            follower,
            ..
        } = self;
        census.as_mut().map_or(Ok(()), |census| {
            census.read(backend, follower, None).map(drop)
        })
    }

    /// Whether threads were born or have ended for which there was no room on the roll: it does not know all any more.
    #[must_use]
    pub fn overflows(&self) -> bool {
        self.backend
            .roll
            .as_ref()
            .is_some_and(|roll| roll.lost() > 0)
    }

    /// Whether threads that have ended may still tell what they did at last.
    #[must_use]
    pub const fn is_owed(&self) -> bool {
        !self.late.is_empty()
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
        let mut opening = request.opening(LEAST_SAMPLE_NS);
        opening.leaving = Leaving::Each(if self.patient { SWITCHES } else { 1 });
        if self.census.is_some() {
            return self.take_in(&opening, pid, tids);
        }
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

    /// Takes in threads of a process, and again those that were born meanwhile to others than those.
    fn take_in(
        &mut self,
        opening: &Opening<'_>,
        pid: u32,
        mut tids: Vec<u32>,
    ) -> Result<(), CounterError> {
        let Self {
            census: Some(census),
            backend,
            follower,
            set,
            ..
        } = self
        else {
            return Ok(());
        };
        for _ in 0..MOST_ROUNDS {
            census.add(opening, (pid, &tids), *set, (backend, follower))?;
            tids = unknown(pid, follower);
            if tids.is_empty() {
                break;
            }
            std::thread::sleep(TOLD);
            follower.listen(backend, true);
            tids.retain(|tid| !follower.ledger.is_alive(*tid));
        }
        Ok(())
    }

    fn switch(&mut self, set: usize, on: bool) -> Result<(), CounterError> {
        match &self.census {
            Some(census) => census.switch(set, on),
            None => self.backend.switch(set as u32, on),
        }
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
        if self.backend.roll.is_none() && !self.request.sets.is_empty() {
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
            self.switch(self.set, false)?;
        }
        let over = self.over()?;
        self.follower
            .flush(std::mem::replace(&mut self.which, Which::Due));
        if next != self.set {
            self.switch(next, true)?;
            (self.set, self.turned) = (next, now);
        }
        take(&self.follower.readings, &self.request.plan);
        self.follower.readings.clear();
        self.follower.reported();
        self.close(&over);
        Ok(())
    }

    /// Trees of roots that have ended with all that they gave birth to, when their last word was heard. Where births may have been
    /// missed nobody knows them.
    fn over(&mut self) -> Result<Vec<u32>, CounterError> {
        if self.follower.lost() > self.lost {
            self.lost = self.follower.lost();
            self.follower.trees.doubt();
        }
        let Self {
            census,
            backend,
            follower,
            late,
            ..
        } = self;
        let mut over = follower.trees.take_over();
        over.append(late);
        if over.is_empty() {
            return Ok(over);
        }
        if let Some(census) = census {
            *late = census.read(backend, follower, Some(&over))?;
            over.retain(|tree| !late.contains(tree));
        }
        Ok(over)
    }

    /// Closes the counters of trees that are over.
    fn close(&mut self, over: &[u32]) {
        if over.is_empty() {
            return;
        }
        self.backend.opened.close(over);
        if let Some(census) = &mut self.census {
            census.close(&mut self.backend, over);
        }
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

/// Threads of a process whose births nobody has told of.
fn unknown(pid: u32, follower: &Follower) -> Vec<u32> {
    let mut tids = tasks::of_process(pid).unwrap_or_default();
    tids.retain(|tid| !follower.ledger.is_alive(*tid));
    tids
}
