//! Utilisation clamps (uclamp) in decisions about capacity.
//!
//! Input: a utilisation, a clamp, and a CPU's capacity. Output: the degree to which a thread fits the CPU. Models `util_fits_cpu`
//! and the aggregation of a run queue's clamps (`uclamp_rq_inc_id`, kernel/sched/core.c). The engine's governor applies clamps to
//! frequencies.

use countersteer_model::placement::Clamp;
use countersteer_model::units::{Nanos, ThreadId};

use super::Linux;
use super::pelt::fits;

/// Degree to which a thread fits a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CapacityFit {
    No,
    /// The utilisation fits, but the CPU is smaller than the lower clamp demands.
    TooSlow,
    Yes,
}

/// Returns the degree to which utilisation `util` under `clamp` fits a CPU (`util_fits_cpu`, kernel/sched/fair.c).
pub(super) fn fit(util: f64, clamp: Clamp, capacity: u32) -> CapacityFit {
    // A thread fits every CPU of at least its upper clamp. On the largest CPU, an absent clamp means nothing.
    let capped = clamp.most <= capacity && !(capacity == Clamp::MOST && clamp.most == Clamp::MOST);
    if !capped && !fits(util, f64::from(capacity)) {
        return CapacityFit::No;
    }
    let least = clamp.least.min(clamp.most);
    if util < f64::from(least) && least > capacity {
        CapacityFit::TooSlow
    } else {
        CapacityFit::Yes
    }
}

impl Linux {
    /// Sets the utilisation clamp of a thread.
    pub(crate) fn set_clamp(&mut self, thread: ThreadId, clamp: Clamp, now: Nanos) {
        let now = self.begin(now);
        self.clamped |= clamp != Clamp::FREE;
        self.threads[thread.index()].clamp = clamp;
        let cpu = self.threads[thread.index()].cpu as usize;
        self.update_misfit(cpu);
        self.touch(cpu);
        self.end(now);
    }

    /// Returns the clamps of a CPU's runnable threads and of thread `also`: the maximum of each bound applies.
    pub(super) fn clamp_of_queue(&self, cpu: usize, also: Option<Clamp>) -> Clamp {
        if !self.clamped {
            return Clamp::FREE;
        }
        let queued = self.queue_of(cpu).map(|t| &self.threads[t as usize]);
        let queued = queued.filter(|t| t.runnable()).map(|t| t.clamp);
        let largest = |a: Clamp, b: Clamp| Clamp {
            least: a.least.max(b.least),
            most: a.most.max(b.most),
        };
        queued.chain(also).reduce(largest).unwrap_or(Clamp::FREE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clamps_decide_on_which_cpus_a_thread_fits() {
        let clamp = |least, most| Clamp { least, most };
        // A small thread fits a small CPU, and a large one does not.
        assert_eq!(fit(300.0, Clamp::FREE, 446), CapacityFit::Yes);
        assert_eq!(fit(400.0, Clamp::FREE, 446), CapacityFit::No);
        // The lower clamp asks for a larger CPU; the upper one lets a large thread fit a small CPU.
        assert_eq!(fit(100.0, clamp(600, 1024), 446), CapacityFit::TooSlow);
        assert_eq!(fit(100.0, clamp(600, 1024), 1024), CapacityFit::Yes);
        assert_eq!(fit(1000.0, clamp(0, 400), 446), CapacityFit::Yes);
        assert_eq!(fit(1000.0, clamp(0, 600), 446), CapacityFit::No);
        // The upper clamp limits the lower one.
        assert_eq!(fit(100.0, clamp(600, 300), 446), CapacityFit::Yes);
        // No clamp hides that the largest CPU is full.
        assert_eq!(fit(1000.0, Clamp::FREE, 1024), CapacityFit::No);
    }
}
