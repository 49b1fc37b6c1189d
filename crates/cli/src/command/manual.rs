//! `steer manual`: prints shell completions and manual pages, generated from the definitions of the commands.

use std::path::{Path, PathBuf};

use clap_complete::Shell;
use countersteer_report::write_atomically;

use super::print_raw;
use crate::interrupt::TemporaryFolder;
use crate::output::make_folder;

/// Arguments of `steer manual`.
#[derive(Debug, clap::Args)]
pub struct ManualArgs {
    /// Shell whose completions to print; default: the manual page
    #[arg(long)]
    completions: Option<Shell>,
    /// Write manual pages of all commands, and completions, into this folder, in the layout of packages: man1, bash, zsh, fish
    #[arg(long, value_name = "DIR", conflicts_with = "completions")]
    into: Option<PathBuf>,
}

/// Arguments of `steer completions`, the name under which other tools have them.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// Shell whose completions to print
    shell: Shell,
}

impl From<CompletionsArgs> for ManualArgs {
    fn from(args: CompletionsArgs) -> Self {
        Self {
            completions: Some(args.shell),
            into: None,
        }
    }
}

/// Runs `steer manual`.
pub fn run(args: &ManualArgs) -> anyhow::Result<()> {
    let mut command = super::command();
    if let Some(dir) = &args.into {
        return all(command, dir);
    }
    let mut out = Vec::new();
    match args.completions {
        Some(shell) => clap_complete::generate(shell, &mut command, "steer", &mut out),
        None => clap_mangen::Man::new(command).render(&mut out)?,
    }
    print_raw(&String::from_utf8_lossy(&out))
}

/// Shells with completions, each with the file's path below the folder.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash/steer"),
    (Shell::Zsh, "zsh/_steer"),
    (Shell::Fish, "fish/steer.fish"),
];

fn all(mut command: clap::Command, dir: &Path) -> anyhow::Result<()> {
    let pages = dir.join("man1");
    make_folder(&pages)?;
    // Writes a page for each visible command and subcommand. This must precede the completions, which add `help` commands.
    let described = command.clone().disable_help_subcommand(true);
    // The generator opens its files by name and would follow links in a folder of others.
    let made = TemporaryFolder::folder("manual")?;
    clap_mangen::generate_to(described, made.path())?;
    for page in std::fs::read_dir(made.path())? {
        let page = page?;
        put(&pages.join(page.file_name()), &std::fs::read(page.path())?)?;
    }
    for (shell, name) in COMPLETIONS {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command, "steer", &mut text);
        put(&dir.join(name), &text)?;
    }
    Ok(())
}

fn put(path: &Path, text: &[u8]) -> anyhow::Result<()> {
    make_folder(path.parent().unwrap_or(Path::new(".")))?;
    Ok(write_atomically(path, text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_are_a_command_of_their_own_too() {
        let parsed = |shell: &str| {
            let words = ["steer", "completions", shell].map(std::ffi::OsString::from);
            crate::command::parse(&words).is_ok()
        };
        assert!(["bash", "zsh", "fish"].into_iter().all(parsed));
        assert!(!parsed("none"));
    }

    #[test]
    fn every_command_has_a_page_and_every_shell_its_completions() {
        let dir = tempfile::tempdir().unwrap();
        all(crate::command::command(), dir.path()).unwrap();
        let text = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        for name in ["steer", "steer-stat", "steer-try", "steer-trial"] {
            let page = text(&format!("man1/{name}.1"));
            assert!(
                page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"),
                "{page}"
            );
        }
        assert!(text("man1/steer-stat.1").contains("latency"));
        assert!(
            COMPLETIONS
                .iter()
                .all(|(_, name)| text(name).contains("latency"))
        );
        assert!(!dir.path().join("man1/steer-internal.1").exists());
    }

    #[test]
    fn links_are_replaced_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let kept = dir.path().join("kept");
        std::fs::write(&kept, "kept").unwrap();
        let into = dir.path().join("into");
        std::fs::create_dir_all(into.join("man1")).unwrap();
        std::os::unix::fs::symlink(&kept, into.join("man1/steer.1")).unwrap();
        all(crate::command::command(), &into).unwrap();
        assert_eq!(std::fs::read_to_string(&kept).unwrap(), "kept");
        assert!(
            into.join("man1/steer.1")
                .symlink_metadata()
                .unwrap()
                .is_file()
        );
    }
}
