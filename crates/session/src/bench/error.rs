//! Errors of timed runs.

use std::io;

use countersteer_sysfs::launch::ExitEnding;

#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    #[error(
        "`{command}` {} in run {run}, so it has no figure; --show-output shows what it writes, --ignore-failure measures it all the same", ended(*.ending)
    )]
    Failed {
        command: String,
        ending: ExitEnding,
        /// From 1; warm-up runs count.
        run: u64,
    },
    #[error("the preparation `{command}` {}; no run follows one that is not prepared", ended(*.ending))]
    Unprepared { command: String, ending: ExitEnding },
    #[error("cannot wait for a run: {0}")]
    Wait(io::Error),
}

/// Formats the end of a program: `failed with exit code 3`.
pub fn ended(ending: ExitEnding) -> String {
    match ending {
        ExitEnding::Exited(code) => format!("failed with exit code {code}"),
        ExitEnding::Signaled(signal) => format!("was ended by signal {signal}"),
    }
}
