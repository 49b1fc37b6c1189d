//! Library of shipped machines, workloads, profiles and metrics, which are embedded in the program.
//!
//! A name is looked up in this library. A path or an existing file is read from disk instead.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Context;
use countersteer_files::{name as raw, read};
use countersteer_model::counters::{Metric, MetricGroup};
use countersteer_model::machine::Machine;
use countersteer_model::profile::Profile;
use countersteer_model::suggestion::suggestion;
use include_dir::{Dir, include_dir};

use crate::error::{FaultKind, failure};

static MACHINES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../machines");
static WORKLOADS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../workloads");
static CASES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../reproduce");
static PROFILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../profiles");

/// Text of a file, with its path.
#[derive(Clone, Debug)]
pub struct LibraryText {
    /// Path of the file as the user would write it.
    pub path: String,
    /// Text of the file.
    pub text: String,
    /// True if the file is shipped.
    pub shipped: bool,
}

/// Reads a text file from disk.
///
/// # Errors
/// Fails with the errors of [`countersteer_files::read`].
pub fn read(path: &Path) -> anyhow::Result<LibraryText> {
    Ok(LibraryText {
        path: raw::escaped(path.as_os_str()),
        text: read::text(path).with_context(|| cannot_read(path))?,
        shipped: false,
    })
}

/// Opens a regular file on disk.
///
/// # Errors
/// Fails with the errors of [`countersteer_files::read`].
pub fn open(path: &Path) -> anyhow::Result<File> {
    read::open(path).with_context(|| cannot_read(path))
}

/// Returns the error message about an unreadable file, to which the system's message is added.
pub fn cannot_read(path: &Path) -> String {
    format!("cannot read {}", path.display())
}

/// Reads a profile from a file, or from the library by name.
pub fn profile(path: &Path) -> anyhow::Result<Profile> {
    let text = profile_text(path)?;
    Profile::parse(&text.path, &text.text).map_err(|why| PROFILE.explain(&text, why.into()))
}

/// Reads the text of a profile from a file, or from the library by name.
pub fn profile_text(path: &Path) -> anyhow::Result<LibraryText> {
    let path = &*raw::path(path);
    let shipped = || path.to_str().and_then(shipped_profile);
    match shipped().filter(|_| !path.exists()) {
        Some(text) => Ok(text),
        None if is_name(path) => Err(no_profile(&path.to_string_lossy())),
        None => read(path),
    }
}

/// True if a path can only be the name of a profile: no such file exists, and it has neither a folder
/// nor an extension.
fn is_name(path: &Path) -> bool {
    let parts = path.components().count();
    parts == 1 && path.extension().is_none() && !path.exists()
}

/// Returns the error for a name without a profile, with similar names.
pub fn no_profile(name: &str) -> anyhow::Error {
    let paths: Vec<String> = PROFILE_FOLDERS
        .iter()
        .flat_map(|folder| shipped_profiles(folder.name))
        .collect();
    let stems = paths
        .iter()
        .filter_map(|p| Path::new(p).file_stem()?.to_str());
    let near = suggestion(name, stems);
    let why = format!(
        "there is no profile `{name}`{near}: give a file, or a name that `steer profile list` prints"
    );
    failure(FaultKind::Usage, why)
}

/// Folder of shipped profiles.
pub struct ProfileFolder {
    /// Name of the folder below `profiles/`.
    pub name: &'static str,
    /// Kind of the folder's profiles: `published`, `recorded` or `tabulated`.
    pub kind: &'static str,
    /// Extension of the folder's files, without a dot.
    ending: &'static str,
}

/// All folders of shipped profiles.
pub const PROFILE_FOLDERS: [ProfileFolder; 3] = [
    folder("published", "published", "toml"),
    folder("recorded", "recorded", "json"),
    folder("spec2017", "tabulated", "toml"),
];

const fn folder(name: &'static str, kind: &'static str, ending: &'static str) -> ProfileFolder {
    ProfileFolder { name, kind, ending }
}

/// Returns a shipped profile, given its path below `profiles/` or its name. `None` if there is none.
pub fn shipped_profile(name: &str) -> Option<LibraryText> {
    let named = PROFILE_FOLDERS.map(|f| format!("{}/{name}.{}", f.name, f.ending));
    let mut paths = std::iter::once(name).chain(named.iter().map(String::as_str));
    let file = paths.find_map(|path| PROFILES.get_file(path))?;
    Some(LibraryText {
        path: format!("profiles/{}", file.path().display()),
        text: file.contents_utf8()?.into(),
        shipped: true,
    })
}

/// Returns the paths below `profiles/` of the shipped profiles in one folder, sorted.
pub fn shipped_profiles(folder: &str) -> Vec<String> {
    let dir = PROFILES.get_dir(folder);
    let files = dir.into_iter().flat_map(Dir::files);
    let mut paths: Vec<String> = files
        .filter_map(|f| f.path().to_str().map(str::to_owned))
        .collect();
    paths.sort();
    paths
}

