//! Synthetic programs with known behaviour, for tests and benchmarks.
//!
//! Output: recorded profiles of the kinds that matter for placement: computing, streaming, pointer chasing, and working sets that
//! fit a shared cache or do not.

use countersteer_model::profile::{
    Behaviour, IlpPoint, Locality, LogHistogram, Mix, MlpPoint, Profile, Recorded, Segment, Source,
    ThreadShape,
};

/// Behaviour described by a small number of parameters.
#[derive(Clone, Debug)]
pub struct SyntheticKind {
    /// Instructions per cycle that dependences allow in windows of 16 and of 512 instructions; a power law between them.
    pub ilp: (f64, f64),
    /// Mispredicted branches per kilo-instruction.
    pub branch_mpki: f64,
    /// Accesses whose stack distances are distributed evenly below a number of lines: (lines, accesses per kilo-instruction).
    pub spread: Vec<(u64, f64)>,
    /// Accesses of loops over exactly this number of lines: (lines, accesses per kilo-instruction).
    pub cyclic: Vec<(u64, f64)>,
    /// First accesses to lines, per kilo-instruction.
    pub cold_pki: f64,
    /// Number of overlapping long misses in windows of 16 and of 512 instructions.
    pub mlp: (f64, f64),
}

/// Behaviour that fits the first-level cache.
#[must_use]
pub fn compute() -> SyntheticKind {
    let spread = vec![(64, 350.0)];
    let cyclic = Vec::new();
    SyntheticKind {
        ilp: (5.0, 24.0),
        branch_mpki: 0.5,
        spread,
        cyclic,
        cold_pki: 0.001,
        mlp: (1.0, 1.0),
    }
}

/// Behaviour that touches every line once, with overlapping misses.
#[must_use]
pub fn streaming() -> SyntheticKind {
    let spread = vec![(64, 300.0)];
    let cyclic = Vec::new();
    SyntheticKind {
        ilp: (6.0, 40.0),
        branch_mpki: 0.1,
        spread,
        cyclic,
        cold_pki: 25.0,
        mlp: (1.5, 12.0),
    }
}

/// Behaviour that follows pointers through `lines` lines: each miss waits for the previous miss.
#[must_use]
pub fn chase(lines: u64) -> SyntheticKind {
    let spread = vec![(64, 250.0), (lines, 40.0)];
    let cyclic = Vec::new();
    SyntheticKind {
        ilp: (3.0, 8.0),
        branch_mpki: 2.0,
        spread,
        cyclic,
        cold_pki: 0.01,
        mlp: (1.0, 1.2),
    }
}

/// Behaviour that sweeps over `lines` lines repeatedly: all accesses hit if the lines fit the cache, otherwise none.
#[must_use]
pub fn cyclic(lines: u64) -> SyntheticKind {
    let spread = vec![(64, 250.0)];
    let cyclic = vec![(lines, 20.0)];
    SyntheticKind {
        ilp: (4.0, 14.0),
        branch_mpki: 1.0,
        spread,
        cyclic,
        cold_pki: 0.01,
        mlp: (1.2, 3.0),
    }
}

/// Behaviour that reuses lines at all distances up to `lines`: every line of cache helps a little.
#[must_use]
pub fn vulnerable(lines: u64) -> SyntheticKind {
    let spread = vec![(64, 250.0), (lines / 8, 20.0), (lines, 20.0)];
    SyntheticKind {
        ilp: (4.0, 14.0),
        branch_mpki: 1.0,
        spread,
        cyclic: Vec::new(),
        cold_pki: 0.02,
        mlp: (1.1, 2.5),
    }
}

impl SyntheticKind {
    /// Multiplies the accesses beyond the first-level cache by `factor`.
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Self {
        let beyond = |(lines, rate): &mut (u64, f64)| {
            if *lines > 512 {
                *rate *= factor;
            }
        };
        self.spread
            .iter_mut()
            .chain(&mut self.cyclic)
            .for_each(beyond);
        self.cold_pki *= factor;
        self
    }
}

