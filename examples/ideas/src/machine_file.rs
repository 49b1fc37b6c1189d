//! A machine of one's own: the text of its file, and what follows from it.

use countersteer::model::machine::Machine;
use countersteer::model::topology::{GroupBy, Topology};

/// Two fast cores, and four slow ones behind one second-level cache.
const TEXT: &str = r#"
schema = "countersteer.machine/1"
name = "mine"
title = "2 big cores, 4 little ones"
source = "all values are estimates"
linux = "energy-aware"
static_power_w = 0.5

[[core_type]]
name = "big"
dispatch_width = 4
window = 192
freq_ghz = 3.0
capacity = 1024
branch_penalty_cycles = 14
power = { idle_w = 0.5, active_w = 2.0, instruction_nj = 0.6, fp_nj = 0.2, simd_nj = 0.3 }
l1d = { size_kib = 32, ways = 8, latency_cycles = 4 }
l2 = { size_kib = 1024, ways = 16, latency_cycles = 14 }

[[core_type]]
name = "little"
dispatch_width = 2
window = 16
in_order = true
freq_ghz = 1.8
capacity = 400
branch_penalty_cycles = 8
power = { idle_w = 0.1, active_w = 0.3, instruction_nj = 0.2, fp_nj = 0.1, simd_nj = 0.2 }
l1d = { size_kib = 32, ways = 8, latency_cycles = 3 }

[[cores]]
type = "big"
cpus = "0-1"

[[cores]]
type = "little"
cpus = "2-5"

[[cache]]
level = 2
cpus = "2-5"
size_kib = 512
ways = 16
latency_ns = 6

[[memory]]
cpus = "0-5"
latency_ns = 90
bandwidth_gb_s = 20
access_nj = 20
"#;

pub fn main() -> anyhow::Result<()> {
    let machine = Machine::parse("mine.toml", TEXT)?;
    let topology = Topology::new(&machine);
    println!("{} has {} CPUs", machine.name, machine.cpu_count());
    for group in topology.groups_by(GroupBy::CoreType) {
        println!("{:<8} CPUs {}", group.name, group.cpus);
    }
    for cache in topology.caches.iter().filter(|cache| !cache.private) {
        println!("level {} behind CPUs {}", cache.level, cache.cpus);
    }
    // A mistake is found with its line.
    let wrong = TEXT.replace("ways = 16\nlatency_ns", "ways = 0\nlatency_ns");
    match Machine::parse("mine.toml", &wrong) {
        Ok(_) => println!("no ways are no mistake"),
        Err(error) => println!("{error}"),
    }
    Ok(())
}
