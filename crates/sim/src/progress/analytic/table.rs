//! Rate tables: all data of one behaviour on one class of CPUs, ready for interpolation over cache occupancy.
//!
//! Input: the results of [`super::interval`] or [`super::measured`] for a profile. Output: cycles and misses per instruction for
//! given occupancies of the shared caches. A table also gives the footprint (lines touched in a number of instructions) by which
//! co-runners compose.
//!
//! The occupancy axis is the lattice of [`countersteer_model::profile::LogHistogram`]: eight linear parts per octave. The top
//! bits of a number select its lattice cell, so that a look-up needs no logarithm. Linear interpolation between lattice points
//! preserves a recorded histogram exactly.

use countersteer_model::corun::Footprint;
use countersteer_model::profile::Mix;

use super::class::MAX_LEVELS;
use super::shared_data::BehaviourSharing;
use super::siblings::{Beside, CoreShares};
use crate::progress::Unmeasured;

/// Number of low mantissa bits of an occupancy that give its position within a lattice cell (an eighth of an octave).
const CELL_BITS: u32 = 49;
const CELL_MASK: u64 = (1 << CELL_BITS) - 1;
const CELL_SCALE: f64 = 1.0 / (1u64 << CELL_BITS) as f64;
/// Lower bound on misses per instruction in the computation of footprints, which keeps fill times finite.
const MISS_FLOOR: f64 = 1e-9;
/// Number of intervals in the table of cold-start misses.
pub(crate) const COLD_STEPS: usize = 16;

/// Misses and cycles at one occupancy of one shared cache.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OccupancyPoint {
    /// Misses per instruction of this cache.
    pub miss: f64,
    /// Last level: cycles per instruction that do not depend on memory load. Other levels: cycles per instruction for hits in
    /// this level.
    pub a: f64,
    /// Last level: cycles per instruction of waiting for unloaded memory. Other levels: cycles per hit in the next level.
    pub b: f64,
}

impl OccupancyPoint {
    /// Combines each value with the same value of another point by `f`.
    fn with(&self, other: &Self, f: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            miss: f(self.miss, other.miss),
            a: f(self.a, other.a),
            b: f(self.b, other.b),
        }
    }
}

/// Table of the [`OccupancyPoint`]s of one shared cache over occupancy.
#[derive(Clone, Debug, Default)]
pub(crate) struct LevelTable {
    points: Vec<OccupancyPoint>,
    /// Lines of a thread by the instructions since it started without lines.
    footprint: Footprint,
    first: f64,
    last: f64,
    base: u64,
}

impl LevelTable {
    /// Tabulates `point` over occupancies from `from` to `lines` lines; below `from`, the values are constant.
    pub fn new(from: f64, lines: f64, point: impl Fn(f64) -> OccupancyPoint) -> Self {
        let first = f64::from_bits(from.clamp(1.0, lines.max(1.0)).to_bits() & !CELL_MASK);
        let base = first.to_bits() >> CELL_BITS;
        let mut points = Vec::new();
        loop {
            let at = f64::from_bits((base + points.len() as u64) << CELL_BITS);
            points.push(point(at));
            // A cell has two corners, however small the cache is.
            if at > lines && points.len() > 1 {
                break;
            }
        }
        let mut table = Self {
            points,
            footprint: Footprint::default(),
            first,
            last: lines,
            base,
        };
        table.integrate();
        table
    }

    /// Returns the mean of tables over equal occupancies, weighted by instructions; costs per access are weighted by accesses.
    pub fn mean(tables: &[(&Self, f64)], last_level: bool) -> Self {
        let mut mean = tables[0].0.clone();
        for (i, point) in mean.points.iter_mut().enumerate() {
            let sum = |f: fn(&OccupancyPoint) -> f64| {
                tables.iter().map(|(t, w)| w * f(&t.points[i])).sum::<f64>()
            };
            *point = OccupancyPoint {
                miss: sum(|p| p.miss),
                a: sum(|p| p.a),
                b: sum(|p| p.b),
            };
            if !last_level && point.miss > 0.0 {
                point.b = sum(|p| p.b * p.miss) / point.miss;
            }
        }
        mean.integrate();
        mean
    }

    fn integrate(&mut self) {
        let points = self.points.iter().enumerate();
        let rates = points.map(|(i, point)| (self.lattice(i), point.miss.max(MISS_FLOOR)));
        self.footprint = Footprint::of_rates(rates, self.last);
    }