/// Returns program number `nth` of a mix of programs with misses typical of SPEC programs. The program has three phases of about
/// `phase_s` seconds each on a loaded desktop processor.
#[must_use]
pub fn typical(nth: usize, phase_s: f64) -> Profile {
    let (kind, ips) = match nth % 5 {
        0 => (compute(), 20e9),
        1 => (vulnerable(120_000).scaled(0.25), 5.5e9),
        2 => (streaming().scaled(0.2), 12e9),
        3 => (chase(150_000).scaled(0.15), 2.1e9),
        _ => (cyclic(40_000).scaled(0.3), 8e9),
    };
    let phases: Vec<_> = [1.0, 0.5, 1.4]
        .iter()
        .enumerate()
        .map(|(i, factor)| {
            // Lengths differ between programs, so that their phases are not synchronised.
            let length = phase_s * ips * (0.8 + 0.05 * ((nth * 7 + i * 3) % 9) as f64);
            (kind.clone().scaled(*factor), length as u64)
        })
        .collect();
    profile("typical", &phases)
}

/// Returns a profile that runs through `phases` (kind, instructions) in order.
#[must_use]
pub fn profile(name: &str, phases: &[(SyntheticKind, u64)]) -> Profile {
    let segment = |(i, p): (usize, &(SyntheticKind, u64))| Segment {
        behaviour: i as u32,
        instructions: p.1,
    };
    Profile::Recorded(Recorded {
        schema: "countersteer.profile/1".into(),
        name: name.into(),
        source: Source {
            kind: "synthetic".into(),
            ..Source::default()
        },
        partial: None,
        caveats: Vec::new(),
        sampling: Vec::new(),
        instructions: phases.iter().map(|p| p.1).sum(),
        shape: ThreadShape {
            threads: 1,
            serial_share: 0.0,
            ..ThreadShape::default()
        },
        behaviours: phases.iter().map(|p| behaviour(&p.0)).collect(),
        timeline: phases.iter().enumerate().map(segment).collect(),
    })
}

fn behaviour(kind: &SyntheticKind) -> Behaviour {
    let mut distances = LogHistogram::default();
    for (lines, rate) in &kind.spread {
        let last = LogHistogram::bucket(lines.saturating_sub(1));
        let total = LogHistogram::lower(last + 1) as f64;
        for bucket in 0..=last {
            let width = LogHistogram::lower(bucket + 1) - LogHistogram::lower(bucket);
            distances.add(LogHistogram::lower(bucket), rate * width as f64 / total);
        }
    }
    for (lines, rate) in &kind.cyclic {
        distances.add(lines.saturating_sub(1), *rate);
    }
    let windows = [16u32, 32, 64, 128, 256, 512];
    let between = |(low, high): (f64, f64), window: u32| {
        let x = (f64::from(window) / 16.0).log2() / 5.0;
        low * (high / low).powf(x)
    };
    let mlp = |cache_lines| {
        windows.iter().map(move |w| MlpPoint {
            window: *w,
            cache_lines,
            overlap: between(kind.mlp, *w),
        })
    };
    Behaviour {
        mix: Mix {
            loads: 0.25,
            stores: 0.1,
            branches: 0.15,
            fp: 0.05,
            simd: 0.0,
        },
        branch_mpki: kind.branch_mpki,
        locality: Locality {
            stack_distance_pki: distances,
            cold_pki: kind.cold_pki,
            reuse_time_pki: LogHistogram::default(),
        },
        ilp: windows
            .iter()
            .map(|w| IlpPoint {
                window: *w,
                ipc: between(kind.ilp, *w),
            })
            .collect(),
        mlp: mlp(512).chain(mlp(1 << 20)).collect(),
        pipeline: None,
        reach: None,
        sharing: None,
    }
}
