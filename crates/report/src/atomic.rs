//! Atomic file writes.
//!
//! Input: a path and its bytes. Output: the file. Readers never see an incomplete file, even if the writer fails.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::{Builder, NamedTempFile, TempDir};

use crate::error::ReportError;

/// Writes a file under a temporary name next to `path`, then renames it.
///
/// A path that is no regular file (`/dev/stdout`, a pipe) is written to directly.
///
/// # Errors
/// Fails without space, permission or folder. An existing file is then unchanged, and the temporary one removed.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), ReportError> {
    if fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        return fs::OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|mut f| f.write_all(bytes))
            .map_err(|e| ReportError::write(path, e));
    }
    let written = temporary_file(path).and_then(|mut file| {
        file.write_all(bytes)?;
        // Some file systems report a full disk only at this call.
        file.as_file().sync_all()?;
        file.persist(path).map_err(|e| e.error)
    });
    written.map(drop).map_err(|e| ReportError::write(path, e))
}

/// Creates a file next to `path` under an unpredictable name; an existing file or link is never opened. The file is removed
/// unless it is renamed.
pub(crate) fn temporary_file(path: &Path) -> io::Result<NamedTempFile> {
    named(path, 0o666, |builder| builder.tempfile_in(folder_of(path)))
}

/// Creates a folder next to `path` under an unpredictable name.
pub(crate) fn temporary_folder(path: &Path) -> io::Result<TempDir> {
    named(path, 0o777, |builder| builder.tempdir_in(folder_of(path)))
}

/// Names are hidden and begin with that of `path`; the umask applies to the mode.
fn named<T>(path: &Path, mode: u32, make: impl FnOnce(&Builder<'_, '_>) -> T) -> T {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!(".{name}.");
    let mut builder = Builder::new();
    builder
        .prefix(&prefix)
        .suffix(".tmp")
        .permissions(Permissions::from_mode(mode));
    make(&builder)
}

fn folder_of(path: &Path) -> &Path {
    path.parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.txt");
        write_atomically(&file, b"one").unwrap();
        write_atomically(&file, b"two").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    }

    #[test]
    fn a_full_disk_is_an_error_with_its_remedy() {
        let error = write_atomically(Path::new("/dev/full"), b"x")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("/dev/full") && error.contains("free some space"),
            "{error}"
        );
    }

    #[test]
    fn a_missing_folder_is_named() {
        let error = write_atomically(Path::new("/nonexistent-folder/x"), b"x")
            .unwrap_err()
            .to_string();
        assert!(error.contains("/nonexistent-folder/x"), "{error}");
    }

    #[test]
    fn names_cannot_be_guessed_and_whoever_may_read_the_rest_may_read_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.txt");
        let names: std::collections::BTreeSet<_> = (0..100)
            .map(|_| temporary_file(&file).unwrap().path().to_owned())
            .chain((0..100).map(|_| temporary_folder(&file).unwrap().path().to_owned()))
            .collect();
        // A process that knows all names but one cannot put a link in place of the next.
        assert_eq!(names.len(), 200);
        let plain = dir.path().join("plain");
        fs::write(&plain, "").unwrap();
        write_atomically(&file, b"x").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&file), mode(&plain));
        let folder = temporary_folder(&file).unwrap();
        let made = dir.path().join("made");
        fs::create_dir(&made).unwrap();
        assert_eq!(mode(folder.path()), mode(&made));
        drop(folder);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 3);
    }

    #[test]
    fn a_link_in_the_place_of_a_file_is_replaced_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (secret, file) = (dir.path().join("secret"), dir.path().join("a.txt"));
        fs::write(&secret, "kept").unwrap();
        // All names that were unique only by the PID.
        for name in [".a.txt.{}.tmp", ".steer-probe-{}"] {
            let name = name.replace("{}", &std::process::id().to_string());
            std::os::unix::fs::symlink(&secret, dir.path().join(name)).unwrap();
        }
        std::os::unix::fs::symlink(&secret, &file).unwrap();
        write_atomically(&file, b"x").unwrap();
        assert_eq!(fs::read(&secret).unwrap(), b"kept");
        assert_eq!(fs::read(&file).unwrap(), b"x");
    }
}
