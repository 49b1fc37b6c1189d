//! Opening of a region's counters, in groups.
//!
//! Input: resolved events, their layout, and the thread. Output: groups of open counters that count.

use std::io;
use std::os::fd::OwnedFd;

use super::layout::RegionLayout;
use super::page::{self, EventPage};
use super::{RegionGroup, RegionOptions, refused, this_thread};
use crate::CounterError;
use crate::perf::resolve::Resolved;
use crate::perf::sys::{self, Attr, EventScope};

/// Number of times that a group of inherited events is opened if the kernel may have refused members because of a fork.
const ATTEMPTS: u32 = 8;

/// True if the kernel may have given the leader to a child. A thread that forks between two openings may exchange its inherited
/// events with those of its child. If the child then exits, the kernel accepts no further member.
fn may_be_swapped(opened: &[io::Result<OwnedFd>]) -> bool {
    let is_refused = |counter: &io::Result<OwnedFd>| {
        let code = counter.as_ref().err().and_then(io::Error::raw_os_error);
        matches!(code, Some(libc::ENODEV | libc::EINVAL))
    };
    opened.iter().any(Result::is_ok) && opened.iter().any(is_refused)
}

/// Parameters for opening the counters of a region.
pub(super) struct RegionOpening<'a> {
    pub(super) resolved: &'a [Resolved],
    pub(super) layout: &'a RegionLayout,
    pub(super) options: RegionOptions,
    pub(super) user_only: bool,
}

impl RegionOpening<'_> {
    pub(super) fn groups(&self) -> Result<Vec<RegionGroup>, CounterError> {
        let mut absent = vec![None; self.resolved.len()];
        let mut groups = Vec::with_capacity(self.layout.groups.len());
        for rows in &self.layout.groups {
            groups.extend(self.group(rows, &mut absent)?);
        }
        // An event that one core type lacks may exist on another. An event that all lack is an error.
        for (nth, error) in absent.into_iter().enumerate() {
            let counted =
                |g: &RegionGroup| g.places.iter().any(|p| self.layout.rows[*p].event == nth);
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
    ) -> Result<Option<RegionGroup>, CounterError> {
        let mut opened = self.counters(rows);
        for _ in 1..ATTEMPTS {
            if !(self.options.inherit && may_be_swapped(&opened)) {
                break;
            }
            opened = self.counters(rows);
        }
        let mut fds = Vec::with_capacity(rows.len());
        let mut places = Vec::with_capacity(rows.len());
        for (place, opened) in rows.iter().zip(opened) {
            let event = self.layout.rows[*place].event;
            match opened {
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
        Ok(Some(RegionGroup {
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

    /// Opens a counter for each row; the first that opens leads the group.
    fn counters(&self, rows: &[usize]) -> Vec<io::Result<OwnedFd>> {
        let mut opened: Vec<io::Result<OwnedFd>> = Vec::with_capacity(rows.len());
        for place in rows {
            let leader = opened.iter().find_map(|counter| counter.as_ref().ok());
            let counter = self.counter(*place, leader);
            opened.push(counter);
        }
        opened
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
            EventScope::Thread(self.options.thread.unwrap_or(0), None),
            leader,
        )
    }

    /// Returns the pages of the calling thread's hardware counters; `None` if the kernel must be called.
    fn pages(&self, rows: &[usize], fds: &[OwnedFd]) -> Option<(usize, Vec<EventPage>)> {
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
        let pages = fds
            .iter()
            .map(EventPage::map)
            .collect::<io::Result<_>>()
            .ok()?;
        Some((this_thread(), pages))
    }
}
