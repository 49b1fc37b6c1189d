//! Whether a machine is possible.

use super::{Machine, SCHEMA};
use crate::cpuset::CpuSet;
use crate::textfile::{TextError, table_line};
use crate::units::CpuId;

/// What is impossible, in the `nth` table of a name.
pub(super) struct Problem {
    table: &'static str,
    nth: usize,
    message: String,
}

impl Problem {
    /// The error with its line.
    pub(super) fn locate(self, path: &str, text: &str) -> TextError {
        match table_line(text, self.table, self.nth) {
            Some(line) => TextError::at_line(path, text, line, self.message),
            None => TextError::value(path, self.message),
        }
    }
}

fn problem<T>(table: &'static str, nth: usize, message: impl Into<String>) -> Result<T, Problem> {
    Err(Problem { table, nth, message: message.into() })
}

pub(super) fn check(machine: &Machine) -> Result<(), Problem> {
    if machine.schema != SCHEMA {
        return problem("", 0, format!("schema is `{}`, this version reads `{SCHEMA}`", machine.schema));
    }
    if machine.name.is_empty() || machine.hz == 0 || machine.hz > 10_000 || !at_least(0.0, machine.static_power_w) {
        return problem("", 0, "`name` is empty, `hz` is not within 1 to 10,000, or `static_power_w` is negative");
    }
    core_types(machine)?;
    cores(machine)?;
    caches(machine)?;
    memory(machine)
}

fn at_least(low: f64, x: f64) -> bool {
    x.is_finite() && x >= low
}

fn positive(x: f64) -> bool {
    x.is_finite() && x > 0.0
}

fn core_types(machine: &Machine) -> Result<(), Problem> {
    if machine.core_type.is_empty() {
        return problem("core_type", 0, "there is no `[[core_type]]`");
    }
    for (i, t) in machine.core_type.iter().enumerate() {
        let fail = |what: &str| problem("core_type", i, format!("core type `{}`: {what}", t.name));
        if machine.core_type[..i].iter().any(|other| other.name == t.name) {
            return fail("the name is taken by an earlier core type");
        }
        if !positive(t.dispatch_width) || t.dispatch_width > 64.0 || t.window == 0 || !positive(t.freq_ghz) {
            return fail("`dispatch_width`, `window` and `freq_ghz` must be positive");
        }
        if t.smt == 0 || t.smt > 8 {
            return fail("`smt` must be 1 to 8");
        }
        if t.capacity == 0 || t.capacity > 1024 {
            return fail("`capacity` must be 1 to 1024");
        }
        if !at_least(0.0, t.branch_penalty_cycles) {
            return fail("`branch_penalty_cycles` is negative");
        }
        for cache in [Some(t.l1d), t.l2].into_iter().flatten() {
            if !positive(cache.size_kib) || cache.ways == 0 || !at_least(0.0, cache.latency_cycles) {
                return fail("a cache has zero size, no ways or a negative latency");
            }
        }
        let p = t.power;
        if [p.idle_w, p.active_w, p.instruction_nj, p.fp_nj, p.simd_nj].iter().any(|x| !at_least(0.0, *x)) {
            return fail("a power figure is negative");
        }
    }
    if machine.core_type.iter().all(|t| t.capacity != 1024) {
        return problem("core_type", 0, "no core type has `capacity = 1024`; the fastest one must");
    }
    Ok(())
}

