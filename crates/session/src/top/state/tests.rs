//! Sorting, filtering, selecting and forgetting lines.

use super::*;
use crate::top::columns::{Silent, columns, find};
use crate::top::testing::{self, measured, snapshot, state};

fn names(state: &TopState) -> Vec<String> {
    state.visible().iter().map(|l| l.name.to_string()).collect()
}

fn three() -> TopState {
    let mut state = state();
    let threads = [
        (1, 10, "beta", 0.5, 3.0),
        (1, 11, "alpha", 0.9, 1.0),
        (2, 20, "gamma", 0.1, 2.0),
    ];
    state.ingest(snapshot(
        0,
        threads
            .map(|(p, t, n, s, c)| measured(p, t, n, s, c))
            .into(),
    ));
    state
}

fn column(state: &TopState, name: &str) -> usize {
    state.columns.iter().position(|c| c.name == name).unwrap()
}

#[test]
fn lines_are_sorted_by_share_first_and_then_as_asked() {
    let mut state = three();
    assert_eq!(names(&state), ["alpha", "beta", "gamma"]);
    state.apply(Action::Reverse);
    assert_eq!(names(&state), ["gamma", "beta", "alpha"]);
    state.set_sort(column(&state, "cs/s"));
    assert_eq!(names(&state), ["beta", "gamma", "alpha"]);
    state.set_sort(column(&state, "name"));
    assert_eq!(names(&state), ["alpha", "beta", "gamma"]);
}

#[test]
fn sorting_steps_through_the_columns_that_are_shown() {
    let mut state = three();
    let first = state.sort;
    state.apply(Action::Sort(1));
    assert_eq!(state.columns[state.sort].name, "ipc");
    state.apply(Action::Sort(-1));
    assert_eq!(state.sort, first);
    let count = state.shown().count() as i32;
    state.apply(Action::Sort(count));
    assert_eq!(state.sort, first, "round and round");
}

#[test]
fn what_is_missing_is_last_in_both_directions() {
    let mut state = three();
    let mut silent = measured(3, 30, "silent", 0.3, 0.0);
    silent.values[0] = None;
    state.ingest(snapshot(1, vec![silent, measured(1, 10, "beta", 0.5, 3.0)]));
    state.set_sort(column(&state, "cs/s"));
    assert_eq!(names(&state).last().unwrap(), "silent");
    state.apply(Action::Reverse);
    assert_eq!(names(&state).last().unwrap(), "silent");
}

#[test]
fn who_is_idle_stays_a_while_and_goes() {
    let mut state = three();
    for number in 1..=u64::from(KEPT) {
        state.ingest(snapshot(number, vec![measured(1, 10, "beta", 0.5, 3.0)]));
    }
    let lines = state.visible();
    let alpha = lines.iter().find(|l| &*l.name == "alpha").unwrap();
    assert_eq!(
        (alpha.idle, alpha.share, alpha.values[0], alpha.values[1]),
        (KEPT, 0.0, Some(0.0), Some(1.0))
    );
    assert_eq!(alpha.history, [0.9, 0.0, 0.0, 0.0, 0.0, 0.0]);
    state.ingest(snapshot(9, Vec::new()));
    assert_eq!(names(&state), ["beta"]);
}

#[test]
fn history_is_bounded() {
    let mut state = state();
    for number in 0..50 {
        state.ingest(snapshot(
            number,
            vec![measured(1, 10, "x", number as f64 / 100.0, 0.0)],
        ));
    }
    let line = state.visible()[0];
    assert_eq!(
        (line.history.len(), line.history.back()),
        (HISTORY, Some(&0.49))
    );
}

#[test]
fn a_filter_ignores_case_and_the_selection_follows_its_thread() {
    let mut state = three();
    state.apply(Action::Move(1));
    state.apply(Action::Move(1));
    let at = |state: &TopState| state.selection(&state.visible());
    assert_eq!(at(&state), Some(1));
    state.apply(Action::Reverse);
    state.apply(Action::Reverse);
    state.ingest(snapshot(
        1,
        vec![
            measured(1, 10, "beta", 0.95, 0.0),
            measured(1, 11, "alpha", 0.9, 0.0),
        ],
    ));
    assert_eq!(at(&state), Some(0), "beta is first now");
    assert!(!"BET".chars().any(|c| state.apply(Action::Type(c))));
    assert_eq!(names(&state), ["beta"]);
    state.apply(Action::Cancel);
    assert_eq!(names(&state).len(), 3);
}

#[test]
fn percentiles_are_of_their_interval_and_other_values_stand() {
    let (columns, measures) = columns(&testing::counted(), 0, false, &Silent::new());
    let place = |name: &str| match columns[find(&columns, name).unwrap()].source {
        ColumnSource::Measure(Some(nth)) => nth,
        other => unreachable!("{other:?}"),
    };
    let tail = place("wait99_ms");
    let count = place("clock_share");
    let mut state = TopState::new(columns, &measures, vec!["cpu".into()]);
    let of = |value| MeasuredTask {
        values: vec![value; measures.len()],
        ..measured(1, 10, "one", 1.0, 2.0)
    };
    state.ingest(snapshot(0, vec![of(Some(4.0))]));
    assert_eq!(state.visible()[0].values[tail], Some(4.0));
    state.ingest(snapshot(1, vec![of(None)]));
    let line = state.visible()[0];
    assert_eq!((line.values[tail], line.values[count]), (None, Some(4.0)));
}

#[test]
fn processes_have_lines_of_their_own_without_threads_columns() {
    let mut state = three();
    state.apply(Action::Processes);
    assert_eq!(state.visible().len(), 2);
    assert!(!state.shown().any(|c| c.name == "tid" || c.name == "cpu"));
    assert_eq!(state.running().1, 2);
}

#[test]
fn what_is_shown_is_what_is_read() {
    let (columns, measures) = columns(&testing::counted(), 0, false, &Silent::new());
    let mut state = TopState::new(columns, &measures, Vec::new());
    let shown = ["runqueue_wait_ms", "energy_share_percent"];
    assert_eq!(state.reads(), shown);
    state.mode = DisplayMode::Columns(find(&state.columns, "watts").unwrap());
    state.apply(Action::Toggle);
    assert_eq!(state.reads(), [&shown[..], &["thread_energy_j"]].concat());
}

#[test]
fn columns_are_picked_and_pausing_holds_everything() {
    let mut state = three();
    let shown = state.shown().count();
    state.apply(Action::Enter(DisplayMode::Columns(0)));
    state.apply(Action::Move(1));
    state.apply(Action::Toggle);
    state.apply(Action::Leave);
    assert_eq!(
        (state.shown().count(), state.mode),
        (shown - 1, DisplayMode::Table)
    );
    state.apply(Action::Pause);
    state.ingest(snapshot(1, Vec::new()));
    assert!(state.visible().iter().all(|l| l.idle == 0));
    assert!(state.apply(Action::Quit));
}
