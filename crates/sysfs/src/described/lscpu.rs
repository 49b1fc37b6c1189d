//! JSON of lscpu (`lscpu -J`): counts of threads, cores and sockets, sizes of caches, and the CPUs of memory nodes.
//!
//! The file does not tell which CPUs are siblings or share a cache. They are taken to be numbered as Linux usually does, node by node,
//! and the machine's `source` says so.

use std::collections::BTreeMap;

use countersteer_model::cpuset::{CpuSet, MAX_CPU};
use countersteer_model::units::CpuId;
use serde_json::Value;

use super::{Described, DescribedCache, DescribedCpu};

pub(super) fn detects(text: &str) -> bool {
    let head = text.trim_start();
    head.starts_with('{') && (head.contains("\"lscpu\"") || head.contains("\"cpus\""))
}

pub(super) fn read(text: &str) -> Result<Described, String> {
    let json: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let Some(rows) = json.get("lscpu").and_then(Value::as_array) else {
        return Err(
            "this is `lscpu -J -e`, which names neither the processor nor sizes of caches: use `lscpu -J`, or `lstopo --of xml`"
                .into(),
        );
    };
    let mut fields = Fields::default();
    rows.iter().try_for_each(|row| fields.see(row))?;
    fields.described()
}

/// Fields without the colons of their names, and the memory nodes.
#[derive(Default)]
struct Fields {
    values: BTreeMap<String, String>,
    nodes: BTreeMap<u32, CpuSet>,
}

impl Fields {
    /// Reads a row, and the rows within it that newer versions have.
    fn see(&mut self, row: &Value) -> Result<(), String> {
        let text = |key: &str| row.get(key).and_then(Value::as_str);
        let name = text("field").unwrap_or_default().trim_end_matches(':');
        if let Some(value) = text("data") {
            self.add(name, value)?;
        }
        let within = row.get("children").and_then(Value::as_array);
        within
            .into_iter()
            .flatten()
            .try_for_each(|row| self.see(row))
    }

    fn add(&mut self, name: &str, value: &str) -> Result<(), String> {
        let node = name
            .strip_prefix("NUMA node")
            .and_then(|rest| rest.strip_suffix(" CPU(s)"));
        if let Some(node) = node.and_then(|number| number.parse().ok()) {
            let cpus = value.parse::<CpuSet>();
            let cpus = cpus.map_err(|_| format!("`{name}` is no list of CPUs: {value}"))?;
            if !cpus.is_empty() {
                self.nodes.insert(node, cpus);
            }
            return Ok(());
        }
        let known = self.values.insert(name.to_owned(), value.to_owned());
        if name == "Model name" && known.is_some_and(|known| known != value) {
            return Err(
                "it has several core types, and does not tell the CPUs of each: `lstopo --of xml` does".into(),
            );
        }
        Ok(())
    }

    fn take(&mut self, name: &str) -> Option<String> {
        self.values.remove(name)
    }

    fn count(&mut self, name: &str) -> Option<usize> {
        self.take(name)?.parse().ok().filter(|count| *count > 0)
    }

    fn described(mut self) -> Result<Described, String> {
        let mut described = Described::default();
        let keys = [
            ("Vendor ID", "vendor_id"),
            ("Model name", "model name"),
            ("CPU family", "cpu family"),
            ("Model", "model"),
            ("Stepping", "stepping"),
            ("BogoMIPS", "bogomips"),
        ];
        for (name, key) in keys {
            described
                .cpuinfo
                .extend(self.take(name).map(|value| (key, value)));
        }
        if self.take("Hypervisor vendor").is_some() {
            described.cpuinfo.push(("flags", "hypervisor".into()));
        }
        let is_x86 = self
            .take("Architecture")
            .is_some_and(|name| name.contains("86"));
        let max_mhz = self.take("CPU max MHz").and_then(|mhz| mhz.parse().ok());
        let cores = self.cores(is_x86)?;
        let sockets = self
            .count("Socket(s)")
            .unwrap_or(1)
            .clamp(1, cores.len().max(1));
        for (nth, core) in cores.iter().enumerate() {
            let cpu = DescribedCpu {
                core: core.clone(),
                package: (nth * sockets / cores.len()) as u32,
                max_mhz,
                ..DescribedCpu::default()
            };
            described
                .cpus
                .extend(core.iter().map(|number| (number.0, cpu.clone())));
        }
        for (name, level, kind) in [
            ("L1d", 1, "Data"),
            ("L1i", 1, "Instruction"),
            ("L2", 2, "Unified"),
            ("L3", 3, "Unified"),
        ] {
            if let Some(text) = self.take(&format!("{name} cache")) {
                let per_default = if level < 3 { cores.len() } else { sockets };
                described
                    .caches
                    .extend(caches(&text, level, kind, &cores, per_default)?);
            }
        }
        described.nodes = self.nodes;
        described.assumed.push(
            "lscpu prints counts: all cores are taken to be alike, and siblings and the CPUs of each cache follow from the CPU numbers. Compare with `lstopo`."
                .into(),
        );
        let short = |name: String| match name.split_once(' ') {
            Some(("Vulnerability", _)) => "vulnerabilities".to_owned(),
            _ => name,
        };
        described.not_kept = self.values.into_keys().map(short).collect();
        Ok(described)
    }