    /// Iterates over the tabulated occupancies, up to the whole cache.
    pub(crate) fn lattice_lines(&self) -> impl Iterator<Item = f64> + '_ {
        let corners = (0..self.points.len()).map(|i| self.lattice(i));
        corners.map(|lines| lines.min(self.last.max(self.first)))
    }

    fn lattice(&self, i: usize) -> f64 {
        f64::from_bits((self.base + i as u64) << CELL_BITS)
    }

    /// Interpolates the point at an occupancy of `lines` lines; the second value is the change per line.
    #[inline]
    pub fn at(&self, lines: f64) -> (OccupancyPoint, OccupancyPoint) {
        let bits = lines
            .max(self.first)
            .min(self.last.max(self.first))
            .to_bits();
        let i = ((bits >> CELL_BITS) - self.base) as usize;
        let x = (bits & CELL_MASK) as f64 * CELL_SCALE;
        let [p, q] = &self.points[i..i + 2] else {
            return Default::default();
        };
        let rise = q.with(p, |q, p| q - p);
        let point = p.with(&rise, |p, rise| p + rise * x);
        // The width of a cell is an eighth of its octave.
        let per_line = f64::from_bits(((i as u64 + self.base) & !7) << CELL_BITS).recip() * 8.0;
        (point, rise.with(&rise, |rise, _| rise * per_line))
    }

    /// Returns the occupancy of a thread `instructions` instructions after it started without lines, and the derivative. `hint`
    /// is the cell of the last result.
    #[inline]
    pub fn filled(&self, instructions: f64, hint: &mut u32) -> (f64, f64) {
        self.footprint.after_near(instructions, hint)
    }
}

/// Average numbers of events per instruction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InstructionDetail {
    pub mix: Mix,
    pub l1d_misses: f64,
    /// Cycles per instruction that are lost to mispredicted branches.
    pub branch_cycles: f64,
    /// Cycles per instruction for which fetching stops at code that is not in its caches.
    pub fetch_cycles: f64,
    /// Cycles per instruction at full dispatch width.
    pub dispatch_cycles: f64,
}

impl InstructionDetail {
    /// Returns the sum of these averages and of the fraction `weight` of others.
    fn plus(self, other: &Self, weight: f64) -> Self {
        let sum = |of: fn(&Self) -> f64| of(&self) + weight * of(other);
        Self {
            mix: Mix {
                loads: sum(|d| d.mix.loads),
                stores: sum(|d| d.mix.stores),
                branches: sum(|d| d.mix.branches),
                fp: sum(|d| d.mix.fp),
                simd: sum(|d| d.mix.simd),
            },
            l1d_misses: sum(|d| d.l1d_misses),
            branch_cycles: sum(|d| d.branch_cycles),
            fetch_cycles: sum(|d| d.fetch_cycles),
            dispatch_cycles: sum(|d| d.dispatch_cycles),
        }
    }
}

/// Rate table of one behaviour on one class of CPUs.
#[derive(Clone, Debug, Default)]
pub(crate) struct RateTable {
    /// Cycles per instruction for dispatch and dependences only, while no SMT sibling runs.
    pub base: f64,
    /// Use of the core resources that SMT siblings share.
    pub shares: CoreShares,
    /// Cycles per instruction for mispredicted branches and private caches.
    pub fixed: f64,
    /// Cycles per instruction of waiting for unloaded memory if there is no shared cache; otherwise zero.
    pub memory: f64,
    /// Accesses per instruction that miss all private caches.
    pub private_misses: f64,
    /// Accesses to the last-level cache per instruction, used only if this cache is private.
    pub private_references: f64,
    /// Cycles of an access to the first level behind the private caches: a shared cache, or else memory.
    pub near_cycles: f64,
    /// Cycles of an access to memory by a thread that refills its private caches.
    pub far_cycles: f64,
    /// Number of lines of the private caches that the behaviour can use.
    pub useful_lines: f64,
    /// Additional misses until the private caches are warm again, indexed by the number of sixteenths of `useful_lines` that are
    /// still present.
    pub cold: [f64; COLD_STEPS + 1],
    /// Branches per instruction.
    pub branches: f64,
    /// Mispredicted branches per instruction.
    pub branch_misses: f64,
    /// Fractions of instructions whose cache misses, and whose mispredicted branches, were not measured.
    pub unmeasured: Unmeasured,
    /// Further averages per instruction; `None` if the profile lacks them.
    pub detail: Option<InstructionDetail>,
    /// Energy per instruction in nanojoules.
    pub instruction_nj: f64,
    /// Power of the busy core that is attributed to the thread, in watts (nJ per ns).
    pub active_w: f64,
    /// Number of lines that cross the memory bus per miss, including write-backs.
    pub lines_per_miss: f64,
    /// Data that the program's threads share.
    pub sharing: BehaviourSharing,
    /// Tables of the shared caches, inner first.
    pub levels: [LevelTable; MAX_LEVELS],
    /// Number of shared caches.
    pub depth: usize,
}

