//! The Linux model compared with a kernel: equal sets of tasks on one CPU.
//!
//! Input: `bench/task-sets.tsv`, and the output of `task_set` under a kernel, in the file named by `COUNTERSTEER_KERNEL_RUN`.
//! `bench/run.sh` creates this file in a virtual machine that uses instruction counts as time, so that the kernel's results are
//! equal in every run.

use std::collections::BTreeMap;
use std::error::Error;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::machine::Machine;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ThreadId};
use countersteer_sim::linux::{Linux, LinuxConfig, kernel};

use super::runner;

/// The model's counterpart of the virtual machine's kernel.
const KERNEL: &str = "7.2";
/// Length of the kernel's run.
const SECONDS: u64 = 3;

struct Task {
    name: String,
    nice: i8,
    work_ns: u64,
    sleep_ns: u64,
}

/// Outcome of a task.
#[derive(Clone, Copy)]
struct Fate {
    ran_s: f64,
    waited_s: f64,
    intervals: f64,
}

/// Prints the section.
pub fn run() -> Result<(), Box<dyn Error>> {
    println!(
        "\n### The Linux model against a real kernel ({KERNEL}): tasks that share one CPU for {SECONDS} s\n"
    );
    let Some(path) = std::env::var_os("COUNTERSTEER_KERNEL_RUN") else {
        println!(
            "Not measured: COUNTERSTEER_KERNEL_RUN names no run of `task_set` under a kernel."
        );
        return Ok(());
    };
    let real_fates = fates(&std::fs::read_to_string(path)?)?;
    let text = std::fs::read_to_string(runner::root().join("bench/task-sets.tsv"))?;
    let mut sets: BTreeMap<String, Vec<Task>> = BTreeMap::new();
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let (set, task) = task(line)?;
        sets.entry(set).or_default().push(task);
    }
    println!(
        "| set | task | CPU time: kernel, s | model | waiting: kernel, s | model | run intervals: kernel | model |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut worst: (f64, f64, f64) = (0.0, 0.0, 0.0);
    for (set, tasks) in &sets {
        for (task, model) in tasks.iter().zip(simulate(tasks)?) {
            let name = &task.name;
            let real = real_fates
                .get(&(set.clone(), name.clone()))
                .ok_or(format!("the kernel's run lacks {set} {name}"))?;
            println!(
                "| {set} | {name} | {:.3} | {:.3} | {:.3} | {:.3} | {} | {} |",
                real.ran_s,
                model.ran_s,
                real.waited_s,
                model.waited_s,
                real.intervals,
                model.intervals
            );
            let length = SECONDS as f64;
            worst.0 = worst.0.max((real.ran_s - model.ran_s).abs() / length);
            worst.1 = worst.1.max((real.waited_s - model.waited_s).abs() / length);
            worst.2 = worst.2.max((model.intervals / real.intervals).ln().abs());
        }
    }
    println!(
        "\nFurthest apart: {:.1} % of the CPU in CPU time, {:.1} % in waiting, a factor of {:.2} in the number of run intervals.",
        100.0 * worst.0,
        100.0 * worst.1,
        worst.2.exp()
    );
    Ok(())
}

fn task(line: &str) -> Result<(String, Task), Box<dyn Error>> {
    let [set, name, nice, work, sleep] = line.split('\t').collect::<Vec<_>>()[..] else {
        return Err(format!("`{line}` has not five fields").into());
    };
    let nanos = |text: &str| text.parse().map(|us: u64| us * 1_000);
    Ok((
        set.into(),
        Task {
            name: name.into(),
            nice: nice.parse()?,
            work_ns: nanos(work)?,
            sleep_ns: nanos(sleep)?,
        },
    ))
}

