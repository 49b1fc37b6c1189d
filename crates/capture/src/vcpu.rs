//! Counters and models of one thread of the program.
//!
//! Input: executed blocks, data accesses, entries to and returns from system calls. Output: the thread's window records. The two
//! hot paths, [`Vcpu::block`] and [`Vcpu::memory`], do little: a few additions, the branch predictor, and a look-up in the lines
//! of the current epoch. Everything else is done at the end of a slice.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use crate::action::CallerAction;
use crate::block::{NO_BLOCK, PackedClasses, TranslatedBlock};
use crate::branches::Branches;
use crate::capture::Capture;
use crate::conflicts::Conflicts;
use crate::layout::{ENDED_EXEC, ENDED_PROCESS, ENDED_SELF, Measure, RUNNABLE_LEVELS, record};
use crate::near::{NO_LINE, Near};
use crate::output::ThreadFile;
use crate::reach::ReachStacks;
use crate::recency::Recency;
use crate::shared::WindowControl;
use crate::sharing::{LineUse, ProcessMember};
use crate::simple::Simple;
use crate::stream::WireStream;
use crate::streams::Streams;

mod memory;
mod sampled;
mod streamed;

use memory::Parts;
use sampled::SamplingState;

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

/// Counters and models of a thread.
pub struct Vcpu {
    /// Recently touched lines; empty while every access must be processed.
    near: Near,
    /// Loads of this slice in the low half, stores in the high half.
    accesses: u64,
    remaining: i64,
    classes: u64,
    previous: &'static TranslatedBlock,
    capturing: bool,
    branches: Branches,
    /// Mispredictions up to the last captured block.
    wrong_before: u64,
    /// Mispredictions already in records.
    wrong_settled: u64,
    recency: Recency,
    conflicts: Conflicts,
    streams: Streams,
    reach: Box<ReachStacks>,
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
    sampling: Option<Box<SamplingState>>,
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
    control: &'static WindowControl,
    /// Stream that receives the events, if any.
    stream: Option<Box<WireStream>>,
    member: ProcessMember,
    /// True if the process had other threads when the slice began.
    company: bool,
    /// Use of the line of the current access; `None` if it is not in the directory.
    shared: Option<LineUse>,
}

impl Vcpu {
    /// Creates a thread that has executed nothing.
    pub fn new(
        directory: &Path,
        control: &'static WindowControl,
        measure: Measure,
    ) -> io::Result<Self> {
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
            reach: Box::new(ReachStacks::new()),
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
            member: ProcessMember::new(),
            company: false,
            shared: None,
        };
        this.schedule();
        this.activate();
        Ok(this)
    }

    #[inline]
    pub fn block(&mut self, block: &'static TranslatedBlock) -> CallerAction {
        match self.count(block) {
            Some(previous) => self.watch(previous, block),
            None => CallerAction::Go,
        }
    }

    /// Counts the instructions of a block, and returns the previous one; `None` if the block continues a repeated instruction.
    #[inline(always)]
    fn count(&mut self, block: &'static TranslatedBlock) -> Option<&'static TranslatedBlock> {
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
    fn watch(
        &mut self,
        previous: &'static TranslatedBlock,
        block: &'static TranslatedBlock,
    ) -> CallerAction {
        self.branches.resolve(previous, block.pc);
        let exact = self.capturing || self.exact;
        self.reach.block(previous, block, self.file.record(), exact);
        if self.remaining <= 0 || self.capturing {
            self.slow_block(block)
        } else {
            CallerAction::Go
        }
    }

    /// Does the rare work of a block: in captures and at the end of a slice.
    #[cold]
    #[inline(never)]
    fn slow_block(&mut self, block: &'static TranslatedBlock) -> CallerAction {
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
            return CallerAction::Go;
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
    fn settle(&mut self) -> CallerAction {
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
        let classes = PackedClasses::unpack(self.classes);
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
            CallerAction::Stop
        } else {
            CallerAction::Go
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

    /// Records that the thread enters the kernel.
    pub fn enter_call(&mut self) -> CallerAction {
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
    pub fn leave_call(&mut self) -> CallerAction {
        self.activate();
        self.runnable = self.control.active();
        if self.control.stopped() {
            self.sent_before(CallerAction::Stop)
        } else {
            CallerAction::Go
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

    /// Records that the thread ends its whole process; there is no further callback.
    pub fn end_process(&mut self) {
        self.file.end(ENDED_PROCESS);
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
