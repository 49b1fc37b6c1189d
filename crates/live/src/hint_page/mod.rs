//! Hint pages: memory that each thread of a program shares with the engine that steers it.
//!
//! Input: application hints about threads (priority, sufficient speed, state, number of threads that share the work, work done).
//! Output: the engine's advice to them (core type, speed-up factor, fraction of a CPU). Program and engine never wait for each
//! other, and a program makes no system call for writing or reading. A page can be used without an engine, too; hints are then
//! not read, and there is no advice.
//!
//! ```
//! use countersteer_model::hint::{Phase, Hint};
//! use countersteer_live::hint_page::HintPage;
//!
//! let page = HintPage::open()?;
//! page.tell(&Hint { priority: 2, workers: 8, ..Hint::default() });
//! page.phase(Phase::Spinning);
//! page.work(1);
//! if let Some(advice) = page.read() {
//!     println!("on {}, {} times as fast as the slowest", advice.core_type(), advice.speed);
//! }
//! # Ok::<(), countersteer_live::hint_page::PageError>(())
//! ```

pub(crate) mod layout;
mod table;

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::Ordering;

use countersteer_model::hint::{Hint, Phase};
use countersteer_sysfs::procfs::{PROC, ProcError};

use layout::HintSlot;
use table::HintTable;

pub(crate) use table::file;

pub use layout::HintAdvice;

/// Reason for which a page cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    #[error("{what}: {source}")]
    System {
        what: &'static str,
        source: std::io::Error,
    },
    /// The start time of the thread cannot be read.
    #[error(transparent)]
    Proc(#[from] ProcError),
    /// All descriptors under which engines search for pages are in use.
    #[error(
        "none of the descriptors {} to {} is free, under which engines look for pages: open the first page earlier, or \
         raise `ulimit -n`",
        layout::FIRST,
        layout::FIRST + layout::TRIES - 1
    )]
    Descriptor,
    #[error(
        "{} threads of this process have a page already; close some",
        layout::SLOTS
    )]
    Full,
    #[error("this thread is about to end; open its page earlier")]
    Ending,
}

/// Page of a thread. Copies of this value refer to the same page.
#[derive(Clone, Copy)]
pub struct HintPage(&'static HintSlot);

/// Page that the current thread has opened. It is closed when the thread ends.
struct OwnPage {
    slot: Cell<Option<&'static HintSlot>>,
    tid: Cell<u32>,
}

impl OwnPage {
    /// Returns the slot; `None` if it was closed, or if its memory stayed in the parent process of a fork.
    fn slot(&self) -> Option<&'static HintSlot> {
        self.slot
            .get()
            .filter(|slot| slot.program.tid.load(Ordering::Relaxed) == self.tid.get())
    }
}

impl Drop for OwnPage {
    fn drop(&mut self) {
        if let Some(slot) = self.slot() {
            HintPage(slot).close();
        }
    }
}

thread_local! {
    static OWN: OwnPage = const { OwnPage { slot: Cell::new(None), tid: Cell::new(0) } };
}

impl HintPage {
    /// Opens the page of the calling thread, or returns it if it is open. The thread keeps the page until it closes it or ends.
    ///
    /// # Errors
    /// Fails if the kernel refuses memory or descriptors, or if too many threads have a page.
    pub fn open() -> Result<Self, PageError> {
        OWN.try_with(|own| {
            if let Some(slot) = own.slot() {
                return Ok(Self(slot));
            }
            let started = PROC.own_stat()?.started;
            let tid = nix::unistd::gettid().as_raw() as u32;
            let slot = HintTable::of_process()?.take(tid, started)?;
            own.slot.set(Some(slot));
            own.tid.set(tid);
            Ok(Self(slot))
        })
        .unwrap_or(Err(PageError::Ending))
    }

    /// Writes the whole hint. Only one thread may write at a time; otherwise parts of two hints are mixed.
    pub fn tell(self, hint: &Hint) {
        self.0.program.tell(hint);
    }

    /// Writes only the activity of the thread.
    pub fn phase(self, phase: Phase) {
        self.0.program.phase.store(phase as u32, Ordering::Relaxed);
    }

    /// Adds units of work done, in a unit of the thread's choice. Only one thread may write at a time.
    pub fn work(self, units: u64) {
        let work = &self.0.program.work;
        work.store(
            work.load(Ordering::Relaxed).wrapping_add(units),
            Ordering::Relaxed,
        );
    }

    /// Returns the engine's advice; `None` if there is none. Any thread may call this.
    #[must_use]
    pub fn read(self) -> Option<HintAdvice> {
        self.0.engine.read()
    }

    /// Returns the current epoch of the advice. Advice with the same [`HintAdvice::epoch`] is up to date.
    #[must_use]
    pub fn epoch(self) -> u32 {
        self.0.engine.seq.load(Ordering::Relaxed)
    }

    /// Withdraws the hint and closes the page. Copies must not be used afterwards: they may then refer to another thread's page.
    pub fn close(self) {
        self.0.program.tid.store(0, Ordering::Release);
    }

    /// Returns the page as a pointer for C.
    #[must_use]
    pub const fn into_raw(self) -> *const c_void {
        std::ptr::from_ref(self.0).cast()
    }

    /// Returns the page of a pointer from [`HintPage::into_raw`]; `None` for null.
    ///
    /// # Safety
    /// The pointer must be null, or come from [`HintPage::into_raw`] in this process or in one that it was forked from.
    #[must_use]
    pub unsafe fn from_raw(raw: *const c_void) -> Option<Self> {
        // SAFETY: slots consist of atomics, in memory that is never unmapped, not even in children.
        unsafe { raw.cast::<HintSlot>().as_ref() }.map(Self)
    }
}

#[cfg(test)]
mod tests;
