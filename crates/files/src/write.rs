//! Files for users: there whole or not at all, and never through what another user put in their place.
//!
//! Input: a path, and its bytes or a stream of them. Output: the file. It is made under a temporary name in the same folder,
//! then renamed. The name cannot be guessed, and no link is followed for it. What was there, a link included, is replaced.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use tempfile::{Builder, NamedTempFile, TempDir};

use crate::name;

/// Writes a file under a temporary name next to `path`, then renames it.
///
/// A path that is no regular file (`/dev/stdout`, a pipe) is written to directly.
///
/// # Errors
/// No space, no permission, no such folder. The old file, if any, is untouched and the temporary one removed.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(mut special) = special(path)? {
        return special.write_all(bytes);
    }
    let mut file = temporary_file(path)?;
    file.write_all(bytes)?;
    // Some file systems find out only then that they are full.
    file.as_file().sync_all()?;
    file.persist(path).map(drop).map_err(|e| e.error)
}

/// A new, empty file in the place of what is at `path`, for what grows while it is written: what was written stays when the
/// program is killed, and can be read meanwhile.
///
/// # Errors
/// No permission, no such folder.
pub fn create(path: &Path) -> io::Result<File> {
    match special(path)? {
        Some(special) => Ok(special),
        None => temporary_file(path)?.persist(path).map_err(|e| e.error),
    }
}

/// Finds out whether `write` and [`create`] can work, without touching what is there.
///
/// # Errors
/// There is a folder of that name; no permission; no such folder.
pub fn check(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::IsADirectory,
            "it is a folder; name a file in it",
        ));
    }
    if is_special(path) {
        return not_of_others(path);
    }
    tempfile::tempfile_in(folder_of(path)).map(drop)
}

/// A new file next to `path`. It is removed unless it is renamed.
///
/// # Errors
/// No permission, no such folder.
pub fn temporary_file(path: &Path) -> io::Result<NamedTempFile> {
    named(path, 0o666, |builder| builder.tempfile_in(folder_of(path)))
}

/// A new folder next to `path`, likewise.
///
/// # Errors
/// No permission, no such folder.
pub fn temporary_folder(path: &Path) -> io::Result<TempDir> {
    named(path, 0o777, |builder| builder.tempdir_in(folder_of(path)))
}

/// Names begin as that of `path`, hidden; the user's mask takes from the mode.
fn named<T>(path: &Path, mode: u32, make: impl FnOnce(&Builder<'_, '_>) -> T) -> T {
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(path.file_name().unwrap_or_default());
    prefix.push(".");
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

/// Streams of this process, which are links.
fn is_own_stream(path: &Path) -> bool {
    let names = ["/dev/stdout", "/dev/stderr", "/dev/stdin"];
    names.iter().any(|name| path == Path::new(name)) || name::is_descriptor(path)
}

/// Pipes and devices, which cannot be replaced. A link to one can.
fn is_special(path: &Path) -> bool {
    is_own_stream(path)
        || fs::symlink_metadata(path).is_ok_and(|m| {
            let kind = m.file_type();
            !kind.is_file() && !kind.is_dir() && !kind.is_symlink()
        })
}

/// Opens what cannot be replaced.
fn special(path: &Path) -> io::Result<Option<File>> {
    if !is_special(path) {
        return Ok(None);
    }
    not_of_others(path)?;
    let links = if is_own_stream(path) {
        0
    } else {
        libc::O_NOFOLLOW
    };
    let opened = OpenOptions::new()
        .write(true)
        .custom_flags(links)
        .open(path);
    opened.map(Some)
}

/// In a folder where all users may put things, a pipe of another user may be a trap, as the kernel's `fs.protected_fifos` has it.
fn not_of_others(path: &Path) -> io::Result<()> {
    if is_own_stream(path) {
        return Ok(());
    }
    let (special, folder) = (fs::symlink_metadata(path)?, fs::metadata(folder_of(path))?);
    let shared = folder.mode() & 0o1002 == 0o1002;
    // SAFETY: the call has no arguments and cannot fail.
    let own = special.uid() == unsafe { libc::geteuid() } || special.uid() == folder.uid();
    if shared && !own {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it belongs to another user, in a folder that all may write to",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.txt");
        write(&file, b"one").unwrap();
        write(&file, b"two").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        create(&file).unwrap().write_all(b"three").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"three");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    }

    #[test]
    fn names_cannot_be_guessed_and_whoever_may_read_the_rest_may_read_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.txt");
        let names: std::collections::BTreeSet<_> = (0..100)
            .map(|_| temporary_file(&file).unwrap().path().to_owned())
            .chain((0..100).map(|_| temporary_folder(&file).unwrap().path().to_owned()))
            .collect();
        // A process that knows all but one of them cannot put a link in the place of the next.
        assert_eq!(names.len(), 200);
        let plain = dir.path().join("plain");
        fs::write(&plain, "").unwrap();
        write(&file, b"x").unwrap();
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
        // Every name that only the process's number made unique.
        for name in [".a.txt.{}.tmp", ".steer-probe-{}"] {
            let name = name.replace("{}", &std::process::id().to_string());
            symlink(&secret, dir.path().join(name)).unwrap();
        }
        for target in [secret.as_path(), Path::new("/dev/full")] {
            symlink(target, &file).unwrap();
            check(&file).unwrap();
            write(&file, b"x").unwrap();
            assert_eq!(fs::read(&file).unwrap(), b"x");
            fs::remove_file(&file).unwrap();
            symlink(target, &file).unwrap();
            create(&file).unwrap().write_all(b"y").unwrap();
            assert_eq!(fs::read(&file).unwrap(), b"y");
            fs::remove_file(&file).unwrap();
        }
        assert_eq!(fs::read(&secret).unwrap(), b"kept");
    }

    #[test]
    fn a_pipe_of_another_user_in_a_shared_folder_is_not_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        check(&pipe).unwrap();
        // Only root can give files away.
        if chown(&pipe, Some(65534), None).is_err() {
            return;
        }
        check(&pipe).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o1777)).unwrap();
        let roundabout = Path::new("/proc/self/fd/../root").join(pipe.strip_prefix("/").unwrap());
        for path in [&pipe, &roundabout] {
            for failed in [check(path), write(path, b"x"), create(path).map(drop)] {
                assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            }
        }
    }
}
