//! Caveats: differences between a recorded run and a run without the recorder.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Kind of difference between a run under the recorder and one without.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CaveatKind {
    /// A setuid or setgid program, or one with file capabilities, ran without its privileges.
    Rights,
    /// A program or library queried the processor's features; AVX-512, which this machine has, was not reported.
    Processor,
    /// A program's request for io_uring was refused: it used other calls instead, or failed.
    IoUring,
    /// A program that the recorded one executed ran unrecorded: it is for another processor, or the recorder cannot reach it.
    NotFollowed,
    /// Threads or forked processes ran unrecorded: their records could not be made.
    NotRecorded,
}

impl CaveatKind {
    /// All kinds of caveats, in the order of their output.
    pub const ALL: [Self; 5] = [
        Self::Rights,
        Self::Processor,
        Self::IoUring,
        Self::NotFollowed,
        Self::NotRecorded,
    ];
}

/// Difference that was detected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Caveat {
    pub kind: CaveatKind,
    /// First program or library in which it was detected.
    pub file: String,
}

impl Caveat {
    /// Returns a description of the caveat in one sentence, without a full stop.
    #[must_use]
    pub fn text(&self) -> String {
        let file = &self.file;
        match self.kind {
            CaveatKind::Rights => format!(
                "{file} has rights of its own (setuid, setgid or capabilities) and ran without them; it may have gone another way"
            ),
            CaveatKind::Processor => format!(
                "{file} asked for the processor's features and was shown no AVX-512, which this machine has; it may have gone another way"
            ),
            CaveatKind::IoUring => format!(
                "{file} was refused io_uring, which the recorder lacks; it fell back on other calls, or failed"
            ),
            CaveatKind::NotFollowed => {
                format!("{file} was executed and ran unrecorded; its work is missing")
            }
            CaveatKind::NotRecorded => {
                format!("threads or processes of {file} ran unrecorded; their work is missing")
            }
        }
    }
}
