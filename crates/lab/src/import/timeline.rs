//! Timelines: context switches and wake-ups, from which tasks are computed.
//!
//! Input: times at which threads are switched in, switched out, and woken. Output: [`Tasks`]. A runnable thread that is switched
//! out continues its burst later. A thread that blocks sleeps until its wake-up, or until it runs again if no wake-ups were
//! recorded.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{ImportedTask, Tasks};

const NS: f64 = 1e-9;

/// Scheduling event of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchedEvent {
    In,
    Out { sleeps: bool },
    Woken,
}

/// Event of a thread; the CPU is `None` if the file does not contain it.
#[derive(Clone, Copy, Debug)]
struct TimelineEvent {
    time_ns: u64,
    cpu: Option<u32>,
    tid: i32,
    what: SchedEvent,
}

#[derive(Debug, Default)]
struct TimelineThread {
    /// CPU on which the thread runs, and the time since when it does.
    running: Option<(Option<u32>, u64)>,
    asleep_since_ns: Option<u64>,
    first_ns: Option<u64>,
    run_ns: u64,
    slept_ns: u64,
    sleeps: u64,
    seen: bool,
}

/// Scheduling events of all threads of a file.
#[derive(Debug, Default)]
pub(crate) struct SchedTimeline {
    events: Vec<TimelineEvent>,
    /// Last name of each thread, with its time.
    names: HashMap<i32, (u64, String)>,
    /// Last priority of each thread, as the kernel counts them: 120 plus the nice value, or less than 100 for real-time threads.
    priorities: HashMap<i32, i32>,
    /// Names of fields, events and parts of the file that are not used.
    not_kept: BTreeSet<String>,
}

/// Range of kernel priorities of threads with a nice value, which is the priority minus 120.
const FAIR: std::ops::Range<i32> = 100..140;

impl SchedTimeline {
    /// Adds an event on a CPU. TID 0 is the idle task of every CPU, which gives the ends of others' intervals only.
    pub fn push(&mut self, time_ns: u64, cpu: Option<u32>, tid: i32, what: SchedEvent) {
        if tid >= 0 {
            self.events.push(TimelineEvent {
                time_ns,
                cpu,
                tid,
                what,
            });
        }
    }

    /// Sets the name that a thread has from a time on. The last name is used, as after an exec.
    pub fn name(&mut self, time_ns: u64, tid: i32, name: &str) {
        let known = self.names.get(&tid);
        let is_new = known.is_none_or(|(since_ns, known)| *since_ns <= time_ns && known != name);
        if tid > 0 && !name.is_empty() && is_new {
            self.names.insert(tid, (time_ns, name.to_owned()));
        }
    }

    /// Sets the kernel's priority of a thread.
    pub fn priority(&mut self, tid: i32, priority: i32) {
        if tid > 0 {
            self.priorities.insert(tid, priority);
        }
    }

    /// Notes a part of the file that is not used.
    pub fn skip(&mut self, part: impl Into<String>) {
        self.not_kept.insert(part.into());
    }

    pub fn name_of(&self, tid: i32) -> Option<String> {
        self.names.get(&tid).map(|(_, name)| name.clone())
    }