/// Rates at given occupancies: `a + b f` cycles per instruction for a memory latency of `f` times the unloaded latency.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OccupancyRate {
    /// Cycles per instruction for dispatch and dependences only, next to the running SMT siblings.
    pub base: f64,
    /// Cycles per instruction that do not depend on memory load, including `base`.
    pub a: f64,
    /// Cycles per instruction of waiting for unloaded memory.
    pub b: f64,
    /// Misses of private caches per instruction that other threads' stores cause.
    pub invalidated: f64,
    /// Accesses per instruction to lines that another core modified.
    pub modified: f64,
    /// Misses per instruction of each shared cache, inner first.
    pub miss: [f64; MAX_LEVELS],
    /// Approximate benefit of one more line in each shared cache: cycles per instruction saved, at unloaded memory latency.
    pub worth: [f64; MAX_LEVELS],
}

impl RateTable {
    /// Returns the rates at given occupancies of the shared caches, next to given SMT siblings.
    #[inline]
    pub fn rate(&self, lines: &[f64; MAX_LEVELS], beside: &Beside) -> OccupancyRate {
        // Tables of measured programs have all their cycles in `fixed`, and zero in `base`.
        let base = if beside.threads > 0.0 && self.base > 0.0 {
            self.shares.base(beside)
        } else {
            self.base
        };
        let mut rate = OccupancyRate {
            base,
            a: base + self.fixed,
            b: self.memory,
            ..OccupancyRate::default()
        };
        let mut before = self.private_misses;
        let mut next_hit = 0.0;
        for (k, level) in self.levels.iter().enumerate().take(self.depth) {
            let (p, per_line) = level.at(lines[k]);
            // An inner cache that holds more lines than this one passes on only its own misses.
            let miss = p.miss.min(before);
            let scale = if k > 0 && p.miss > 0.0 {
                miss / p.miss
            } else {
                1.0
            };
            rate.a += (before - miss) * next_hit;
            rate.a += p.a * scale;
            if k + 1 == self.depth {
                rate.b += p.b * scale;
                rate.worth[k] = (per_line.a + per_line.b).abs();
            } else {
                rate.worth[k] = per_line.a.abs() + p.b * per_line.miss.abs();
            }
            next_hit = p.b;
            before = miss;
            rate.miss[k] = miss;
        }
        rate
    }

    /// Adds the table of the next outer shared cache.
    pub fn push(&mut self, level: LevelTable) {
        self.levels[self.depth] = level;
        self.depth += 1;
    }

    /// Returns the additional misses of a thread that still finds `lines` of its lines in the private caches.
    pub(crate) fn cold_misses(&self, lines: f64) -> f64 {
        if self.useful_lines <= 0.0 {
            return 0.0;
        }
        let x = (lines / self.useful_lines).clamp(0.0, 1.0) * COLD_STEPS as f64;
        let i = (x as usize).min(COLD_STEPS - 1);
        self.cold[i] + (self.cold[i + 1] - self.cold[i]) * (x - i as f64)
    }

