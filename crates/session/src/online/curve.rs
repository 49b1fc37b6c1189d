//! Profiles from observations of programs at different cache sizes. A curve is fitted by regression if there are enough sizes.

use std::path::Path;

use countersteer_counters::{CoreTypes, Pmus};
use countersteer_live::online::{OnlinePoint, OnlinePoints, merged};
use countersteer_model::profile::fit::{self, FittedCurve};
use countersteer_model::profile::{CoreTable, Source, TABLE_SCHEMA, TablePoint, Tabulated};
use countersteer_model::topology::Topology;
use countersteer_model::units::CpuId;
use serde::Serialize;

use crate::error::{FaultKind, failure};

/// Summary of a program's miss curve on a core type.
#[derive(Debug, Serialize)]
pub struct CurveSummary {
    pub program: String,
    pub core_type: String,
    /// Number of measured points of the curve; each point is a counted interval.
    pub points: usize,
    /// Smallest observed cache size, in KiB.
    pub from_kib: f64,
    /// Largest observed cache size, in KiB.
    pub to_kib: f64,
    /// Fitted form: `line`, `exponential` or `falling`; `None` if there were too few cache sizes for a fit.
    pub form: Option<String>,
    /// Mean error of the fit at held-out cache sizes, in misses per kilo-instruction; `None` without a fit.
    pub error_mpki: Option<f64>,
}

/// Builds the profile of a program from its curves, and a summary of each curve.
///
/// # Errors
/// No interval was counted.
pub fn tabulated(
    name: &str,
    curves: OnlinePoints,
    topology: &Topology,
    instructions: f64,
    how: &str,
) -> anyhow::Result<(Tabulated, Vec<CurveSummary>)> {
    if curves.is_empty() {
        let remedy = "give it more work, or shorter intervals (--dwell 100ms)";
        return Err(failure(
            FaultKind::BadInput,
            format!("`{name}` ended, or slept, before an interval was counted; {remedy}"),
        ));
    }
    let types = CoreTypes::of(&Pmus::read(Path::new("/"))?);
    let mut method = how.to_owned();
    let mut core = Vec::new();
    let mut summaries = Vec::new();
    for (pmu, points) in curves {
        let core_type = core_type(&pmu, &types, topology);
        let (table, summary) = table(name, core_type, points, whole_kib(topology));
        if let (Some(form), Some(error)) = (&summary.form, summary.error_mpki) {
            method += &format!(
                "; {}: {form} curve through {} points, off by {error:.2} misses per kilo-instruction at held-out sizes",
                summary.core_type, summary.points
            );
        }
        core.push(table);
        summaries.push(summary);
    }
    let profile = Tabulated {
        schema: TABLE_SCHEMA.into(),
        name: name.into(),
        source: Source {
            kind: "counters".into(),
            detail: "measured while it ran (steer profile --online)".into(),
            method,
        },
        giga_instructions: instructions.max(1.0) * 1e-9,
        core,
    };
    Ok((profile, summaries))
}

/// Returns the size in KiB of the last-level cache of the first CPU.
pub fn whole_kib(topology: &Topology) -> f64 {
    topology.caches[topology.llc_of(CpuId(0)).index()].lines / 16.0
}

fn core_type(pmu: &str, types: &CoreTypes, topology: &Topology) -> String {
    let row = types.names.iter().position(|n| n == pmu).unwrap_or(0) as u32;
    let cpu = types.by_cpu.iter().position(|r| *r == row).unwrap_or(0);
    let cpu = topology.cpus.get(cpu).map_or(CpuId(0), |c| c.id);
    topology.core_types[topology.core_type_of(cpu).index()]
        .name
        .clone()
}

fn ipc(point: &OnlinePoint) -> f64 {
    point.seen.instructions / point.seen.cycles
}

fn mpki(point: &OnlinePoint) -> f64 {
    1e3 * point.seen.misses / point.seen.instructions
}

fn table(
    program: &str,
    core_type: String,
    points: Vec<OnlinePoint>,
    whole_kib: f64,
) -> (CoreTable, CurveSummary) {
    let (cycles, time) = points.iter().fold((0.0, 0.0), |sum, p| {
        (sum.0 + p.seen.cycles, sum.1 + p.seen.running_ns)
    });
    let of = |value: fn(&OnlinePoint) -> f64| -> Vec<(f64, f64)> {
        points.iter().map(|p| (p.cache_kib, value(p))).collect()
    };
    let fit = fit::falling(&of(mpki), whole_kib);
    let sizes = points.iter().map(|p| p.cache_kib);
    let summary = CurveSummary {
        program: program.into(),
        core_type: core_type.clone(),
        points: points.len(),
        from_kib: sizes.clone().fold(f64::INFINITY, f64::min),
        to_kib: sizes.fold(0.0, f64::max),
        form: fit.as_ref().map(|fit| fit.form.to_string()),
        error_mpki: fit.as_ref().map(|fit| fit.error),
    };
    let points = match &fit {
        Some(fit) => on_curve(fit, &fit::rising(&of(ipc), whole_kib)),
        None => as_seen(points),
    };
    let table = CoreTable {
        core_type,
        freq_ghz: cycles / time.max(1.0),
        branch_mpki: None,
        branches: None,
        power_w: None,
        points,
    };
    (table, summary)
}

