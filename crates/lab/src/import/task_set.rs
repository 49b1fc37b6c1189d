//! Sets of tasks for kernels: the same recordings as lines for `vm/sets.c`, which runs them under a kernel in a virtual machine.
//!
//! Input: imported tasks. Output: a line per task. All tasks are threads of one process. Starts and ends are not kept, because a set
//! runs for a fixed time.

use std::fmt::Write;

use super::ImportedTask;

/// Longest name in a line.
const LONGEST: usize = 31;
/// Most tasks of a set.
const MOST: u32 = 64;
/// Work of a task that never sleeps, in microseconds; the task repeats it.
const STEP_US: f64 = 1000.0;

/// Returns the lines of the set named `set`.
///
/// # Errors
/// Returns a sentence with the error if there are too many tasks, or if `set` is no name for a set.
pub(super) fn lines(
    tasks: &[ImportedTask],
    set: &str,
    warnings: &mut Vec<String>,
) -> Result<String, String> {
    let is_name = !set.is_empty() && set.len() <= LONGEST && !set.contains(char::is_whitespace);
    if !is_name {
        return Err(format!(
            "`{set}` cannot be the name of a set: use up to {LONGEST} characters without spaces"
        ));
    }
    let number: u32 = tasks.iter().map(|t| t.copies).sum();
    if number > MOST {
        return Err(format!("a set has up to {MOST} tasks; there are {number}"));
    }
    let mut text = String::new();
    for task in tasks {
        if task.start_s > 0.0 {
            warnings.push(format!(
                "task `{}` starts with the others, not after {} s",
                task.name, task.start_s
            ));
        }
        let sleeps = task.sleeps > 0.0 && task.sleep_s > 0.0;
        let (work_us, sleep_us) = if sleeps {
            (task.cpu_s * 1e6 / (task.sleeps + 1.0), task.sleep_s * 1e6)
        } else {
            (STEP_US, 0.0)
        };
        let mask = task.cpus.as_deref().map_or(Ok("-".into()), mask)?;
        for copy in 1..=task.copies {
            let name = name(&task.name, copy);
            let nice = task.nice;
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{set}\t{name}\t{set}\t{nice}\t{work_us:.0}\t{sleep_us:.0}\t-\t-\t{mask}\t-"
            );
        }
    }
    Ok(text)
}

/// Name of a copy of a task, short and without spaces.
fn name(task: &str, copy: u32) -> String {
    let number = if copy > 1 {
        format!("-{copy}")
    } else {
        String::new()
    };
    let plain = |c: char| if c.is_ascii_graphic() { c } else { '_' };
    let kept = task.chars().map(plain).take(LONGEST - number.len());
    kept.collect::<String>() + &number
}

/// CPU list as a hexadecimal mask.
fn mask(list: &str) -> Result<String, String> {
    let cpus = list
        .parse::<countersteer_model::cpuset::CpuSet>()
        .map_err(|e| e.to_string())?;
    let mut bits = 0_u64;
    for cpu in cpus.iter() {
        let bit = 1_u64.checked_shl(cpu.0).filter(|_| cpu.0 < 64);
        bits |= bit.ok_or_else(|| format!("CPU {} is not among the first 64", cpu.0))?;
    }
    Ok(format!("{bits:x}"))
}
