//! Counters of whole CPUs, which are opened here and read by BPF programs.
//!
//! Input: event sets. Output: open events, each with its CPU, its set and its index in the set. Only one set counts at a time.
//! An event that a CPU cannot count is left out on that CPU.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::CpuId;

use super::hotplug::HotplugWatch;
use super::limits;
use super::resolve::Resolved;
use super::sys::{self, Attr, EventScope};
use crate::CounterError;

/// Event that is open on a CPU.
pub struct CpuEvent {
    pub cpu: CpuId,
    pub set: u32,
    /// Index of the event in its set.
    pub place: u32,
    /// File descriptor of the event.
    file: OwnedFd,
    /// True if the event leads a group.
    leads: bool,
}

impl AsFd for CpuEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Open events of all sets on all CPUs.
#[derive(Default)]
pub struct CpuCounters {
    events: Vec<CpuEvent>,
    sets: Vec<Vec<Resolved>>,
    cpus: CpuSet,
    /// Index of the set that counts; `None` if none does.
    on: Option<u32>,
    /// Detector of CPUs that come back online.
    returns: Option<HotplugWatch>,
}

impl CpuCounters {
    /// Opens every event on every CPU that can count it. All events are switched off.
    ///
    /// # Errors
    /// Fails if counting is not permitted, or with EMFILE.
    pub fn open(sets: &[Vec<Resolved>], cpus: &CpuSet) -> Result<Self, CounterError> {
        limits::make_room((sets.iter().map(Vec::len).sum::<usize>() * cpus.len()) as u64)?;
        let mut counters = Self {
            sets: sets.to_vec(),
            cpus: cpus.clone(),
            returns: Some(HotplugWatch::new(Path::new("/"))),
            ..Self::default()
        };
        for cpu in cpus.iter() {
            counters.open_cpu(cpu)?;
        }
        Ok(counters)
    }

    fn open_cpu(&mut self, cpu: CpuId) -> Result<(), CounterError> {
        let sets = std::mem::take(&mut self.sets);
        let opened = (0..)
            .zip(&sets)
            .try_for_each(|(set, events)| self.open_set(cpu, set, events));
        self.sets = sets;
        opened
    }

    /// Reopens the counters of CPUs that were offline and are back online. Returns true if there were any; the new counters
    /// then have to be passed to the BPF programs.
    ///
    /// # Errors
    /// Fails if counting is not permitted any more, or with EMFILE.
    pub fn renew(&mut self) -> Result<bool, CounterError> {
        let back = self
            .returns
            .as_mut()
            .map(HotplugWatch::look)
            .unwrap_or_default();
        let back = back.intersection(&self.cpus);
        if back.is_empty() {
            return Ok(false);
        }
        self.events.retain(|event| !back.contains(event.cpu));
        let kept = self.events.len();
        for cpu in back.iter() {
            match self.open_cpu(cpu) {
                Err(error) if error.is_of_cpu_offline() => {
                    self.events.retain(|event| event.cpu != cpu);
                    self.returns.iter_mut().for_each(|r| r.is_not_back(cpu));
                }
                opened => opened?,
            }
        }
        if let Some(on) = self.on {
            switch(&self.events[kept..], on, true)?;
        }
        Ok(true)
    }

    /// Opens a set on a CPU, with one group per PMU, so that either all events of a group count or none.
    fn open_set(&mut self, cpu: CpuId, set: u32, events: &[Resolved]) -> Result<(), CounterError> {
        let mut leaders: Vec<(&str, usize)> = Vec::new();
        for (place, event) in (0..).zip(events) {
            let Some(encoding) = event.on(cpu).filter(|e| !e.system) else {
                continue;
            };
            let leader = leaders
                .iter()
                .find(|(pmu, _)| *pmu == encoding.pmu)
                .map(|(_, row)| *row);
            let attr = Attr {
                kind: encoding.kind,
                config: encoding.config,
                exclude_user: !event.space.user,
                exclude_kernel: !event.space.kernel,
                disabled: leader.is_none(),
                ..Attr::default()
            };
            match sys::open(
                &attr,
                EventScope::Cpu(cpu.0),
                leader.map(|row| &self.events[row].file),
            ) {
                Ok(file) => {
                    if leader.is_none() {
                        leaders.push((&encoding.pmu, self.events.len()));
                    }
                    self.events.push(CpuEvent {
                        cpu,
                        set,
                        place,
                        file,
                        leads: leader.is_none(),
                    });
                }
                // This CPU does not have the counter, or has no free counter left.
                Err(e)
                    if matches!(
                        e.raw_os_error(),
                        Some(libc::ENOENT | libc::EINVAL | libc::EOPNOTSUPP)
                    ) => {}
                Err(source) => {
                    let event = event.planned.name.clone();
                    let target = format!("CPU {}", cpu.0);
                    return Err(CounterError::Refused {
                        event,
                        target,
                        source,
                    });
                }
            }
        }
        Ok(())
    }

    #[must_use]
    pub fn events(&self) -> &[CpuEvent] {
        &self.events
    }

    /// Switches a set on or off on all CPUs.
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    pub fn switch(&mut self, set: u32, on: bool) -> Result<(), CounterError> {
        self.on = on.then_some(set);
        switch(&self.events, set, on)
    }
}

fn switch(events: &[CpuEvent], set: u32, on: bool) -> Result<(), CounterError> {
    for event in events.iter().filter(|e| e.set == set && e.leads) {
        sys::switch(&event.file, on).map_err(CounterError::system("switching counters"))?;
    }
    Ok(())
}
