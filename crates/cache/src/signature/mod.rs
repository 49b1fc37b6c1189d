//! Program signatures: misses in caches of 11 sizes and 4 associativities, for the whole run and by phase.
//!
//! Source: HASS, section 3. Input: traces. Output: a [`Carried`] signature, as a file ([`store`]), as bytes ([`note`]), or
//! inside a binary ([`elf`]). A signature that is read is untrusted input, so its values are limited and checked. A wrong
//! signature can only misplace the threads of its own program.

pub mod elf;
mod make;
pub mod note;
pub mod store;

use countersteer_model::signature::{SIZES, Signature, WAYS};
use serde::{Deserialize, Serialize};

pub use make::Maker;

/// Schema identifier in every signature file.
pub const SCHEMA: &str = "countersteer.signature/1";
/// Limit on the number of phases.
pub const MOST_PHASES: usize = 8;
/// Limit on the length of a name, in bytes.
const MOST_NAME: usize = 64;
/// Limit on the number of inputs.
const MOST_INPUTS: usize = 256;

/// Misses per 4,096 instructions, by cache size and associativity.
pub type Matrix = [[u16; WAYS.len()]; SIZES];

/// Signature of a program, as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Carried {
    /// Schema identifier, `countersteer.signature/1`.
    pub schema: String,
    /// Name of the program.
    pub name: String,
    /// Sources of the signature; each is a trace or a profile.
    pub inputs: Vec<String>,
    /// Number of instructions of all inputs.
    pub instructions: u64,
    /// Misses, as means over the inputs. The order is 16 KiB first, 4 ways first.
    pub misses: Matrix,
    /// Phases of the run; empty if the run has only one.
    #[serde(default)]
    pub phases: Vec<SignaturePhase>,
}

/// Phase of a run, with its misses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignaturePhase {
    /// Fraction of the instructions in this phase, 0 to 1.
    pub share: f64,
    /// Misses in this phase.
    pub misses: Matrix,
}

/// Error of reading, checking or writing a signature.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    #[error("{path}: {source}")]
    Io {
        path: String,
        source: std::io::Error,
    },
    #[error("{path}: this is no signature: {why}")]
    Foreign { path: String, why: String },
    #[error("{path}: {why}")]
    Elf { path: String, why: String },
}

impl Carried {
    /// Parses and checks the JSON text of a signature.
    ///
    /// # Errors
    /// Fails if the text has another schema or contains invalid values.
    pub fn parse(path: &str, text: &str) -> Result<Self, SignatureError> {
        let foreign = |why: String| {
            let path = path.to_owned();
            SignatureError::Foreign { path, why }
        };
        let this: Self = serde_json::from_str(text).map_err(|e| foreign(e.to_string()))?;
        this.check().map_err(foreign)?;
        Ok(this)
    }

    /// Checks that the values of a signature are within their limits.
    ///
    /// # Errors
    /// Returns a description of the first invalid value.
    pub fn check(&self) -> Result<(), String> {
        if self.schema != SCHEMA {
            return Err(format!(
                "schema `{}` instead of `{SCHEMA}`",
                self.schema.escape_debug()
            ));
        }
        if self.name.len() > MOST_NAME
            || self.inputs.len() > MOST_INPUTS
            || self.phases.len() > MOST_PHASES
        {
            return Err("a name, a list of inputs or phases longer than there may be".into());
        }
        let share: f64 = self.phases.iter().map(|p| p.share).sum();
        let sound = self.phases.iter().all(|p| (0.0..=1.0).contains(&p.share));
        let whole = self.phases.is_empty() || (0.98..=1.02).contains(&share);
        if !(sound && whole) {
            return Err("the shares of its phases do not add up to 1".into());
        }
        Ok(())
    }

    /// Returns the signature in the form that policies use.
    #[must_use]
    pub fn signature(&self) -> Signature {
        Signature::of_counts(self.misses)
    }

    /// Merges the signatures of several inputs, with equal weights. Their phases are kept; each phase is a fraction of the
    /// total.
    ///
    /// # Errors
    /// Fails if there are no inputs, or too many.
    pub fn merge(name: &str, parts: &[Self]) -> Result<Self, String> {
        if parts.is_empty() {
            return Err("there is nothing to merge".into());
        }
        let count = parts.len();
        let mean = |size: usize, ways: usize| {
            let sum: u32 = parts.iter().map(|p| u32::from(p.misses[size][ways])).sum();
            (f64::from(sum) / count as f64).round() as u16
        };
        let whole = |part: &Self| SignaturePhase {
            share: 1.0,
            misses: part.misses,
        };
        let phases = parts.iter().flat_map(|part| {
            let own = if part.phases.is_empty() {
                vec![whole(part)]
            } else {
                part.phases.clone()
            };
            own.into_iter().map(|phase| SignaturePhase {
                share: phase.share / count as f64,
                ..phase
            })
        });
        let merged = Self {
            schema: SCHEMA.into(),
            name: name.chars().take(MOST_NAME / 4).collect(),
            inputs: parts.iter().flat_map(|p| p.inputs.clone()).collect(),
            instructions: parts.iter().map(|p| p.instructions).sum(),
            misses: std::array::from_fn(|size| std::array::from_fn(|ways| mean(size, ways))),
            phases: make::cluster(phases.collect()),
        };
        merged.check()?;
        Ok(merged)
    }
}
