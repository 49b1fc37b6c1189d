//! `steer model rules`: induces rules for swaps of threads (policy `prim`) from recorded programs.

use std::path::Path;
use std::sync::Arc;

use countersteer_lab::experiment;
use countersteer_model::profile::Profile;
use countersteer_report::write_atomically;
use countersteer_train::prim;
use countersteer_train::rows::rows;

use crate::error::{Kind, failure};
use crate::output::make_folder;

/// Induces the rules of each machine with several core types, and writes one file per machine.
pub fn run(
    machines: &[String],
    programs: &[(String, Arc<Profile>)],
    output: &Path,
) -> anyhow::Result<()> {
    make_folder(output)?;
    for machine in machines {
        let topology = Arc::clone(&experiment::machine(machine)?.topology);
        if topology.core_types.len() < 2 {
            continue;
        }
        let all = rows(&topology, programs)?;
        let words = format!(
            "{} intervals of {} recorded programs",
            all.len(),
            programs.len()
        );
        let file = prim::induce(&topology, &all, &words).ok_or_else(|| {
            let why = format!("{machine}: too few families of programs for rules");
            failure(Kind::BadInput, why)
        })?;
        let path = output.join(format!("{}.swaps.toml", topology.name));
        write_atomically(&path, file.to_toml()?.as_bytes())?;
        let judged = file.judged;
        eprintln!(
            "steer: {}: {} rules; of held-out pairs {:.0} % are swapped, {:.0} % of them correctly, saving {:.1} %",
            path.display(),
            file.rule.len(),
            100.0 * judged.exchanged,
            100.0 * judged.right,
            100.0 * judged.saving,
        );
    }
    Ok(())
}
