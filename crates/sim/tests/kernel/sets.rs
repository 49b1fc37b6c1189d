//! Sets of tasks, their outcomes, and the measures by which two runs are compared.

use std::collections::BTreeMap;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::CpuId;

/// Mechanism by which one task starts another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Pipe,
    Futex,
}

/// A line of `sets.tsv`; `vm/sets.c` describes the fields.
#[derive(Clone, Debug)]
pub struct Task {
    pub name: String,
    /// Tasks of a set with equal parameters are exchangeable: chance decides their CPUs.
    pub role: String,
    pub process: String,
    pub nice: i8,
    pub work_us: u64,
    pub sleep_us: u64,
    pub from: Option<String>,
    pub how: How,
    pub mask: Option<CpuSet>,
    /// Affinity mask after this number of milliseconds.
    pub later: Option<(u64, CpuSet)>,
}

/// Outcome of a task.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub role: String,
    pub process: String,
    /// CPU time as a share of the run.
    pub share: f64,
    pub migrations: f64,
    /// Median run-queue latency, and the number of waits.
    pub wait_ns: f64,
    pub picked: f64,
    pub waited_us: f64,
    /// Time on each CPU in microseconds.
    pub on_cpu: Vec<f64>,
}

/// Compared measures of a role: means over its tasks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    pub share: f64,
    /// Part of their processes' time under the last-level cache that each process used most.
    pub gathered: f64,
    pub migrations: f64,
    pub wait_ms: f64,
    pub picked: f64,
}

/// Process of lines that are no tasks: CPUs that go offline and online.
const HOTPLUG: &str = "hotplug";

/// A CPU that goes offline or online some time after the start.
#[derive(Clone, Copy, Debug)]
pub struct Plug {
    pub at_ms: u64,
    pub cpu: CpuId,
    pub online: bool,
}

/// CPUs that go offline and online in a set, in order of time.
pub fn plugs(set: &str) -> Vec<Plug> {
    let lines = include_str!("sets.tsv").lines();
    let fields = lines.map(|l| l.split('\t').collect::<Vec<&str>>());
    let of_set = fields.filter(|f| f[0] == set && f[2] == HOTPLUG);
    let mut plugs: Vec<Plug> = of_set
        .flat_map(|f| {
            let cpu = CpuId(f[1].trim_start_matches("cpu").parse().unwrap());
            [(f[4], false), (f[5], true)].map(|(ms, online)| Plug {
                at_ms: ms.parse().unwrap(),
                cpu,
                online,
            })
        })
        .collect();
    plugs.sort_by_key(|p| p.at_ms);
    plugs
}

/// Sets of `sets.tsv`, by name.
pub fn sets() -> BTreeMap<String, Vec<Task>> {
    let mut sets: BTreeMap<String, Vec<Task>> = BTreeMap::new();
    for line in include_str!("sets.tsv")
        .lines()
        .filter(|l| !l.starts_with('#'))
    {
        let f: Vec<&str> = line.split('\t').collect();
        if f[2] == HOTPLUG {
            continue;
        }
        let given = |text: &str| (text != "-").then(|| text.to_owned());
        let task = Task {
            name: f[1].into(),
            role: role(&f),
            process: f[2].into(),
            nice: f[3].parse().unwrap(),
            work_us: f[4].parse().unwrap(),
            sleep_us: f[5].parse().unwrap(),
            from: given(f[6]),
            how: if f[7] == "pipe" {
                How::Pipe
            } else {
                How::Futex
            },
            mask: given(f[8]).map(|m| mask(&m)),
            later: given(f[9]).map(|m| {
                let (bits, ms) = m.split_once('@').unwrap();
                (ms.parse().unwrap(), mask(bits))
            }),
        };
        sets.entry(f[0].into()).or_default().push(task);
    }
    sets
}

fn role(f: &[&str]) -> String {
    let mut role = format!("{}+{}", f[4], f[5]);
    if f[3] != "0" {
        role += &format!(" nice {}", f[3]);
    }
    if f[6] != "-" {
        // The first letter of the starting task stands for its role.
        role += &format!(" after {}", &f[6][..1]);
    }
    if f[9] != "-" {
        role += " moved";
    }
    role
}

fn mask(bits: &str) -> CpuSet {
    let bits = u64::from_str_radix(bits, 16).unwrap();
    let cpus = (0..64).filter(|c| bits >> c & 1 == 1);
    cpus.map(CpuId).collect()
}

