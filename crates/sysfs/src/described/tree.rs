//! Facts of a description as the files that sysfs and /proc would have.

use std::fmt::Write as _;
use std::rc::Rc;

use countersteer_model::units::CpuId;

use super::Described;
use crate::topology::FileTexts;

const CPUS: &str = "sys/devices/system/cpu";

/// Number of caches of one CPU at most. Machines have up to six.
const CACHES: usize = 16;

/// Returns the files by their paths.
///
/// # Errors
/// A CPU has very many caches.
pub(super) fn files(described: &Described) -> Result<FileTexts, String> {
    let mut root = DescribedRoot::default();
    let online: Vec<String> = described.cpus.keys().map(u32::to_string).collect();
    root.file(&format!("{CPUS}/online"), online.join(","));
    root.file("proc/cpuinfo", cpuinfo(described));
    // The lists are long where many CPUs share a cache, and each is the text of as many files.
    let caches: Vec<(Rc<str>, _)> = described
        .caches
        .iter()
        .map(|cache| (cache.cpus.to_string().into(), cache))
        .collect();
    for (number, cpu) in &described.cpus {
        let at = |file: &str| format!("{CPUS}/cpu{number}/{file}");
        root.file(&at("topology/core_cpus_list"), &cpu.core);
        root.file(&at("topology/physical_package_id"), cpu.package);
        let khz = |mhz: f64| (mhz * 1000.0).round();
        root.known(&at("cpufreq/cpuinfo_max_freq"), cpu.max_mhz.map(khz));
        root.known(&at("cpufreq/base_frequency"), cpu.base_mhz.map(khz));
        root.known(&at("cpu_capacity"), cpu.capacity);
        let midr = cpu
            .part
            .map(|(implementer, part)| format!("{:#x}", implementer << 24 | part << 4));
        root.known(&at("regs/identification/midr_el1"), midr);
        let own = caches.iter();
        let own = own.filter(|(_, cache)| cache.cpus.contains(CpuId(*number)));
        for (nth, (shared, cache)) in own.enumerate() {
            if nth == CACHES {
                return Err(format!("CPU {number} has more than {CACHES} caches"));
            }
            let at = |file: &str| at(&format!("cache/index{nth}/{file}"));
            root.file(&at("level"), cache.level);
            root.file(&at("type"), cache.kind);
            root.0.insert(at("shared_cpu_list"), shared.clone());
            root.known(&at("size"), cache.kib.map(|kib| format!("{kib}K")));
            root.known(&at("ways_of_associativity"), cache.ways);
            root.known(&at("coherency_line_size"), cache.line_bytes);
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
        );
    }
    for (number, cpus) in &described.nodes {
        root.file(
            &format!("sys/devices/system/node/node{number}/cpulist"),
            cpus,
        );
    }
    Ok(root.0)
}

/// Returns the fields of one CPU; those of all CPUs are equal.
fn cpuinfo(described: &Described) -> String {
    let mut text = String::from("processor\t: 0\n");
    for (key, value) in &described.cpuinfo {
        // A line break in a value would begin another field.
        let value: String = value.chars().filter(|c| !c.is_control()).collect();
        let _ = writeln!(text, "{key}\t: {value}");
    }
    text
}

#[derive(Default)]
struct DescribedRoot(FileTexts);

impl DescribedRoot {
    fn file(&mut self, path: &str, value: impl ToString) {
        self.0.insert(path.to_owned(), value.to_string().into());
    }

    fn known(&mut self, path: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.file(path, value);
        }
    }
}
