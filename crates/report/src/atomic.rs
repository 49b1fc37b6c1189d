//! Atomic writing of files: a file is replaced completely or not at all.

use std::path::Path;

use countersteer_files::write;

use crate::error::ReportError;

/// Writes a file under a temporary name next to `path`, then renames it to `path`.
///
/// A path that is no regular file (`/dev/stdout`, a pipe) is written directly.
///
/// # Errors
/// Fails without disk space, permission or folder. An existing file is then unchanged, and the temporary file is
/// removed.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), ReportError> {
    write::write(path, bytes).map_err(|e| ReportError::write(path, e))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
