//! Counters around a piece of a program.
//!
//! Input: an event string and a thread, usually the one that asks. Output: [`Count`]s of what it did between
//! [`Region::start`] and [`Region::stop`], added up over all such intervals.
//!
//! Counters run from opening to closing; a region takes the difference of two readings. That is cheaper than to switch them
//! on and off, and regions may lie within one another. A reading is one system call per PMU with events in the string, and
//! one for what the kernel counts itself. Hardware counters of the calling thread are read without the kernel where that is
//! allowed (x86, `/sys/bus/event_source/devices/*/rdpmc`), so that a region of `instructions,cycles` makes no system call.
//!
//! ```no_run
//! use countersteer_counters::region::{Options, Region};
//!
//! let mut region = Region::open("task_clock,page_faults", Options::default())?;
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
mod page;
mod watch;

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::OnceLock;

use countersteer_model::counters::parse_set;

use self::layout::{Layout, Row};
use self::page::Page;
use super::{CounterError, Pmus};
use crate::perf::catalog::{Probe, TASK_CLOCK, probe};
use crate::perf::limits;
use crate::perf::resolve::{CoreTypes, Resolved, resolve};
use crate::perf::sys::{self, Attr, Scope, abi};
use crate::perf::vendor;

pub use every::{Control, Every, Moment};
pub use watch::Watch;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The thread, by its number; without it, the one that opens the region.
    pub thread: Option<u32>,
    /// Also the threads and processes that it creates from opening on. Their times add up, too.
    pub inherit: bool,
}

/// What an event counted, never scaled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// The event, as it was asked for.
    pub name: String,
    /// The unit of the value; empty for plain counts.
    pub unit: String,
    /// The type of cores that it happened on, where a machine has several and the event is one of cores.
    pub core_type: Option<String>,
    /// How often it happened, or how much; absent where the core type cannot count it, or it never had a counter.
    pub value: Option<u64>,
    /// Nanoseconds during which it was to be counted while the thread ran.
    pub enabled_ns: u64,
    /// Nanoseconds during which it was; less where events had to share counters, or the thread ran on other cores.
    pub running_ns: u64,
}

/// Open counters of a thread. Closed when dropped.
///
/// It may be moved to another thread, and then still counts the one it was opened for. A child process (`fork`) has to open
/// its own.
#[derive(Debug)]
pub struct Region {
    counts: Vec<Count>,
    groups: Vec<Group>,
    started: bool,
    user_only: bool,
}

/// Counters that are read together.
#[derive(Debug)]
struct Group {
    leader: OwnedFd,
    _members: Vec<OwnedFd>,
    /// By member, its place among the counts.
    places: Vec<usize>,
    /// By member, where all can be read without the kernel by the thread that this address stands for.
    pages: Option<(usize, Vec<Page>)>,
    /// When the interval began, what had been counted by then; and what was counted in all intervals.
    base: Reading,
    sum: Reading,
    now: Reading,
    bytes: Vec<u8>,
    words: Vec<u64>,
}

/// What the members of a group have counted: value, enabled and running time of each.
type Reading = Vec<[u64; 3]>;

