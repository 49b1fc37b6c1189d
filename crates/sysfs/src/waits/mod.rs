//! Run-queue latencies of threads: time in which they are runnable and wait for a CPU. Those after a wake-up are wakeup
//! latencies.
//!
//! Input: processes. Output: [`ThreadWaits`] since the last sample, from a [`WaitSource`]. [`Schedstat`] reads the kernel's sums,
//! which needs no privilege and gives totals and means. BPF programs (crate `bpf`) measure each wait, which also gives
//! percentiles.

mod schedstat;

pub use countersteer_model::latency::Histogram;
pub use schedstat::{Schedstat, ThreadSums};

pub use crate::procfs::SchedstatSums;

/// Run-queue latencies of a thread, or of several together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Number of times that a thread got a CPU.
    pub times: u64,
    /// Total of all waits, in nanoseconds.
    pub total_ns: u64,
    /// Individual waits; `None` if they were not measured.
    pub measured: Option<MeasuredWaits>,
}

/// Waits measured individually.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeasuredWaits {
    /// Waits after a wake-up.
    pub woken: Histogram,
    /// Waits after a preemption.
    pub preempted: Histogram,
    pub longest_ns: u64,
}

/// New waits of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadWaits {
    /// Process of the thread; the TID itself if the source reads only this thread.
    pub pid: u32,
    pub tid: u32,
    /// Name of the thread; empty if unknown.
    pub name: String,
    pub ended: bool,
    /// Waits since the last sample.
    pub waits: Waits,
}

/// Selection of the processes whose waits are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whose {
    /// Include all later descendants of this process.
    pub children: bool,
    pub pids: Vec<u32>,
    /// Include all processes.
    pub all: bool,
}

/// Source of threads' run-queue latencies.
pub trait WaitSource: Send {
    /// Begins to read a process with all its threads and descendants.
    fn follow(&mut self, pid: u32);

    /// Begins to read a thread that the caller observes: from its start if it is new, else from now on. Returns its process if
    /// the source reads all threads of that.
    fn follow_thread(&mut self, tid: u32, is_new: bool) -> Option<u32>;

    /// Passes on the new waits of each thread that waited since the last sample, or exited.
    fn read(&mut self, hear: &mut dyn FnMut(ThreadWaits));

    /// True if waits were lost because more threads existed than expected.
    fn lost(&self) -> bool {
        false
    }
}

impl Waits {
    /// Adds other waits.
    pub fn add(&mut self, other: &Self) {
        // Individual waits are no longer complete once sums are added to them.
        let all = (self.times == 0 || self.measured.is_some())
            && (other.times == 0 || other.measured.is_some());
        self.times += other.times;
        self.total_ns += other.total_ns;
        if !all {
            self.measured = None;
        } else if let Some(more) = &other.measured {
            self.measured.get_or_insert_default().add(more);
        }
    }

    /// Returns the mean in nanoseconds; `None` if there were no waits.
    #[must_use]
    pub fn mean_ns(&self) -> Option<f64> {
        (self.times > 0).then(|| self.total_ns as f64 / self.times as f64)
    }
}

impl MeasuredWaits {
    pub fn add(&mut self, other: &Self) {
        self.woken.add(&other.woken);
        self.preempted.add(&other.preempted);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }

    /// Returns all waits, after wake-ups and preemptions.
    #[must_use]
    pub fn all(&self) -> Histogram {
        let mut all = self.woken.clone();
        all.add(&self.preempted);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_waits_that_were_all_measured() {
        let mut woken = Histogram::default();
        woken.record(1000, 2);
        let measured = MeasuredWaits {
            woken,
            longest_ns: 1000,
            ..MeasuredWaits::default()
        };
        let one = Waits {
            times: 2,
            total_ns: 2000,
            measured: Some(measured),
        };
        let sums = Waits {
            times: 1,
            total_ns: 4000,
            measured: None,
        };
        let mut all = Waits::default();
        all.add(&one);
        all.add(&one);
        assert_eq!(all.measured.as_ref().unwrap().all().count(), 4);
        all.add(&sums);
        assert_eq!((all.times, all.mean_ns()), (5, Some(1600.0)));
        assert!(all.measured.is_none());
        assert_eq!(Waits::default().mean_ns(), None);
    }
}
