//! Published profiles: values for a program from public counter tables, and the recorded behaviour derived from them.
//!
//! Input: a TOML file of values, each with its error and its source table. Output: [`Published`], which is converted to a
//! [`Recorded`] profile. The values are used as they are, or drawn at random within their errors. Values that no table contains
//! are marked `assumed`.

use rand::RngExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reach::check_points;
use super::recorded::SCHEMA as RECORDED_SCHEMA;
use super::{
    Behaviour, ChainPoint, IlpPoint, Locality, LogHistogram, Mix, MlpPoint, Operations, Pipeline,
    REFERENCE_LOAD_CYCLES, Reach, ReachPoint, Recorded, Resolution, Segment, Source, StreamPoint,
    ThreadShape,
};
use crate::bounds::{self, check_all};
use crate::policy::{PolicyRng, policy_rng};
use crate::textfile::{TextError, parse_toml};
use crate::units::LINE_BYTES;

/// Schema identifier in every published profile.
pub const SCHEMA: &str = "countersteer.published/1";

/// Window in instructions for which `ilp` and `overlap` hold: the reorder buffer of Skylake, the machine of the tables.
pub const WINDOW: u32 = 224;
/// Source name of a value that no table contains.
pub const ASSUMED: &str = "assumed";

/// Fraction of branches that are taken: median of the shipped recorded profiles.
const TAKEN: f64 = 0.55;
/// Fraction of branches that fuse with a compare: median of the shipped recorded profiles.
const FUSED: f64 = 0.65;
/// Cycles to resolve a mispredicted branch: medians of the shipped recorded profiles.
const RESOLUTION: Resolution = Resolution {
    unit: 3.3,
    loads: 6.0,
    operations: 0.34,
};
/// Windows for which values are derived from those of [`WINDOW`], with exponents and factors that are medians of the shipped
/// recorded profiles; the last exponent continues their trend.
const SHAPE: [DependenceShape; 8] = [
    DependenceShape::new(16, 0.43, 1.21),
    DependenceShape::new(32, 0.43, 1.03),
    DependenceShape::new(64, 0.39, 0.91),
    DependenceShape::new(128, 0.36, 0.81),
    DependenceShape::new(WINDOW, 0.33, 0.77),
    DependenceShape::new(256, 0.33, 0.76),
    DependenceShape::new(512, 0.29, 0.68),
    DependenceShape::new(1024, 0.26, 0.62),
];
/// Exponent with which the misses that overlap with a miss grow with the window.
const OVERLAP_GROWTH: f64 = 0.55;

/// Shape of a program's dependences over the window.
struct DependenceShape {
    window: u32,
    /// Exponent with which parallelism grows from the window before to this one.
    growth: f64,
    /// Loads of a dependence chain, relative to the loads of all instructions.
    loads: f64,
}

impl DependenceShape {
    const fn new(window: u32, growth: f64, loads: f64) -> Self {
        Self {
            window,
            growth,
            loads,
        }
    }
}

/// Returns the parallelism at each of [`SHAPE`]'s windows, given that at [`WINDOW`].
fn parallelism(at_window: f64) -> Vec<IlpPoint> {
    let mut relative = 1.0;
    let mut before = f64::from(SHAPE[0].window);
    let grown: Vec<(u32, f64)> = SHAPE
        .iter()
        .map(|shape| {
            let window = f64::from(shape.window);
            relative *= (window / before).powf(shape.growth);
            before = window;
            (shape.window, relative)
        })
        .collect();
    let own = grown.iter().find(|(window, _)| *window == WINDOW);
    let own = own.map_or(1.0, |(_, relative)| *relative);
    let point = |(window, relative): (u32, f64)| IlpPoint {
        window,
        ipc: at_window * relative / own,
    };
    grown.into_iter().map(point).collect()
}

/// Returns the overlap of misses at each of [`SHAPE`]'s windows, given that at [`WINDOW`].
fn overlaps(at_window: f64, cache_lines: u64) -> Vec<MlpPoint> {
    let point = |shape: &DependenceShape| {
        let grown = f64::from(shape.window) / f64::from(WINDOW);
        MlpPoint {
            window: shape.window,
            cache_lines,
            overlap: 1.0 + (at_window - 1.0).max(0.0) * grown.powf(OVERLAP_GROWTH),
        }
    };
    SHAPE.iter().map(point).collect()
}

/// Cycles beyond one by which a floating-point operation lengthens a dependency chain.
const FP_CHAIN: f64 = 2.5;

