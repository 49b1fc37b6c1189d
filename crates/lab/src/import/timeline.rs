//! Timelines: context switches and wake-ups, from which tasks are computed.
//!
//! Input: times at which threads are switched in, switched out, and woken. Output: [`Tasks`]. A runnable thread that is switched
//! out continues its burst later. A thread that blocks sleeps until its wake-up, or until it runs again if no wake-ups were
//! recorded.

use std::collections::{BTreeMap, HashMap};

use super::{Task, Tasks};

const NS: f64 = 1e-9;

/// Scheduling event of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    In,
    Out { sleeps: bool },
    Woken,
}

#[derive(Debug, Default)]
struct Thread {
    running_since_ns: Option<u64>,
    asleep_since_ns: Option<u64>,
    first_ns: Option<u64>,
    run_ns: u64,
    slept_ns: u64,
    sleeps: u64,
    seen: bool,
}

/// Scheduling events of all threads of a file.
#[derive(Debug, Default)]
pub struct Timeline {
    events: Vec<(u64, i32, What)>,
    names: HashMap<i32, String>,
}

impl Timeline {
    pub fn push(&mut self, time_ns: u64, tid: i32, what: What) {
        // TID 0 is the idle task of every CPU, which is ignored.
        if tid > 0 {
            self.events.push((time_ns, tid, what));
        }
    }

    /// Sets the name of a thread. The last name is used, as after an exec.
    pub fn name(&mut self, tid: i32, name: &str) {
        if tid > 0 && !name.is_empty() && self.names.get(&tid).is_none_or(|known| known != name) {
            self.names.insert(tid, name.to_owned());
        }
    }

    pub fn name_of(&self, tid: i32) -> Option<String> {
        self.names.get(&tid).cloned()
    }

    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Computes tasks from all events.
    pub fn tasks(mut self, mut warnings: Vec<String>) -> Tasks {
        // The sort is stable: within one context switch, `Out` stays before `In`.
        self.events.sort_by_key(|&(time_ns, ..)| time_ns);
        let first_ns = self.events.first().map_or(0, |&(time_ns, ..)| time_ns);
        let last_ns = self.events.last().map_or(0, |&(time_ns, ..)| time_ns);
        let mut threads: BTreeMap<i32, Thread> = BTreeMap::new();
        for &(time_ns, tid, what) in &self.events {
            threads.entry(tid).or_default().see(time_ns, what, first_ns);
        }
        let mut tasks = Groups::default();
        for (tid, mut thread) in threads {
            thread.stop(last_ns);
            let name = self.name_of(tid);
            tasks.add(
                &thread,
                name.unwrap_or_else(|| format!("thread-{tid}")),
                first_ns,
            );
        }
        if !self.events.iter().any(|(.., what)| *what == What::Woken) {
            warnings.push(
                "no wake-ups were recorded: sleeps include the time that threads waited for a CPU"
                    .into(),
            );
        }
        Tasks {
            tasks: tasks.done(),
            warnings,
        }
    }
}

impl Thread {
    fn see(&mut self, time_ns: u64, what: What, trace_ns: u64) {
        match what {
            What::In => {
                self.wake(time_ns);
                self.running_since_ns.get_or_insert(time_ns);
                self.first_ns.get_or_insert(time_ns);
            }
            What::Out { sleeps } => {
                // A thread whose first event is a switch out has run since the start of the trace.
                let begun_ns = if self.seen { None } else { Some(trace_ns) };
                if let Some(since_ns) = self.running_since_ns.take().or(begun_ns) {
                    self.run_ns += time_ns - since_ns;
                    self.first_ns.get_or_insert(since_ns);
                }
                self.asleep_since_ns = sleeps.then_some(time_ns);
            }
            What::Woken => self.wake(time_ns),
        }
        self.seen = true;
    }

    fn wake(&mut self, time_ns: u64) {
        if let Some(since_ns) = self.asleep_since_ns.take() {
            self.slept_ns += time_ns - since_ns;
            self.sleeps += 1;
        }
    }

    fn stop(&mut self, last_ns: u64) {
        if let Some(since_ns) = self.running_since_ns.take() {
            self.run_ns += last_ns - since_ns;
        }
    }
}

/// Groups of similar threads. They have the same name, start in the same second, and have equal bursts and sleeps when these are
/// rounded to powers of two.
#[derive(Default)]
struct Groups(BTreeMap<(String, i64, i64, i64), Vec<Task>>);

impl Groups {
    fn add(&mut self, thread: &Thread, name: String, trace_ns: u64) {
        let Some(first_ns) = thread.first_ns else {
            return;
        };
        let sleeps = thread.sleeps as f64;
        let task = Task {
            name,
            cpu_s: thread.run_ns as f64 * NS,
            sleeps,
            sleep_s: thread.slept_ns as f64 * NS / sleeps.max(1.0),
            start_s: (first_ns - trace_ns) as f64 * NS,
            copies: 1,
            nice: 0,
            cpus: None,
        };
        let size = |seconds: f64| (seconds.max(1e-9) / 1e-9).log2() as i64;
        let burst_s = task.cpu_s / (sleeps + 1.0);
        let key = (
            task.name.clone(),
            task.start_s as i64,
            size(burst_s),
            size(task.sleep_s),
        );
        self.0.entry(key).or_default().push(task);
    }

    fn done(self) -> Vec<Task> {
        let mut tasks: Vec<Task> = self
            .0
            .into_values()
            .filter_map(|group| mean(&group))
            .collect();
        let time = |t: &Task| t.cpu_s * f64::from(t.copies);
        tasks.sort_by(|a, b| {
            time(b)
                .total_cmp(&time(a))
                .then_with(|| a.name.cmp(&b.name))
        });
        tasks
    }
}

/// Merges a group into one task with mean values and the earliest start; `None` if the group is empty.
fn mean(group: &[Task]) -> Option<Task> {
    let copies = group.len() as f64;
    let sum = |of: fn(&Task) -> f64| group.iter().map(of).sum::<f64>();
    let sleeps = sum(|t| t.sleeps);
    let slept_s = sum(|t| t.sleeps * t.sleep_s);
    let first = group
        .iter()
        .map(|t| t.start_s)
        .fold(f64::INFINITY, f64::min);
    Some(Task {
        cpu_s: sum(|t| t.cpu_s) / copies,
        sleeps: sleeps / copies,
        sleep_s: slept_s / sleeps.max(1.0),
        start_s: first,
        copies: group.len() as u32,
        ..group.first()?.clone()
    })
}
