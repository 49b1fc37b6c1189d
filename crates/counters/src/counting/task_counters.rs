//! Interface for counting threads. Implementations are per-thread counters ([`super::per_thread`]), BPF programs
//! ([`super::bpf`]), and scripts in tests.
//!
//! Input: threads and event sets. Output: forks, execs and exits of threads, put into an [`EventSorter`]; and counts, put into
//! the sorter or into a [`Ledger`].
use countersteer_model::counters::Ledger;
use countersteer_model::units::{CpuId, Nanos};
use countersteer_sysfs::poll::{Poller, Wake};

use super::event_sorter::EventSorter;
use crate::CounterError;
use crate::perf::open::{CountedTasks, GroupInfo, GroupOpening, Says};

pub(super) trait TaskCounters {
    /// Returns the present time, by the clock of the records.
    fn now(&self) -> Nanos;

    /// Counts these threads (pairs of PID and TID) and their descendants from now on. Threads that have exited are skipped.
    ///
    /// # Errors
    /// Fails if the threads may not be counted, or the limit on counters is reached.
    fn attach(
        &mut self,
        opening: &GroupOpening<'_>,
        threads: &[(u32, u32)],
    ) -> Result<(), CounterError>;

    /// Stops counting these trees, whose threads have all exited.
    fn detach(&mut self, _trees: &[u32]) {}

    /// Replaces the counters of a CPU that was offline and is back online.
    ///
    /// # Errors
    /// Fails if the counters may not be opened any more, or the CPU cannot be counted yet.
    fn renew(
        &mut self,
        _opening: &GroupOpening<'_>,
        _whom: CountedTasks<'_>,
        _cpu: CpuId,
    ) -> Result<(), CounterError> {
        Ok(())
    }

    /// Returns the poller, so that callers can add descriptors.
    fn poller(&mut self) -> &mut Poller;

    /// Waits until the time `until`, or until a ring buffer fills up, the target exits or a signal comes.
    ///
    /// # Errors
    /// Fails if the kernel refuses to wait.
    fn wait(&mut self, until: Nanos) -> Result<Wake, CounterError>;

    /// Puts the events up to now into the sorter. Counts of threads without other events may go straight into the ledger.
    fn poll(&mut self, sorter: &mut EventSorter, ledger: &mut Ledger);

    fn groups(&self) -> &[GroupInfo];

    /// Returns the index of the group to which the event with the identifier `id` belongs, and the reason for samples of that
    /// event.
    fn group_of(&self, id: u64) -> Option<(usize, Says)>;

    /// Reads a group's total into `values`, in the order of its members. Returns the enabled and running time in ns.
    ///
    /// # Errors
    /// Fails if the counter cannot be read any more.
    fn read(&mut self, group: usize, values: &mut Vec<u64>) -> Result<(u64, u64), CounterError>;

    /// Switches an event set on or off.
    ///
    /// # Errors
    /// Fails if counters cannot be switched any more.
    fn select(&mut self, set: u32, on: bool) -> Result<(), CounterError>;

    /// True if a poll returns all past events, so that no earlier event can come later.
    fn is_prompt(&self) -> bool {
        false
    }

    /// True if forks, execs and exits are reported even while no set is switched on.
    fn follows_while_off(&self) -> bool {
        false
    }

    /// True if the tables for threads are almost full: [`TaskCounters::poll`] should be called soon.
    fn is_crowded(&self) -> bool {
        false
    }

    /// Waits a short time for the final counts of processes that have exited.
    fn wait_for_final_counts(&mut self) {}

    /// Returns the counts that are known only for several threads together and are not part of totals, by CPU and set. Each
    /// entry has the enabled time, the running time, and the values by event.
    fn rest(&mut self) -> Vec<((CpuId, u32), Vec<u64>)> {
        Vec::new()
    }

    /// True if only user mode is counted.
    fn user_only(&self) -> bool {
        false
    }
}
