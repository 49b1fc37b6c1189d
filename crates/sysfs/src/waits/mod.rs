//! How long threads wait for a CPU while they could run: run-queue waits, of which those after a wake-up are wakeup latencies.
//!
//! Input: processes. Output: [`ThreadWaits`] since the last reading, from a [`Source`]: [`Schedstat`] reads the kernel's sums, which
//! needs no privilege and gives totals and means; BPF programs (crate `bpf`) measure each wait, which gives percentiles too.

mod histogram;
mod schedstat;

pub use histogram::Histogram;
pub use schedstat::Schedstat;

pub use crate::procfs::Sums;

/// Waits of a thread, or of several together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Times that a thread got a CPU.
    pub times: u64,
    /// All waits together, in nanoseconds.
    pub total_ns: u64,
    /// Each wait, where each was measured.
    pub measured: Option<Measured>,
}

/// Waits that were measured one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// After a wake-up.
    pub woken: Histogram,
    /// After the thread had lost its CPU.
    pub preempted: Histogram,
    pub longest_ns: u64,
}

/// What is new of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadWaits {
    pub pid: u32,
    pub tid: u32,
    pub name: String,
    pub ended: bool,
    /// Since the last reading.
    pub waits: Waits,
}

/// The processes whose waits are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whose {
    /// Those of all descendants that this process has from now on.
    pub children: bool,
    pub pids: Vec<u32>,
    /// Those of all processes.
    pub all: bool,
}

/// Something that knows how long threads wait.
pub trait Source: Send {
    /// A process is to be read with all its threads and descendants, from now on.
    fn follow(&mut self, pid: u32);

    /// Passes on what is new of each thread that waited since the last reading, or ended.
    fn read(&mut self, hear: &mut dyn FnMut(ThreadWaits));

    /// Whether waits were lost, since more threads were there than expected.
    fn lost(&self) -> bool {
        false
    }
}

impl Waits {
    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        // What was measured one by one is no longer all when sums are added to it.
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

    /// In nanoseconds; none of no waits.
    #[must_use]
    pub fn mean_ns(&self) -> Option<f64> {
        (self.times > 0).then(|| self.total_ns as f64 / self.times as f64)
    }
}

impl Measured {
    pub fn add(&mut self, other: &Self) {
        self.woken.add(&other.woken);
        self.preempted.add(&other.preempted);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }

    /// All waits, whatever they came of.
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
        let measured = Measured {
            woken,
            longest_ns: 1000,
            ..Measured::default()
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
