//! Hint pages of the steered programs. Hints are read before each decision, and advice for each thread is written after each
//! placement.
//!
//! Input: observations, placements. Output: [`ThreadInfo::hint`], [`Event::Work`] in samples, and written pages (see
//! [`crate::hint_page`]).
//!
//! A process without pages costs a search at intervals. A process with pages costs a few system calls per period, whatever its
//! number of threads, and a few for each thread whose advice changes.

mod outlook;
mod program_pages;

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::{Observation, ThreadEventKind, ThreadInfo};
use countersteer_model::hint::Hint;
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::Placement;
use countersteer_model::sample::{Event, Samples};
use countersteer_model::topology::Topology;
use countersteer_model::units::{Nanos, ThreadId};
use countersteer_sysfs::procfs::PROC;

use crate::hint_page::HintAdvice;
use outlook::{AdvisedThread, LoadOutlook, is_near};
use program_pages::ProgramPages;

/// Initial interval between searches for pages in a process without them.
const SHORTEST_PAUSE: Nanos = Nanos::from_millis(200);
/// Limit on that interval, which doubles after each search.
const LONGEST_PAUSE: Nanos = Nanos::from_millis(6400);
/// One of this many searches includes pages whose usual descriptor was in use when they were opened. Once searches are rare,
/// all of them do.
const THOROUGH: u32 = 4;
/// Weight of the newest period in a thread's mean demand.
const FADING: f64 = 0.25;
/// Metrics that are tried in this order as a thread's speed-up factor.
const FACTORS: [&str; 3] = ["sf", "sf_sampled", "sf_work"];

/// Process that has steered threads, with its hint pages.
#[derive(Default)]
struct HintedProcess {
    shared: Option<ProgramPages>,
    /// Time of the next search for pages.
    due: Nanos,
    /// Interval between the last search and the next.
    pause: Nanos,
    /// Number of searches so far.
    looks: u32,
    /// Row of each thread in the pages, by the TID in the thread's own namespace and the start time.
    rows: BTreeMap<(u32, u64), usize>,
    /// True if the process was seen in the last observation.
    alive: bool,
}

/// Steered thread, with its hint and the advice written for it.
#[derive(Default)]
struct HintedThread {
    pid: u32,
    /// TID in the thread's own namespace, and start time; read once the process has pages.
    who: Option<(u32, u64)>,
    /// Row in the pages; `None` without a page.
    row: Option<usize>,
    /// Last hint of the program; `None` without one.
    hint: Option<Hint>,
    /// Work reported by the thread up to its last sample; `None` before the first.
    done: Option<u64>,
    /// Advice that was last written; `None` if there is none.
    said: Option<HintAdvice>,
    /// Mean fraction of the time in which the thread recently demanded a CPU; `None` before the first period with pages.
    demand: Option<f64>,
}

/// Hint pages of all steered programs.
pub(super) struct HintPages {
    topology: Arc<Topology>,
    factors: MetricBank,
    processes: BTreeMap<u32, HintedProcess>,
    threads: BTreeMap<ThreadId, HintedThread>,
    there: bool,
    /// Time of the next search in a process without pages.
    due: Nanos,
    /// Threads of the last observation; empty if none of them has a page.
    seen: Vec<ThreadInfo>,
    /// Time of the last observation.
    last: Nanos,
}

impl HintPages {
    pub(super) fn new(topology: &Arc<Topology>) -> Self {
        Self {
            topology: Arc::clone(topology),
            factors: MetricBank::new(topology, &FACTORS),
            processes: BTreeMap::new(),
            threads: BTreeMap::new(),
            there: false,
            due: Nanos::ZERO,
            seen: Vec::new(),
            last: Nanos::ZERO,
        }
    }

