//! Counting of threads, period by period, for `steer stat`, `steer top` and the affinity engine.
//!
//! Input: a [`CountRequest`], or processes that are attached one by one. Output: forks, execs and exits of threads, and samples of
//! the time since the last ones. [`Session::run`] passes each period to a closure; engines call [`Session::wait`] and
//! [`Session::turn`].
use std::os::fd::OwnedFd;
use std::path::Path;

use countersteer_model::counters::{Owner, Samples, Which};
use countersteer_model::units::Nanos;
use countersteer_sysfs::launch::{self, ProgramStreams, WaitingProgram};
use countersteer_sysfs::procfs::PROC;

use super::bpf::interface::BpfLoader;
use super::bpf::{self, BpfCounters};
use super::event_sorter::TAKEN_IN;
use super::follow::{Follower, TaskEvent};
use super::per_thread::PerThread;
use super::request::{CountRequest, CountTarget, SPACING_NS};
use super::targets::{awaited, cgroup, pids_of, roots, tids_of};
use super::task_counters::TaskCounters;
use super::tasks;
use crate::CounterError;
use crate::perf::hotplug::HotplugWatch;
use crate::perf::open::{CountedTasks, OpenedGroups};

/// Counting session with its open counters.
///
/// ```
/// use std::ops::ControlFlow;
///
/// use countersteer_counters::{CountRequest, CountTarget, Session};
///
/// # if !countersteer_counters::may_count() { return Ok(()); }
/// let program = CountTarget::Launch(vec!["ls".into(), "/".into()]);
/// let request = CountRequest::of_events(program, &["task_clock,page_faults"], None)?;
/// let mut page_faults = 0.0;
/// let summary = Session::open(request, None)?.run(|tick| {
///     for row in tick.readings.iter() {
///         page_faults += row.counts.values()[1];
///     }
///     ControlFlow::Continue(())
/// })?;
/// println!("{page_faults} page faults in {:.3} s", summary.elapsed.as_secs_f64());
/// assert!(page_faults > 0.0);
/// # Ok::<(), countersteer_counters::CounterError>(())
/// ```
pub struct Session {
    pub(super) request: CountRequest,
    pub(super) counters: Box<dyn TaskCounters + Send>,
    pub(super) follower: Follower,
    /// Program that is held before its `exec`; `None` if no program is to be started.
    pub(super) child: Option<WaitingProgram>,
    /// Owner of the totals that are read; `None` if each thread is counted separately.
    pub(super) owner: Option<Owner>,
    /// Minimum time in ns between two samples of a thread.
    spacing_ns: u64,
    /// Time of the session's start.
    pub(super) origin: Nanos,
    /// Index of the set that counts.
    set: usize,
    /// Time since which that set counts.
    turned: Nanos,
    /// Number of lost records when trees were last checked.
    lost: u64,
    /// Loader of the BPF programs, for the session that may replace this one.
    offer: Option<BpfLoader>,
    /// Detector of CPUs that come back online, and the folder of the control group; `None` unless counters of whole CPUs are
    /// open.
    of_cpus: Option<(HotplugWatch, Option<OwnedFd>)>,
}

/// Limit on the interval between reads of ring buffers, even without a period.
pub(super) const HOUSEKEEPING: Nanos = Nanos::from_millis(250);

/// Open counters, the follower of their threads, and the owner of totals.
type Open = (Box<dyn TaskCounters + Send>, Follower, Option<Owner>);

