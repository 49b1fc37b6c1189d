//! Control groups of programs, and CPUs that go offline and online.
//!
//! Input: the plan. Output: requests to the scheduler.

use std::sync::Arc;

use countersteer_model::control::ControlGroup;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::topology::Topology;

use super::{PlannedHotplug, Simulation};

/// Groups and CPUs of a simulation.
#[derive(Clone, Debug)]
pub(super) struct ControlledState {
    events: Vec<PlannedHotplug>,
    pub online: CpuSet,
    /// Groups that the scheduler knows, with their indices.
    groups: Vec<(Arc<ControlGroup>, u32)>,
    /// Request that the scheduler does not support.
    pub refused: Option<String>,
}

impl ControlledState {
    pub fn new(topology: &Topology, events: &[PlannedHotplug]) -> Self {
        Self {
            events: events.to_vec(),
            online: (*topology.groups[0].cpus).clone(),
            groups: Vec::new(),
            refused: None,
        }
    }
}

impl Simulation {
    /// Puts a program that starts into its control group.
    pub(super) fn join_group(&mut self, row: usize) {
        let Some(group) = self.programs[row].control.group.clone() else {
            return;
        };
        let known = self
            .control
            .groups
            .iter()
            .find(|(g, _)| g.name == group.name);
        let index = known.map(|(_, index)| *index).or_else(|| {
            // The workload was checked when it was read.
            let limit = group.bandwidth().ok().flatten();
            let index = self.linux.add_group(group.weight, limit)?;
            self.control.groups.push((Arc::clone(&group), index));
            Some(index)
        });
        match index {
            Some(index) => self.linux.set_group(row as u32, index),
            None => {
                self.control.refused = Some(
                    "it has no control groups: omit `cgroup` from the programs of the workload"
                        .into(),
                );
            }
        }
    }

    /// Takes CPUs offline or online.
    pub(super) fn plug(&mut self, event: usize) {
        let event = self.control.events[event].clone();
        for cpu in event.cpus.iter() {
            if !self
                .linux
                .set_online(&self.topology, cpu, event.online, self.now)
            {
                self.control.refused = Some(
                    "it does not support CPUs that go offline: omit `[[hotplug]]` from the workload"
                        .into(),
                );
            }
            if event.online {
                self.control.online.insert(cpu);
            } else {
                self.control.online.remove(cpu);
            }
        }
    }
}