fn fates(text: &str) -> Result<BTreeMap<(String, String), Fate>, Box<dyn Error>> {
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let [set, name, ran, waited, intervals] = line.split('\t').collect::<Vec<_>>()[..] else {
            return Err(format!("`{line}` has not five fields").into());
        };
        let seconds = |text: &str| text.parse().map(|ns: f64| ns * 1e-9);
        let fate = Fate {
            ran_s: seconds(ran)?,
            waited_s: seconds(waited)?,
            intervals: intervals.parse()?,
        };
        all.insert((set.to_owned(), name.to_owned()), fate);
    }
    Ok(all)
}

/// Lets tasks work and sleep under the model.
fn simulate(tasks: &[Task]) -> Result<Vec<Fate>, Box<dyn Error>> {
    let topology = one_cpu()?;
    // The virtual machine runs little besides the tasks.
    let config = LinuxConfig {
        disturbed_every_ns: None,
        ..(kernel(KERNEL).ok_or("no such kernel")?.config)()
    };
    let mut linux = Linux::new(&topology, config);
    let cpu = CpuId(0);
    let mut threads: Vec<(u64, Option<u64>)> = Vec::new();
    for (row, task) in tasks.iter().enumerate() {
        linux.fork(
            ThreadId::from_index(row),
            task.nice,
            &CpuSet::first(1),
            Some(cpu),
            Nanos::ZERO,
        );
        // Work left, and time of the next wake-up.
        threads.push((task.work_ns, None));
    }
    let mut intervals = vec![0.0; tasks.len()];
    let (mut now, mut running) = (0, linux.running(cpu));
    let end = SECONDS * 1_000_000_000;
    while now < end {
        let done = running.map_or(u64::MAX, |t| now + threads[t.index()].0);
        let wake = threads.iter().filter_map(|t| t.1).min().unwrap_or(u64::MAX);
        let next = done.min(wake).min(linux.next_event().0).min(end);
        if let Some(t) = running {
            threads[t.index()].0 -= next - now;
        }
        now = next;
        if let Some(t) = running.filter(|t| threads[t.index()].0 == 0) {
            let task = &tasks[t.index()];
            threads[t.index()] = (
                task.work_ns,
                (task.sleep_ns > 0).then_some(now + task.sleep_ns),
            );
            if task.sleep_ns > 0 {
                linux.block(t, Nanos(now));
            }
        }
        for (row, (_, wakes)) in threads.iter_mut().enumerate() {
            if wakes.take_if(|at| *at <= now).is_some() {
                linux.wake(ThreadId::from_index(row), None, Nanos(now));
            }
        }
        linux.advance(Nanos(now));
        linux
            .take_switches()
            .filter_map(|s| s.next)
            .for_each(|t| intervals[t.index()] += 1.0);
        running = linux.running(cpu);
    }
    let seconds = |ns: Nanos| ns.as_secs_f64();
    let fate = |row: usize| {
        let t = ThreadId::from_index(row);
        Fate {
            ran_s: seconds(linux.run_time(t)),
            waited_s: seconds(linux.run_delay(t)),
            intervals: intervals[row],
        }
    };
    Ok((0..tasks.len()).map(fate).collect())
}

/// One core of a shipped machine.
fn one_cpu() -> Result<Topology, Box<dyn Error>> {
    let text = std::fs::read_to_string(runner::root().join("machines/quickia-2b-2s.toml"))?;
    let mut table: toml::Table = text.parse()?;
    let only = |key: &str, value: toml::Value| {
        let mut list = table
            .get(key)
            .and_then(|v| v.as_array())
            .cloned()
            .unwrap_or_default();
        list.truncate(1);
        list.iter_mut()
            .filter_map(|t| t.as_table_mut())
            .for_each(|t| drop(t.insert("cpus".into(), value.clone())));
        (key.to_owned(), toml::Value::Array(list))
    };
    let cores = only("cores", "0".into());
    let memory = only("memory", "0".into());
    table.extend([cores, memory]);
    let types = table
        .get_mut("core_type")
        .and_then(|v| v.as_array_mut())
        .ok_or("no core types")?;
    types.truncate(1);
    Ok(Topology::new(&Machine::parse(
        "one-cpu",
        &toml::to_string(&table)?,
    )?))
}
