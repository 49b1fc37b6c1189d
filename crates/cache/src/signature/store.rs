//! Storage of signatures, and look-up of a binary's signature.
//!
//! The signature of a binary that must not change is in a side file, named by the build-id. Side files are below the data
//! directories of the XDG base directory specification: the user's own directory first (`~/.local/share`), then the system's. A
//! signature inside the binary takes precedence.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use countersteer_files::read;

use super::{Carried, SignatureError, elf};

const FOLDER: &str = "countersteer/signatures";

/// Location at which a signature was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignaturePlace {
    Inside,
    Beside(PathBuf),
}

fn hex(build_id: &[u8]) -> String {
    build_id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the user's data directory: the value of XDG_DATA_HOME, or `~/.local/share`. `None` without a home directory.
#[must_use]
pub fn own_data() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_DATA_HOME")
        .map(PathBuf::from)
        .filter(|p| p.is_absolute());
    named.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share")))
}

/// Returns the data directories: first the user's own, then the system's.
#[must_use]
pub fn data_folders() -> Vec<PathBuf> {
    let system = std::env::var_os("XDG_DATA_DIRS").filter(|dirs| !dirs.is_empty());
    let system = system.unwrap_or_else(|| "/usr/local/share:/usr/share".into());
    let system: Vec<PathBuf> = std::env::split_paths(&system)
        .filter(|p| p.is_absolute())
        .collect();
    own_data().into_iter().chain(system).collect()
}

/// Returns the time of the last change of side files in all data directories, in seconds and nanoseconds. `None` if there is no
/// folder of side files.
#[must_use]
pub fn last_change() -> Option<(i64, i64)> {
    let folders = data_folders().into_iter();
    let changed = folders.filter_map(|folder| std::fs::metadata(folder.join(FOLDER)).ok());
    changed.map(|at| (at.mtime(), at.mtime_nsec())).max()
}

/// Returns the path of the user's side file for a build-id; `None` without a home directory.
#[must_use]
pub fn side_file(build_id: &[u8]) -> Option<PathBuf> {
    Some(
        own_data()?
            .join(FOLDER)
            .join(format!("{}.json", hex(build_id))),
    )
}

/// Reads a signature from its file.
///
/// # Errors
/// Fails if the file cannot be read or contains no signature.
pub fn read(path: &Path) -> Result<Carried, SignatureError> {
    let shown = path.display().to_string();
    let failed = |source| SignatureError::Io {
        path: shown.clone(),
        source,
    };
    let text = read::text(path).map_err(failed)?;
    Carried::parse(&shown, &text)
}

/// Returns the signature of a binary, and its location. `None` if the binary has none.
///
/// # Errors
/// Fails if a file cannot be read, if `path` is no ELF binary, or if the signature is damaged.
pub fn of_binary(path: &Path) -> Result<Option<(Carried, SignaturePlace)>, SignatureError> {
    let binary = elf::read(path)?;
    if let Some(carried) = binary.carried {
        return Ok(Some((carried, SignaturePlace::Inside)));
    }
    let Some(build_id) = binary.build_id else {
        return Ok(None);
    };
    let name = format!("{}.json", hex(&build_id));
    let files = data_folders().into_iter();
    let mut files = files.map(|folder| folder.join(FOLDER).join(&name));
    if let Some(file) = files.find(|file| file.is_file()) {
        return Ok(Some((read(&file)?, SignaturePlace::Beside(file))));
    }
    Ok(None)
}
