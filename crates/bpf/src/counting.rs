//! Counters of the CPUs, which the kernel's side reads whenever a thread comes or goes.
//!
//! Input: sets of events with their plan. Output: which slots hold which event, and the sets' turns.

use std::ops::Range;
use std::sync::Arc;

use countersteer_counters::{CounterError, CpuCounters, Resolved};
use countersteer_host::placer::Counters;
use countersteer_model::counters::Plan;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::sample::{Event, EventSet};
use countersteer_model::units::CpuId;

use crate::ScxError;
use crate::generated::shared;

/// Sets that count in turns.
pub(crate) struct Counting {
    counters: CpuCounters,
    plan: Plan,
    /// By set and place, the slot.
    slots: Vec<Vec<usize>>,
    /// The set whose turn it is.
    set: usize,
    /// What the scheduler calls the first set.
    first: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Which it is in its plan.
    pub set: u32,
    /// By slot, what it counts.
    pub counted: Arc<EventSet>,
    /// By core type, slots that are counted there: bits.
    pub present: [u32; shared::MAX_TYPES as usize],
}

impl Layout {
    /// Of a set that nobody counts.
    pub fn none() -> Self {
        Self {
            set: 0,
            counted: Arc::new(EventSet::new([], 1)),
            present: [0; shared::MAX_TYPES as usize],
        }
    }

    /// By slot, what is counted on a core type.
    pub fn on(&self, core_type: usize) -> impl Iterator<Item = (usize, Event)> {
        let present = self.present[core_type];
        let event = move |(slot, event): (usize, &Option<Event>)| {
            event
                .filter(|_| present >> slot & 1 == 1)
                .map(|e| (slot, e))
        };
        self.counted.events().iter().enumerate().filter_map(event)
    }
}

/// A counter's place in the scheduler's table.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub cpu: CpuId,
    pub set: u32,
    pub slot: u32,
}

impl Counting {
    /// Opens all sets on all CPUs, by the kernel's numbers, and starts the first, which the scheduler calls so. What samples have no
    /// room for is left out: how long threads run the scheduler knows itself.
    pub fn open(
        (mut sets, mut plan): Counters,
        cpus: &CpuSet,
        first: u32,
    ) -> Result<Self, ScxError> {
        sets.iter_mut()
            .for_each(|set| set.retain(|e| e.planned.event.is_some()));
        plan.sets
            .iter_mut()
            .for_each(|set| set.events.retain(|e| e.event.is_some()));
        let have = sets.iter().map(Vec::len).max().unwrap_or(0);
        let most = shared::MAX_EVENTS as usize;
        if have > most {
            return Err(ScxError::TooBig {
                what: "events of a set",
                have,
                most,
            });
        }
        let counters = CpuCounters::open(&sets, cpus)?;
        let mut counting = Self {
            counters,
            plan,
            slots: sets.iter().map(|s| slots(s)).collect(),
            set: 0,
            first,
        };
        counting.counters.switch(0, true)?;
        Ok(counting)
    }

    /// What the scheduler calls the sets.
    pub const fn sets(&self) -> Range<u32> {
        self.first..self.first + self.slots.len() as u32
    }

    /// What the sets hold, on CPUs of these core types.
    pub fn layout(&self, core_types: &[u8]) -> Vec<Layout> {
        let sets = self.slots.len() as u32;
        let set = |(nth, slots): (usize, &Vec<usize>)| {
            let mut events = vec![None; slots.len()];
            for (place, slot) in slots.iter().enumerate() {
                events[*slot] = self.plan.sets[nth].events[place].event;
            }
            Layout {
                set: nth as u32,
                counted: Arc::new(EventSet::new(events, sets)),
                present: [0; shared::MAX_TYPES as usize],
            }
        };
        let mut layout: Vec<Layout> = self.slots.iter().enumerate().map(set).collect();
        for (place, _) in self.files() {
            let core_type = usize::from(core_types[place.cpu.index()]);
            layout[(place.set - self.first) as usize].present[core_type] |= 1 << place.slot;
        }
        layout
    }

    /// Every counter that is open, with its place.
    pub fn files(&self) -> impl Iterator<Item = (Slot, &countersteer_counters::CpuEvent)> {
        self.counters.events().iter().map(|event| {
            let slot = self.slots[event.set as usize][event.place as usize] as u32;
            (
                Slot {
                    cpu: event.cpu,
                    set: self.first + event.set,
                    slot,
                },
                event,
            )
        })
    }

    /// Opens counters anew of CPUs that are back; whether there were any.
    pub fn renew(&mut self) -> Result<bool, CounterError> {
        self.counters.renew()
    }

    /// Ends the turn of the set that counts; the next one, if it is another.
    pub fn turn(&mut self) -> Result<Option<u32>, CounterError> {
        let next = self.plan.after(self.set);
        if next == self.set {
            return Ok(None);
        }
        self.counters.switch(self.set as u32, false)?;
        self.counters.switch(next as u32, true)?;
        self.set = next;
        Ok(Some(self.first + next as u32))
    }
}

/// Slots by place: what cores count comes before what the kernel counts itself, since the first one's times are everybody's.
fn slots(set: &[Resolved]) -> Vec<usize> {
    let software = |e: &Resolved| e.encodings.iter().all(|e| e.software);
    let mut order: Vec<usize> = (0..set.len()).collect();
    order.sort_by_key(|place| software(&set[*place]));
    let mut slots = vec![0; set.len()];
    order
        .iter()
        .enumerate()
        .for_each(|(slot, place)| slots[*place] = slot);
    slots
}
