//! Speeds that no thread exceeds in the analytic model, from its rate tables in the best case.
//!
//! Input: the rate tables of all programs. Output: [`Ceilings`]. A thread's cycles per instruction come from the table of its
//! behaviour, core type, frequency and number of running siblings. They depend on the thread's lines in each shared cache, its
//! siblings' use of the core, and the memory latency factor. A lower bound assumes siblings that use nothing, the minimum factor
//! of 1, and the best occupancies of the inner caches. The result is a curve over the lines in the outermost cache. Time averages
//! of points of the curve lie in its convex hull, whose upper corners are the [`Way`]s.

use super::Analytic;
use super::class::{CpuClass, MAX_LEVELS};
use super::siblings::Beside;
use super::table::RateTable;
use crate::progress::ceiling::{Ceilings, CoreGroup, CoreState, ModelCeiling, TurboBin, Way};

/// Factor by which the speed within a lattice cell may exceed the speeds at the cell's corners.
const WITHIN_CELL: f64 = 1.001;

/// State of a core, and index of the class whose rate tables apply to it.
struct CoreStateKind {
    state: CoreState,
    class: usize,
}

/// Returns the highest speeds of all programs added so far.
pub fn of(progress: &Analytic) -> Ceilings {
    let mut firsts: Vec<u32> = progress.cpus.iter().map(|c| c.first_class).collect();
    firsts.sort_unstable();
    firsts.dedup();
    let (groups, caches) = if progress.config.contention {
        cache_groups(progress, &firsts)
    } else {
        (vec![None; firsts.len()], Vec::new())
    };
    let place = |(first, cache): (&u32, Option<usize>)| CoreGroup {
        cores: cores(progress, |c| c.first_class == *first),
        cache,
    };
    let mut clocks = Vec::new();
    let kinds = kinds(progress, &firsts, &mut clocks);
    let models = progress.models.iter().map(|model| ModelCeiling {
        timeline: model.segments().collect(),
        ways: (0..model.average())
            .map(|behaviour| {
                let tables = kinds.iter().enumerate().map(|(state, kind)| {
                    let row = model.table(behaviour, kind.class as u32);
                    (state, kind, &progress.tables[row as usize])
                });
                tables
                    .flat_map(|(state, kind, table)| ways(progress, state, kind, table))
                    .collect()
            })
            .collect(),
    });
    let bandwidth = progress.topology.memory.iter().map(|m| m.bandwidth_gb_s);
    Ceilings {
        places: firsts.iter().zip(groups).map(place).collect(),
        clocks,
        caches,
        bandwidth: if progress.config.contention {
            bandwidth.sum::<f64>() * 1e9 / countersteer_model::units::LINE_BYTES as f64
        } else {
            f64::INFINITY
        },
        models: models.collect(),
        states: kinds.iter().map(|k| k.state).collect(),
    }
}

/// Number of cores that have at least one CPU for which `of` returns true.
fn cores(progress: &Analytic, of: impl Fn(&super::ClassCpu) -> bool) -> f64 {
    let mut cores: Vec<u32> = progress
        .cpus
        .iter()
        .filter(|c| of(c))
        .map(|c| c.core)
        .collect();
    cores.sort_unstable();
    cores.dedup();
    cores.len() as f64
}

/// Returns the group of outermost shared caches of each place, and the number of lines of each group. Places that share a cache
/// are in one group.
fn cache_groups(progress: &Analytic, firsts: &[u32]) -> (Vec<Option<usize>>, Vec<f64>) {
    let outer = |first: &u32| -> Vec<usize> {
        let cpus = progress.cpus.iter().filter(|c| c.first_class == *first);
        cpus.filter_map(|c| Some(c.chain[c.levels.checked_sub(1)?] as usize))
            .collect()
    };
    let mut group: Vec<usize> = (0..progress.caches.len()).collect();
    for caches in firsts.iter().map(outer) {
        let joined: Vec<usize> = caches.iter().map(|c| group[*c]).collect();
        if let Some(least) = joined.iter().copied().min() {
            let all = group.iter_mut().filter(|g| joined.contains(g));
            all.for_each(|g| *g = least);
        }
    }
    let mut used: Vec<usize> = firsts.iter().flat_map(outer).collect();
    used.sort_unstable();
    used.dedup();
    let mut rows: Vec<usize> = used.iter().map(|c| group[*c]).collect();
    rows.sort_unstable();
    rows.dedup();
    let row = |cache: &usize| rows.iter().position(|g| *g == group[*cache]);
    let mut lines = vec![0.0; rows.len()];
    for cache in &used {
        if let Some(row) = row(cache) {
            lines[row] += progress.caches[*cache].lines;
        }
    }
    let places = firsts.iter().map(|f| outer(f).first().and_then(row));
    (places.collect(), lines)
}

