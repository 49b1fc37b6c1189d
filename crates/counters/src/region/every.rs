//! Overflow samples of a thread: one sample each time that an event has happened N times.
//!
//! Input: an event string and a number N. The first event of the string triggers samples. Output: a [`TriggerMoment`] each time that
//! this event has happened N times, with the counts of all events of the string since the last moment. The kernel writes it to
//! a ring buffer when it happens. This process reads moments at any later time: on demand, or when [`Every::fd`] becomes
//! readable.
//!
//! ```
//! # if !countersteer_counters::may_count() { return Ok(()); }
//! use countersteer_counters::region::{Every, RegionOptions};
//!
//! let mut every = Every::open("page_faults,task_clock", 100, RegionOptions::default())?;
//! every.control().on()?;
//! let pages: Vec<Vec<u8>> = (0..1000).map(|_| vec![1; 4096]).collect();
//! every.control().off()?;
//! every.take(|moment| println!("{} ns: {:?}", moment.at_ns, moment.counts[1].value));
//! # assert_eq!(pages.len(), 1000);
//! # Ok::<(), countersteer_counters::CounterError>(())
//! ```
//!
//! A moment costs the counted thread an interrupt of a few microseconds. Reading a moment from the ring buffer makes no system
//! call.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use countersteer_model::counters::parse_set;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::time::TimeSpec;

use super::super::{CoreTypes, CounterError};
use super::{EventCount, RegionOptions, machine, refused, user_only};
use crate::perf::record::{self, RingRecord};
use crate::perf::resolve::{Encoding, Resolved, resolve};
use crate::perf::sys::{self, Attr, EventScope, Ring};

/// Size of a ring buffer in bytes, enough for about 500 moments. An ordinary user may lock half a megabyte of ring buffers per
/// CPU.
const RING_BYTES: usize = 64 << 10;

/// Counters of a thread that are read every N events. They are closed when this value is dropped.
#[derive(Debug)]
pub struct Every {
    parts: Vec<TypeCounters>,
    control: CountingSwitch,
    epoll: Epoll,
    /// True for each core type whose ring buffer reported the thread's exit.
    silent: Vec<bool>,
    /// True if only user mode is counted.
    user_only: bool,
    /// Buffer for one record.
    bytes: Vec<u8>,
}

/// Counts at the time when the triggering event has happened N times more.
#[derive(Clone, Copy, Debug)]
pub struct TriggerMoment<'a> {
    /// Time in nanoseconds of CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// TID of the counted thread.
    pub thread: u32,
    /// Counts of each event of the string since the last moment on this core type, or since opening.
    pub counts: &'a [EventCount],
}

/// Switch that turns counting on and off, from any thread.
#[derive(Clone, Debug)]
pub struct CountingSwitch {
    leaders: Arc<Vec<OwnedFd>>,
    lost: Arc<AtomicU64>,
}

/// Counters of one core type, and their ring buffer.
struct TypeCounters {
    ring: Ring,
    _members: Vec<OwnedFd>,
    counts: Vec<EventCount>,
    /// For each member of the group: index of its count, and its value at the last moment.
    members: Vec<(usize, u64)>,
    /// Enabled and running time in ns at the last moment.
    times: (u64, u64),
}

