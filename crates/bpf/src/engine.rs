//! [`ScxEngine`]: the scheduler, which observes threads and applies placements.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use countersteer_live::placer::CounterPlan;
use countersteer_live::undo::Journal;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::{Applied, Observation, Watch};
use countersteer_model::metric::MetricBank;
use countersteer_model::metric::steps::step_models;
use countersteer_model::models::FACTOR_BITS;
use countersteer_model::placement::{AdmissionTable, Placement};
use countersteer_model::units::{Nanos, ThreadId};
use countersteer_sysfs::task::affinity;

use crate::KernelEngineError;
use crate::config::ScxConfig;
use crate::counting::BpfCounting;
use crate::follow::Judging;
use crate::generated::{shared, types};
use crate::kernel::LoadedScheduler;
use crate::object::now_ns;
use crate::targets::BpfTargets;
use crate::task_table::FollowedTasks;

/// Engine inside the kernel.
pub struct ScxEngine {
    pub(super) config: ScxConfig,
    pub(super) kernel: LoadedScheduler,
    /// `None` if nothing can be counted.
    pub(super) counting: Option<BpfCounting>,
    pub(super) tasks: FollowedTasks,
    targets: BpfTargets,
    /// True if a lack of room for a target was reported.
    crowded: bool,
    /// True if run intervals are reported.
    spans: bool,
    /// Message that is still to be reported.
    pub(super) complaint: Option<KernelEngineError>,
    pub(super) wakers: Vec<OwnedFd>,
    /// Admission table, and true if user space provides the values of its metric.
    pub(super) admission: Option<(AdmissionTable, bool)>,
    pub(super) blind: Option<String>,
}

impl ScxEngine {
    /// Loads the scheduler and starts it; it follows no thread yet.
    ///
    /// # Errors
    /// Fails if the kernel refuses, or the machine is too big for the scheduler's tables.
    pub fn open(mut config: ScxConfig) -> Result<Self, KernelEngineError> {
        let topology = &config.topology;
        let all = Arc::clone(&topology.groups[0].cpus);
        let os = config.numbers.os_set(&all);
        let have = os.iter().last().map_or(0, |c| c.index() + 1);
        let fits = |what, have, most: u32| {
            let most = most as usize;
            if have <= most {
                Ok(())
            } else {
                Err(KernelEngineError::TooBig { what, have, most })
            }
        };
        fits("CPUs", have, shared::MAX_CPUS)?;
        // CPUs that come online later need queues, too.
        let possible = libbpf_rs::num_possible_cpus().unwrap_or(have);
        let nr_cpus = possible.clamp(have, shared::MAX_CPUS as usize);
        let kernel = LoadedScheduler::load(&config, nr_cpus, &os)?;
        let tasks = FollowedTasks::new(config.numbers.clone(), topology.cpus.len());
        let most = config
            .most_targets
            .unwrap_or(shared::MAX_TARGETS)
            .min(shared::MAX_TARGETS);
        let targets = BpfTargets::new(all, most as usize);
        let counters = config.counters.take();
        let mut engine = Self {
            config,
            kernel,
            counting: None,
            tasks,
            targets,
            crowded: false,
            spans: false,
            complaint: None,
            wakers: Vec::new(),
            admission: None,
            blind: None,
        };
        engine.count(counters)?;
        engine.kernel.attach()?;
        // Time begins when everything is ready.
        engine.tasks.begin(now_ns());
        Ok(engine)
    }

    /// Statistics of the scheduler itself.
    ///
    /// # Errors
    /// Fails if the scheduler does not exist any more.
    pub fn figures(&mut self) -> Result<EngineStatistics, KernelEngineError> {
        let counters = self.kernel.counters()?;
        Ok(EngineStatistics {
            lost: counters.lost,
            stolen: counters.stolen,
            followed: counters.followed,
        })
    }

    /// Speed-up factor of a thread as computed in the kernel, at the last observation; `None` if unknown.
    #[must_use]
    pub fn factor(&self, thread: ThreadId) -> Option<f64> {
        let factor_q16 = self.tasks.threads.get(&thread.0)?.factor_q16;
        (factor_q16 > 0).then_some(factor_q16 as f64 / f64::from(1u32 << FACTOR_BITS))
    }

    #[must_use]
    pub fn now(&self) -> Nanos {
        self.tasks.since(now_ns())
    }

    /// Counts these events or, if that is impossible, only the running time of threads.
    fn count(&mut self, counters: Option<CounterPlan>) -> Result<(), KernelEngineError> {
        let period = self.config.period;
        self.counting = match self.counters(counters, period) {
            Ok(counting) => Some(counting),
            Err(KernelEngineError::Counters(error)) => {
                self.blind = Some(error.to_string());
                self.counters(None, period).ok()
            }
            Err(error) => return Err(error),
        };
        Ok(())
    }

