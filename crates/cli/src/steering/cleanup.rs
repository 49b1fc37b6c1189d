//! The cleanup process of a run, which restores everything at once if the run is killed.
//!
//! Input: the folder of journals. Output: a process that ends with the run. It does nothing if the journal is gone by then.

use std::io;
use std::process::{Command, id};

use countersteer_live::cleanup_process::CleanupProcess;
use countersteer_live::undo::journal_folder;
use countersteer_profiler::this_program;

/// Starts the cleanup process. A run continues without one: then the next run restores what a kill leaves behind.
pub fn start() -> Option<CleanupProcess> {
    let started = start_here();
    if let Err(error) = &started {
        eprintln!(
            "steer: no cleanup process could be started ({error}); should this run be killed, `steer restore` undoes it"
        );
    }
    started.ok()
}

fn start_here() -> io::Result<CleanupProcess> {
    // This program itself, even if its file was replaced.
    let mut command = this_program::given().unwrap_or_else(|| Command::new("/proc/self/exe"));
    command
        .args(["internal", "guard"])
        .arg(std::path::absolute(journal_folder())?)
        .arg(id().to_string());
    CleanupProcess::start(command)
}
