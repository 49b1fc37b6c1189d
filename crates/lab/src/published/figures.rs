//! Values of a program from the tables, before its cycles are fitted.

use std::collections::BTreeMap;

use countersteer_model::profile::published::{ASSUMED, CurvePoint, Figure, Figures, SCHEMA};
use countersteer_model::profile::{CoreTable, Published, Source, Tabulated};

use super::fit::{CORE_TYPE, L2_KIB, MeasuredCpi, MissCost};
use super::reach;
use super::tables::{CODE_MISSES, Events, ONE_RUN, SizePoint, SizeTable, SuiteProgram, WayTable};
use super::{NEHALEM, PBBCACHE, SILICON, SKYLAKE, TABLES, TableContents};
use crate::library;

/// Medians over the programs that are in both tables, used for programs in only one.
pub(crate) struct Typical {
    /// Ratio of retired loads and stores to accesses of the L1, with its spread.
    retired: (f64, f64),
    /// Ratio of lines that the L1 requests to load misses, with its spread.
    lines: (f64, f64),
    /// Typical difference of the prefetcher values between the two tables.
    streams_error: f64,
    /// Ratio of loads to loads and stores, with its spread.
    loads: (f64, f64),
    /// Branches per instruction of integer programs, then of floating-point programs, each with its spread.
    branches: [(f64, f64); 2],
}

/// Returns the median of values, and their spread: the median distance from it, scaled to a standard deviation.
pub fn median(mut values: Vec<f64>) -> (f64, f64) {
    let middle = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    let at = middle(&mut values);
    let mut away: Vec<f64> = values.iter().map(|v| (v - at).abs()).collect();
    // Half of a normal distribution is within .6745 standard deviations of the mean.
    (at, middle(&mut away) / 0.6745)
}

const FIRST_ACCESSES: &str = "L1D_ALL_REF.ANY";
const BRANCHES: &str = "BR_INST_RETIRED.ALL_BRANCHES";
const MISPREDICTED: &str = "BR_MISP_RETIRED.ALL_BRANCHES";
const L2_REFERENCES: &str = "L2_RQSTS.REFERENCES";
const L2_MISSES: &str = "L2_RQSTS.MISS";
const L3_DEMANDED: &str = "L3_LAT_CACHE.REFERENCE";

impl Typical {
    pub fn of(read: &TableContents) -> Self {
        let both: Vec<(&Events, &SizeTable)> = read
            .sizes
            .rows
            .iter()
            .filter_map(|(program, sizes)| Some((read.events.rows.get(program)?.last()?, sizes)))
            .collect();
        let over = |f: &dyn Fn(&Events, &SizeTable) -> Option<f64>| {
            median(both.iter().filter_map(|(e, s)| f(e, s)).collect())
        };
        let away = over(&|e, s| Some((foreseen_by_events(e)? - foreseen_by_sizes(s)?).abs()));
        let branches = |fp: bool| {
            let of = |(program, events): (&SuiteProgram, &Vec<Events>)| {
                let rate = events.last()?.of(BRANCHES)?;
                (is_fp(program) == fp).then_some(rate)
            };
            median(read.events.rows.iter().filter_map(of).collect())
        };
        Self {
            retired: over(&|e, s| Some((s.loads + s.stores) / e.of(FIRST_ACCESSES)?)),
            lines: over(&|e, s| {
                (s.first > 1.0).then_some(1000.0 * e.less(L2_REFERENCES, CODE_MISSES)? / s.first)
            }),
            streams_error: away.0,
            loads: over(&|_, s| Some(s.loads / (s.loads + s.stores))),
            branches: [branches(false), branches(true)],
        }
    }
}

/// Floating-point programs of SPEC CPU2000, CPU2006 and CPU2017.
const FP: &str = "wupwise swim mgrid applu mesa galgel art equake facerec ammp lucas fma3d sixtrack apsi \
    bwaves gamess milc zeusmp gromacs cactusADM leslie3d namd dealII soplex povray calculix GemsFDTD tonto lbm wrf sphinx3 \
    cactuBSSN parest blender cam4 imagick nab fotonik3d roms";
/// Fraction of floating-point instructions in these programs, with its spread; between .2 and .45 for the shipped
/// recorded programs.
const FP_SHARE: (f64, f64) = (0.3, 0.1);
/// Threshold in misses per kilo-instruction, below which stalls on misses are not significant.
const FEW_MISSES: f64 = 1.0;

fn is_fp(program: &SuiteProgram) -> bool {
    FP.split_whitespace().any(|name| name == program.name)
}