impl std::fmt::Debug for TypeCounters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Part")
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl Every {
    /// Opens counters that are read whenever the first event of `events` has happened `number` times. Counting starts with
    /// [`CountingSwitch::on`].
    ///
    /// # Errors
    /// Fails if events are invalid, cannot be counted by this machine or at the same time, or may not be counted.
    pub fn open(events: &str, number: u64, options: RegionOptions) -> Result<Self, CounterError> {
        if number == 0 || options.inherit {
            return Err(CounterError::Region(
                "a sample is taken every N events of one thread: N is at least 1, and events are not inherited",
            ));
        }
        let pmus = machine()?;
        let resolved = resolve(events, &parse_set(events)?, pmus)?;
        if let Some(event) = resolved
            .iter()
            .find(|e| e.encodings.iter().any(|e| e.system))
        {
            return Err(CounterError::SystemOnly {
                event: event.planned.name.clone(),
            });
        }
        let opening = EveryOpening {
            resolved: &resolved,
            number,
            thread: options.thread,
            user_only: user_only(&resolved)?,
        };
        let several = CoreTypes::of(pmus).names.len() > 1;
        let mut parts = Vec::new();
        let mut leaders = Vec::new();
        for pmu in opening.pmus()? {
            let (part, leader) = opening.part(pmu, several)?;
            parts.push(part);
            leaders.push(leader);
        }
        let failed = CounterError::system("preparing to wait for moments");
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|e| failed(e.into()))?;
        for leader in &leaders {
            epoll
                .add(leader, EpollEvent::new(EpollFlags::EPOLLIN, 0))
                .map_err(|e| failed(e.into()))?;
        }
        let control = CountingSwitch {
            leaders: Arc::new(leaders),
            lost: Arc::default(),
        };
        let silent = vec![false; parts.len()];
        Ok(Self {
            parts,
            control,
            epoll,
            silent,
            user_only: opening.user_only,
            bytes: Vec::new(),
        })
    }

    /// Returns the control that switches counting on and off. Counting is off at first.
    #[must_use]
    pub fn control(&self) -> CountingSwitch {
        self.control.clone()
    }

    /// Returns a descriptor for poll and similar calls. It becomes readable when there is a moment to read. All moments must be
    /// read before the next wait.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// Waits until there is a moment to read, or until the time `most` has passed (`None`: no limit). Returns true if there is
    /// a moment. Returns at once if the counted thread has exited.
    ///
    /// # Errors
    /// Fails if the system call for waiting fails.
    pub fn wait(&mut self, most: Option<Duration>) -> Result<bool, CounterError> {
        self.wait_or(most, None)
    }

    /// Waits like [`Every::wait`]. The wait also ends when `other` becomes readable.
    pub(super) fn wait_or(
        &mut self,
        most: Option<Duration>,
        other: Option<BorrowedFd<'_>>,
    ) -> Result<bool, CounterError> {
        let parts = &self.parts;
        let waits = || parts.iter().any(|p| p.ring.waits());
        let living = || {
            self.silent
                .iter()
                .enumerate()
                .filter(|(_, silent)| !**silent)
                .map(|(nth, _)| nth)
        };
        if waits() || (living().next().is_none() && other.is_none()) {
            return Ok(waits());
        }
        let leaders = living().map(|nth| self.control.leaders[nth].as_fd());
        let mut fds: Vec<PollFd<'_>> = leaders
            .chain(other)
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        match ppoll(&mut fds, most.map(TimeSpec::from_duration), None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => {
                return Err(CounterError::System {
                    doing: "waiting for moments",
                    source: e.into(),
                });
            }
        }
        let ended = |fd: &PollFd<'_>| {
            fd.revents()
                .is_some_and(|came| came.contains(PollFlags::POLLHUP))
        };
        let ended: Vec<usize> = living()
            .zip(&fds)
            .filter(|(_, fd)| ended(fd))
            .map(|(nth, _)| nth)
            .collect();
        let waits = waits();
        // The descriptor of a thread that has exited stays readable, so it is not polled any more.
        ended.into_iter().for_each(|nth| self.silent[nth] = true);
        Ok(waits)
    }

    /// Passes the available moments to `each`, core type by core type, in the order of time. Returns their number.
    pub fn take(&mut self, mut each: impl FnMut(&TriggerMoment<'_>)) -> usize {
        let mut taken = 0;
        let lost = &self.control.lost;
        let bytes = &mut self.bytes;
        for TypeCounters {
            ring,
            counts,
            members,
            times,
            ..
        } in &mut self.parts
        {
            ring.drain(bytes, |record| match record::parse(record) {
                RingRecord::Sample {
                    tid,
                    at,
                    counts: counted,
                    ..
                } => {
                    taken += 1;
                    let enabled = counted.enabled;
                    let running = counted.running;
                    for count in counts.iter_mut() {
                        count.enabled_ns = enabled.saturating_sub(times.0);
                        count.running_ns = running.saturating_sub(times.1);
                    }
                    *times = (enabled, running);
                    for ((place, before), value) in members.iter_mut().zip(counted.values()) {
                        counts[*place].value = Some(value.saturating_sub(*before));
                        *before = value;
                    }
                    each(&TriggerMoment {
                        at_ns: at,
                        thread: tid,
                        counts,
                    });
                }
                RingRecord::Lost { records } => drop(lost.fetch_add(records, Ordering::Relaxed)),
                _ => {}
            });
        }
        taken
    }

    /// Returns the names and units of every moment's counts, in the order of the event string.
    #[must_use]
    pub fn counts(&self) -> &[EventCount] {
        self.parts.first().map_or(&[], |part| &part.counts)
    }

    /// True if only user mode is counted, because counting the kernel is not permitted.
    #[must_use]
    pub const fn user_only(&self) -> bool {
        self.user_only
    }
}