/// Program as described by public counter tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// `countersteer.published/1`.
    pub schema: String,
    /// Program and suite: `mcf-2006`.
    pub name: String,
    /// Tables, their repositories and the method.
    pub source: Source,
    /// Number of instructions of one run, in billions.
    pub giga_instructions: f64,
    pub figures: Figures,
    /// Misses by cache size, ascending.
    pub curve: Vec<CurvePoint>,
    /// Misses of instruction cache and translation buffers, by kind and ascending in size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reach: Vec<ReachPoint>,
    /// Rows and values of the tables that were not used, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// All values of the program except misses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Loads per instruction.
    pub loads: Figure,
    /// Stores per instruction.
    pub stores: Figure,
    /// Branches per instruction.
    pub branches: Figure,
    /// Floating-point operations per instruction.
    pub fp: Figure,
    /// Mispredicted branches per kilo-instruction.
    pub branch_mpki: Figure,
    /// Instructions per cycle that dependencies allow among [`WINDOW`] instructions.
    pub ilp: Figure,
    /// Number of overlapping misses among [`WINDOW`] instructions.
    pub overlap: Figure,
    /// Fraction of the misses that prefetchers predict.
    pub streams: Figure,
}

/// Value with its error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    pub value: f64,
    /// Standard error, in the unit of the value.
    pub error: f64,
    /// Table of origin, or `assumed`.
    pub from: String,
}

/// Misses at one cache size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CurvePoint {
    /// Size of the cache available to the program.
    pub cache_kib: f64,
    /// Misses per kilo-instruction, prefetches included.
    pub mpki: f64,
    /// Standard error of the misses.
    pub error: f64,
    /// Table of origin.
    pub from: String,
}

impl Figure {
    /// Creates a value with its error and source; both numbers are rounded to four significant digits.
    #[must_use]
    pub fn new(value: f64, error: f64, from: &str) -> Self {
        Self {
            value: rounded(value),
            error: rounded(error),
            from: from.to_owned(),
        }
    }
}

/// Rounds a value to four significant digits. No table is more precise.
#[must_use]
pub fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

impl Published {
    /// Parses and checks the TOML text of a published profile.
    ///
    /// # Errors
    /// Fails on a syntax error, an unknown field, another schema, or invalid values.
    pub fn parse(path: &str, text: &str) -> Result<Self, TextError> {
        let published: Self = parse_toml(path, text)?;
        published
            .check()
            .map_err(|why| TextError::value(path, why))?;
        Ok(published)
    }

    fn check(&self) -> Result<(), String> {
        if self.schema != SCHEMA {
            return Err(format!(
                "schema is `{}`, this version reads `{SCHEMA}`",
                self.schema
            ));
        }
        bounds::GIGA_INSTRUCTIONS.check("giga_instructions", self.giga_instructions)?;
        let errors = self.listed().map(|(_, figure)| figure.error);
        let errors = errors.into_iter().chain(self.curve.iter().map(|p| p.error));
        if errors.into_iter().any(|e| !e.is_finite() || e < 0.0) {
            return Err("an `error` is no standard error: it must be 0 or more".into());
        }
        if self.curve.len() < 2 {
            return Err("`curve` needs misses at two cache sizes".into());
        }
        for point in &self.curve {
            check_all([
                ("cache_kib", bounds::CACHE_SIZE, point.cache_kib),
                ("mpki", bounds::PER_KILO_INSTRUCTION, point.mpki),
            ])
            .map_err(|(_, why)| why)?;
        }
        let falls = |w: &[CurvePoint]| w[0].cache_kib < w[1].cache_kib && w[0].mpki >= w[1].mpki;
        if !self.curve.windows(2).all(falls) {
            return Err("`curve` must have growing sizes and misses that never rise".into());
        }
        check_points(&self.reach)?;
        self.recorded().check()
    }