    fn counters(
        &self,
        counters: Option<CounterPlan>,
        period: Nanos,
    ) -> Result<BpfCounting, KernelEngineError> {
        let models = step_models(&self.config.topology);
        let judging = Judging::new(models, self.kernel.metrics()?);
        Ok(BpfCounting::open(
            &self.config,
            counters,
            period,
            Arc::new(judging),
        )?)
    }

    /// Counts these events from now on, with this period. If they cannot be counted the former ones stay.
    ///
    /// # Errors
    /// Fails if they cannot be opened, or are too many.
    pub fn recount(
        &mut self,
        counters: CounterPlan,
        period: Nanos,
        journal: &mut Journal,
    ) -> Result<(), KernelEngineError> {
        let next = self.counters(Some(counters), period)?;
        let Self {
            counting,
            tasks,
            config,
            ..
        } = self;
        let pids = tasks.processes();
        match counting {
            Some(counting) => counting.exchange(next, &pids, |counted| {
                tasks.count(counted, &config.topology);
            })?,
            None => *counting = Some(next),
        }
        self.kernel.forget_factors();
        self.kernel.pace(period)?;
        self.config.period = period;
        self.blind = None;
        // Processes that were forked before their parents were attached, and not reported until then.
        self.take_events(journal)?;
        let pids = self.tasks.processes();
        if let Some(counting) = &mut self.counting {
            pids.iter().try_for_each(|pid| counting.attach(*pid))?;
        }
        // The metric may be computed elsewhere from now on.
        match self.admission.as_ref().map(|(table, _)| table.clone()) {
            Some(table) => self.admit_by(&table),
            None => Ok(()),
        }
    }

    /// Reads the counts.
    fn read_counts(&mut self) -> Result<(), KernelEngineError> {
        let Self {
            counting,
            tasks,
            config,
            ..
        } = self;
        if let Some(counting) = counting {
            counting.read(|counted| tasks.count(counted, &config.topology))?;
        }
        Ok(())
    }

    /// Queries the CPU and state of every thread.
    fn collect(&mut self) -> Result<(), KernelEngineError> {
        let Self { kernel, tasks, .. } = self;
        let ask = |tid: &u32| types::command {
            tid: *tid,
            kind: shared::COMMAND_COLLECT,
            ..types::command::default()
        };
        let commands: Vec<_> = tasks.threads.keys().map(ask).collect();
        kernel.obey(&commands, |command| {
            // The exit of a missing thread was lost, or is still on its way.
            if command.result == 0 {
                tasks.look(command);
            }
        })
    }

    /// Target of a set of CPUs, made if there is none; `None` if there is no room for another.
    fn target(&mut self, cpus: &Arc<CpuSet>) -> Result<Option<u32>, KernelEngineError> {
        if let Some(id) = self.targets.find(cpus) {
            return Ok(Some(id));
        }
        if let Some(id) = self.define(cpus)? {
            return Ok(Some(id));
        }
        let admitting = self.kernel.admitting()?;
        for id in self.targets.idle() {
            if !admitting.contains(&id) && self.kernel.retire(id)? {
                self.targets.take(id);
            }
        }
        let id = self.define(cpus)?;
        if id.is_none() && !std::mem::replace(&mut self.crowded, true) {
            self.complaint = Some(KernelEngineError::Crowded {
                cpus: cpus.to_string(),
            });
        }
        Ok(id)
    }

    fn define(&mut self, cpus: &Arc<CpuSet>) -> Result<Option<u32>, KernelEngineError> {
        let Some(id) = self.targets.vacant() else {
            return Ok(None);
        };
        if !self.kernel.define(id, &self.config.numbers.os_set(cpus))? {
            return Ok(None);
        }
        self.targets.put(id, Arc::clone(cpus));
        Ok(Some(id))
    }

    /// Publishes an admission table, and provides values that the kernel cannot compute.
    pub(super) fn admit_by(&mut self, table: &AdmissionTable) -> Result<(), KernelEngineError> {
        let mut rows = Vec::with_capacity(table.rows.len());
        for (least, group) in &table.rows {
            let cpus = Arc::clone(&self.config.topology.group(*group).cpus);
            match self.target(&cpus)? {
                Some(target) => rows.push((*least, target)),
                // Part of a table would send threads to wrong targets; decisions place them without a table.
                None => {
                    rows.clear();
                    break;
                }
            }
        }
        let judges = self.counting.as_ref().is_some_and(BpfCounting::judges);
        let own = table.metric == "sf_steps" && judges;
        self.kernel.admit_by(
            if own {
                shared::METRIC_SF
            } else {
                shared::METRIC_GIVEN
            },
            &rows,
        )?;
        self.admission = Some((table.clone(), !own));
        Ok(())
    }

