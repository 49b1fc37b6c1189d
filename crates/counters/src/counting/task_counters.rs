//! Interface of counting threads. Implementations are per-thread counters ([`super::per_thread`]), BPF programs
//! ([`super::bpf`]), and scripts in tests.
//!
//! Input: threads, event sets. Output: forks, execs and exits of threads, put into an [`EventSorter`], and counts, put there or
//! into a [`Ledger`].
use countersteer_model::counters::Ledger;
use countersteer_model::units::{CpuId, Nanos};
use countersteer_sysfs::poll::{Poller, Wake};

use super::event_sorter::EventSorter;
use crate::CounterError;
use crate::perf::open::{GroupInfo, Opening, Says, Whom};

pub(super) trait TaskCounters {
    /// Time by the clock of the records.
    fn now(&self) -> Nanos;

    /// Counts these threads from now on, given as process and TID, and their descendants; skips threads that have ended.
    ///
    /// # Errors
    /// Fails if they may not be counted, or there is no room for them.
    fn attach(&mut self, opening: &Opening<'_>, threads: &[(u32, u32)])
    -> Result<(), CounterError>;

    /// Stops counting these trees, all threads of which have exited.
    fn detach(&mut self, _trees: &[u32]) {}

    /// Opens the counters of a CPU again that was offline and is back, instead of those it had.
    ///
    /// # Errors
    /// Fails if they may not be opened any more, or not yet.
    fn renew(
        &mut self,
        _opening: &Opening<'_>,
        _whom: Whom<'_>,
        _cpu: CpuId,
    ) -> Result<(), CounterError> {
        Ok(())
    }

    /// Poller, for other descriptors to wait for.
    fn poller(&mut self) -> &mut Poller;

    /// Waits until that time, or until rings fill up, the target ends or a signal comes.
    ///
    /// # Errors
    /// Fails if the kernel refuses to wait.
    fn wait(&mut self, until: Nanos) -> Result<Wake, CounterError>;

    /// Processes the events up to now. Counts of threads without other events may go into the ledger at once.
    fn poll(&mut self, sorter: &mut EventSorter, ledger: &mut Ledger);

    fn groups(&self) -> &[GroupInfo];

    /// Group of an event's identifier, and the meaning of a sample of that event.
    fn group_of(&self, id: u64) -> Option<(usize, Says)>;

    /// Reads a group's total: returns enabled and running time; fills `values` by member.
    ///
    /// # Errors
    /// Fails if the counter cannot be read any more.
    fn read(&mut self, group: usize, values: &mut Vec<u64>) -> Result<(u64, u64), CounterError>;

    /// Switches an event set on or off.
    ///
    /// # Errors
    /// Fails if counters cannot be switched any more.
    fn select(&mut self, set: u32, on: bool) -> Result<(), CounterError>;

    /// True if a poll returns all past events: nothing earlier is still on its way.
    fn is_prompt(&self) -> bool {
        false
    }

    /// True if forks, execs and exits are reported while no set is switched on.
    fn follows_while_off(&self) -> bool {
        false
    }

    /// True if [`TaskCounters::poll`] should be called soon, or there will be no room for new threads.
    fn is_crowded(&self) -> bool {
        false
    }

    /// Waits a little for the final counts of processes that have exited.
    fn wait_for_final_counts(&mut self) {}

    /// Counts of a CPU and a set that are known only for several threads together, and are not part of totals: enabled and
    /// running time, then values by event.
    fn rest(&mut self) -> Vec<((CpuId, u32), Vec<u64>)> {
        Vec::new()
    }

    /// True if only user mode is counted.
    fn user_only(&self) -> bool {
        false
    }
}