    /// Returns the values with their names, in the order of the file.
    #[must_use]
    pub const fn listed(&self) -> [(&'static str, &Figure); 8] {
        let f = &self.figures;
        [
            ("loads", &f.loads),
            ("stores", &f.stores),
            ("branches", &f.branches),
            ("fp", &f.fp),
            ("branch_mpki", &f.branch_mpki),
            ("ilp", &f.ilp),
            ("overlap", &f.overlap),
            ("streams", &f.streams),
        ]
    }

    /// Converts to a recorded profile, with the values as they are.
    #[must_use]
    pub fn recorded(&self) -> Recorded {
        self.with_figures(&self.figures, &self.curve)
    }

    /// Converts to a recorded profile, with values drawn from normal distributions with their errors. The draw depends only on
    /// `seed` and the program's name.
    ///
    /// Errors of different values are independent. The points of one table are drawn together, because the counters of a table
    /// have the same error at every size.
    #[must_use]
    pub fn drawn(&self, seed: u64) -> Recorded {
        let name = self.name.bytes().fold(0u64, |hash, byte| {
            hash.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte)
        });
        let mut rng = policy_rng(seed ^ name);
        let mut draw = |figure: &Figure, least: f64, most: f64| Figure {
            value: (figure.value + figure.error * normal(&mut rng)).clamp(least, most),
            ..figure.clone()
        };
        let f = &self.figures;
        let figures = Figures {
            loads: draw(&f.loads, 0.0, 1.0),
            stores: draw(&f.stores, 0.0, 1.0),
            branches: draw(&f.branches, 0.0, 0.5),
            fp: draw(&f.fp, 0.0, 1.0),
            branch_mpki: draw(&f.branch_mpki, 0.0, 100.0),
            ilp: draw(&f.ilp, 0.3 * f.ilp.value, 3.0 * f.ilp.value),
            overlap: draw(&f.overlap, 1.0, f64::from(WINDOW)),
            streams: draw(&f.streams, 0.0, 1.0),
        };
        let mut tables: Vec<(&str, f64)> = Vec::new();
        for point in &self.curve {
            if tables.iter().all(|(from, _)| *from != point.from) {
                tables.push((&point.from, normal(&mut rng)));
            }
        }
        let mut curve = self.curve.clone();
        let mut most = f64::INFINITY;
        for point in &mut curve {
            let shift = tables.iter().find(|(from, _)| *from == point.from);
            let shift = shift.map_or(0.0, |(_, z)| z * point.error);
            point.mpki = (point.mpki + shift).clamp(0.0, most);
            most = point.mpki;
        }
        self.with_figures(&figures, &curve)
    }

    fn with_figures(&self, figures: &Figures, curve: &[CurvePoint]) -> Recorded {
        let instructions = ((self.giga_instructions * 1e9).round() as u64).max(1);
        Recorded {
            schema: RECORDED_SCHEMA.to_owned(),
            name: self.name.clone(),
            source: self.source.clone(),
            partial: None,
            caveats: Vec::new(),
            sampling: Vec::new(),
            instructions,
            shape: ThreadShape {
                threads: 1,
                serial_share: 1.0,
                ..ThreadShape::default()
            },
            behaviours: vec![behaviour(figures, curve, Reach::through(&self.reach))],
            timeline: vec![Segment {
                behaviour: 0,
                instructions,
            }],
        }
    }
}

/// Returns a random number from the standard normal distribution (Box and Muller 1958).
fn normal(rng: &mut PolicyRng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.random::<f64>()).cos()
}

fn behaviour(f: &Figures, curve: &[CurvePoint], reach: Option<Reach>) -> Behaviour {
    let mix = Mix {
        loads: f.loads.value,
        stores: f.stores.value,
        branches: f.branches.value,
        fp: f.fp.value,
        simd: 0.0,
    };
    let ilp = parallelism(f.ilp.value);
    Behaviour {
        mix,
        branch_mpki: f.branch_mpki.value,
        locality: locality(curve, 1000.0 * (mix.loads + mix.stores)),
        mlp: overlaps(f.overlap.value, lines(curve[0].cache_kib) as u64),
        pipeline: Some(pipeline(mix, &ilp, f.streams.value)),
        reach,
        sharing: None,
        ilp,
    }
}

/// Derives execution units from the instruction mix, and dependency chains whose length grows with all latencies.
/// Fractions of streaming accesses apply to every cache size.
fn pipeline(mix: Mix, ilp: &[IlpPoint], streams: f64) -> Pipeline {
    let rest = 1.0 - mix.branches - mix.fp - 0.5 * (mix.loads + mix.stores);
    let chain = |(point, shape): (&IlpPoint, &DependenceShape)| ChainPoint {
        window: point.window,
        loads: mix.loads * shape.loads * f64::from(REFERENCE_LOAD_CYCLES - 1) / point.ipc,
        operations: mix.fp * FP_CHAIN / point.ipc,
    };
    Pipeline {
        operations: Operations {
            alu: rest.max(0.0),
            fp_add: 0.5 * mix.fp,
            fp_multiply: 0.5 * mix.fp,
            ..Operations::default()
        },
        fused: FUSED * mix.branches,
        taken: TAKEN * mix.branches,
        chains: ilp.iter().zip(&SHAPE).map(chain).collect(),
        resolution: RESOLUTION,
        streams: vec![StreamPoint {
            cache_lines: 512,
            share: streams,
        }],
        conflicts: Vec::new(),
    }
}

