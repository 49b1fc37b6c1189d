//! Accuracy of the shipped models of a machine on held-out programs.

use countersteer_model::models::shipped;
use countersteer_model::topology::Topology;

use super::values::CaseValues;
use crate::error::{FaultKind, failure};

/// Returns the correlation of a target's models by core type, from the model files. `steer model eval`
/// measures it again.
///
/// # Errors
/// Fails if the machine has no model of the target.
pub fn measure(topology: &Topology, target: &str) -> anyhow::Result<CaseValues> {
    let mut values = CaseValues::default();
    for core_type in &topology.core_types {
        let files = shipped().into_iter().map(|(_, file)| file);
        let mut of_machine =
            files.filter(|f| f.machine == topology.name && f.core_type == core_type.name);
        let file = of_machine.find(|f| f.target.name() == target);
        let file = file.ok_or_else(|| {
            let why = format!("no model of {target} is shipped for {}", core_type.name);
            failure(FaultKind::Missing, why)
        })?;
        values.add_row(&core_type.name);
        values.add(&core_type.name, target, "r", file.judged.r);
    }
    Ok(values)
}
