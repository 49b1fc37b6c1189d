//! Data accesses of a thread.
//!
//! Input: addresses, sizes and directions. Output: the LRU stack distances, reuse times and uses by other threads of the lines
//! touched. The common case, a line of the current epoch, is [`Vcpu::memory`]; everything else is out of line.

use countersteer_model::profile::LogHistogram;

use super::Vcpu;
use crate::block::{MemoryUse, READ_SHIFT, SIZE_SHIFT, WRITE_SHIFT};
use crate::capture::COLD;
use crate::layout::{MLP_LINES, NEAR_LINES, REUSE_BUCKETS, STACK_BUCKETS, record};
use crate::recency::Touch;
use crate::sharing;

/// Wide access with some parts still to come.
#[derive(Default)]
pub(super) struct Parts {
    datum: usize,
    next: u64,
    left: u64,
}

impl Vcpu {
    #[inline]
    pub fn memory<const WIDE: bool>(&mut self, info: u32, address: u64, datum: usize) {
        self.accesses +=
            u64::from(info >> READ_SHIFT & 1) | u64::from(info >> WRITE_SHIFT & 1) << 32;
        let last = address.wrapping_add((1 << (info >> SIZE_SHIFT & 7)) - 1) >> 6;
        let line = address >> 6;
        if self.company {
            self.shared = self.member.access(line, info >> WRITE_SHIFT & 1 != 0);
        }
        if !self.near.touch(line, self.accesses) || line != last {
            self.slow_memory::<WIDE>(info, address, last, datum);
        } else if self.shared.is_some() {
            self.add_shared(0);
        }
    }

    /// Records a data access that QEMU may split.
    pub fn split_memory<const WIDE: bool>(&mut self, info: u32, address: u64, datum: usize) {
        let usage = MemoryUse::unpack(datum);
        let bytes = 1u64 << (info >> SIZE_SHIFT & 7);
        if usage.repeat {
            let line = &mut self.repeat_lines[(info >> WRITE_SHIFT & 1) as usize];
            if *line == address >> 6 {
                return;
            }
            *line = address >> 6;
        } else if self.parts.left > 0 && self.parts.datum == datum && self.parts.next == address {
            self.parts.left -= 1;
            self.parts.next += bytes;
            // Only a line that the earlier parts did not touch counts as a new touch.
            let before = (address - 1) >> 6;
            for line in (address >> 6)..=(address + bytes - 1) >> 6 {
                if line != before {
                    self.extra += 1;
                    self.touch(line);
                }
            }
            return;
        } else {
            self.parts = Parts {
                datum,
                next: address + bytes,
                left: (u64::from(usage.bytes) / bytes).saturating_sub(1),
            };
        }
        self.memory::<WIDE>(info, address, datum);
    }

    #[inline(always)]
    fn any_memory(&mut self, info: u32, address: u64, last: u64, datum: usize) {
        let mut distance = self.touch(address >> 6);
        if self.shared.is_some() {
            self.add_shared(distance);
        }
        if last != address >> 6 {
            self.extra += 1;
            distance = distance.max(self.touch(last));
        }
        if self.capturing {
            let usage = MemoryUse::unpack(datum);
            let index = if usage.repeat { u32::MAX } else { usage.index };
            self.capture.access(
                index,
                u32::from(usage.bytes).div_ceil(8),
                address,
                distance,
                info >> WRITE_SHIFT & 1 != 0,
            );
        }
    }

    /// Counts the use of the current access's line, which the thread touched at a stack distance.
    #[inline(never)]
    fn add_shared(&mut self, distance: u64) {
        let Some(of) = self.shared.take() else { return };
        let into = self.file.record();
        into[record::OBSERVED] += 1;
        if of.invalidated {
            let bucket = LogHistogram::bucket(distance).min(STACK_BUCKETS - 1);
            into[record::INVALIDATED + bucket] += sharing::LINES;
        }
        if distance >= NEAR_LINES {
            into[record::SHARABLE] += 1;
            into[record::SHARED] += u64::from(of.shared);
        }
        if distance == COLD {
            into[record::FIRST] += 1;
            into[record::TOUCHED_BEFORE] += u64::from(of.shared);
        }
    }

    #[inline(always)]
    fn slow_memory<const WIDE: bool>(&mut self, info: u32, address: u64, last: u64, datum: usize) {
        if WIDE {
            // SAFETY: WIDE is chosen only if the features that `wide_memory` enables are present.
            unsafe { self.wide_memory(info, address, last, datum) }
        } else {
            self.any_memory(info, address, last, datum);
        }
    }

    #[cfg_attr(
        target_arch = "x86_64",
        target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")
    )]
    fn wide_memory(&mut self, info: u32, address: u64, last: u64, datum: usize) {
        self.any_memory(info, address, last, datum);
    }

    /// Returns the touches so far, including the current one, with `accesses` of this slice.
    #[inline(always)]
    pub(super) fn time(&self, accesses: u64) -> u64 {
        self.touches + self.extra + (accesses & 0xffff_ffff) + (accesses >> 32)
    }

    /// Touches a line and returns its stack distance, approximate if it is near.
    #[inline(always)]
    fn touch(&mut self, line: u64) -> u64 {
        if self.near.touch(line, self.accesses) {
            return 0;
        }
        if self.thin {
            return self.thin_touch(line);
        }
        let (touch, place) = self.recency.touch(line, self.time(self.accesses));
        if !self.capturing && !self.exact {
            self.remember(line, place);
        }
        let depth = self.conflicts.touch(line);
        let into = self.file.record();
        self.reach.data(line, into, self.capturing || self.exact);
        if depth > 0 {
            into[record::CONFLICTS + depth - 1] += 1;
        }
        let beyond = match touch {
            Touch::Again { distance, .. } => distance,
            Touch::Cold => COLD,
        };
        if beyond >= MLP_LINES[0] {
            let foreseen = u64::from(self.streams.touch(line));
            let sizes = MLP_LINES.iter().take_while(|lines| beyond >= **lines);
            sizes.enumerate().for_each(|(size, _)| {
                into[record::STREAMABLE + size] += 1;
                into[record::STREAMED + size] += foreseen;
            });
        }
        match touch {
            Touch::Again { distance, reuse } => {
                let reuse = LogHistogram::bucket(reuse).min(REUSE_BUCKETS - 1);
                if distance >= NEAR_LINES {
                    self.far += 1;
                    into[record::STACK + LogHistogram::bucket(distance).min(STACK_BUCKETS - 1)] +=
                        1;
                    into[record::REUSE + reuse] += 1;
                } else if self.capturing || self.exact {
                    into[record::NEAR_STACK + LogHistogram::bucket(distance)] += 1;
                    into[record::NEAR_REUSE + reuse] += 1;
                }
                distance
            }
            Touch::Cold => {
                self.far += 1;
                into[record::COLD] += 1;
                COLD
            }
        }
    }

    /// Adds a line to the epoch.
    #[inline(always)]
    pub(super) fn remember(&mut self, line: u64, place: usize) {
        let (lost, over) = self.near.add(line, place, self.accesses);
        if let Some((place, accesses)) = lost {
            let time = self.time(accesses);
            self.recency.set_time(place, time);
        }
        if over {
            self.end_epoch();
        }
    }

    #[inline(never)]
    pub(super) fn end_epoch(&mut self) {
        let base = self.touches + self.extra;
        let recency = &mut self.recency;
        self.near.clear(|place, accesses| {
            recency.set_time(place, base + (accesses & 0xffff_ffff) + (accesses >> 32))
        });
    }
}
