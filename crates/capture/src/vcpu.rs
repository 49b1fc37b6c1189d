//! Counters and models of one thread of the program.
//!
//! Input: executed blocks, data accesses, entries to and returns from system calls. Output: the thread's window records. The two
//! hot paths, [`Vcpu::block`] and [`Vcpu::memory`], do little: a few additions, the branch predictor, and a look-up in the lines
//! of the current epoch. Everything else is done at the end of a slice.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use countersteer_model::profile::LogHistogram;

use crate::block::{Block, Classes, MemoryUse};
use crate::branches::Branches;
use crate::capture::{COLD, Capture};
use crate::conflicts::Conflicts;
use crate::layout::{
    ENDED_EXEC, ENDED_SELF, MLP_LINES, Measure, NEAR_LINES, REUSE_BUCKETS, RUNNABLE_LEVELS,
    STACK_BUCKETS, record,
};
use crate::near::{NO_LINE, Near};
use crate::output::ThreadFile;
use crate::reach::Reach;
use crate::recency::{Recency, Touch};
use crate::shared::Control;
use crate::sharing::{self, Member, Use};
use crate::simple::Simple;
use crate::stream::Stream;
use crate::streams::Streams;

mod sampled;
mod streamed;

use sampled::Sampling;

/// Instructions between two updates of the record.
const SLICE: i64 = 1 << 16;
/// Largest average number of instructions between two captures, used in a long run.
const SAMPLE_MOST: u64 = 1 << 20;
/// Smallest such number, used at the start of a thread, so that short threads are sampled too.
const SAMPLE_LEAST: u64 = 1 << 14;
/// In between, a capture begins whenever the thread has grown by one part in this number.
const SAMPLE_GROWTH: u64 = 8;
/// Instructions before the first capture of a thread.
const SAMPLE_FIRST: i64 = 1 << 12;
/// Position, in QEMU's memory information, of the size (log2) and of the read and write bits.
const SIZE_SHIFT: u32 = 4;
const READ_SHIFT: u32 = 16;
const WRITE_SHIFT: u32 = 17;

/// Block before the first.
static NO_BLOCK: std::sync::LazyLock<Block> = std::sync::LazyLock::new(Block::default);

/// Action that the caller must take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    Go,
    /// End the process: the recording is over.
    Stop,
}

/// Counters and models of a thread.
pub struct Vcpu {
    /// Recently touched lines; empty while every access must be processed.
    near: Near,
    /// Loads of this slice in the low half, stores in the high half.
    accesses: u64,
    remaining: i64,
    classes: u64,
    previous: &'static Block,
    capturing: bool,
    branches: Branches,
    /// Mispredictions up to the last captured block.
    wrong_before: u64,
    /// Mispredictions already in records.
    wrong_settled: u64,
    recency: Recency,
    conflicts: Conflicts,
    streams: Streams,
    reach: Box<Reach>,
    /// Touches before this slice; touches beyond loads and stores in it; and touches of lines not touched recently.
    touches: u64,
    extra: u64,
    far: u64,
    /// True if the whole run is measured like the captures.
    exact: bool,
    /// True if only a sample of the lines is in the LRU stacks.
    thin: bool,
    /// True while the branch predictor and the models of sets and streams run in spite of that.
    modelling: bool,
    /// True while a model needs to know of each block of a sampled recording.
    watching: bool,
    simple: Simple,
    /// State of a sampled recording; `None` in others.
    sampling: Option<Box<Sampling>>,
    slice: i64,
    executed: u64,
    until_sample: i64,
    random: u64,
    /// Runnable threads of the recording when the slice began, this one included.
    runnable: u64,
    parts: Parts,
    repeat_lines: [u64; 2],
    capture: Box<Capture>,
    file: ThreadFile,
    control: &'static Control,
    /// Stream that receives the events, if any.
    stream: Option<Box<Stream>>,
    member: Member,
    /// True if the process had other threads when the slice began.
    company: bool,
    /// Use of the line of the current access; `None` if it is not in the directory.
    shared: Option<Use>,
}

/// Wide access with some parts still to come.
#[derive(Default)]
struct Parts {
    datum: usize,
    next: u64,
    left: u64,
}