    /// Returns the cores node by node. Siblings on x86 are half a node apart; elsewhere they are neighbours.
    fn cores(&mut self, is_x86: bool) -> Result<Vec<CpuSet>, String> {
        let threads = self.count("Thread(s) per core").unwrap_or(1);
        let online = match (self.take("On-line CPU(s) list"), self.count("CPU(s)")) {
            (Some(list), _) => list
                .parse()
                .map_err(|_| format!("`On-line CPU(s) list` is no list of CPUs: {list}"))?,
            (None, Some(count)) => CpuSet::first(count.min(MAX_CPU as usize) as u32),
            (None, None) => return Err("it has no number of CPUs".into()),
        };
        let mut groups: Vec<CpuSet> = self
            .nodes
            .values()
            .map(|node| node.intersection(&online))
            .collect();
        groups.sort_by_key(CpuSet::lowest);
        if groups.iter().map(CpuSet::len).sum::<usize>() != online.len() {
            groups = vec![online];
        }
        let mut cores = Vec::new();
        for group in groups {
            let cpus: Vec<CpuId> = group.iter().collect();
            let count = cpus.len() / threads;
            if count * threads != cpus.len() {
                // Offline siblings: which ones they are is unknown.
                cores.extend(cpus.iter().map(|cpu| CpuSet::from_iter([*cpu])));
                continue;
            }
            cores.extend((0..count).map(|core| -> CpuSet {
                let nth = |thread: usize| {
                    if is_x86 {
                        core + thread * count
                    } else {
                        core * threads + thread
                    }
                };
                (0..threads).map(|thread| cpus[nth(thread)]).collect()
            }));
        }
        Ok(cores)
    }
}

/// Parses `1.5 MiB (48 instances)`, which is the sum, or `32K`, which is one cache. Instances have equally many cores, in order.
fn caches(
    text: &str,
    level: u32,
    kind: &'static str,
    cores: &[CpuSet],
    usual: usize,
) -> Result<Vec<DescribedCache>, String> {
    let bad = || format!("this is no size of a cache: {text}");
    let (size, instances) = match text.split_once(" (") {
        Some((size, rest)) => (
            size,
            rest.split(' ').next().and_then(|count| count.parse().ok()),
        ),
        None => (text, None),
    };
    let digits = size.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let unit = match size[digits.len()..].trim() {
        "B" => 1.0 / 1024.0,
        "K" | "KiB" => 1.0,
        "M" | "MiB" => 1024.0,
        "G" | "GiB" => 1024.0 * 1024.0,
        _ => return Err(bad()),
    };
    let kib = digits.parse::<f64>().map_err(|_| bad())? * unit;
    let count: usize = instances.unwrap_or(usual);
    if count == 0 || count > cores.len() {
        return Err(format!(
            "{count} caches of level {level} do not fit {} cores, as where cores differ or are offline: `lstopo --of xml` describes those",
            cores.len()
        ));
    }
    let each = kib / instances.map_or(1.0, |count| count as f64);
    let cache = |nth: usize| {
        let own = cores
            .iter()
            .enumerate()
            .filter(|(core, _)| core * count / cores.len() == nth);
        DescribedCache {
            level,
            kind,
            kib: Some(each.round() as u64),
            ways: None,
            line_bytes: None,
            cpus: own.flat_map(|(_, core)| core.iter()).collect(),
        }
    };
    Ok((0..count).map(cache).collect())
}
