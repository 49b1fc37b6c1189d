//! A counting session: from opening counters to the last reading.
//!
//! Input: a [`Request`]. Output: a [`Tick`] per period with the readings since the last, then a [`Summary`].

use std::io::Write;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use countersteer_core::counters::{Owner, Readings, Which};
use countersteer_core::units::Nanos;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};

use super::CounterError;
use super::backend::{Backend, Kernel};
use super::follow::Follower;
use super::inside::{self, Followed};
use super::launch::{self, Ending, Held};
use super::open::{Opened, Whom};
use super::request::{Request, SPARING_NS, Target};
use super::task_counting::{Follow, Inside};
use super::{sys, tasks};

pub struct Tick<'a> {
    /// When the session began, by the clock of the readings.
    pub origin: Nanos,
    pub at: Nanos,
    /// Number of the period, from 0.
    pub number: u64,
    pub readings: &'a Readings,
    pub last: bool,
    follower: &'a Follower,
}

impl Tick<'_> {
    /// The name of a thread.
    #[must_use]
    pub fn name(&self, tid: u32) -> &str {
        self.follower.name(tid)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How the program that was started ended.
    pub ending: Option<Ending>,
    pub elapsed: Nanos,
    /// CPU time in user mode of the program that was started and of its children that it waited for.
    pub user: Nanos,
    /// The same in the kernel.
    pub system: Nanos,
    /// Threads that were born meanwhile.
    pub born: u64,
    /// Records that did not fit into a ring; what they told is in the readings of [`Owner::Rest`].
    pub lost: u64,
    /// Final counts in which an event was missing, likewise.
    pub partial: u64,
    /// Only user mode was counted, since more is not permitted.
    pub user_only: bool,
}

/// A session whose counters are open.
pub struct Session {
    request: Request,
    backend: Box<dyn Backend + Send>,
    follower: Follower,
    child: Option<Held>,
    owner: Option<Owner>,
}

/// How often rings are looked at when there is no period.
const HOUSEKEEPING: Nanos = Nanos::from_millis(250);

impl Session {
    /// Opens the counters; a program that is to be started waits for [`Session::run`]. Threads are followed inside the kernel, where
    /// that is offered and can be done.
    ///
    /// # Errors
    /// Counters that cannot be opened, targets that are not there.
    pub fn open(request: Request, inside: Option<Inside<'_>>) -> Result<Self, CounterError> {
        let child = match &request.target {
            Target::Launch(command) => Some(launch::hold(
                command,
                request.bind.as_ref(),
                request.output.as_deref(),
            )?),
            _ => None,
        };
        let roots = roots(&request.target, child.as_ref())?;
        let program = child.as_ref().map(Held::pid);
        let follow = inside
            .map(|inside| inside::follow(&request, roots.len(), program, inside))
            .transpose()?
            .flatten();
        match follow {
            Some(follow) => Self::inside(request, child, &roots, follow),
            None => Self::by_events(request, child, &roots),
        }
    }

    /// With threads that are followed inside the kernel.
    fn inside(
        request: Request,
        child: Option<Held>,
        roots: &[(u32, u32)],
        follow: Box<dyn Follow>,
    ) -> Result<Self, CounterError> {
        let mut pids: Vec<u32> = roots.iter().map(|r| r.0).collect();
        pids.dedup();
        let lenient = matches!(request.target, Target::Present(_));
        let awaited = if lenient { Vec::new() } else { awaited(roots)? };
        let mut backend = Followed::new(follow, &request.plan, pids, awaited)?;
        let mut follower = Follower::new(request.core_types.by_cpu.clone(), backend.groups());
        let now = backend.now();
        roots
            .iter()
            .for_each(|(pid, tid)| follower.root(*pid, *tid, now));
        if child.is_none() {
            backend.adopt(roots)?;
        }
        if let Target::Processes(pids) | Target::Present(pids) = &request.target {
            add_newborn(pids, &mut backend, &mut follower, Followed::adopt)?;
        }
        Ok(Self {
            request,
            backend: Box::new(backend),
            follower,
            child,
            owner: None,
        })
    }

