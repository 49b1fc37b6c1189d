//! What a counting session needs of the world: time, rings, totals, turns. The kernel's is here; tests have one of their own.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use countersteer_core::counters::Ledger;
use countersteer_core::units::{CpuId, Nanos};
use nix::poll::PollFlags;

use super::CounterError;
use super::attention::{Attention, Wake};
use super::notes::Notes;
use super::open::{GroupInfo, Opened, Says};
use super::{linger, sys};

pub(super) trait Backend {
    /// The time, by the clock of the records.
    fn now(&self) -> Nanos;

    /// Waits until then, or until rings fill up, the target ends or a signal comes.
    fn wait(&mut self, until: Nanos) -> Result<Wake, CounterError>;

    /// Takes what rings hold. Counts of threads that just go on may be put down right away.
    fn drain(&mut self, notes: &mut Notes, ledger: &mut Ledger);

    fn groups(&self) -> &[GroupInfo];

    /// The group of an event's identifier, and what it means when the event tells.
    fn group_of(&self, id: u64) -> Option<(usize, Says)>;

    /// Reads a group's total: enabled and running time; values by member.
    fn total(&mut self, group: usize, values: &mut Vec<u64>) -> Result<(u64, u64), CounterError>;

    /// Switches a set's groups on or off.
    fn switch(&mut self, set: u32, on: bool) -> Result<(), CounterError>;

    /// Whether what was drained is all that has happened: nothing earlier is still on its way.
    fn is_prompt(&self) -> bool {
        false
    }

    /// Waits a little for the last counts of processes that have ended.
    fn hear_out(&mut self) {}

    /// What of a CPU and a set is known only of several threads together, and was counted apart from totals: enabled and running
    /// time, then values by event.
    fn rest(&mut self) -> Vec<((CpuId, u32), Vec<u64>)> {
        Vec::new()
    }

    /// Whether only user mode is counted.
    fn user_only(&self) -> bool {
        false
    }

    /// Where a byte ends the session.
    fn stopper(&self) -> Result<UnixStream, CounterError>;

    /// Counting is over. What takes long to close is somebody else's from now on.
    fn retire(&mut self) {}
}

/// How often rings are looked at while threads end faster than that. Whoever polls them is woken at each end, by every counter of
/// the thread, though there is nothing to read yet; a ring holds what CPUs can write in twice that time and more.
const LOOK_NS: u64 = 4_000_000;

pub(super) struct Kernel {
    pub(super) opened: Opened,
    attention: Attention,
    /// Rings whose threads have all ended would wake for ever.
    silent: Vec<bool>,
    /// When rings were drained last.
    drained: u64,
    /// Threads ended faster then than rings need to be looked at.
    hectic: bool,
    bytes: Vec<u8>,
}

impl Kernel {
    /// Counters that are open, for processes whose end is awaited.
    pub(super) fn new(opened: Opened, processes: Vec<OwnedFd>) -> Result<Self, CounterError> {
        let silent = vec![false; opened.rings.len()];
        let attention = Attention::new(processes)?;
        let drained = sys::now();
        let hectic = false;
        Ok(Self {
            opened,
            attention,
            silent,
            drained,
            hectic,
            bytes: Vec::new(),
        })
    }

    /// Makes waiting end early, once, when something can be read here.
    pub(super) fn wake_on(&mut self, file: OwnedFd) {
        self.attention.await_also(file);
    }

    /// Waits for what another one waited for.
    pub(super) fn take_over(&mut self, from: &mut Self) {
        self.attention.take_over(&mut from.attention);
    }
}

impl Backend for Kernel {
    fn now(&self) -> Nanos {
        Nanos(sys::now())
    }

    fn wait(&mut self, until: Nanos) -> Result<Wake, CounterError> {
        let most = if self.hectic {
            LOOK_NS
        } else {
            3_600_000_000_000
        };
        let left = Nanos(until.since(self.now()).0.min(most));
        self.silent.resize(self.opened.rings.len(), false);
        let rings = self
            .opened
            .rings
            .iter()
            .zip(&self.silent)
            .filter(|(_, silent)| !**silent && !self.hectic);
        let rings = rings.map(|((_, group), _)| self.opened.leaders[*group].as_fd());
        let rings: Vec<_> = rings.collect();
        let (wake, came) = self.attention.wait(left, &rings)?;
        for (silent, came) in self.silent.iter_mut().filter(|s| !**s).zip(came) {
            *silent = came.contains(PollFlags::POLLHUP);
        }
        Ok(wake)
    }

    fn drain(&mut self, notes: &mut Notes, _: &mut Ledger) {
        let now = sys::now();
        let ended = notes.ended;
        notes.final_counts = self.opened.final_counts_each;
        for (ring, _) in self
            .opened
            .rings
            .iter_mut()
            .chain(&mut self.opened.final_counts)
        {
            ring.drain(&mut self.bytes, |record| notes.record(record));
        }
        self.hectic = (notes.ended - ended) * LOOK_NS > now - self.drained;
        self.drained = now;
    }

    fn groups(&self) -> &[GroupInfo] {
        &self.opened.infos
    }

    fn group_of(&self, id: u64) -> Option<(usize, Says)> {
        self.opened.ids.get(&id).copied()
    }

    fn total(&mut self, group: usize, values: &mut Vec<u64>) -> Result<(u64, u64), CounterError> {
        self.opened
            .total(group, &mut self.bytes, values)
            .map_err(CounterError::system("reading counters"))
    }

    fn switch(&mut self, set: u32, on: bool) -> Result<(), CounterError> {
        self.opened.switch(set, on)
    }

    fn user_only(&self) -> bool {
        self.opened.user_only
    }

    fn stopper(&self) -> Result<UnixStream, CounterError> {
        self.attention.stopper()
    }

    fn retire(&mut self) {
        if let Some(counter) = self.opened.slow() {
            linger::keep(counter, linger::LINGERING);
        }
    }
}