impl Session {
    /// Opens the counters of a request. A program to be started waits for [`Session::run`]. BPF programs count the threads if
    /// `loader` is given and can load them.
    ///
    /// # Errors
    /// Fails if counters cannot be opened, or targets do not exist.
    pub fn open(request: CountRequest, loader: Option<BpfLoader>) -> Result<Self, CounterError> {
        let child = match &request.target {
            CountTarget::Launch(command) => {
                // A misspelt name is the first error shown, and its output file is not created.
                launch::find_program(command)?;
                let output = request.output.as_deref();
                let streams = output.map(ProgramStreams::to).transpose()?;
                let bind = request.bind.as_ref();
                Some(launch::hold(command, bind, streams.as_ref())?)
            }
            _ => None,
        };
        let roots = roots(&request.target, child.as_ref())?;
        let program = child.as_ref().map(WaitingProgram::pid);
        let awaited = match request.target {
            CountTarget::Present(_) => Vec::new(),
            _ => awaited(&roots)?,
        };
        let follow = loader
            .as_ref()
            .map(|loader| bpf::follow(&request, SPACING_NS, (roots.len(), program), loader))
            .transpose()?
            .flatten();
        let is_inside = follow.is_some();
        let open = match follow {
            Some(follow) => {
                let pids = pids_of(&roots);
                Self::by_bpf(
                    &request,
                    BpfCounters::new(follow, &request.plan, pids, awaited)?,
                )
            }
            None => Self::by_events(&request, SPACING_NS, &tids_of(&roots), awaited)?,
        };
        let mut session = Self::over(request, SPACING_NS, open);
        session.child = child;
        if session.owner == Some(Owner::Cpu) {
            let folder = cgroup(&session.request.target)?;
            session.of_cpus = Some((HotplugWatch::new(Path::new("/")), folder));
        }
        if session.owner.is_none() {
            session.take_in(&roots);
            // A program to be started is already known to the BPF programs. Per-thread counters are already open.
            if is_inside && session.child.is_none() {
                let opening = session.request.opening(session.spacing_ns);
                session.counters.attach(&opening, &roots)?;
            }
            if let CountTarget::Processes(pids) | CountTarget::Present(pids) =
                &session.request.target
            {
                session.attach_unknown(&pids.clone())?;
            }
        }
        Ok(session)
    }

    /// Returns the parts of a session whose threads BPF programs count.
    fn by_bpf(request: &CountRequest, counted: BpfCounters) -> Open {
        let follower = Follower::new(&request.core_types.by_cpu, counted.groups(), &request.plan);
        (Box::new(counted), follower, None)
    }

    /// Opens counters of threads, CPUs or control groups. Returns the parts of a session.
    fn by_events(
        request: &CountRequest,
        spacing_ns: u64,
        tids: &[u32],
        awaited: Vec<OwnedFd>,
    ) -> Result<Open, CounterError> {
        let folder = cgroup(&request.target)?;
        let opening = request.opening(spacing_ns);
        let whom = match (&request.target, &folder) {
            (CountTarget::Cpus, _) => CountedTasks::Cpus,
            (_, Some(folder)) => CountedTasks::Cgroup(folder),
            _ if request.total => CountedTasks::Total(tids),
            _ => CountedTasks::Threads(tids),
        };
        let opened = OpenedGroups::open(&opening, whom)?;
        let owner = match whom {
            CountedTasks::Threads(_) => None,
            CountedTasks::Total(_) => Some(Owner::Total),
            CountedTasks::Cpus | CountedTasks::Cgroup(_) => Some(Owner::Cpu),
        };
        let mut follower = Follower::new(&request.core_types.by_cpu, &opened.infos, &request.plan);
        follower.each_sample = request.every.is_some();
        Ok((Box::new(PerThread::new(opened, awaited)?), follower, owner))
    }

    pub(super) fn over(
        request: CountRequest,
        spacing_ns: u64,
        (counters, follower, owner): Open,
    ) -> Self {
        let origin = counters.now();
        Self {
            request,
            counters,
            follower,
            child: None,
            owner,
            spacing_ns,
            origin,
            set: 0,
            turned: origin,
            lost: 0,
            offer: None,
            of_cpus: None,
        }
    }

    /// Returns the session with its time origin set to now.
    #[must_use]
    pub fn from_now_on(self) -> Self {
        let now = self.counters.now();
        Self {
            origin: now,
            turned: now,
            ..self
        }
    }

    /// True if the thread is being counted.
    #[must_use]
    pub fn knows(&self, tid: u32) -> bool {
        self.follower.ledger.is_alive(tid)
    }

    #[must_use]
    pub fn now(&self) -> Nanos {
        self.counters.now().since(self.origin)
    }

