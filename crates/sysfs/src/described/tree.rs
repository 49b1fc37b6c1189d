//! Folder with a description's facts in the files that sysfs and /proc would have.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use tempfile::TempDir;

use super::Described;

const CPUS: &str = "sys/devices/system/cpu";

/// Writes the files; the folder is removed when it is dropped.
pub(super) fn write(described: &Described) -> io::Result<TempDir> {
    let folder = tempfile::Builder::new()
        .prefix("steer-machine-")
        .tempdir()?;
    let root = DescribedRoot(folder.path());
    let online: Vec<String> = described.cpus.keys().map(u32::to_string).collect();
    root.file(&format!("{CPUS}/online"), online.join(","))?;
    root.file("proc/cpuinfo", cpuinfo(described))?;
    for (number, cpu) in &described.cpus {
        let at = |file: &str| format!("{CPUS}/cpu{number}/{file}");
        root.file(&at("topology/core_cpus_list"), &cpu.core)?;
        root.file(&at("topology/physical_package_id"), cpu.package)?;
        let khz = |mhz: f64| (mhz * 1000.0).round();
        root.known(&at("cpufreq/cpuinfo_max_freq"), cpu.max_mhz.map(khz))?;
        root.known(&at("cpufreq/base_frequency"), cpu.base_mhz.map(khz))?;
        root.known(&at("cpu_capacity"), cpu.capacity)?;
        let midr = cpu
            .part
            .map(|(implementer, part)| format!("{:#x}", implementer << 24 | part << 4));
        root.known(&at("regs/identification/midr_el1"), midr)?;
        let own = described.caches.iter();
        let own = own.filter(|cache| cache.cpus.iter().any(|cpu| cpu.0 == *number));
        for (nth, cache) in own.enumerate() {
            let at = |file: &str| at(&format!("cache/index{nth}/{file}"));
            root.file(&at("level"), cache.level)?;
            root.file(&at("type"), cache.kind)?;
            root.file(&at("shared_cpu_list"), &cache.cpus)?;
            root.known(&at("size"), cache.kib.map(|kib| format!("{kib}K")))?;
            root.known(&at("ways_of_associativity"), cache.ways)?;
            root.known(&at("coherency_line_size"), cache.line_bytes)?;
        }
    }
    for pmu in ["cpu_core", "cpu_atom", "cpu_lowpower"] {
        let cpus = described
            .cpus
            .iter()
            .filter(|(_, cpu)| cpu.pmu == Some(pmu));
        let cpus: Vec<String> = cpus.map(|(number, _)| number.to_string()).collect();
        root.known(
            &format!("sys/devices/{pmu}/cpus"),
            (!cpus.is_empty()).then(|| cpus.join(",")),
        )?;
    }
    for (number, cpus) in &described.nodes {
        root.file(
            &format!("sys/devices/system/node/node{number}/cpulist"),
            cpus,
        )?;
    }
    Ok(folder)
}

fn cpuinfo(described: &Described) -> String {
    let mut text = String::new();
    for number in described.cpus.keys() {
        let _ = writeln!(text, "processor\t: {number}");
        for (key, value) in &described.cpuinfo {
            // A line break in a value would begin another field.
            let value: String = value.chars().filter(|c| !c.is_control()).collect();
            let _ = writeln!(text, "{key}\t: {value}");
        }
        text.push('\n');
    }
    text
}

struct DescribedRoot<'a>(&'a Path);

impl DescribedRoot<'_> {
    fn file(&self, path: &str, value: impl ToString) -> io::Result<()> {
        let path = self.0.join(path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, value.to_string() + "\n")
    }

    fn known(&self, path: &str, value: Option<impl ToString>) -> io::Result<()> {
        value.map_or(Ok(()), |value| self.file(path, value))
    }
}
