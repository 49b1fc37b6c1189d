//! Timelines of threads on CPUs: by program, coloured by core type or cache; and by CPU, coloured
//! by program.

use countersteer_model::topology::{GroupBy, Topology};
use countersteer_model::units::CpuId;
use maud::{Markup, html};

use super::residence::Residence;
use super::strips::{StripPiece, Strips};
use super::{ChartDef, ChartRuns, coloured, common_programs};
use crate::error::ReportError;
use crate::record::Record;

pub(super) const BY_PROGRAM: ChartDef = ChartDef {
    key: "places",
    title: "Where each program ran",
    prose: "A row for each program, time from left to right. The colour is the kind of core, or the cache, that it ran on; \
            where the row is not filled to the top, the program waited or slept for that share of the time.",
    heavy: true,
    draw: by_program,
};

pub(super) const BY_CPU: ChartDef = ChartDef {
    key: "cpus",
    title: "Who ran on each CPU",
    prose: "A row for each CPU, coloured by program. Several colours stacked in one row took turns within one pixel's time.",
    heavy: true,
    draw: by_cpu,
};

/// Limit on the number of rows; more could not be distinguished.
const ROWS: usize = 64;

fn by_program(experiment: &ChartRuns<'_>) -> Result<Option<Markup>, ReportError> {
    let Some((records, topology, end_ns)) = experiment.drawn() else {
        return Ok(None);
    };
    let by = place_kind(topology);
    let groups = topology.groups_by(by);
    let categories: Vec<(String, usize)> = groups
        .iter()
        .enumerate()
        .map(|(i, g)| (g.name.clone(), i))
        .collect();
    let chart = |record: &Record| {
        let residence = Residence::of(record);
        let shown = residence.programs.len().min(ROWS);
        let piece = |stay: &super::residence::ResidenceStay| {
            let category = groups
                .iter()
                .position(|g| g.cpus.contains(CpuId(stay.cpu)))?;
            // A row is full when all threads of its program run, so each thread fills its fraction.
            let share = stay.share / residence.threads[stay.program].max(1) as f64;
            let row = stay.program;
            let start_ns = stay.start_ns;
            let end_ns = stay.end_ns;
            (row < shown).then_some(StripPiece {
                row,
                category,
                start_ns,
                end_ns,
                share,
            })
        };
        let pieces: Vec<StripPiece> = residence.stays.iter().filter_map(piece).collect();
        let strips = Strips {
            label: format!("Where each program ran under {}", record.manifest.policy),
            rows: residence.programs[..shown]
                .iter()
                .map(ToString::to_string)
                .collect(),
            categories: categories.clone(),
            pieces: &pieces,
            end_ns,
            own_end_ns: record.end().0,
            gaps: Vec::new(),
        };
        figure(
            record,
            &residence,
            strips.draw(),
            residence.programs.len() - shown,
            "programs",
        )
    };
    Ok(Some(
        html! { p.note.hint { (crate::svg::HINT) } (legend(&categories)) @for record in records { (chart(record)) } },
    ))
}

fn by_cpu(experiment: &ChartRuns<'_>) -> Result<Option<Markup>, ReportError> {
    let Some((records, topology, end_ns)) = experiment.drawn() else {
        return Ok(None);
    };
    let common = common_programs(records);
    let shown = topology.cpus.len().min(ROWS);
    let kernel = experiment.kernel_cpus();
    let label = |cpu: CpuId| format!("{} {}", cpu_kind(topology, cpu), kernel.cpu(cpu.0));
    let rows: Vec<String> = topology.cpus[..shown].iter().map(|c| label(c.id)).collect();
    let place = |i: usize| {
        (
            topology.llc_of(CpuId(i as u32)),
            topology.core_type_of(CpuId(i as u32)),
        )
    };
    let gaps: Vec<usize> = (1..shown).filter(|i| place(*i) != place(i - 1)).collect();
    let chart = |record: &Record| {
        let residence = Residence::of(record);
        let categories = coloured(&residence.programs);
        let piece = |s: &super::residence::ResidenceStay| StripPiece {
            row: s.cpu as usize,
            category: s.program,
            start_ns: s.start_ns,
            end_ns: s.end_ns,
            share: s.share,
        };
        let pieces: Vec<StripPiece> = residence
            .stays
            .iter()
            .filter(|s| (s.cpu as usize) < shown)
            .map(piece)
            .collect();
        let strips = Strips {
            label: format!("Who ran on each CPU under {}", record.manifest.policy),
            rows: rows.clone(),
            categories: categories.clone(),
            pieces: &pieces,
            end_ns,
            own_end_ns: record.end().0,
            gaps: gaps.clone(),
        };
        let drawing = html! { @if common.is_none() { (legend(&categories)) } (strips.draw()) };
        figure(
            record,
            &residence,
            drawing,
            topology.cpus.len() - shown,
            "CPUs",
        )
    };
    Ok(Some(html! {
        @if let Some(names) = &common { (legend(&coloured(names))) }
        @for record in records { (chart(record)) }
    }))
}

/// Returns the kind of core group by which programs are coloured: core types if there are several,
/// otherwise last-level caches.
fn place_kind(topology: &Topology) -> GroupBy {
    if topology.core_types.len() > 1 {
        GroupBy::CoreType
    } else {
        GroupBy::Llc
    }
}

fn cpu_kind(topology: &Topology, cpu: CpuId) -> &str {
    topology
        .group_of(cpu, place_kind(topology))
        .map_or("", |g| g.name.as_str())
}

fn figure(
    record: &Record,
    residence: &Residence,
    drawing: Markup,
    left_out: usize,
    what: &str,
) -> Markup {
    let m = &record.manifest;
    html! {
        figure {
            figcaption { b { (m.policy) } " · seed " (m.seed)
                @if residence.guessed { " · from observations every " (crate::format::seconds(m.period_ns as f64 * 1e-9)) }
                @if left_out > 0 { " · " (left_out) " more " (what) " not shown" } }
            (drawing)
        }
    }
}

pub(crate) fn legend(categories: &[(String, usize)]) -> Markup {
    html! {
        ul.legend { @for (name, series) in categories { li { span class={ "key b" (series) } {} (name) } } }
    }
}