    /// Counts the threads of a process from now on, and their descendants. A session without events notices only their exits.
    /// Threads that are already counted continue, since their counts are cumulative.
    ///
    /// # Errors
    /// Fails if the process does not exist, or may not be counted.
    pub fn attach(&mut self, pid: u32) -> Result<(), CounterError> {
        let threads: Vec<(u32, u32)> = tasks::of_process(pid)?
            .into_iter()
            .map(|tid| (pid, tid))
            .collect();
        if !threads.iter().any(|(_, tid)| self.knows(*tid)) {
            self.attach_threads(pid, &threads)?;
        }
        self.attach_unknown(&[pid])?;
        self.counters.select(self.set as u32, true)
    }

    fn attach_threads(&mut self, pid: u32, threads: &[(u32, u32)]) -> Result<(), CounterError> {
        let mut opening = self.request.opening(self.spacing_ns);
        opening.target = format!("process {pid}");
        let known = self.counters.groups().len();
        self.counters.attach(&opening, threads)?;
        self.follower.groups(&self.counters.groups()[known..]);
        self.take_in(threads);
        Ok(())
    }

    /// Adds threads whose counters are open to the follower.
    fn take_in(&mut self, threads: &[(u32, u32)]) {
        let now = self.counters.now();
        threads
            .iter()
            .for_each(|(pid, tid)| self.follower.root(*pid, *tid, now));
    }

    /// Attaches threads that are not counted yet, because their creators had no counters when they created them.
    fn attach_unknown(&mut self, pids: &[u32]) -> Result<(), CounterError> {
        for _ in 0..10 {
            let unknown = |pid: u32| {
                let tids = tasks::of_process(pid).unwrap_or_default();
                let is_unknown = |tid: &u32| !self.knows(*tid) && !PROC.has_exited(*tid);
                tids.into_iter().filter(is_unknown).collect()
            };
            let unknown: Vec<(u32, Vec<u32>)> =
                pids.iter().map(|pid| (*pid, unknown(*pid))).collect();
            if unknown.iter().all(|(_, tids)| tids.is_empty()) {
                break;
            }
            // A thread created by a counted one has inherited its counters, but its fork may not have been reported yet.
            std::thread::sleep(std::time::Duration::from_millis(2));
            self.follower.listen(&mut *self.counters, true);
            for (pid, mut tids) in unknown {
                tids.retain(|tid| !self.knows(*tid));
                let threads: Vec<(u32, u32)> = tids.into_iter().map(|tid| (pid, tid)).collect();
                self.attach_threads(pid, &threads)?;
            }
        }
        Ok(())
    }

    /// Makes [`Session::wait`] return as soon as `file` becomes readable.
    pub fn wake_on(&mut self, file: OwnedFd) {
        self.counters.poller().await_also(file);
    }

    /// Waits until the time `until`, or until records come. Returns true if a signal came, or if a file of [`Session::wake_on`]
    /// is readable.
    ///
    /// # Errors
    /// Fails if the kernel refuses to wait.
    pub fn wait(&mut self, until: Nanos) -> Result<bool, CounterError> {
        let until = self.origin + until;
        let wake = self
            .counters
            .wait(until.min(self.counters.now() + HOUSEKEEPING))?;
        self.listen();
        Ok(wake.file || wake.signal.is_some())
    }

    /// Processes the present contents of the ring buffers.
    pub fn listen(&mut self) {
        self.follower.listen(&mut *self.counters, false);
    }

    /// Processes events if the tables for them are almost full. Callers that do not use [`Session::wait`] must call this
    /// regularly.
    pub fn make_room(&mut self) {
        if self.counters.is_crowded() {
            self.listen();
        }
    }

