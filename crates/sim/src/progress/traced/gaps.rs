//! Sampled simulation: progress of threads in steps that are left out.

use super::account::StepEnergy;
use super::sampling::{DetailSampling, Situation};
use super::{NOBODY, Traced};

impl Traced {
    /// Switches to sampled simulation, in which only samples of the accesses pass through the caches.
    #[must_use]
    pub fn sampled(mut self) -> Self {
        let last = self.cpus.iter().filter_map(|cpu| {
            let id = cpu.chain[..cpu.levels].last()?;
            Some(self.topology.caches[*id as usize].lines)
        });
        self.sampling = Some(DetailSampling::new(last.fold(0.0, f64::max)));
        self
    }

    /// Returns the situation of a thread: its phase, the class of its CPU, and its co-runners.
    pub(super) fn situation(&self, row: usize, id: u32) -> Situation {
        let thread = &self.threads[id as usize];
        let cpu = &self.cpus[row];
        let near = self.on_cpu.iter().enumerate().filter(|(other, on)| {
            *other != row && **on != NOBODY && self.cpus[*other].pool == cpu.pool
        });
        let mut beside: Vec<u32> = near
            .map(|(_, on)| self.threads[*on as usize].program)
            .collect();
        beside.sort_unstable();
        Situation {
            program: thread.program,
            behaviour: self.programs[thread.program as usize].behaviour(thread.position),
            class: cpu.class + self.siblings(row) - 1,
            beside,
        }
    }

    /// Lets all running threads continue at known rates for a step of `ns` nanoseconds.
    pub(super) fn leave_out(
        &mut self,
        ns: u64,
        working: &[(usize, u32)],
        situations: Vec<Situation>,
        sampling: &mut DetailSampling,
    ) {
        for ((row, id), situation) in working.iter().zip(situations) {
            let thread = &mut self.threads[*id as usize];
            let known = sampling.known(&situation);
            let (counted, cost_ns) = thread.pass(&self.cpus[*row], ns as f64, &known);
            self.spent.add(&StepEnergy {
                core_nj: counted.energy_nj,
                ..StepEnergy::default()
            });
            sampling.left_out(thread.owner, situation, &counted, cost_ns);
            if thread.left <= 0.0 {
                self.finished.push(*id);
            }
        }
        sampling.pass(ns as f64, false);
    }

    /// Returns the expected evictions in the time left out: lines that a program lost to others, and lines that others lost to
    /// it.
    pub(super) fn expected_evictions(&self, owner: u16) -> (f64, f64) {
        let Some(sampling) = &self.sampling else {
            return (0.0, 0.0);
        };
        let expected = sampling.expected(&self.machine.evicted(self.instances));
        let own = usize::from(owner) - usize::from(owner > 0);
        let at = |victim: usize, by: usize| expected.get(victim).and_then(|row| row.get(by));
        let others = (0..expected.len()).filter(|other| *other != own);
        others.fold((0.0, 0.0), |(suffered, caused), other| {
            let lost = at(own, other);
            let taken = at(other, own);
            (
                suffered + lost.unwrap_or(&0.0),
                caused + taken.unwrap_or(&0.0),
            )
        })
    }
}