    pub fn len(&self) -> usize {
        self.events.len()
    }

    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Computes tasks from all events.
    pub fn tasks(mut self, mut warnings: Vec<String>) -> Tasks {
        // The sort is stable: within one context switch, `Out` stays before `In`.
        self.events.sort_by_key(|event| event.time_ns);
        let first_ns = self.events.first().map_or(0, |event| event.time_ns);
        let (threads, missing) = self.threads(first_ns);
        if missing > 0 {
            warnings.push(format!(
                "{missing} switches are missing: each such thread is taken to have run until the next switch of its CPU"
            ));
        }
        let mut tasks = ThreadGroups::default();
        let mut real_time = 0;
        for (tid, thread) in threads {
            let name = self.name_of(tid);
            let priority = self.priorities.get(&tid).copied().unwrap_or(120);
            let is_fair = FAIR.contains(&priority);
            if let Some(task) = thread.task(first_ns) {
                real_time += u32::from(!is_fair);
                tasks.add(ImportedTask {
                    name: name.unwrap_or_else(|| format!("thread-{tid}")),
                    nice: if is_fair { (priority - 120) as i8 } else { 0 },
                    ..task
                });
            }
        }
        if real_time > 0 {
            warnings.push(format!(
                "{real_time} threads of real-time or deadline scheduling are imported with nice value 0"
            ));
        }
        if !self.not_kept.is_empty() {
            let parts: Vec<String> = self.not_kept.into_iter().collect();
            warnings.push(format!("not kept: {}", parts.join(", ")));
        }
        if !self
            .events
            .iter()
            .any(|event| event.what == SchedEvent::Woken)
        {
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

    /// Returns the threads by TID, and the number of missing switches: those of threads that ran on a CPU when another thread was
    /// switched out or in there.
    fn threads(&self, trace_ns: u64) -> (BTreeMap<i32, TimelineThread>, u64) {
        let mut threads: BTreeMap<i32, TimelineThread> = BTreeMap::new();
        let mut running: HashMap<u32, Option<i32>> = HashMap::new();
        let mut missing = 0;
        for &TimelineEvent {
            time_ns,
            cpu,
            tid,
            what,
        } in &self.events
        {
            let mut begun_ns = Some(trace_ns);
            if let (Some(number), true) = (cpu, what != SchedEvent::Woken) {
                let before = running.insert(number, (what == SchedEvent::In).then_some(tid));
                if let Some(Some(other)) = before
                    && other != tid
                    && let Some(thread) = threads.get_mut(&other)
                {
                    missing += 1;
                    thread.see(time_ns, cpu, SchedEvent::Out { sleeps: false }, None);
                }
                begun_ns = begun_ns.filter(|_| before.is_none());
            }
            if tid > 0 {
                let thread = threads.entry(tid).or_default();
                thread.see(time_ns, cpu, what, begun_ns);
            }
        }
        for thread in threads.values_mut() {
            thread.stop(self.events.last().map_or(0, |event| event.time_ns));
        }
        (threads, missing)
    }
}

impl TimelineThread {
    /// Adds an event. A thread that is switched out first has run since `begun_ns`.
    fn see(&mut self, time_ns: u64, cpu: Option<u32>, what: SchedEvent, begun_ns: Option<u64>) {
        match what {
            SchedEvent::In => {
                self.wake(time_ns);
                // The clocks of CPUs differ: the end of the interval on another CPU may have a later time.
                if self.running.is_some_and(|(other, _)| other != cpu) {
                    self.stop(time_ns);
                }
                self.running.get_or_insert((cpu, time_ns));
                self.first_ns.get_or_insert(time_ns);
            }
            SchedEvent::Out { .. } if self.running.is_some_and(|(other, _)| other != cpu) => {}
            SchedEvent::Out { sleeps } => {
                let begun_ns = begun_ns.filter(|_| !self.seen);
                let since_ns = self.running.take().map(|(_, since_ns)| since_ns);
                if let Some(since_ns) = since_ns.or(begun_ns) {
                    self.run_ns += time_ns - since_ns;
                    self.first_ns.get_or_insert(since_ns);
                }
                self.asleep_since_ns = sleeps.then_some(time_ns);
            }
            SchedEvent::Woken => self.wake(time_ns),
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
        if let Some((_, since_ns)) = self.running.take() {
            self.run_ns += last_ns - since_ns;
        }
    }

    /// Returns the behaviour of the thread, without its name; `None` if it did not run.
    fn task(&self, trace_ns: u64) -> Option<ImportedTask> {
        let sleeps = self.sleeps as f64;
        let first_ns = self.first_ns?;
        Some(ImportedTask {
            name: String::new(),
            cpu_s: self.run_ns as f64 * NS,
            sleeps,
            sleep_s: self.slept_ns as f64 * NS / sleeps.max(1.0),
            start_s: (first_ns - trace_ns) as f64 * NS,
            copies: 1,
            nice: 0,
            cpus: None,
        })
    }
}

/// Groups of similar threads. They have the same name and nice value, start in the same second, and sleep equally often. Their
/// bursts and sleeps are equal when they are rounded to powers of two.
#[derive(Default)]
struct ThreadGroups(BTreeMap<Likeness, Vec<ImportedTask>>);

/// Name, nice value, second of the start, number of sleeps, and sizes of bursts and sleeps.
type Likeness = (String, i8, [i64; 4]);

impl ThreadGroups {
    fn add(&mut self, task: ImportedTask) {
        let size = |seconds: f64| (seconds.max(1e-9) / 1e-9).log2() as i64;
        // The number of sleeps of a program is whole, so a mean is exact enough only of large numbers.
        let number = |sleeps: f64| if sleeps < 64.0 { sleeps as i64 } else { -1 };
        let burst_s = task.cpu_s / (task.sleeps + 1.0);
        let key = (
            task.name.clone(),
            task.nice,
            [
                task.start_s as i64,
                number(task.sleeps),
                size(burst_s),
                size(task.sleep_s),
            ],
        );
        self.0.entry(key).or_default().push(task);
    }

    fn done(self) -> Vec<ImportedTask> {
        let mut tasks: Vec<ImportedTask> = self
            .0
            .into_values()
            .filter_map(|group| mean(&group))
            .collect();
        let time = |t: &ImportedTask| t.cpu_s * f64::from(t.copies);
        tasks.sort_by(|a, b| {
            time(b)
                .total_cmp(&time(a))
                .then_with(|| a.name.cmp(&b.name))
        });
        tasks
    }
}

/// Merges a group into one task with mean values and the earliest start; `None` if the group is empty.
fn mean(group: &[ImportedTask]) -> Option<ImportedTask> {
    let copies = group.len() as f64;
    let sum = |of: fn(&ImportedTask) -> f64| group.iter().map(of).sum::<f64>();
    let sleeps = sum(|t| t.sleeps);
    let slept_s = sum(|t| t.sleeps * t.sleep_s);
    let first = group
        .iter()
        .map(|t| t.start_s)
        .fold(f64::INFINITY, f64::min);
    Some(ImportedTask {
        cpu_s: sum(|t| t.cpu_s) / copies,
        sleeps: sleeps / copies,
        sleep_s: slept_s / sleeps.max(1.0),
        start_s: first,
        copies: group.len() as u32,
        ..group.first()?.clone()
    })
}