    /// With counters of threads, CPUs or control groups.
    fn by_events(
        request: Request,
        child: Option<Held>,
        roots: &[(u32, u32)],
    ) -> Result<Self, CounterError> {
        let tids = tids_of(roots);
        let folder = cgroup(&request.target)?;
        let mut opening = request.opening(SPARING_NS);
        opening.one_root = tids.len() == 1;
        let whom = match (&request.target, &folder) {
            (Target::Cpus, _) => Whom::Cpus,
            (_, Some(folder)) => Whom::Cgroup(folder),
            _ if request.total => Whom::Total(&tids),
            _ => Whom::Threads(&tids),
        };
        let opened = Opened::open(&opening, whom)?;
        let owner = match whom {
            Whom::Threads(_) => None,
            Whom::Total(_) => Some(Owner::Total),
            Whom::Cpus | Whom::Cgroup(_) => Some(Owner::Cpu),
        };
        let mut follower = Follower::new(request.core_types.by_cpu.clone(), &opened.infos);
        follower.each_sample = request.every.is_some();
        follower.exit_events = opening.traces(opened.user_only).is_some();
        let awaited = if opening.lenient {
            Vec::new()
        } else {
            awaited(roots)?
        };
        let mut backend = Kernel::new(opened, awaited)?;
        let now = backend.now();
        if owner.is_none() {
            roots
                .iter()
                .for_each(|(pid, tid)| follower.root(*pid, *tid, now));
            if let Target::Processes(pids) | Target::Present(pids) = &request.target {
                add_newborn(pids, &mut backend, &mut follower, |backend, threads| {
                    backend.opened.add_threads(&opening, &tids_of(threads))
                })?;
            }
        }
        drop(opening);
        Ok(Self {
            request,
            backend: Box::new(backend),
            follower,
            child,
            owner,
        })
    }

    /// What ends the session from another thread.
    ///
    /// # Errors
    /// No file is left.
    pub fn stopper(&self) -> Result<Stopper, CounterError> {
        self.backend.stopper().map(Stopper)
    }