impl CountingSwitch {
    /// Starts counting.
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    pub fn on(&self) -> Result<(), CounterError> {
        self.set(true)
    }

    /// Stops counting.
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    pub fn off(&self) -> Result<(), CounterError> {
        self.set(false)
    }

    fn set(&self, on: bool) -> Result<(), CounterError> {
        let failed = CounterError::system("switching counters");
        self.leaders
            .iter()
            .try_for_each(|leader| sys::switch(leader, on))
            .map_err(failed)
    }

    /// Returns the number of moments that did not fit into a ring buffer since opening. Their counts are in the next moment.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Counters that are being opened.
struct EveryOpening<'a> {
    resolved: &'a [Resolved],
    number: u64,
    thread: Option<u32>,
    user_only: bool,
}

impl<'a> EveryOpening<'a> {
    /// Returns the names of the PMUs that have a group each; `None` stands for the kernel itself.
    fn pmus(&self) -> Result<Vec<Option<&'a str>>, CounterError> {
        let hardware = |event: &'a Resolved| {
            event
                .encodings
                .iter()
                .filter(|e| !e.software)
                .map(|e| e.pmu.as_str())
        };
        let mut of_leader: Vec<&str> = self
            .resolved
            .first()
            .into_iter()
            .flat_map(hardware)
            .collect();
        if of_leader.is_empty() {
            of_leader = self.resolved.iter().flat_map(hardware).collect();
            of_leader.sort_unstable();
            of_leader.dedup();
            if of_leader.len() > 1 {
                let remedy = "cores of several types count on their own: put an event of cores first, which then decides";
                return Err(CounterError::Region(remedy));
            }
        }
        Ok(if of_leader.is_empty() {
            vec![None]
        } else {
            of_leader.into_iter().map(Some).collect()
        })
    }

    fn part(
        &self,
        pmu: Option<&str>,
        several: bool,
    ) -> Result<(TypeCounters, OwnedFd), CounterError> {
        let on = |event: &'a Resolved| {
            event
                .encodings
                .iter()
                .find(|e| e.software || Some(e.pmu.as_str()) == pmu)
        };
        let mut fds = Vec::<OwnedFd>::new();
        let mut members = Vec::new();
        let mut counts = Vec::new();
        for (place, event) in self.resolved.iter().enumerate() {
            let encoding = on(event);
            if let Some(encoding) = encoding {
                let opened = self.counter(event, encoding, fds.first());
                fds.push(opened.map_err(|e| refused(&event.planned.name, e))?);
                members.push((place, 0));
            }
            let name = event.planned.name.clone();
            let unit = event.planned.unit.clone();
            let core_type = pmu
                .filter(|_| several && encoding.is_none_or(|e| !e.software))
                .map(str::to_owned);
            counts.push(EventCount {
                name,
                unit,
                core_type,
                value: None,
                enabled_ns: 0,
                running_ns: 0,
            });
        }
        let leader = fds.remove(0);
        let ring = Ring::map_sized(&leader, RING_BYTES).map_err(|source| match source.raw_os_error() {
            Some(libc::EPERM) => CounterError::Region(
                "rings take more memory than kernel.perf_event_mlock_kb permits; close some, or raise it",
            ),
            _ => CounterError::System { doing: "mapping a ring for moments", source },
        })?;
        Ok((
            TypeCounters {
                ring,
                _members: fds,
                counts,
                members,
                times: (0, 0),
            },
            leader,
        ))
    }

    fn counter(
        &self,
        event: &Resolved,
        encoding: &Encoding,
        leader: Option<&OwnedFd>,
    ) -> std::io::Result<OwnedFd> {
        let leads = leader.is_none();
        let attr = Attr {
            kind: encoding.kind,
            config: encoding.config,
            exclude_user: !event.space.user,
            exclude_kernel: !event.space.kernel || self.user_only,
            disabled: leads,
            period: if leads { self.number } else { 0 },
            // Members must use the clock of their leader, or the kernel refuses them.
            ring: true,
            wake_each: leads,
            ..Attr::default()
        };
        sys::open(
            &attr,
            EventScope::Thread(self.thread.unwrap_or(0), None),
            leader,
        )
    }
}