fn cores(machine: &Machine) -> Result<(), Problem> {
    let mut seen = CpuSet::default();
    for (i, range) in machine.cores.iter().enumerate() {
        let Some(core_type) = machine.core_type.iter().find(|t| t.name == range.core_type) else {
            return problem("cores", i, format!("no core type is called `{}`", range.core_type));
        };
        if range.cpus.is_empty() {
            return problem("cores", i, "`cpus` is empty");
        }
        if let Some(cpu) = range.cpus.intersection(&seen).lowest() {
            return problem("cores", i, format!("CPU {} is in an earlier `[[cores]]` too", cpu.0));
        }
        let split = split_into_cores(&range.cpus, core_type.smt, range.sibling_step);
        if split.is_none() {
            let (n, smt, step) = (range.cpus.len(), core_type.smt, range.sibling_step);
            let message = format!(
                "{n} CPUs do not make whole cores of {smt} threads with siblings {step} apart; a `{}` core has {smt}",
                core_type.name
            );
            return problem("cores", i, message);
        }
        seen = seen.iter().chain(range.cpus.iter()).collect();
    }
    if seen.is_empty() {
        return problem("cores", 0, "there is no `[[cores]]`");
    }
    let count = u32::try_from(seen.len()).unwrap_or(u32::MAX);
    if seen != CpuSet::first(count) {
        return problem("cores", 0, format!("CPUs are {seen}, not 0-{} without holes", count - 1));
    }
    Ok(())
}

/// The cores that `cpus` make: each takes the lowest free CPU and its siblings.
pub(crate) fn split_into_cores(cpus: &CpuSet, smt: u32, step: u32) -> Option<Vec<Vec<CpuId>>> {
    if smt > 1 && step == 0 {
        return None;
    }
    let mut free = cpus.clone();
    let mut cores = Vec::new();
    while let Some(first) = free.lowest() {
        let core: Vec<CpuId> = (0..smt).map(|k| CpuId(first.0 + k * step)).collect();
        for cpu in &core {
            if !free.contains(*cpu) {
                return None;
            }
            free.remove(*cpu);
        }
        cores.push(core);
    }
    Some(cores)
}

fn caches(machine: &Machine) -> Result<(), Problem> {
    let all = CpuSet::first(u32::try_from(machine.cpu_count()).unwrap_or(u32::MAX));
    for (i, cache) in machine.cache.iter().enumerate() {
        let fail = |what: String| problem("cache", i, what);
        if !positive(cache.size_kib) || cache.ways == 0 || !at_least(0.0, cache.latency_ns) || !at_least(0.0, cache.access_nj) {
            return fail("zero size, no ways, or a negative latency or energy".into());
        }
        if !(2..=4).contains(&cache.level) {
            return fail(format!("`level` is {}, shared caches have 2 to 4", cache.level));
        }
        if cache.cpus.is_empty() || !cache.cpus.is_subset(&all) {
            return fail(format!("`cpus` is empty or names CPUs outside {all}"));
        }
        for other in &machine.cache[..i] {
            if other.level == cache.level && other.cpus.intersects(&cache.cpus) {
                return fail(format!("shares CPUs with another level-{} cache: {}", cache.level, other.cpus));
            }
            let (inner, outer) = if other.level < cache.level { (other, cache) } else { (cache, other) };
            if inner.level < outer.level && inner.cpus.intersects(&outer.cpus) && !inner.cpus.is_subset(&outer.cpus) {
                return fail(format!("a level-{} cache crosses a level-{} one", outer.level, inner.level));
            }
        }
    }
    Ok(())
}

fn memory(machine: &Machine) -> Result<(), Problem> {
    let mut seen = CpuSet::default();
    for (i, memory) in machine.memory.iter().enumerate() {
        if !positive(memory.latency_ns) || !positive(memory.bandwidth_gb_s) || !at_least(0.0, memory.access_nj) {
            return problem("memory", i, "latency and bandwidth must be positive, energy not negative");
        }
        if seen.intersects(&memory.cpus) {
            return problem("memory", i, "a CPU is in an earlier `[[memory]]` too");
        }
        seen = seen.iter().chain(memory.cpus.iter()).collect();
    }
    let count = machine.cpu_count();
    if seen != CpuSet::first(u32::try_from(count).unwrap_or(u32::MAX)) {
        return problem("memory", 0, format!("memory domains cover CPUs {seen}, the machine has 0-{}", count - 1));
    }
    Ok(())
}
