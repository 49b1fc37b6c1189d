//! Whether a machine is possible.
//!
//! Input: a [`Machine`] just read. Output: nothing, or the first [`Problem`], which knows its table and key in the file.

use super::{CoreType, Cores, Machine, SCHEMA};
use crate::cpuset::CpuSet;
use crate::metric::steps::StepModel;
use crate::textfile::{TextError, table_line};
use crate::units::CpuId;

/// What is impossible, at a key in the `nth` table of a name; the table `""` is the top of the file.
pub(super) struct Problem {
    table: &'static str,
    nth: usize,
    key: &'static str,
    message: String,
}

impl Problem {
    /// The error with its line.
    pub(super) fn locate(self, path: &str, text: &str) -> TextError {
        match self.line(text) {
            Some(line) => TextError::at_line(path, text, line, self.message),
            None => TextError::value(path, self.message),
        }
    }

    /// The line of the key, as `key = ..` or as `[table.key]`, else that of the table.
    fn line(&self, text: &str) -> Option<usize> {
        let header = if self.table.is_empty() {
            0
        } else {
            table_line(text, self.table, self.nth)?
        };
        let array = format!("[[{}", self.table);
        let sub = format!("[{}.{}]", self.table, self.key);
        let own = |line: &&str| {
            !line.starts_with('[') || (!self.table.is_empty() && line.starts_with(&array[1..]))
        };
        let is_key = |line: &str| {
            let value = line
                .strip_prefix(self.key)
                .is_some_and(|rest| rest.trim_start().starts_with('='));
            !self.key.is_empty() && (value || line.starts_with(&sub))
        };
        let lines = text.lines().map(str::trim_start).skip(header);
        let found = lines
            .take_while(own)
            .position(is_key)
            .map(|i| header + i + 1);
        found.or((header > 0).then_some(header))
    }
}

fn problem<T>(
    table: &'static str,
    nth: usize,
    key: &'static str,
    message: impl Into<String>,
) -> Result<T, Problem> {
    Err(Problem {
        table,
        nth,
        key,
        message: message.into(),
    })
}

/// A number and the range it must be within, with the key it stands at.
type Rule<'a> = (&'static str, f64, std::ops::RangeInclusive<f64>, &'a str);