    /// Counts until the target, the time or the number of readings is over, or `sink` says so.
    ///
    /// # Errors
    /// The program cannot be started; counters cannot be read any more.
    pub fn run(
        mut self,
        mut sink: impl FnMut(&Tick<'_>) -> ControlFlow<()>,
    ) -> Result<Summary, CounterError> {
        let origin = self.backend.now();
        match &mut self.child {
            Some(child) => child.release()?,
            None => self.backend.switch(0, true)?,
        }
        let request = &self.request;
        let child = self.child.as_ref();
        let mut counting = Counting {
            backend: &mut *self.backend,
            follower: &mut self.follower,
            owner: self.owner,
            origin,
            number: 0,
            set: 0,
        };
        counting.run(request, child, &mut sink)?;
        let elapsed = counting.backend.now().since(origin);
        let before = children_cpu_time();
        let ending = child.map(Held::wait);
        let (user, system) = children_cpu_time();
        let (user, system) = (user.since(before.0), system.since(before.1));
        let Follower { born, partial, .. } = self.follower;
        let lost = self.follower.lost();
        let user_only = self.backend.user_only();
        self.backend.retire();
        Ok(Summary {
            ending,
            elapsed,
            user,
            system,
            born,
            lost,
            partial,
            user_only,
        })
    }
}

/// User and system time of all children of this process that have been waited for.
fn children_cpu_time() -> (Nanos, Nanos) {
    let time = |t: TimeVal| Nanos((t.num_nanoseconds()).max(0).unsigned_abs());
    getrusage(UsageWho::RUSAGE_CHILDREN)
        .map(|usage| (time(usage.user_time()), time(usage.system_time())))
        .unwrap_or_default()
}

/// Ends a session from another thread.
#[derive(Debug)]
pub struct Stopper(UnixStream);

impl Stopper {
    /// Does what a signal to this process would: a program that was started is told to end, the second time it has to.
    pub fn stop(&self) {
        // A session that has ended already has closed the other end.
        let _ = (&self.0).write(&[0]);
    }
}

/// Threads that are there first, with their processes.
fn roots(target: &Target, child: Option<&Held>) -> Result<Vec<(u32, u32)>, CounterError> {
    let mut roots = Vec::new();
    match (target, child) {
        (_, Some(child)) => roots.push((child.pid(), child.pid())),
        (Target::Processes(pids), _) => {
            for pid in pids {
                roots.extend(tasks::of_process(*pid)?.into_iter().map(|tid| (*pid, tid)));
            }
        }
        (Target::Present(pids), _) => {
            for pid in pids {
                // Who ended meanwhile is not missed.
                roots.extend(
                    tasks::of_process(*pid)
                        .into_iter()
                        .flatten()
                        .map(|tid| (*pid, tid)),
                );
            }
        }
        (Target::Threads(tids), _) => {
            for tid in tids {
                roots.push((tasks::process_of(*tid)?, *tid));
            }
        }
        _ => {}
    }
    Ok(roots)
}

fn cgroup(target: &Target) -> Result<Option<OwnedFd>, CounterError> {
    let Target::Cgroup(path) = target else {
        return Ok(None);
    };
    let failed = |source| CounterError::Cgroup {
        path: path.clone(),
        source,
    };
    let folder = std::fs::File::open(path).map_err(failed)?;
    // Only control groups have this file, and its absence would otherwise come back as a bad descriptor.
    std::fs::metadata(path.join("cgroup.procs")).map_err(failed)?;
    Ok(Some(folder.into()))
}

fn awaited(roots: &[(u32, u32)]) -> Result<Vec<OwnedFd>, CounterError> {
    let mut pids: Vec<u32> = roots.iter().map(|r| r.0).collect();
    pids.dedup();
    pids.into_iter()
        .map(|pid| {
            sys::pidfd(pid).map_err(|_| CounterError::Gone {
                what: "process",
                id: pid,
            })
        })
        .collect()
}

/// The numbers of threads, without those of their processes.
fn tids_of(threads: &[(u32, u32)]) -> Vec<u32> {
    threads.iter().map(|(_, tid)| *tid).collect()
}

/// Looks again for threads that were born while counters were being opened, to threads that had none yet.
fn add_newborn<B: Backend>(
    pids: &[u32],
    backend: &mut B,
    follower: &mut Follower,
    mut add: impl FnMut(&mut B, &[(u32, u32)]) -> Result<(), CounterError>,
) -> Result<(), CounterError> {
    for _ in 0..10 {
        let mut unknown = Vec::new();
        for pid in pids {
            let tids = tasks::of_process(*pid).unwrap_or_default();
            unknown.extend(
                tids.into_iter()
                    .filter(|t| !follower.ledger.is_alive(*t))
                    .map(|tid| (*pid, tid)),
            );
        }
        if unknown.is_empty() {
            break;
        }
        // One that was born to a thread with counters inherited them, and its birth is about to be told.
        std::thread::sleep(std::time::Duration::from_millis(2));
        follower.listen(backend, true);
        unknown.retain(|(_, tid)| !follower.ledger.is_alive(*tid));
        add(backend, &unknown)?;
        let now = backend.now();
        unknown
            .iter()
            .for_each(|(pid, tid)| follower.root(*pid, *tid, now));
    }
    Ok(())
}

/// From a terminal the program got a signal too; from `kill` only this process did. The second one is meant.
fn pass_on((signal, only_here): (i32, bool), child: &Held, again: bool) {
    if only_here || again {
        child.signal(if again { libc::SIGKILL } else { signal });
    }
}

/// The loop, over any backend.
struct Counting<'a, B: Backend + ?Sized> {
    backend: &'a mut B,
    follower: &'a mut Follower,
    /// Of whom totals are read; absent where threads tell of themselves.
    owner: Option<Owner>,
    origin: Nanos,
    number: u64,
    set: usize,
}