impl Vcpu {
    /// Creates a thread that has executed nothing.
    pub fn new(directory: &Path, control: &'static Control, measure: Measure) -> io::Result<Self> {
        let file = ThreadFile::create(directory, control)?;
        let mut this = Self {
            near: Near::new(),
            accesses: 0,
            remaining: 0,
            classes: 0,
            previous: &NO_BLOCK,
            capturing: false,
            branches: Branches::new(),
            wrong_before: 0,
            wrong_settled: 0,
            recency: Recency::new(),
            conflicts: Conflicts::new(),
            streams: Streams::new(),
            reach: Box::new(Reach::new()),
            touches: 0,
            extra: 0,
            far: 0,
            exact: measure == Measure::Reference,
            thin: false,
            modelling: false,
            watching: true,
            simple: Simple::new(),
            sampling: (measure == Measure::Sampled).then(Box::default),
            slice: 0,
            executed: 0,
            until_sample: SAMPLE_FIRST,
            random: 0x2545_f491_4f6c_dd1d,
            runnable: control.active() + 1,
            parts: Parts::default(),
            repeat_lines: [NO_LINE; 2],
            capture: Box::new(Capture::new()),
            file,
            control,
            stream: None,
            member: Member::new(),
            company: false,
            shared: None,
        };
        this.schedule();
        this.activate();
        Ok(this)
    }

    #[inline]
    pub fn block(&mut self, block: &'static Block) -> Verdict {
        match self.count(block) {
            Some(previous) => self.watch(previous, block),
            None => Verdict::Go,
        }
    }

    /// Counts the instructions of a block, and returns the previous one; `None` if the block continues a repeated instruction.
    #[inline(always)]
    fn count(&mut self, block: &'static Block) -> Option<&'static Block> {
        let previous = std::mem::replace(&mut self.previous, block);
        if block.ends_repeat != 0 {
            // QEMU executes each element of a repeated string instruction as a block; it counts as one instruction.
            if block.starts_repeat && previous.ends_repeat == block.pc {
                return None;
            }
            self.repeat_lines = [NO_LINE; 2];
        }
        self.remaining -= i64::from(block.count);
        self.classes += block.classes;
        Some(previous)
    }

    /// Passes a block to all models.
    #[inline(always)]
    fn watch(&mut self, previous: &'static Block, block: &'static Block) -> Verdict {
        self.branches.resolve(previous, block.pc);
        let exact = self.capturing || self.exact;
        self.reach.block(previous, block, self.file.record(), exact);
        if self.remaining <= 0 || self.capturing {
            self.slow_block(block)
        } else {
            Verdict::Go
        }
    }

    /// Does the rare work of a block: in captures and at the end of a slice.
    #[cold]
    #[inline(never)]
    fn slow_block(&mut self, block: &'static Block) -> Verdict {
        if self.capturing {
            if self.capture.is_complete() {
                let into = self.file.record();
                let before = into[record::SAMPLED];
                self.capture.finish(into);
                if !self.exact {
                    into[record::REACH_SAMPLED] += into[record::SAMPLED] - before;
                }
                self.capturing = false;
                self.set_watching();
            } else {
                let mispredicted = self.branches.wrong > self.wrong_before;
                self.capture.block(block, mispredicted);
            }
            self.wrong_before = self.branches.wrong;
        }
        if self.remaining > 0 {
            return Verdict::Go;
        }
        let verdict = self.settle();
        self.change_phase();
        if self.until_sample <= 0 && !self.capturing {
            self.until_sample = self.interval();
            self.end_epoch();
            self.reach.end_epochs();
            self.capturing = true;
            self.capture.clear();
            self.clear_recent();
            self.capture.block(block, false);
        }
        self.set_watching();
        self.schedule();
        verdict
    }

    /// Returns the instructions to the next capture: random, so that captures do not synchronize with a loop.
    fn interval(&mut self) -> i64 {
        let random = self.random();
        let most = match self.sampling {
            Some(_) => sampled::CAPTURE_MOST,
            None => SAMPLE_MOST,
        };
        let mean = (self.executed / SAMPLE_GROWTH).clamp(SAMPLE_LEAST, most);
        (mean / 2 + random % mean) as i64
    }

    /// Returns a random number, the same ones in every run.
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 8
    }