    /// Returns the mean of tables for one class of CPUs, weighted by instructions.
    pub fn mean(tables: &[(&Self, f64)]) -> Self {
        let sum = |f: &dyn Fn(&Self) -> f64| tables.iter().map(|(t, w)| w * f(t)).sum::<f64>();
        let first = tables[0].0;
        let mut levels: [LevelTable; MAX_LEVELS] = Default::default();
        for (k, level) in levels.iter_mut().enumerate().take(first.depth) {
            let rows: Vec<_> = tables.iter().map(|(t, w)| (&t.levels[k], *w)).collect();
            *level = LevelTable::mean(&rows, k + 1 == first.depth);
        }
        Self {
            base: sum(&|t| t.base),
            shares: CoreShares::mean(
                &tables
                    .iter()
                    .map(|(t, w)| (&t.shares, *w))
                    .collect::<Vec<_>>(),
            ),
            fixed: sum(&|t| t.fixed),
            memory: sum(&|t| t.memory),
            private_misses: sum(&|t| t.private_misses),
            private_references: sum(&|t| t.private_references),
            near_cycles: sum(&|t| t.near_cycles),
            far_cycles: sum(&|t| t.far_cycles),
            useful_lines: sum(&|t| t.useful_lines),
            cold: std::array::from_fn(|i| sum(&|t| t.cold[i])),
            branches: sum(&|t| t.branches),
            branch_misses: sum(&|t| t.branch_misses),
            unmeasured: Unmeasured {
                misses: sum(&|t| t.unmeasured.misses),
                branch_misses: sum(&|t| t.unmeasured.branch_misses),
                sharing: sum(&|t| t.unmeasured.sharing),
            },
            detail: tables
                .iter()
                .try_fold(InstructionDetail::default(), |sum, (t, w)| {
                    Some(sum.plus(t.detail.as_ref()?, *w))
                }),
            instruction_nj: sum(&|t| t.instruction_nj),
            active_w: sum(&|t| t.active_w),
            lines_per_miss: sum(&|t| t.lines_per_miss),
            sharing: BehaviourSharing {
                shared: sum(&|t| t.sharing.shared),
                touched_before: sum(&|t| t.sharing.touched_before),
                invalidated: sum(&|t| t.sharing.invalidated),
                invalidated_outside: sum(&|t| t.sharing.invalidated_outside),
            },
            levels,
            depth: first.depth,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep() -> LevelTable {
        LevelTable::new(64.0, 10_000.0, |c| OccupancyPoint {
            miss: 0.01 * (1.0 - c / 20_000.0),
            ..OccupancyPoint::default()
        })
    }

    #[test]
    fn interpolation_is_exact_for_what_is_linear_between_lattice_points() {
        let table = sweep();
        for lines in [64.0, 65.5, 1000.0, 9_999.0, 10_000.0] {
            assert!(
                (table.at(lines).0.miss - 0.01 * (1.0 - lines / 20_000.0)).abs() < 1e-12,
                "{lines}"
            );
        }
        assert_eq!(table.at(1.0).0.miss, table.at(64.0).0.miss);
        assert_eq!(table.at(1e9).0.miss, table.at(10_000.0).0.miss);
    }

    #[test]
    fn a_cache_smaller_than_a_line_has_a_table_as_well() {
        let table = LevelTable::new(1.0, 1e-7, |_| OccupancyPoint {
            miss: 0.5,
            ..OccupancyPoint::default()
        });
        assert_eq!(table.at(0.0).0.miss, 0.5);
    }

    #[test]
    fn filling_inverts_the_fill_time() {
        let table = sweep();
        let mut hint = 0;
        for lines in [10.0, 64.0, 500.0, 3_333.0, 9_000.0, 200.0] {
            let fill = if lines < 64.0 {
                lines / table.at(64.0).0.miss
            } else {
                exact(lines)
            };
            let (back, slope) = table.filled(fill, &mut hint);
            assert!((back / lines - 1.0).abs() < 1e-2, "{lines} {back}");
            assert!(slope > 0.0);
        }
        assert_eq!(table.filled(1e15, &mut hint), (10_000.0, 0.0));
    }

    /// For miss(c) = m (1 - c/K) above the first point: F(c) = first/miss(first) + K/m ln((K - first)/(K - c)).
    fn exact(lines: f64) -> f64 {
        let m = 0.01f64;
        let k = 20_000.0f64;
        let first = 64.0f64;
        first / (m * (1.0 - first / k)) + k / m * ((k - first) / (k - lines)).ln()
    }

    #[test]
    fn the_fill_time_is_the_integral_of_the_inverse_miss_rate() {
        let (lines, _) = sweep().filled(exact(8_192.0), &mut 0);
        assert!((lines / 8_192.0 - 1.0).abs() < 1e-9);
    }
}