    /// Reads the hint pages, and adds hints and reported work to an observation.
    pub(super) fn hear(
        &mut self,
        seen: &mut Observation,
        process_of: impl Fn(ThreadId) -> Option<u32>,
    ) {
        // TIDs are reused, so the state of an earlier thread with the same TID is dropped.
        for event in &seen.events {
            match event.kind {
                ThreadEventKind::New | ThreadEventKind::Exit => {
                    _ = self.threads.remove(&event.thread)
                }
                // The new program may open pages soon, so the search interval starts again at its minimum.
                ThreadEventKind::Exec => self.look_soon(event.thread),
                _ => {}
            }
        }
        self.meet(seen.at, &seen.threads, process_of);
        if !self.there {
            if !self.seen.is_empty() {
                self.seen.clear();
                self.threads.values_mut().for_each(HintedThread::forget);
            }
            return;
        }
        let mut ran: BTreeMap<ThreadId, Nanos> = BTreeMap::new();
        for (thread, sample) in seen.samples.of_threads() {
            *ran.entry(thread).or_default() += sample.ran();
        }
        let period = seen
            .at
            .since(std::mem::replace(&mut self.last, seen.at))
            .as_secs_f64();
        for info in &mut seen.threads {
            let Some(known) = self.threads.get_mut(&info.id) else {
                continue;
            };
            let ran = ran.get(&info.id).map_or(0.0, |ran| ran.as_secs_f64());
            known.want(info.runnable, ran / period.max(1e-9));
            known.hear(info.id.0, self.processes.get(&known.pid));
            info.hint = known.hint;
        }
        self.work(&mut seen.samples, &ran);
        self.factors.update(seen);
        self.seen.clone_from(&seen.threads);
    }

    /// Adds to samples the work that each thread reported since its last sample. If a thread ran on several core types, its
    /// work is divided by time.
    fn work(&mut self, samples: &mut Samples, ran: &BTreeMap<ThreadId, Nanos>) {
        let mut done = BTreeMap::new();
        for row in 0..samples.len() {
            let sample = samples.rows()[row];
            let Some(thread) = sample.thread() else {
                continue;
            };
            let Some(known) = self.threads.get_mut(&thread) else {
                continue;
            };
            let new = *done
                .entry(thread)
                .or_insert_with(|| known.work(self.processes.get(&known.pid)));
            let all = ran.get(&thread).map_or(0.0, |ran| ran.as_secs_f64());
            if let Some(new) = new.filter(|_| all > 0.0) {
                let part = sample.ran().as_secs_f64() / all;
                samples.set(row, Event::Work, new as f64 * part);
            }
        }
    }

    /// Updates threads, processes and their pages. Returns quickly in the usual case without pages.
    fn meet(
        &mut self,
        at: Nanos,
        threads: &[ThreadInfo],
        process_of: impl Fn(ThreadId) -> Option<u32>,
    ) {
        if !self.threads.keys().eq(threads.iter().map(|t| &t.id)) {
            self.take_stock(threads, process_of);
        }
        if !self.there && at < self.due {
            return;
        }
        (self.there, self.due) = (false, Nanos::NEVER);
        for (pid, process) in &mut self.processes {
            if process
                .shared
                .as_ref()
                .is_some_and(|shared| !shared.is_there())
            {
                *process = HintedProcess::default();
            }
            process.seek(*pid, at);
            if process.shared.is_some() {
                self.there = true;
                process.look();
            } else {
                self.due = self.due.min(process.due);
            }
        }
    }

    /// Restarts the search for pages in a thread's process, as for a new process.
    fn look_soon(&mut self, thread: ThreadId) {
        let process = self
            .threads
            .get(&thread)
            .and_then(|known| self.processes.get_mut(&known.pid));
        if let Some(process) = process {
            process.look_soon();
            self.due = Nanos::ZERO;
        }
    }

    /// Updates the processes: adds new ones, and removes those that have ended.
    fn take_stock(&mut self, threads: &[ThreadInfo], process_of: impl Fn(ThreadId) -> Option<u32>) {
        self.threads
            .retain(|id, _| threads.binary_search_by_key(id, |t| t.id).is_ok());
        self.processes.values_mut().for_each(|p| p.alive = false);
        for info in threads {
            let new = !self.threads.contains_key(&info.id);
            let known = self.threads.entry(info.id).or_default();
            if new {
                known.pid = process_of(info.id).unwrap_or_default();
            }
            let process = self.processes.entry(known.pid).or_default();
            process.alive = true;
            if new {
                // A process that creates threads may open pages soon.
                process.look_soon();
                self.due = Nanos::ZERO;
            }
        }
        self.processes.retain(|_, p| p.alive);
    }

