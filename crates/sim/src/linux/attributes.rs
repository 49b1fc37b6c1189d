//! Changes of what a thread asks of the scheduler: affinity mask, weight and time slice.
//!
//! Models `__set_cpus_allowed_ptr`, `set_user_nice` and `sched_setattr` (kernel/sched/syscalls.c and core.c).

use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::{Nanos, ThreadId};
use rand::RngExt;

use super::entity::TaskState;
use super::schedule::Join;
use super::{Linux, weights};

impl Linux {
    /// Changes a thread's affinity mask. A thread on a CPU that is now forbidden is moved at once. An empty mask allows all CPUs.
    pub fn set_affinity(&mut self, thread: ThreadId, allowed: &CpuSet, now: Nanos) {
        let now = self.begin(now);
        self.assign_mask(thread.0, allowed);
        self.affinity_generation += 1;
        let cpu = self.threads[thread.index()].cpu as usize;
        let state = self.threads[thread.index()].state;
        if !self.threads[thread.index()].allowed.has(cpu) {
            match state {
                TaskState::Running | TaskState::Queued => self.force_away(thread.0, now),
                TaskState::Delayed => {
                    self.update_curr(cpu, now);
                    self.deactivate(thread.0, false, now);
                }
                TaskState::Throttled => {
                    self.unpark(thread.0);
                    let to = self.fallback(thread.0, cpu, cpu);
                    self.move_entity(thread.0, to, now);
                    if self.activate_or_park(thread.0, Join::Wake, now) {
                        self.wakeup_preempt(to, thread.0, true);
                    }
                }
                TaskState::Dead | TaskState::Sleeping => {}
            }
        }
        self.update_misfit(cpu);
        self.touch(cpu);
        self.end(now);
    }

    /// Changes a thread's nice level.
    pub fn set_nice(&mut self, thread: ThreadId, nice: i8, now: Nanos) {
        self.set_weight(thread, weights::of_nice(nice), now);
    }

    /// Changes a thread's load weight; 1,024 is the weight of nice 0.
    pub fn set_weight(&mut self, thread: ThreadId, weight: u32, now: Nanos) {
        let now = self.begin(now);
        self.set_own_weight(thread, weight.max(2), now);
        self.end(now);
    }

    /// Sets the time slice that a thread requests (`sched_attr.sched_runtime`), clamped to 0.1 to 100 ms. `None` restores the
    /// default. Only EEVDF uses it.
    pub fn set_slice(&mut self, thread: ThreadId, slice: Option<Nanos>, now: Nanos) {
        let now = self.begin(now);
        let t = thread.index();
        let custom = slice.is_some();
        if self.threads[t].on_queue() && custom != self.threads[t].custom_slice {
            let rq = &mut self.rqs[self.threads[t].cpu as usize];
            rq.custom_slices = if custom {
                rq.custom_slices + 1
            } else {
                rq.custom_slices - 1
            };
        }
        self.threads[t].custom_slice = custom;
        self.threads[t].slice =
            slice.map_or(self.base_slice, |s| s.0.clamp(100_000, 100_000_000) as i64);
        self.end(now);
    }

    pub(super) fn assign_mask(&mut self, t: u32, allowed: &CpuSet) {
        let n = self.rqs.len();
        let thread = &mut self.threads[t as usize];
        thread.allowed.assign(allowed, n);
        if thread.allowed.is_empty() {
            (0..n).for_each(|cpu| thread.allowed.set(cpu));
        }
        if self.hotplugged {
            let wanted = std::mem::take(&mut thread.allowed);
            self.restrict(t, wanted, n);
        } else {
            self.count_allowed(t);
        }
    }

    pub(super) fn count_allowed(&mut self, t: u32) {
        let thread = &mut self.threads[t as usize];
        thread.allowed_count = thread.allowed.count() as u32;
        thread.best_capacity = if self.domains.asymmetric {
            thread
                .allowed
                .iter()
                .map(|cpu| self.rqs[cpu].capacity)
                .max()
                .unwrap_or(0)
        } else {
            1024
        };
    }

    pub(super) fn random_allowed(&mut self, t: u32) -> usize {
        let allowed = &self.threads[t as usize].allowed;
        let start = self.rng.random_range(0..self.rqs.len().max(1));
        allowed.next_wrapping(start).unwrap_or(0)
    }
}