    /// Reopens the counters of CPUs that are back online.
    pub(super) fn renew(&mut self) -> Result<(), CounterError> {
        let Some((returns, folder)) = &mut self.of_cpus else {
            return Ok(());
        };
        let back = returns.look().intersection(&self.request.cpus);
        if back.is_empty() {
            return Ok(());
        }
        let whom = folder
            .as_ref()
            .map_or(CountedTasks::Cpus, CountedTasks::Cgroup);
        // The counts of a CPU up to now are lost with its counters, so they are read first.
        self.follower.read(&mut *self.counters, Owner::Cpu)?;
        let opening = self.request.opening(self.spacing_ns);
        for cpu in back.iter() {
            match self.counters.renew(&opening, whom, cpu) {
                Err(error) if error.is_of_cpu_offline() => returns.is_not_back(cpu),
                opened => opened?,
            }
        }
        self.follower.groups(self.counters.groups());
        self.counters.select(self.set as u32, true)
    }

    /// Pauses until the latest exits are in the ring buffers, then processes the present contents.
    pub fn listen_closely(&mut self) {
        if !self.request.sets.is_empty() {
            std::thread::sleep(TAKEN_IN);
        }
        self.listen();
    }

    /// Returns the forks, execs and exits since the last call, by time, with their TIDs.
    pub fn task_events(&mut self) -> Vec<(Nanos, u32, TaskEvent)> {
        let mut events = self
            .follower
            .task_events
            .replace(Vec::new())
            .unwrap_or_default();
        events.iter_mut().for_each(|f| f.0 = f.0.since(self.origin));
        events
    }

    /// Ends a period: passes the samples since the last end to `take`, sorted by thread and time, and switches to the next set.
    ///
    /// # Errors
    /// Fails if counters cannot be switched any more.
    pub fn turn(&mut self, mut take: impl FnMut(&Samples)) -> Result<(), CounterError> {
        let over = self.end_period()?;
        self.follower.readings.sort();
        take(&self.follower.readings);
        self.reported();
        if !over.is_empty() {
            self.counters.detach(&over);
            over.iter()
                .for_each(|tree| self.follower.ledger.forget_tree(*tree));
        }
        Ok(())
    }

    /// Reads totals and switches to the next set, unless the present set has counted for less than three quarters of a period.
    /// Returns the trees whose threads have all exited.
    pub(super) fn end_period(&mut self) -> Result<Vec<u32>, CounterError> {
        let now = self.counters.now();
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
        // Per-thread counters report forks only while a set counts, so the next set is switched on at once.
        let at_once = self.owner.is_none() && !self.counters.follows_while_off();
        if next != self.set {
            self.counters.select(self.set as u32, false)?;
            if at_once {
                self.counters.select(next as u32, true)?;
            }
            if self.counters.is_prompt() {
                self.listen();
            }
        }
        if let Some(owner) = self.owner {
            self.follower.read(&mut *self.counters, owner)?;
        }
        let over = self.over_by_now();
        self.follower.flush(Which::All);
        if next != self.set {
            if !at_once {
                self.counters.select(next as u32, true)?;
            }
            self.set = next;
            self.turned = now;
        }
        Ok(over)
    }

    /// Ends counting: processes the last counts, and the rest of the totals.
    pub(super) fn end(&mut self) -> Result<(), CounterError> {
        self.counters.select(self.set as u32, false)?;
        self.take_in_last()
    }

    /// Clears the samples after they were reported.
    pub(super) fn reported(&mut self) {
        self.follower.readings.clear();
        self.follower.reported();
    }

    /// Returns the trees whose threads have all exited and whose final counts were processed. If fork reports were lost, trees
    /// that may have unknown threads are left out.
    fn over_by_now(&mut self) -> Vec<u32> {
        if self.follower.lost() > self.lost {
            self.lost = self.follower.lost();
            self.follower.trees.doubt();
        }
        self.follower.trees.take_over()
    }

    /// Returns the start of the session, by the clock of the samples.
    #[must_use]
    pub const fn origin(&self) -> Nanos {
        self.origin
    }

    /// Returns the number of open groups of counters.
    #[must_use]
    pub fn open_groups(&self) -> usize {
        self.counters.groups().len()
    }

    /// Returns the number of records that did not fit into a ring buffer.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.follower.lost()
    }
}

mod engines;
mod exchange;

#[cfg(test)]
mod tests;