impl Region {
    /// Opens counters for events as `steer stat -e` takes them: `instructions,cycles`.
    ///
    /// # Errors
    /// Events that are none, that this machine or one set of counters cannot count, or that may not be counted.
    pub fn open(events: &str, options: Options) -> Result<Self, CounterError> {
        let pmus = machine()?;
        let resolved = resolve(events, &parse_set(events)?, pmus)?;
        if resolved.iter().any(|e| e.every.is_some()) {
            return Err(CounterError::Region(
                "a region counts from start to stop; leave ebs out",
            ));
        }
        let layout = Layout::of(&resolved, &CoreTypes::of(pmus))?;
        let opening = Opening {
            resolved: &resolved,
            layout: &layout,
            options,
            user_only: user_only(&resolved)?,
        };
        let groups = opening.groups()?;
        let count = |row: &Row| {
            let planned = &resolved[row.event].planned;
            let name = planned.name.clone();
            let unit = planned.unit.clone();
            Count {
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

    /// Begins an interval.
    ///
    /// # Errors
    /// It has begun already; reading fails.
    pub fn start(&mut self) -> Result<(), CounterError> {
        if self.started {
            return Err(CounterError::Region(
                "the region has been started already; stop it first",
            ));
        }
        // The other way round than at the end: what stands first in the string has the least of the reading in it.
        for group in self.groups.iter_mut().rev() {
            group.look()?;
            std::mem::swap(&mut group.base, &mut group.now);
        }
        self.started = true;
        Ok(())
    }

    /// Ends an interval and adds what it counted to the sums.
    ///
    /// # Errors
    /// It has not begun; reading fails, and then the interval counts for nothing.
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
        self.groups.iter_mut().for_each(Group::add);
        Ok(())
    }

    /// What was counted since opening or the last reset, with the interval that has begun, if one has. By event, in the order
    /// of the string; an event of cores has a count for each core type of the machine.
    ///
    /// # Errors
    /// Reading fails.
    pub fn read(&mut self) -> Result<&[Count], CounterError> {
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

    /// Forgets what was counted. An interval that has begun goes on from here.
    ///
    /// # Errors
    /// Reading fails.
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

    /// How many counts [`Region::read`] gives, and what of: only values and times are missing.
    #[must_use]
    pub fn counts(&self) -> &[Count] {
        &self.counts
    }

    /// Whether only user mode is counted, since more is not permitted.
    #[must_use]
    pub const fn user_only(&self) -> bool {
        self.user_only
    }
}

impl Group {
    /// Reads what has been counted up to now.
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

    /// Adds the interval up to now to the sums.
    fn add(&mut self) {
        for member in 0..self.sum.len() {
            self.sum[member] = self.total(member, true);
        }
    }

    /// The sums of a member, with the interval up to now or without it.
    fn total(&self, member: usize, open: bool) -> [u64; 3] {
        let sum = self.sum[member];
        let now = self.now[member];
        let base = self.base[member];
        // The kernel's times and those computed from a page may differ by the rounding of the clock's factor.
        std::array::from_fn(|i| {
            if open {
                sum[i] + now[i].saturating_sub(base[i])
            } else {
                sum[i]
            }
        })
    }
}

/// Reads all counters without the kernel, or says that it has to be asked.
fn look_at(pages: &[Page], into: &mut Reading) -> bool {
    pages.iter().zip(into).all(|(page, entry)| {
        let moment = page.read();
        moment
            .map(|m| *entry = [m.value, m.enabled_ns, m.running_ns])
            .is_some()
    })
}

/// An address that no other living thread has: cheaper to ask for than the thread's number.
fn this_thread() -> usize {
    thread_local!(static HERE: Cell<u8> = const { Cell::new(0) });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// The machine's PMUs with the user's lists of events, read once.
fn machine() -> Result<&'static Pmus, CounterError> {
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

/// Whether only user mode may be counted; an error if that does not do.
fn user_only(events: &[Resolved]) -> Result<bool, CounterError> {
    match probe(abi::PERF_TYPE_SOFTWARE, TASK_CLOCK) {
        Probe::UserOnly => {}
        Probe::Forbidden => return Err(forbidden("task_clock", 2)),
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

fn refused(event: &str, source: io::Error) -> CounterError {
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => forbidden(event, 1),
        _ => CounterError::Refused {
            event: event.into(),
            target: "the thread".into(),
            source,
        },
    }
}

/// A region that is being opened.
struct Opening<'a> {
    resolved: &'a [Resolved],
    layout: &'a Layout,
    options: Options,
    user_only: bool,
}

impl Opening<'_> {
    fn groups(&self) -> Result<Vec<Group>, CounterError> {
        let mut absent = vec![None; self.resolved.len()];
        let mut groups = Vec::with_capacity(self.layout.groups.len());
        for rows in &self.layout.groups {
            groups.extend(self.group(rows, &mut absent)?);
        }
        // What one core type lacks another may have; what none has is an error.
        for (nth, error) in absent.into_iter().enumerate() {
            let counted = |g: &Group| g.places.iter().any(|p| self.layout.rows[*p].event == nth);
            if let Some(code) = error
                && !groups.iter().any(counted)
            {
                return Err(refused(
                    &self.resolved[nth].planned.name,
                    io::Error::from_raw_os_error(code),
                ));
            }
        }
        Ok(groups)
    }

    fn group(
        &self,
        rows: &[usize],
        absent: &mut [Option<i32>],
    ) -> Result<Option<Group>, CounterError> {
        let mut fds = Vec::with_capacity(rows.len());
        let mut places = Vec::with_capacity(rows.len());
        for place in rows {
            let event = self.layout.rows[*place].event;
            match self.counter(*place, fds.first()) {
                Ok(fd) => {
                    fds.push(fd);
                    places.push(*place);
                }
                Err(error) => match error.raw_os_error() {
                    code @ Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => {
                        absent[event] = code
                    }
                    _ => return Err(refused(&self.resolved[event].planned.name, error)),
                },
            }
        }
        let Some(first) = fds.first() else {
            return Ok(None);
        };
        sys::switch(first, true).map_err(CounterError::system("switching counters on"))?;
        let pages = self.pages(rows, &fds);
        let leader = fds.remove(0);
        let empty = vec![[0; 3]; places.len()];
        let base = empty.clone();
        let sum = empty.clone();
        let now = empty;
        let bytes = Vec::new();
        let words = Vec::with_capacity(places.len());
        Ok(Some(Group {
            leader,
            _members: fds,
            places,
            pages,
            base,
            sum,
            now,
            bytes,
            words,
        }))
    }

    fn counter(&self, place: usize, leader: Option<&OwnedFd>) -> io::Result<OwnedFd> {
        let row = &self.layout.rows[place];
        let space = self.resolved[row.event].space;
        let Some(encoding) = &row.encoding else {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        };
        let attr = Attr {
            kind: encoding.kind,
            config: encoding.config,
            exclude_user: !space.user,
            exclude_kernel: !space.kernel || self.user_only,
            disabled: leader.is_none(),
            inherit: self.options.inherit,
            ..Attr::default()
        };
        sys::open(
            &attr,
            Scope::Thread(self.options.thread.unwrap_or(0), None),
            leader,
        )
    }

    /// Pages of hardware counters of the calling thread; without them, the kernel is asked.
    fn pages(&self, rows: &[usize], fds: &[OwnedFd]) -> Option<(usize, Vec<Page>)> {
        let software = |place: &usize| {
            self.layout.rows[*place]
                .encoding
                .as_ref()
                .is_none_or(|e| e.software)
        };
        let options = self.options;
        if !page::READABLE
            || options.inherit
            || options.thread.is_some()
            || rows.iter().any(software)
        {
            return None;
        }
        let pages = fds.iter().map(Page::map).collect::<io::Result<_>>().ok()?;
        Some((this_thread(), pages))
    }
}
