//! Display of tabulated profiles: speeds by core type.

use countersteer_model::profile::{CoreTable, TablePoint, Tabulated};

use super::source;
use crate::format::{bytes, number, prefixed};
use crate::table::plain;

pub(super) fn text(p: &Tabulated) -> String {
    let head = [
        "core type",
        "GHz",
        "cache",
        "IPC",
        "Ginstr/s",
        "LLC mpki",
        "branch mpki",
        "power",
    ];
    let rows = p
        .core
        .iter()
        .flat_map(|core| core.points.iter().map(move |point| row(core, point)));
    let instructions = prefixed(p.instructions() as f64);
    format!(
        "{}: tabulated, {instructions} instructions\n{}\n{}",
        p.name,
        source(&p.source),
        plain(&head, rows)
    ) + &ratio(p)
}

fn row(core: &CoreTable, point: &TablePoint) -> Vec<String> {
    let known = |v: Option<f64>, unit: &str| {
        v.map_or_else(|| "–".into(), |v| format!("{}{unit}", number(v, 3)))
    };
    vec![
        core.core_type.clone(),
        number(core.freq_ghz, 3),
        bytes(point.cache_kib * 1024.0),
        number(point.ipc, 3),
        number(point.ipc * core.freq_ghz, 3),
        known(point.llc_mpki, ""),
        known(core.branch_mpki, ""),
        known(core.power_w, " W"),
    ]
}

/// Returns a sentence on the speed on the fastest core type relative to the slowest, with the largest
/// cache of each.
fn ratio(p: &Tabulated) -> String {
    let best = |core: &CoreTable| {
        let most = core
            .points
            .iter()
            .max_by(|a, b| a.cache_kib.total_cmp(&b.cache_kib));
        most.map_or(0.0, |point| point.ipc * core.freq_ghz)
    };
    let mut speeds: Vec<(f64, &str)> = p
        .core
        .iter()
        .map(|c| (best(c), c.core_type.as_str()))
        .collect();
    speeds.sort_by(|a, b| b.0.total_cmp(&a.0));
    match (speeds.first(), speeds.last()) {
        (Some(fast), Some(slow)) if speeds.len() > 1 && slow.0 > 0.0 => {
            format!(
                "\nspeed-up factor {} ({} over {})\n",
                number(fast.0 / slow.0, 3),
                fast.1,
                slow.1
            )
        }
        _ => String::new(),
    }
}
