//! Files that are there whole or not at all, with what to do where that fails.

use std::path::Path;

use countersteer_files::write;

use crate::error::ReportError;

/// Writes a file under a temporary name next to `path`, then renames it.
///
/// A path that is no regular file (`/dev/stdout`, a pipe) is written to directly.
///
/// # Errors
/// Fails without space, permission or folder. An existing file is then unchanged, and the temporary one removed.
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