/// Returns points at the sizes of the fitted curve: misses from the fit, IPC from `speeds`, which rise with the cache size.
fn on_curve(fit: &FittedCurve, speeds: &[(f64, f64)]) -> Vec<TablePoint> {
    let points = fit.curve.iter().zip(speeds);
    points
        .map(|((cache_kib, mpki), (_, ipc))| TablePoint {
            cache_kib: *cache_kib,
            ipc: *ipc,
            llc_mpki: Some(mpki.max(0.0)),
        })
        .collect()
}

/// Returns the observed points without a fit, for observations at too few cache sizes.
fn as_seen(points: Vec<OnlinePoint>) -> Vec<TablePoint> {
    let all: OnlinePoints = [(String::new(), points)].into();
    let points = merged(all).into_values().flatten();
    points
        .map(|p| TablePoint {
            cache_kib: p.cache_kib,
            ipc: ipc(&p),
            llc_mpki: Some(mpki(&p)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use countersteer_live::online::IntervalCounts;
    use countersteer_model::machine::Machine;
    use countersteer_model::profile::Profile;

    use super::*;

    const MACHINE: &str = include_str!("../../../../machines/core2-quad.toml");

    #[test]
    fn a_curve_becomes_a_profile_that_the_simulator_takes() {
        let topology = Topology::new(&Machine::parse("m", MACHINE).unwrap());
        let point = |kib: f64, misses: f64| OnlinePoint {
            cache_kib: kib,
            seen: IntervalCounts {
                instructions: 1e9,
                cycles: 1e9 + 100.0 * misses,
                misses,
                running_ns: 5e8,
            },
        };
        let curves: OnlinePoints =
            [(String::new(), vec![point(1024.0, 4e6), point(4096.0, 1e6)])].into();
        let (profile, summaries) = tabulated("mcf", curves, &topology, 7e9, "h").unwrap();
        assert_eq!(summaries[0].form, None);
        let core = &profile.core[0];
        assert_eq!(
            (core.points[0].llc_mpki, core.points[1].ipc),
            (Some(4.0), 1.0 / 1.1)
        );
        assert!(
            (core.freq_ghz - 2.5).abs() < 1e-9 && core.core_type == topology.core_types[0].name
        );
        let text = toml::to_string(&profile).unwrap();
        assert!(
            matches!(Profile::parse("p.toml", &text), Ok(Profile::Tabulated(p)) if p.giga_instructions == 7.0)
        );
        let error = tabulated("mcf", OnlinePoints::new(), &topology, 0.0, "h")
            .unwrap_err()
            .to_string();
        assert!(error.contains("--dwell"), "{error}");
    }

    #[test]
    fn a_curve_is_fitted_where_there_are_enough_sizes() {
        let topology = Topology::new(&Machine::parse("m", MACHINE).unwrap());
        let whole = whole_kib(&topology);
        let point = |nth: usize| {
            let cache_kib = whole * nth as f64 / 12.0;
            let misses = 2e6 + 3e7 * (-4.0 * cache_kib / whole).exp();
            let seen = IntervalCounts {
                instructions: 1e9,
                cycles: 1e9 + 100.0 * misses,
                misses,
                running_ns: 5e8,
            };
            OnlinePoint { cache_kib, seen }
        };
        let curves: OnlinePoints = [(String::new(), (1..=12).map(point).collect())].into();
        let (profile, summaries) = tabulated("mcf", curves, &topology, 7e9, "h").unwrap();
        assert_eq!(summaries[0].form.as_deref(), Some("exponential"));
        assert!(summaries[0].error_mpki.unwrap() < 0.5, "{summaries:?}");
        assert!(
            profile
                .source
                .method
                .contains("exponential curve through 12")
        );
        let points = &profile.core[0].points;
        assert!(points.len() >= 10 && points.is_sorted_by(|a, b| a.ipc <= b.ipc));
        assert!(points.is_sorted_by(|a, b| a.llc_mpki >= b.llc_mpki));
        toml::to_string(&profile).unwrap();
    }
}