/// Returns the fraction of the misses at 256 KiB that are no demand accesses of the core, and so come from
/// prefetchers. `None` without the events.
fn foreseen_by_events(events: &Events) -> Option<f64> {
    let all = events.of(L2_MISSES).filter(|misses| *misses > 1e-3)?;
    Some((1.0 - events.of(L3_DEMANDED)? / all).clamp(0.0, 1.0))
}

/// Returns the fraction of last-level cache misses at the smallest size that prefetchers avoid. `None` if there are
/// too few misses.
fn foreseen_by_sizes(sizes: &SizeTable) -> Option<f64> {
    let point = sizes.points.first().filter(|p| p.misses > FEW_MISSES)?;
    Some((1.0 - point.demanded / point.misses).clamp(0.0, 1.0))
}

/// Profile of a program before its cycles are fitted, with the measurements for the fit.
pub(crate) struct UnfittedProfile {
    pub published: Published,
    pub measured: Vec<MeasuredCpi>,
    /// Cost of a last-level cache miss; `None` if unknown.
    pub miss: Option<MissCost>,
}

pub fn start(
    program: &SuiteProgram,
    read: &TableContents,
    typical: &Typical,
) -> Option<UnfittedProfile> {
    let runs = read.events.rows.get(program).map_or(&[][..], Vec::as_slice);
    let events = runs.last();
    let sizes = read.sizes.rows.get(program);
    let ways = read.ways.rows.get(program);
    let silicon = Silicon::of(program);
    let giga = events.map(|e| e.instructions / 1e9);
    let of_silicon = silicon.as_ref().map(|s| s.giga_instructions);
    let giga = of_silicon.or(giga).or(sizes.map(|s| s.giga_instructions))?;
    let (loads, stores) = accesses(events, sizes, typical)?;
    let fp = if is_fp(program) { FP_SHARE } else { (0.0, 0.0) };
    let (branches, mispredicted) = branches(program, runs, typical, silicon.as_ref());
    let assumed = |value: f64| Figure::new(value, 0.0, ASSUMED);
    let figures = Figures {
        loads,
        stores,
        branches,
        fp: Figure::new(fp.0, fp.1, ASSUMED),
        branch_mpki: mispredicted,
        ilp: assumed(3.0),
        overlap: assumed(2.0),
        streams: streams(events, sizes, typical),
    };
    // Another build of a program misses as often in a run, and so more often per instruction if it has fewer instructions.
    let per_instruction = match (events, sizes) {
        (None, Some(sizes)) => sizes.giga_instructions / giga,
        _ => 1.0,
    };
    let published = Published {
        schema: SCHEMA.to_owned(),
        name: program.to_string(),
        source: source(events.is_some(), sizes.is_some(), ways.is_some()),
        giga_instructions: (giga * 10.0).round() / 10.0,
        curve: scaled(
            curve(runs, sizes, ways, typical)?,
            per_instruction,
            &figures,
        ),
        figures,
        reach: reach::points(runs),
        left_out: Vec::new(),
    };
    let (measured, miss) = match (ways, sizes) {
        (Some(ways), _) => (by_ways(ways), stalled(ways)),
        (None, Some(sizes)) => (by_size(sizes), slope(sizes)),
        (None, None) => return None,
    };
    Some(UnfittedProfile {
        published,
        measured: silicon.map_or(measured, |s| vec![s.measured]),
        miss,
    })
}

/// Returns the curve with misses per instruction multiplied by `factor`, but no more misses than accesses.
fn scaled(mut curve: Vec<CurvePoint>, factor: f64, figures: &Figures) -> Vec<CurvePoint> {
    let accesses = 1000.0 * (figures.loads.value + figures.stores.value);
    for point in &mut curve {
        if (factor - 1.0).abs() > 1e-9 {
            let Figure { value, error, .. } = Figure::new(
                (point.mpki * factor).min(accesses),
                point.error * factor,
                "",
            );
            (point.mpki, point.error) = (value, error);
        }
    }
    curve
}

fn source(events: bool, sizes: bool, ways: bool) -> Source {
    let used = [(ways, 0), (sizes, 1), (events, 2), (!events, 3)];
    let used = used.iter().filter(|(is, _)| *is).map(|(_, row)| {
        let table = &TABLES[*row];
        format!("{}: {}, {}", table.name, table.repository, table.files)
    });
    Source {
        kind: "published".into(),
        detail: used.collect::<Vec<_>>().join("; "),
        method: "steer profile import-counters".into(),
    }
}

