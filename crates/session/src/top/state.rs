//! State of `steer top`: the lines of the table and their order, independent of the terminal and the clock.
//!
//! Input: snapshots, and actions of the user. Output: the visible lines, filtered and sorted, with their history.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use countersteer_model::units::Nanos;

use super::columns::{ColumnMeasure, ColumnSource, TopColumn};
use super::sample::{MeasuredTask, Snapshot, TaskKey};

/// Mode of the display, which determines the meaning of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DisplayMode {
    #[default]
    Table,
    /// Typed characters are added to the name filter.
    Filter,
    /// The user chooses columns to show; the value is the index of the column under the cursor.
    Columns(usize),
    Help,
}

/// Action that a key triggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Quit,
    Move(i32),
    /// Changes the sort column: moves by this number of shown columns to the right, or to the left if negative.
    Sort(i32),
    Reverse,
    Pause,
    Processes,
    Enter(DisplayMode),
    Leave,
    /// Clears the filter and returns to the table.
    Cancel,
    Type(char),
    Erase,
    Toggle,
}

/// Number of intervals for which threads and processes stay visible after they last ran.
const KEPT: u32 = 5;
pub const HISTORY: usize = 20;

/// One line of the table: a thread or process with its latest values.
#[derive(Clone, Debug)]
pub struct TopLine {
    pub key: TaskKey,
    pub name: Arc<str>,
    pub cpu: Option<u32>,
    pub core_type: u32,
    pub share: f64,
    pub values: Vec<Option<f64>>,
    /// CPU shares in the last [`HISTORY`] intervals; the newest is last.
    pub history: VecDeque<f64>,
    pub idle: u32,
    pub ended: bool,
}

/// Value of a line in one column, used to sort and to print.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    Number(f64),
    Text(&'a str),
    Missing,
}

#[derive(Debug)]
pub struct TopState {
    pub columns: Vec<TopColumn>,
    pub core_types: Vec<String>,
    pub mode: DisplayMode,
    pub filter: String,
    /// True to show one line per process, false to show one line per thread.
    pub by_process: bool,
    pub paused: bool,
    /// Index of the column by which lines are sorted.
    pub sort: usize,
    pub descending: bool,
    /// Messages for the user, e.g. about inaccessible processes or the program's exit.
    pub notes: Vec<String>,
    pub at: Nanos,
    /// For each measure: true if the value is zero for a thread that did not run.
    rests: Vec<bool>,
    /// For each measure: true if the value becomes unknown at the next interval.
    passes: Vec<bool>,
    threads: BTreeMap<TaskKey, TopLine>,
    processes: BTreeMap<TaskKey, TopLine>,
    selected: Option<TaskKey>,
}

impl TopState {
    pub fn new(
        columns: Vec<TopColumn>,
        measures: &[ColumnMeasure],
        core_types: Vec<String>,
    ) -> Self {
        let sort = columns
            .iter()
            .position(|c| c.source == ColumnSource::Share)
            .unwrap_or_default();
        Self {
            columns,
            core_types,
            mode: DisplayMode::Table,
            filter: String::new(),
            by_process: false,
            paused: false,
            sort,
            descending: true,
            notes: Vec::new(),
            at: Nanos::ZERO,
            rests: measures.iter().map(ColumnMeasure::rests).collect(),
            passes: measures.iter().map(ColumnMeasure::passes).collect(),
            threads: BTreeMap::new(),
            processes: BTreeMap::new(),
            selected: None,
        }
    }

    /// Adds the snapshot of an interval; ignores its values while the display is paused.
    pub fn ingest(&mut self, snapshot: Snapshot) {
        self.notes.extend(snapshot.note);
        if self.paused {
            return;
        }
        self.at = snapshot.at;
        age(&mut self.threads);
        age(&mut self.processes);
        for lines in [&mut self.threads, &mut self.processes] {
            forget(lines, &self.passes);
        }
        snapshot
            .threads
            .into_iter()
            .for_each(|m| update(&mut self.threads, m));
        snapshot
            .processes
            .into_iter()
            .for_each(|m| update(&mut self.processes, m));
        for lines in [&mut self.threads, &mut self.processes] {
            lines.retain(|_, line| line.idle <= KEPT);
            still(lines, &self.rests);
        }
    }