/// Returns the possible states of the cores of each place; appends the frequency limits of these states to `clocks`.
fn kinds(progress: &Analytic, firsts: &[u32], clocks: &mut Vec<TurboBin>) -> Vec<CoreStateKind> {
    let mut kinds = Vec::new();
    for (core_type, of) in progress.topology.core_types.iter().enumerate() {
        let all = cores(progress, |c| c.core_type as usize == core_type) as usize;
        let mut points: Vec<usize> = Vec::new();
        for active in 1..=all {
            let point = of.fastest_point(active);
            if points.last() != Some(&point) {
                points.push(point);
                clocks.push(TurboBin {
                    core_type: countersteer_model::units::CoreTypeId::from_index(core_type),
                    cores: 0.0,
                });
            }
            if let Some(clock) = clocks.last_mut() {
                clock.cores = active as f64;
            }
        }
        for (place, first) in firsts.iter().enumerate() {
            let belongs = progress.classes[*first as usize].core_type.index() == core_type;
            for (nth, point) in points.iter().enumerate().filter(|_| belongs) {
                let smt = of.smt.max(1);
                // Without contention, every thread has a whole core for itself, even if all CPUs of the core run a thread.
                let running = if progress.config.contention {
                    1..=smt
                } else {
                    smt..=smt
                };
                let clock = clocks.len() - points.len() + nth;
                kinds.extend(running.map(|threads| CoreStateKind {
                    state: CoreState {
                        place,
                        clock,
                        threads: f64::from(threads),
                    },
                    class: *first as usize
                        + point * smt as usize
                        + if progress.config.contention {
                            threads as usize - 1
                        } else {
                            0
                        },
                }));
            }
        }
    }
    kinds
}

/// Returns the upper corners of the convex hull of speeds over lines held, for one state and one rate table.
fn ways(progress: &Analytic, state: usize, kind: &CoreStateKind, table: &RateTable) -> Vec<Way> {
    let class = &progress.classes[kind.class];
    let hz = class.ghz * 1e9 * WITHIN_CELL;
    let beside = Beside::modest(f64::from(class.threads) - 1.0);
    let full = whole(class);
    let rate = table.rate(&full, &beside);
    let outer = table.depth.checked_sub(1);
    let misses = outer.map_or(table.private_misses, |k| rate.miss[k]);
    // Measured programs do not slow their siblings down.
    let shares = progress.config.contention && class.threads > 1 && table.base > 0.0;
    let way = |(lines, cycles): (f64, f64)| {
        let ips = hz / cycles;
        Way {
            state,
            ips,
            lines,
            bus: ips * misses * table.lines_per_miss,
            uses: std::array::from_fn(|part: usize| {
                if shares {
                    table.shares.uses[part] / cycles
                } else {
                    0.0
                }
            }),
        }
    };
    let Some(outer) = outer.filter(|_| progress.config.contention) else {
        return vec![way((0.0, rate.a + rate.b))];
    };
    let mut curve: Vec<(f64, f64)> = Vec::new();
    for lines in table.levels[outer].lattice_lines() {
        let mut held = full;
        held[outer] = lines;
        // Below the first lattice point the speed is constant, so that this speed needs no lines.
        let charged = if curve.is_empty() { 0.0 } else { lines };
        curve.push((charged, fewest_cycles(table, &mut held, outer, &beside)));
    }
    hull(&curve).into_iter().map(way).collect()
}

/// Returns the number of lines of each shared cache of a class.
fn whole(class: &CpuClass) -> [f64; MAX_LEVELS] {
    std::array::from_fn(|k| class.levels.get(k).map_or(0.0, |l| l.lines))
}

/// Returns the minimum of cycles per instruction over all occupancies of the caches inside level `below`.
fn fewest_cycles(
    table: &RateTable,
    held: &mut [f64; MAX_LEVELS],
    below: usize,
    beside: &Beside,
) -> f64 {
    let Some(level) = below.checked_sub(1) else {
        let rate = table.rate(held, beside);
        return rate.a + rate.b;
    };
    let mut fewest = f64::INFINITY;
    for lines in table.levels[level].lattice_lines() {
        held[level] = lines;
        fewest = fewest.min(fewest_cycles(table, held, level, beside));
    }
    fewest
}

/// Returns the corners of the lowest concave curve above the speeds (inverse cycles) at ascending lines, up to the highest speed.
fn hull(curve: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let speed = |p: &(f64, f64)| 1.0 / p.1;
    let mut corners: Vec<(f64, f64)> = Vec::new();
    for point in curve {
        if corners
            .last()
            .is_some_and(|last| speed(last) >= speed(point))
        {
            continue;
        }
        while let [.., a, b] = corners.as_slice() {
            let above =
                (speed(b) - speed(a)) * (point.0 - a.0) <= (speed(point) - speed(a)) * (b.0 - a.0);
            if !above {
                break;
            }
            corners.pop();
        }
        corners.push(*point);
    }
    corners
}
