//! CPUs that go offline and online.
//!
//! Input: a CPU and its new state. Output: new scheduling domains, and threads on other CPUs. Models `sched_cpu_deactivate`,
//! `sched_cpu_activate`, `balance_push`, `select_fallback_rq` and `update_sysctl` (kernel/sched/core.c, fair.c). The change takes
//! no time here; a real machine needs milliseconds.

use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos};

use super::domains::Domains;
use super::entity::{NONE, TaskState};
use super::mask::Mask;
use super::runqueue::{DomainState, NewIdle};
use super::{Linux, cpu_scale, node_of};

impl Linux {
    /// Takes a CPU offline, or brings it online. The last CPU stays online. `topology` is the machine's.
    pub fn set_online(&mut self, topology: &Topology, cpu: CpuId, online: bool, now: Nanos) {
        let now = self.begin(now);
        let cpu = cpu.index();
        let last = self.offline.count() + 1 == self.rqs.len();
        if self.offline.has(cpu) != online || (!online && last) {
            return self.end(now);
        }
        self.remember_masks();
        if online {
            self.offline.clear(cpu);
            self.idle.set(cpu);
            self.rqs[cpu].idle_stamp = now;
        } else {
            self.unthrottle_all(cpu, now);
            self.offline.set(cpu);
            self.idle.clear(cpu);
        }
        self.rebuild(topology, now);
        self.allow_online(topology.cpus.len());
        if !online {
            self.push_away(cpu, now);
        }
        self.affinity_generation += 1;
        for cpu in 0..self.rqs.len() {
            self.update_misfit(cpu);
            self.touch(cpu);
        }
        self.end(now);
    }

    /// Keeps the masks that threads asked for, from the first event on.
    fn remember_masks(&mut self) {
        for thread in self.threads.iter_mut().filter(|t| t.wanted.is_none()) {
            thread.wanted = Some(thread.allowed.clone());
        }
        self.hotplugged = true;
    }

    /// Restricts the masks of all threads to online CPUs.
    fn allow_online(&mut self, cpus: usize) {
        for t in 0..self.threads.len() {
            let wanted = self.threads[t].wanted.take();
            if let Some(wanted) = wanted.filter(|w| !w.is_empty()) {
                self.restrict(t as u32, wanted, cpus);
            }
        }
    }

    /// Sets the allowed CPUs of a thread to the online ones of a mask. If there are none, the mask is given up for good, and all
    /// CPUs are allowed (`cpuset_cpus_allowed_fallback`, kernel/cgroup/cpuset.c).
    pub(super) fn restrict(&mut self, t: u32, mut wanted: Mask, cpus: usize) {
        let mut allowed = Mask::none(cpus);
        let online = |cpu: &usize| !self.offline.has(*cpu);
        wanted
            .iter()
            .filter(online)
            .for_each(|cpu| allowed.set(cpu));
        if allowed.is_empty() {
            (0..cpus).for_each(|cpu| wanted.set(cpu));
            (0..cpus).filter(online).for_each(|cpu| allowed.set(cpu));
        }
        self.threads[t as usize].allowed = allowed;
        self.threads[t as usize].wanted = Some(wanted);
        self.count_allowed(t);
    }

    /// Builds the scheduling domains of the online CPUs (`partition_sched_domains`), and everything that refers to them.
    fn rebuild(&mut self, topology: &Topology, now: u64) {
        self.domains = Domains::of(topology, &self.offline);
        let n = self.rqs.len();
        for cpu in 0..n {
            let rq = &self.rqs[cpu];
            let (runnable, idle) = (rq.runnable, rq.idle);
            self.domains.count_runnable(cpu, 0, runnable);
            if !idle {
                self.domains.count_idle(cpu, false);
            }
            let ratio = self.config.newidle_ratio;
            let state = |node: u32| DomainState {
                node,
                last: now as i64,
                interval_ms: self.domains.node(node).weight(),
                failed: 0,
                quiet_generation: 0,
                newidle: NewIdle::new(ratio),
            };
            self.rqs[cpu].domains = self.domains.path(cpu).map(state).collect();
        }
        self.node_of = (0..n).map(|cpu| node_of(&self.domains, cpu)).collect();
        self.llcs = (0..n)
            .filter(|cpu| !self.offline.has(*cpu))
            .map(|cpu| self.domains.llc[cpu])
            .collect();
        self.llcs.sort_unstable();
        self.llcs.dedup();
        self.rqs.iter_mut().for_each(|rq| rq.misfit_load = 0.0);
        self.misfits = 0;
        self.scan_depths.fill((0, 0));
        self.regather();
        // `update_sysctl`: the default slice follows the number of online CPUs.
        self.cpu_scale = cpu_scale(n - self.offline.count());
        if self.config.base_slice_ns.is_none() {
            self.base_slice = self.unscaled_slice * self.cpu_scale;
        }
    }

    /// Moves all threads away from a CPU, each to the first allowed CPU of the memory node (`__balance_push_cpu_stop`).
    fn push_away(&mut self, cpu: usize, now: u64) {
        self.update_curr(cpu, now);
        let queued: Vec<u32> = self.queue_of(cpu).collect();
        let node = self.node_of_any(cpu);
        for t in queued {
            if self.threads[t as usize].state == TaskState::Delayed {
                self.deactivate(t, false, now);
            } else {
                let to = self.fallback(t, node, cpu);
                self.transfer(t, to, now);
            }
        }
        debug_assert_eq!(self.rqs[cpu].curr, NONE);
    }

    /// Returns an online CPU of the same memory node; `cpu` if there is none.
    fn node_of_any(&self, cpu: usize) -> usize {
        let memory = self.memory_of[cpu];
        (0..self.rqs.len())
            .find(|c| self.memory_of[*c] == memory && !self.offline.has(*c))
            .unwrap_or(cpu)
    }
}