    /// Sends the kernel the values that its admission table compares.
    fn give_metrics(&mut self, values: Option<&MetricBank>) -> Result<(), KernelEngineError> {
        let (Some((table, true)), Some(bank)) = (&self.admission, values) else {
            return Ok(());
        };
        let column = bank.column(&table.metric);
        // Old values, or those of another metric, are not compared.
        let command = |tid: &u32| {
            let value = column.and_then(|column| bank.at(ThreadId(*tid), column));
            let q16 = |value: f64| (value * f64::from(1u32 << FACTOR_BITS)).max(1.0) as u64;
            types::command {
                tid: *tid,
                kind: shared::COMMAND_GIVE_METRIC,
                metric_q16: value.map_or(0, q16),
                ..types::command::default()
            }
        };
        let commands: Vec<_> = self.tasks.threads.keys().map(command).collect();
        self.kernel.obey(&commands, |_| {})
    }
}

/// Statistics of the scheduler itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStatistics {
    /// Records that did not fit into the ring.
    pub lost: u64,
    /// Number of times that a thread ran outside its target because a CPU had no other thread.
    pub stolen: u64,
    pub followed: u64,
}

impl ScxEngine {
    /// Waits until that time, or for an event if the watch requests it; returns the events since the last call.
    ///
    /// # Errors
    /// Fails if the kernel has ended the scheduler.
    pub fn observe(
        &mut self,
        watch: &Watch<'_>,
        until: Nanos,
        journal: &mut Journal,
    ) -> Result<Observation, KernelEngineError> {
        if watch.period != self.config.period {
            self.config.period = watch.period;
            self.kernel.pace(watch.period)?;
        }
        self.give_metrics(watch.values)?;
        if std::mem::replace(&mut self.spans, watch.switches) != watch.switches {
            self.kernel.report_spans(watch.switches)?;
        }
        loop {
            let left = until.since(self.now());
            let woken = left > Nanos::ZERO && self.wait(Duration::from_nanos(left.0), watch.events);
            if self.take_events(journal)? {
                self.rule_out_ejection()?;
            }
            self.kernel.ejected()?;
            if let Some(counting) = &mut self.counting {
                counting.make_room();
            }
            if woken || self.now() >= until || (watch.events && !self.tasks.events.is_empty()) {
                break;
            }
        }
        self.collect()?;
        self.read_counts()?;
        if !self.config.report_switches {
            self.tasks.infer_switches(now_ns());
        }
        let samples = self.tasks.take_samples(now_ns());
        let mut events = std::mem::take(&mut self.tasks.events);
        events.sort_by_key(|e| e.at);
        let mut spans = std::mem::take(&mut self.tasks.spans);
        spans.sort_by_key(|span| span.end);
        let threads = self.tasks.infos(&self.targets);
        let at = self.now();
        let ended = std::mem::take(&mut self.tasks.ended);
        Ok(Observation {
            at,
            threads,
            events,
            ended,
            samples,
            spans,
            ..Observation::default()
        })
    }

    /// Puts threads where the placement specifies.
    ///
    /// # Errors
    /// Fails if the kernel has ended the scheduler.
    pub fn apply(&mut self, placement: &Placement) -> Result<Applied, KernelEngineError> {
        self.kernel.ejected()?;
        self.targets.begin();
        let mut applied = Applied::default();
        let mut left = BTreeSet::new();
        let mut commands = Vec::with_capacity(placement.threads.len());
        for thread in &placement.threads {
            let Some(target) = self.target(&thread.target.cpus(&self.config.topology))? else {
                applied.refused += 1;
                continue;
            };
            commands.push(types::command {
                tid: thread.thread.0,
                kind: shared::COMMAND_PLACE,
                target,
                weight: thread.weight.unwrap_or(0),
                ..types::command::default()
            });
        }
        let Self {
            kernel,
            targets,
            config,
            ..
        } = self;
        // For the scheduler, a thread that may not migrate at present has only its CPU; its own affinity mask decides.
        let is_excluded = |c: &types::command| {
            let mask = affinity::mask(c.tid).map(|mask| config.numbers.own_set(&mask));
            mask.is_ok_and(|mask| mask.intersection(targets.cpus(c.target)).is_empty())
        };
        kernel.obey(&commands, |c| match c.result {
            0 if c.on_target == 0 && is_excluded(c) => applied.refused += 1,
            0 if c.old_target != c.target => {
                applied.changed += 1;
                left.insert(c.old_target);
            }
            0 => {}
            _ => applied.gone += 1,
        })?;
        left.into_iter()
            .try_for_each(|target| self.kernel.sweep(target))?;
        if let Some(table) = &placement.admission {
            self.admit_by(table)?;
        }
        Ok(applied)
    }
}
