//! Files that are there whole or not at all.
//!
//! Input: a path and its bytes. Output: the file. Readers never see half of it, whatever happens in between.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::ReportError;

/// Writes a file under a temporary name next to `path`, then renames it.
///
/// What is no regular file (`/dev/stdout`, a pipe) is written to as it is.
///
/// # Errors
/// No space, no permission, no such folder. The old file, if any, is untouched and the temporary one removed.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), ReportError> {
    if fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        return fs::OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|mut f| f.write_all(bytes))
            .map_err(|e| ReportError::write(path, e));
    }
    let temporary = temporary_sibling(path);
    let written = write_synced(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|e| {
        // The first error is the one worth telling; a file that was never made cannot be removed either.
        let _ = fs::remove_file(&temporary);
        ReportError::write(path, e)
    })
}

/// Writes bytes and waits until the disk has them, since some file systems find out only then that they are full.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// A hidden name next to `path` that no other process uses.
pub(crate) fn temporary_sibling(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_else_stays() {
        let dir = std::env::temp_dir().join(format!("countersteer-atomic-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let file = dir.join("a.txt");
        write_atomically(&file, b"one").unwrap();
        write_atomically(&file, b"two").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_full_disk_is_an_error_with_its_mend() {
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
}
