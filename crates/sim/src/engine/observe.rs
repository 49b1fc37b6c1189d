//! The simulation as an [`Engine`]: observations for a policy, and application of its placements.

use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::{
    Applied, Engine, Forecast, Observation, ProgramInfo, ThreadInfo, Watch,
};
use countersteer_model::metric::{MetricBank, groups_on};
use countersteer_model::placement::{Placement, Target};
use countersteer_model::topology::Topology;
use countersteer_model::units::{Nanos, ProgramId, ThreadId};

use super::{SimError, Simulation};

impl Engine for Simulation {
    type Error = SimError;

    fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    fn observe(&mut self, watch: &Watch<'_>, until: Nanos) -> Result<Observation, SimError> {
        if self.watched.changes(watch) {
            self.pmu.count(&self.topology, |core_type| {
                groups_on(&self.topology, core_type, watch.metrics)
            });
        }
        self.reports_switches = watch.switches;
        self.observed = [self.now, self.observed[0]];
        self.admit_by(watch.values);
        self.run(until, watch.events)?;
        let finished = self.finished();
        let mut threads = Vec::with_capacity(self.threads.len());
        for row in 0..self.threads.len() {
            let id = ThreadId::from_index(row);
            if !self.threads[row].alive {
                continue;
            }
            self.sample(id);
            let thread = &self.threads[row];
            if thread.running_since.is_some() && self.config.sample_cost > Nanos::ZERO {
                self.progress.charge(id, self.config.sample_cost, self.now);
            }
            let program = &self.programs[thread.program];
            threads.push(ThreadInfo {
                id,
                program: ProgramId::from_index(thread.program),
                name: Arc::clone(&program.name),
                cpu: thread.cpu,
                runnable: thread.runnable,
                nice: program.nice,
                allowed: Arc::clone(&thread.confined),
                hint: None,
            });
        }
        if finished {
            (0..self.threads.len()).for_each(|row| self.close_span(row));
        }
        if self.now >= until && until > Nanos::ZERO {
            self.pmu.turn();
        }
        Ok(Observation {
            at: self.now,
            programs: self.programs_of(&threads),
            threads,
            events: std::mem::take(&mut self.events),
            samples: self.pmu.take_samples(),
            spans: std::mem::take(&mut self.spans),
            finished,
            ..Observation::default()
        })
    }

    fn apply(&mut self, placement: &Placement) -> Result<Applied, SimError> {
        let mut applied = Applied::default();
        for entry in &placement.threads {
            self.place(entry.thread, &entry.target, &mut applied);
            let unsupported = |c| !self.clamp(entry.thread, c);
            applied.unsupported += u32::from(entry.clamp.is_some_and(unsupported));
            if let Some(weight) = entry.weight {
                self.linux.set_weight(entry.thread, weight, self.now);
            }
        }
        if let Some(classes) = &placement.caches {
            applied.unsupported += self.divide(classes);
        }
        if let Some(limits) = &placement.clocks {
            applied.unsupported += self.limit(limits);
        }
        if let Some(table) = &placement.admission {
            self.admission = Some(table.clone());
        }
        self.forward_switches();
        self.govern(true);
        Ok(applied)
    }

    fn forecast(&mut self) -> Option<&mut dyn Forecast> {
        Some(self)
    }
}

impl Simulation {
    fn programs_of(&self, threads: &[ThreadInfo]) -> Vec<ProgramInfo> {
        let mut alive = vec![false; self.infos.len()];
        for thread in threads {
            alive[thread.program.index()] = true;
        }
        let infos = self.infos.iter().zip(alive);
        let infos = infos.filter(|(_, alive)| *alive);
        infos.map(|(info, _)| info.clone()).collect()
    }

    /// Returns the CPUs to which the admission table assigns a thread; `None` without a table or an entry.
    pub(super) fn admission_target(&self, id: ThreadId) -> Option<Arc<CpuSet>> {
        let group = (*self.admission_groups.get(id.index())?)?;
        Some(Arc::clone(&self.topology.group(group).cpus))
    }

    /// Selects for each thread the group in which it starts if it forks, or wakes after a long sleep, before the next
    /// observation.
    pub(super) fn admit_by(&mut self, values: Option<&MetricBank>) {
        let Some(table) = &self.admission else {
            return;
        };
        let column = values.and_then(|bank| Some((bank, bank.column(&table.metric)?)));
        let value = |id| column.and_then(|(bank, column)| bank.at(id, column));
        let ids = (0..self.threads.len()).map(ThreadId::from_index);
        self.admission_groups = ids.map(|id| table.choose(value(id))).collect();
    }

    /// Sets a thread's affinity mask; returns true if it changed.
    pub(super) fn confine(&mut self, id: ThreadId, cpus: &Arc<CpuSet>) -> bool {
        let thread = &mut self.threads[id.index()];
        if *thread.confined == **cpus {
            return false;
        }
        thread.confined = Arc::clone(cpus);
        self.linux.set_affinity(id, cpus, self.now);
        true
    }

    /// CPUs of the group that the admission table selects for a thread, as far as the thread may use them.
    pub(super) fn entry_target(&self, id: ThreadId) -> Option<Arc<CpuSet>> {
        let allowed = &self.threads[id.index()].allowed;
        let cpus = self.admission_target(id)?;
        cpus.intersects(allowed).then(|| within(cpus, allowed))
    }

    pub(super) fn place(&mut self, id: ThreadId, target: &Target, applied: &mut Applied) {
        let Some(thread) = self.threads.get(id.index()).filter(|t| t.alive) else {
            applied.gone += 1;
            return;
        };
        let wanted = match target {
            Target::Anywhere => Arc::clone(&thread.allowed),
            other => other.cpus(&self.topology),
        };
        if !wanted.intersects(&thread.allowed) || !wanted.intersects(&self.control.online) {
            applied.refused += 1;
        } else if self.confine(id, &within(wanted, &thread.allowed)) {
            applied.changed += 1;
        }
    }
}

/// Part of a set of CPUs that is allowed.
fn within(cpus: Arc<CpuSet>, allowed: &CpuSet) -> Arc<CpuSet> {
    if cpus.is_subset(allowed) {
        cpus
    } else {
        Arc::new(cpus.intersection(allowed))
    }
}
