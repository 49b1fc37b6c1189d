//! Recorded profiles: machine-independent behaviour of a program per phase.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Caveat, LogHistogram, Pipeline, Reach, SampledFigure, Sharing};
use crate::bounds::{self, Bounds, check_all};
use crate::textfile::{TextError, parse_json};

/// Schema identifier in every recorded profile.
pub const SCHEMA: &str = "countersteer.profile/1";

/// Behaviour of a program, measured by instrumentation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// `countersteer.profile/1`.
    pub schema: String,
    /// Short name; by default the file name of the program.
    pub name: String,
    /// Origin of the profile, and the command that records it again.
    pub source: Source,
    /// Reason if this is not the profile of a complete, successful run: the recording was stopped, or the program failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
    /// Detected differences from a run without the recorder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caveats: Vec<Caveat>,
    /// Figures of the whole run that come from a sample, with their errors. Empty for exact recordings, and for runs too short to be
    /// sampled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sampling: Vec<SampledFigure>,
    /// Number of instructions of one run, over all threads and processes.
    pub instructions: u64,
    /// Threads and how the work is split among them.
    pub shape: ThreadShape,
    /// Distinct behaviours, the clusters of the fixed instruction windows.
    pub behaviours: Vec<Behaviour>,
    /// The run in order: behaviours and their instructions. Sums to `instructions`.
    pub timeline: Vec<Segment>,
}

/// Origin of a profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// `instrumentation`, `counters` or `published`.
    pub kind: String,
    /// Command that records the profile again, or the publication.
    pub detail: String,
    /// Description of tool, predictor, window and sampling rates.
    #[serde(default)]
    pub method: String,
}

/// Threads of a program, and the division of work among them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThreadShape {
    /// Number of threads observed, over all processes of the program.
    pub threads: u32,
    /// Fraction of the instructions that one thread executed while the others waited.
    pub serial_share: f64,
    /// Share of the time with 1, 2, ... runnable threads; the last value counts that many or more. Time is that of runnable
    /// threads running at equal speed. Empty in older profiles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runnable: Vec<f64>,
    /// Share of the serial instructions that each thread executed, in order of creation, without the trailing zeros. Empty in
    /// older profiles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serial_by: Vec<f64>,
}

/// Behaviour of a part of the program, with all inputs of the core model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Behaviour {
    /// Fractions of the instructions by kind.
    pub mix: Mix,
    /// Mispredicted branches per kilo-instruction under the predictor named in the source.
    pub branch_mpki: f64,
    /// Data locality.
    pub locality: Locality,
    /// Instructions per cycle allowed by data dependencies alone, by window, ascending.
    pub ilp: Vec<IlpPoint>,
    /// Overlap of long misses, by window and cache size.
    pub mlp: Vec<MlpPoint>,
    /// Pipeline properties: units, latencies, branches, prefetching and conflicts. Absent in older profiles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<Pipeline>,
    /// Locality of code and of pages. Absent in older profiles: fetching and translation then cost nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<Reach>,
    /// Data that threads share. Absent while one thread runs, and in older profiles: every thread then has
    /// lines of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
}

/// Fractions of all instructions. They overlap, because an instruction may load and compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// Data accesses that read, per instruction.
    pub loads: f64,
    /// Data accesses that write, per instruction.
    pub stores: f64,
    /// Fraction of jumps (conditional and unconditional), calls and returns.
    pub branches: f64,
    /// Fraction of scalar floating-point instructions.
    pub fp: f64,
    /// Fraction of vector instructions.
    pub simd: f64,
}

/// Data locality in 64-byte lines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Locality {
    /// Accesses per kilo-instruction by LRU stack distance in lines: distance 0 is the same line again. A fully associative LRU
    /// cache of C lines hits the distances below C.
    pub stack_distance_pki: LogHistogram,
    /// First accesses to a line, per kilo-instruction: they miss in every cache.
    pub cold_pki: f64,
    /// Accesses per kilo-instruction by reuse time, counted in data accesses since the last one to the same line.
    pub reuse_time_pki: LogHistogram,
}

/// Instruction-level parallelism in a window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IlpPoint {
    /// Number of instructions in the window.
    pub window: u32,
    /// Instructions per cycle with unit latencies and otherwise unlimited resources.
    pub ipc: f64,
}

/// Memory-level parallelism in a window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MlpPoint {
    /// Number of instructions in the window.
    pub window: u32,
    /// Number of lines of the cache whose misses are counted.
    pub cache_lines: u64,
    /// Mean number of overlapping misses in windows with at least one miss. Dependent misses do not overlap.
    pub overlap: f64,
}