/// Returns the loads and stores per instruction, with errors and source; `None` if no table has them.
fn accesses(
    events: Option<&Events>,
    sizes: Option<&SizeTable>,
    typical: &Typical,
) -> Option<(Figure, Figure)> {
    if let Some(s) = sizes {
        // Values in this table are rounded to one percent.
        let of = |value| Figure::new(value, 0.005, SKYLAKE);
        return Some((of(s.loads), of(s.stores)));
    }
    let all = events?.of(FIRST_ACCESSES)?;
    let (retired, spread) = typical.retired;
    let (loads, loads_spread) = typical.loads;
    let error = (spread / retired).hypot(loads_spread / loads);
    let figure = |value: f64| Figure::new(value, value * error, NEHALEM);
    Some((
        figure(all * retired * loads),
        figure(all * retired * (1.0 - loads)),
    ))
}

/// Returns the branches per instruction, and the mispredicted branches per kilo-instruction.
fn branches(
    program: &SuiteProgram,
    runs: &[Events],
    typical: &Typical,
    silicon: Option<&Silicon>,
) -> (Figure, Figure) {
    if let Some(silicon) = silicon {
        return (silicon.branches.clone(), silicon.branch_mpki.clone());
    }
    let counted = runs.last().and_then(|last| {
        let branches = Figure::new(last.of(BRANCHES)?, ONE_RUN * last.of(BRANCHES)?, NEHALEM);
        // The first Nehalems overcount (erratum of BR_MISP_RETIRED), so the value of the newer of the two machines is
        // used.
        let mpki = 1000.0 * last.of(MISPREDICTED)?;
        Some((branches, Figure::new(mpki, 0.1 * mpki, NEHALEM)))
    });
    let assumed = || {
        let (value, spread) = typical.branches[usize::from(is_fp(program))];
        (
            Figure::new(value, spread, ASSUMED),
            Figure::new(5.0, 5.0, ASSUMED),
        )
    };
    counted.unwrap_or_else(assumed)
}

/// Figures of a program in the shipped CPU2017 tables.
struct Silicon {
    giga_instructions: f64,
    branches: Figure,
    branch_mpki: Figure,
    /// Speed on the core type of the measurements by cache size.
    measured: MeasuredCpi,
}

impl Silicon {
    /// Returns the figures of a program; `None` if there is no table with all of them. Branch rates are the middle of the
    /// range over core types, with half of the range as error.
    fn of(program: &SuiteProgram) -> Option<Self> {
        let name = format!(".{}_r.toml", program.name);
        let mut paths = library::shipped_profiles("spec2017").into_iter();
        let path = paths.find(|p| program.year == 2017 && p.ends_with(&name))?;
        let text = library::shipped_profile(&path)?;
        let table = Tabulated::parse(&text.path, &text.text).ok()?;
        let figure = |of: fn(&CoreTable) -> Option<f64>| {
            let rates: Vec<f64> = table.core.iter().filter_map(of).collect();
            let most = rates.iter().copied().reduce(f64::max)?;
            let least = rates.iter().copied().reduce(f64::min)?;
            let (middle, half) = (f64::midpoint(most, least), 0.5 * (most - least));
            Some(Figure::new(middle, half, SILICON))
        };
        let core = table.on(CORE_TYPE)?;
        let point = core.points.last()?;
        Some(Self {
            giga_instructions: table.giga_instructions,
            branches: figure(|c| c.branches)?,
            branch_mpki: figure(|c| c.branch_mpki)?,
            measured: MeasuredCpi {
                cache_kib: point.cache_kib,
                cpi: 1.0 / point.ipc,
                ghz: Some(core.freq_ghz),
            },
        })
    }
}

fn streams(events: Option<&Events>, sizes: Option<&SizeTable>, typical: &Typical) -> Figure {
    let by_events = events.and_then(foreseen_by_events);
    let by_sizes = sizes.and_then(foreseen_by_sizes);
    match (by_events, by_sizes) {
        (Some(e), Some(s)) => Figure::new(f64::midpoint(e, s), 0.5 * (e - s).abs(), NEHALEM),
        (Some(e), None) => Figure::new(e, typical.streams_error, NEHALEM),
        (None, Some(s)) => Figure::new(s, typical.streams_error, SKYLAKE),
        (None, None) => Figure::new(0.3, 0.3, ASSUMED),
    }
}

