//! Measurements of the last interval: of each thread, of memory's load and of room in caches.

use std::collections::BTreeMap;

use countersteer_model::policy::View;
use countersteer_model::units::{LINE_BYTES, ThreadId};

use super::estimate::{PlacedInterval, ThreadEstimate};
use super::policy::{Joint, METRICS};
use super::predict::{SIBLINGS, TRAFFIC};

/// Part of a thread's time that must be spent at its assigned place for the interval to count.
const WHOLE: f64 = 0.95;
/// Free part of a cache from which it has room to spare.
const ROOMY: f64 = 0.1;

/// Column of each metric in a row.
type MetricColumns = [Option<usize>; METRICS.len()];

/// Metrics of a thread in the last interval.
#[derive(Clone, Copy, Default)]
struct ThreadReading {
    ips: f64,
    misses: f64,
    references: f64,
    lines: Option<f64>,
    near: Option<f64>,
    sf: Option<f64>,
    nj: Option<f64>,
    /// CPU time in the interval, in s.
    ran_s: f64,
    /// True if the thread spent nearly all of it at its assigned place.
    whole: bool,
}

impl Joint {
    fn read(
        &self,
        view: &View<'_>,
        columns: &MetricColumns,
        thread: ThreadId,
    ) -> Option<ThreadReading> {
        let row = view.metrics.row(thread)?;
        let value = |nth: usize| {
            row.get(columns[nth]?)
                .copied()
                .flatten()
                .filter(|v| v.is_finite())
        };
        let usage = view.usage(thread)?;
        let kinds = self.places.kinds.iter();
        let mut types: Vec<_> = kinds.map(|k| k.core_type).collect();
        types.dedup();
        let ran_s = types.iter().map(|t| usage.last_cpu_s(*t)).sum();
        let kind = self
            .placed
            .get(&thread)
            .map(|(spot, _)| self.places.spots[*spot].kind);
        let there_s = kind.map_or(0.0, |kind| {
            usage.last_cpu_s(self.places.kinds[kind].core_type)
        });
        Some(ThreadReading {
            ips: value(0)? * 1e-9,
            misses: value(1).unwrap_or(0.0) * 1e-3,
            references: value(6).or(value(3)).unwrap_or(0.0) * 1e-3,
            lines: value(2).map(|bytes| bytes / LINE_BYTES as f64),
            near: value(3).map(|mpki| mpki * 1e-3),
            sf: value(4),
            nj: value(5),
            ran_s,
            whole: there_s > WHOLE * ran_s,
        })
    }

    /// Adds the last interval.
    pub(super) fn note(&mut self, view: &View<'_>) {
        let alive = |id: &ThreadId| view.lives(*id);
        self.threads.retain(|id, _| alive(id));
        self.placed.retain(|id, _| alive(id));
        self.light.retain(|id, _| alive(id));
        self.bans.retain(|(id, _), _| alive(id));
        self.interval = view.now.since(self.last);
        let passed_s = self.interval.as_secs_f64();
        let kinds = self.places.kinds.len();
        let columns = METRICS.map(|name| view.metrics.column(name));
        let mut readings = BTreeMap::new();
        for info in view.threads {
            let estimate = self
                .threads
                .entry(info.id)
                .or_insert_with(|| ThreadEstimate::new(kinds));
            estimate.calm();
            if let Some(reading) = self.read(view, &columns, info.id).filter(|r| r.ran_s > 0.0) {
                readings.insert(info.id, reading);
            }
        }
        let room = self.measure_load(&readings, passed_s);
        for (id, reading) in readings.iter().filter(|(_, r)| r.whole) {
            // The interval in which a thread moved mixes two places.
            let Some(&(spot, _)) = self.placed.get(id).filter(|(_, since)| *since < self.last)
            else {
                continue;
            };
            let seen = self.seen(*id, spot, reading, &readings, &room);
            if let Some(estimate) = self.threads.get_mut(id) {
                estimate.note(&seen, &self.places);
            }
        }
        self.last = view.now;
    }

    /// Measures memory's load in the last interval. Returns, by last-level cache, true if it had room to spare.
    fn measure_load(
        &mut self,
        readings: &BTreeMap<ThreadId, ThreadReading>,
        passed_s: f64,
    ) -> Vec<bool> {
        let mut lines = vec![0.0; self.places.caches.len()];
        let mut traffic = vec![0.0; self.places.memory.len()];
        for (id, reading) in readings {
            let Some((spot, _)) = self.placed.get(id) else {
                continue;
            };
            lines[self.places.llc(*spot)] += reading.lines.unwrap_or(f64::INFINITY);
            let share = (reading.ran_s / passed_s.max(1e-9)).min(1.0);
            let own = TRAFFIC * reading.ips * reading.misses * share;
            traffic[self.places.spots[*spot].memory] += own;
            if let Some(estimate) = self.threads.get_mut(id) {
                estimate.traffic = own;
            }
        }
        for (domain, traffic) in traffic.iter().enumerate() {
            self.factor[domain] = self.places.memory[domain].factor(*traffic);
        }
        self.traffic = traffic;
        let room = |(held, all): (f64, &f64)| held < all * (1.0 - ROOMY);
        lines
            .into_iter()
            .zip(&self.places.caches)
            .map(room)
            .collect()
    }

    /// Factor on memory latency while a thread ran; threads that share its core did not run then.
    fn met(&self, spot: usize, reading: &ThreadReading) -> f64 {
        let place = &self.places.spots[spot];
        let here = || self.placed.iter().filter(|(_, at)| at.0 == spot);
        if here().count() <= place.ways {
            return self.factor[place.memory];
        }
        let core = here().filter_map(|(id, _)| self.threads.get(id));
        let core: f64 = core.map(|estimate| estimate.traffic).sum();
        let own = TRAFFIC * reading.ips * reading.misses;
        let demand = self.traffic[place.memory] - core + own;
        self.places.memory[place.memory].factor(demand)
    }

    fn seen(
        &self,
        id: ThreadId,
        spot: usize,
        reading: &ThreadReading,
        readings: &BTreeMap<ThreadId, ThreadReading>,
        room: &[bool],
    ) -> PlacedInterval {
        let place = &self.places.spots[spot];
        let kind = &self.places.kinds[place.kind];
        let mut others = 0;
        let mut ips = 0.0;
        if place.ways > 1 {
            for (other, at) in &self.placed {
                if *other != id
                    && at.0 == spot
                    && let Some(r) = readings.get(other)
                {
                    (others, ips) = (others + 1, ips + r.ips);
                }
            }
        }
        let siblings = others.min(place.ways - 1);
        PlacedInterval {
            kind: place.kind,
            ips: reading.ips,
            llc_misses: reading.misses,
            llc_references: reading.references.max(reading.misses),
            near_misses: reading.near,
            lines: reading.lines,
            inner_lines: self.inner.get(&id).copied(),
            ran_s: reading.ran_s,
            roomy: room[self.places.llc(spot)],
            factor: self.met(spot, reading),
            crowding: SIBLINGS.factor(siblings as f64, ips / kind.ghz / kind.width),
            sf: reading.sf,
            nj_per_instruction: reading.nj,
            sharers: 1.0 + siblings as f64,
        }
    }
}
