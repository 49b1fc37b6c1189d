//! The best division of a last-level cache among four programs, found by branch and bound.

use countersteer::lab::partition::divisions;
use countersteer::lab::{Experiment, plan};

/// Two programs that reuse up to 1.5 MiB, and two that sweep more than any cache holds.
const WORKLOAD: &str = r#"
[[program]]
profile = "chase"
[[program]]
profile = "matmul"
[[program]]
profile = "stream"
[[program]]
profile = "sieve"
"#;

pub fn main() -> anyhow::Result<()> {
    let machine = Experiment::named("xeon-gold-6138", "shared-caches", "linux")?.machine;
    let workload = plan::of_text("mine", WORKLOAD.to_owned())?;
    let found = divisions(&machine, &workload)?;
    println!("{} ways among {}", found.of_ways, found.programs.join(", "));
    for (name, division) in [("equal parts", &found.equal), ("best throughput", &found.best_stp)] {
        println!("{name}: {:?}, STP {:.3}", division.ways, division.stp);
    }
    Ok(())
}
