//! Chart of the occupancy of each last-level cache over time, by program.

use std::collections::BTreeMap;

use countersteer_model::sample::Event;
use countersteer_model::topology::{GroupBy, Topology};
use maud::{Markup, PreEscaped, html};

use super::timeline::legend;
use super::{ChartDef, ChartRuns, coloured, common_programs, programs};
use crate::error::ReportError;
use crate::format::{bytes, number};
use crate::record::Record;
use crate::svg::{Mark, Plot, Role, SERIES};

pub(super) const DEF: ChartDef = ChartDef {
    key: "occupancy",
    title: "Shares of the last-level caches",
    prose: "Bytes that each program held, stacked, as of its last sample; the line is the cache's size.",
    heavy: true,
    draw,
};

/// Number of time bins along the horizontal axis.
const BINS: usize = 120;
/// Threshold: minimum fraction of a cache for a band to be drawn; a smaller band is thinner than half a pixel.
const VISIBLE: f64 = 0.003;
/// Limit on the number of caches drawn per record.
const CACHES: usize = 12;

fn draw(experiment: &ChartRuns<'_>) -> Result<Option<Markup>, ReportError> {
    let Some((records, topology, end_ns)) = experiment.drawn() else {
        return Ok(None);
    };
    let common = common_programs(records);
    let kernel = experiment.kernel_cpus();
    let mut figures = Vec::new();
    for record in records {
        let names = programs(record);
        let held = held(record, topology, &names, end_ns);
        let mut plots = Vec::new();
        for (cache, group) in topology
            .groups_by(GroupBy::Llc)
            .iter()
            .enumerate()
            .take(CACHES)
        {
            if held[cache].iter().flatten().any(|b| *b > 0.0) {
                let size = group.cpus.lowest().map_or(0.0, |c| {
                    topology.caches[topology.llc_of(c).index()].lines * 64.0
                });
                let title = format!("{} under {}", group.name, record.manifest.policy);
                let wide = plot(&title, &held[cache], &names, size, end_ns, false)?;
                let narrow = plot(&title, &held[cache], &names, size, end_ns, true)?;
                plots.push((
                    format!("{} · CPUs {}", group.name, kernel.list(&group.cpus)),
                    wide + &narrow,
                ));
            }
        }
        if !plots.is_empty() {
            let several = plots.len() > 1;
            figures.push(html! {
                figure {
                    figcaption { b { (record.manifest.policy) } " · seed " (record.manifest.seed) }
                    @if common.is_none() { (legend(&coloured(&names))) }
                    @for (name, svg) in &plots { @if several { p.note { (name) } } (PreEscaped(svg)) }
                }
            });
        }
    }
    Ok((!figures.is_empty()).then(
        || html! { @if let Some(names) = &common { (legend(&coloured(names))) } @for figure in &figures { (figure) } },
    ))
}

/// Returns the occupancy in bytes by cache, time bin and program.
fn held(
    record: &Record,
    topology: &Topology,
    names: &[std::sync::Arc<str>],
    end_ns: u64,
) -> Vec<Vec<Vec<f64>>> {
    let groups = topology.groups_by(GroupBy::Llc);
    let identities = record.identities();
    let program: BTreeMap<u32, usize> = (identities.iter())
        .filter_map(|t| Some((t.id.0, names.iter().position(|n| *n == t.name)?)))
        .collect();
    let sizes: Vec<f64> = groups
        .iter()
        .map(|g| {
            let cpu = g.cpus.lowest();
            cpu.map_or(f64::INFINITY, |c| {
                topology.caches[topology.llc_of(c).index()].lines * 64.0
            })
        })
        .collect();
    let cache_of = |cpu| groups.iter().position(|g| g.cpus.contains(cpu));
    let mut latest: BTreeMap<u32, (usize, f64)> = BTreeMap::new();
    let mut bins = vec![vec![vec![0.0; names.len()]; BINS + 1]; groups.len()];
    let mut samples = record.samples.samples.of_threads().peekable();
    for bin in 0..=BINS {
        let until = (end_ns as f64 * bin as f64 / BINS as f64).round() as u64;
        while let Some((thread, sample)) = samples.next_if(|(_, s)| s.end.0 <= until) {
            let bytes = sample.counts.get(Event::LlcOccupancyBytes);
            if let Some((cache, bytes)) = sample.cpu.and_then(cache_of).zip(bytes) {
                latest.insert(thread.0, (cache, bytes));
            }
        }
        if until > record.end().0 {
            // Bins after the end of the record are removed, because their occupancy is unknown rather than zero.
            bins.iter_mut().for_each(|cache| cache.truncate(bin));
            break;
        }
        for (thread, (cache, bytes)) in &latest {
            bins[*cache][bin][program.get(thread).copied().unwrap_or(0)] += bytes;
        }
        for (held, size) in bins.iter_mut().zip(&sizes) {
            // Threads were sampled at different times, so their sum may exceed the size of the cache. It is scaled down to
            // that size.
            let sum: f64 = held[bin].iter().sum();
            if sum > *size {
                held[bin].iter_mut().for_each(|bytes| *bytes *= size / sum);
            }
        }
    }
    bins
}

