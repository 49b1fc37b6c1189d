//! The interface of counting threads. It is implemented by counters of the threads' own ([`super::per_thread`]), by BPF programs
//! ([`super::bpf`]), and by scripts in tests.
//!
//! Input: threads, event sets. Output: forks, execs and exits of threads, put into an [`EventSorter`], and counts, put there or into a
//! [`Ledger`].
use countersteer_model::counters::Ledger;
use countersteer_model::units::{CpuId, Nanos};
use countersteer_sysfs::poll::{Poller, Wake};

use super::event_sorter::EventSorter;
use crate::CounterError;
use crate::perf::open::{GroupInfo, Opening, Says, Whom};

pub(super) trait TaskCounters {
    /// The time, by the clock of the records.
    fn now(&self) -> Nanos;

    /// Counts these threads from now on, by process and number, and their descendants; those that have ended are passed over.
    ///
    /// # Errors
    /// They may not be counted, or there is no room for them.
    fn attach(&mut self, opening: &Opening<'_>, threads: &[(u32, u32)])
    -> Result<(), CounterError>;

    /// Counts trees of threads no longer, all threads of which have exited.
    fn detach(&mut self, _trees: &[u32]) {}

    /// Opens counters of a CPU anew that was offline and is back, in the place of those it had.
    ///
    /// # Errors
    /// They may not be opened any more, or not yet.
    fn renew(
        &mut self,
        _opening: &Opening<'_>,
        _whom: Whom<'_>,
        _cpu: CpuId,
    ) -> Result<(), CounterError> {
        Ok(())
    }

    /// What else is waited for.
    fn poller(&mut self) -> &mut Poller;

    /// Waits until then, or until rings fill up, the target ends or a signal comes.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    fn wait(&mut self, until: Nanos) -> Result<Wake, CounterError>;

    /// Takes in what has happened by now. Counts of threads of which nothing else is new may go into the ledger right away.
    fn poll(&mut self, sorter: &mut EventSorter, ledger: &mut Ledger);

    fn groups(&self) -> &[GroupInfo];

    /// The group of an event's identifier, and what a sample of that event means.
    fn group_of(&self, id: u64) -> Option<(usize, Says)>;

    /// Reads a group's total: enabled and running time; values by member.
    ///
    /// # Errors
    /// The counter cannot be read any more.
    fn read(&mut self, group: usize, values: &mut Vec<u64>) -> Result<(u64, u64), CounterError>;

    /// Switches an event set on or off.
    ///
    /// # Errors
    /// Counters cannot be switched any more.
    fn select(&mut self, set: u32, on: bool) -> Result<(), CounterError>;

    /// Whether what was polled is all that has happened: nothing earlier is still on its way.
    fn is_prompt(&self) -> bool {
        false
    }

    /// Whether forks, execs and exits are reported while no set is switched on.
    fn follows_while_off(&self) -> bool {
        false
    }

    /// Whether [`TaskCounters::poll`] had better be called soon, or there will be no room for threads to come.
    fn is_crowded(&self) -> bool {
        false
    }

    /// Waits a little for the final counts of processes that have exited.
    fn wait_for_final_counts(&mut self) {}

    /// What of a CPU and a set is known only of several threads together, and was counted apart from totals: enabled and running
    /// time, then values by event.
    fn rest(&mut self) -> Vec<((CpuId, u32), Vec<u64>)> {
        Vec::new()
    }

    /// Whether only user mode is counted.
    fn user_only(&self) -> bool {
        false
    }
}