    /// Returns the lines that match the filter, in the order of the sort column.
    pub fn visible(&self) -> Vec<&TopLine> {
        let filter = self.filter.to_lowercase();
        let fits =
            |line: &&TopLine| filter.is_empty() || line.name.to_lowercase().contains(&filter);
        let mut lines: Vec<&TopLine> = self.lines().values().filter(fits).collect();
        let Some(source) = self.columns.get(self.sort).map(|c| c.source) else {
            return lines;
        };
        // The sort is stable, so lines with equal values stay in the order of their PIDs and TIDs.
        lines.sort_by(|a, b| ordered(self.cell(source, a), self.cell(source, b), self.descending));
        lines
    }

    /// Returns the index of the selected line among the visible lines; `None` if the selected line is not visible.
    pub fn selection(&self, visible: &[&TopLine]) -> Option<usize> {
        let key = self.selected?;
        visible.iter().position(|line| line.key == key)
    }

    pub fn shown(&self) -> impl Iterator<Item = &TopColumn> {
        // Processes have no TID and no CPU, so these columns are hidden.
        let meant = |c: &&TopColumn| {
            c.shown
                && !(self.by_process && matches!(c.source, ColumnSource::Tid | ColumnSource::Cpu))
        };
        self.columns.iter().filter(meant)
    }

    /// Returns the names of the virtual counters that the shown columns need, without duplicates.
    pub fn reads(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for name in self
            .columns
            .iter()
            .filter(|c| c.shown)
            .flat_map(|c| &c.reads)
        {
            if !names.contains(name) {
                names.push(*name);
            }
        }
        names
    }

    /// Returns the value of a line for a column's source.
    pub fn cell<'a>(&'a self, source: ColumnSource, line: &'a TopLine) -> Cell<'a> {
        let number = |value: Option<f64>| value.map_or(Cell::Missing, Cell::Number);
        match source {
            ColumnSource::Pid => Cell::Number(line.key.pid.into()),
            ColumnSource::Tid => Cell::Number(line.key.tid.into()),
            ColumnSource::Name => Cell::Text(&line.name),
            ColumnSource::Cpu => number(line.cpu.map(f64::from)),
            ColumnSource::CoreType => self
                .core_types
                .get(line.core_type as usize)
                .map_or(Cell::Missing, |name| Cell::Text(name)),
            ColumnSource::Share => Cell::Number(line.share),
            ColumnSource::Measure(nth) => number(nth.and_then(|nth| *line.values.get(nth)?)),
            ColumnSource::History => Cell::Number(line.history.iter().sum()),
        }
    }

    /// Performs the action of a key; returns true if the user quits.
    pub fn apply(&mut self, action: Action) -> bool {
        match action {
            Action::Quit => return true,
            Action::Move(by) => self.step(by),
            Action::Sort(by) => self.sort_by(by),
            Action::Reverse => self.descending = !self.descending,
            Action::Pause => self.paused = !self.paused,
            Action::Processes => (self.by_process, self.selected) = (!self.by_process, None),
            Action::Enter(mode) => self.mode = mode,
            Action::Leave => self.mode = DisplayMode::Table,
            Action::Cancel => {
                self.filter.clear();
                self.mode = DisplayMode::Table;
            }
            Action::Type(c) => self.filter.push(c),
            Action::Erase => drop(self.filter.pop()),
            Action::Toggle => {
                if let DisplayMode::Columns(at) = self.mode
                    && let Some(column) = self.columns.get_mut(at)
                {
                    column.shown = !column.shown;
                }
            }
        }
        false
    }

    /// Returns the number of threads and the number of processes that ran in the last interval, and their CPU utilization in
    /// CPUs.
    pub fn running(&self) -> (usize, usize, f64) {
        let ran =
            |lines: &BTreeMap<TaskKey, TopLine>| lines.values().filter(|l| l.idle == 0).count();
        (
            ran(&self.threads),
            ran(&self.processes),
            self.threads.values().map(|l| l.share).sum(),
        )
    }

    const fn lines(&self) -> &BTreeMap<TaskKey, TopLine> {
        if self.by_process {
            &self.processes
        } else {
            &self.threads
        }
    }

