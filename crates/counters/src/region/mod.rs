//! Counters around a section of a program.
//!
//! Input: an event string and a thread, usually the calling one. Output: [`EventCount`]s of the thread's events between
//! [`Region::start`] and [`Region::stop`], added up over all such intervals.
//!
//! Counters run from opening to closing, and a region computes the difference of two reads. That is cheaper than switching
//! counters on and off, and regions may be nested. A read is one system call for each PMU with events in the string, and one
//! for the kernel's own events. Hardware counters of the calling thread are read without the kernel where that is allowed (x86,
//! `/sys/bus/event_source/devices/*/rdpmc`). A region of `instructions,cycles` then makes no system call.
//!
//! ```
//! # if !countersteer_counters::may_count() { return Ok(()); }
//! use countersteer_counters::region::{RegionOptions, Region};
//!
//! let mut region = Region::open("task_clock,page_faults", RegionOptions::default())?;
//! region.start()?;
//! let sum: u64 = (0..1000).sum();
//! region.stop()?;
//! for count in region.read()? {
//!     println!("{}: {:?} {}", count.name, count.value, count.unit);
//! }
//! # assert_eq!(sum, 499_500);
//! # Ok::<(), countersteer_counters::CounterError>(())
//! ```

mod every;
mod layout;
mod opening;
mod page;
mod watch;

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::OnceLock;

use countersteer_model::counters::parse_set;

use self::layout::{RegionLayout, RegionRow};
use self::opening::RegionOpening;
use self::page::EventPage;
use super::{CounterError, Pmus};
use crate::perf::catalog::{EventProbe, TASK_CLOCK, probe};
use crate::perf::limits;
use crate::perf::resolve::{CoreTypes, Resolved, resolve};
use crate::perf::sys::{self, abi};
use crate::perf::vendor;

pub use every::{CountingSwitch, Every, TriggerMoment};
pub use watch::MomentWatch;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionOptions {
    /// TID of the counted thread; `None` for the thread that opens the region.
    pub thread: Option<u32>,
    /// True to include the threads and processes that the thread creates after opening. Their times are added, too.
    pub inherit: bool,
}

/// Count of an event, never scaled up for time without a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventCount {
    /// Event as requested in the string.
    pub name: String,
    /// Unit of the value; empty for plain counts.
    pub unit: String,
    /// Core type on which the event happened; `None` if there is only one type, or the event is not one of cores.
    pub core_type: Option<String>,
    /// Value of the count; `None` if the core type cannot count the event, or the event never had a counter.
    pub value: Option<u64>,
    /// Nanoseconds for which the event was enabled while the thread ran.
    pub enabled_ns: u64,
    /// Nanoseconds for which the event counted. It is less than `enabled_ns` if events shared counters, or the thread ran on
    /// another core type.
    pub running_ns: u64,
}

/// Open counters of a thread. They are closed when this value is dropped.
///
/// The value may be moved to another thread, and then still counts the thread for which it was opened. A child process (`fork`)
/// has to open its own.
#[derive(Debug)]
pub struct Region {
    counts: Vec<EventCount>,
    groups: Vec<RegionGroup>,
    started: bool,
    user_only: bool,
}

/// Group of counters that are read together.
#[derive(Debug)]
struct RegionGroup {
    leader: OwnedFd,
    _members: Vec<OwnedFd>,
    /// Index of the count of each member.
    places: Vec<usize>,
    /// Page of each member, with the address that identifies the counted thread. `None` unless that thread can read all its
    /// counters without the kernel.
    pages: Option<(usize, Vec<EventPage>)>,
    /// Counts at the start of the interval.
    base: GroupReading,
    /// Sum of the counts of all ended intervals.
    sum: GroupReading,
    /// Counts at the last read.
    now: GroupReading,
    /// Buffer for the bytes of a read.
    bytes: Vec<u8>,
    /// Buffer for the values of a read.
    words: Vec<u64>,
}

