//! What sets a recorded run apart from one without a recorder.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A way in which a run under a recorder may differ.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CaveatKind {
    /// A program has its owner's rights, its group's or file capabilities, and ran without them.
    Rights,
    /// A program or library asked for the processor's features, and was shown none of AVX-512, which this machine has.
    Processor,
    /// A program asked for io_uring and was refused it: it fell back on other calls, or failed.
    IoUring,
    /// A program that the recorded one executed ran unrecorded: it is for another processor, or out of the recorder's reach.
    NotFollowed,
    /// Threads or forked processes ran unrecorded: their records could not be made.
    NotRecorded,
}

impl CaveatKind {
    /// All kinds, in order.
    pub const ALL: [Self; 5] = [
        Self::Rights,
        Self::Processor,
        Self::IoUring,
        Self::NotFollowed,
        Self::NotRecorded,
    ];
}

/// A difference that was noticed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Caveat {
    pub kind: CaveatKind,
    /// The program or library in which it was noticed first.
    pub file: String,
}

impl Caveat {
    /// One sentence for people, without a full stop.
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