const fn lines(cache_kib: f64) -> f64 {
    cache_kib * 1024.0 / LINE_BYTES as f64
}

/// Returns stack distances that reproduce the misses of a curve. A power law connects a cache of one line, in which every access
/// misses, to the first size. Beyond it, misses are linear in the logarithm of the size. Misses at the last size miss in every
/// cache.
fn locality(curve: &[CurvePoint], accesses_pki: f64) -> Locality {
    let first = &curve[0];
    let top = accesses_pki.max(first.mpki);
    let points: Vec<(f64, f64)> = curve.iter().map(|p| (lines(p.cache_kib), p.mpki)).collect();
    let misses = |at: f64| {
        if at <= 1.0 {
            return top;
        }
        if at < points[0].0 {
            let part = at.ln() / points[0].0.ln();
            let floor = points[0].1.max(1e-3);
            return (top.max(floor) * (floor / top.max(floor)).powf(part)).max(points[0].1);
        }
        let next = points.partition_point(|p| p.0 <= at);
        match points.get(next) {
            Some(&(x1, y1)) => {
                let (x0, y0) = points[next - 1];
                y0 + (y1 - y0) * (at / x0).ln() / (x1 / x0).ln()
            }
            None => points[next - 1].1,
        }
    };
    let last = points[points.len() - 1];
    let end = LogHistogram::bucket(last.0.ceil() as u64) + 1;
    let edge = |bucket: usize| misses(LogHistogram::lower(bucket) as f64);
    let rates = (0..end).map(|b| (edge(b) - edge(b + 1)).max(0.0)).collect();
    Locality {
        stack_distance_pki: LogHistogram { rates },
        cold_pki: last.1,
        reuse_time_pki: LogHistogram::default(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test helper that fails has failed its test
mod tests {
    use super::*;
    use crate::profile::MissCurve;

    fn published() -> Published {
        let figure = |value, error| Figure::new(value, error, "table");
        let point = |cache_kib, mpki| CurvePoint {
            cache_kib,
            mpki,
            error: 0.1 * mpki,
            from: "table".into(),
        };
        Published {
            schema: SCHEMA.into(),
            name: "mcf-2000".into(),
            source: Source::default(),
            giga_instructions: 45.0,
            figures: Figures {
                loads: figure(0.3, 0.01),
                stores: figure(0.1, 0.01),
                branches: figure(0.2, 0.01),
                fp: figure(0.0, 0.0),
                branch_mpki: figure(10.0, 1.0),
                ilp: figure(3.0, 0.3),
                overlap: figure(2.0, 0.2),
                streams: figure(0.4, 0.1),
            },
            curve: vec![point(32.0, 100.0), point(1024.0, 50.0), point(8192.0, 5.0)],
            reach: Vec::new(),
            left_out: Vec::new(),
        }
    }

    #[test]
    fn the_curve_of_the_recorded_profile_is_the_published_one() {
        let published = published();
        let recorded = published.recorded();
        recorded.check().unwrap();
        let curve = MissCurve::from_locality(&recorded.behaviours[0].locality);
        for point in &published.curve {
            let ours = curve.mpki(lines(point.cache_kib));
            assert!((ours - point.mpki).abs() < 0.02 * point.mpki, "{ours}");
        }
        let between = curve.mpki(lines(181.02));
        assert!((between - 75.0).abs() < 1.0, "{between}");
        assert_eq!(curve.mpki(lines(1e6)), 5.0);
    }

    #[test]
    fn draws_stay_within_the_errors_and_follow_the_seed() {
        let published = published();
        assert_eq!(published.drawn(7), published.drawn(7));
        let drawn: Vec<f64> = (0..400)
            .map(|seed| published.drawn(seed).behaviours[0].branch_mpki)
            .collect();
        let mean = drawn.iter().sum::<f64>() / 400.0;
        let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 399.0;
        assert!((mean - 10.0).abs() < 0.2, "{mean}");
        assert!((variance.sqrt() - 1.0).abs() < 0.15, "{variance}");
        (0..50).for_each(|seed| published.drawn(seed).check().unwrap());
    }

    #[test]
    fn a_curve_that_rises_is_refused() {
        let mut published = published();
        published.curve[1].mpki = 200.0;
        let text = toml::to_string(&published).unwrap();
        let error = Published::parse("p.toml", &text).unwrap_err();
        assert!(error.to_string().contains("never rise"), "{error}");
    }
}