/// Counts of the members of a group: value, enabled time and running time of each.
type GroupReading = Vec<[u64; 3]>;

impl Region {
    /// Opens counters for events in the syntax of `steer stat -e`: `instructions,cycles`.
    ///
    /// # Errors
    /// Fails if events are invalid, cannot be counted by this machine or at the same time, or may not be counted.
    pub fn open(events: &str, options: RegionOptions) -> Result<Self, CounterError> {
        let pmus = machine()?;
        let resolved = resolve(events, &parse_set(events)?, pmus)?;
        if resolved.iter().any(|e| e.every.is_some()) {
            return Err(CounterError::Region(
                "a region counts from start to stop; leave ebs out",
            ));
        }
        let layout = RegionLayout::of(&resolved, &CoreTypes::of(pmus))?;
        let opening = RegionOpening {
            resolved: &resolved,
            layout: &layout,
            options,
            user_only: user_only(&resolved)?,
        };
        let groups = opening.groups()?;
        let count = |row: &RegionRow| {
            let planned = &resolved[row.event].planned;
            let name = planned.name.clone();
            let unit = planned.unit.clone();
            EventCount {
                name,
                unit,
                core_type: row.core_type.clone(),
                value: None,
                enabled_ns: 0,
                running_ns: 0,
            }
        };
        let counts = layout.rows.iter().map(count).collect();
        Ok(Self {
            counts,
            groups,
            started: false,
            user_only: opening.user_only,
        })
    }

    /// Begins an interval whose counts are added up.
    ///
    /// # Errors
    /// Fails if an interval has already begun, or the counters cannot be read.
    pub fn start(&mut self) -> Result<(), CounterError> {
        if self.started {
            return Err(CounterError::Region(
                "the region has been started already; stop it first",
            ));
        }
        // Groups are read in the opposite order to the end of the interval. The first event of the string then includes the
        // smallest share of the reads.
        for group in self.groups.iter_mut().rev() {
            group.look()?;
            std::mem::swap(&mut group.base, &mut group.now);
        }
        self.started = true;
        Ok(())
    }

    /// Ends an interval and adds its counts to the sums.
    ///
    /// # Errors
    /// Fails if no interval has begun, or the counters cannot be read; the interval is then discarded.
    pub fn stop(&mut self) -> Result<(), CounterError> {
        if !self.started {
            return Err(CounterError::Region(
                "the region has not been started; start it first",
            ));
        }
        self.started = false;
        for group in &mut self.groups {
            group.look()?;
        }
        self.groups.iter_mut().for_each(RegionGroup::add);
        Ok(())
    }

    /// Returns the counts since opening or the last reset, including the interval that has begun, if any. They are in the order
    /// of the event string; an event of cores has a count for each core type of the machine.
    ///
    /// # Errors
    /// Fails if the counters cannot be read.
    pub fn read(&mut self) -> Result<&[EventCount], CounterError> {
        for group in &mut self.groups {
            if self.started {
                group.look()?;
            }
            for (member, place) in group.places.iter().enumerate() {
                let [value, enabled, running] = group.total(member, self.started);
                let count = &mut self.counts[*place];
                (count.enabled_ns, count.running_ns) = (enabled, running);
                count.value = (enabled == 0 || running > 0).then_some(value);
            }
        }
        Ok(&self.counts)
    }

    /// Sets the counts to zero. An interval that has begun continues from now.
    ///
    /// # Errors
    /// Fails if the counters cannot be read.
    pub fn reset(&mut self) -> Result<(), CounterError> {
        for group in &mut self.groups {
            group.sum.fill([0; 3]);
        }
        if std::mem::take(&mut self.started) {
            self.start()
        } else {
            Ok(())
        }
    }

    /// Returns the counts of the last [`Region::read`], for their number and names. Before the first read they have no values
    /// and times.
    #[must_use]
    pub fn counts(&self) -> &[EventCount] {
        &self.counts
    }