/// Returns all shipped recorded profiles, sorted by path.
pub fn recorded() -> Vec<LibraryText> {
    let paths = shipped_profiles("recorded");
    paths.iter().filter_map(|p| shipped_profile(p)).collect()
}

/// Returns the family of each program that has similar variants, by program name.
pub fn families() -> BTreeMap<String, String> {
    let file = PROFILES.get_file("families.tsv");
    let text = file.and_then(|f| f.contents_utf8()).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once('\t'))
        .map(|(program, family)| (program.into(), family.into()))
        .collect()
}

/// Iterates over the shipped files about the papers' experiments, as pairs (file name, text).
pub fn cases() -> impl Iterator<Item = (&'static str, &'static str)> {
    let mut files: Vec<_> = CASES.files().collect();
    files.sort_by_key(|f| f.path());
    files
        .into_iter()
        .filter_map(|f| Some((f.path().file_name()?.to_str()?, f.contents_utf8()?)))
}

/// Reads a machine from a file, or from the library by name. Also returns its text.
pub fn machine(name: &str) -> anyhow::Result<(Machine, LibraryText)> {
    let text = named(&MACHINES, "machine", "machines", name)?;
    let machine =
        Machine::parse(&text.path, &text.text).map_err(|e| MACHINE.explain(&text, e.into()))?;
    Ok((machine, text))
}

/// Kind of file that users write or name.
pub struct FileKind {
    /// Text that occurs in every file of this kind.
    mark: &'static str,
    /// Name of the kind for messages.
    what: &'static str,
    /// Example of such a file.
    example: &'static str,
}

pub const MACHINE: FileKind = FileKind {
    mark: "countersteer.machine/",
    what: "machine",
    example: "`steer machine show --toml core2-quad` prints one, `steer machine import` makes one of lstopo's XML",
};

pub const WORKLOAD: FileKind = FileKind {
    mark: "[[program]]",
    what: "workload",
    example: "`steer workload show shared-caches` prints one",
};

pub const PROFILE: FileKind = FileKind {
    mark: "countersteer.",
    what: "profile",
    example: "`steer profile -o FILE -- PROGRAM` makes one",
};

impl FileKind {
    /// Adds the expected format to an error if the file is of another kind.
    #[must_use]
    pub fn explain(&self, text: &LibraryText, why: anyhow::Error) -> anyhow::Error {
        if text.text.contains(self.mark) {
            return why;
        }
        let Self { what, example, .. } = self;
        let path = &text.path;
        why.context(format!("{path} is not a {what} file ({example})"))
    }
}

/// Reads the text of a workload from a file, or from the library by name.
pub fn workload(name: &str) -> anyhow::Result<LibraryText> {
    named(&WORKLOADS, "workload", "workloads", name)
}

/// Returns the metrics of the given files, and the shipped ones. Metrics of the files take precedence.
pub fn metrics(more: &[PathBuf]) -> anyhow::Result<Vec<Metric>> {
    let mut known = Vec::new();
    for path in more {
        let text = read(path)?;
        known.extend(MetricGroup::parse(&text.path, &text.text)?);
    }
    known.extend_from_slice(countersteer_model::metric::shipped());
    Ok(known)
}

/// Returns the names of the shipped machines.
pub fn machine_names() -> Vec<String> {
    names(&MACHINES)
}

/// Returns the names of the shipped workloads.
pub fn workload_names() -> Vec<String> {
    names(&WORKLOADS)
}

fn names(dir: &Dir<'_>) -> Vec<String> {
    let mut names: Vec<String> = dir
        .files()
        .filter(|f| f.path().extension().is_some_and(|e| e == "toml"))
        .filter_map(|f| Some(f.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    names
}

fn named(dir: &Dir<'_>, what: &str, folder: &str, name: &str) -> anyhow::Result<LibraryText> {
    let path = &*raw::path(Path::new(name));
    let is_there = path.exists() && !path.is_dir();
    if is_there || name.contains('/') || name.ends_with(".toml") {
        return read(path);
    }
    let file = format!("{name}.toml");
    match dir.get_file(&file).and_then(|f| f.contents_utf8()) {
        Some(text) => Ok(LibraryText {
            path: format!("{folder}/{file}"),
            text: text.into(),
            shipped: true,
        }),
        None => {
            let known = names(dir);
            let why = if path.is_dir() {
                format!("`{name}` is a folder, not a {what}")
            } else {
                let near = suggestion(name, known.iter().map(String::as_str));
                format!("there is no {what} `{name}`{near}")
            };
            let why = format!("{why}: give a file, or one of {}", known.join(", "));
            Err(failure(FaultKind::Usage, why))
        }
    }
}