    /// Moves the counts of the slice so far into the record.
    fn settle(&mut self) -> Verdict {
        let executed = (self.slice - self.remaining).max(0);
        self.slice = self.remaining;
        self.until_sample -= executed;
        self.executed += executed as u64;
        let loads = self.accesses & 0xffff_ffff;
        let stores = self.accesses >> 32;
        let touches = loads + stores + self.extra;
        let near = touches - self.far.min(touches);
        // Times within an epoch are counted from the start of the slice.
        self.end_epoch();
        let classes = Classes::unpack(self.classes);
        let runnable = self.runnable.max(self.control.active());
        let level = (runnable as usize).clamp(1, RUNNABLE_LEVELS) - 1;
        let total = self.control.add_instructions(executed as u64);
        let wrong = self.branches.wrong - self.wrong_settled;
        self.add_sampled(executed as u64, classes.branches, wrong);
        let into = self.file.record();
        into[record::INSTRUCTIONS] += executed as u64;
        into[record::LOADS] += loads;
        into[record::STORES] += stores;
        into[record::BRANCHES] += classes.branches;
        into[record::FP] += classes.fp;
        into[record::SIMD] += classes.simd;
        into[record::RUNNABLE + level] += executed as u64;
        into[record::NEAR] += near;
        if self.exact {
            into[record::REACH_SAMPLED] += executed as u64;
        }
        into[record::STAMP] = total;
        (self.wrong_before, self.wrong_settled) = (self.branches.wrong, self.branches.wrong);
        let full = into[record::INSTRUCTIONS] >= self.file.window_length();
        self.touches += touches;
        (self.accesses, self.extra, self.far, self.classes) = (0, 0, 0, 0);
        if full {
            self.file.advance();
        }
        if total >= self.control.limit() {
            self.control.stop();
        }
        self.runnable = self.control.active();
        if self.control.stopped() {
            Verdict::Stop
        } else {
            Verdict::Go
        }
    }

    /// Sets the length of the next slice: up to the capture, the end of the window or the limit, if one of them is near.
    fn schedule(&mut self) {
        let window = self
            .file
            .window_length()
            .saturating_sub(self.file.record()[record::INSTRUCTIONS]);
        let limit = self
            .control
            .limit()
            .saturating_sub(self.control.instructions());
        let nearest = window.min(limit).min(SLICE as u64) as i64;
        let nearest = if self.capturing {
            nearest
        } else {
            nearest.min(self.until_sample)
        };
        let nearest = nearest.min(self.until_phase());
        self.slice = nearest.max(1);
        self.remaining = self.slice;
        self.company = self.member.has_company();
    }

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
    fn time(&self, accesses: u64) -> u64 {
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
    fn remember(&mut self, line: u64, place: usize) {
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
    fn end_epoch(&mut self) {
        let base = self.touches + self.extra;
        let recency = &mut self.recency;
        self.near.clear(|place, accesses| {
            recency.set_time(place, base + (accesses & 0xffff_ffff) + (accesses >> 32))
        });
    }

    /// Records that the thread enters the kernel.
    pub fn enter_call(&mut self) -> Verdict {
        let mut verdict = self.settle();
        let stamp = self.control.instructions();
        if let Some(stream) = &mut self.stream {
            let sent = stream.enter_kernel(false, stamp);
            verdict = self.sent(sent, verdict);
        }
        self.release();
        self.sent_before(verdict)
    }

    /// Records that the thread returns from the kernel.
    pub fn leave_call(&mut self) -> Verdict {
        self.activate();
        self.runnable = self.control.active();
        if self.control.stopped() {
            self.sent_before(Verdict::Stop)
        } else {
            Verdict::Go
        }
    }

    /// Continues the thread after a fork as the only thread of the child, with its own records.
    ///
    /// # Errors
    /// Fails if no file can be created. The thread must then not be used again, because its file is the parent's.
    pub fn fork(&mut self, directory: &Path) -> io::Result<()> {
        // The stream is the parent's: it would mix blocks of two processes.
        self.stream = None;
        self.member.forked();
        self.file = ThreadFile::create(directory, self.control)?;
        Ok(())
    }

    /// Records that the process is about to execute another program, or failed to.
    pub fn exec(&mut self, succeeds: bool) {
        self.file.end(if succeeds { ENDED_EXEC } else { 0 });
    }

    /// Records that the thread exits; its state is dropped next.
    pub fn exit(&mut self) {
        let _ = self.settle();
        self.send_last(true);
        self.release();
        self.member.leave();
        self.file.end(ENDED_SELF);
    }

    /// Counts the thread as runnable from now on.
    fn activate(&self) {
        if self.file.in_call().swap(0, Relaxed) != 0 {
            self.control.activate();
        }
    }

    /// Stops counting the thread as runnable. It may still run while its process ends, so only shared state may change.
    pub fn release(&self) {
        if self.file.in_call().swap(1, Relaxed) == 0 {
            self.control.deactivate();
        }
    }
}

#[cfg(test)]
mod tests;
