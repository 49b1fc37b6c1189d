//! Groups and rows of the events of a region.
//!
//! Input: resolved events and the machine's core types. Output: a [`RegionLayout`]. The events of each PMU form a group, which is
//! read by one call; the kernel's own events form another. An event of cores has a row per core type, even if that type cannot
//! count it. Counts of two core types are never added up.

use super::super::CounterError;
use crate::perf::resolve::{CoreTypes, Encoding, Resolved};

/// Row of a region's counts: one event on one core type.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RegionRow {
    /// Index of the event in the event string.
    pub(super) event: usize,
    /// Core type of the row; `None` if the event does not depend on it, or there is only one type.
    pub(super) core_type: Option<String>,
    /// Encoding of the event; `None` if the core type cannot count it.
    pub(super) encoding: Option<Encoding>,
}

/// Rows of a region's counts, and the groups in which they are counted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RegionLayout {
    pub(super) rows: Vec<RegionRow>,
    pub(super) groups: Vec<Vec<usize>>,
}

impl RegionLayout {
    pub(super) fn of(events: &[Resolved], core_types: &CoreTypes) -> Result<Self, CounterError> {
        let mut rows = Vec::new();
        for (nth, event) in events.iter().enumerate() {
            if event.encodings.iter().any(|e| e.system) {
                return Err(CounterError::SystemOnly {
                    event: event.planned.name.clone(),
                });
            }
            rows.extend(rows_of(nth, event, core_types));
        }
        let mut groups: Vec<(&str, Vec<usize>)> = Vec::new();
        for (place, row) in rows.iter().enumerate() {
            let Some(encoding) = &row.encoding else {
                continue;
            };
            match groups.iter_mut().find(|(pmu, _)| *pmu == encoding.pmu) {
                Some((_, members)) => members.push(place),
                None => groups.push((&encoding.pmu, vec![place])),
            }
        }
        let groups = groups.into_iter().map(|(_, members)| members).collect();
        Ok(Self { rows, groups })
    }
}

fn rows_of(event: usize, resolved: &Resolved, core_types: &CoreTypes) -> Vec<RegionRow> {
    let names = &core_types.names;
    if names.len() > 1 && resolved.encodings.iter().all(|e| names.contains(&e.pmu)) {
        let of = |name: &String| resolved.encodings.iter().find(|e| e.pmu == *name).cloned();
        return names
            .iter()
            .map(|n| RegionRow {
                event,
                core_type: Some(n.clone()),
                encoding: of(n),
            })
            .collect();
    }
    let row = |e: &Encoding| RegionRow {
        event,
        core_type: None,
        encoding: Some(e.clone()),
    };
    resolved.encodings.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use countersteer_model::counters::parse_set;

    use super::*;
    use crate::{Pmus, resolve};

    const EVENTS: &str = "instructions,task_clock,cpu_atom/event=0x3c/,cycles,page_faults";

    fn hybrid() -> Pmus {
        let root = tempfile::tempdir().unwrap();
        for (name, kind, cpus) in [("cpu_core", "4", "0-3"), ("cpu_atom", "10", "4-7")] {
            let folder = root.path().join("sys/bus/event_source/devices").join(name);
            std::fs::create_dir_all(folder.join("format")).unwrap();
            for (file, text) in [
                ("type", kind),
                ("cpus", cpus),
                ("format/event", "config:0-7"),
            ] {
                std::fs::write(folder.join(file), text).unwrap();
            }
        }
        Pmus::read(root.path()).unwrap()
    }

    #[test]
    fn each_core_type_has_a_row_and_each_pmu_a_group() {
        let pmus = hybrid();
        let events = resolve(EVENTS, &parse_set(EVENTS).unwrap(), &pmus).unwrap();
        let layout = RegionLayout::of(&events, &CoreTypes::of(&pmus)).unwrap();
        let rows: Vec<_> = layout
            .rows
            .iter()
            .map(|r| (r.event, r.core_type.as_deref(), r.encoding.is_some()))
            .collect();
        let core = Some("cpu_core");
        let atom = Some("cpu_atom");
        assert_eq!(
            rows,
            [
                (0, core, true),
                (0, atom, true),
                (1, None, true),
                (2, core, false),
                (2, atom, true),
                (3, core, true),
                (3, atom, true),
                (4, None, true),
            ]
        );
        assert_eq!(layout.groups, [vec![0, 5], vec![1, 4, 6], vec![2, 7]]);
    }
}