fn plot(
    title: &str,
    bins: &[Vec<f64>],
    names: &[std::sync::Arc<str>],
    size: f64,
    end_ns: u64,
    narrow: bool,
) -> Result<String, ReportError> {
    let end_s = end_ns as f64 * 1e-9;
    let mib = |b: f64| b / f64::from(1 << 20);
    let most = bins
        .iter()
        .map(|b| b.iter().sum::<f64>())
        .fold(size, f64::max);
    let mut below = vec![0.0; bins.len()];
    let mut marks = Vec::new();
    for (program, name) in names.iter().enumerate() {
        let points: Vec<(f64, f64, f64)> = (bins
            .iter()
            .zip(&below)
            .enumerate()
            .step_by(if narrow { 2 } else { 1 }))
        .map(|(i, (b, low))| {
            (
                end_s * i as f64 / BINS as f64,
                mib(*low),
                mib(low + b[program]),
            )
        })
        .collect();
        let values = bins.iter().map(|b| b[program]);
        let sum = values.clone().sum::<f64>();
        let peak = values.fold(0.0, f64::max);
        below
            .iter_mut()
            .zip(bins)
            .for_each(|(low, b)| *low += b[program]);
        if peak > size * VISIBLE {
            let mean = sum / bins.len() as f64;
            let title = format!(
                "{name}: {} on average, {} at most",
                bytes(mean),
                bytes(peak)
            );
            marks.push(Mark::Band {
                points,
                role: Role::Series(program % SERIES),
                title,
            });
        }
    }
    marks.push(Mark::Limit {
        y: mib(size),
        label: bytes(size),
    });
    let svg = Plot {
        name: "occupancy",
        label: format!("Occupancy of {title} over time"),
        size: if narrow { (360, 170) } else { (760, 190) },
        x: 0.0..end_s,
        y: 0.0..mib(most) * 1.02,
        ticks: (if narrow { 4 } else { 8 }, 4),
        left: if narrow { 46 } else { 60 },
        timed: true,
        x_text: &|s| format!("{} s", trimmed(*s)),
        y_text: &|m| format!("{} MiB", trimmed(*m)),
    }
    .draw(&marks)?;
    Ok(svg.replacen(
        "class=\"plot\"",
        if narrow {
            "class=\"plot narrow\""
        } else {
            "class=\"plot wide\""
        },
        1,
    ))
}

/// Formats the number at an axis tick without trailing zeros.
fn trimmed(value: f64) -> String {
    if (value - value.round()).abs() < 1e-9 {
        format!("{value:.0}")
    } else {
        number(value, 2)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::record::{StepRow, ThreadRow};
    use countersteer_model::sample::{Sample, Samples};
    use countersteer_model::units::{CoreTypeId, CpuId, Nanos, ThreadId};

    const CACHE: f64 = 4.0 * (1 << 20) as f64;

    /// Returns a sample of the occupancy of a thread on CPU 0.
    fn sampled(thread: u32, at: u64, bytes: f64) -> Samples {
        let of = ThreadId(thread);
        let sample = Sample::of_thread(of, CpuId(0), CoreTypeId(0), Nanos(at), Nanos(1));
        Samples::of(sample, 1, &[(Event::LlcOccupancyBytes, bytes)])
    }

    fn thread(thread: u32, name: &str) -> ThreadRow {
        ThreadRow {
            step: 0,
            at_ns: 0,
            thread,
            program: thread,
            name: name.into(),
            cpu: 0,
            runnable: true,
            nice: 0,
            allowed: Arc::default(),
        }
    }

    #[test]
    fn shares_never_add_up_to_more_than_the_cache() {
        let mut record = Record::empty();
        record.steps.push(StepRow {
            at_ns: 1000,
            ..StepRow::default()
        });
        record.threads = vec![thread(1, "a"), thread(2, "b")];
        // Each thread was alone in the cache when it was sampled: the sum is one and a half times the cache size.
        let samples = [sampled(1, 100, CACHE), sampled(2, 500, CACHE / 2.0)];
        record.samples.extend(0, &samples.into_iter().collect());
        let topology = record.topology().unwrap();
        let bins = held(&record, &topology, &["a".into(), "b".into()], 1000);
        let mut sums = bins[0].iter().map(|held| held.iter().sum::<f64>());
        assert!(sums.clone().all(|sum| sum <= CACHE * (1.0 + 1e-9)));
        assert!((sums.next_back().unwrap() - CACHE).abs() < 1.0);
        let last = &bins[0][BINS];
        assert!((last[0] / last[1] - 2.0).abs() < 1e-9, "{last:?}");
    }
}