/// Returns the misses by cache size as a non-increasing curve: a value larger than that of the smaller size is
/// replaced by it. `None` if no table has misses.
fn curve(
    runs: &[Events],
    sizes: Option<&SizeTable>,
    ways: Option<&BTreeMap<u32, WayTable>>,
    typical: &Typical,
) -> Option<Vec<CurvePoint>> {
    let mut points = Vec::new();
    let mut add = |cache_kib: f64, mpki: f64, error: f64, from: &str| {
        let before = points.last().map_or(f64::INFINITY, |p: &CurvePoint| p.mpki);
        let Figure { value, error, from } = Figure::new(mpki.min(before), error, from);
        points.push(CurvePoint {
            cache_kib,
            mpki: value,
            error,
            from,
        });
    };
    if let Some(last) = runs.last() {
        let first = runs.first()?;
        let mut event = |kib: f64, of: &dyn Fn(&Events) -> Option<f64>| {
            let (mpki, other) = (1000.0 * of(last)?, 1000.0 * of(first)?);
            let error = (0.5 * (mpki - other).abs()).max(ONE_RUN * mpki);
            add(kib, mpki, error, NEHALEM);
            Some(())
        };
        event(32.0, &|e| e.less(L2_REFERENCES, CODE_MISSES))?;
        event(256.0, &|e| e.of(L2_MISSES))?;
    } else if let Some(s) = sizes {
        let (ratio, spread) = typical.lines;
        add(32.0, s.first * ratio, s.first * spread, SKYLAKE);
    }
    if let Some(ways) = ways {
        let refs: Vec<f64> = ways.values().map(|w| w.refs).collect();
        let (refs, spread) = median(refs);
        add(L2_KIB, refs, spread.max(ONE_RUN * refs), PBBCACHE);
        for (nth, row) in ways {
            let kib = L2_KIB + f64::from(*nth) * WAY_KIB;
            // Two counters measure the same quantity: misses, and lines that the memory controller transferred. Their
            // difference is the error.
            let away = row
                .bandwidth_ratio
                .map_or(ONE_RUN, |ratio| (ratio - 1.0).abs());
            add(
                kib,
                row.misses,
                away.clamp(ONE_RUN, 0.5) * row.misses,
                PBBCACHE,
            );
        }
    } else {
        let sizes = sizes?;
        add(L2_KIB, sizes.refs, ONE_RUN * sizes.refs, SKYLAKE);
        for point in &sizes.points {
            let kib = L2_KIB + point.size_kib;
            // Values in this table have two decimals.
            let error = (ONE_RUN * point.misses).max(0.005);
            add(kib, point.misses, error, SKYLAKE);
        }
    }
    Some(points)
}

/// Size in KiB of one way of the last-level cache on PBBCache's machine.
const WAY_KIB: f64 = 2560.0;

fn by_ways(ways: &BTreeMap<u32, WayTable>) -> Vec<MeasuredCpi> {
    let measured = |(nth, row): (&u32, &WayTable)| MeasuredCpi {
        cache_kib: L2_KIB + f64::from(*nth) * WAY_KIB,
        cpi: row.cpi,
        ghz: None,
    };
    ways.iter().map(measured).collect()
}

pub fn by_size(sizes: &SizeTable) -> Vec<MeasuredCpi> {
    let measured = |point: &SizePoint| MeasuredCpi {
        cache_kib: L2_KIB + point.size_kib,
        cpi: point.cpi,
        ghz: None,
    };
    sizes.points.iter().map(measured).collect()
}

/// Returns the stalled cycles per miss with the fewest ways; the error is the difference from the slope of cycles over
/// misses. `None` if there are too few misses.
fn stalled(ways: &BTreeMap<u32, WayTable>) -> Option<MissCost> {
    let (fewest, few) = ways.iter().next()?;
    let many = ways.values().next_back()?;
    if few.misses < FEW_MISSES {
        return None;
    }
    let cycles = 1000.0 * few.stalled / few.misses;
    let fewer = few.misses - many.misses;
    let slope = 1000.0 * (few.cpi - many.cpi) / fewer.max(1e-9);
    let error = if fewer > 0.2 * few.misses {
        (cycles - slope).abs()
    } else {
        0.3 * cycles
    };
    Some(MissCost {
        cycles,
        error,
        cache_kib: L2_KIB + f64::from(*fewest) * WAY_KIB,
    })
}

/// Returns the slope of cycles over misses between the smallest and the largest size. `None` if the misses hardly
/// change.
fn slope(sizes: &SizeTable) -> Option<MissCost> {
    let (few, many) = (sizes.points.first()?, sizes.points.last()?);
    let fewer = few.misses - many.misses;
    let cycles = 1000.0 * (few.cpi - many.cpi) / fewer.max(1e-9);
    (fewer > FEW_MISSES).then_some(MissCost {
        cycles,
        error: 0.3 * cycles,
        cache_kib: L2_KIB + few.size_kib,
    })
}