/// Output of `vm/sets.c` by set: the runs, each with its tasks in order.
pub fn printed(
    text: &str,
    sets: &BTreeMap<String, Vec<Task>>,
) -> BTreeMap<String, Vec<Vec<Outcome>>> {
    let mut all: BTreeMap<String, Vec<Vec<Outcome>>> = BTreeMap::new();
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let f: Vec<&str> = line.split('\t').collect();
        let number = |at: usize| -> f64 { f[at].parse().unwrap() };
        let tasks = &sets[f[0]];
        let task = tasks.iter().find(|t| t.name == f[1]).unwrap();
        let runs = all.entry(f[0].into()).or_default();
        if runs.last().is_none_or(|run| run.len() == tasks.len()) {
            runs.push(Vec::new());
        }
        runs.last_mut().unwrap().push(Outcome {
            role: task.role.clone(),
            process: f[2].into(),
            share: number(3) * 1e-9 / 1.5,
            waited_us: number(4) * 1e-3,
            picked: number(5),
            migrations: number(6),
            wait_ns: number(7),
            on_cpu: f[8].split(',').map(|us| us.parse().unwrap()).collect(),
        });
    }
    all
}

/// Mean overhead of the emulated machine per job.
#[derive(Clone, Copy, Debug, Default)]
pub struct Emulated {
    /// CPU time of system calls.
    pub calls_us: f64,
    /// Time from the due end of a sleep to the wake-up.
    pub late_us: f64,
}

/// Overhead of the emulated machine, by role.
///
/// The work, the waits and the requested sleeps of a task are known. System calls account for the rest of its CPU time, and
/// timers for the rest of its time.
pub fn emulated(outcomes: &[Outcome], tasks: &[Task]) -> BTreeMap<String, Emulated> {
    let mut sums: BTreeMap<String, [f64; 3]> = BTreeMap::new();
    for (outcome, task) in outcomes.iter().zip(tasks) {
        let work: f64 = outcome.on_cpu.iter().sum();
        let most = work / task.work_us as f64;
        // A task that waits between jobs gets a CPU at least once per job; its work overshoots by one step of its loop.
        let pauses = task.sleep_us > 0 || task.from.is_some();
        let jobs = if pauses {
            most.min(outcome.picked)
        } else {
            most
        };
        let ran = outcome.share * 1.5e6;
        let asleep = 1.5e6 - ran - outcome.waited_us - jobs * task.sleep_us as f64;
        let sum = sums.entry(outcome.role.clone()).or_default();
        sum[0] += jobs;
        sum[1] += ran - jobs * task.work_us as f64;
        sum[2] += if task.sleep_us > 0 { asleep } else { 0.0 };
    }
    let mean = |[jobs, calls, late]: [f64; 3]| Emulated {
        calls_us: (calls / jobs).max(0.0),
        late_us: (late / jobs).max(0.0),
    };
    sums.into_iter().map(|(role, s)| (role, mean(s))).collect()
}

impl Figures {
    /// Adds another's measures with a weight.
    pub fn add(&mut self, other: &Self, weight: f64) {
        self.share += weight * other.share;
        self.gathered += weight * other.gathered;
        self.migrations += weight * other.migrations;
        self.picked += weight * other.picked;
        self.wait_ms += weight * other.wait_ms;
    }
}

/// Groups of CPUs, equal in size.
#[derive(Clone, Copy, Debug)]
pub enum Groups {
    /// This number of last-level caches: a process is gathered under the one that it uses most.
    Caches(usize),
    /// Fast CPUs, then slow ones: a process is gathered on fast ones.
    CoreTypes,
}

/// Measures by role, on a machine with one or two last-level caches.
pub fn figures(outcomes: &[Outcome], groups: Groups) -> BTreeMap<String, Figures> {
    let mut by_process: BTreeMap<&str, [f64; 2]> = BTreeMap::new();
    let number = match groups {
        Groups::Caches(number) => number,
        Groups::CoreTypes => 2,
    };
    for outcome in outcomes {
        let each = outcome.on_cpu.len() / number;
        let times = by_process.entry(&outcome.process).or_default();
        for (cpu, us) in outcome.on_cpu.iter().enumerate() {
            times[cpu / each] += us;
        }
    }
    let mut roles: BTreeMap<String, Vec<&Outcome>> = BTreeMap::new();
    for outcome in outcomes {
        roles.entry(outcome.role.clone()).or_default().push(outcome);
    }
    let gathered = |o: &Outcome| {
        let [a, b] = by_process[o.process.as_str()];
        let most = match groups {
            Groups::Caches(_) => a.max(b),
            Groups::CoreTypes => a,
        };
        most / (a + b).max(1e-9)
    };
    let mean = |of: &[&Outcome]| {
        let mut sum = Figures::default();
        for o in of {
            let own = Figures {
                share: o.share,
                gathered: gathered(o),
                migrations: o.migrations,
                picked: o.picked,
                wait_ms: o.wait_ns * 1e-6,
            };
            sum.add(&own, 1.0 / of.len() as f64);
        }
        sum
    };
    roles
        .iter()
        .map(|(role, of)| (role.clone(), mean(of)))
        .collect()
}
