//! Output: data on stdout, and files. Commands check that they can write a file before they start hours of work.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use countersteer_files::write;
use countersteer_model::printable::printable_lines;
use countersteer_model::profile::Tabulated;
use countersteer_report::html::{ReportInput, render};
use countersteer_report::write_atomically;

use crate::error::{FaultKind, failure};

/// Flags for the folder that a record is written to.
#[derive(Debug, clap::Args)]
pub struct RecordOut {
    /// Write all samples, events and decisions to a record: a folder of Parquet files
    #[arg(short, long, alias = "record", value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Replace an existing record
    #[arg(long, requires = "output")]
    pub force: bool,
}

impl RecordOut {
    /// Returns the record's folder; `None` if `--output` was not given.
    ///
    /// # Errors
    /// A record exists there and `--force` was not given.
    pub fn place(&self) -> anyhow::Result<Option<&Path>> {
        if let Some(dir) = &self.output {
            check_unused(dir, self.force)?;
        }
        Ok(self.output.as_deref())
    }
}

/// Returns an error if a folder contains a record and `force` is false. The writer of records refuses folders with other
/// contents.
pub fn check_unused(dir: &Path, force: bool) -> anyhow::Result<()> {
    if force || !dir.join("manifest.json").exists() {
        return Ok(());
    }
    let shown = dir.display();
    Err(failure(
        FaultKind::Usage,
        format!("{shown} has a record already: name another folder, or replace it with --force"),
    ))
}

/// Writes an HTML report, and prints its path to stderr.
pub fn report(path: &Path, input: &ReportInput<'_>) -> anyhow::Result<()> {
    write_atomically(path, render(input)?.as_bytes())?;
    stderr_line!("steer: report in {}", path.display());
    Ok(())
}

/// Creates a folder and its missing parents.
pub fn make_folder(dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))
}

/// Creates a file that is written piece by piece; replaces an existing file.
pub fn create(path: &Path) -> anyhow::Result<File> {
    write::create(path).map_err(|why| cannot_write(path, &why))
}

/// File that is written piece by piece, and whose name is in its errors.
pub struct NamedFile {
    file: File,
    path: PathBuf,
}

impl NamedFile {
    /// Creates a file; replaces an existing file.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let (file, path) = (create(path)?, path.to_owned());
        Ok(Self { file, path })
    }

    fn named(&self, why: &io::Error) -> io::Error {
        io::Error::new(why.kind(), unwritten(&self.path, why))
    }
}

impl Write for NamedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(|why| self.named(&why))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().map_err(|why| self.named(&why))
    }
}

fn cannot_write(path: &Path, why: &io::Error) -> anyhow::Error {
    failure(FaultKind::Io, unwritten(path, why))
}

fn unwritten(path: &Path, why: &io::Error) -> String {
    format!("cannot write {}: {why}", path.display())
}

/// Writes a profile as TOML.
pub fn profile(path: &Path, profile: &Tabulated) -> anyhow::Result<()> {
    let text = toml::to_string(profile).context("the profile cannot be written as TOML")?;
    Ok(write_atomically(path, text.as_bytes())?)
}

/// Checks that a file can be written, without creating or changing the file.
pub fn check_writable(path: &Path) -> anyhow::Result<()> {
    write::check(path).map_err(|why| cannot_write(path, &why))
}

/// Prints text to stdout. Removes escape sequences, e.g. of program names, but keeps those for emphasis in tables.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut shown = String::with_capacity(text.len());
    for bold in text.split_inclusive(RESET) {
        let (bold, end) = bold.strip_suffix(RESET).map_or((bold, ""), |b| (b, RESET));
        let mut parts = bold.split(BOLD);
        shown += &printable_lines(parts.next().unwrap_or_default());
        for part in parts {
            shown += BOLD;
            shown += &printable_lines(part);
        }
        shown += end;
    }
    print_raw(&shown)
}

/// Escape sequence that starts emphasis in tables.
const BOLD: &str = "\x1b[1m";
/// Escape sequence that ends emphasis in tables.
const RESET: &str = "\x1b[0m";

/// Prints data to stdout unchanged, with a newline at the end.
pub fn print_raw(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    // One write, so that lines of other programs cannot end up inside it.
    out.write_all(format!("{text}{end}").as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write to standard output")
}

/// Prints a value as JSON to stdout.
pub fn print_json<T: serde::Serialize>(value: &T) -> anyhow::Result<()> {
    print_raw(&serde_json::to_string_pretty(value)?)
}
