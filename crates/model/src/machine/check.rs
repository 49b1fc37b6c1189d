//! Validation of machine files.
//!
//! Input: a [`Machine`] that was just read. Output: nothing, or the first [`Problem`], with its table and key in
//! the file.

use super::sets_by_cpu::{CoresByCpu, SetsByCpu};
use super::{CorePipeline, CorePower, CoreType, Cores, Machine, PrivateCache, SCHEMA};
use crate::bounds::{self, Bounds, check_all};
use crate::cpuset::CpuSet;
use crate::events::Event;
use crate::textfile::{TextError, is_name};
use crate::toml_lines::table_line;
use crate::units::CpuId;

/// Invalid value of a key in the `nth` table of a name. The name `""` stands for the top level of the file.
pub(super) struct Problem {
    table: &'static str,
    nth: usize,
    key: &'static str,
    message: String,
}

impl Problem {
    /// Returns the problem as an error with its line in the machine file.
    pub(super) fn locate(self, path: &str, text: &str) -> TextError {
        match self.line(text) {
            Some(line) => TextError::at_line(path, text, line, self.message),
            None => TextError::value(path, self.message),
        }
    }

    /// Returns the line of the key, written as `key = ..` or as `[table.key]`, or else the line of the table.
    /// `None` if neither is found.
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

/// Key, allowed range and value of a number in a machine file.
type NumberRule = (&'static str, Bounds, f64);

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
    let figures = [
        ("hz", bounds::HZ, f64::from(machine.hz)),
        ("static_power_w", bounds::POWER, machine.static_power_w),
    ];
    check_all(figures).or_else(|(key, why)| problem("", 0, key, why))?;
    let limit = machine.power_limit.iter().flat_map(|limit| {
        [
            ("watts", bounds::POINT_POWER, limit.watts),
            ("seconds", bounds::POWER_WINDOW, limit.seconds),
        ]
    });
    check_all(limit).or_else(|(_, why)| problem("", 0, "power_limit", why))?;
    core_types(machine)?;
    let cores = cores(machine)?;
    let cores = CoresByCpu::of(&cores);
    caches(machine, &cores)?;
    memory(machine, &cores)?;
    os_cpus(machine)?;
    models(machine)
}

fn models(machine: &Machine) -> Result<(), Problem> {
    let known = |name: &str| machine.core_type.iter().any(|t| t.name == name);
    for (nth, model) in machine.model.iter().enumerate() {
        for (key, name) in [
            ("core_type", &model.core_type),
            ("fast", &model.fast),
            ("slow", &model.slow),
        ] {
            if !known(name) {
                return problem("model", nth, key, format!("there is no core type `{name}`"));
            }
        }
    }
    Ok(())
}

/// True for names of other groups of CPUs, such as `llc0`, `node1` or `machine`. A core type with such a name
/// would be ambiguous.
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
        check_all(core_figures(t)).or_else(|(key, why)| fail(key, &why))?;
        if let Some(name) = &t.pipeline
            && CorePipeline::named(name).is_none()
        {
            let known: Vec<_> = CorePipeline::names().collect();
            return fail(
                "pipeline",
                &format!(
                    "no pipeline is called `{name}`; there are {}",
                    known.join(", ")
                ),
            );
        }
        for (key, cache) in [("l1d", Some(t.l1d)), ("l2", t.l2)] {
            let figures = cache.map(private_cache_figures).into_iter().flatten();
            check_all(figures).or_else(|(_, why)| fail(key, &format!("{key}: {why}")))?;
        }
        check_all(power_figures(t.power)).or_else(|(_, why)| fail("power", &why))?;
        frequencies(t).or_else(|(key, why)| fail(key, &why))?;
        let unknown = |name: &&String| Event::by_name(name).is_none();
        if let Some(name) = t.uncounted.iter().find(unknown) {
            return fail("uncounted", &format!("there is no event `{name}`"));
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

fn core_figures(t: &CoreType) -> [NumberRule; 9] {
    [
        ("dispatch_width", bounds::DISPATCH_WIDTH, t.dispatch_width),
        ("window", bounds::WINDOW, f64::from(t.window)),
        ("smt", bounds::SMT, f64::from(t.smt)),
        ("freq_ghz", bounds::FREQUENCY, t.freq_ghz),
        ("capacity", bounds::CAPACITY, f64::from(t.capacity)),
        (
            "branch_penalty_cycles",
            bounds::CORE_LATENCY,
            t.branch_penalty_cycles,
        ),
        ("memory_extra_ns", bounds::CACHE_LATENCY, t.memory_extra_ns),
        ("counters", bounds::COUNTERS, f64::from(t.counters)),
        (
            "fixed_counters",
            bounds::FIXED_COUNTERS,
            f64::from(t.fixed_counters),
        ),
    ]
}

/// Checks the operating points and idle states of a core type. Returns the key and the description of the first
/// problem.
fn frequencies(t: &CoreType) -> Result<(), (&'static str, String)> {
    let idle = t.idle.iter().flat_map(|states| {
        [
            ("clock_gated_w", bounds::POWER, states.clock_gated_w),
            (
                "power_gated_after_us",
                bounds::RESIDENCY,
                states.power_gated_after_us,
            ),
        ]
    });
    check_all(idle).map_err(|(_, why)| ("idle", why))?;
    let points = t.frequency.iter().flat_map(|f| &f.points);
    let figures = points.flat_map(|p| {
        let volts = p.volts.map(|v| ("volts", bounds::VOLTAGE, v));
        let watts = p.watts.map(|w| ("watts", bounds::POINT_POWER, w));
        [Some(("ghz", bounds::FREQUENCY, p.ghz)), volts, watts]
    });
    check_all(figures.flatten()).map_err(|(_, why)| ("frequency", why))?;
    let fault = t.frequency.as_ref().and_then(|f| f.fault(t.freq_ghz));
    fault.map_or(Ok(()), |why| Err(("frequency", why)))
}

fn private_cache_figures(cache: PrivateCache) -> [NumberRule; 3] {
    [
        ("size_kib", bounds::CACHE_SIZE, cache.size_kib),
        ("ways", bounds::WAYS, f64::from(cache.ways)),
        ("latency_cycles", bounds::CORE_LATENCY, cache.latency_cycles),
    ]
}

fn power_figures(power: CorePower) -> [NumberRule; 5] {
    [
        ("idle_w", bounds::POWER, power.idle_w),
        ("active_w", bounds::POWER, power.active_w),
        ("instruction_nj", bounds::ENERGY, power.instruction_nj),
        ("fp_nj", bounds::ENERGY, power.fp_nj),
        ("simd_nj", bounds::ENERGY, power.simd_nj),
    ]
}

/// Checks the `[[cores]]` tables and returns the CPUs of each core.
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
        let figures = [
            ("socket", bounds::SOCKET, f64::from(range.socket)),
            (
                "sibling_step",
                bounds::SIBLING_STEP,
                f64::from(range.sibling_step),
            ),
        ];
        check_all(figures).or_else(|(key, why)| problem("cores", i, key, why))?;
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
        let count = seen.len() + range.cpus.len();
        bounds::CPUS
            .check("cpus", count as f64)
            .or_else(|why| problem("cores", i, "cpus", why))?;
        match range.split(core_type) {
            Some(cores) => all.extend(cores.into_iter().map(CpuSet::from_iter)),
            None => return problem("cores", i, "cpus", odd_cores(range, core_type)),
        }
        range.cpus.iter().for_each(|cpu| seen.insert(cpu));
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
        "{n} CPUs do not make whole `{name}` cores of {threads} threads {step} apart; correct `cpus`, `sibling_step` or `threads`"
    )
}

