//! Cleanup process of a run, which restores all settings as soon as the run is killed.
//!
//! Input: the folder of journals. Output: a process that waits for the end of the run. If the run's journal still exists then,
//! the process undoes the changes that the journal lists.

use std::io;
use std::process::id;

use countersteer_live::cleanup_process::CleanupProcess;
use countersteer_live::undo::journal_folder;
use countersteer_profiler::this_program;

/// Starts the cleanup process; returns `None` if it cannot be started. The run then continues, and after a kill the next run
/// restores the settings.
pub fn start() -> Option<CleanupProcess> {
    let started = start_here();
    if let Err(error) = &started {
        say!(
            "no cleanup process could be started ({error}); should this run be killed, `steer restore` undoes it"
        );
    }
    started.ok()
}

fn start_here() -> io::Result<CleanupProcess> {
    let mut command = this_program::command()?;
    command
        .args(["internal", "guard"])
        .arg(std::path::absolute(journal_folder())?)
        .arg(id().to_string());
    CleanupProcess::start(command)
}
