//! `steer internal`: helper processes that `steer` starts itself; not for users.

use std::ffi::OsString;
use std::io::stdin;
use std::path::Path;

use countersteer_live::cleanup_process;
use countersteer_live::undo::restore_after;

/// Subcommands of `steer internal`.
#[derive(Debug, clap::Subcommand)]
pub enum InternalArgs {
    /// Write to a buffer repeatedly, while the parent process runs
    Fill {
        /// Size of the buffer in bytes
        bytes: usize,
    },
}

/// Runs the cleanup process `steer internal guard FOLDER ENGINE`; returns false for other command lines. The process waits
/// until the engine ends, and restores the settings that the engine has changed. It does not use the argument parser, which
/// would stay in memory while the engine runs.
pub fn guarded(words: &[OsString]) -> bool {
    let mut words = words.iter().skip(1);
    if words.next().is_none_or(|w| w != "internal") || words.next().is_none_or(|w| w != "guard") {
        return false;
    }
    let folder = words.next().map(Path::new);
    let engine = words
        .next()
        .and_then(|engine| engine.to_str()?.parse().ok());
    if let (Some(folder), Some(engine)) = (folder, engine) {
        cleanup_process::settle_in("steer-cleanup");
        cleanup_process::wait_for_end(engine, stdin());
        restore_after(folder, engine);
    }
    true
}

/// Runs `steer internal`.
pub fn run(args: &InternalArgs) {
    match args {
        InternalArgs::Fill { bytes } => fill(*bytes),
    }
}

fn fill(bytes: usize) {
    const LINE: usize = 64;
    let parent = std::os::unix::process::parent_id();
    let mut memory = vec![1_u8; bytes.max(LINE)];
    while std::os::unix::process::parent_id() == parent {
        for line in memory.chunks_mut(LINE) {
            line[0] = std::hint::black_box(line[0].wrapping_add(1));
        }
    }
}