    /// True if only user mode is counted, because counting the kernel is not permitted.
    #[must_use]
    pub const fn user_only(&self) -> bool {
        self.user_only
    }
}

impl RegionGroup {
    /// Reads the present counts of the group into `now`.
    fn look(&mut self) -> Result<(), CounterError> {
        if let Some((thread, pages)) = &self.pages
            && *thread == this_thread()
            && look_at(pages, &mut self.now)
        {
            return Ok(());
        }
        let failed = CounterError::system("reading counters");
        let times =
            sys::read_group(&self.leader, &mut self.bytes, &mut self.words).map_err(&failed)?;
        if self.words.len() != self.places.len() {
            return Err(failed(io::ErrorKind::UnexpectedEof.into()));
        }
        for (entry, value) in self.now.iter_mut().zip(&self.words) {
            *entry = [*value, times.0, times.1];
        }
        Ok(())
    }

    /// Adds the interval up to the last read to the sums.
    fn add(&mut self) {
        for member in 0..self.sum.len() {
            self.sum[member] = self.total(member, true);
        }
    }

    /// Returns the sums of a member. With `open`, they include the interval up to the last read.
    fn total(&self, member: usize, open: bool) -> [u64; 3] {
        let sum = self.sum[member];
        let now = self.now[member];
        let base = self.base[member];
        // The kernel's times and those computed from a page may differ by the rounding of the clock's factor, so the difference
        // could be negative.
        std::array::from_fn(|i| {
            if open {
                sum[i] + now[i].saturating_sub(base[i])
            } else {
                sum[i]
            }
        })
    }
}

/// Reads all counters without the kernel. Returns false if the kernel must be called instead.
fn look_at(pages: &[EventPage], into: &mut GroupReading) -> bool {
    pages.iter().zip(into).all(|(page, entry)| {
        let moment = page.read();
        moment
            .map(|m| *entry = [m.value, m.enabled_ns, m.running_ns])
            .is_some()
    })
}

/// Returns an address that no other living thread has. It is cheaper to get than the TID.
fn this_thread() -> usize {
    thread_local!(static HERE: Cell<u8> = const { Cell::new(0) });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// Returns the PMUs of the machine with the user's lists of events. They are read only once.
pub(crate) fn machine() -> Result<&'static Pmus, CounterError> {
    static MACHINE: OnceLock<Pmus> = OnceLock::new();
    if let Some(known) = MACHINE.get() {
        return Ok(known);
    }
    let root = Path::new("/");
    let mut pmus = Pmus::read(root)?;
    if let Some(folder) = vendor::own() {
        vendor::add(&folder, root, &mut pmus)?;
    }
    Ok(MACHINE.get_or_init(|| pmus))
}

/// True if only user mode may be counted.
///
/// # Errors
/// Fails if counting user mode is not enough for the events.
fn user_only(events: &[Resolved]) -> Result<bool, CounterError> {
    match probe(abi::PERF_TYPE_SOFTWARE, TASK_CLOCK) {
        EventProbe::UserOnly => {}
        EventProbe::Forbidden => return Err(forbidden("task_clock", 2)),
        _ => return Ok(false),
    }
    let blind = events.iter().find(|e| e.in_kernel || !e.space.user);
    blind.map_or(Ok(true), |event| Err(forbidden(&event.planned.name, 1)))
}

fn forbidden(event: &str, wanted: i32) -> CounterError {
    let paranoid = limits::paranoid().unwrap_or_default();
    let target = "the thread".to_owned();
    CounterError::Forbidden {
        event: event.into(),
        target,
        paranoid,
        wanted,
    }
}

pub(crate) fn refused(event: &str, source: io::Error) -> CounterError {
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => forbidden(event, 1),
        _ => CounterError::Refused {
            event: event.into(),
            target: "the thread".into(),
            source,
        },
    }
}