/// The first broken rule: its key, and what is wrong in words.
fn broken(rules: &[Rule<'_>]) -> Option<(&'static str, String)> {
    let bad = rules
        .iter()
        .find(|(_, value, range, _)| !value.is_finite() || !range.contains(value));
    bad.map(|(key, value, _, must)| (*key, format!("`{key}` is {value}; it must be {must}")))
}

const NOT_NEGATIVE: std::ops::RangeInclusive<f64> = 0.0..=f64::MAX;
const POSITIVE: std::ops::RangeInclusive<f64> = f64::MIN_POSITIVE..=f64::MAX;

pub(super) fn check(machine: &Machine) -> Result<(), Problem> {
    if machine.schema != SCHEMA {
        let message = format!(
            "schema is `{}`, this version reads `{SCHEMA}`",
            machine.schema
        );
        return problem("", 0, "schema", message);
    }
    if !is_name(&machine.name) {
        return problem(
            "",
            0,
            "name",
            "`name` must be lower-case letters, digits, dots and dashes, like `i9-12900k`",
        );
    }
    let rules: [Rule<'_>; 2] = [
        ("hz", f64::from(machine.hz), 1.0..=10_000.0, "1 to 10000"),
        (
            "static_power_w",
            machine.static_power_w,
            NOT_NEGATIVE,
            "0 or more",
        ),
    ];
    if let Some((key, message)) = broken(&rules) {
        return problem("", 0, key, message);
    }
    core_types(machine)?;
    let cores = cores(machine)?;
    caches(machine, &cores)?;
    memory(machine, &cores)?;
    os_cpus(machine)
}

fn is_name(name: &str) -> bool {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(fine)
}

/// Names that core groups of other kinds have; a core type of that name could not be told from them.
fn is_group_name(name: &str) -> bool {
    let counted = ["llc", "node", "socket", "core", "cpu"].iter().any(|kind| {
        name.strip_prefix(kind)
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    });
    counted || name == "machine"
}

fn core_types(machine: &Machine) -> Result<(), Problem> {
    if machine.core_type.is_empty() {
        return problem("core_type", 0, "", "there is no `[[core_type]]`");
    }
    for (i, t) in machine.core_type.iter().enumerate() {
        let fail = |key, what: &str| {
            problem(
                "core_type",
                i,
                key,
                format!("core type `{}`: {what}", t.name),
            )
        };
        if !is_name(&t.name) || is_group_name(&t.name) {
            return fail(
                "name",
                "a name is lower-case letters, digits, dots and dashes, and not one like `core0` or `llc1`",
            );
        }
        if machine.core_type[..i]
            .iter()
            .any(|other| other.name == t.name)
        {
            return fail("name", "the name is taken by an earlier core type");
        }
        if !machine.cores.iter().any(|c| c.core_type == t.name) {
            return fail("name", "no `[[cores]]` are of this type");
        }
        if let Some((key, message)) = broken(&core_type_rules(t)) {
            return fail(key, &message);
        }
        for (key, cache) in [("l1d", Some(t.l1d)), ("l2", t.l2)] {
            let sane = |c: super::PrivateCache| {
                POSITIVE.contains(&c.size_kib)
                    && c.ways > 0
                    && NOT_NEGATIVE.contains(&c.latency_cycles)
            };
            if !cache.is_none_or(sane) {
                return fail(
                    key,
                    &format!("`{key}` has zero size, no ways or a negative latency"),
                );
            }
        }
        let p = t.power;
        if [p.idle_w, p.active_w, p.instruction_nj, p.fp_nj, p.simd_nj]
            .iter()
            .any(|x| !NOT_NEGATIVE.contains(x))
        {
            return fail("power", "a power figure is negative");
        }
        if let Some(fault) = t.sf_steps.as_ref().and_then(StepModel::fault) {
            return fail("sf_steps", &fault);
        }
    }
    if machine.core_type.iter().all(|t| t.capacity != 1024) {
        return problem(
            "core_type",
            0,
            "capacity",
            "no core type has `capacity = 1024`; the fastest one must",
        );
    }
    Ok(())
}

fn core_type_rules(t: &CoreType) -> [Rule<'static>; 8] {
    [
        (
            "dispatch_width",
            t.dispatch_width,
            f64::MIN_POSITIVE..=64.0,
            "above 0 and at most 64",
        ),
        ("window", f64::from(t.window), 1.0..=65_536.0, "1 to 65536"),
        ("smt", f64::from(t.smt), 1.0..=8.0, "1 to 8"),
        ("freq_ghz", t.freq_ghz, 0.001..=100.0, "0.001 to 100"),
        ("capacity", f64::from(t.capacity), 1.0..=1024.0, "1 to 1024"),
        (
            "branch_penalty_cycles",
            t.branch_penalty_cycles,
            NOT_NEGATIVE,
            "0 or more",
        ),
        ("counters", f64::from(t.counters), 0.0..=64.0, "at most 64"),
        (
            "fixed_counters",
            f64::from(t.fixed_counters),
            0.0..=2.0,
            "0 to 2",
        ),
    ]
}

/// Checks `[[cores]]` and returns each core's CPUs.
fn cores(machine: &Machine) -> Result<Vec<CpuSet>, Problem> {
    let mut all = Vec::new();
    let mut seen = CpuSet::default();
    for (i, range) in machine.cores.iter().enumerate() {
        let Some(core_type) = machine.core_type.iter().find(|t| t.name == range.core_type) else {
            return problem(
                "cores",
                i,
                "type",
                format!("no core type is called `{}`", range.core_type),
            );
        };
        if range.cpus.is_empty() {
            return problem("cores", i, "cpus", "`cpus` is empty");
        }
        if let Some(cpu) = range.cpus.intersection(&seen).lowest() {
            return problem(
                "cores",
                i,
                "cpus",
                format!("CPU {} is in an earlier `[[cores]]` too", cpu.0),
            );
        }
        if let Some(n) = range.threads.filter(|n| *n == 0 || *n > core_type.smt) {
            let message = format!(
                "`threads` is {n}, a `{}` core has 1 to {}",
                core_type.name, core_type.smt
            );
            return problem("cores", i, "threads", message);
        }
        match range.split(core_type) {
            Some(cores) => all.extend(cores.into_iter().map(CpuSet::from_iter)),
            None => return problem("cores", i, "cpus", odd_cores(range, core_type)),
        }
        seen = seen.iter().chain(range.cpus.iter()).collect();
    }
    if seen.is_empty() {
        return problem("cores", 0, "", "there is no `[[cores]]`");
    }
    let count = u32::try_from(seen.len()).unwrap_or(u32::MAX);
    if seen != CpuSet::first(count) {
        let message = format!(
            "CPUs are {seen}, not 0-{} without holes; number them so and list the real ones in `os_cpus`",
            count - 1
        );
        let beyond = |c: &Cores| c.cpus.iter().any(|cpu| cpu.0 >= count);
        let nth = machine.cores.iter().position(beyond).unwrap_or(0);
        return problem("cores", nth, "cpus", message);
    }
    Ok(all)
}

fn odd_cores(range: &Cores, core_type: &CoreType) -> String {
    let n = range.cpus.len();
    let threads = range.threads.unwrap_or(core_type.smt);
    let step = range.sibling_step;
    let name = &core_type.name;
    format!(
        "{n} CPUs do not make whole `{name}` cores of {threads} threads {step} apart; mend `cpus`, `sibling_step` or `threads`"
    )
}

/// The cores that `cpus` make: each takes the lowest free CPU and its siblings.
pub(super) fn split_into_cores(cpus: &CpuSet, threads: u32, step: u32) -> Option<Vec<Vec<CpuId>>> {
    if threads == 0 || (threads > 1 && step == 0) {
        return None;
    }
    let mut free = cpus.clone();
    let mut cores = Vec::new();
    while let Some(first) = free.lowest() {
        let core: Vec<CpuId> = (0..threads).map(|k| CpuId(first.0 + k * step)).collect();
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

/// The first core that lies partly inside `cpus`.
fn cut_core<'a>(cpus: &CpuSet, cores: &'a [CpuSet]) -> Option<&'a CpuSet> {
    cores
        .iter()
        .find(|core| core.intersects(cpus) && !core.is_subset(cpus))
}

fn caches(machine: &Machine, cores: &[CpuSet]) -> Result<(), Problem> {
    let all = CpuSet::first(u32::try_from(machine.cpu_count()).unwrap_or(u32::MAX));
    for (i, cache) in machine.cache.iter().enumerate() {
        let fail = |key, what: String| problem("cache", i, key, what);
        let rules: [Rule<'_>; 5] = [
            ("level", f64::from(cache.level), 2.0..=4.0, "2 to 4"),
            ("size_kib", cache.size_kib, POSITIVE, "above 0"),
            ("ways", f64::from(cache.ways), 1.0..=65_536.0, "1 or more"),
            ("latency_ns", cache.latency_ns, NOT_NEGATIVE, "0 or more"),
            ("access_nj", cache.access_nj, NOT_NEGATIVE, "0 or more"),
        ];
        if let Some((key, message)) = broken(&rules) {
            return fail(key, message);
        }
        if cache.cpus.is_empty() || !cache.cpus.is_subset(&all) {
            return fail(
                "cpus",
                format!("`cpus` is empty or names CPUs outside {all}"),
            );
        }
        if let Some(core) = cut_core(&cache.cpus, cores) {
            return fail(
                "cpus",
                format!("the core with CPUs {core} is half inside this cache"),
            );
        }
        for other in &machine.cache[..i] {
            if other.level == cache.level && other.cpus.intersects(&cache.cpus) {
                return fail(
                    "cpus",
                    format!(
                        "shares CPUs with another level-{} cache: {}",
                        cache.level, other.cpus
                    ),
                );
            }
            let (inner, outer) = if other.level < cache.level {
                (other, cache)
            } else {
                (cache, other)
            };
            if inner.level < outer.level
                && inner.cpus.intersects(&outer.cpus)
                && !inner.cpus.is_subset(&outer.cpus)
            {
                let message = format!(
                    "the level-{} cache of {} is partly outside the level-{} cache of {}",
                    inner.level, inner.cpus, outer.level, outer.cpus
                );
                return fail("cpus", message);
            }
        }
    }
    Ok(())
}

fn memory(machine: &Machine, cores: &[CpuSet]) -> Result<(), Problem> {
    let mut seen = CpuSet::default();
    for (i, memory) in machine.memory.iter().enumerate() {
        let rules: [Rule<'_>; 3] = [
            ("latency_ns", memory.latency_ns, POSITIVE, "above 0"),
            ("bandwidth_gb_s", memory.bandwidth_gb_s, POSITIVE, "above 0"),
            ("access_nj", memory.access_nj, NOT_NEGATIVE, "0 or more"),
        ];
        if let Some((key, message)) = broken(&rules) {
            return problem("memory", i, key, message);
        }
        if let Some(cpu) = seen.intersection(&memory.cpus).lowest() {
            return problem(
                "memory",
                i,
                "cpus",
                format!("CPU {} is in an earlier `[[memory]]` too", cpu.0),
            );
        }
        if let Some(core) = cut_core(&memory.cpus, cores) {
            return problem(
                "memory",
                i,
                "cpus",
                format!("the core with CPUs {core} is half inside this domain"),
            );
        }
        seen = seen.iter().chain(memory.cpus.iter()).collect();
    }
    let count = machine.cpu_count();
    if seen != CpuSet::first(u32::try_from(count).unwrap_or(u32::MAX)) {
        let message = format!(
            "the memory domains cover CPUs {seen}, the machine has 0-{}",
            count - 1
        );
        return problem("memory", 0, "cpus", message);
    }
    Ok(())
}

fn os_cpus(machine: &Machine) -> Result<(), Problem> {
    let count = machine.cpu_count();
    let listed = machine.os_cpus.as_ref().map(CpuSet::len);
    match listed.filter(|n| *n != count) {
        Some(n) => problem(
            "",
            0,
            "os_cpus",
            format!("`os_cpus` lists {n} CPUs, the machine has {count}"),
        ),
        None => Ok(()),
    }
}
