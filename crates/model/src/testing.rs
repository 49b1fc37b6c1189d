//! Artificial machines for tests of policies.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

use std::sync::Arc;

use crate::machine::Machine;
use crate::topology::Topology;

const BIG: &str = r#"
[[core_type]]
name = "big"
dispatch_width = 4
window = 192
freq_ghz = 3.0
capacity = 1024
branch_penalty_cycles = 15
l1d = { size_kib = 32, ways = 8, latency_cycles = 4 }
l2 = { size_kib = 512, ways = 8, latency_cycles = 14 }
power = { idle_w = 0.1, active_w = 1.0, instruction_nj = 0.5 }
"#;

const SMALL: &str = r#"
[[core_type]]
name = "small"
dispatch_width = 2
window = 48
freq_ghz = 2.0
capacity = 400
branch_penalty_cycles = 10
l1d = { size_kib = 32, ways = 8, latency_cycles = 3 }
l2 = { size_kib = 512, ways = 8, latency_cycles = 12 }
power = { idle_w = 0.05, active_w = 0.3, instruction_nj = 0.2 }
"#;

const HEAD: &str = r#"
schema = "countersteer.machine/1"
name = "made-up"
title = "made up"
source = "made up"
"#;

/// Four equal cores, two last-level caches.
pub const TWO_LLCS: &str = r#"
linux = "symmetric"
# big
[[cores]]
type = "big"
cpus = "0-3"
[[cache]]
level = 3
cpus = "0-1"
size_kib = 4096
ways = 16
latency_ns = 10
[[cache]]
level = 3
cpus = "2-3"
size_kib = 4096
ways = 16
latency_ns = 10
[[memory]]
cpus = "0-3"
latency_ns = 80
bandwidth_gb_s = 20
"#;

/// Two big cores of two hardware threads each (0-1, 2-3) and two small cores (4, 5), one cache.
pub const SMT: &str = r#"
linux = "smt-hybrid"
# big smt small
[[cores]]
type = "big"
cpus = "0-3"
[[cores]]
type = "small"
cpus = "4-5"
[[cache]]
level = 3
cpus = "0-5"
size_kib = 8192
ways = 16
latency_ns = 10
[[memory]]
cpus = "0-5"
latency_ns = 80
bandwidth_gb_s = 20
"#;

/// Returns the topology of a machine whose second line names its core types.
pub fn topology(body: &str) -> Arc<Topology> {
    let types = body
        .lines()
        .find(|l| l.starts_with('#'))
        .unwrap_or_default();
    let mut text = format!("{HEAD}{body}");
    for (name, table) in [("big", BIG), ("small", SMALL)] {
        if types.contains(name) {
            let flat = types.contains("smt");
            let table = if flat {
                table.replace("capacity = 400", "capacity = 1024")
            } else {
                table.to_owned()
            };
            let smt = flat && name == "big";
            text.push_str(&if smt {
                table.replace("freq_ghz", "smt = 2\nfreq_ghz")
            } else {
                table
            });
        }
    }
    Arc::new(Topology::new(
        &Machine::parse("made-up.toml", &text).unwrap(),
    ))
}