/// Splits `cpus` into cores: each core takes the lowest free CPU and its siblings, `step` apart. `None` if a
/// sibling is missing.
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

fn caches(machine: &Machine, cores: &CoresByCpu<'_>) -> Result<(), Problem> {
    let mut earlier = SetsByCpu::default();
    let all = CpuSet::first(u32::try_from(machine.cpu_count()).unwrap_or(u32::MAX));
    for (i, cache) in machine.cache.iter().enumerate() {
        let fail = |key, what: String| problem("cache", i, key, what);
        let figures = [
            ("level", bounds::CACHE_LEVEL, f64::from(cache.level)),
            ("size_kib", bounds::CACHE_SIZE, cache.size_kib),
            ("ways", bounds::WAYS, f64::from(cache.ways)),
            ("latency_ns", bounds::CACHE_LATENCY, cache.latency_ns),
            ("access_nj", bounds::ENERGY, cache.access_nj),
        ];
        check_all(figures).or_else(|(key, why)| fail(key, why))?;
        if cache.cpus.is_empty() || !cache.cpus.is_subset(&all) {
            return fail(
                "cpus",
                format!("`cpus` is empty or names CPUs outside {all}"),
            );
        }
        if let Some(core) = cores.cut_by(&cache.cpus) {
            return fail(
                "cpus",
                format!("the core with CPUs {core} is half inside this cache"),
            );
        }
        for nth in earlier.touching(&cache.cpus) {
            let other = &machine.cache[nth];
            if other.level == cache.level {
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
            if !inner.cpus.is_subset(&outer.cpus) {
                let message = format!(
                    "the level-{} cache of {} is partly outside the level-{} cache of {}",
                    inner.level, inner.cpus, outer.level, outer.cpus
                );
                return fail("cpus", message);
            }
        }
        earlier.add(i, &cache.cpus);
    }
    Ok(())
}

fn memory(machine: &Machine, cores: &CoresByCpu<'_>) -> Result<(), Problem> {
    let mut seen = CpuSet::default();
    for (i, memory) in machine.memory.iter().enumerate() {
        let figures = [
            ("latency_ns", bounds::MEMORY_LATENCY, memory.latency_ns),
            ("bandwidth_gb_s", bounds::BANDWIDTH, memory.bandwidth_gb_s),
            ("queueing", bounds::QUEUEING, memory.queueing),
            ("remote", bounds::REMOTE, memory.remote),
            ("access_nj", bounds::ENERGY, memory.access_nj),
        ];
        check_all(figures).or_else(|(key, why)| problem("memory", i, key, why))?;
        if let Some(cpu) = seen.intersection(&memory.cpus).lowest() {
            return problem(
                "memory",
                i,
                "cpus",
                format!("CPU {} is in an earlier `[[memory]]` too", cpu.0),
            );
        }
        if let Some(core) = cores.cut_by(&memory.cpus) {
            return problem(
                "memory",
                i,
                "cpus",
                format!("the core with CPUs {core} is half inside this domain"),
            );
        }
        memory.cpus.iter().for_each(|cpu| seen.insert(cpu));
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
