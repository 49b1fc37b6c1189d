//! Runs sets of tasks on CPU 0 and prints their run times and run-queue latencies: the reference for the Linux model.
//!
//! `task_set FILE SECONDS` reads lines `set task nice work_us sleep_us` and prints, per task,
//! `set task run_ns wait_ns intervals` as the kernel's schedstat counts them. Negative nice values need root.

use std::error::Error;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use countersteer_model::cpuset::CpuSet;

#[derive(Clone)]
struct Task {
    set: String,
    name: String,
    nice: i32,
    work: Duration,
    sleep: Duration,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, file, seconds] = &args[..] else {
        return Err("usage: task_set FILE SECONDS".into());
    };
    let tasks: Vec<Task> = std::fs::read_to_string(file)?
        .lines()
        .filter(|l| !l.starts_with('#'))
        .map(task)
        .collect::<Result<_, _>>()?;
    pin(&CpuSet::first(1))?;
    let length = Duration::from_secs_f64(seconds.parse()?);
    for set in tasks.chunk_by(|a, b| a.set == b.set) {
        run(set, length)?;
    }
    Ok(())
}

fn task(line: &str) -> Result<Task, Box<dyn Error>> {
    let [set, name, nice, work, sleep] = line.split('\t').collect::<Vec<_>>()[..] else {
        return Err(format!("`{line}` has not five fields").into());
    };
    let micros = |text: &str| text.parse().map(Duration::from_micros);
    Ok(Task {
        set: set.into(),
        name: name.into(),
        nice: nice.parse()?,
        work: micros(work)?,
        sleep: micros(sleep)?,
    })
}

fn pin(cpus: &CpuSet) -> Result<(), Box<dyn Error>> {
    let mut set = nix::sched::CpuSet::new();
    cpus.iter().try_for_each(|c| set.set(c.index()))?;
    Ok(nix::sched::sched_setaffinity(
        nix::unistd::Pid::from_raw(0),
        &set,
    )?)
}

fn run(set: &[Task], length: Duration) -> Result<(), Box<dyn Error>> {
    let ready = Arc::new(Barrier::new(set.len()));
    let threads: Vec<_> = set
        .iter()
        .map(|task| (task.clone(), Arc::clone(&ready)))
        .map(|(task, ready)| {
            std::thread::spawn(move || live(&task, &ready, length).map_err(|e| e.to_string()))
        })
        .collect();
    for (task, thread) in set.iter().zip(threads) {
        let [ran, waited, intervals] = thread.join().map_err(|_| "a task fell")??;
        println!("{}\t{}\t{ran}\t{waited}\t{intervals}", task.set, task.name);
    }
    Ok(())
}

/// Works and sleeps. Returns the differences of the thread's schedstat.
fn live(task: &Task, ready: &Barrier, length: Duration) -> Result<[u64; 3], Box<dyn Error>> {
    // SAFETY: both calls take plain numbers and concern this thread alone.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
        libc::setpriority(libc::PRIO_PROCESS, 0, task.nice) != 0
    };
    if refused {
        return Err(format!(
            "nice {} is not permitted: {}",
            task.nice,
            std::io::Error::last_os_error()
        )
        .into());
    }
    ready.wait();
    let (begin, before) = (Instant::now(), schedstat()?);
    while begin.elapsed() < length {
        let until = cpu_time()? + task.work;
        while cpu_time()? < until {
            std::hint::spin_loop();
        }
        if task.sleep > Duration::ZERO {
            std::thread::sleep(task.sleep);
        }
    }
    let after = schedstat()?;
    Ok(std::array::from_fn(|i| after[i] - before[i]))
}

fn cpu_time() -> Result<Duration, Box<dyn Error>> {
    Ok(nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

fn schedstat() -> Result<[u64; 3], Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let numbers: Vec<u64> = text
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    Ok([numbers[0], numbers[1], numbers[2]])
}
