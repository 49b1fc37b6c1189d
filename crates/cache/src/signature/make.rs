//! Computation of signatures from traces.

use countersteer_model::signature::{PER_INSTRUCTIONS, SIZES, SMALLEST_LINES, WAYS};

use super::{Carried, MOST_PHASES, Matrix, SCHEMA, SignaturePhase};
use crate::forest::Forest;
use crate::private::AccessKind;
use crate::space::Spaces;
use crate::wire::{BlockHead, Decoder, WireError, WireKind};

/// Number of instructions per window. A window is assumed to be in one phase.
const WINDOW: u64 = 1_000_000;
/// Threshold: maximum distance between windows of one phase, as the mean difference of the base-2 logarithms of their
/// misses.
const ALIKE: f64 = 0.5;
/// Constant added to misses per 4,096 instructions before the logarithm, so that differences between small numbers are
/// ignored.
const QUIET: f64 = 4.0;

/// Signature under computation.
pub struct Maker {
    forest: Forest,
    spaces: Spaces,
    instructions: u64,
    in_window: u64,
    windows: Vec<SignaturePhase>,
    /// Misses of the whole run, by size and associativity.
    total: [[u64; WAYS.len()]; SIZES],
}

impl Default for Maker {
    fn default() -> Self {
        Self {
            // The smallest number of sets is that of 16 KiB with 32 ways, the largest that of 16 MiB with 4 ways.
            forest: Forest::new(3, 16),
            spaces: Spaces::default(),
            instructions: 0,
            in_window: 0,
            windows: Vec::new(),
            total: [[0; WAYS.len()]; SIZES],
        }
    }
}

impl Maker {
    /// Adds a block of a trace, whose filter must have at most 8 sets. Only data accesses count.
    ///
    /// # Errors
    /// Fails if the words come from no encoder.
    pub fn block(&mut self, head: &BlockHead, words: &[u32]) -> Result<(), WireError> {
        let mark = self.spaces.mark(head, u64::BITS);
        let mut decoder = Decoder::new(words);
        while let Some(event) = decoder.next_event()? {
            if matches!(
                event.what,
                WireKind::Access(AccessKind::Load | AccessKind::Store)
            ) {
                self.forest.touch(event.line ^ mark);
            }
        }
        self.in_window += u64::from(head.instructions);
        if self.in_window >= WINDOW {
            self.end_window();
        }
        Ok(())
    }

    fn end_window(&mut self) {
        let executed = self.in_window.max(1);
        let mut misses = Matrix::default();
        for (size, row) in misses.iter_mut().enumerate() {
            for (column, ways) in WAYS.into_iter().enumerate() {
                let sets = (SMALLEST_LINES << size) / u64::from(ways);
                let count = self.forest.misses(sets, ways).unwrap_or_default();
                self.total[size][column] += count;
                row[column] = rate(count, executed);
            }
        }
        self.forest.reset_counts();
        self.windows.push(SignaturePhase {
            share: executed as f64,
            misses,
        });
        self.instructions += self.in_window;
        self.in_window = 0;
    }

    /// Returns the signature; `None` if no instruction was executed.
    #[must_use]
    pub fn finish(mut self, name: &str, input: &str) -> Option<Carried> {
        if self.in_window > 0 {
            self.end_window();
        }
        let executed = self.instructions;
        (executed > 0).then(|| {
            let share = |window: SignaturePhase| SignaturePhase {
                share: window.share / executed as f64,
                ..window
            };
            Carried {
                schema: SCHEMA.into(),
                name: name.chars().take(super::MOST_NAME / 4).collect(),
                inputs: vec![input.to_owned()],
                instructions: executed,
                misses: self.total.map(|row| row.map(|count| rate(count, executed))),
                phases: cluster(self.windows.into_iter().map(share).collect()),
            }
        })
    }
}

fn rate(count: u64, instructions: u64) -> u16 {
    let rate = count as f64 * PER_INSTRUCTIONS / instructions as f64;
    rate.round().clamp(0.0, f64::from(u16::MAX)) as u16
}

/// Returns the distance between two windows: the mean difference of the logarithms of their misses.
fn distance(a: &Matrix, b: &Matrix) -> f64 {
    let log = |misses: u16| (f64::from(misses) + QUIET).log2();
    let cells = a.iter().flatten().zip(b.iter().flatten());
    let sum: f64 = cells.map(|(a, b)| (log(*a) - log(*b)).abs()).sum();
    sum / (SIZES * WAYS.len()) as f64
}

/// Clusters similar windows into phases. The threshold grows until there are few enough phases. Empty if all windows are
/// similar.
pub(super) fn cluster(parts: Vec<SignaturePhase>) -> Vec<SignaturePhase> {
    let mut alike = ALIKE;
    loop {
        let mut phases: Vec<(SignaturePhase, [[f64; WAYS.len()]; SIZES])> = Vec::new();
        for part in &parts {
            let near = phases
                .iter()
                .position(|(phase, _)| distance(&phase.misses, &part.misses) < alike);
            let near = near.unwrap_or_else(|| {
                phases.push((
                    SignaturePhase {
                        share: 0.0,
                        ..*part
                    },
                    Default::default(),
                ));
                phases.len() - 1
            });
            let (phase, sums) = &mut phases[near];
            phase.share += part.share;
            for (sum, misses) in sums.iter_mut().flatten().zip(part.misses.iter().flatten()) {
                *sum += f64::from(*misses) * part.share;
            }
        }
        if phases.len() == 1 {
            return Vec::new();
        }
        if phases.len() <= MOST_PHASES {
            let mean =
                |(phase, sums): (SignaturePhase, [[f64; WAYS.len()]; SIZES])| SignaturePhase {
                    misses: sums.map(|row| row.map(|sum| (sum / phase.share).round() as u16)),
                    ..phase
                };
            return phases.into_iter().map(mean).collect();
        }
        alike *= 1.5;
    }
}