type Sink<'a> = &'a mut dyn FnMut(&Tick<'_>) -> ControlFlow<()>;

impl<B: Backend + ?Sized> Counting<'_, B> {
    fn run(
        &mut self,
        request: &Request,
        child: Option<&Held>,
        sink: Sink<'_>,
    ) -> Result<(), CounterError> {
        let deadline = request.duration.map_or(Nanos::NEVER, |d| self.origin + d);
        let mut next = request.interval.map_or(Nanos::NEVER, |i| self.origin + i);
        let mut asked_to_end = false;
        if let Some(owner) = self.owner {
            self.follower.read(self.backend, owner)?;
        }
        loop {
            let until = next.min(deadline).min(self.backend.now() + HOUSEKEEPING);
            let wake = self.backend.wait(until)?;
            self.follower.listen(self.backend, false);
            if let Some(signal) = wake.signal {
                let Some(child) = child else { break };
                pass_on(signal, child, std::mem::replace(&mut asked_to_end, true));
            }
            let now = self.backend.now();
            if wake.ended {
                self.backend.hear_out();
            }
            if wake.ended || now >= deadline {
                break;
            }
            if now < next {
                if self.between(now, request.interval.is_none(), sink) {
                    return Ok(());
                }
                continue;
            }
            // The last reading is that of the end.
            if request.samples.is_some_and(|n| self.number + 1 >= n) {
                break;
            }
            self.turn(request)?;
            if self.tell(now, false, sink) {
                return Ok(());
            }
            let period = request.interval.unwrap_or(HOUSEKEEPING);
            next += period;
            if next <= now {
                // Late by more than a period: readings are missing, not crowded together.
                next = now + period;
            }
        }
        self.finish(sink)
    }

    /// Looks at who has ended within a period; without one, tells of them. Whether that was enough.
    fn between(&mut self, now: Nanos, tells: bool, sink: Sink<'_>) -> bool {
        self.follower.flush(Which::Ended);
        tells && !self.follower.readings.rows().is_empty() && self.tell(now, false, sink)
    }

    /// Ends a period: reads totals, reports, gives the next set its turn.
    fn turn(&mut self, request: &Request) -> Result<(), CounterError> {
        let next = request.plan.after(self.set);
        if next != self.set {
            self.backend.switch(self.set as u32, false)?;
            if self.backend.is_prompt() {
                self.follower.listen(self.backend, false);
            }
        }
        if let Some(owner) = self.owner {
            self.follower.read(self.backend, owner)?;
        }
        self.follower.flush(Which::All);
        if next != self.set {
            self.backend.switch(next as u32, true)?;
            self.set = next;
        }
        Ok(())
    }

    fn finish(&mut self, sink: Sink<'_>) -> Result<(), CounterError> {
        self.backend.switch(self.set as u32, false)?;
        self.follower.hear_the_last(self.backend);
        match self.owner {
            Some(owner) => {
                self.follower.read(self.backend, owner)?;
                self.follower.flush(Which::All);
            }
            None => self.follower.settle(self.backend)?,
        }
        self.tell(self.backend.now(), true, sink);
        Ok(())
    }

    /// Tells what was read; whether that was enough.
    fn tell(&mut self, at: Nanos, last: bool, sink: Sink<'_>) -> bool {
        let origin = self.origin;
        let number = self.number;
        let readings = &self.follower.readings;
        let done = sink(&Tick {
            origin,
            at,
            number,
            readings,
            last,
            follower: self.follower,
        })
        .is_break();
        self.follower.readings.clear();
        self.follower.reported();
        self.number += 1;
        done
    }
}

mod watch;

pub use watch::Watch;

#[cfg(test)]
mod tests;
