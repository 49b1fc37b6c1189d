//! `steer internal`: what this program starts of itself. Nobody else needs it.

use std::io::stdin;

use countersteer_host::online::undo;

/// Arguments.
#[derive(Debug, clap::Subcommand)]
pub enum Args {
    /// Read steps from stdin, and carry them out when it ends
    Undo,
    /// Write through so many bytes, again and again, for as long as the parent lives
    Fill {
        /// How many
        bytes: usize,
    },
}

/// Runs the command.
pub fn run(args: &Args) {
    match args {
        Args::Undo => undo::keep(stdin().lock()),
        Args::Fill { bytes } => fill(*bytes),
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
