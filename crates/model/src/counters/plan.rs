//! Counting plan: the multiplexing schedule of event sets.
//!
//! Input: the requested sets, in order. Output: the columns of each set. One set counts per period, so that counts of a set are
//! never an unmarked extrapolation. A sample contains the index of its set and the time for which the set counted.

use std::sync::Arc;

use crate::sample::{Event, EventSet};
use crate::units::Nanos;

/// Limit on the number of events in one set.
const MAX_EVENTS: usize = EventSet::MOST;

/// Event of a planned event set.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedEvent {
    pub name: String,
    /// Unit of a count multiplied by `scale`; empty for plain counts.
    pub unit: String,
    /// Factor that converts a count to `unit`; 1 for plain counts.
    pub scale: f64,
    /// Portable event with the same meaning; `None` if the event has no row in the event table.
    pub event: Option<Event>,
}

/// Event set: events that are counted at the same time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlannedSet {
    /// Events in the order of their columns.
    pub events: Vec<PlannedEvent>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SetPlan {
    /// Event sets in multiplexing order.
    pub sets: Vec<PlannedSet>,
    /// Time for which each event set counts per multiplexing cycle; `None` if there is only one set.
    pub turn: Option<Nanos>,
}

/// Error of creating a counting plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("no event was asked for; name some with -e, as in -e task_clock,context_switches")]
    Empty,
    /// A set has more events than can be counted together.
    #[error(
        "set {set} has {found} events, at most {MAX_EVENTS} can count together; use -e several times"
    )]
    TooLarge {
        /// Index of the set in the plan, from 0.
        set: usize,
        found: usize,
    },
    #[error(
        "{sets} event sets are multiplexed, which needs a period: give one with -i, as in -i 100ms"
    )]
    NoPeriod { sets: usize },
}

impl SetPlan {
    /// Creates a plan in which one set counts per period, in the given order.
    ///
    /// # Errors
    /// Fails if no set has events, if a set has too many, or if there are several sets but no period.
    pub fn new(sets: Vec<PlannedSet>, period: Option<Nanos>) -> Result<Self, PlanError> {
        if sets.iter().all(|s| s.events.is_empty()) {
            return Err(PlanError::Empty);
        }
        if let Some((set, found)) = sets
            .iter()
            .map(|s| s.events.len())
            .enumerate()
            .find(|(_, n)| *n > MAX_EVENTS)
        {
            return Err(PlanError::TooLarge { set, found });
        }
        if sets.len() == 1 {
            return Ok(Self { sets, turn: None });
        }
        let turn = Some(period.ok_or(PlanError::NoPeriod { sets: sets.len() })?);
        Ok(Self { sets, turn })
    }

    #[must_use]
    pub const fn nothing() -> Self {
        Self {
            sets: Vec::new(),
            turn: None,
        }
    }

    /// Returns the index of the set that counts after `set`.
    #[must_use]
    pub fn after(&self, set: usize) -> usize {
        (set + 1) % self.sets.len().max(1)
    }

    /// Returns the event sets in the form that rows of samples refer to, in the order of the plan.
    #[must_use]
    pub fn event_sets(&self) -> Vec<Arc<EventSet>> {
        let compile = |set: &PlannedSet| {
            let events = set.events.iter().map(|planned| planned.event);
            Arc::new(EventSet::new(events, self.sets.len() as u32))
        };
        self.sets.iter().map(compile).collect()
    }

    /// Returns the events of all sets in order of first appearance, without duplicates.
    #[must_use]
    pub fn columns(&self) -> Vec<&PlannedEvent> {
        let mut columns: Vec<&PlannedEvent> = Vec::new();
        for event in self.sets.iter().flat_map(|s| &s.events) {
            if !columns.iter().any(|c| c.name == event.name) {
                columns.push(event);
            }
        }
        columns
    }

    /// Returns for each set the column of each of its events in [`SetPlan::columns`].
    #[must_use]
    pub fn places(&self) -> Vec<Vec<usize>> {
        let columns = self.columns();
        let place = |e: &PlannedEvent| {
            columns
                .iter()
                .position(|c| c.name == e.name)
                .unwrap_or_default()
        };
        self.sets
            .iter()
            .map(|s| s.events.iter().map(place).collect())
            .collect()
    }
}

/// Distributes groups of events over as few sets as possible, in order. Returns the sets, and the events for which no set fits.
///
/// The events of a group are in one set if possible, so that they are counted over the same time. Each set also has the events
/// of `base`: the denominators of ratios, which also show if two sets were counted in the same phase. If no event fits beside
/// all of `base`, each set has only the first event of `base`, and the others are multiplexed.
#[must_use]
pub fn divide<E: Clone + PartialEq>(
    base: &[E],
    groups: &[Vec<E>],
    mut fits: impl FnMut(&[E]) -> bool,
) -> (Vec<Vec<E>>, Vec<E>) {
    let all = groups
        .iter()
        .fold(base.to_vec(), |all, group| union(&all, group));
    if fits(&all) {
        return (vec![all], Vec::new());
    }
    let narrow = !groups
        .iter()
        .flatten()
        .filter(|event| !base.contains(event))
        .any(|event| fits(&union(base, std::slice::from_ref(event))));
    let (base, rest) = if narrow {
        base.split_at(base.len().min(1))
    } else {
        (base, &[][..])
    };
    let mut sets: Vec<Vec<E>> = Vec::new();
    let mut left_out: Vec<E> = Vec::new();
    for group in rest.chunks(1).chain(groups.iter().map(Vec::as_slice)) {
        if place(&mut sets, base, group, &mut fits) {
            continue;
        }
        for event in group.chunks(1) {
            if !place(&mut sets, base, event, &mut fits) && !left_out.contains(&event[0]) {
                left_out.extend_from_slice(event);
            }
        }
    }
    if sets.is_empty() {
        sets.push(base.to_vec());
    }
    (sets, left_out)
}