    fn step(&mut self, by: i32) {
        let moved = |from: usize, count: usize| {
            from.saturating_add_signed(by as isize)
                .min(count.saturating_sub(1))
        };
        if let DisplayMode::Columns(at) = self.mode {
            self.mode = DisplayMode::Columns(moved(at, self.columns.len()));
            return;
        }
        let visible = self.visible();
        // If no visible line is selected, this step selects the first line.
        let to = self
            .selection(&visible)
            .map_or(0, |at| moved(at, visible.len()));
        self.selected = visible.get(to).map(|line| line.key);
    }

    fn sort_by(&mut self, by: i32) {
        let shown: Vec<usize> = self
            .shown()
            .filter_map(|c| self.columns.iter().position(|d| d.name == c.name))
            .collect();
        let at = shown
            .iter()
            .position(|c| *c == self.sort)
            .unwrap_or_default() as i32;
        let next = (at + by).rem_euclid(i32::try_from(shown.len()).unwrap_or(1).max(1)) as usize;
        if let Some(column) = shown.get(next) {
            self.set_sort(*column);
        }
    }

    /// Sorts by the column with this index, in the column's default direction.
    pub(crate) fn set_sort(&mut self, column: usize) {
        self.sort = column;
        self.descending = self.columns.get(column).is_some_and(TopColumn::descends);
    }
}

/// Compares two cells; missing values are last in both directions.
fn ordered(a: Cell<'_>, b: Cell<'_>, descending: bool) -> Ordering {
    let order = match (a, b) {
        (Cell::Missing, Cell::Missing) => return Ordering::Equal,
        (Cell::Missing, _) => return Ordering::Greater,
        (_, Cell::Missing) => return Ordering::Less,
        (Cell::Number(a), Cell::Number(b)) => a.total_cmp(&b),
        (Cell::Text(a), Cell::Text(b)) => a.cmp(b),
        (Cell::Number(_), Cell::Text(_)) => Ordering::Less,
        (Cell::Text(_), Cell::Number(_)) => Ordering::Greater,
    };
    if descending { order.reverse() } else { order }
}

/// Starts a new interval for all lines: adds an idle interval. The lines of threads that ran are updated afterwards.
fn age(lines: &mut BTreeMap<TaskKey, TopLine>) {
    for line in lines.values_mut() {
        line.idle += 1;
        line.share = 0.0;
        if line.history.len() == HISTORY {
            line.history.pop_front();
        }
        line.history.push_back(0.0);
    }
}

/// Sets the rates of idle threads to zero; other measures keep their last value.
fn still(lines: &mut BTreeMap<TaskKey, TopLine>, rests: &[bool]) {
    for line in lines.values_mut().filter(|l| l.idle > 0) {
        for (value, _) in line
            .values
            .iter_mut()
            .zip(rests)
            .filter(|(_, rests)| **rests)
        {
            *value = value.map(|_| 0.0);
        }
    }
}

/// Clears the measures that apply to the previous interval only, marked true in `passes`.
fn forget(lines: &mut BTreeMap<TaskKey, TopLine>, passes: &[bool]) {
    for line in lines.values_mut() {
        let values = line.values.iter_mut().zip(passes);
        values
            .filter(|(_, passes)| **passes)
            .for_each(|(value, _)| *value = None);
    }
}

fn update(lines: &mut BTreeMap<TaskKey, TopLine>, new: MeasuredTask) {
    let line = lines.entry(new.key).or_insert_with(|| TopLine {
        key: new.key,
        name: new.name.clone(),
        cpu: None,
        core_type: 0,
        share: 0.0,
        values: vec![None; new.values.len()],
        history: VecDeque::from([0.0]),
        idle: 0,
        ended: false,
    });
    (line.name, line.cpu, line.core_type) = (new.name, new.cpu, new.core_type);
    (line.share, line.idle, line.ended) = (new.share, 0, new.ended);
    if let Some(newest) = line.history.back_mut() {
        *newest = new.share;
    }
    for (value, new) in line.values.iter_mut().zip(new.values) {
        // Event sets are multiplexed, so a measure keeps its last value until its set is counted again.
        *value = new.or(*value);
    }
}

#[cfg(test)]
mod tests;
