//! States of the threads of this process, by QEMU's number.
//!
//! Input: calls from all threads at once. Output: the state of the calling thread; only that thread uses it while it runs.

use std::ffi::c_uint;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

use crate::guest::Guest;

/// Largest number of threads of a process at a time.
const MOST: usize = 1 << 16;

pub struct ThreadStates<T: 'static> {
    slots: [AtomicPtr<T>; MOST],
    /// Process that the threads belong to.
    pid: AtomicU32,
}

impl<T> ThreadStates<T> {
    pub const fn new() -> Self {
        Self {
            slots: [const { AtomicPtr::new(null_mut()) }; MOST],
            pid: AtomicU32::new(0),
        }
    }

    /// Records that the threads are those of this process.
    pub fn begin(&self) {
        self.pid.store(std::process::id(), Relaxed);
    }

    /// Adds the calling thread, unless there are too many or it gets no state.
    pub fn add(&self, index: c_uint, state: impl FnOnce() -> Option<T>) {
        if let Some(slot) = self.slots.get(index as usize)
            && let Some(state) = state()
        {
            slot.store(Box::into_raw(Box::new(state)), Relaxed);
        }
    }

    /// Returns the state of the calling thread.
    #[inline]
    pub fn own(&self, index: c_uint) -> Option<&'static mut T> {
        let pointer = self.slots.get(index as usize)?.load(Relaxed);
        // SAFETY: entries are null or leaked boxes, freed only by the thread itself when it ends. QEMU calls back with a
        // thread's index from that thread alone.
        unsafe { pointer.as_mut() }
    }

    /// Removes the calling thread when it ends.
    pub fn remove(&self, index: c_uint) -> Option<Box<T>> {
        let pointer = self.slots.get(index as usize)?.swap(null_mut(), Relaxed);
        // SAFETY: entries come from boxes, and the swap made this the only pointer.
        (!pointer.is_null()).then(|| unsafe { Box::from_raw(pointer) })
    }

    /// Calls `each` for all threads. They may still run, so only atomic fields may be touched.
    pub fn for_each(&self, each: impl Fn(&T)) {
        for slot in &self.slots {
            // SAFETY: entries are null or leaked boxes; `each` touches only atomic fields.
            if let Some(state) = unsafe { slot.load(Relaxed).as_ref() } {
                each(state);
            }
        }
    }

    /// True if the calling thread returns from a call that has just made this process. Its other threads are then forgotten:
    /// their states are copies of those of the parent process, and stay unused after `abandon`.
    pub fn is_forked(
        &self,
        own: c_uint,
        (number, result): (i64, i64),
        abandon: impl Fn(&T),
    ) -> bool {
        let returns_in_child = result == 0 && Guest::own().calls().forks.contains(&number);
        if !returns_in_child || std::process::id() == self.pid.load(Relaxed) {
            return false;
        }
        self.begin();
        for (index, slot) in self.slots.iter().enumerate() {
            // SAFETY: as for `own`, and these threads are not in this process.
            let state = unsafe { slot.load(Relaxed).as_ref() };
            if let Some(state) = state.filter(|_| index != own as usize) {
                abandon(state);
                slot.store(null_mut(), Relaxed);
            }
        }
        true
    }
}