    /// Writes the advice that follows from a placement to the threads' pages.
    pub(super) fn say(&mut self, placement: &Placement) {
        if self.seen.is_empty() {
            return;
        }
        let placed: BTreeMap<ThreadId, Arc<CpuSet>> = placement
            .threads
            .iter()
            .map(|t| (t.thread, t.target.cpus(&self.topology)))
            .collect();
        let cpus = |info: &ThreadInfo| Arc::clone(placed.get(&info.id).unwrap_or(&info.allowed));
        let confined: Vec<Arc<CpuSet>> = self.seen.iter().map(cpus).collect();
        let mut threads = Vec::with_capacity(confined.len());
        for (info, cpus) in self.seen.iter().zip(&confined) {
            let demand = self
                .threads
                .get(&info.id)
                .and_then(|known| known.demand)
                .unwrap_or_default();
            let mut columns = 0..FACTORS.len();
            let sf = columns.find_map(|column| self.factors.at(info.id, column));
            threads.push(AdvisedThread {
                info,
                cpus,
                demand,
                sf,
            });
        }
        let outlook = LoadOutlook::new(&self.topology, &threads);
        for thread in &threads {
            let Some(known) = self.threads.get_mut(&thread.info.id) else {
                continue;
            };
            let shared = self
                .processes
                .get_mut(&known.pid)
                .and_then(|p| p.shared.as_mut());
            let (Some(shared), Some(row)) = (shared, known.row) else {
                continue;
            };
            let advice = outlook.of(thread);
            if !known.said.is_some_and(|said| is_near(&said, &advice))
                && shared.say(row, Some(&advice))
            {
                known.said = Some(advice);
            }
        }
    }
}

impl HintedProcess {
    /// Searches for the pages of a process if a search is due.
    fn seek(&mut self, pid: u32, at: Nanos) {
        if self.shared.is_some() || at < self.due {
            return;
        }
        let seldom = self.pause == LONGEST_PAUSE;
        self.shared = ProgramPages::find(pid, seldom || self.looks % THOROUGH == 1);
        self.looks += 1;
        self.pause = Nanos(2 * self.pause.0).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        self.due = at + self.pause;
    }

    fn look_soon(&mut self) {
        (self.due, self.pause) = (Nanos::ZERO, Nanos::ZERO);
    }

    fn look(&mut self) {
        self.rows.clear();
        if let Some(shared) = &mut self.shared
            && shared.read()
        {
            self.rows.extend(shared.owners());
        }
    }
}

impl HintedThread {
    /// Clears the state of a thread that no longer has a page.
    fn forget(&mut self) {
        (self.row, self.hint, self.done, self.said) = (None, None, None, None);
    }

    /// Returns the work since the last call; `None` if the thread reports none, or at the first call.
    fn work(&mut self, process: Option<&HintedProcess>) -> Option<u64> {
        let total = process?.shared.as_ref()?.work(self.row?);
        // The first reported number may have any value, so it is no work done since the last call.
        let before = self.done.replace(total).filter(|_| total > 0)?;
        Some(total.wrapping_sub(before))
    }

    /// Updates the demand by a period. `ran` is the fraction of the period in which the thread ran; `runnable` is true if it
    /// demanded a CPU at the end.
    fn want(&mut self, runnable: bool, ran: f64) {
        let now = if runnable { 1.0 } else { ran.min(1.0) };
        self.demand = Some(
            self.demand
                .map_or(now, |before| before + (now - before) * FADING),
        );
    }

    fn hear(&mut self, tid: u32, process: Option<&HintedProcess>) {
        let Some((process, shared)) = process.and_then(|p| Some((p, p.shared.as_ref()?))) else {
            return self.forget();
        };
        if self.who.is_none() {
            self.who = PROC.identity(tid);
        }
        let row = self.who.and_then(|who| process.rows.get(&who)).copied();
        if row != self.row {
            self.forget();
            self.row = row;
        }
        // A hint that is being written is read in the next period.
        self.hint = row.and_then(|row| shared.hint(row)).or(self.hint);
    }
}

impl Drop for HintPages {
    /// Clears the advice in all pages, because the threads are no longer steered.
    fn drop(&mut self) {
        for known in self.threads.values().filter(|k| k.said.is_some()) {
            let shared = self
                .processes
                .get_mut(&known.pid)
                .and_then(|p| p.shared.as_mut());
            if let (Some(shared), Some(row)) = (shared, known.row) {
                shared.say(row, None);
            }
        }
    }
}

#[cfg(test)]
mod tests;
