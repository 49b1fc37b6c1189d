//! Migrations of threads between core types, and between last-level caches.
//!
//! Input: thread events. Output: counts by program, as measures of a case. HASS (table 3) counts migrations between partitions,
//! which are core types. Its unit is migrations per thread and minute of CPU time, and it also states the largest count of one
//! thread. CMPSched$im (section 4.3, figures 11 to 13) describes programs that bounce between the two caches.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::driver::Recorder;
use countersteer_model::engine::{Applied, Observation, ThreadEventKind};
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::Placement;
use countersteer_model::topology::{GroupBy, Topology};
use countersteer_model::units::{CpuId, Nanos, ThreadId};

use super::values::CaseValues;

/// Numbers of migrations of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct MigrationCount {
    types: u32,
    caches: u32,
}

/// Recorder that counts migrations.
pub(crate) struct MoveRecorder {
    /// Core type and last-level cache of each CPU, as indices.
    places: Vec<(usize, usize)>,
    /// Migrations of each thread.
    counts: BTreeMap<ThreadId, MigrationCount>,
    /// Name of each thread's program.
    programs: BTreeMap<ThreadId, Arc<str>>,
}

impl MoveRecorder {
    pub fn new(topology: &Topology) -> Self {
        let caches = topology.groups_by(GroupBy::Llc);
        let place = |cpu: CpuId| {
            let cache = caches.iter().position(|llc| llc.cpus.contains(cpu));
            let core_type = topology.core_type_of(cpu).index();
            (core_type, cache.unwrap_or_default())
        };
        Self {
            places: topology.cpus.iter().map(|c| place(c.id)).collect(),
            counts: BTreeMap::new(),
            programs: BTreeMap::new(),
        }
    }

    fn moved(&mut self, thread: ThreadId, from: CpuId, to: CpuId) {
        let (Some(from), Some(to)) = (self.places.get(from.index()), self.places.get(to.index()))
        else {
            return;
        };
        let count = self.counts.entry(thread).or_default();
        count.types += u32::from(from.0 != to.0);
        count.caches += u32::from(from.1 != to.1);
    }

    /// Returns the migrations of each program by name; copies have different names.
    fn by_name(&self) -> BTreeMap<&str, MigrationCount> {
        let mut names: BTreeMap<&str, MigrationCount> = BTreeMap::new();
        for (thread, name) in &self.programs {
            let of = names.entry(name).or_default();
            let count = self.counts.get(thread).copied().unwrap_or_default();
            of.types += count.types;
            of.caches += count.caches;
        }
        names
    }

    /// Adds the measures of migrations for the mix and for each program. `cpu_s` is the CPU time of all threads, in seconds.
    pub fn add(&self, values: &mut CaseValues, row: &str, arm: &str, cpu_s: f64) {
        let names = self.by_name();
        let types: u32 = names.values().map(|c| c.types).sum();
        let most = names.values().map(|c| c.types).max().unwrap_or(0);
        let minutes = cpu_s / 60.0;
        // All programs run for the same time, on as many CPUs as there are programs.
        let each_minutes = minutes / names.len().max(1) as f64;
        for (measure, value) in [
            ("type_moves_per_minute", f64::from(types) / minutes),
            ("most_type_moves_per_minute", f64::from(most) / each_minutes),
        ] {
            values.add(row, arm, measure, value);
        }
        let mut of_programs: BTreeMap<&str, u32> = BTreeMap::new();
        for (name, count) in &names {
            let base = name.split('#').next().unwrap_or_default();
            *of_programs.entry(base).or_default() += count.caches;
        }
        for (program, caches) in of_programs {
            let row = format!("{row}/{program}");
            values.add(&row, arm, "cache_moves", f64::from(caches));
        }
    }
}

impl Recorder for MoveRecorder {
    fn observation(&mut self, _: &Topology, seen: &Observation, _: &MetricBank) {
        for info in &seen.threads {
            let name = || Arc::clone(&info.name);
            self.programs.entry(info.id).or_insert_with(name);
        }
        for event in &seen.events {
            if let ThreadEventKind::Migrate { from, to } = event.kind {
                self.moved(event.thread, from, to);
            }
        }
    }

    fn decision(&mut self, _: &Topology, _: Nanos, _: &Placement, _: Applied) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_count_where_they_change_the_core_type_or_the_cache() {
        let machine = crate::experiment::machine("opteron-8356-2-2").unwrap();
        let mut moves = MoveRecorder::new(&machine.topology);
        // Two core types with two cores each; the cores of the second type have separate caches.
        moves.places = vec![(0, 0), (0, 0), (1, 1), (1, 2)];
        let (a, b) = (ThreadId(1), ThreadId(2));
        moves.moved(a, CpuId(0), CpuId(2));
        moves.moved(a, CpuId(2), CpuId(1));
        moves.moved(b, CpuId(0), CpuId(1));
        moves.moved(b, CpuId(2), CpuId(3));
        moves.programs = [(a, "m".into()), (b, "m#2".into())].into();
        let mut values = CaseValues::default();
        moves.add(&mut values, "mix", "hass", 120.0);
        let get = |row: &str, measure: &str| values.get(row, "hass", measure);
        assert_eq!(get("mix", "type_moves_per_minute"), Some(1.0));
        assert_eq!(get("mix", "most_type_moves_per_minute"), Some(2.0));
        assert_eq!(get("mix/m", "cache_moves"), Some(3.0));
    }
}
