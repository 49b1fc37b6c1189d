//! Folder of undo journals and of sockets.
//!
//! Input: the environment. Output: a folder in which only its user can write. An engine, its cleanup process, `steer ctl` and
//! `steer restore` must all find the same folder, so it depends only on the environment and the user.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::JournalError;

/// Returns the folder of journals: `$RUNTIME_DIRECTORY` for a service, `/run/countersteer` for root. For other users, it is in
/// the first existing one of the user's runtime folder, the user's state folder, and the temporary directory.
///
/// In the temporary directory, another user can create the folder first and so prevent this user from steering. The other
/// folders are inside folders of the user.
#[must_use]
pub fn journal_folder() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let uid = nix::unistd::geteuid();
    match variable("RUNTIME_DIRECTORY") {
        Some(given) => given.into(),
        None if uid.is_root() => "/run/countersteer".into(),
        None => of_user(uid.as_raw(), Path::new("/run/user"), variable),
    }
}

/// Returns the folder of a user; `runtime` is the parent of all users' runtime folders.
fn of_user(uid: u32, runtime: &Path, variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let is_users = |folder: &PathBuf| {
        std::fs::metadata(folder).is_ok_and(|found| found.is_dir() && found.uid() == uid)
    };
    let below = |name: &str, rest: &str| variable(name).map(|base| PathBuf::from(base).join(rest));
    let own = [
        below("XDG_RUNTIME_DIR", ""),
        // Cron jobs and `su` do not set the variable, but use the same folder.
        Some(runtime.join(uid.to_string())),
    ];
    if let Some(folder) = own.into_iter().flatten().find(is_users) {
        return folder.join("countersteer");
    }
    let home = below("HOME", "").filter(is_users);
    let state = below("XDG_STATE_HOME", "").filter(is_users);
    if let Some(folder) = state.or_else(|| home.map(|home| home.join(".local/state"))) {
        return folder.join("countersteer");
    }
    let temporary = below("TMPDIR", "").unwrap_or_else(|| "/tmp".into());
    temporary.join(format!("countersteer-{uid}"))
}

/// Creates the folder of journals, which only its user can access, unless it exists.
///
/// # Errors
/// Fails if the folder cannot be created, or if another user created it or can write in it.
pub fn make_folder(folder: &Path) -> Result<(), JournalError> {
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder);
    let failed = |source| JournalError {
        path: folder.to_owned(),
        source,
    };
    made.and_then(|()| is_own(folder)).map_err(failed)
}

/// Fails for a folder that another user created or can replace, because it may contain files of that user.
pub(super) fn is_own(folder: &Path) -> io::Result<()> {
    // Any user may have created a link, even one that leads to a folder of this user.
    let found = std::fs::symlink_metadata(folder)?;
    let why = if !found.is_dir() {
        "it is no folder, or a link to one"
    } else if found.uid() != nix::unistd::geteuid().as_raw() {
        "the folder is another user's (set XDG_RUNTIME_DIR to a folder of yours)"
    } else if found.mode() & 0o022 != 0 {
        "others may write in the folder"
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_in_the_temporary_directory_is_the_last_choice() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let uid = std::fs::metadata(place.path()).unwrap().uid();
        let (home, given, temporary) = (path("home"), path("given"), path("tmp"));
        std::fs::create_dir(&home).unwrap();
        std::fs::create_dir(&given).unwrap();
        let all: [(&str, &Path); 3] = [
            ("XDG_RUNTIME_DIR", &given),
            ("HOME", &home),
            ("TMPDIR", &temporary),
        ];
        let chosen = |environment: &[(&str, &Path)]| {
            of_user(uid, &path("run"), |name| {
                let found = environment.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| value.as_os_str().to_owned())
            })
        };
        assert_eq!(chosen(&all), given.join("countersteer"));
        let state = home.join(".local/state/countersteer");
        assert_eq!(chosen(&all[1..]), state);
        let last = temporary.join(format!("countersteer-{uid}"));
        assert_eq!(chosen(&all[2..]), last);
        // A home that is another user's, as root's is for a service.
        let foreign = [("HOME", Path::new("/proc/nowhere")), all[2]];
        assert_eq!(chosen(&foreign), last);
        let runtime = path("run").join(uid.to_string());
        std::fs::create_dir_all(&runtime).unwrap();
        assert_eq!(chosen(&all[1..]), runtime.join("countersteer"));
    }
}
