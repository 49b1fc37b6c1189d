//! Sampler and watched line of a thread.

use std::io;
use std::os::fd::OwnedFd;

use countersteer_model::profile::reuse::{WatchedAccess, Watches};

use super::SampledEvent;
use crate::perf::sys::{self, Attr, EventScope, abi};

/// Values that signals carry.
pub(super) const OF_SAMPLER: u64 = 1;
pub(super) const OF_WATCH_POINT: u64 = 2;

const LINE_BYTES: u64 = 64;
const WORD_BYTES: u64 = 8;
/// Number of watch points that every processor with watch points has: x86 has four, Arm four or more.
const REGISTERS: usize = 4;
/// Words of a line that are watched, relative to the accessed one, where a watch point covers only one.
const WORDS: [u64; REGISTERS] = [0, 1, 2, LINE_BYTES / WORD_BYTES - 1];

/// Sampler of a thread, and the lines that it watches.
#[derive(Debug)]
pub(super) struct SampledThread {
    tid: u32,
    samplers: Vec<OwnedFd>,
    /// True if a watch point covers a whole line; `None` until the first one is set.
    whole: Option<bool>,
    watches: Watches<Vec<OwnedFd>>,
}

impl SampledThread {
    pub(super) fn open(tid: u32, sampled: &SampledEvent<'_>) -> io::Result<Self> {
        let encodings = sampled.encodings().iter();
        let samplers = encodings.map(|encoding| {
            let attr = Attr {
                kind: encoding.kind,
                config: encoding.config,
                exclude_kernel: true,
                period: sampled.period,
                traps: Some(OF_SAMPLER),
                // PEBS needs 2 for addresses; IBS and events of the kernel are as precise as they are.
                precise: if encoding.software || encoding.pmu.starts_with("ibs") {
                    0
                } else {
                    2
                },
                ..Attr::default()
            };
            sys::open(&attr, EventScope::Thread(tid, None), None)
        });
        Ok(Self {
            tid,
            samplers: samplers.collect::<io::Result<_>>()?,
            whole: None,
            watches: Watches::new(1, tid.into()),
        })
    }

    /// Returns the number of sampled events up to now.
    fn events(&self) -> io::Result<u64> {
        let (mut bytes, mut values, mut sum) = (Vec::new(), Vec::new(), 0);
        for sampler in &self.samplers {
            sys::read_group(sampler, &mut bytes, &mut values)?;
            sum += values.first().copied().unwrap_or(0);
        }
        Ok(sum)
    }

    /// Takes a sample. Its line may be watched from now on.
    pub(super) fn sampled(&mut self, address: u64) -> io::Result<()> {
        let whole = *self.whole.get_or_insert_with(|| {
            let whole = watch_point(self.tid, line(address), LINE_BYTES).is_ok();
            if whole {
                self.watches = Watches::new(REGISTERS, self.tid.into());
            }
            whole
        });
        let (now, tid) = (self.events()?, self.tid);
        let mut failed = None;
        self.watches.sample(now, line(address), || {
            watch(tid, address, whole)
                .map_err(|e| failed = Some(e))
                .ok()
        });
        // All watch points may be in use, for example by a debugger inside the program, or the address is one of the kernel.
        failed
            .filter(|error| !matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EINVAL)))
            .map_or(Ok(()), Err)
    }

    /// Ends the watch of a line that is used again.
    pub(super) fn again(&mut self, address: u64) -> io::Result<()> {
        let now = self.events()?;
        self.watches.again(now, line(address));
        Ok(())
    }

    /// Ends all watches. Returns the accesses that were watched.
    pub(super) fn end(mut self) -> Vec<WatchedAccess> {
        // The counters of a thread that has ended can still be read.
        if let Ok(now) = self.events() {
            self.watches.end(now);
        }
        self.watches.found
    }
}

const fn line(address: u64) -> u64 {
    address & !(LINE_BYTES - 1)
}

/// Sets watch points on the line of an address.
fn watch(tid: u32, address: u64, whole: bool) -> io::Result<Vec<OwnedFd>> {
    let line = line(address);
    if whole {
        return Ok(vec![watch_point(tid, line, LINE_BYTES)?]);
    }
    let word = (address - line) / WORD_BYTES;
    let words = WORDS.map(|next| (word + next) % (LINE_BYTES / WORD_BYTES));
    let points = words.map(|word| watch_point(tid, line + word * WORD_BYTES, WORD_BYTES));
    points.into_iter().collect()
}

fn watch_point(tid: u32, address: u64, bytes: u64) -> io::Result<OwnedFd> {
    let attr = Attr {
        kind: abi::PERF_TYPE_BREAKPOINT,
        config: [0, address, bytes, 0],
        exclude_kernel: true,
        period: 1,
        traps: Some(OF_WATCH_POINT),
        watched: abi::HW_BREAKPOINT_RW,
        ..Attr::default()
    };
    sys::open(&attr, EventScope::Thread(tid, None), None)
}