/// Adds a group to the last set or to a new one, unless a set contains it already. Returns false if the group fits in neither.
fn place<E: Clone + PartialEq>(
    sets: &mut Vec<Vec<E>>,
    base: &[E],
    group: &[E],
    fits: &mut impl FnMut(&[E]) -> bool,
) -> bool {
    let has = |set: &Vec<E>| group.iter().all(|event| set.contains(event));
    if sets.iter().any(has) {
        return true;
    }
    if let Some(last) = sets.last_mut() {
        let joined = union(last, group);
        if fits(&joined) {
            *last = joined;
            return true;
        }
    }
    let own = union(base, group);
    let fitting = fits(&own);
    if fitting {
        sets.push(own);
    }
    fitting
}

/// Returns the union of two lists of events, in order of first appearance.
fn union<E: Clone + PartialEq>(set: &[E], more: &[E]) -> Vec<E> {
    let mut all = set.to_vec();
    for event in more {
        if !all.contains(event) {
            all.push(event.clone());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> PlannedSet {
        let event = |n: &&str| PlannedEvent {
            name: (*n).into(),
            unit: String::new(),
            scale: 1.0,
            event: None,
        };
        PlannedSet {
            events: names.iter().map(event).collect(),
        }
    }

    #[test]
    fn an_event_of_several_sets_has_one_column() {
        let plan = SetPlan::new(vec![set(&["a", "b"]), set(&["c", "a"])], Some(Nanos(5))).unwrap();
        let names: Vec<&str> = plan.columns().iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(plan.places(), [vec![0, 1], vec![2, 0]]);
        assert_eq!((plan.after(0), plan.after(1)), (1, 0));
    }

    #[test]
    fn turns_need_a_period() {
        let error = SetPlan::new(vec![set(&["a"]), set(&["b"])], None).unwrap_err();
        assert!(error.to_string().contains("-i"), "{error}");
        assert_eq!(SetPlan::new(vec![set(&["a"])], None).unwrap().turn, None);
        assert_eq!(SetPlan::new(vec![set(&[])], None), Err(PlanError::Empty));
    }

    /// Simulates a PMU with this number of counters; on some, the first two events have fixed counters.
    fn divided(counters: usize, fixed: usize, others: &[&str]) -> (Vec<String>, String) {
        let base = ["i", "c"];
        let fits =
            |set: &[&str]| set.iter().filter(|e| !base[..fixed].contains(e)).count() <= counters;
        let groups: Vec<Vec<&str>> = others.iter().map(|event| vec![*event]).collect();
        let (sets, left_out) = divide(&base, &groups, fits);
        (
            sets.iter().map(|set| set.concat()).collect(),
            left_out.concat(),
        )
    }

    #[test]
    fn events_that_do_not_fit_together_take_turns() {
        let sets = |counters, fixed, others| divided(counters, fixed, others).0.join(" ");
        assert_eq!(sets(4, 2, &["1", "2", "3"]), "ic123");
        assert_eq!(sets(2, 2, &["1", "2", "3"]), "ic12 ic3");
        assert_eq!(sets(4, 0, &["1", "2", "3", "4", "5"]), "ic12 ic34 ic5");
        assert_eq!(sets(2, 0, &["1", "2"]), "ic i1 i2");
        assert_eq!(sets(2, 0, &[]), "ic");
        assert_eq!(
            divided(1, 0, &["1"]),
            (vec!["i".to_owned()], "c1".to_owned())
        );
    }

    #[test]
    fn events_of_a_group_share_a_set() {
        let of = |counters: usize, groups: &[&[&str]]| {
            let groups: Vec<Vec<&str>> = groups.iter().map(|g| g.to_vec()).collect();
            let fits = |set: &[&str]| set.len() <= counters;
            let (sets, left_out) = divide(&["i", "c"], &groups, fits);
            assert!(left_out.is_empty());
            sets.iter()
                .map(|set| set.concat())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(of(5, &[&["1", "2"], &["3", "4"]]), "ic12 ic34");
        assert_eq!(of(5, &[&["1", "2"], &["2", "i"], &["3"]]), "ic123");
        assert_eq!(of(4, &[&["1", "2"], &["3"], &["2", "1"]]), "ic12 ic3");
        // Too large for one set: the events are multiplexed.
        assert_eq!(of(4, &[&["1", "2", "3"]]), "ic12 ic3");
    }

    #[test]
    fn what_fits_nowhere_is_left_out() {
        let fits = |set: &[&str]| set.len() <= 3 && !set.contains(&"x");
        let (sets, left_out) = divide(&["i", "c"], &[vec!["1"], vec!["x"], vec!["2"]], fits);
        assert_eq!(
            (sets, left_out),
            (vec![vec!["i", "c", "1"], vec!["i", "c", "2"]], vec!["x"])
        );
    }
}
