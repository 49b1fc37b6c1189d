//! Drawing of a machine as text: each last-level cache is a box that contains cores. CPUs have the kernel's numbers. A cache
//! shared by several cores of the box encloses these cores.

use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::topology::{Group, GroupBy, Topology};

/// Inner width of a box in characters; with its frame, the box fits into 80 columns.
const WIDTH: usize = 76;

/// Draws the last-level caches, the cores, and the CPUs of each core. `[0 1]` is a core with two SMT siblings.
pub fn picture(topology: &Topology, numbers: &CpuNumbers) -> String {
    let mut text = String::new();
    for llc in topology.groups_by(GroupBy::Llc) {
        text += &framed(&title(topology, llc), &inside(topology, numbers, llc));
    }
    text + "[0 1] is a core with its CPUs; (L2 ...) is a cache that the cores in it share\n"
}

fn title(topology: &Topology, llc: &Group) -> String {
    let Some(cache) = llc
        .cpus
        .lowest()
        .map(|c| &topology.caches[topology.llc_of(c).index()])
    else {
        return llc.name.clone();
    };
    format!("{}: L{} {}", llc.name, cache.level, size(cache.lines))
}

fn size(lines: f64) -> String {
    let kib = lines / 16.0;
    if kib >= 1024.0 {
        format!("{} MiB", (kib / 102.4).round() / 10.0)
    } else {
        format!("{kib} KiB")
    }
}

/// Returns the lines in the box of a last-level cache: the cores of each core type, wrapped to the width of the box.
fn inside(topology: &Topology, numbers: &CpuNumbers, llc: &Group) -> Vec<String> {
    let mut lines = Vec::new();
    for group in topology.groups_by(GroupBy::CoreType) {
        let here = group.cpus.intersection(&llc.cpus);
        let Some(core_type) = group.core_type.map(|t| &topology.core_types[t.index()]) else {
            continue;
        };
        let cores = cores(topology, &here);
        if cores.is_empty() {
            continue;
        }
        let l2 = core_type
            .l2
            .map_or_else(String::new, |l2| format!(", L2 {} KiB", l2.size_kib));
        lines.push(format!(
            "{} {} at {} GHz: L1d {} KiB{l2} each",
            cores.len(),
            core_type.name,
            core_type.freq_ghz,
            core_type.l1d.size_kib
        ));
        wrap(&clusters(topology, numbers, &here, cores), &mut lines);
    }
    lines
}

/// Returns the CPU set of each core that has CPUs in `among`, in order.
fn cores(topology: &Topology, among: &CpuSet) -> Vec<CpuSet> {
    let cores = topology.groups_by(GroupBy::Core).iter();
    cores
        .map(|core| core.cpus.intersection(among))
        .filter(|cpus| !cpus.is_empty())
        .collect()
}

/// Returns the words of a box: one for each core, or one for several cores with a common L1 or L2 cache.
fn clusters(
    topology: &Topology,
    numbers: &CpuNumbers,
    here: &CpuSet,
    cores: Vec<CpuSet>,
) -> Vec<String> {
    let inner: Vec<_> = topology
        .caches
        .iter()
        .filter(|c| !c.private && c.cpus.is_subset(here) && c.level < 3)
        .filter(|c| cores.iter().filter(|core| core.is_subset(&c.cpus)).count() > 1)
        .filter(|c| {
            here.lowest()
                .is_some_and(|cpu| !is_llc(topology, cpu, &c.cpus))
        })
        .collect();
    let boxed = |core: &CpuSet| {
        let cpus = numbers.os_set(core);
        let cpus: Vec<String> = cpus.iter().map(|c| c.0.to_string()).collect();
        format!("[{}]", cpus.join(" "))
    };
    let mut words = Vec::new();
    let mut drawn: Vec<&CpuSet> = Vec::new();
    for core in &cores {
        if drawn.iter().any(|cpus| core.is_subset(cpus)) {
            continue;
        }
        match inner.iter().find(|c| core.is_subset(&c.cpus)) {
            Some(cache) => {
                let members = cores.iter().filter(|c| c.is_subset(&cache.cpus));
                let members: Vec<String> = members.map(boxed).collect();
                words.push(format!(
                    "(L{} {} {})",
                    cache.level,
                    size(cache.lines),
                    members.join(" ")
                ));
                drawn.push(&cache.cpus);
            }
            None => words.push(boxed(core)),
        }
    }
    words
}

fn is_llc(topology: &Topology, cpu: countersteer_model::units::CpuId, cpus: &CpuSet) -> bool {
    topology.caches[topology.llc_of(cpu).index()].cpus == *cpus
}

fn wrap(words: &[String], lines: &mut Vec<String>) {
    let mut line = String::new();
    for word in words {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH - 2 {
            lines.push(format!("  {line}"));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    lines.push(format!("  {line}"));
}

fn framed(title: &str, lines: &[String]) -> String {
    let rule = |n: usize| "─".repeat(n);
    let mut text = format!(
        "┌ {title} {}┐\n",
        rule(WIDTH.saturating_sub(title.chars().count() + 2))
    );
    for line in lines {
        let room = WIDTH.saturating_sub(line.chars().count() + 1);
        text += &format!("│ {line}{}│\n", " ".repeat(room));
    }
    text + &format!("└{}┘\n", rule(WIDTH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_every_cpu_once_and_fits_80_columns() {
        for name in countersteer_lab::library::machine_names() {
            let machine = countersteer_lab::experiment::machine(&name).unwrap();
            let numbers = CpuNumbers::new(machine.topology.cpus.iter().map(|c| c.id).collect());
            let drawn = picture(&machine.topology, &numbers);
            let boxes = drawn.lines().filter(|l| l.starts_with("│   "));
            let cpus: Vec<u32> = boxes
                .flat_map(|l| l.split('[').skip(1))
                .filter_map(|core| core.split(']').next())
                .flat_map(|core| core.split(' ').map(|cpu| cpu.parse().unwrap()))
                .collect();
            let mut sorted = cpus.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(
                (sorted.len(), cpus.len()),
                (machine.topology.cpus.len(), cpus.len()),
                "{name}\n{drawn}"
            );
            assert!(
                drawn.lines().all(|l| l.chars().count() <= 80),
                "{name}\n{drawn}"
            );
        }
    }
}
