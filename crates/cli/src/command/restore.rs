//! `steer restore`: restores settings that killed runs have changed.

use countersteer_live::undo::{Restored, journal_folder, restore};

use super::{print, print_json};

/// Arguments of `steer restore`.
#[derive(Debug, clap::Args)]
pub struct RestoreArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `steer restore`.
pub fn run(args: &RestoreArgs) -> anyhow::Result<()> {
    let restored = restore(&journal_folder())?;
    if args.json {
        return print_json(&restored);
    }
    if (restored.journals, restored.hints) == (0, 0) {
        return print("nothing is left to restore");
    }
    print(&text(&restored))
}

fn text(restored: &Restored) -> String {
    let threads = restored.threads;
    let journals = restored.journals;
    let mut text = format!("{threads} threads were restored after {journals} killed runs");
    if restored.hints > 0 {
        text += &format!(
            "; {} frequency hints and resctrl groups were restored",
            restored.hints
        );
    }
    if restored.left > 0 {
        text += &format!(
            "; {} whose affinity has changed since were left alone",
            restored.left
        );
    }
    if restored.failed > 0 {
        text += &format!(
            "; {} could not be restored (another user's, or their CPUs are gone)",
            restored.failed
        );
    }
    text
}