/// Section of the run with one behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    /// Index in `behaviours`.
    pub behaviour: u32,
    /// Length of the section in instructions.
    pub instructions: u64,
}

impl Recorded {
    /// Returns the fraction of the instructions in each behaviour.
    #[must_use]
    pub fn shares(&self) -> Vec<f64> {
        let mut shares = vec![0.0; self.behaviours.len()];
        for segment in &self.timeline {
            shares[segment.behaviour as usize] +=
                segment.instructions as f64 / self.instructions.max(1) as f64;
        }
        shares
    }

    /// Parses and checks the JSON text of a recorded profile.
    ///
    /// # Errors
    /// Fails on text that is truncated, has another format or schema, or contains invalid values.
    pub fn parse(path: &str, text: &str) -> Result<Self, TextError> {
        let profile: Self = parse_json(path, text)?;
        profile.check().map_err(|why| TextError::value(path, why))?;
        Ok(profile)
    }

    /// Checks that the values of the profile are possible and consistent.
    ///
    /// # Errors
    /// Returns a sentence about the first invalid value.
    pub fn check(&self) -> Result<(), String> {
        if self.schema != SCHEMA {
            return Err(format!(
                "schema is `{}`, this version reads `{SCHEMA}`; record the program again",
                self.schema
            ));
        }
        if self.behaviours.is_empty() || self.timeline.is_empty() {
            return Err(
                "the profile has no behaviour or no timeline; record the program again".into(),
            );
        }
        let mut sum = 0u64;
        for segment in &self.timeline {
            if segment.behaviour as usize >= self.behaviours.len() || segment.instructions == 0 {
                return Err(format!(
                    "segment {segment:?} names no behaviour or is empty"
                ));
            }
            sum = sum.saturating_add(segment.instructions);
        }
        if sum != self.instructions {
            return Err(format!(
                "segments sum to {sum} instructions, `instructions` says {}",
                self.instructions
            ));
        }
        let figures = [
            ("instructions", bounds::INSTRUCTIONS, sum as f64),
            ("threads", bounds::THREADS, f64::from(self.shape.threads)),
            ("serial_share", bounds::SHARE, self.shape.serial_share),
        ];
        check_all(figures).map_err(|(_, why)| why)?;
        for share in self.shape.runnable.iter().chain(&self.shape.serial_by) {
            bounds::SHARE.check("shape", *share)?;
        }
        self.sampling.iter().try_for_each(SampledFigure::check)?;
        self.behaviours.iter().try_for_each(Behaviour::check)
    }
}

impl Behaviour {
    fn check(&self) -> Result<(), String> {
        check_all(self.rates()).map_err(|(_, why)| why)?;
        let Locality {
            stack_distance_pki,
            reuse_time_pki,
            ..
        } = &self.locality;
        for (key, histogram) in [
            ("stack_distance_pki", stack_distance_pki),
            ("reuse_time_pki", reuse_time_pki),
        ] {
            histogram.check(key)?;
        }
        if self.ilp.is_empty() {
            return Err("`ilp` needs at least one window".into());
        }
        for p in &self.ilp {
            bounds::WINDOW.check("window", f64::from(p.window))?;
            bounds::IPC.check("ipc", p.ipc)?;
        }
        for p in &self.mlp {
            bounds::WINDOW.check("window", f64::from(p.window))?;
            bounds::CACHE_LINES.check("cache_lines", p.cache_lines as f64)?;
            bounds::OVERLAP.check("overlap", p.overlap)?;
        }
        self.pipeline.as_ref().map_or(Ok(()), Pipeline::check)?;
        self.reach.as_ref().map_or(Ok(()), Reach::check)?;
        self.sharing.as_ref().map_or(Ok(()), Sharing::check)
    }

    fn rates(&self) -> [(&'static str, Bounds, f64); 7] {
        let mix = self.mix;
        [
            ("loads", bounds::PER_INSTRUCTION, mix.loads),
            ("stores", bounds::PER_INSTRUCTION, mix.stores),
            ("branches", bounds::SHARE, mix.branches),
            ("fp", bounds::SHARE, mix.fp),
            ("simd", bounds::SHARE, mix.simd),
            (
                "branch_mpki",
                bounds::PER_KILO_INSTRUCTION,
                self.branch_mpki,
            ),
            (
                "cold_pki",
                bounds::PER_KILO_INSTRUCTION,
                self.locality.cold_pki,
            ),
        ]
    }
}
